"""Variables of the pushed engine: the user's handle, the engine's state of each, and every way in which that changes.

Of each variable there are many readers or one writer at a time, in the order in which they were pushed: no read passes an earlier write,
no write an earlier read. An operation starts when it has its turn with all of its variables. For an operation on the device, a turn lasts
until it is issued, since from then on streams and events keep the order; for one on the host, until it is finished.

The engine's lock guards all of a variable's state. Only this module changes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy.typing as npt

from streamscope.engines.pushed.lanes import EventStamp
from streamscope.engines.pushed.workers import Latch
from streamscope.errors import ProgramError
from streamscope.order.hazards import Accesses
from streamscope.program.variable import ArraySpec, MemoryPlace

if TYPE_CHECKING:
    from streamscope.devices.protocol import Buffer, Device, Stream
    from streamscope.engines.pushed.faults import Fault
    from streamscope.engines.pushed.memory_pool import MemoryPool


class VariableState(Accesses[EventStamp]):
    """The engine's state of a variable. Its `Accesses` are device operations."""

    __slots__ = (
        "buffer", "deleted", "fault", "gpu", "handle", "id", "name", "place", "reading", "spec", "version", "waiting", "writing", "written",
    )  # fmt: skip

    def __init__(self, number: int, spec: ArraySpec, place: MemoryPlace, name: str, gpu: int = 0) -> None:
        super().__init__()
        self.id = number
        """Part of the keys of caches, so that they do not keep the variable alive."""
        self.spec = spec
        self.place = place
        self.gpu = gpu
        """Where it lies; 0 for host memory."""
        self.name = name
        self.buffer: Buffer | None = None
        """Its memory, from the first operation that writes it until it is deleted."""
        self.version = 0
        """Number of finished writes."""
        self.written = False
        """An operation that writes it was pushed."""
        self.deleted = False
        """`Engine.delete` was called, though it may not have had its turn yet."""
        self.reading = 0
        self.writing = False
        """Operations that have their turn: any number of readers or one writer."""
        self.waiting: deque[tuple[Turn, bool]] = deque()
        """Operations that wait for their turn, and whether they write."""
        self.fault: Fault | None = None
        """Why its values are missing."""
        self.handle: Handle | None = None
        """Notes when Python lets the user's object go."""

    def memory(self) -> Buffer:
        """Return the memory of the variable."""
        if self.buffer is None:
            raise ProgramError(f"{self.name!r} has no values: no operation has written it successfully", hint="write it first")
        return self.buffer

    def allocate(self, pool: MemoryPool, stream: Stream | None, writer: str) -> None:
        """Get memory, if there is none, for the first operation that writes the variable: its name, and its stream if not on the host."""
        if self.buffer is None:
            self.buffer = pool.allocate(self.spec, self.place, stream, purpose=f"{self.name!r}, which {writer} writes,", gpu=self.gpu)

    def fill(self, array: npt.NDArray[Any], device: Device, pool: MemoryPool) -> None:
        """Put values into a host variable that nothing has used yet."""
        self.buffer = pool.allocate(self.spec, MemoryPlace.HOST, None, purpose=self.name)
        device.write(self.buffer, array)
        self.written = True

    def count_from_here(self) -> None:
        """Begin to count finished writes; the values that the variable was made of do not count."""
        self.version = 0

    def delete(self) -> bool:
        """Note that the variable is to be deleted; False if it was before."""
        before, self.deleted = self.deleted, True
        return not before

    def release(self) -> tuple[Buffer | None, list[EventStamp]]:
        """Take the memory away, for good; return it and the last use on each lane."""
        buffer, self.buffer = self.buffer, None
        # Sorted by position: of the stamps of a lane, the dict keeps the last.
        latest = {stamp.lane: stamp for stamp in sorted(self.users, key=lambda stamp: stamp.position)}
        self.deleted, self.fault = True, None
        self.forget()
        return buffer, list(latest.values())


def promise(states: Iterable[VariableState]) -> None:
    """Note that an operation was pushed that writes variables."""
    for state in states:
        state.written = True


def written(states: Iterable[VariableState]) -> None:
    """Note that variables hold an operation's results."""
    for state in states:
        state.version += 1
        state.fault = None


def written_by_host(states: Iterable[VariableState]) -> None:
    """Note that a host function has written variables, after all that the device did with them."""
    written(states)
    for state in states:
        state.forget()


def spoiled(states: Iterable[VariableState], fault: Fault) -> None:
    """Keep a fault on an operation's outputs: on each GPU one that is raised once."""
    first: int | None = None
    for state in states:
        first = state.gpu if first is None else first
        state.fault = fault if state.gpu == first else fault.on_gpu(state.gpu)


