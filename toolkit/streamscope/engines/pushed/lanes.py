"""Lanes: the streams of a dynamic engine, stamps of what was issued on them, and the fewest waits that keep dependent work in order.

As in `streamscope.engines.sync_objects`, but for work without an end: there, the clock of every item is kept; here each stamp carries the
clock of its lane, and goes away with the last variable that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamscope.engines.pushed.event_pool import EventPool, Lease

if TYPE_CHECKING:
    from streamscope.devices.protocol import Device, Stream

Clock = tuple[int, ...]
"""For each lane, the position up to which its items are known to be done before what comes next."""


class Stamp:
    """One item of a lane.

    Attributes
    ----------
    lane, position : int
        Number of the lane, and which item of it, from 1.
    clock : tuple of int
        What the lane knew when the item was issued.
    lease : Lease
        The event that was recorded behind the item; nobody records it again while the stamp is held.
    end_ns : float
        When the item is expected to be done, on the host's clock.
    """

    __slots__ = ("clock", "end_ns", "lane", "lease", "position")

    def __init__(self, lane: int, position: int, clock: Clock, lease: Lease, end_ns: float) -> None:
        self.lane = lane
        self.position = position
        self.clock = clock
        self.lease = lease
        self.end_ns = end_ns

    @property
    def known(self) -> Clock:
        """What is known to be done once the item is."""
        return (*self.clock[: self.lane], self.position, *self.clock[self.lane + 1 :])


class Lane:
    """A stream with its events and its clock.

    Attributes
    ----------
    index : int
    stream : Stream
    events : EventPool
    clock : tuple of int
        What is known to be done before the next item.
    position : int
        Number of items issued.
    last : Stamp or None
        The newest item.
    free_ns : float
        When all that was issued is expected to be done, on the host's clock; kept only where there is a choice of streams.
    issued_ns : float
        Expected duration of all that was ever issued; kept likewise.
    waits : int
        Waits for events of other lanes that were put on the stream.
    """

    __slots__ = ("clock", "events", "free_ns", "index", "issued_ns", "last", "position", "stream", "waits")

    def __init__(self, device: Device, index: int, lanes: int, name: str, *, priority: int = 0) -> None:
        self.index = index
        self.stream: Stream = device.stream(name, priority=priority)
        self.events = EventPool(device, self.stream)
        self.clock: Clock = (0,) * lanes
        self.position = 0
        self.last: Stamp | None = None
        self.free_ns = 0.0
        self.issued_ns = 0.0
        self.waits = 0

    def record(self) -> Stamp:
        """Record an event behind what was just issued, and return its stamp."""
        lease = self.events.record()
        self.position = position = self.position + 1
        self.last = stamp = Stamp(self.index, position, self.clock, lease, self.free_ns)
        return stamp

    def wait(self, stamps: Sequence[Stamp]) -> None:
        """Let the stream wait for items of other lanes, with the fewest waits."""
        for stamp in needed(self.clock, stamps):
            self.stream.wait(stamp.lease.event)
            self.clock = merged(self.clock, stamp.known)
            self.waits += 1


def needed(clock: Clock, stamps: Sequence[Stamp]) -> list[Stamp]:
    """Return the fewest stamps to wait for, given what is known: the latest of each lane, and none that another implies."""
    latest: dict[int, Stamp] = {}
    for stamp in stamps:
        if clock[stamp.lane] < stamp.position and (stamp.lane not in latest or latest[stamp.lane].position < stamp.position):
            latest[stamp.lane] = stamp
    if len(latest) < 2:
        return list(latest.values())
    chosen = latest.values()
    return [stamp for stamp in chosen if not any(other.clock[stamp.lane] >= stamp.position for other in chosen if other is not stamp)]


def merged(clock: Clock, other: Clock) -> Clock:
    """Return what is known from two clocks together."""
    return tuple(map(max, clock, other))
