"""The scheduler of a pushed engine: whose turn it is, worker threads, and waits of the host."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from heapq import heapify, heappop, heappush

from streamscope.engines.pushed.catalogue import Application
from streamscope.engines.pushed.faults import Fault
from streamscope.engines.pushed.host_operations import HostFunction, HostQueue
from streamscope.engines.pushed.issuing import Issuer
from streamscope.engines.pushed.lanes import EventStamp
from streamscope.engines.pushed.variable import Turn, VariableState, enter, idle, leave, passed_on, written_by_host
from streamscope.engines.pushed.workers import Latch, Workers
from streamscope.errors import EngineError, OutOfMemoryError, WaitTimeoutError
from streamscope.interrupts import deferred, is_interruption
from streamscope.order.clocks import fewest
from streamscope.order.hazards import hazards
from streamscope.program.user_line import user_line
from streamscope.words import time_text

_HostRun = Callable[[], "tuple[list[_HostRun], BaseException | None]"]
"""Runs a host operation; returns those that the calling thread has to run next, and an interruption that came meanwhile."""


class TimeLimit:
    """The end of a wait's patience: on the device's clock for the device, on the machine's for host functions."""

    def __init__(self, timeout_s: float, now_ns: Callable[[], int]) -> None:
        self.timeout_s = timeout_s
        self._now_ns = now_ns
        self._begin_ns, self._begin_s = now_ns(), time.monotonic()

    @property
    def left_s(self) -> float:
        """Seconds that are left, on the machine's clock."""
        return max(0.0, self.timeout_s - (time.monotonic() - self._begin_s))

    @property
    def left_on_device_s(self) -> float:
        """Seconds that are left, on the device's clock."""
        return max(0.0, self.timeout_s - (self._now_ns() - self._begin_ns) / 1e9)


