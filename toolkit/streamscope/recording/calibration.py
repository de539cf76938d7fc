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
_CLOCK_SAMPLES = 50
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

    One gate holds a stream of each, and an event waits behind it on each. An event's time lies between the opening of the gate and the
    return of a synchronisation. Each sample bounds the offset from both sides; the offset is the middle of what all samples allow. Without
    a gate, the event would come some microseconds after the call that records it. Of several GPUs, each is waited for first in its turn.
    The gate opens for all of them at one moment, which ties their clocks to each other.

    It is done afresh for each pass, since the time between two events is a 32-bit float in milliseconds and loses its nanoseconds after a
    second.
    """
    first = {getattr(stream, "gpu", 0): stream for stream in reversed(list(streams))}
    bases, probes = ({gpu: timed_event(device, stream) for gpu, stream in first.items()} for _ in range(2))
    device.synchronize()
    for gpu, stream in first.items():
        stream.record(bases[gpu])
    device.synchronize()
    low, high = dict.fromkeys(first, -np.inf), dict.fromkeys(first, np.inf)
    opened: dict[int, list[float]] = {gpu: [] for gpu in first}
    turns = list(first.items())
    for _ in range(1 if device.info.exact else _CLOCK_SAMPLES):
        with held(device, list(first.values())) as gate:
            for gpu, stream in turns:
                stream.record(probes[gpu])
            time.sleep(_TAKEN_UP_S)
            before = device.now_ns()
            gate.open()
            after = {gpu: _returned_ns(device, stream) for gpu, stream in turns}
        for gpu, probe in probes.items():
            since = device.elapsed_ns(bases[gpu], probe)
            low[gpu], high[gpu] = max(low[gpu], before - since), min(high[gpu], after[gpu] - since)
            opened[gpu].append(since)
        turns = [*turns[1:], turns[0]]
    clocks = {gpu: Clock(device, bases[gpu], (low[gpu] + high[gpu]) / 2, abs(high[gpu] - low[gpu]) / 2) for gpu in first}
    return clocks[0] if list(clocks) == [0] else HostClock(_tied(clocks, opened))


def _returned_ns(device: Device, stream: Stream) -> int:
    """Wait for a stream, and return the host's clock then."""
    stream.synchronize()
    return device.now_ns()


def _tied(clocks: Mapping[int, Clock], opened: Mapping[int, Sequence[float]]) -> dict[int, Clock]:
    """Return clocks that agree on when gates opened; ``opened`` is that for each, since its base.

    Readings of a GPU may have two states, so the middle of their quartiles counts, as the median would be in one of them. The host's
    clock is the mean of the GPUs' readings of it.
    """
    times = np.array([np.array(opened[gpu]) + clock.offset_ns for gpu, clock in clocks.items()])
    early = np.percentile(times - times.mean(axis=0), (25, 75), axis=1).mean(axis=0).tolist()
    return {gpu: replace(clock, offset_ns=clock.offset_ns - off) for (gpu, clock), off in zip(clocks.items(), early, strict=True)}
