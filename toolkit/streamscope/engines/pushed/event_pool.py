"""Events of one stream, lent out: an event is recorded again only when nobody holds it any more.

MXNet's pool has a fixed number of slots a device and goes round them, so a slot can be recorded again while a variable still
waits for its old record. Here the holders of an event share a `Lease`, and the event returns to the pool when the last of them
lets go, which CPython's reference counting notices at once. So there are as many events as were ever held together, and no more.
"""

from __future__ import annotations

from collections import deque
from sys import getrefcount
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamscope.devices.protocol import Device, Event, Stream


class Lease:
    """The right to one event of a pool, for as long as anybody holds this object.

    Attributes
    ----------
    event : Event
        Record it once, on the pool's stream, then only wait for it.
    """

    __slots__ = ("_free", "event")

    def __init__(self, event: Event, free: deque[Event]) -> None:
        self.event = event
        self._free = free

    def __del__(self) -> None:
        self._free.append(self.event)


class EventPool:
    """Lends events without timing for the records of one stream; safe to use from several threads.

    Parameters
    ----------
    device : Device
        Makes the events.
    stream : Stream
        The stream that `record` records on.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self.stream = stream
        self._device = device
        self._free: deque[Event] = deque()  # Appending and popping are atomic: a lease may end on any thread, in the middle of anything.
        # All of them, free or lent. Garbage that the collector finds in a cycle is finalised as a whole, so an event that only a lease held
        # would come back to the pool, and be destroyed as well.
        self._made: list[Event] = []
        self._recorded = 0

    @property
    def created(self) -> int:
        """Number of events made so far; it stops growing when as many are there as are held together."""
        return len(self._made)

    @property
    def leased(self) -> int:
        """Number of events that somebody holds."""
        return len(self._made) - len(self._free)

    @property
    def recorded(self) -> int:
        """Number of records made by `record`."""
        return self._recorded

    def lease(self) -> Lease:
        """Lend an event that nobody else holds.

        Raises
        ------
        DeviceError
            A new event was needed and could not be made.
        """
        try:
            event = self._free.popleft()
        except IndexError:
            event = self._found() or self._make()
        return Lease(event, self._free)

    def record(self) -> Lease:
        """Lend an event and record it on the pool's stream. Callers on several threads take turns, as for all that goes on one stream."""
        try:  # As `lease` does; each push would pay for the call.
            event = self._free.popleft()
        except IndexError:
            event = self._found() or self._make()
        lease = Lease(event, self._free)
        self.stream.record(event)
        self._recorded += 1
        return lease

    def _found(self) -> Event | None:
        """Return an event that nobody holds and that has not come back: Ctrl-C came as `Lease.__del__` began, and Python swallowed it.

        A finaliser that Ctrl-C cannot keep from running would cost every push more than this costs, now and then.
        """
        if len(self._made).bit_count() != 1:  # Each time that there are twice as many.
            return None
        nobodys = object()
        events: list[Any] = [*self._made, nobodys]
        references = [getrefcount(event) for event in events]
        self._free += [event for event, count in zip(events, references, strict=True) if count == references[-1] and event is not nobodys]
        return self._free.popleft() if self._free else None

    def _make(self) -> Event:
        event = self._device.event()
        self._made.append(event)
        return event
