"""The passes of the event recorder: runs of a prepared program with events in it.

*Natural*: as the program runs anyway, with one event behind each launch; tells when things ended.
*Gated*: the streams are held until a chunk is queued, with a pair of events around each launch; tells how long each took, free of the host.
*In a graph*: the same two questions, by event-record nodes: pairs in line, and single ones aside, which do not slow the replay.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from streamscope.devices.protocol import Device, Event, Graph, Stream
from streamscope.engines.plan import CallHost, HostWait, Issue, Replay, Step, Synchronize
from streamscope.engines.prepared import Bound, Prepared
from streamscope.recording.calibration import Clock, align_clock

WATCHDOG_S = 5.0
"""A gate is opened after so long even if the host is stuck: an operator that waits for the device would wait for ever."""

ASIDE_STRIDE = 8
"""One launch in so many has an event aside in each variant of a graph; measured on an H200 this slows a replay by 1 to 2 %."""


@dataclass(frozen=True)
class HostInterval:
    """One call of the host, on its own clock.

    ``step`` is None for the wait at the end of the run.
    """

    step: Step | None
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class NaturalPass:
    """One run as it is, with an event behind each launch.

    Attributes
    ----------
    host : list of HostInterval
    ends_ns : dict of int to float
        For each step that puts work on the device, by its index in `steps_of`: when its event was recorded, on the host's clock.
    clock_uncertainty_ns : float
    """

    host: list[HostInterval]
    ends_ns: dict[int, float]
    clock_uncertainty_ns: float

    @property
    def makespan_ns(self) -> int:
        """From the first call to the end of the last."""
        return self.host[-1].end_ns - self.host[0].start_ns


def steps_of(prepared: Prepared) -> list[Bound]:
    """Return the bound steps that the host carries out: those of a segment without a graph one by one."""
    steps: list[Bound] = []
    for bound in prepared.bound:
        steps += bound.inner if isinstance(bound.step, Replay) and bound.graph is None else [bound]
    return steps


def natural_pass(prepared: Prepared) -> NaturalPass:
    """Run once with an event behind each launch and each graph, and the host's clock read around each call."""
    device = prepared.device
    steps = steps_of(prepared)
    events = {index: device.event(timing=True) for index, bound in enumerate(steps) if isinstance(bound.step, Issue | Replay)}
    clock = align_clock(device, prepared.streams[0], device.event(timing=True), device.event(timing=True))
    host: list[HostInterval] = []
    now = device.now_ns
    for index, bound in enumerate(steps):
        start = now()
        bound.call()
        end = now()
        host.append(HostInterval(bound.step, start, end))
        if index in events and bound.stream is not None:
            bound.stream.record(events[index])
    start = now()
    prepared.wait()
    host.append(HostInterval(None, start, now()))
    device.synchronize()
    ends = {index: clock.host_ns(event) for index, event in events.items()}
    return NaturalPass(host, ends, clock.uncertainty_ns)


