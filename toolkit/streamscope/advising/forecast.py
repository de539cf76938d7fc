"""A forecast: how long a program should take under each engine, predicted from one run under sync."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamscope.advising.break_even import BOTH, BRANCHED, CAPTURED, PLAIN, STREAMS, DeviceCosts, replays_to_pay
from streamscope.analysis.traits import streams_words
from streamscope.devices.protocol import Device
from streamscope.engine_entry import WAITING, engine_with
from streamscope.engines.plan import Plan, plan_for
from streamscope.measuring.case import Case
from streamscope.measuring.recordings import recorded_traces
from streamscope.predicting.prediction import what_if
from streamscope.progress import Steps
from streamscope.trace.spans import SpanKind

SOURCE = engine_with(WAITING)
"""Engine that is recorded, from whose trace the others are predicted: nothing overlaps under it."""


@dataclass(frozen=True)
class Forecast:
    """A program under the engines that compete."""

    program: str
    kernels: int
    kernel_ns: float
    """How many kernels it launches, and their median length in ns, by a recorded run under sync."""
    per_branch: float
    """Kernels in each stretch between two points at which streams wait for each other under dual; 0 if it uses one stream only."""
    predicted_ns: dict[str, float]
    """Makespan by engine, in ns; empty for a program without kernels."""
    capture_replays: float
    """After how many replays the graph has paid for its capture; infinite if it never does."""
    streams: str = "a second stream"
    """Further streams of graph-dual: ``"a second stream"`` or ``"4 streams"``."""

    def speedup(self, engine: str) -> float:
        """Return the makespan under async over that under an engine."""
        return self.predicted_ns[PLAIN] / self.predicted_ns[engine]


def forecast_steps(case: Case, device: Device) -> int:
    """Return how many steps `forecast` has."""
    return case.measuring_steps(device, 1, rounds=0, recorded=1)


def forecast(case: Case, device: Device, costs: DeviceCosts, steps: Steps) -> Forecast:
    """Record a program once under sync, where nothing overlaps, and predict it under the engines that compete."""
    parts = case.parts(device)
    steps.begin(f"preparing {SOURCE}", case.checking_parts(device))
    checked = case.prepare(SOURCE, device, None)
    steps.begin(f"recording {SOURCE}", parts)
    ((_, trace),) = recorded_traces(case, device, {SOURCE: checked})
    kernels_ns = trace.spans.of_kind([SpanKind.KERNEL]).duration_ns
    predictions = {engine: what_if(trace, engine=engine) for engine in BRANCHED} if len(kernels_ns) else {}
    predicted_ns = {engine: found.predicted_ns for engine, found in predictions.items()}
    plans = {engine: plan_for(case.program, engine, device.estimate_ns, None) for engine in (STREAMS, BOTH)}
    return Forecast(
        program=case.program.name,
        kernels=len(kernels_ns),
        kernel_ns=float(np.median(kernels_ns)) if len(kernels_ns) else 0.0,
        per_branch=_per_branch(plans[STREAMS], len(kernels_ns)),
        predicted_ns=predicted_ns,
        capture_replays=replays_to_pay(costs, len(kernels_ns), predicted_ns[PLAIN] - predicted_ns[CAPTURED]) if predictions else np.inf,
        streams=streams_words(plans[BOTH].counts),
    )


def _per_branch(dual: Plan, kernels: int) -> float:
    """Return how many kernels lie between a fork and a join: those of one stream over the stretches that the waits cut it into."""
    return 0.0 if dual.streams < 2 else kernels / dual.streams / max(dual.waits / 2, 1)
