"""The passes of the event recorder: runs of a prepared program with events in it.

*Natural*: as the program runs anyway, with one event behind each launch; tells when things ended.
*Gated*: the stream is held until a launch is queued, with a pair of events around it; tells how long it takes alone, free of the host.
*In a graph*: when things ended, by event-record nodes: a single one, behind one launch, in each of many graphs, since an event slows only
the launches after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import cast

import numpy as np

from streamscope.devices.gates import gpu_of, held, primer_call, reference_call, shield_call, timed_event
from streamscope.devices.protocol import Call, Event, Graph, Stream
from streamscope.engines.binding import BoundStep
from streamscope.engines.plan import Issue, Replay, Step, dependencies
from streamscope.engines.prepared import Prepared
from streamscope.program.launch import LaunchKind
from streamscope.recording.calibration import Clock, HostClock, align_clocks
from streamscope.recording.timed_run import HostInterval, call_all, launches_of, makespan_ns, steps_of

MOST_VARIANTS, MOST_EXACT_VARIANTS = 64, 16
"""Graphs that are captured, at most, to find where in a replay each launch ends. With that many launches or fewer, each has a graph of its
own with a single event in it; with more, several share one, and the delay that earlier events cause is taken off.
A device with exact times needs fewer."""

_LONG_PROGRAM, _FEWEST_VARIANTS = 500, 8

REFERENCES = 12
"""How often a gated pass times the reference kernel, as a kernel and as a copy."""

_Pair = tuple[Event, Event]


@dataclass(frozen=True)
class NaturalPass:
    """One run as it is, with an event behind each launch.

    ``ends_ns`` says of each step that puts work on the device, by its index in `steps_of`, when its event was recorded, on the host's
    clock; of a graph over several GPUs, the last event in it, since its GPUs join after that. ``unrecorded_ns`` is the makespan of the run
    right before it, without events. ``begins_ns`` says of each part of a collective when its stream had got there.
    """

    host: list[HostInterval]
    ends_ns: dict[int, float]
    clock: Clock | HostClock
    unrecorded_ns: int
    begins_ns: dict[int, float] = field(default_factory=dict)

    @property
    def makespan_ns(self) -> int:
        """From the first call to the end of the last."""
        return makespan_ns(self.host)


def natural_pass(prepared: Prepared, plain: Prepared | None = None, untimed: Collection[int] = ()) -> NaturalPass:
    """Run once with an event behind each launch and each graph, and the host's clock read around each call; before it, without.

    ``plain`` is the program that runs without, by default the same; ``untimed`` are indices of steps that get no event.
    Both that are timed begin on an idle device that has just done the same, so the ratio of their makespans is the cost of recording. The
    host has just done the same, too: a library's call takes a third longer where other code ran before it.
    """
    device = prepared.device
    steps = steps_of(prepared)
    launches = (index for index, bound in enumerate(steps) if isinstance(bound.step, Issue | Replay))
    ends = {index: timed_event(device, stream_of(steps[index])) for index in launches if index not in untimed}
    begins = {index: timed_event(device, stream_of(steps[index])) for index in ends if is_part(steps[index].step)}
    several = prepared.program.gpus > 1
    graphs = {index: _with_ends(prepared, steps[index]) for index in ends if several and steps[index].graph is not None}
    calls = [graphs[index][0] if index in graphs else bound.call for index, bound in enumerate(steps)]
    prepared.put_back()
    clock = align_clocks(device, [prepared.streams[lane] for lane in sorted(prepared.streams)])
    unrecorded = plain or prepared
    begin = 0
    # Twice: the first warms caches and code, so the timed one begins as the recorded one behind it does.
    for _ in range(1 if device.info.exact else 2):
        begin = device.now_ns()
        unrecorded.run()
        unrecorded.wait()
    unrecorded_ns = device.now_ns() - begin
    records: list[Call | None] = [stream_of(bound).bound_record(ends[i]) if i in ends else None for i, bound in enumerate(steps)]
    for parts in _collectives(steps, begins):
        # The call of the last part issues all; those before it do nothing, and what is recorded behind them comes before the collective.
        records[parts[-1]] = partial(call_all, [record for record in map(records.__getitem__, parts) if record is not None])
        records[parts[0]] = partial(call_all, [stream_of(steps[index]).bound_record(begins[index]) for index in parts])
        for index in parts[1:-1]:
            records[index] = None
    stamps: list[int] = []
    stamp, now = stamps.append, device.now_ns
    # As little as possible between two calls: what is done here makes the recorded run longer than the unrecorded one.
    for call, record in zip(calls, records, strict=True):
        stamp(now())
        call()
        stamp(now())
        if record is not None:
            record()
    stamp(now())
    prepared.wait()
    stamp(now())
    called: list[Step | None] = [*(bound.step for bound in steps), None]
    host = [HostInterval(step, *times) for step, times in zip(called, zip(stamps[::2], stamps[1::2], strict=True), strict=True)]
    device.synchronize()
    ends_ns, begins_ns = ({index: clock.host_ns(event) for index, event in events.items()} for events in (ends, begins))
    ends_ns |= {index: max(map(clock.host_ns, lasts)) for index, (_, lasts) in graphs.items() if lasts}
    return NaturalPass(host, ends_ns, clock, unrecorded_ns, begins_ns)


def _with_ends(prepared: Prepared, replay: BoundStep) -> tuple[Call, list[Event]]:
    """Return the launch of a graph with events behind the launches that none depends on, and those events."""
    before = dependencies([bound.step for bound in replay.inner])
    lasts = before.keys() - {other for earlier in before.values() for other in earlier}
    events = {index: timed_event(prepared.device, stream_of(replay.inner[index])) for index in lasts}
    return partial(prepared.graph_with(replay, events).launch, prepared.streams[0]), [*events.values()]


def is_part(step: Step) -> bool:
    """Tell whether a step is a part of a collective: those are never gated, nor timed alone, since one part would wait for the others."""
    return isinstance(step, Issue) and step.launch.collective is not None


def stream_of(bound: BoundStep) -> Stream:
    """Return the stream of a step that has one."""
    assert bound.stream is not None
    return bound.stream


def _collectives(steps: Sequence[BoundStep], parts: Iterable[int]) -> Iterator[list[int]]:
    """Yield the indices of the parts of each collective, which stand one behind the other."""
    by_operation: dict[int, list[int]] = {}
    for index in sorted(parts):
        step = steps[index].step
        assert isinstance(step, Issue)
        by_operation.setdefault(step.launch.operation, []).append(index)
    yield from by_operation.values()


@dataclass(frozen=True)
class Readings:
    """Readings of pairs of events around launches of one sort, each alone behind a gate, by index of the step.

    And around the reference kernel in between, at `REFERENCES` places of the pass.
    """

    launches_ns: dict[int, float]
    reference_ns: list[float]


def run_ungated(prepared: Prepared, steps: Sequence[BoundStep], before: Mapping[int, Call] = MappingProxyType({})) -> None:
    """Carry out steps once without a gate, ahead of `gated_pass`: nothing may be loaded behind one, since that waits for the device.

    Where CUPTI came and left since its last call, cuBLAS loads something anew.
    """
    if prepared.device.info.exact:
        return  # It loads nothing.
    for index, bound in enumerate(steps):
        if index in before:
            before[index]()
        bound.call()
    prepared.device.synchronize()


def gated_pass(prepared: Prepared, steps: Sequence[BoundStep], before: Mapping[int, Call] = MappingProxyType({})) -> list[Readings]:
    """Carry out steps, each launch alone behind a gate, and time it by a pair of events: kernels with a shield ahead, copies without.

    ``before`` are calls that put more behind the gate, ahead of the pair, by index.
    """
    device = prepared.device
    streams = {bound.stream for bound in steps if bound.stream is not None}
    primers, shields, known = ({stream: call(device, stream) for stream in streams} for call in (primer_call, shield_call, reference_call))
    kernels, copies = _sorted(steps)
    places = _places(kernels) + _places(copies)
    pairs: dict[int, _Pair] = {}
    references: dict[bool, list[_Pair]] = {True: [], False: []}

    def timed(stream: Stream, calls: Sequence[Call], what: str, first: Sequence[Call]) -> _Pair:
        pair = timed_event(device, stream), timed_event(device, stream)
        with held(device, [stream], what):
            for each in first:
                each()
            stream.record(pair[0])
            for each in calls:
                each()
            stream.record(pair[1])
        device.synchronize()
        return pair

    for index, bound in enumerate(steps):
        if isinstance(bound.step, Issue) and bound.stream is not None and not is_part(bound.step):
            kernel, stream = bound.step.launch.kind is LaunchKind.KERNEL, bound.stream
            ahead = [shields[stream]] if kernel else []
            for _ in range(places[index]):  # Its memory is in the GPU's cache, as it was when CUPTI timed it.
                warm = [known[stream], primers[stream]]
                references[kernel].append(timed(stream, [*ahead, known[stream]], "the reference kernel", warm))
            # A kernel that follows a copy on its stream begins late, and the pair would read up to 8 µs too much.
            first = [*([primers[stream]] if kernel else []), *([before[index]] if index in before else [])]
            pairs[index] = timed(stream, [*ahead, bound.call], bound.step.launch.name, first)
        else:
            bound.call()
    return [
        Readings({index: device.elapsed_ns(*pairs[index]) for index in own}, [device.elapsed_ns(*pair) for pair in references[kernel]])
        for kernel, own in ((True, kernels), (False, copies))
    ]


def _sorted(steps: Sequence[BoundStep]) -> tuple[list[int], list[int]]:
    """Return the indices of the kernels among steps, and those of the copies."""
    found: dict[bool, list[int]] = {True: [], False: []}
    for index in launches_of(steps):
        if not is_part(steps[index].step):
            found[cast("Issue", steps[index].step).launch.kind is LaunchKind.KERNEL].append(index)
    return found[True], found[False]


def _places(launches: Sequence[int]) -> Counter[int]:
    """Return how often the reference kernel is timed ahead of each launch: `REFERENCES` times in all."""
    return Counter(launches[place * len(launches) // REFERENCES] for place in range(REFERENCES)) if launches else Counter()


def alone_ns(passes: Sequence[Sequence[Readings]], reference_kernel_ns: float) -> dict[int, float]:
    """Return how long each launch takes alone, in ns: the median of its readings, less the excess of the reference kernel's readings.

    Readings have two states, 0.2 µs apart, and which one it is changes with the place in the pass. A median of the reference's readings
    would be in one of them. So each place has its median, and the mean over the places counts.
    """
    found: dict[int, float] = {}
    for readings in zip(*passes, strict=True):
        if readings[0].launches_ns:
            excess_ns = float(np.median([one.reference_ns for one in readings], axis=0).mean()) - reference_kernel_ns
            for index in readings[0].launches_ns:
                found[index] = max(0.0, float(np.median([one.launches_ns[index] for one in readings])) - excess_ns)
    return dict(sorted(found.items()))


def graph_ends_pass(prepared: Prepared, replay: BoundStep, repeats: int) -> tuple[dict[int, float], dict[int, float]]:
    """Return how long before the end of a replay each launch ended, in ns by index in ``inner``; the last one has 0.

    And how long before that end each part of a collective could begin.
    """
    device = prepared.device
    launches = launches_of(replay.inner)
    if replay.graph is None or not launches:
        return {}, {}
    span = device.event(timing=True), device.event(timing=True)
    whole = gated_replay_ns(prepared, replay.graph, repeats)
    # Capturing a long program takes long, and its launches are many to learn from.
    most = MOST_EXACT_VARIANTS if device.info.exact else MOST_VARIANTS
    variants = min(len(launches), most if len(launches) <= _LONG_PROGRAM else _FEWEST_VARIANTS)
    ends: dict[int, float] = {}
    for variant in range(variants):
        events = {index: timed_event(device, stream_of(replay.inner[index])) for index in launches[variant::variants]}
        found = _median_ns(prepared, prepared.graph_with(replay, events), span, events | {-1: span[1]}, repeats)
        # An event slows what comes after it: end number n, from 0, is read n delays late.
        delay = max(0.0, found.pop(-1) - whole) / len(events)
        ends |= {index: end - position * delay for position, (index, end) in enumerate(found.items())}
    last = max(ends.values())
    begins: dict[int, float] = {}
    for parts in _collectives(replay.inner, (index for index in launches if is_part(replay.inner[index].step))):
        events = {index: timed_event(device, stream_of(replay.inner[index])) for index in parts}
        graph = prepared.graph_with(replay, {}, begins=events)
        begins |= _median_ns(prepared, graph, span, events, repeats)
    return {index: last - end for index, end in ends.items()}, {index: last - begin for index, begin in begins.items()}


def gated_replay_ns(prepared: Prepared, graph: Graph, repeats: int) -> float:
    """Return how long a graph takes behind a gate, the median, in ns."""
    span = prepared.device.event(timing=True), prepared.device.event(timing=True)
    return _median_ns(prepared, graph, span, {-1: span[1]}, repeats)[-1]


def _median_ns(prepared: Prepared, graph: Graph, span: tuple[Event, Event], events: Mapping[int, Event], repeats: int) -> dict[int, float]:
    """Replay a graph and return the median time from the start of the span to each event, in ns."""
    readings: dict[int, list[float]] = {index: [] for index in events}
    ahead, behind = (partial(prepared.streams[0].record, event) for event in span)
    device = prepared.device
    elsewhere = any(gpu_of(event) for event in events.values())
    clock = align_clocks(device, [prepared.streams[lane] for lane in sorted(prepared.streams)]) if elsewhere else None
    for _ in range(repeats + 1):
        gated_replay(prepared, graph, ahead, behind)
        for index, event in events.items():
            apart = clock is not None and bool(gpu_of(event))  # There is no time between events of two GPUs.
            since = clock.host_ns(event) - clock.host_ns(span[0]) if apart and clock is not None else device.elapsed_ns(span[0], event)
            readings[index].append(since)
    # Without the first replay, which is there to warm up.
    return {index: float(np.median(values[1:])) for index, values in readings.items()}


def gated_replay(prepared: Prepared, graph: Graph, ahead: Call | None = None, behind: Call | None = None) -> None:
    """Replay a graph that is on the device whole before it begins, so that its first nodes do not wait for the host."""
    stream = prepared.streams[0]
    prepared.put_back()
    with held(prepared.device, [stream]):
        if ahead is not None:
            ahead()
        graph.launch(stream)
        if behind is not None:
            behind()
    prepared.device.synchronize()
