"""Calibration: the excess of a pair of events over the kernel between them, and the map from event time to the host's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from streamscope.devices.gates import held, reference_call, timed_event
from streamscope.devices.protocol import Device, Event, Stream
from streamscope.devices.reference import reference_kernel
from streamscope.engines.binding import capturing, settled

PAIRS = 100
_CLOCK_SAMPLES = 20
_GATE_SAMPLES = 50
_TAKEN_UP_S = 20e-6
"""By then a GPU has taken up a record behind a gate, and waits for nothing else."""


@dataclass(frozen=True)
class Calibration:
    """Corrections of event readings, found in this process on this device.

    A pair of events around one kernel reads ``kernel + excess``, whatever the kernel's length (measured to within 0.1 µs on an H200).
    So the excess is the reading around the reference kernel less that kernel's own duration (`reference_kernel`): of a pair on a stream,
    gated, and of event-record nodes in a graph. Durations rest on readings of the reference kernel in the same pass
    (`passes.alone_ns`), since the excess moves by 0.2 µs from one minute to the next.

    ``end_latency_ns``, from the end of a kernel to the time of the event behind it, is taken as half the queued excess, since events alone
    cannot split it; so a position on the host's clock is uncertain by as much.
    """

    queued_excess_ns: float
    graph_excess_ns: float
    empty_pair_ns: float
    reference_kernel_ns: float
    reference_in_graph_ns: float
    end_latency_ns: float

    def to_dict(self) -> dict[str, float]:
        """Return the numbers as JSON values, rounded to a tenth of a nanosecond."""
        return {name: round(value, 1) for name, value in asdict(self).items()}


def calibrate(device: Device) -> Calibration:
    """Measure the excess of event pairs around the reference kernel, on a stream and in a graph."""
    stream = device.stream("calibration")
    call = reference_call(device, stream)
    events = [device.event(timing=True) for _ in range(2 * PAIRS)]
    pairs = list(zip(events[::2], events[1::2], strict=True))

    def gated(body: Callable[[], None]) -> float:
        with held(device, [stream]):
            call()
            _issue(stream, pairs, body)
        stream.synchronize()
        return float(np.median([device.elapsed_ns(start, end) for start, end in pairs]))

    with settled([stream]):  # The memory and the events are the calibration's own.
        call()
        stream.synchronize()  # Ungated first, so that nothing is loaded behind a gate.
        gated(call)  # Clocks go up.
        queued, empty = gated(call), gated(lambda: None)
        in_graph = _graph_reading(device, stream, call, pairs)
    known = reference_kernel(device)
    excess = queued - known.queued_ns
    return Calibration(excess, in_graph - known.in_graph_ns, empty, known.queued_ns, known.in_graph_ns, excess / 2)


def _issue(stream: Stream, pairs: Sequence[tuple[Event, Event]], body: Callable[[], None]) -> None:
    for start, end in pairs:
        stream.record(start)
        body()
        stream.record(end)


def median_reading_ns(device: Device, stream: Stream, pair: tuple[Event, Event], body: Callable[[], object], repeats: int) -> float:
    """Return the median reading of a pair of events around the work of a call behind a gate, in ns; the stream is empty then."""
    start, end = pair
    readings = []
    with settled([stream]):
        for _ in range(repeats):
            with held(device, [stream]):
                stream.record(start)
                body()
                stream.record(end)
            stream.synchronize()
            readings.append(device.elapsed_ns(start, end))
    return float(np.median(readings))


def _graph_reading(device: Device, stream: Stream, body: Callable[[], None], pairs: Sequence[tuple[Event, Event]]) -> float:
    with capturing(device, stream) as graphs:
        _issue(stream, pairs, body)
    (graph,) = graphs
    for _ in range(3):
        with held(device, [stream]):
            graph.launch(stream)
        stream.synchronize()
    return float(np.median([device.elapsed_ns(start, end) for start, end in pairs]))


@dataclass(frozen=True)
class Clock:
    """Maps the time of events since ``base`` to the host's clock: the offset, and half the width of the interval that it lies in."""

    device: Device
    base: Event
    offset_ns: float
    uncertainty_ns: float

    def host_ns(self, event: Event) -> float:
        """Return the host time of an event's latest record, in ns."""
        return self.offset_ns + self.device.elapsed_ns(self.base, event)


@dataclass(frozen=True)
class HostClock:
    """The clocks of several GPUs, between whose events there is no time."""

    clocks: Mapping[int, Clock]

    @property
    def uncertainty_ns(self) -> float:
        """The uncertainty on the host's clock, of the worst of them."""
        return max(clock.uncertainty_ns for clock in self.clocks.values())

    def host_ns(self, event: Event) -> float:
        """Return the host time of an event's latest record, in ns."""
        return self.clocks[getattr(event, "gpu", 0)].host_ns(event)


def align_clocks(device: Device, streams: Iterable[Stream]) -> Clock | HostClock:
    """Align the time of events of each GPU that has one of these streams with the host's clock.

    One gate holds a stream of each, and an event waits behind it on each. When the gate opens, all are recorded within some microseconds,
    the one that was put there first 2 µs before the others, by a timer of two H200: so each is that in its turn. Readings of a GPU may have
    two states, so the middle of their quartiles counts, as the median would be in one of them. The host's clock is the mean of the GPUs'
    readings of it.
    """
    first = {getattr(stream, "gpu", 0): stream for stream in reversed(list(streams))}
    found = {gpu: _align_clock(device, stream, timed_event(device, stream), timed_event(device, stream)) for gpu, stream in first.items()}
    if list(found) == [0]:
        return found[0]
    probes = {gpu: timed_event(device, stream) for gpu, stream in first.items()}
    opened: dict[int, list[float]] = {gpu: [] for gpu in first}
    turns = list(first.items())
    for _ in range(2 * len(turns) if device.info.exact else _GATE_SAMPLES):
        with held(device, list(first.values())) as gate:
            for gpu, stream in turns:
                stream.record(probes[gpu])
            time.sleep(_TAKEN_UP_S)
            gate.open()
            for _, stream in turns:
                stream.synchronize()
        for gpu, clock in found.items():
            opened[gpu].append(clock.host_ns(probes[gpu]))
        turns = [*turns[1:], turns[0]]
    # On each clock, when the gates opened, beside what the clocks say of it in the mean.
    times = np.array(list(opened.values()))
    off = times - times.mean(axis=0)
    early = dict(zip(opened, np.percentile(off, (25, 75), axis=1).mean(axis=0).tolist(), strict=True))
    return HostClock({gpu: replace(clock, offset_ns=clock.offset_ns - early[gpu]) for gpu, clock in found.items()})


def _align_clock(device: Device, stream: Stream, base: Event, probe: Event) -> Clock:
    """Align event time with the host's clock.

    An event's time lies between the call that records it and the return of a synchronisation after it. Each sample bounds the offset from
    both sides; the offset is the middle of the interval that all samples allow. It is done afresh for each pass, since the time between two
    events is a 32-bit float in milliseconds and loses its nanoseconds after a second.
    """
    device.synchronize()
    # On an idle device: behind other work, a record would come late, and its bounds lie far apart.
    stream.record(base)
    stream.synchronize()
    low, high = -np.inf, np.inf
    for _ in range(2 if device.info.exact else _CLOCK_SAMPLES):
        before = device.now_ns()
        stream.record(probe)
        stream.synchronize()
        after = device.now_ns()
        since = device.elapsed_ns(base, probe)
        low, high = max(low, before - since), min(high, after - since)
    return Clock(device, base, (low + high) / 2, abs(high - low) / 2)
