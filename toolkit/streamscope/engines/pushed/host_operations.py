"""Host operations: Python functions over NumPy arrays, those that call back later, and their queue before the worker threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from threading import Lock
from typing import Any

from streamscope.engines.pushed.issuing import Issuer
from streamscope.engines.pushed.lanes import EventStamp
from streamscope.engines.pushed.variable import VariableState
from streamscope.engines.pushed.workers import Latch, Workers
from streamscope.errors import EngineError, ProgramError
from streamscope.interrupts import deferred, let_through
from streamscope.order.clocks import Clock, fewest
from streamscope.order.hazards import HOST, unordered
from streamscope.program.launch import HostCall
from streamscope.words import a_kind, counted

_DURATION_NS = 20_000.0
"""How long a function takes on the simulated device that does not say: the same as `ss.host_function`."""


@dataclass(eq=False)
class HostFunction:
    """A function with the variables it is called on."""

    name: str
    where: str
    """Its name in errors, and the user's line that pushed it."""
    function: Callable[..., Any]
    """``function(*arrays, **attributes) -> array, tuple of arrays, or None if it writes nothing``."""
    arguments: tuple[VariableState, ...]
    writes: tuple[VariableState, ...]
    """Each once."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    duration_ns: float = _DURATION_NS
    """On the simulated device."""
    in_turn: Callable[[], object] = int
    """Called before the device is waited for, and when the function has returned, before its results count; see `HostQueue`."""

    @property
    def reads(self) -> tuple[VariableState, ...]:
        """Variables that it only reads, each once."""
        return tuple(state for state in dict.fromkeys(self.arguments) if state not in self.writes)

    def before(self, known: Clock) -> list[EventStamp]:
        """Return the fewest stamps that the host must wait for first, given its clock; the caller holds the lock."""
        return fewest(known, unordered(HOST, known, self.reads, self.writes))

    def allocate(self, issuer: Issuer) -> None:
        """Get memory for variables that nothing has written before; the caller holds the lock and has put off Ctrl-C."""
        for state in self.writes:
            state.allocate(issuer.memory, None, self.name)

    def run(self, issuer: Issuer, resume: Callable[[], object] | None) -> bool:
        """Call the function on the calling thread, without a lock; its exceptions pass.

        Tell whether the operation has ended. If not, ``resume`` is called when this is to be called again; without it, this waits for that.
        """
        self._call(issuer, self._called, self.arguments, self.writes, self.duration_ns)
        return True

    def _call(
        self,
        issuer: Issuer,
        function: Callable[..., Any],
        arguments: Sequence[VariableState],
        writes: Sequence[VariableState],
        duration_ns: float,
    ) -> None:
        reads = [state.memory() for state in arguments]
        if writes:
            with issuer.lock, deferred():
                self.allocate(issuer)
        ids = {state: number for number, state in enumerate(dict.fromkeys((*arguments, *writes)))}
        call = HostCall(0, self.name, tuple(ids[s] for s in arguments), tuple(ids[s] for s in writes), function, duration_ns)
        issuer.device.bind_host(call, reads, [state.memory() for state in writes])()

    def _called(self, *arrays: Any) -> Any:
        """Call the function as `bind_host` wants it."""
        result = let_through(self.function, *arrays, **self.attributes)
        self.in_turn()
        if not self.writes:
            return ()
        if result is None:
            raise EngineError(
                f"{self.name} returned None, and writes {counted(len(self.writes), 'variable')}", hint="return an array for each"
            )
        return result


class Done:
    """Ends an asynchronous host operation: its function gets one, and calls it once, on any thread, then or later."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._outcome: tuple[Any, BaseException | None] | None = None
        self._resume: Callable[[], object] | None = None

    def __call__(self, results: Any = None, *, error: BaseException | None = None) -> None:
        """End the operation.

        Parameters
        ----------
        results : array or tuple of arrays, optional
            What the operation writes; nothing where it writes nothing.
        error : BaseException, optional
            Why it failed, instead.

        Raises
        ------
        EngineError
            It was called before.
        ProgramError
            ``error`` is not an exception, or both were given.
        """
        given: object = error
        if given is not None and (not isinstance(given, BaseException) or results is not None):
            what = "results and error= were both given" if results is not None else f"error= is {a_kind(given)}, not an exception"
            raise ProgramError(f"done() of {self._name}: {what}", hint="done(array), done((one, other)), or done(error=exception)")
        # Ctrl-C must not come between: nobody else would end the operation.
        with deferred():
            with self._lock:
                if self._outcome is not None:
                    raise EngineError(f"done() of {self._name} was called twice", hint="call it once for each push")
                self._outcome, resume, self._resume = (results, error), self._resume, None
            if resume is not None:
                resume()

    def comes_later(self, resume: Callable[[], object]) -> bool:
        """Let ``resume`` be called as soon as this is; False if it was before."""
        with self._lock:
            if self._outcome is None:
                self._resume = resume
            return self._outcome is None

    @property
    def results(self) -> Any:
        """What it was called with; an error is raised."""
        assert self._outcome is not None
        results, error = self._outcome
        if error is not None:
            raise error
        return results


