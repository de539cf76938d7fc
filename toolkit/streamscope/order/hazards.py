"""Hazards: which earlier operations a new one must come after, because of the variables that they share.

A read comes after the last write (read-after-write). A write comes after all reads since the last write (write-after-read) or, where there
are none, after that write (write-after-write): each of those reads comes after the write itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Generic, TypeVar

from streamscope.order.clocks import AnyStamp, Clock, Stamp, fewest, merged

HOST = -1
"""The lane of host functions: the host thread that issues everything."""

_Item = TypeVar("_Item")


class Accesses(Generic[_Item]):
    """Who last used a variable."""

    __slots__ = ("readers", "writer")

    def __init__(self) -> None:
        self.writer: _Item | None = None
        """The last that wrote it."""
        self.readers: dict[int, _Item] = {}
        """The last of each lane that has read it since."""

    @property
    def users(self) -> list[_Item]:
        """All of them, those that others imply, too."""
        return [*(() if self.writer is None else (self.writer,)), *self.readers.values()]

    def forget(self) -> None:
        """Note that all of them are done before anything else is issued."""
        self.writer = None
        self.readers.clear()


def hazards(reads: Iterable[Accesses[_Item]], writes: Iterable[Accesses[_Item]]) -> list[_Item]:
    """Return all that a new operation must come after."""
    found = [state.writer for state in reads if state.writer is not None]
    for state in writes:
        if state.readers:
            found += state.readers.values()
        elif state.writer is not None:
            found.append(state.writer)
    return found


def unordered(lane: int, clock: Clock, reads: Iterable[Accesses[AnyStamp]], writes: Iterable[Accesses[AnyStamp]]) -> list[AnyStamp]:
    """Return the `hazards` of a new item on a lane that the lane's clock does not cover; a lane is in order by itself.

    Written out, and not by way of `hazards`, since each push pays for it.
    """
    found: list[AnyStamp] = []
    for state in reads:
        stamp = state.writer
        if stamp is not None and stamp.lane != lane and clock[stamp.lane] < stamp.position:
            found.append(stamp)
    for state in writes:
        if state.readers:
            found += [stamp for stamp in state.readers.values() if stamp.lane != lane and clock[stamp.lane] < stamp.position]
            continue
        stamp = state.writer
        if stamp is not None and stamp.lane != lane and clock[stamp.lane] < stamp.position:
            found.append(stamp)
    return found


def note(lane: int, item: _Item, reads: Iterable[Accesses[_Item]], writes: Iterable[Accesses[_Item]]) -> None:
    """Note a new item on a lane: it replaces its lane's reader of the variables it reads, and all users of those it writes."""
    for state in reads:
        state.readers[lane] = item
    for state in writes:
        if state.readers:
            state.readers.clear()
        state.writer = item


class HazardTracker:
    """Follows operations in the order in which the host issues them, and tells the waits that each one needs.

    Host functions are on the lane `HOST`. They are done before the host issues anything else, so nobody waits for them.

    ``lanes``: number of lanes, besides the host's.
    """

    def __init__(self, lanes: int) -> None:
        self.start = Stamp(0, 0, (-1,) * lanes)
        """The start of lane 0, which no other lane knows of."""
        self.last: list[Stamp | None] = [None] * lanes
        """The newest item of each lane."""
        self._accesses: defaultdict[int, Accesses[Stamp]] = defaultdict(Accesses)
        self._clocks: list[Clock] = [self.start.clock] * (lanes + 1)  # The host's is the last, which is number -1.
        self._heard: list[Clock] = [self.start.clock] * (lanes + 1)  # What the host knew when each lane last got something.

    def issue(
        self, lane: int, reads: Collection[int], writes: Collection[int], after: Iterable[Stamp | None] = ()
    ) -> tuple[list[Stamp], Stamp | None]:
        """Put an operation on a lane; return the fewest waits that it needs, by lane, and its stamp, or None for a host function.

        ``reads``, ``writes``: ids of variables.
        ``after``: more items that it must come after.
        """
        reading = [self._accesses[variable] for variable in reads if variable not in writes]
        writing = [self._accesses[variable] for variable in writes]
        clock = self._clock(lane)
        waits = unordered(lane, clock, reading, writing)
        waits += [stamp for stamp in after if stamp is not None and stamp.lane != lane]
        if waits:
            waits = fewest(clock, waits)
            for stamp in waits:
                clock = merged(clock, stamp.known)
            self._clocks[lane] = clock
        if lane == HOST:
            for state in writing:
                state.forget()
            return waits, None
        before = self.last[lane]
        stamp = self.last[lane] = Stamp(lane, 1 if before is None else before.position + 1, clock)
        note(lane, stamp, reading, writing)
        return waits, stamp

    def meet(self, stamps: Sequence[Stamp], awaits: Callable[[int], Sequence[int]]) -> None:
        """Let the parts of a collective, just issued, know what those knew that each awaits: by ``awaits(part)`` the numbers of parts."""
        begun = [(*stamp.clock[: stamp.lane], stamp.position - 1, *stamp.clock[stamp.lane + 1 :]) for stamp in stamps]
        for part, stamp in enumerate(stamps):
            for other in awaits(part):
                stamp.clock = merged(stamp.clock, begun[other])
            self._clocks[stamp.lane] = merged(self._clocks[stamp.lane], stamp.clock)

    def _clock(self, lane: int) -> Clock:
        """Return the clock of a lane's next item: the lane's own, and the host's when it issues the item."""
        host = self._clocks[HOST]
        # By identity: the host's clock is replaced when it changes, and most items find the same one.
        if self._heard[lane] is not host:
            self._heard[lane] = host
            self._clocks[lane] = merged(self._clocks[lane], host)
        return self._clocks[lane]
