"""The queues of variables: whose turn it is.

Of each variable there are many readers or one writer at a time, in the order in which they were pushed: no read passes an earlier write,
no write an earlier read. An operation starts when it has its turn with all of its variables. For an operation on the device, a turn lasts
until it is issued, since from then on streams and events keep the order; for one on the host, until it is finished.

All of this is called under the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamscope.engines.pushed.latch import Latch
from streamscope.engines.pushed.variable import VariableState


class Operation:
    """Something that takes turns with variables.

    Attributes
    ----------
    reads, writes : sequence of VariableState
        Each once, and what it writes not among what it reads.
    start : callable
        What to do when all its turns have come.
    priority, sequence : int
        Of those that become ready together, the highest priority is first, then the earliest; see `FaultLog.number`.
    on_host : bool
        It ends when its function has returned, rather than when ``start`` has.
    missing : int
        Turns that have not come yet.
    done : Latch or None
        Set when it has ended, where somebody waits for that.
    """

    __slots__ = ("done", "missing", "on_host", "priority", "reads", "sequence", "start", "writes")

    def __init__(
        self,
        reads: Sequence[VariableState],
        writes: Sequence[VariableState],
        start: Callable[[], None],
        *,
        sequence: int = 0,
        priority: int = 0,
        on_host: bool = False,
    ) -> None:
        self.reads = reads
        self.writes = writes
        self.start = start
        self.priority = priority
        self.on_host = on_host
        self.sequence = sequence
        self.missing = 0
        self.done: Latch | None = None

    def __lt__(self, other: Operation) -> bool:
        return (-self.priority, self.sequence) < (-other.priority, other.sequence)


def idle(reads: Sequence[VariableState], writes: Sequence[VariableState]) -> bool:
    """Tell whether an operation would have all its turns at once."""
    for state in reads:
        if state.writing or state.waiting:
            return False
    return not any(state.writing or state.reading or state.waiting for state in writes)


def enter(operation: Operation) -> bool:
    """Queue an operation; True if it can start at once."""
    for write, states in ((False, operation.reads), (True, operation.writes)):
        for state in states:
            if state.waiting or not _free(state, write=write):
                state.waiting.append((operation, write))
                operation.missing += 1
            else:
                _take(state, write=write)
    return operation.missing == 0


def leave(operation: Operation) -> list[Operation]:
    """End the turns of an operation; return those that can start now."""
    ready: list[Operation] = []
    for state in operation.reads:
        state.reading -= 1
        ready += _next(state)
    for state in operation.writes:
        state.writing = False
        ready += _next(state)
    return ready


def _next(state: VariableState) -> list[Operation]:
    ready = []
    while state.waiting and _free(state, write=state.waiting[0][1]):
        operation, write = state.waiting.popleft()
        _take(state, write=write)
        operation.missing -= 1
        if operation.missing == 0:
            ready.append(operation)
    return ready


def _free(state: VariableState, *, write: bool) -> bool:
    return not state.writing and not (write and state.reading)


def _take(state: VariableState, *, write: bool) -> None:
    if write:
        state.writing = True
    else:
        state.reading += 1