@dataclass(eq=False)
class AsyncHostFunction(HostFunction):
    """A function that returns at once, ``function(done, *arrays, **attributes)``, and calls ``done`` later: no thread is held meanwhile."""

    done: Done = field(init=False)
    _started: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.done = Done(self.name)

    def run(self, issuer: Issuer, resume: Callable[[], object] | None) -> bool:
        """Call the function, or end the operation where it has called back."""
        if not self._started:
            self._started = True
            self._call(issuer, self._start, self.arguments, (), self.duration_ns)
            called = Latch()
            if self.done.comes_later(called.set if resume is None else resume):
                if resume is not None:
                    return False
                let_through(called.wait)
        self._call(issuer, self._finish, (), self.writes, 0.0)
        return True

    def _start(self, *arrays: Any) -> Any:
        let_through(self.function, self.done, *arrays, **self.attributes)
        self.in_turn()
        return ()

    def _finish(self) -> Any:
        self.in_turn()
        results = self.done.results
        if not self.writes:
            return ()
        if results is None:
            what = f"done() of {self.name} was called without results, and it writes {counted(len(self.writes), 'variable')}"
            raise EngineError(what, hint="give it an array for each")
        return results


PATIENCE_S = 1.0
"""How long a worker waits for its turn, in seconds, while nobody waits for the engine and the clock stands still."""
WHILE_PUSHED = 5
"""So many times as long, where nobody waits for the engine but others move the clock, as by pushes."""
WHILE_AWAITED = 30
"""And so many where a thread waits for the engine, and the clock stands still: a function that runs may take long."""


class HostQueue:
    """Host operations that are ready and wait for a worker; and the order in which workers move a virtual clock.

    The highest priority goes first, then the earliest. A worker's next operation is chosen as its last one ends.

    On a device whose clock is virtual, nothing may depend on how fast the workers are. Functions run beside each other, as on any device.
    An operation moves the clock when it waits for the device, and when it ends, which takes the function's time and issues operations that
    waited for it. These *moves* go one after the other, as they were lined up, and only while a thread waits for the engine; that thread
    pushes nothing in between.

    A thread may wait in another way, for something that a function does, and a function for one whose move comes later. So a worker that
    has waited too long lets all moves go as they come from then on.

    The caller holds the engine's lock, but for `wait` and `release`.
    """

    def __init__(self, pools: Sequence[Workers], now_ns: Callable[[], int], *, ordered: bool = True) -> None:
        self._pools = pools
        self._now_ns = now_ns
        """Returns the device's clock."""
        self._idle = [pool.most for pool in pools]
        self._queued: list[list[tuple[int, int, Callable[[Latch], object]]]] = [[] for _ in pools]
        self._moves: deque[Latch] = deque()
        self._awaited: list[Latch] = []
        self.ordered = ordered
        """That clock is virtual. Else all moves go as they come; an attribute, too, which `release` clears."""

    def put(self, pool: int, priority: int, sequence: int, run: Callable[[Latch], object]) -> None:
        """Give an operation to a pool as soon as a worker is idle there; ``run`` gets its first move."""
        heappush(self._queued[pool], (-priority, sequence, run))
        self._hand_out(pool)

    def wait(self, move: Latch) -> None:
        """Block a worker until a move has its turn."""
        seen_ns, alone, still = self._now_ns(), 0, 0
        while not move.comes_within(PATIENCE_S):
            before_ns, seen_ns = seen_ns, self._now_ns()
            stands = seen_ns == before_ns
            if any(not latch.is_set for latch in self._awaited):
                alone, still = 0, still + 1 if stands else 0
            else:
                alone, still = alone + 1, 0
            if alone >= (1 if stands else WHILE_PUSHED) or still >= WHILE_AWAITED:
                self.release()

    def follow(self, move: Latch) -> Latch:
        """End a move and line up the operation's next one."""
        following = self._line_up()
        self._over(move)
        return following

    def end(self, pool: int, move: Latch) -> None:
        """End an operation's last move; its worker is idle."""
        self._idle[pool] += 1
        self._hand_out(pool)
        self._over(move)

    def await_latch(self, latch: Latch) -> None:
        """Let moves go until a latch is set, which the calling thread is about to wait for."""
        self._awaited = [other for other in self._awaited if not other.is_set]
        self._awaited.append(latch)
        self._let_go()

    def release(self) -> None:
        """Let all moves go as they come, from now on. Takes no lock."""
        self.ordered = False
        for move in list(self._moves):
            move.set()

    def _hand_out(self, pool: int) -> None:
        while self._idle[pool] and self._queued[pool]:
            _, _, run = heappop(self._queued[pool])
            move = self._line_up()
            try:
                self._pools[pool].put(partial(run, move))
            except EngineError:
                self._moves.remove(move)
                raise
            self._idle[pool] -= 1

    def _line_up(self) -> Latch:
        move = Latch()
        self._moves.append(move)
        self._let_go()
        return move

    def _over(self, move: Latch) -> None:
        self._moves.remove(move)
        self._let_go()

    def _let_go(self) -> None:
        if not self.ordered:
            self.release()
        elif self._moves and any(not latch.is_set for latch in self._awaited):
            # Only the first: `_over` lets the next one go, so moves keep their order on the virtual clock.
            self._moves[0].set()
