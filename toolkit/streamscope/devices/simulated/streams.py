"""Streams of the simulated device: in-order queues, and what can be put on them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

from streamscope.devices.protocol import Event
from streamscope.devices.simulated.core import Core
from streamscope.devices.simulated.events import SimulatedEvent
from streamscope.devices.simulated.execution import Placement, Work
from streamscope.devices.simulated.timeline import Moment
from streamscope.interrupts import deferred

if TYPE_CHECKING:
    from streamscope.devices.simulated.capture import Capture


class Item(ABC):
    """One entry of a stream's queue.

    Attributes
    ----------
    arrival_ns : float
        When the host had put it there.
    done : Moment
        When the stream goes on to the next.
    """

    __slots__ = ("arrival_ns", "done")

    def __init__(self) -> None:
        self.arrival_ns = 0.0
        self.done = Moment()

    @abstractmethod
    def begin(self, stream: SimulatedStream) -> None:
        """Begin, as the stream's oldest item; must lead to one call of ``stream.finish``, and not before it returns."""


class SimulatedStream:
    """An in-order queue; `streamscope.devices.protocol.Stream`.

    Attributes
    ----------
    capture : Capture or None
        The capture that the stream takes part in.
    last : Moment or None
        When the newest item will be done; None before the first.
    """

    def __init__(self, core: Core, name: str) -> None:
        self.core = core
        self.capture: Capture | None = None
        self.last: Moment | None = None
        self._name = name
        self._items: deque[Item] = deque()
        self._free_ns = -math.inf
        self._drained_ns = -math.inf

    @property
    def name(self) -> str:
        """Name of the stream's lane."""
        return self._name

    def record(self, event: Event) -> None:
        """Record an event; in a capture it becomes an edge or, with timing, a node."""
        own = self.core.own(SimulatedEvent, event)
        if self.capture is not None:
            self.core.spend(self.core.model.event_record_ns)
            self.capture.record(self, own)
        else:
            self._record(own)

    def wait(self, event: Event) -> None:
        """Let the stream wait for the event's latest record, as of now."""
        own = self.core.own(SimulatedEvent, event)
        capture = self.capture or (own.mark.capture if own.mark is not None else None)
        if capture is not None:
            self.core.spend(self.core.model.stream_wait_ns)
            capture.wait(self, own)
        elif own.latest is not None:
            self.put(WaitItem(own.latest), self.core.model.stream_wait_ns)
        else:
            self.core.spend(self.core.model.stream_wait_ns)

    def synchronize(self) -> None:
        """Block the host until the stream is empty."""
        self.core.synchronize([self.last], f"synchronizing stream {self._name!r}", [self])

    def launch(self, work: Work, call_ns: float) -> None:
        """Put a launch on the stream or, in a capture, into the graph."""
        if self.capture is not None:
            self.core.spend(call_ns)
            self.capture.launch(self, work)
        else:
            self.put(LaunchItem(work, *self.core.sway(work.launch, self._name)), call_ns)

    def put(self, item: Item, call_ns: float) -> None:
        """Put an item on the queue by a host call; blocks the host while the queue is full.

        Raises
        ------
        DeviceError
            The queue is full, and a closed gate keeps it so.
        """
        depth = self.core.model.queue_depth
        with self.core.lock:
            if len(self._items) >= depth:
                self.core.block(lambda: len(self._items) < depth, f"item {depth + 1} on stream {self._name!r}")
            with deferred():
                self.core.spend(call_ns)
                item.arrival_ns = self.core.host_ns
                self._items.append(item)
                self.last = item.done
                if len(self._items) == 1:
                    item.begin(self)

    def finish(self, *, drain_ns: float = 0.0) -> None:
        """Say that the oldest item is done now; events behind it are recorded ``drain_ns`` later at the earliest."""
        now_ns = self.core.timeline.now_ns
        self._free_ns = now_ns
        self._drained_ns = max(self._drained_ns, now_ns + drain_ns)
        self._items.popleft().done.come(now_ns)
        if self._items:
            self._items[0].begin(self)

    def work_start_ns(self, arrival_ns: float, latency_ns: float) -> float:
        """Return when work can start that is the oldest item."""
        return max(arrival_ns + latency_ns, self._free_ns + self.core.model.kernel_gap_ns)

    def order_start_ns(self, arrival_ns: float) -> float:
        """Return when a wait can start that is the oldest item."""
        return max(arrival_ns + self.core.model.launch_latency_ns, self._free_ns)

    def record_start_ns(self, arrival_ns: float) -> float:
        """Return when a record can start that is the oldest item."""
        return max(self.order_start_ns(arrival_ns), self._drained_ns)

    def _record(self, event: SimulatedEvent) -> None:
        item = RecordItem(self.core.model.event_pair_empty_ns if event.timing else 0.0)
        self.put(item, self.core.model.event_record_ns)
        event.recorded(item.done)


class LaunchItem(Item):
    """A kernel or a copy."""

    __slots__ = ("_delay_ns", "_stretch", "_work")

    def __init__(self, work: Work, delay_ns: float, stretch: float) -> None:
        super().__init__()
        self._work = work
        self._delay_ns = delay_ns
        self._stretch = stretch

    def begin(self, stream: SimulatedStream) -> None:
        """Start as soon as the stream lets it."""
        core = stream.core
        placement = Placement(stream.name, stretch=self._stretch)

        def start() -> None:
            core.execution.run(self._work, placement, lambda: stream.finish(drain_ns=core.model.drain_ns))

        core.timeline.at(stream.work_start_ns(self.arrival_ns, core.model.launch_latency_ns) + self._delay_ns, start)


class RecordItem(Item):
    """The record of an event: with timing, it takes time on the stream and stamps its end."""

    __slots__ = ("_duration_ns",)

    def __init__(self, duration_ns: float) -> None:
        super().__init__()
        self._duration_ns = duration_ns

    def begin(self, stream: SimulatedStream) -> None:
        """Stamp once what is before it has drained."""
        stream.core.timeline.at(stream.record_start_ns(self.arrival_ns) + self._duration_ns, stream.finish)


class WaitItem(Item):
    """A wait for a moment: an event's record, or the opening of a gate."""

    __slots__ = ("_moment",)

    def __init__(self, moment: Moment) -> None:
        super().__init__()
        self._moment = moment

    def begin(self, stream: SimulatedStream) -> None:
        """Go on when the moment comes."""
        stream.core.timeline.at(stream.order_start_ns(self.arrival_ns), lambda: self._moment.then(stream.finish))
