"""Sync objects: who last touched a variable, and which waits that makes necessary.

Work is put on *lanes*: streams, and the host itself. The n-th item on a lane has the stamp ``(lane, n)``. Every variable has a sync object
with the latest reader of each lane and at most one writer. Before an operation: what it reads waits for the writer, what it writes waits
for all readers and the writer; after it, as a reader it replaces its lane's reader, as a writer it clears all others.

Not every such pair needs an event. A lane is in order, and whoever has waited for a stamp knows all that the stamped item knew. So each
lane has a vector clock, and only stamps that its clock does not cover are waited for. The waits that are left are necessary: without any
one of them, two operations that conflict are not ordered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

HOST = -1
"""The lane of host functions: the host thread that issues everything."""

START = 0
"""Position before a lane's first item."""


@dataclass(frozen=True, order=True)
class Stamp:
    """The item at ``position`` (from 1) of a lane."""

    lane: int
    position: int


@dataclass
class SyncObject:
    """Dependency state of one variable: the latest reader of each lane, and the last writer."""

    readers: dict[int, Stamp] = field(default_factory=dict)
    writer: Stamp | None = None

    def conflicts(self, *, write: bool) -> list[Stamp]:
        """Return the stamps that a new reader, or writer, must come after."""
        stamps = [self.writer] if self.writer is not None else []
        return stamps + list(self.readers.values()) if write else stamps

    def touch(self, stamp: Stamp, *, write: bool) -> None:
        """Note a new reader or writer."""
        if write:
            self.readers.clear()
            self.writer = stamp
        else:
            self.readers[stamp.lane] = stamp


Clock = dict[int, int]
"""For each lane, the position up to which its items are known to be done before what comes next."""


class DependencyTracker:
    """Follows operations in the order in which the host issues them, and tells the waits each one needs.

    Parameters
    ----------
    lanes : sequence of int
        The streams' lanes; the host's is there always.
    """

    def __init__(self, lanes: Sequence[int]) -> None:
        self._objects: dict[int, SyncObject] = {}
        self._clocks: dict[int, Clock] = {lane: {} for lane in (*lanes, HOST)}
        self._positions: dict[int, int] = dict.fromkeys((*lanes, HOST), START)
        self._history: dict[Stamp, Clock] = {}

    def needed(self, lane: int, reads: Iterable[int], writes: Iterable[int], extra: Iterable[Stamp] = ()) -> list[Stamp]:
        """Return the fewest stamps of other lanes that an operation on ``lane`` must wait for.

        ``extra`` are stamps that it must come after besides those of its variables. The latest of each lane is enough, and none that
        another one of them implies is returned.
        """
        latest: dict[int, Stamp] = {}
        written = set(writes)
        stamps = [stamp for v in written for stamp in self._object(v).conflicts(write=True)]
        stamps += [stamp for v in set(reads) - written for stamp in self._object(v).conflicts(write=False)]
        knowledge = self._knowledge(lane)
        for stamp in (*stamps, *extra):
            if not self._covered(knowledge, stamp):
                latest[stamp.lane] = max(stamp, latest.get(stamp.lane, stamp))
        return sorted(
            stamp
            for stamp in latest.values()
            if not any(other != stamp and self._covered(self._known_at(other), stamp) for other in latest.values())
        )

    def waited(self, lane: int, stamp: Stamp) -> None:
        """Note that ``lane`` has waited for a stamp, and so knows all that the stamped item knew."""
        self._merge(self._clocks[lane], self._known_at(stamp))

    def issued(self, lane: int, reads: Iterable[int], writes: Iterable[int]) -> Stamp:
        """Note that an operation was put on a lane, after its waits; return its stamp."""
        self._merge(self._clocks[lane], self._clocks[HOST])
        self._positions[lane] += 1
        stamp = Stamp(lane, self._positions[lane])
        self._clocks[lane][lane] = stamp.position
        self._history[stamp] = dict(self._clocks[lane])
        written = set(writes)
        for variable in set(reads) - written:
            self._object(variable).touch(stamp, write=False)
        for variable in written:
            self._object(variable).touch(stamp, write=True)
        return stamp

    def tail(self, lane: int) -> Stamp:
        """Return the stamp of the last item on a lane; its position is `START` if there is none."""
        return Stamp(lane, self._positions[lane])

    def knows(self, lane: int, stamp: Stamp) -> bool:
        """Tell whether what is put on ``lane`` next comes after a stamp."""
        return self._covered(self._knowledge(lane), stamp)

    def _object(self, variable: int) -> SyncObject:
        return self._objects.setdefault(variable, SyncObject())

    def _knowledge(self, lane: int) -> Clock:
        """Return what the next item of a lane knows: what the lane does, and all that the host does when it issues it."""
        knowledge = dict(self._clocks[lane])
        self._merge(knowledge, self._clocks[HOST])
        return knowledge

    def _known_at(self, stamp: Stamp) -> Clock:
        return self._history.get(stamp, {stamp.lane: stamp.position})

    @staticmethod
    def _covered(clock: Clock, stamp: Stamp) -> bool:
        # Host functions are done before the host issues anything else.
        return stamp.lane == HOST or clock.get(stamp.lane, -1) >= stamp.position

    @staticmethod
    def _merge(clock: Clock, other: Clock) -> None:
        for lane, position in other.items():
            if clock.get(lane, -1) < position:
                clock[lane] = position
