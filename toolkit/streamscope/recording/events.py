"""The CUDA-event recorder: from passes with events to a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import numpy as np

from streamscope.devices.link_model import part_begins_ns
from streamscope.devices.protocol import Call, Device
from streamscope.devices.reference import reference_kernel
from streamscope.engines.binding import BoundStep, settled
from streamscope.engines.plan import Issue, Replay, Step
from streamscope.engines.prepared import Prepared
from streamscope.errors import EngineError
from streamscope.program.launch import LaunchKind
from streamscope.recording.calibration import Calibration, calibrate
from streamscope.recording.communication import call_of, communication_of
from streamscope.recording.counting import heard
from streamscope.recording.kernel_times import KernelTimes, key_of
from streamscope.recording.launch_kernels import (
    LaunchKernel,
    add_host_span,
    add_pieces,
    builder_of,
    in_graph,
    pieces_of,
    stretched,
    whole_piece,
)
from streamscope.recording.origins import info_of, memory_of, origins_of
from streamscope.recording.passes import NaturalPass, alone_ns, gated_pass, graph_ends_pass, is_part, natural_pass, run_ungated
from streamscope.recording.placing import Placed, back_to_back_ns, begun_when_free, fitted_to_ends, place_in_graph, with_shorter_gaps
from streamscope.recording.timed_run import HostInterval, launches_of, steps_of
from streamscope.trace.info import TraceInfo
from streamscope.trace.spans import Basis, SpanKind, SpanTable
from streamscope.trace.trace import Trace
from streamscope.words import time_text

ALONE_ERROR, BESIDE_ERROR = 0.025, 0.09
"""Share of its duration by which a kernel may be off, besides `Reference.error_ns`, where CUPTI checks nothing: timed alone it finds other
caches; in a branch of a graph it also has neighbours (benchmarks/results/recorder_accuracy.json)."""
_OVERLAP_ERROR = 0.1
"""How far the overlap of streams may be off then: branches of a graph begin up to 2 µs apart, and no event tells when."""
_EXPOSED = (
    "the exposed share of the communication may be off by 0.25 in this graph, and by 0.5 on a loaded host: events tell when its kernels "
    "and collectives ended, but not when those that run beside others began"
)
"""Of graphs with a stream for communication, where CUPTI tells nothing: against PyTorch's profiler, the worst of 12 shares is 0.23, and of
6 on a loaded host 0.49 (benchmarks/results/recorded_hosts.json and recorded_hosts_further.json)."""


@dataclass(frozen=True)
class EventRecorder:
    """Records runs of prepared programs by CUDA events.

    When a launch ended is measured in the run, or in replays of its graph. How long it takes is ``seen`` in runs of the program (see
    `AutoRecorder`), else it is measured alone, behind a gate. Beside others it may then take longer: events cannot tell running from
    waiting for room on the multiprocessors. Each such duration is uncertain by as much as the reference kernel's, the same way for all
    launches of a trace, and by some per cent; the trace says by how much. (Pairs of event-record nodes in graphs were tried for
    durations: they agreed less well with CUPTI, and on parallel branches hold each other up.) Of each sort of pass, there are so many
    ``passes``, and the median counts; a device with exact times needs one.
    """

    device: Device
    passes: int
    seen: KernelTimes | None = None

    @classmethod
    def on(cls, device: Device) -> EventRecorder:
        """Return a recorder for a device."""
        return cls(device, 1 if device.info.exact else 7)

    def record(self, prepared: Prepared, reload: Callable[[], None] = lambda: None) -> Trace:
        """Record a prepared program whose inputs are loaded and which has run twice, so that its graphs exist.

        ``reload`` fills the inputs before each pass. The trace is of the natural pass with the median makespan, or of a longer one, where
        graphs were seen to take longer; its zero is the start of the first call.
        """
        with prepared.lock, settled(prepared.streams.values()):
            return self._record(prepared, reload)

    def _record(self, prepared: Prepared, reload: Callable[[], None]) -> Trace:
        with heard(self.device.now_ns) as said:
            passes = [_after(reload, natural_pass, prepared) for _ in range(self.passes)]
        # Only branches run in two ways; CUPTI stretches the kernels of some other graphs.
        seen = self.seen if has_branches(prepared) else None
        natural = _shown(passes, 0.0 if seen is None else seen.unrecorded_share * seen.replays_ns)
        # Calibrated for each trace: the excess drifts by some tenths of a microsecond while clocks go up.
        calibration = calibrate(self.device)
        reload()
        placed = self.placed(prepared, natural, calibration)
        late = shift_ns(placed, natural, natural.clock.uncertainty_ns + calibration.end_latency_ns)
        spans = spans_of_run(prepared, natural.host, placed, late)
        info = self._info(prepared, natural, calibration, passes)
        collectives, peers = communication_of(prepared.program, spans)
        origins = origins_of(prepared.plan, self.device.estimate_ns)
        trace = Trace(spans, info, origins, collectives=collectives, peers=peers, memory=memory_of(prepared))
        return said.onto(trace, natural.host[0].start_ns, natural.host[-1].end_ns)

    def placed(self, prepared: Prepared, natural: NaturalPass, calibration: Calibration) -> list[Placed]:
        """Return all launches with their times on the host's clock."""
        steps = steps_of(prepared)
        durations, pieces = self._launches(prepared, steps)
        latency_ns = calibration.end_latency_ns
        placed: list[Placed] = []
        parts: dict[int, tuple[float, float]] = {}
        ends = ended_together(steps, natural, latency_ns)
        for index, end in ends.items():
            bound = steps[index]
            if isinstance(bound.step, Issue) and is_part(bound.step):
                if index not in parts:
                    parts |= self._times_of_parts(parts_of(steps, index), steps, natural, ends, latency_ns)
                placed.append(_placed_part(bound.step, call_of(bound.step, index), *parts[index]))
            elif isinstance(bound.step, Issue):
                basis = Basis.DERIVED if len(pieces[index]) == 1 else Basis.PLACED
                placed.append(Placed(bound.step, index, end - durations[index], end, basis, pieces[index]))
            else:
                placed += self.placed_in_graph(prepared, bound, index, end)
        return placed

    def _times_of_parts(
        self, parts: range, steps: Sequence[BoundStep], natural: NaturalPass, ends: Mapping[int, float], latency_ns: float
    ) -> dict[int, tuple[float, float]]:
        """Return when the parts of a collective begin and end: from when all have begun, no later than was seen.

        On a loaded host, events behind all-to-alls of 7 µs were recorded 0.2 ms late.
        """
        call = parts[-1]
        unknown = 0.0, np.inf
        seen = {index: self.seen.transfers_ns[key_of(steps[index], index)] if self.seen is not None else unknown for index in parts}
        begins: dict[int, float] = {}
        for index in parts:
            launched = self._launched_ns(steps[index], index, natural.host[call], begins.get(parts[0], np.inf))
            shortest_ns, _ = seen[index]
            begins[index] = min(max(natural.begins_ns[index] + latency_ns, launched), ends[index] - shortest_ns)
        last = max(begins.values())
        return {
            index: (begin, min(ends[index], last + seen[index][1]) if _awaits_all(steps[index]) else ends[index])
            for index, begin in begins.items()
        }

    def _launched_ns(self, part: BoundStep, index: int, called: HostInterval, first_ns: float) -> float:
        """Return when a part of a collective begins, on an idle stream: by the law of NCCL's launches, or as far ahead as was seen.

        ``first_ns``: start of part 0. It is launched last, and its end tells better when it began than the law does.
        """
        begin = launched_ns(cast("Issue", part.step).launch.part, called)
        lead = self.seen.leads.get(key_of(part, index)) if self.seen is not None else None
        return begin if lead is None else min(begin, min(launched_ns(0, called), first_ns) - lead * (called.end_ns - called.start_ns))

    def placed_in_graph(self, prepared: Prepared, replay: BoundStep, correlation: int, end_ns: float) -> list[Placed]:
        """Return the launches of a replay by the host call ``correlation`` that ended at ``end_ns``."""
        inner = [bound.step for bound in replay.inner]
        alone, pieces = self._launches(prepared, replay.inner, correlation)
        pieces = in_graph(pieces, replay.owners, correlation)
        launches = [(index, step) for index, step in enumerate(inner) if isinstance(step, Issue)]
        if self.seen is not None and _branches(inner):
            seen_ns, keys = self.seen.in_replay_ns, {index: key_of(replay.inner[index], index, correlation) for index, _ in launches}
            in_replay = {index: seen_ns[key] for index, key in keys.items() if key in seen_ns}
            if self.seen.unrecorded_share < 1:
                in_replay = with_shorter_gaps(inner, in_replay, self.seen.unrecorded_share)
            times = dict.fromkeys(keys, (end_ns, end_ns))
            times |= {index: (end_ns + start, end_ns + end) for index, (start, end) in in_replay.items()}
        else:
            times = self._by_ends(prepared, replay, end_ns, alone)
        return [Placed(step, correlation, *times[index], Basis.PLACED, pieces[index]) for index, step in launches]

    def _by_ends(
        self, prepared: Prepared, replay: BoundStep, end_ns: float, alone_ns: Mapping[int, float]
    ) -> dict[int, tuple[float, float]]:
        """Return starts and ends of the launches of a replay by events behind each, and by how long each takes alone."""
        inner, alone = [bound.step for bound in replay.inner], dict(alone_ns)
        try:
            before_end, begins = graph_ends_pass(prepared, replay, self.passes)
        except EngineError as error:
            prepared.notes.append(f"positions in the graph are worked out from durations alone: {error.message}")
            before_end, begins = back_to_back_ns(inner, alone), {}
        ends = {index: end_ns - before for index, before in before_end.items()}
        alone |= {index: max(0.0, before - before_end[index]) for index, before in begins.items()}
        # Also what CUPTI saw is shortened: it stretches the kernels of some graphs.
        durations = fitted_to_ends(inner, {index: alone[index] + self._longer_in_graph_ns(inner[index]) for index in alone}, ends)
        starts = place_in_graph(inner, durations, ends)
        begun = begun_when_free(inner, starts, durations)
        return {index: (begun[index], starts[index] + durations[index]) for index in starts}

    def _longer_in_graph_ns(self, step: Step) -> float:
        """Return how much longer than alone a launch takes in a graph: a generated kernel as the reference, a library's as long."""
        generated = isinstance(step, Issue) and step.launch.kind is LaunchKind.KERNEL and not step.launch.library
        if not generated or self.seen is not None:
            return 0.0
        known = reference_kernel(self.device)
        return known.in_graph_ns - known.queued_ns

    def _launches(
        self, prepared: Prepared, steps: Sequence[BoundStep], replay: int | None = None
    ) -> tuple[dict[int, float], dict[int, tuple[LaunchKernel, ...]]]:
        """Return duration and pieces of each launch among steps: as seen in runs, else as events say of each alone."""
        if self.seen is not None:
            return self.seen.of(steps, replay)
        durations = self.durations_ns(prepared, steps)
        return durations, self.pieces(prepared, steps, durations)

    def durations_ns(
        self, prepared: Prepared, steps: Sequence[BoundStep], before: Mapping[int, Call] = MappingProxyType({})
    ) -> dict[int, float]:
        """Return how long each launch among steps takes alone, in ns."""
        run_ungated(prepared, steps, before)
        found = alone_ns([gated_pass(prepared, steps, before) for _ in range(self.passes)], reference_kernel(self.device).queued_ns)
        return found | {index: 0.0 for index in launches_of(steps) if is_part(steps[index].step)}

    def pieces(self, prepared: Prepared, steps: Sequence[BoundStep], whole_ns: dict[int, float]) -> dict[int, tuple[LaunchKernel, ...]]:
        """Return the kernels of each launch among steps (see `pieces_of`)."""
        return pieces_of(prepared, steps, whole_ns, lambda apart, before: self.durations_ns(prepared, apart, before))

    def _info(
        self,
        prepared: Prepared,
        natural: NaturalPass,
        calibration: Calibration,
        passes: Sequence[NaturalPass],
    ) -> TraceInfo:
        found: dict[str, float] = calibration.to_dict() | {"passes": self.passes}
        found["clock_uncertainty_ns"] = round(natural.clock.uncertainty_ns, 1)
        if self.seen is None and not self.device.info.exact:
            found |= unchecked(self.device, BESIDE_ERROR if has_branches(prepared) else ALONE_ERROR)
        found["by_cupti"] = float(self.seen is not None)
        unrecorded_ns = float(np.median([one.unrecorded_ns for one in passes]))
        ledger = {"recorded_ns": float(natural.makespan_ns), "unrecorded_ns": unrecorded_ns}
        checked = self.device.info.exact or self.seen is not None
        hides = not checked and any(_hides([inner.step for inner in bound.inner]) for bound in prepared.bound)
        notes = [*prepared.notes, *([_EXPOSED] if hides else [])]
        if self.seen is not None and self.seen.unrecorded_share < 1:
            notes.append(_shortened(self.seen))
        return info_of(prepared, "events", ledger, notes, found)