def gated_pass(prepared: Prepared, *, alone: bool) -> dict[int, float]:
    """Run once in chunks behind a gate, and return what a pair of events around each launch reads, in ns, by index in `steps_of`.

    With ``alone``, each chunk is one launch, so that nothing runs beside it; else launches overlap as the plan lets them.
    """
    steps = steps_of(prepared)
    device, streams = prepared.device, list(prepared.streams.values())
    pairs = {
        index: (device.event(timing=True), device.event(timing=True))
        for index, bound in enumerate(steps)
        if isinstance(bound.step, Issue)
    }
    # A launch is at most five items of a queue: gate, waits, two events and itself.
    longest = 1 if alone else max(1, device.queue_depth // 8)
    for chunk in _chunks(steps, longest):
        if not isinstance(steps[chunk[0]].step, CallHost | HostWait | Synchronize | Replay):
            with _held(device, streams):
                for index in chunk:
                    _between(steps[index], pairs.get(index))
        else:
            steps[chunk[0]].call()
        device.synchronize()
    return {index: device.elapsed_ns(start, end) for index, (start, end) in pairs.items()}


def _chunks(steps: Sequence[Bound], longest: int) -> Iterator[list[int]]:
    """Split steps into runs that can be queued behind a gate; what blocks the host, and a graph, is a chunk of its own."""
    chunk: list[int] = []
    issues = 0
    for index, bound in enumerate(steps):
        if isinstance(bound.step, CallHost | HostWait | Synchronize | Replay):
            if chunk:
                yield chunk
            yield [index]
            chunk, issues = [], 0
            continue
        if isinstance(bound.step, Issue) and issues == longest:
            yield chunk
            chunk, issues = [], 0
        chunk.append(index)
        issues += isinstance(bound.step, Issue)
    if chunk:
        yield chunk


def _between(bound: Bound, pair: tuple[Event, Event] | None) -> None:
    if pair is None or bound.stream is None:
        bound.call()
        return
    bound.stream.record(pair[0])
    bound.call()
    bound.stream.record(pair[1])


@contextmanager
def _held(device: Device, streams: Sequence[Stream]) -> Iterator[None]:
    gate = device.gate()
    watchdog = threading.Timer(WATCHDOG_S, gate.open)
    watchdog.daemon = True
    watchdog.start()
    try:
        for stream in streams:
            gate.hold(stream)
        yield
    finally:
        watchdog.cancel()
        gate.open()


def graph_pair_pass(prepared: Prepared, replay: Bound, repeats: int) -> dict[int, float]:
    """Replay a segment with a pair of event-record nodes around each launch; return the median readings in ns by index in ``inner``."""
    device = prepared.device
    pairs = {
        index: (device.event(timing=True), device.event(timing=True))
        for index, bound in enumerate(replay.inner)
        if isinstance(bound.step, Issue)
    }
    with prepared.capturing() as graphs:
        for index, bound in enumerate(replay.inner):
            _between(bound, pairs.get(index))
    readings: dict[int, list[float]] = {index: [] for index in pairs}
    for _ in range(repeats + 1):
        _replay_alone(device, graphs[0], prepared.streams[0])
        for index, (start, end) in pairs.items():
            readings[index].append(device.elapsed_ns(start, end))
    return {index: float(np.median(values[1:])) for index, values in readings.items()}


def graph_position_pass(prepared: Prepared, replay: Bound, repeats: int) -> dict[int, float]:
    """Return how long before the end of a replay each launch ended, in ns by index in ``inner``; the last one has 0.

    A few graphs are captured, each with event-record nodes aside of every eighth launch, so that the replay is nearly what it is without.
    """
    device, stream = prepared.device, prepared.streams[0]
    launches = [index for index, bound in enumerate(replay.inner) if isinstance(bound.step, Issue)]
    before_end: dict[int, float] = {}
    end = device.event(timing=True)
    for variant in range(min(ASIDE_STRIDE, len(launches))):
        events = {index: device.event(timing=True) for index in launches[variant::ASIDE_STRIDE]}
        with prepared.capturing() as graphs:
            for index, bound in enumerate(replay.inner):
                bound.call()
                if index in events and bound.stream is not None:
                    bound.stream.record_aside(events[index])
        readings: dict[int, list[float]] = {index: [] for index in events}
        for _ in range(repeats + 1):
            _replay_alone(device, graphs[0], stream, end)
            for index, event in events.items():
                readings[index].append(device.elapsed_ns(event, end))
        before_end |= {index: float(np.median(values[1:])) for index, values in readings.items()}
    last = min(before_end.values(), default=0.0)
    return {index: value - last for index, value in before_end.items()}


def _replay_alone(device: Device, graph: Graph, stream: Stream, end: Event | None = None) -> None:
    graph.launch(stream)
    if end is not None:
        stream.record(end)
    device.synchronize()