class Scheduler:
    """Lets operations take turns, and waits for them.

    A device operation is issued by the thread that gives it its last turn: the one that pushes it, or one that has finished a host
    operation. Host operations run on worker threads or, in the synchronous engine, which has none, on the thread that gives them their last
    turn.
    """

    def __init__(self, issuer: Issuer, pools: tuple[Workers, ...]) -> None:
        self.pools = pools
        """For ordinary host operations, and for those of priority; empty in the synchronous engine."""
        self.unfinished = 0
        """Host operations that were pushed and have not ended. While there are none, every operation has its turn at once."""
        self.callbacks = 0
        """Those among them whose function has returned and has not called back."""
        self.host_waits = 0
        """Events that the host waited for."""
        self.queue = HostQueue(pools, issuer.device.now_ns, ordered=issuer.device.single_threaded) if pools else None
        """Host operations that wait for a worker; None in the synchronous engine."""
        self._issuer = issuer
        self._idle: list[Latch] = []
        self._ready: list[_HostRun] = []
        self._local = threading.local()

    @property
    def is_inside(self) -> bool:
        """Whether the calling thread runs a host operation of this engine."""
        return getattr(self._local, "inside", False)

    # Turns.

    def submit(self, application: Application, where: str | None, priority: int) -> Latch | None:
        """Issue a device operation when it has its turn; the caller holds the lock and has put off Ctrl-C.

        Returns a latch that is set when it is issued, if that is later.
        """
        # Device operations end their turns as they are issued, so without host operations all turns are free.
        if not self.unfinished or idle(application.reads, application.writes):
            self._issuer.issue(application, where)
            return None
        number = self._issuer.faults.number()
        start = partial(self._issuer.issue, application, where, number)
        turn = Turn(application.reads, application.writes, start, sequence=number, priority=priority)
        self._enter(turn)
        return turn.done

    def take_turn(
        self, reads: Sequence[VariableState], writes: Sequence[VariableState], start: Callable[[], None], *, priority: int = 0
    ) -> Latch:
        """Call ``start`` when it has its turn, which ends with that; the caller holds the lock and has put off Ctrl-C."""
        turn = Turn(reads, writes, start, sequence=self._issuer.faults.number(), priority=priority)
        self._enter(turn)
        return turn.done

    def submit_host(self, function: HostFunction, priority: int) -> tuple[Latch, list[_HostRun]]:
        """Run a host operation when it has its turn; the caller holds the lock and has put off Ctrl-C.

        Returns a latch that is set when it has ended, and operations that the caller must give to `run_here` without the lock.
        """
        number = self._issuer.faults.number()
        turn = Turn(function.reads, function.writes, _nothing, sequence=number, priority=priority, on_host=True)
        turn.start = partial(self._start_host, turn, function)
        self.unfinished += 1
        self._enter(turn)
        return turn.done, self._take_ready()

    def _enter(self, turn: Turn) -> None:
        interruption = self._advance([turn]) if enter(turn) else None
        if interruption is not None:
            raise interruption

    def _advance(self, ready: list[Turn]) -> BaseException | None:
        """Start the operations that are ready, and those that become so by that, in the order of priorities; turns end whatever happens.

        Returns the exception that is to end the program, of Ctrl-C or of a function of the user's.
        """
        self._issuer.mend_if_torn()
        heapify(ready)
        interruption: BaseException | None = None
        while ready:
            turn = heappop(ready)
            start, turn.start = turn.start, _nothing  # else each would be a reference cycle
            try:
                start()
            except BaseException as error:  # noqa: BLE001 — kept and raised where the results are waited for, or raised on here
                if is_interruption(error):
                    interruption = error
                else:
                    self._issuer.fail(turn.writes, Fault("an operation", user_line(), error, turn.sequence))
            if not turn.on_host:
                turn.done.set()
                for freed in leave(turn):
                    heappush(ready, freed)
        return interruption

    # Host operations.

    def _start_host(self, turn: Turn, function: HostFunction) -> None:
        skipped = passed_on(function.arguments, function.writes, turn.sequence)
        stamps = [] if skipped else function.before(self._issuer.known)
        run = partial(self._run, turn, function, stamps, skipped=skipped)
        if self.queue is None:
            self._ready.append(run)
            return
        pool = int(turn.priority > 0)
        if self.queue.ordered:
            with suppress(OutOfMemoryError):  # It is raised once more when the function is to run.
                function.allocate(self._issuer)
        try:
            self.queue.put(pool, turn.priority, turn.sequence, run)
        except EngineError as error:
            interruption = self._end(turn, function, error, skipped=skipped)
            turn.done.set()
            if interruption is not None:
                raise interruption from None

    def _run(
        self, turn: Turn, function: HostFunction, stamps: list[EventStamp], move: Latch | None = None, *, skipped: bool
    ) -> tuple[list[_HostRun], BaseException | None]:
        """Run a host operation and end its turn; whatever happens, that is ended, but where the function calls back later."""
        failure: BaseException | None = None
        ended, interrupted = True, False
        outside = self.is_inside  # In the synchronous engine, host functions push host functions.
        if self.queue is not None and move is not None:
            function.in_turn = partial(self.queue.wait, move)
        with deferred():
            if not skipped:
                try:
                    waited = bool(stamps)
                    move = self._begin(function, stamps, move)
                    skipped = waited and self._is_lost(turn, function)
                    if not skipped:
                        self._local.inside = True
                        resume = None if self.queue is None else partial(self._resume, turn, function)
                        ended = function.run(self._issuer, resume)
                except BaseException as error:  # noqa: BLE001 — kept, and raised where the results are waited for
                    failure, interrupted = error, is_interruption(error)
                finally:
                    self._local.inside = outside
            if ended:  # else it had its turn, and may be resumed by now
                function.in_turn()  # Where it was skipped, or has raised.
            with self._issuer.lock:
                interruption = self._end(turn, function, failure, skipped=skipped) if ended else None
                ready = self._take_ready()
                if ended:
                    turn.done.set()
                else:
                    self.callbacks += 1
                # After `_end`, so that operations which this one made ready compete for its worker.
                if self.queue is not None and move is not None:
                    self.queue.end(turn.priority > 0, move)
        if not interrupted:
            failure = None  # else it and this frame hold each other
        return ready, failure or interruption

    def _resume(self, turn: Turn, function: HostFunction) -> None:
        """Let a worker end a host operation whose function has called back, on any thread."""
        assert self.queue is not None
        with self._issuer.lock, deferred():
            self.callbacks -= 1
            try:
                self.queue.put(int(turn.priority > 0), turn.priority, turn.sequence, partial(self._run, turn, function, [], skipped=False))
            except EngineError as error:
                self._end(turn, function, error, skipped=False)
                turn.done.set()

    def _begin(self, function: HostFunction, stamps: list[EventStamp], move: Latch | None) -> Latch | None:
        """Wait for the device work that a host operation needs; return its next move, where the order counts."""
        if stamps:
            function.in_turn()
            self.wait_for(stamps)
            stamps.clear()  # Their events can be lent again from here on, not when this thread gets round to it.
            if self.queue is not None and move is not None:
                with self._issuer.lock:
                    move = self.queue.follow(move)
                function.in_turn = partial(self.queue.wait, move)
        return move

    def _is_lost(self, turn: Turn, function: HostFunction) -> bool:
        """Tell whether a collective was aborted while a host operation waited for it."""
        with self._issuer.lock:
            self._issuer.note_aborts()
            return passed_on(function.arguments, function.writes, turn.sequence)

    def _end(self, turn: Turn, function: HostFunction, failure: BaseException | None, *, skipped: bool) -> BaseException | None:
        """End the turn of a host operation, as `_advance` does; the caller holds the lock."""
        if failure is not None:
            self._issuer.fail(function.writes, Fault(function.name, function.where, failure, turn.sequence))
        elif not skipped:
            written_by_host(function.writes)
        self.unfinished -= 1
        interruption = self._advance(leave(turn))
        if not self.unfinished:
            for latch in self._idle:
                latch.set()
            self._idle.clear()
        return interruption

    def _take_ready(self) -> list[_HostRun]:
        ready, self._ready = self._ready, []
        return ready

    def run_here(self, ready: Sequence[_HostRun]) -> None:
        """Run host operations on the calling thread, all of them and those they make ready; then raise the exception that interrupted one.

        The caller has put off Ctrl-C, which comes only in the functions.
        """
        interruption: BaseException | None = None
        left = deque(ready)
        while left:
            freed, interrupted = left.popleft()()
            left += freed
            interruption = interruption or interrupted
        if interruption is not None:
            raise interruption

    # Waits of the host.

    def limit(self, timeout_s: float | None) -> TimeLimit | None:
        """Begin to measure a wait."""
        return None if timeout_s is None else TimeLimit(timeout_s, self._issuer.device.now_ns)

    def wait(self, state: VariableState, *, write: bool, limit: TimeLimit | None) -> None:
        """Block the host until a variable can be read, or written, in the order of the pushes; then raise its fault."""
        self.forbid_inside()
        stamps: list[EventStamp] = []
        faults: list[Fault | None] = []

        reads, writes = ((), (state,)) if write else ((state,), ())

        def look() -> None:
            faults.append(state.fault)
            stamps.extend(hazards(reads, writes))

        with self._issuer.lock, deferred():
            self._issuer.mend_if_torn()
            turn = self.take_turn(reads, writes, look)
        what = f"waiting for {state.name!r}"
        self.block_on(turn, what, limit)
        self.wait_for(stamps, what, limit)
        with self._issuer.lock:
            self._issuer.note_aborts()
            fault = faults.pop()
            if fault is None and state.fault is not None and state.fault.lost:
                fault = state.fault
            error = self._issuer.faults.take(fault)
            del fault
        if error is not None:
            try:
                raise error
            finally:
                del error  # else it and this frame hold each other

    def wait_all(self, limit: TimeLimit | None = None) -> None:
        """Block the host until all that was pushed is done; then raise the faults that no wait has raised."""
        self.forbid_inside()
        idle_again = Latch()
        with self._issuer.lock, deferred():
            self._issuer.mend_if_torn()
            if self.unfinished:
                self._idle.append(idle_again)
            else:
                idle_again.set()
        what = "waiting for all that was pushed"
        self.block_on(idle_again, what, limit)
        failure: Exception | None = None
        try:
            self.wait_for([lane.last for lane in list(self._issuer.lanes.values()) if lane.last is not None], what, limit)
        except WaitTimeoutError:
            raise
        except Exception as error:  # noqa: BLE001 — raised below, with what else went wrong
            failure = error
        with self._issuer.lock:
            self._issuer.note_aborts()
            kept = self._issuer.faults.take_all()
        if kept is not None and failure is not None:
            kept.add_note(f"also: {failure}")
        first = kept if kept is not None else failure
        if first is not None:
            try:
                raise first
            finally:
                del first, kept, failure  # as above

    def block_on(self, latch: Latch, what: str, limit: TimeLimit | None) -> None:
        """Block the host until a latch is set, which operations do that have ended or had their turn.

        ``what``, ``limit``: the wait in words, and when it times out.
        """
        if self.queue is not None and self.queue.ordered:
            with self._issuer.lock, deferred():
                self.queue.await_latch(latch)
        if limit is None:
            latch.wait()
        elif not latch.comes_within(limit.left_s):
            raise self._timed_out(what, limit)

    def wait_for(self, stamps: Sequence[EventStamp], what: str = "", limit: TimeLimit | None = None) -> None:
        """Block the host until the device has done the stamped items; raise the device's errors.

        The caller does not hold the lock. ``what``, ``limit``: as for `block_on`.
        """
        issuer, failure = self._issuer, None
        for stamp in fewest(issuer.known, stamps):
            in_time = True
            try:
                if limit is None:
                    stamp.event.synchronize()
                else:
                    in_time = stamp.event.comes_within(limit.left_on_device_s)
            except Exception as error:  # noqa: BLE001 — raised when all have been waited for
                failure = failure or error
            except BaseException:  # Ctrl-C, by which a device may have aborted collectives.
                with issuer.lock, deferred():
                    issuer.note_aborts()
                raise
            if not in_time:
                raise self._timed_out(what, limit)
            with issuer.lock, deferred():
                self.host_waits += 1
                issuer.note_aborts()  # First: an event behind a collective that was aborted is done, too.
                issuer.learn(stamp)
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # as above

    def _timed_out(self, what: str, limit: TimeLimit | None) -> WaitTimeoutError:
        """Abort the collectives that are under way, which may never end, and return the error of a wait."""
        assert limit is not None
        hint = "wait longer, or look at what was pushed before"
        if self._issuer.abort_collectives():
            hint = "collectives that were under way were aborted; a wait for their results says so"
            with self._issuer.lock, deferred():
                self._issuer.note_aborts()
        return WaitTimeoutError(f"{what} took longer than {time_text(limit.timeout_s * 1e9)}", hint=hint)

    def forbid_inside(self) -> None:
        """Raise EngineError in a host operation of this engine, where a wait could be for the operation itself."""
        if self.is_inside:
            raise EngineError("a host operation cannot wait for the engine that runs it", hint="name what it needs in reads= instead")

    # The end.

    def abandon(self, held: object) -> None:
        """Let the threads of an engine that nobody holds any more end, and the device finish before its memory goes to others.

        The threads first run the pushed operations. As long as they do, they keep the memory; until this is called, ``held`` does.
        """
        if self.queue is not None:
            self.queue.release()  # Nobody waits any more.
        for pool in self.pools:
            pool.stop(self._issuer.let_finish)
        self._issuer.let_finish()


def _nothing() -> None:
    """Start nothing: the operation gets its own start before it is queued."""
