"""Pushing: operations that were pushed before are launched again; else arguments are checked, functions traced, and bulks filled."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from types import CodeType, FrameType

from streamscope.engines.pushed.arguments import Asked, check_complete, checked_function
from streamscope.engines.pushed.catalogue import Application, Catalogue, Key, RecentlyUsed, TracingError, combined
from streamscope.engines.pushed.contents import Lifetimes
from streamscope.engines.pushed.faults import Fault
from streamscope.engines.pushed.host_operations import AsyncHostFunction, HostFunction
from streamscope.engines.pushed.issuing import Issuer
from streamscope.engines.pushed.scheduler import Scheduler
from streamscope.engines.pushed.templates import Template
from streamscope.engines.pushed.variable import PushedVariable, VariableState, idle, passed_on, promise
from streamscope.engines.pushed.watching import Watch
from streamscope.engines.pushed.workers import Latch
from streamscope.errors import EngineError, ProgramError
from streamscope.forks import left_behind
from streamscope.interrupts import deferred
from streamscope.program.tracer import is_operator
from streamscope.program.user_line import user_line
from streamscope.program.variable import MemoryPlace
from streamscope.words import a_kind

_Variables = tuple[tuple[PushedVariable, ...], tuple[PushedVariable, ...]]
"""The variables that an operation reads, and those that it writes."""
_States = tuple[VariableState, ...]
_KEPT_LINES = 256


@dataclass
class Bulk:
    """The operations that one thread has pushed in bulk and that are not issued yet."""

    size: int
    """How many there may be."""
    pushed: list[tuple[Application, str, _Variables]] = field(default_factory=list)
    """With the user's line of each, and its variables, which must not be let go before it is issued."""
    priority: int = 0
    """The highest of theirs."""

    def takes(self, application: Application) -> bool:
        """Tell whether an operation can go with those that are there: on the same kind of stream."""
        if not self.pushed:
            return True
        first = self.pushed[0][0]
        return first.kind is application.kind and first.priority is application.priority and first.gpus == application.gpus

    def add(self, application: Application, line: str, priority: int, variables: _Variables) -> bool:
        """Add an operation; True if that is as many as there may be."""
        if priority > self.priority or not self.pushed:
            self.priority = priority
        self.pushed.append((application, line, variables))
        return len(self.pushed) >= self.size


