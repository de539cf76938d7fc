"""Streams of the simulated device: in-order queues, the events recorded on them, and the gates that hold them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from streamscope.devices.protocol import Event, Stream
from streamscope.devices.simulated.core import Core, Moment
from streamscope.devices.simulated.execution import BoundLaunch
from streamscope.errors import DeviceError
from streamscope.interrupts import deferred

if TYPE_CHECKING:
    from streamscope.devices.simulated.graphs import Capture, Mark


@dataclass(slots=True, eq=False)
class Item:
    """One entry of a stream's queue.

    Thousands wait in a queue: each is one object for the garbage collector, where closures would be ten.
    """

    begin: _Begin
    """``begin(stream, item)`` begins it as the oldest item; leads to one call of ``stream.finish``, not before it returns."""
    content: BoundLaunch | Moment | None = None
    """The launch, or the event of a wait."""
    delay_ns: float = 0.0
    stretch: float = 1.0
    """Offset of its start in ns (of a record: its duration), and factor on its duration."""
    arrival_ns: float = 0.0
    """When the host had put it there."""
    done: Moment = field(default_factory=Moment)
    """When the stream goes on to the next."""


_Begin = Callable[["SimulatedStream", Item], None]


class SimulatedStream:
    """An in-order queue; `streamscope.devices.protocol.Stream`."""

    def __init__(self, core: Core, name: str, gpu: int = 0) -> None:
        self.core = core
        self.gpu = gpu
        self.capture: Capture | None = None
        """The capture that the stream takes part in."""
        self.last: Moment | None = None
        """When the newest item will be done; None before the first."""
        self.name = name
        self._items: deque[Item] = deque()
        self._free_ns = -math.inf
        self._drained_ns = -math.inf

    def record(self, event: Event) -> None:
        """Record an event; in a capture it becomes an edge or, with timing, a node."""
        own = self.core.own(SimulatedEvent, event)
        if self.capture is not None:
            self.core.spend(self.core.model.event_record_ns)
            self.capture.record(self, own)
        else:
            duration_ns = self.core.model.event_pair_empty_ns if own.timing else 0.0
            own.recorded(self.put(Item(_begin_record, None, duration_ns), self.core.model.event_record_ns))

    def bound_record(self, event: Event) -> Callable[[], None]:
        """Return a function that records an event outside of captures."""
        return partial(self.record, event)

    def wait(self, event: Event) -> None:
        """Let the stream wait for the event's latest record, as of now."""
        own = self.core.own(SimulatedEvent, event)
        capture = self.capture or (own.mark.capture if own.mark is not None else None)
        if capture is not None:
            self.core.spend(self.core.model.stream_wait_ns)
            capture.wait(self, own)
        elif own.latest is not None:
            self.wait_for(own.latest)
        else:
            self.core.spend(self.core.model.stream_wait_ns)

    def synchronize(self) -> None:
        """Block the host until the stream is empty."""
        self.core.synchronize([self.last], f"synchronizing stream {self.name!r}", [self])

    def launch(self, work: BoundLaunch, call_ns: float, tail_ns: float = 0.0) -> None:
        """Put a launch on the stream or, in a capture, into the graph; ``tail_ns`` of the call are left when it is there."""
        if self.capture is not None:
            self.core.spend(call_ns)
            self.capture.launch(self, work)
            return
        self.put(Item(_begin_launch, work, *self.core.delay_and_stretch(work.launch, self.name)), call_ns, tail_ns)

    def wait_for(self, moment: Moment) -> None:
        """Let the stream wait for a moment: the record of an event, or the opening of a gate."""
        self.put(Item(_begin_wait, moment), self.core.model.stream_wait_ns)

    def put(self, item: Item, call_ns: float, tail_ns: float = 0.0) -> Moment:
        """Put an item on the queue by a host call, and return when it is done; blocks the host while the queue is full.

        ``tail_ns`` are left of the call when the item has arrived.
        """
        with self.core.lock:
            if len(self._items) >= self.core.model.queue_depth:
                self.make_room()
            with deferred():
                self.core.spend(call_ns)
                item.arrival_ns = self.core.host_ns - tail_ns
                # Not torn by Ctrl-C: nobody would wait for an item that is queued and not `last`.
                self._items.append(item)
                self.last = item.done
                if len(self._items) == 1:
                    item.begin(self, item)
        return item.done

    def make_room(self) -> None:
        """Block the host while the queue is full."""
        depth = self.core.model.queue_depth
        if len(self._items) >= depth:
            self.core.block(lambda: len(self._items) < depth, f"item {depth + 1} on stream {self.name!r}")

    def finish(self, *, drain_ns: float = 0.0) -> None:
        """Say that the oldest item is done now; events behind it are recorded ``drain_ns`` later at the earliest."""
        now_ns = self.core.timeline.now_ns
        self._free_ns = now_ns
        self._drained_ns = max(self._drained_ns, now_ns + drain_ns)
        # Done before the next begins: what waits for this item comes first at equal times.
        self._items.popleft().done.come(now_ns)
        if self._items:
            self._items[0].begin(self, self._items[0])

    def work_start_ns(self, arrival_ns: float, latency_ns: float) -> float:
        """Return when work can start that is the oldest item."""
        return max(arrival_ns + latency_ns, self._free_ns + self.core.model.kernel_gap_ns)

    def order_start_ns(self, arrival_ns: float) -> float:
        """Return when a wait can start that is the oldest item."""
        return max(arrival_ns + self.core.model.launch_latency_ns, self._free_ns)

    def record_start_ns(self, arrival_ns: float) -> float:
        """Return the earliest start of a record that is the oldest item: once all before it has drained."""
        return max(self.order_start_ns(arrival_ns), self._drained_ns)


