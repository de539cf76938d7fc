"""Pushing, but for what was pushed before: arguments are checked, functions traced or taken for host operations, bulks filled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import get_ident
from typing import Any

from streamscope.engines.pushed.applications import Application
from streamscope.engines.pushed.bulk import Bulk, Variables, combined
from streamscope.engines.pushed.catalogue import Catalogue, Key, TracingError
from streamscope.engines.pushed.faults import Fault
from streamscope.engines.pushed.host_operations import HostFunction
from streamscope.engines.pushed.issuing import Issuer
from streamscope.engines.pushed.latch import Latch
from streamscope.engines.pushed.lifetimes import Lifetimes
from streamscope.engines.pushed.scheduler import Scheduler
from streamscope.engines.pushed.templates import Template, is_operator
from streamscope.engines.pushed.variable import DynamicVariable, VariableState
from streamscope.errors import EngineError, ProgramError
from streamscope.forks import left_behind
from streamscope.interrupts import deferred
from streamscope.program.user_line import user_line
from streamscope.program.variable import Place

States = tuple[VariableState, ...]


class Pusher:
    """Makes operations of what is pushed.

    Attributes
    ----------
    bulks : dict of int to Bulk
        By thread: the bulk that it has open.
    pushed, found : int
        Operations that came this way, and device operations among them that were bound already.
    closed : bool
        Nothing can be pushed any more.
    foreign : bool
        This is a forked child of the process that the engine belongs to.
    """

    def __init__(self, issuer: Issuer, scheduler: Scheduler, catalogue: Catalogue, lifetimes: Lifetimes) -> None:
        self.bulks: dict[int, Bulk] = {}
        self.pushed = 0
        self.found = 0
        self.closed = False
        self.foreign = False
        self._issuer = issuer
        self._scheduler = scheduler
        self._catalogue = catalogue
        self._lifetimes = lifetimes

    def push(
        self,
        key: Key | None,
        function: Callable[..., Any],
        reads: tuple[DynamicVariable, ...],
        writes: tuple[DynamicVariable, ...],
        priority: int,
        name: str | None,
        attributes: Mapping[str, Any],
    ) -> None:
        """Push an operation; see `Engine.push`."""
        self.check_open()
        arguments, targets = self._states("reads", reads), tuple(dict.fromkeys(self._states("writes", writes)))
        title = _checked_name(function, name)
        check_hashable(function, attributes)
        _check_priority(priority)
        for state in arguments:
            if not state.written:
                raise ProgramError(f"{title} reads {state.name!r}, which nothing has written", hint="write it first, or make it of values")
        where = user_line()
        if not is_operator(function) and all(state.place is Place.HOST for state in (*arguments, *targets)):
            self.push_host(HostFunction(title, where, function, arguments, targets, attributes), priority)
            return
        for attribute, value in attributes.items():
            if isinstance(value, DynamicVariable):
                raise ProgramError(f"{title} got {value.name!r} as {attribute}=", hint="name variables in reads= and writes=")
        try:
            template = self._catalogue.template(function, title, arguments, targets, attributes)
        except TracingError as error:
            self._fail_in_turn(title, where, arguments, targets, error)
            return
        if template.host_call is not None:
            self.push_host(_host_function(title, where, template, arguments, targets), priority)
            return
        application = self._application(key, title, template, arguments, targets, priority)
        self.push_known(application, where, priority, (reads, writes))

    def push_known(self, application: Application, where: str, priority: int, variables: Variables) -> None:
        """Push what is traced and checked already: into a bulk, or to wait for its turn."""
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

    def push_host(self, function: HostFunction, priority: int = 0) -> Latch:
        """Push a host operation and return what is set when it has ended."""
        self.flush()
        # Ctrl-C must not come between: what is queued and for this thread to run, nobody else would.
        with deferred():
            with self._issuer.lock:
                self.pushed += 1
                self._prepare(function.writes, function.arguments)
                done, ready = self._scheduler.submit_host(function, priority)
            self._scheduler.run_here(ready)
        self._wait_if_synchronous(done)
        return done

    def flush(self) -> None:
        """Issue what the calling thread has pushed in bulk."""
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
            bulk.pushed = []
        self._wait_if_synchronous(done)

    def _is_alive(self, application: Application, line: str) -> bool:
        """Tell whether all variables are there; another thread may have deleted one since the operation was put into the bulk."""
        gone = [state for state in application.states if state.deleted]
        if gone:
            error = ProgramError(f"{gone[0].name!r} was deleted before the bulk was issued", hint="delete it after the block")
            self._issuer.fail(application.writes, Fault(application.parts[0].name, line, error))
        return not gone

    def state_of(self, variable: DynamicVariable, what: str = "the variable") -> VariableState:
        """Return what the engine knows of a variable.

        Raises
        ------
        ProgramError
            It is no variable, or not one of this engine's, or was deleted.
        """
        if not isinstance(variable, DynamicVariable):
            raise ProgramError(
                f"{what} is a {type(variable).__name__}, not a variable of an engine", hint="make one with engine.variable(values)"
            )
        state: VariableState = variable._state  # noqa: SLF001 — the handle hides it from users, not from the engine
        self._check_alive((state,))
        if self._lifetimes.live.get(state.id) is not state:
            raise ProgramError(f"{state.name!r} belongs to another engine", hint="use the engine that made it")
        return state

    def close(self) -> None:
        """Refuse what is pushed from now on."""
        with self._issuer.lock, deferred():
            self.closed = True

    def check_open(self) -> None:
        """Raise EngineError if the engine was closed, but for what host operations push that it waits for; or in a forked child."""
        self.check_process()
        if self.closed and not self._scheduler.is_inside:
            raise EngineError("the engine was closed", hint="make a new one with ss.Engine()")

    def check_process(self) -> None:
        """Raise EngineError in a forked child."""
        if self.foreign:
            raise left_behind("the engine")

    def _application(
        self, key: Key | None, title: str, template: Template, arguments: States, targets: States, priority: int
    ) -> Application:
        with self._issuer.lock, deferred():
            self._prepare(targets, arguments)
            self.pushed += 1
            application = None if key is None else self._catalogue.get(key)
            if application is None:
                application = self._catalogue.application(key, title, template, arguments, targets, priority=priority > 0)
            else:
                self.found += 1
        return application

    def _fail_in_turn(self, title: str, where: str, arguments: States, targets: States, error: TracingError) -> None:
        self.flush()
        reads = tuple(state for state in dict.fromkeys(arguments) if state not in targets)
        with self._issuer.lock, deferred():
            self.pushed += 1
            self._prepare(targets, arguments)
            fault = Fault(title, where, error.__cause__ or error, self._issuer.faults.number())

            def fail() -> None:
                if not self._issuer.passed_on(arguments, targets, fault.pushed):
                    self._issuer.fail(targets, fault)

            self._scheduler.take_turn(reads, targets, fail)

    def _prepare(self, writes: Sequence[VariableState], reads: Sequence[VariableState]) -> None:
        """Look at everything once more under the lock, before something is queued."""
        self.check_open()
        if self._issuer.torn:
            self._issuer.mend()
        self._lifetimes.collect()
        self._check_alive((*reads, *writes))
        for state in writes:
            state.written = True

    def _check_alive(self, states: Iterable[VariableState]) -> None:
        for state in states:
            if state.deleted:
                self.check_open()  # Closing the engine, on another thread, has deleted all.
                raise ProgramError(f"{state.name!r} was deleted", hint="make a new variable")

    def _wait_if_synchronous(self, done: Latch | None) -> None:
        if done is not None and not self._scheduler.pools and not self._scheduler.is_inside:
            done.wait()

    def _states(self, argument: str, variables: tuple[DynamicVariable, ...]) -> States:
        return tuple(self.state_of(variable, f"{argument}[{number}]") for number, variable in enumerate(variables))


def listed(argument: str, variables: Iterable[DynamicVariable]) -> tuple[DynamicVariable, ...]:
    """Return variables as a tuple.

    Raises
    ------
    ProgramError
        They are none.
    """
    try:
        return tuple(variables)
    except TypeError:
        raise ProgramError(f"{argument}= is {variables!r}", hint=f"give a tuple of variables: {argument}=(x,)") from None


def checked_name(name: object) -> str | None:
    """Return what errors are to call something, if it is given.

    Raises
    ------
    ProgramError
        It is no string.
    """
    if name is not None and not isinstance(name, str):
        raise ProgramError(f"name={name!r} is a {type(name).__name__}, not a string", hint="it is what errors say; it may be left out")
    return name


def _checked_name(function: object, name: str | None) -> str:
    if not callable(function):
        raise ProgramError(f"push wants a function or an operator, not a {type(function).__name__}")
    return checked_name(name) or getattr(function, "__name__", None) or getattr(function, "name", None) or type(function).__name__


def _check_priority(priority: object) -> None:
    if not isinstance(priority, int):
        raise ProgramError(f"priority={priority!r} is not a whole number", hint="0 is ordinary; above 0, the highest goes first")


def check_hashable(function: object, attributes: Mapping[str, Any]) -> None:
    """Check that a function and its attributes can be part of a key.

    Raises
    ------
    ProgramError
        One cannot.
    """
    for what, value in (("the function", function), *((f"attribute {key}=", value) for key, value in attributes.items())):
        try:
            hash(value)
        except TypeError:
            raise ProgramError(
                f"{what} is a {type(value).__name__}, which cannot be looked up", hint="pass a tuple, or fix it in a function"
            ) from None


def _host_function(title: str, where: str, template: Template, arguments: States, targets: States) -> HostFunction:
    program, call = template.program, template.host_call
    assert call is not None
    states = dict(zip(program.inputs, dict.fromkeys(arguments), strict=True)) | dict(zip(program.outputs, targets, strict=True))
    used, written = ([states[variable] for variable in ids] for ids in (call.reads, call.writes))
    return HostFunction(title, where, call.function, used, written, {}, call.duration_ns)
