"""Lanes: the streams of a pushed engine on each GPU, each with its clock, and an event behind whatever was issued on it.

An event is recorded again only when nobody holds it any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from streamscope.engines.plan import AUXILIARY, COMMUNICATION, COPY_IN, COPY_OUT, MAIN, PEER_COPY
from streamscope.order.clocks import Clock, Stamp, fewest, merged
from streamscope.words import lane_prefix

if TYPE_CHECKING:
    from streamscope.devices.protocol import Device, Event, Stream
    from streamscope.engines.pushed.catalogue import Application


class EventStamp(Stamp):
    """One item of a stream, with the event behind it, which is its own for as long as anybody holds the stamp.

    MXNet's pool has a fixed number of slots a device and goes round them, so a slot can be recorded again while a variable still waits for
    its old record. Here the event returns to its lane when the last holder lets go, which CPython's reference counting notices at once. So
    there are as many events as were ever held together, and no more.
    """

    # Python calls what it finds in the slot: a C function, in which no Ctrl-C can come. In a method, Python would swallow it.
    __slots__ = ("__del__", "end_ns", "event")
    __del__: Callable[[], object]

    def __init__(self, lane: int, position: int, clock: Clock, event: Event, give_back: Callable[[], object], end_ns: float) -> None:
        self.lane = lane
        self.position = position
        self.clock = clock
        self.event = event
        """Only to be waited for."""
        self.end_ns = end_ns
        """When the item is expected to be done, on the host's clock."""
        self.__del__ = give_back


class Lane:
    """A stream with its events and its clock.

    ``index``, ``lanes``: the lane's number, and how many there can be.
    """

    __slots__ = ("_device", "_free", "_made", "clock", "free_ns", "gpu", "index", "issued_ns", "last", "position", "stream", "waits")

    def __init__(self, device: Device, stream: Stream, index: int = 0, lanes: int = 1, gpu: int = 0) -> None:
        self.index = index
        self.stream = stream
        self.gpu = gpu
        """The stream's."""
        self.clock: Clock = (0,) * lanes
        """Clock of the work done before the next item."""
        self.position = 0
        """Number of items issued, and so of events recorded."""
        self.last: EventStamp | None = None
        """The newest item."""
        self.free_ns = 0.0
        """When all that was issued is expected to be done, on the host's clock; kept only where there is a choice of streams."""
        self.issued_ns = 0.0
        """Expected duration of all that was ever issued; kept likewise."""
        self.waits = 0
        """Waits for events of other lanes that were put on the stream."""
        self._device = device
        """Makes the events, without timing."""
        self._free: deque[Event] = deque()  # Appending and popping are atomic: a stamp may end on any thread, in the middle of anything.
        # All of them, free or held, each with what gives it back. Garbage that the collector finds in a cycle is finalised as a whole, so
        # an event that only a stamp held would come back, and be destroyed as well.
        self._made: dict[Event, Callable[[], object]] = {}

    @property
    def events(self) -> int:
        """Number of events made so far; it stops growing when as many are there as are held together."""
        return len(self._made)

    def record(self) -> EventStamp:
        """Record an event behind the last issued work, and return its stamp. Callers on several threads take turns."""
        try:
            event = self._free.popleft()
        except IndexError:
            # Said only where there are several: devices of other packages may have one GPU.
            event = self._device.event(gpu=self.gpu) if self.gpu else self._device.event()
            self._made[event] = partial(self._free.append, event)
        # Before the record: should that fail, the stamp goes and gives its event back.
        stamp = EventStamp(self.index, self.position + 1, self.clock, event, self._made[event], self.free_ns)
        self.stream.record(event)
        self.position += 1
        self.last = stamp
        return stamp

    def wait(self, stamps: Sequence[EventStamp]) -> None:
        """Let the stream wait for items of other lanes, with the fewest waits."""
        for stamp in fewest(self.clock, stamps):
            # The wait first: the clock must not count one that failed.
            self.stream.wait(stamp.event)
            self.clock = merged(self.clock, stamp.known)
            self.waits += 1


PRIORITY = "priority"


@dataclass(frozen=True, slots=True)
class LanesOfGpu:
    """The lanes of one GPU."""

    compute: tuple[Lane, ...]
    """Kernels of ordinary priority."""
    priority: Lane
    """Kernels of higher priority."""
    copy_in: Lane
    copy_out: Lane
    communication: Lane | None = None
    """Collectives: all on one stream, so that each GPU has them in the order of the pushes. None where there is one GPU only."""
    peer_copy: Lane | None = None
    urgent_copy: Lane | None = None
    """Copies to other GPUs, and those of priority, which need not wait behind the others."""

    @property
    def all(self) -> tuple[Lane, ...]:
        """All that there are, by number."""
        between = (self.communication, self.peer_copy, self.urgent_copy)
        return (*self.compute, self.priority, self.copy_in, self.copy_out, *(lane for lane in between if lane is not None))


def made_lanes(device: Device, gpu: int, gpus: int, streams: int) -> LanesOfGpu:
    """Make the lanes of a GPU of ``gpus``, with so many compute streams."""
    names = [MAIN, *(f"{AUXILIARY} {number}" for number in range(1, streams)), PRIORITY, COPY_IN, COPY_OUT]
    if gpus > 1:
        names += [COMMUNICATION, PEER_COPY, f"{PRIORITY} {PEER_COPY}"]
    where, prefix = ({"gpu": gpu} if gpus > 1 else {}), lane_prefix(gpu, several=gpus > 1)
    made = (device.stream(prefix + name, priority=int(name == PRIORITY), **where) for name in names)
    total = len(names) * gpus
    lanes = [Lane(device, stream, gpu * len(names) + number, total, gpu) for number, stream in enumerate(made)]
    return LanesOfGpu(tuple(lanes[:streams]), *lanes[streams:])


CROSSING_NS = 2_000.0
"""How long about until a stream goes on after an event of another one, the host's calls for event and wait included."""


def earliest(lanes: Sequence[Lane], application: Application, now_ns: float) -> Lane:
    """Return the lane on which an operation can start first, by estimates.

    Of several, the lane of the newest operation that it must come after, which needs no wait; then the lane that was given least so far.
    """
    newest: EventStamp | None = None
    for states in (application.reads, application.writes):
        for state in states:
            stamp = state.writer
            if stamp is not None and (newest is None or stamp.end_ns > newest.end_ns):
                newest = stamp
    for state in application.writes:
        for stamp in state.readers.values():
            if newest is None or stamp.end_ns > newest.end_ns:
                newest = stamp
    place = -1 if newest is None else newest.lane - lanes[0].index  # They have numbers in a row.
    near = lanes[place] if 0 <= place < len(lanes) else None
    if near is not None and near.free_ns <= now_ns:
        return near
    elsewhere_ns = now_ns if newest is None else max(now_ns, newest.end_ns + CROSSING_NS)

    def rank(lane: Lane) -> tuple[float, bool, float, int]:
        start_ns = max(lane.free_ns, now_ns if lane is near else elsewhere_ns)
        return start_ns, lane is not near, lane.issued_ns, lane.index

    return min(lanes, key=rank)


def expect(lane: Lane, duration_ns: float, now_ns: float) -> None:
    """Note that a lane is about to get something to do."""
    lane.free_ns = max(lane.free_ns, now_ns) + duration_ns
    lane.issued_ns += duration_ns
