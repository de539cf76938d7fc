"""Lanes: the streams of a dynamic engine, each with its clock, and an event behind whatever was issued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamscope.engines.pushed.event_pool import EventPool, Lease
from streamscope.order.clocks import Clock, Stamp, fewest, merged

if TYPE_CHECKING:
    from streamscope.devices.protocol import Device, Stream


class EventStamp(Stamp):
    """One item of a stream, with the event behind it.

    Attributes
    ----------
    lease : Lease
        The event that was recorded behind the item; nobody records it again while the stamp is held.
    end_ns : float
        When the item is expected to be done, on the host's clock.
    """

    __slots__ = ("end_ns", "lease")

    def __init__(self, lane: int, position: int, clock: Clock, lease: Lease, end_ns: float) -> None:
        self.lane = lane
        self.position = position
        self.clock = clock
        self.lease = lease
        self.end_ns = end_ns


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
    last : EventStamp or None
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
        self.last: EventStamp | None = None
        self.free_ns = 0.0
        self.issued_ns = 0.0
        self.waits = 0

    def record(self) -> EventStamp:
        """Record an event behind what was just issued, and return its stamp."""
        lease = self.events.record()
        self.position = position = self.position + 1
        self.last = stamp = EventStamp(self.index, position, self.clock, lease, self.free_ns)
        return stamp

    def wait(self, stamps: Sequence[EventStamp]) -> None:
        """Let the stream wait for items of other lanes, with the fewest waits."""
        for stamp in fewest(self.clock, stamps):
            self.stream.wait(stamp.lease.event)
            self.clock = merged(self.clock, stamp.known)
            self.waits += 1