def passed_on(reads: Iterable[VariableState], writes: Iterable[VariableState], pushed: int | None) -> bool:
    """Tell whether something that is read has a fault that spoils an operation with this number; it is then passed on."""
    for state in reads:
        if state.fault is not None and state.fault.spoils(pushed):
            spoiled(writes, state.fault)
            return True
    return False


# Turns.

FIRST = 1 << 62
"""Priority of deletions: of all that is ready they come first, so that others get the memory."""


@dataclass(slots=True, eq=False)
class Turn:
    """Action of an operation when it has its turn with all of its variables."""

    reads: Sequence[VariableState]
    writes: Sequence[VariableState]
    """Each once; a variable that is written is not among those that are read."""
    start: Callable[[], None]
    """Action when all its turns have come."""
    sequence: int = 0
    priority: int = 0
    """Of those that become ready together, the highest priority is first, then the earliest; see `FaultLog.number`."""
    on_host: bool = False
    """It ends when its function has returned, rather than when ``start`` has."""
    missing: int = 0
    """Variables with which it has no turn yet."""
    done: Latch = field(default_factory=Latch)
    """Set when it has ended."""

    def __lt__(self, other: Turn) -> bool:
        return (-self.priority, self.sequence) < (-other.priority, other.sequence)


def idle(reads: Sequence[VariableState], writes: Sequence[VariableState]) -> bool:
    """Tell whether an operation would have its turn with all variables at once."""
    for state in reads:
        # The same conditions as in `enter`, which this saves.
        if state.writing or state.waiting:
            return False
    return not any(state.writing or state.reading or state.waiting for state in writes)


def enter(turn: Turn) -> bool:
    """Queue an operation; True if it can start at once."""
    for write, states in ((False, turn.reads), (True, turn.writes)):
        for state in states:
            # Behind whoever waits, even where the turn is free: no read passes an earlier write.
            if state.waiting or not _take(state, write=write):
                state.waiting.append((turn, write))
                turn.missing += 1
    return turn.missing == 0


def leave(turn: Turn) -> list[Turn]:
    """End the turn of an operation; return those that can start now."""
    ready: list[Turn] = []
    for state in turn.reads:
        state.reading -= 1
        ready += _next(state)
    for state in turn.writes:
        state.writing = False
        ready += _next(state)
    return ready


def _next(state: VariableState) -> list[Turn]:
    ready = []
    while state.waiting and _take(state, write=state.waiting[0][1]):
        turn, _ = state.waiting.popleft()
        turn.missing -= 1
        if turn.missing == 0:
            ready.append(turn)
    return ready


def _take(state: VariableState, *, write: bool) -> bool:
    """Give a reader, or a writer, its turn with a variable; False if it is not free."""
    if state.writing or (write and state.reading):
        return False
    if write:
        state.writing = True
    else:
        state.reading += 1
    return True


# The user's handle.


class Handle(ref["PushedVariable"]):
    """Knows which variable a `PushedVariable` stood for that Python has let go."""

    __slots__ = ("number",)
    number: int


class PushedVariable:
    """A variable of a pushed engine, made by `Engine.variable`.

    When Python lets it go, it is deleted as by `Engine.delete`.
    """

    __slots__ = ("__weakref__", "_id", "_state")

    def __init__(self, state: VariableState, dropped: deque[Handle]) -> None:
        self._id = state.id
        self._state = state
        # Any thread may let it go in the middle of anything, so no lock is taken: the engine deletes it when it is next used. A deque's
        # `append` is a C function, in which no Ctrl-C can come.
        state.handle = Handle(self, dropped.append)
        state.handle.number = state.id

    @property
    def spec(self) -> ArraySpec:
        """Shape and dtype."""
        return self._state.spec

    @property
    def place(self) -> MemoryPlace:
        """Host or device memory."""
        return self._state.place

    @property
    def gpu(self) -> int:
        """The GPU whose memory it is, as `Engine` counts them; 0 for host memory."""
        return self._state.gpu

    @property
    def name(self) -> str:
        """Its name in errors."""
        return self._state.name

    @property
    def version(self) -> int:
        """0 at first, and one more for each finished write; the device's count when issued, since all that follows comes after them."""
        return self._state.version

    def __repr__(self) -> str:
        where = f" on GPU {self.gpu}" if self.gpu else ""
        return f"<{self.place.value} variable {self.name!r} {self.spec}{where}, version {self.version}>"