class Pusher:
    """Makes operations of pushed functions."""

    def __init__(self, issuer: Issuer, scheduler: Scheduler, catalogue: Catalogue, lifetimes: Lifetimes, watch: Watch) -> None:
        self.bulks: dict[int, Bulk] = {}
        """By thread: the bulk that it has open."""
        self.again = 0
        """Operations that were launched as they were pushed before, by `push_again`."""
        self.pushed = 0
        self.found = 0
        """Operations that came another way, and device operations among them that were bound already."""
        self.closed = False
        """Nothing can be pushed any more."""
        self.foreign = False
        """This is a forked child of the process that the engine belongs to."""
        self._issuer = issuer
        self._scheduler = scheduler
        self._catalogue = catalogue
        self._lifetimes = lifetimes
        self._watch = watch
        self._lines: RecentlyUsed[tuple[CodeType, int], str] = RecentlyUsed(_KEPT_LINES)

    def push_again(self, key: Key, reads: tuple[PushedVariable, ...], writes: tuple[PushedVariable, ...], priority: int) -> bool:
        """Launch an operation that was pushed before with the same variables; False if it was not. This is the quick path."""
        with self._issuer.lock:
            try:
                application = self._catalogue.applications[key]
            except TypeError:  # It cannot be hashed.
                return False
            # The slow way collects dropped variables, mends what Ctrl-C has torn, and says that the engine is closed.
            if application is None or self._lifetimes.dropped or self._issuer.torn or self.closed:
                return False
            self.again += 1
            if not self.bulks and (not self._scheduler.unfinished or idle(application.reads, application.writes)):
                self._issuer.issue(application)
                return True
        # Outside the lock: only what waits or fails needs the line.
        line = self._line_of(sys._getframe(2))  # noqa: SLF001 — as in `user_line`
        self._push_known(application, line, priority, (reads, writes))
        return True

    def push(self, asked: Asked, key: Key | None = None) -> None:
        """Push an operation; see `Engine.push`."""
        arguments, targets, title = self._checked(asked)
        where, function, attributes = user_line(), asked.function, asked.attributes
        if not is_operator(function) and all(state.place is MemoryPlace.HOST for state in (*arguments, *targets)):
            self.push_host(HostFunction(title, where, function, arguments, targets, attributes), asked.priority)
            return
        for attribute, value in attributes.items():
            if isinstance(value, PushedVariable):
                raise ProgramError(f"{title} got {value.name!r} as {attribute}=", hint="name variables in reads= and writes=")
        check_complete(function, title, len(arguments), attributes)
        try:
            template = self._catalogue.template(function, title, arguments, targets, attributes)
        except TracingError as error:
            self._fail_in_turn(title, where, arguments, targets, error)
            return
        if template.host_call is not None:
            self.push_host(_host_function(title, where, template, arguments, targets), asked.priority)
            return
        application = self._application(key, title, template, arguments, targets, asked.priority)
        self._push_known(application, where, asked.priority, (asked.reads, asked.writes))

    def push_async(self, asked: Asked) -> None:
        """Push an asynchronous host function; see `Engine.push_async`."""
        arguments, targets, title = self._checked(asked)
        elsewhere = [state.name for state in (*arguments, *targets) if state.place is not MemoryPlace.HOST]
        if is_operator(asked.function) or elsewhere:
            what = f"{title} got {elsewhere[0]!r}, which lies in device memory" if elsewhere else f"{title} is an operator"
            raise ProgramError(f"push_async takes functions over host variables, and {what}", hint="copy it first with ss.ops.to_host")
        self.push_host(AsyncHostFunction(title, user_line(), asked.function, arguments, targets, asked.attributes), asked.priority)

    def push_host(self, function: HostFunction, priority: int = 0) -> Latch:
        """Push a host operation and return the flag that is set when it has ended."""
        self.flush()
        self._watch.host(function)
        # Ctrl-C must not come between: only this thread would run the operations that it gets.
        with deferred():
            with self._issuer.lock:
                self.pushed += 1
                # Checked once more: another thread may have deleted a variable or closed the engine since.
                self._prepare(function.writes, function.arguments)
                done, ready = self._scheduler.submit_host(function, priority)
            self._scheduler.run_here(ready)
        self._wait_if_synchronous(done)
        return done

    # Bulks.

    @contextmanager
    def bulk(self, size: int) -> Iterator[None]:
        """Issue neighbouring device operations that the calling thread pushes in the block as one; see `Engine.bulk`."""
        thread = get_ident()
        if thread in self.bulks:
            yield  # A block in a block fills the outer one's.
            return
        try:
            self.bulks[thread] = Bulk(size)
            yield
        finally:
            try:
                self.flush()
            finally:
                self.bulks.pop(thread, None)

    def flush(self) -> None:
        """Issue the operations that the calling thread has pushed in bulk."""
        bulk = self.bulks.get(get_ident())
        if bulk is None or not bulk.pushed:
            return
        done = None
        with self._issuer.lock, deferred():
            if self.closed:
                bulk.pushed = []
            self.check_open()
            alive = [(application, line) for application, line, _ in bulk.pushed if self._is_alive(application, line)]
            if alive:
                done = self._scheduler.submit(combined(alive), None, bulk.priority)
            # The variables of its operations may be let go from here on.
            bulk.pushed = []
        self._wait_if_synchronous(done)

    def _is_alive(self, application: Application, line: str) -> bool:
        """Tell whether all variables are there; another thread may have deleted one since the operation was put into the bulk."""
        gone = [state for state in application.states if state.deleted]
        if gone:
            error = ProgramError(f"{gone[0].name!r} was deleted before the bulk was issued", hint="delete it after the block")
            self._issuer.fail(application.writes, Fault(application.parts[0].name, line, error))
        return not gone

    # Whether it can be pushed.

    def state_of(self, variable: PushedVariable, what: str = "the variable") -> VariableState:
        """Return the engine's record of a variable."""
        if not isinstance(variable, PushedVariable):
            raise ProgramError(f"{what} is {a_kind(variable)}, not a variable of an engine", hint="make one with engine.variable(values)")
        state: VariableState = variable._state  # noqa: SLF001 — the handle hides it from users, not from the engine
        self._check_alive((state,))
        if self._lifetimes.live.get(state.id) is not state:
            self.check_open()  # Another thread may have closed the engine since the call began.
            raise ProgramError(f"{state.name!r} belongs to another engine", hint="use the engine that made it")
        return state

    def close(self) -> None:
        """Refuse to push from now on."""
        with self._issuer.lock, deferred():
            self.closed = True

    def check_open(self) -> None:
        """Raise EngineError in a forked child, or if the engine was closed; host operations that it still runs may push."""
        self.check_process()
        if self.closed and not self._scheduler.is_inside:
            raise EngineError("the engine was closed", hint="make a new one with ss.Engine()")

    def check_process(self) -> None:
        """Raise EngineError in a forked child."""
        if self.foreign:
            raise left_behind("the engine")

    def _checked(self, asked: Asked) -> tuple[_States, _States, str]:
        """Return the variables that an operation reads, those that it writes, each once, and its name."""
        self.check_open()
        arguments, targets = self._states("reads", asked.reads), tuple(dict.fromkeys(self._states("writes", asked.writes)))
        title = checked_function(asked.function, asked.name, asked.attributes, asked.priority)
        for state in arguments:
            if not state.written:
                raise ProgramError(f"{title} reads {state.name!r}, which nothing has written", hint="write it first, or make it of values")
        return arguments, targets, title

    def _application(
        self, key: Key | None, title: str, template: Template, arguments: _States, targets: _States, priority: int
    ) -> Application:
        with self._issuer.lock, deferred():
            self._prepare(targets, arguments)
            self.pushed += 1
            application = None if key is None else self._catalogue.applications[key]
            if application is None:
                application = self._catalogue.application(key, title, template, arguments, targets, priority=priority > 0)
            else:
                self.found += 1
        return application

    def _fail_in_turn(self, title: str, where: str, arguments: _States, targets: _States, error: TracingError) -> None:
        self.flush()
        reads = tuple(state for state in dict.fromkeys(arguments) if state not in targets)
        with self._issuer.lock, deferred():
            self.pushed += 1
            self._prepare(targets, arguments)
            fault = Fault(title, where, error.__cause__ or error, self._issuer.faults.number())

            def fail() -> None:
                if not passed_on(arguments, targets, fault.pushed):
                    self._issuer.fail(targets, fault)

            self._scheduler.take_turn(reads, targets, fail)

    def _push_known(self, application: Application, where: str, priority: int, variables: _Variables) -> None:
        """Push an operation that is traced and checked already: into a bulk, or to wait for its turn."""
        bulk = self.bulks.get(get_ident())
        if bulk is not None:
            if not bulk.takes(application):
                self.flush()
            if bulk.add(application, where, priority, variables):
                self.flush()
            return
        with self._issuer.lock, deferred():
            self.check_open()
            self._check_alive(application.states)
            done = self._scheduler.submit(application, where, priority)
        self._wait_if_synchronous(done)

    def _prepare(self, writes: Sequence[VariableState], reads: Sequence[VariableState]) -> None:
        """Look at everything once more under the lock, before something is queued."""
        self.check_open()
        self._issuer.mend_if_torn()
        self._issuer.note_aborts()
        self._lifetimes.collect()
        self._check_alive((*reads, *writes))
        promise(writes)

    def _line_of(self, caller: FrameType) -> str:
        """Return `user_line`, looked up once for each line that calls: to find it takes longer than to launch a kernel."""
        key = (caller.f_code, caller.f_lineno)
        name = self._lines[key]
        if name is None:
            name = user_line()
            self._lines.put(key, name)
        return name

    def _check_alive(self, states: Iterable[VariableState]) -> None:
        for state in states:
            if state.deleted:
                self.check_open()  # Closing the engine, on another thread, has deleted all.
                raise ProgramError(f"{state.name!r} was deleted", hint="make a new variable")

    def _wait_if_synchronous(self, done: Latch | None) -> None:
        if done is not None and not self._scheduler.pools and not self._scheduler.is_inside:
            done.wait()

    def _states(self, argument: str, variables: tuple[PushedVariable, ...]) -> _States:
        return tuple(self.state_of(variable, f"{argument}[{number}]") for number, variable in enumerate(variables))


def _host_function(title: str, where: str, template: Template, arguments: _States, targets: _States) -> HostFunction:
    program, call = template.program, template.host_call
    assert call is not None
    states = dict(zip(program.inputs, dict.fromkeys(arguments), strict=True)) | dict(zip(program.outputs, targets, strict=True))
    used, written = (tuple(states[variable] for variable in ids) for ids in (call.reads, call.writes))
    return HostFunction(title, where, call.function, used, written, duration_ns=call.duration_ns)
