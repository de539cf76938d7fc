"""A forecast: what a program should take under each engine on a device whose costs are known, beside what it does take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from streamscope.advising.break_even import BRANCHED, replays_to_pay
from streamscope.advising.device_costs import DeviceCosts
from streamscope.advising.probes import launch_durations_ns
from streamscope.advising.simulation import simulated_ns, without_data
from streamscope.analysis.statistics import MedianInterval, median_interval
from streamscope.analysis.traits import streams_words
from streamscope.devices.protocol import Device
from streamscope.engines.plan import Plan
from streamscope.measuring.case import CHECKED_RUNS, Case
from streamscope.measuring.elimination import paired_ratios
from streamscope.program.launch import Launch, LaunchKind
from streamscope.program.operation import Program
from streamscope.progress import Steps
from streamscope.recording.recorders import recorder_of
from streamscope.trace.spans import SpanKind, SpanTable

ROUNDS, SIMULATED_ROUNDS = 30, 1


@dataclass(frozen=True)
class Forecast:
    """A program under the engines that compete."""

    program: str
    kernels: int
    kernel_ns: float
    """How many kernels it launches, and their median length in ns, by a recorded run under async."""
    per_branch: float
    """Kernels in each stretch between two points at which streams wait for each other under dual; 0 if it uses one stream only."""
    predicted_ns: dict[str, float]
    """Makespan by engine, in ns, on the simulated device with the fitted costs."""
    makespans_ns: dict[str, MedianInterval]
    """Makespan by engine, in ns, as measured."""
    speedups: dict[str, MedianInterval]
    """Makespan under async over that under the engine, in paired rounds, as measured."""
    capture_replays: float
    """After how many replays the graph has paid for its capture, by the measured makespans; infinite if it never does."""
    unfit: dict[str, str]
    """Engines that do not do what they should with this program, and why."""
    streams: str = "a second stream"
    """On what graph-dual spreads it: ``"a second stream"`` or ``"4 streams"``."""

    def predicted_speedup(self, engine: str) -> float:
        """Return the makespan under async over that under an engine, both predicted."""
        return self.predicted_ns["async"] / self.predicted_ns[engine]


def forecast_steps(case: Case, device: Device) -> int:
    """Return how many steps `forecast` has."""
    return case.measuring_steps(device, len(BRANCHED), rounds=SIMULATED_ROUNDS if device.info.exact else ROUNDS, recorded=1)


def forecast(case: Case, device: Device, costs: DeviceCosts, steps: Steps) -> Forecast:
    """Record a program once under async, simulate it under the other engines with the device's costs, and measure it under them."""
    prepared, parts = {}, case.parts(device)
    for engine in BRANCHED:
        steps.begin(f"preparing {engine}", CHECKED_RUNS * parts)
        prepared[engine] = case.prepare(engine, device, None).prepared
    steps.begin("recording async", parts)
    case.reload(prepared["async"])
    trace = recorder_of(device).record(prepared["async"], lambda: case.reload(prepared["async"]))
    durations = launch_durations_ns(trace.spans)
    kernels_ns = [durations[key] for key in _kernels(case.program) if key in durations]
    random, rounds = np.random.default_rng(0), SIMULATED_ROUNDS if device.info.exact else ROUNDS
    times = []
    for _ in range(rounds):
        steps.begin("timing", len(BRANCHED) * parts)
        times.append(case.round_ns(prepared, random))
    measured = {engine: [float(one[engine]) for one in times] for engine in BRANCHED}
    medians = {engine: median_interval(values) for engine, values in measured.items()}
    plans = {engine: one.plan for engine, one in prepared.items()}
    return Forecast(
        program=case.program.name,
        kernels=len(kernels_ns),
        kernel_ns=float(np.median(kernels_ns)) if kernels_ns else 0.0,
        per_branch=_per_branch(plans["dual"], len(kernels_ns)),
        predicted_ns=_predicted_ns(plans, device, trace.spans, costs),
        makespans_ns=medians,
        speedups={engine: median_interval(paired_ratios(measured["async"], values)) for engine, values in measured.items()},
        capture_replays=replays_to_pay(costs, len(durations), medians["async"].median - medians["graph"].median),
        unfit={engine: bound.why_not for engine, one in prepared.items() for bound in one.bound if bound.why_not},
        streams=streams_words(plans["graph-dual"].counts),
    )


def _predicted_ns(plans: Mapping[str, Plan], device: Device, spans: SpanTable, costs: DeviceCosts) -> dict[str, float]:
    """Return the makespan of each engine's plan on the simulated device, in ns, from how long its parts took in a run under async."""
    durations, host_ns = launch_durations_ns(spans), _host_ns(spans, SpanKind.HOST)
    library = [launch for launch in plans["async"].program.launches() if launch.library]
    calls = _host_ns(spans, SpanKind.LAUNCH)
    taken = [calls[launch.operation, launch.part] for launch in library if (launch.operation, launch.part) in calls]
    model = replace(costs.model, library_launch_ns=max(float(np.median(taken)), 1.0)) if taken else costs.model

    def duration_ns(launch: Launch) -> float:
        return durations.get((launch.operation, launch.part), device.estimate_ns(launch))

    hosts = {operation: taken_ns for (operation, _), taken_ns in host_ns.items()}
    return {engine: costs.run_ns + simulated_ns(without_data(plan, hosts), duration_ns, model)[1] for engine, plan in plans.items()}


def _host_ns(spans: SpanTable, kind: SpanKind) -> dict[tuple[int, int], float]:
    """Return how long calls of a kind took the host, in ns, by operation and part."""
    calls = spans.of_kind([kind])
    return dict(zip(zip(calls.operation.tolist(), calls.part.tolist(), strict=True), map(float, calls.duration_ns.tolist()), strict=True))


def _kernels(program: Program) -> list[tuple[int, int]]:
    return [(launch.operation, launch.part) for launch in program.launches() if launch.kind is LaunchKind.KERNEL]


def _per_branch(dual: Plan, kernels: int) -> float:
    """Return how many kernels lie between a fork and a join: those of one stream over the stretches that the waits cut it into."""
    return 0.0 if dual.streams < 2 else kernels / dual.streams / max(dual.waits / 2, 1)
