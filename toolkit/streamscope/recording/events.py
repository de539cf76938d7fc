"""The CUDA-event recorder: from passes with events to a trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamscope.devices.protocol import Device
from streamscope.engines.plan import CallHost, HostWait, Issue, RecordEvent, Replay, Step, Synchronize, WaitEvent
from streamscope.engines.prepared import Bound, Prepared
from streamscope.program.launch import Launch, LaunchKind
from streamscope.recording.calibration import Calibration, calibrate
from streamscope.recording.passes import (
    HostInterval,
    NaturalPass,
    gated_pass,
    graph_pair_pass,
    graph_position_pass,
    natural_pass,
    steps_of,
)
from streamscope.recording.placement import overlapping_duration_ns, place_in_graph
from streamscope.trace.spans import Basis, SpanBuilder, SpanKind
from streamscope.trace.trace import Trace, TraceInfo

HOST_LANE = "host"

_HOST_KINDS: dict[type, SpanKind] = {
    Issue: SpanKind.LAUNCH,
    Replay: SpanKind.GRAPH_LAUNCH,
    RecordEvent: SpanKind.EVENT,
    WaitEvent: SpanKind.EVENT,
    HostWait: SpanKind.SYNC,
    Synchronize: SpanKind.SYNC,
    CallHost: SpanKind.HOST,
}


@dataclass(frozen=True)
class EventRecorder:
    """Records runs of prepared programs by CUDA events.

    Attributes
    ----------
    device : Device
    calibration : Calibration
        Made in this process; see `EventRecorder.on`.
    passes : int
        Passes of each sort; a simulated device needs one.
    """

    device: Device
    calibration: Calibration
    passes: int

    @classmethod
    def on(cls, device: Device) -> EventRecorder:
        """Calibrate a device and return a recorder for it."""
        return cls(device, calibrate(device), 1 if device.info.kind == "simulated" else 7)

    def record(self, prepared: Prepared, unrecorded_ns: float = float("nan")) -> Trace:
        """Record a prepared program whose inputs are loaded and which has run twice, so that its graphs exist.

        Parameters
        ----------
        prepared : Prepared
        unrecorded_ns : float
            Median makespan without recording, for the ledger.

        Returns
        -------
        Trace
            Of the natural pass with the median makespan; its zero is the start of the first call.
        """
        natural = self._natural(prepared)
        durations = self._durations_ns(prepared, natural)
        lanes = [HOST_LANE, *device_lanes(prepared)]
        builder = SpanBuilder(lanes)
        zero = natural.host[0].start_ns
        steps = steps_of(prepared)
        for index, interval in enumerate(natural.host):
            add_host_span(builder, interval, index, zero)
        for index, bound in enumerate(steps):
            if isinstance(bound.step, Issue):
                end = natural.ends_ns[index] - self.calibration.end_latency_ns - zero
                _add_launch(builder, prepared, bound.step, index, end - durations[index], end, Basis.DERIVED)
            elif isinstance(bound.step, Replay):
                end = natural.ends_ns[index] - self.calibration.end_latency_ns - zero
                self._add_graph(builder, prepared, bound, index, end)
        return Trace(builder.build(), self._info(prepared, natural, unrecorded_ns))

    def _natural(self, prepared: Prepared) -> NaturalPass:
        passes = sorted((natural_pass(prepared) for _ in range(self.passes)), key=lambda one: one.makespan_ns)
        return passes[len(passes) // 2]

    def _durations_ns(self, prepared: Prepared, natural: NaturalPass) -> dict[int, float]:
        """Return the duration of each launch outside graphs, in ns."""
        alone = self._gated_ns(prepared, alone=True)
        steps = steps_of(prepared)
        lanes = {bound.step.lane for bound in steps if isinstance(bound.step, Issue)}
        if len(lanes) < 2:
            return alone
        together = self._gated_ns(prepared, alone=False)
        return overlapping_duration_ns(
            {index: bound.step.lane for index, bound in enumerate(steps) if isinstance(bound.step, Issue)},
            alone,
            together,
            {index: end - self.calibration.end_latency_ns for index, end in natural.ends_ns.items()},
            {index: float(natural.host[index].start_ns) for index in natural.ends_ns},
        )

    def _gated_ns(self, prepared: Prepared, *, alone: bool) -> dict[int, float]:
        passes = [gated_pass(prepared, alone=alone) for _ in range(self.passes)]
        excess = self.calibration.stream_excess_ns
        return {index: max(0.0, float(np.median([one[index] for one in passes])) - excess) for index in passes[0]}

    def _add_graph(self, builder: SpanBuilder, prepared: Prepared, replay: Bound, index: int, end_ns: float) -> None:
        readings = graph_pair_pass(prepared, replay, self.passes)
        durations = {i: max(0.0, reading - self.calibration.graph_excess_ns) for i, reading in readings.items()}
        before_end = graph_position_pass(prepared, replay, self.passes)
        ends = {i: end_ns - before for i, before in before_end.items()}
        starts = place_in_graph([bound.step for bound in replay.inner], durations, ends)
        for i, start in starts.items():
            step = replay.inner[i].step
            if isinstance(step, Issue):
                _add_launch(builder, prepared, step, index, start, start + durations[i], Basis.PLACED)
        if starts:
            first, last = min(starts.values()), max(start + durations[i] for i, start in starts.items())
            lane = prepared.streams[0].name
            builder.add(SpanKind.GRAPH, "graph", lane, first, last, correlation=index, basis=Basis.PLACED)

    def _info(self, prepared: Prepared, natural: NaturalPass, unrecorded_ns: float) -> TraceInfo:
        calibration: dict[str, float] = self.calibration.to_dict()
        calibration["clock_uncertainty_ns"] = round(natural.clock_uncertainty_ns, 1)
        calibration["passes"] = self.passes
        ledger = {"recorded_ns": float(natural.makespan_ns)}
        if np.isfinite(unrecorded_ns):
            ledger["unrecorded_ns"] = unrecorded_ns
        return TraceInfo(
            prepared.plan.engine,
            prepared.program.name,
            self.device.info,
            "events",
            calibration,
            ledger,
            tuple(prepared.notes),
        )


def device_lanes(prepared: Prepared) -> list[str]:
    """Return the names of the streams that carry work, in the plan's order."""
    used = {step.lane for step in prepared.plan.flat() if isinstance(step, Issue)} | {0}
    return [name for lane, name in enumerate(prepared.plan.lanes) if lane in used]


