"""A forecast: what a program should take under each engine on a device whose costs are known, beside what it does take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamscope.advising.break_even import BRANCHED, replays_to_pay
from streamscope.advising.device_costs import DeviceCosts
from streamscope.advising.elimination import paired_ratios
from streamscope.advising.probing import Durations, launch_durations_ns
from streamscope.advising.task import Task
from streamscope.analysis.statistics import MedianInterval, median_interval
from streamscope.devices.cost_model import CostModel
from streamscope.devices.protocol import Device
from streamscope.engines import PLANNERS
from streamscope.engines.plan import Plan
from streamscope.engines.prediction import makespan_ns
from streamscope.program.launch import HostCall, LaunchKind
from streamscope.program.operation import Program
from streamscope.recording.device_log import recorder_of
from streamscope.trace.spans import SpanKind, SpanTable
from streamscope.trace.trace import Trace

ROUNDS, SIMULATED_ROUNDS = 30, 1


@dataclass(frozen=True)
class Forecast:
    """A program under the engines that compete.

    Attributes
    ----------
    program : str
    kernels, kernel_ns : int and float
        How many kernels it launches, and their median length in ns, by a recorded run under async.
    per_branch : float
        Kernels in each stretch between two points at which streams wait for each other under dual; 0 if it uses one stream only.
    predicted_ns : dict of str to float
        Makespan by engine, in ns, by the fitted costs.
    makespans_ns : dict of str to MedianInterval
        Makespan by engine, in ns, as measured.
    speedups : dict of str to MedianInterval
        Makespan under async over that under the engine, in paired rounds, as measured.
    capture_replays : float
        After how many replays the graph has paid for its capture, by the measured makespans; infinite if it never does.
    unfit : dict of str to str
        Engines that do not do what they should with this program, and why.
    """

    program: str
    kernels: int
    kernel_ns: float
    per_branch: float
    predicted_ns: dict[str, float]
    makespans_ns: dict[str, MedianInterval]
    speedups: dict[str, MedianInterval]
    capture_replays: float
    unfit: dict[str, str]

    def predicted_speedup(self, engine: str) -> float:
        """Return the makespan under async over that under an engine, both predicted."""
        return self.predicted_ns["async"] / self.predicted_ns[engine]


def forecast(task: Task, device: Device, costs: DeviceCosts) -> Forecast:
    """Record a program once under async, predict it under the other engines, and measure it under them."""
    prepared = {engine: task.enter(engine, device, 2).prepared for engine in BRANCHED}
    task.reload(prepared["async"])
    trace = recorder_of(device).record(prepared["async"], lambda: task.reload(prepared["async"]))
    durations = launch_durations_ns(trace.spans)
    kernels_ns = [durations[key] for key in _kernels(task.program) if key in durations]
    random, rounds = np.random.default_rng(0), SIMULATED_ROUNDS if device.info.exact else ROUNDS
    times = [task.round_ns(prepared, random) for _ in range(rounds)]
    measured = {engine: [float(one[engine]) for one in times] for engine in BRANCHED}
    medians = {engine: median_interval(values) for engine, values in measured.items()}
    dual = prepared["dual"].plan
    return Forecast(
        program=task.program.name,
        kernels=len(kernels_ns),
        kernel_ns=float(np.median(kernels_ns)) if kernels_ns else 0.0,
        per_branch=_per_branch(dual, len(kernels_ns)),
        predicted_ns=predicted(task.program, device, trace, costs),
        makespans_ns=medians,
        speedups={engine: median_interval(paired_ratios(measured["async"], values)) for engine, values in measured.items()},
        capture_replays=replays_to_pay(costs, len(durations), medians["async"].median - medians["graph"].median),
        unfit={engine: bound.why_not for engine, one in prepared.items() for bound in one.bound if bound.why_not},
    )


def predicted(program: Program, device: Device, trace: Trace, costs: DeviceCosts) -> dict[str, float]:
    """Return the makespan of a program under each engine, in ns, from how long its parts took in a recorded run.

    Parameters
    ----------
    program : Program
    device : Device
        Its estimates decide what the plans are, as they do when the program is prepared.
    trace : Trace
        A run under async, in which no kernel was beside another.
    costs : DeviceCosts
    """
    durations, model = launch_durations_ns(trace.spans), _with_library_calls(program, trace.spans, costs.model)
    timed = _with_host_durations(program, trace.spans)
    plans = {engine: PLANNERS[engine](timed, device.estimate_ns, streams=2) for engine in BRANCHED}
    return {engine: costs.run_ns + _makespan_ns(plan, durations, device, model) for engine, plan in plans.items()}


def _makespan_ns(plan: Plan, durations: Durations, device: Device, model: CostModel) -> float:
    return makespan_ns(plan, lambda launch: durations.get((launch.operation, launch.part), device.estimate_ns(launch)), model)


def _kernels(program: Program) -> list[tuple[int, int]]:
    return [(launch.operation, launch.part) for launch in program.launches() if launch.kind is LaunchKind.KERNEL]


def _per_branch(dual: Plan, kernels: int) -> float:
    """Return how many kernels lie between a fork and a join: those of one stream over the stretches that the waits cut it into."""
    return 0.0 if dual.streams < 2 else kernels / dual.streams / max(dual.waits / 2, 1)


def _with_library_calls(program: Program, spans: SpanTable, model: CostModel) -> CostModel:
    """Put in how long the program's own library calls took the host, if it has any."""
    library = {(launch.operation, launch.part) for launch in program.launches() if launch.library}
    calls = spans.of_kind([SpanKind.LAUNCH])
    rows = zip(calls.operation.tolist(), calls.part.tolist(), calls.duration_ns.tolist(), strict=True)
    taken = [duration for operation, part, duration in rows if (operation, part) in library]
    return replace(model, library_launch_ns=max(float(np.median(taken)), 1.0)) if taken else model


def _with_host_durations(program: Program, spans: SpanTable) -> Program:
    """Put in how long the program's host functions took."""
    calls = spans.of_kind([SpanKind.HOST])
    taken: Mapping[int, Any] = dict(zip(calls.operation.tolist(), calls.duration_ns.tolist(), strict=True))
    operations = tuple(
        replace(one, work=replace(one.work, duration_ns=float(taken[one.id])))
        if isinstance(one.work, HostCall) and one.id in taken
        else one
        for one in program.operations
    )
    return replace(program, operations=operations)
