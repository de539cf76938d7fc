"""The CUDA-event recorder: from passes with events to a trace."""

from __future__ import annotations

from collections.abc import Sequence
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
    graph_ends_pass,
    natural_pass,
    steps_of,
)
from streamscope.recording.placement import place_in_graph
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

    How long a launch takes is measured alone, behind a gate; when it ended is measured in the run, or in replays of its graph. So a span
    ends when its launch ended and is as long as the launch takes alone. Where launches run beside each other, they may take longer, but
    events cannot tell running from waiting for room on the multiprocessors: overlap comes out too small rather than too large. (Pairs of
    event-record nodes in graphs were tried for durations: they agreed less well with CUPTI, and on parallel branches hold each other up.)

    Attributes
    ----------
    device : Device
    passes : int
        Passes of each sort; the median counts. A simulated device needs one.
    """

    device: Device
    passes: int

    @classmethod
    def on(cls, device: Device) -> EventRecorder:
        """Return a recorder for a device."""
        return cls(device, 1 if device.info.kind == "simulated" else 7)

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
        passes = sorted((natural_pass(prepared) for _ in range(self.passes)), key=lambda one: one.makespan_ns)
        natural = passes[len(passes) // 2]
        # Calibrated for each trace: the excess drifts by some tenths of a microsecond while clocks go up.
        calibration = calibrate(self.device)
        steps = steps_of(prepared)
        durations = self._durations_ns(prepared, steps, calibration)
        builder = SpanBuilder([HOST_LANE, *device_lanes(prepared)])
        zero = natural.host[0].start_ns
        for index, interval in enumerate(natural.host):
            add_host_span(builder, interval, index, zero)
        for index, recorded_ns in natural.ends_ns.items():
            bound, end = steps[index], recorded_ns - calibration.end_latency_ns - zero
            if isinstance(bound.step, Issue):
                _add_launch(builder, prepared, bound.step, index, end - durations[index], end, Basis.DERIVED)
            else:
                self._add_graph(builder, prepared, bound, index, end, calibration)
        return Trace(builder.build(), self._info(prepared, natural, calibration, unrecorded_ns))

    def _durations_ns(self, prepared: Prepared, steps: Sequence[Bound], calibration: Calibration) -> dict[int, float]:
        """Return how long each launch among steps takes alone, in ns."""
        passes = [gated_pass(prepared, steps) for _ in range(self.passes)]
        return {
            index: max(0.0, float(np.median([one[index] for one in passes])) - calibration.alone_excess_ns) for index in passes[0]
        }

    def _add_graph(
        self, builder: SpanBuilder, prepared: Prepared, replay: Bound, index: int, end_ns: float, calibration: Calibration
    ) -> None:
        ends = {i: end_ns - before for i, before in graph_ends_pass(prepared, replay, self.passes).items()}
        durations = self._durations_ns(prepared, replay.inner, calibration)
        starts = place_in_graph([bound.step for bound in replay.inner], durations, ends)
        for i, start in starts.items():
            step = replay.inner[i].step
            if isinstance(step, Issue):
                _add_launch(builder, prepared, step, index, start, start + durations[i], Basis.PLACED)
        if starts:
            first, last = min(starts.values()), max(start + durations[i] for i, start in starts.items())
            lane = prepared.streams[0].name
            builder.add(SpanKind.GRAPH, "graph", lane, first, last, correlation=index, basis=Basis.PLACED)

    def _info(self, prepared: Prepared, natural: NaturalPass, calibration: Calibration, unrecorded_ns: float) -> TraceInfo:
        found: dict[str, float] = calibration.to_dict() | {"passes": self.passes}
        found["clock_uncertainty_ns"] = round(natural.clock_uncertainty_ns, 1)
        ledger = {"recorded_ns": float(natural.makespan_ns)}
        if np.isfinite(unrecorded_ns):
            ledger["unrecorded_ns"] = unrecorded_ns
        return TraceInfo(
            prepared.plan.engine,
            prepared.program.name,
            self.device.info,
            "events",
            found,
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