def _begin_launch(stream: SimulatedStream, item: Item) -> None:
    core, work = stream.core, cast("BoundLaunch", item.content)

    def start() -> None:
        work.execution.run(work, lambda: stream.finish(drain_ns=core.model.drain_ns), stream.name, item.stretch, core.model.kernel_gap_ns)

    core.timeline.at(stream.work_start_ns(item.arrival_ns, core.model.launch_latency_ns) + item.delay_ns, start)


def _begin_wait(stream: SimulatedStream, item: Item) -> None:
    moment = cast("Moment", item.content)
    stream.core.timeline.at(stream.order_start_ns(item.arrival_ns), lambda: moment.then(stream.finish))


def _begin_record(stream: SimulatedStream, item: Item) -> None:
    stream.core.timeline.at(stream.record_start_ns(item.arrival_ns) + item.delay_ns, stream.finish)


class SimulatedEvent:
    """A point in a stream; `streamscope.devices.protocol.Event`."""

    def __init__(self, core: Core, *, timing: bool, gpu: int = 0) -> None:
        self.core = core
        self.gpu = gpu
        self.latest: Moment | None = None
        """The latest record, which is when its stream gets there; None before the first."""
        self.mark: Mark | None = None
        """Where in a capture it was recorded, if that was the latest record."""
        self.timing = timing

    def recorded(self, record: Moment) -> None:
        """Make a record the latest, outside any capture."""
        self.latest = record
        self.mark = None

    def synchronize(self) -> None:
        """Block the host until the latest record is done."""
        self._refuse_captured()
        self.core.synchronize([self.latest], "waiting for an event")

    def comes_within(self, timeout_s: float) -> bool:
        """Block the host until the latest record is done, so many virtual seconds at most; tell whether it is."""
        self._refuse_captured()
        return self.core.block_within(self.latest, timeout_s * 1e9, "waiting for an event")

    def done(self) -> bool:
        """Tell whether the latest record is done (true if never recorded)."""
        self._refuse_captured()
        self.core.spend(self.core.model.event_query_ns)
        self.core.catch_up()
        return self.latest is None or self.latest.time_ns is not None

    def time_ns(self) -> float:
        """Return the time of the latest record."""
        if not self.timing:
            raise DeviceError("the event was made without timing, so it has no time", hint="make the event with timing=True")
        self.core.catch_up()
        if self.latest is None:
            raise DeviceError("the event was never recorded, so it has no time", hint="record it, or launch the graph that does")
        if self.latest.time_ns is None:
            raise DeviceError("the event has not finished, so it has no time yet", hint="synchronize it first")
        return self.latest.time_ns

    def _refuse_captured(self) -> None:
        if self.mark is not None:
            message = "the host cannot wait for an event that was last recorded in a capture"
            raise self.mark.capture.fail(message, hint="record it outside, or use an event with timing and launch the graph")


class SimulatedGate:
    """Holds streams until the host opens it, as ``cuStreamWaitValue32`` on page-locked memory does; `streamscope.devices.protocol.Gate`."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._opened = Moment()

    def hold(self, stream: Stream) -> None:
        """Let everything put on the stream from now on wait for `open`."""
        own = self.core.own(SimulatedStream, stream)
        self.core.forbid_in_capture("holding a stream by a gate")
        own.wait_for(self._opened)

    def open(self) -> None:
        """Let the held streams go; opening once more does nothing."""
        with self.core.lock, deferred():
            self.core.catch_up()
            if self._opened.time_ns is None:
                self._opened.come(self.core.host_ns)