def add_host_span(builder: SpanBuilder, interval: HostInterval, index: int, zero: int) -> None:
    """Add the span of one host call to a trace that is being built; ``index`` is its correlation."""
    step = interval.step
    kind = SpanKind.SYNC if step is None else _HOST_KINDS[type(step)]
    start, end = interval.start_ns - zero, interval.end_ns - zero
    operation, part, correlation = -1, 0, -1
    if isinstance(step, Issue):
        operation, part, correlation = step.launch.operation, step.launch.part, index
    elif isinstance(step, CallHost):
        operation = step.call.operation
    elif isinstance(step, Replay):
        correlation = index
    builder.add(kind, host_span_name(step), HOST_LANE, start, end, operation=operation, part=part, correlation=correlation)


def host_span_name(step: Step | None) -> str:
    """Return what the timeline calls the host call that carries out a step."""
    match step:
        case None:
            return "wait for the device"
        case Issue(launch):
            return f"launch {launch.name}"
        case Replay():
            return "launch graph"
        case RecordEvent():
            return "record event"
        case WaitEvent():
            return "stream waits for event"
        case HostWait():
            return "host waits for event"
        case Synchronize():
            return "synchronize stream"
        case CallHost(call):
            return call.name


def _add_launch(
    builder: SpanBuilder, prepared: Prepared, step: Issue, correlation: int, start_ns: float, end_ns: float, basis: Basis
) -> None:
    add_device_span(builder, step.launch, prepared.plan.lanes[step.lane], correlation, start_ns, end_ns, basis)


def add_device_span(
    builder: SpanBuilder, launch: Launch, lane: str, correlation: int, start_ns: float, end_ns: float, basis: Basis
) -> None:
    """Add the span of one launch to a trace that is being built."""
    kind = SpanKind.KERNEL if launch.kind is LaunchKind.KERNEL else SpanKind.COPY
    cost = launch.cost
    builder.add(
        kind,
        launch.name,
        lane,
        start_ns,
        end_ns,
        operation=launch.operation,
        part=launch.part,
        correlation=correlation,
        basis=basis,
        blocks=cost.blocks,
        threads=cost.threads,
        nbytes=cost.bytes,
        flops=cost.flops,
    )