def _shown(passes: Sequence[NaturalPass], replays_ns: float) -> NaturalPass:
    """Return the pass with the median makespan; where that is shorter than its graphs were seen to be, the shortest that is not.

    Some programs run in two ways: two kernels become ready together, and either may begin first.
    """
    ranked = sorted(passes, key=lambda one: one.makespan_ns)
    median = ranked[len(ranked) // 2]
    return next((one for one in ranked if one.makespan_ns >= max(replays_ns, median.makespan_ns)), median)


def _shortened(seen: KernelTimes) -> str:
    took, without = time_text(seen.replays_ns), time_text(seen.unrecorded_share * seen.replays_ns)
    return f"its graph took {took} under CUPTI, and {without} without it: gaps in it are shortened"


def launched_ns(part: int, called: HostInterval) -> float:
    """Return when a part of a collective begins, on an idle stream, that was launched by the call for all parts."""
    return called.end_ns + part_begins_ns(part, called.end_ns - called.start_ns)


def parts_of(steps: Sequence[BoundStep], part: int) -> range:
    """Return the indices of all parts of the collective that a step is one of."""
    step = steps[part].step
    assert isinstance(step, Issue)
    assert step.launch.collective is not None
    last = call_of(step, part)
    return range(last + 1 - len(step.launch.collective.gpus), last + 1)


def _awaits_all(part: BoundStep) -> bool:
    """Tell whether a part of a collective ends when all have begun: one that only sends may end before."""
    launch = cast("Issue", part.step).launch
    return launch.collective is not None and len(launch.collective.awaits(launch.part)) == len(launch.collective.gpus)


def _placed_part(step: Issue, correlation: int, start_ns: float, end_ns: float) -> Placed:
    """Return a part of a collective, whose two times come from the run itself."""
    return Placed(step, correlation, start_ns, end_ns, Basis.DERIVED, (whole_piece(step.launch, end_ns - start_ns),))


def ended_together(steps: Sequence[BoundStep], natural: NaturalPass, latency_ns: float) -> dict[int, float]:
    """Return when what the steps put on the device ended; parts of a collective end everywhere when they end first, within the clocks.

    The events behind the parts are recorded when the call for all parts has returned, one GPU after the other. Those of a short
    collective, which has ended by then, are late. Parts that await the same parts end together.
    """
    ends = {index: recorded_ns - latency_ns for index, recorded_ns in natural.ends_ns.items()}
    together: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for index in ends:
        step = steps[index].step
        if isinstance(step, Issue) and step.launch.collective is not None:
            key = call_of(step, index), step.launch.collective.awaits(step.launch.part)
            together.setdefault(key, []).append(index)
    for (call, _), parts in together.items():
        first = min(ends[index] for index in parts)
        if first < natural.host[call + 1].start_ns:
            ends |= {index: min(ends[index], first + natural.clock.uncertainty_ns) for index in parts}
    return ends


def spans_of_run(prepared: Prepared, host: Sequence[HostInterval], placed: Sequence[Placed], late_ns: float) -> SpanTable:
    """Return the spans of one run: calls of the host, their work on the device (shifted by ``late_ns``), replays of graphs."""
    builder = builder_of(prepared)
    zero, lanes = host[0].start_ns, prepared.plan.lanes
    graphs: dict[int, list[Placed]] = {}
    for index, interval in enumerate(host):
        add_host_span(builder, interval, index, zero)
    for one in placed:
        pieces = stretched(one.pieces, one.start_ns + late_ns - zero, one.end_ns + late_ns - zero)
        add_pieces(builder, one.step.launch, lanes[one.step.lane], one.correlation, pieces, one.basis)
        if isinstance(host[one.correlation].step, Replay):
            graphs.setdefault(one.correlation, []).append(one)
    for correlation, inside in graphs.items():
        start = min(one.start_ns for one in inside) + late_ns - zero
        end = max(one.end_ns for one in inside) + late_ns - zero
        builder.add(SpanKind.GRAPH, "graph", lanes[0], start, end, correlation=correlation, basis=max(one.basis for one in inside))
    return builder.build()


def _after(reload: Callable[[], None], run: Callable[[Prepared], NaturalPass], prepared: Prepared) -> NaturalPass:
    reload()
    return run(prepared)


def unchecked(device: Device, share: float) -> dict[str, float]:
    """Return a trace's error bounds where CUPTI checked nothing; ``share`` is how far a duration may be off."""
    return {"kernel_error_ns": reference_kernel(device).error_ns, "kernel_error_share": share, "overlap_error": _OVERLAP_ERROR}


def has_branches(prepared: Prepared) -> bool:
    """Tell whether a graph of the program has kernels that may run side by side."""
    return any(_branches([inner.step for inner in bound.inner]) for bound in prepared.bound if bound.graph is not None)


def _branches(steps: Sequence[Step]) -> bool:
    return len({step.lane for step in steps if isinstance(step, Issue) and step.launch.kind is LaunchKind.KERNEL}) > 1


def _hides(steps: Sequence[Step]) -> bool:
    """Tell whether a graph has collectives on streams of their own."""
    parts, others = ({step.lane for step in steps if isinstance(step, Issue) and is_part(step) is part} for part in (True, False))
    return bool(parts - others)


def shift_ns(placed: Sequence[Placed], natural: NaturalPass, most_ns: float) -> float:
    """Return by how much all device times must move so that nothing runs before it was called.

    The two clocks are aligned within an uncertainty only; that effects follow their causes narrows it down.
    """
    early = max((natural.host[one.correlation].start_ns - one.start_ns for one in placed), default=0.0)
    return min(max(0.0, early), most_ns)
