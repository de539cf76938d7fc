"""What launches, graphs and second streams cost on a device: fitted to measured runs, with how sure that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.advising.probing import Sample, capture_points, samples
from streamscope.devices.cost_model import CostModel
from streamscope.devices.piecewise import Points, interpolate
from streamscope.devices.protocol import Device
from streamscope.engines.plan import Issue, Plan, RecordEvent, Replay, WaitEvent
from streamscope.engines.prediction import call_ns, makespan_ns, reference_model
from streamscope.errors import DeviceError
from streamscope.trace.trace import DeviceInfo

Array = npt.NDArray[np.float64]

COSTS = {
    "run": "host: beginning a run",
    "launch": "host: launching a kernel",
    "ordering": "host: an event's record and a wait for it",
    "graph_launch": "host: launching a graph",
    "graph_launch_node": "host: the same, for each node more",
    "round_trip": "from the end of a launch call to the kernel's start, and from its end until the host goes on",
    "graph_latency": "from the end of a graph's launch call to its first node's start",
    "kernel_gap": "from a kernel's end to the next one's start on a stream",
    "crossing": "what comes on top where that is on another stream",
    "graph_gap": "from a node's end to the next one's start in a graph",
}
"""What is fitted, in words. ``round_trip`` is a sum, since its two parts hardly show apart; they are divided as on the reference device."""
LEAST_NS = 0.01


@dataclass(frozen=True)
class Fitted:
    """A fitted cost.

    Attributes
    ----------
    value_ns : float
    margin_ns : float
        Half the width of its 95 % confidence interval (linearised least squares, Student's t); infinite where the runs do not show it.
    """

    value_ns: float
    margin_ns: float


@dataclass(frozen=True)
class DeviceCosts:
    """What a device and its host were found to cost.

    Attributes
    ----------
    device : DeviceInfo
        If it is simulated, so are the measurements.
    fitted : dict of str to Fitted
        Each of `COSTS`.
    captures : pairs (nodes, ns)
        Host: capturing and instantiating a graph of so many nodes, as measured.
    residual : float
        Root mean square of ln(predicted / measured) over the runs: the relative error that the model leaves.
    runs : int
        How many times the costs were fitted to.
    """

    device: DeviceInfo
    fitted: dict[str, Fitted]
    captures: Points
    residual: float
    runs: int

    @property
    def run_ns(self) -> float:
        """Host: what a run takes beside its calls."""
        return self.fitted["run"].value_ns

    def ns(self, cost: str) -> float:
        """Return one of the fitted costs, in ns."""
        return self.fitted[cost].value_ns

    @cached_property
    def model(self) -> CostModel:
        """The reference cost model with this device's costs in place of its own."""
        return _model([self.fitted[name].value_ns for name in COSTS], _base(self.device))

    def capture_ns(self, nodes: float) -> float:
        """Return what capturing and instantiating a graph of so many nodes costs the host, in ns."""
        return interpolate(self.captures, nodes)


def fitted_costs(device: Device, said: Callable[[str], None] = lambda what: None) -> DeviceCosts:
    """Measure small programs on a device and fit its costs to them; takes some seconds.

    Times until all is issued and until all is done are predicted by `engines.prediction` with the costs sought, from durations that a
    recorder measured; the costs are those with the least squares of ln(predicted / measured).

    Raises
    ------
    DeviceError
        The device failed, or no costs explain its times.
    """
    taken = samples(device, said)
    said("graph captures")
    captures = capture_points(device)
    fitted, residual = fit(taken, device.info)
    return DeviceCosts(device.info, fitted, captures, residual, 2 * len(taken))


def fit(taken: Sequence[Sample], device: DeviceInfo) -> tuple[dict[str, Fitted], float]:
    """Fit costs to samples; return them and the root mean square of the residuals.

    Raises
    ------
    DeviceError
        No costs explain the times.
    """
    from scipy.optimize import least_squares
    from scipy.stats import t

    base = _base(device)
    measured = np.log([time for sample in taken for time in (sample.issue_ns, sample.makespan_ns)])

    def residuals(costs: Array) -> Array:
        model = _model(costs, base)
        times = [time for sample in taken for time in predicted_ns(sample, model, costs[0])]
        return np.asarray(np.log(times) - measured)

    start = _start(base)
    found = least_squares(residuals, start, bounds=(LEAST_NS, np.inf), x_scale=start, diff_step=1e-4)
    if not found.success or not np.isfinite(found.cost):
        raise DeviceError(f"the costs of {device.name} could not be fitted: {found.message}", hint="is the device busy with other work?")
    freedom = len(measured) - len(start)
    variance = 2 * found.cost / freedom
    margins = t.ppf(0.975, freedom) * np.sqrt(variance * np.diag(_covariance(found.jac)))
    fitted = {name: Fitted(float(value), float(margin)) for name, value, margin in zip(COSTS, found.x, margins, strict=True)}
    return fitted, math.sqrt(2 * found.cost / len(measured))


def predicted_ns(sample: Sample, model: CostModel, run_ns: float) -> tuple[float, float]:
    """Return the predicted times of a sample, in ns: until all is issued, and until the host knows that all is done."""
    return run_ns + issue_ns(sample.plan, model), run_ns + makespan_ns(sample.plan, sample.estimate, model)


def issue_ns(plan: Plan, model: CostModel) -> float:
    """Return what the calls of a run cost the host, in ns, where none of them blocks."""
    total_ns = 0.0
    for step in plan.steps:
        match step:
            case Issue(launch):
                total_ns += call_ns(launch, model)
            case RecordEvent():
                total_ns += model.event_record_ns
            case WaitEvent():
                total_ns += model.stream_wait_ns
            case Replay(steps):
                total_ns += model.graph_launch_ns(sum(isinstance(inner, Issue) for inner in steps))
    return total_ns


def _base(device: DeviceInfo) -> CostModel:
    """Return what the costs are put into: only the size of the chip matters beside them."""
    return replace(reference_model(), multiprocessors=int(device.details.get("multiprocessors", reference_model().multiprocessors)))


def _start(base: CostModel) -> Array:
    """Return where the search begins, in the order of `COSTS`."""
    (_, first_ns), *_, (nodes, last_ns) = base.graph_launch_points
    return np.array([
        500.0,
        base.launch_ns,
        base.event_record_ns + base.stream_wait_ns,
        first_ns,
        max((last_ns - first_ns) / nodes, 1.0),
        base.launch_latency_ns + base.synchronize_return_ns,
        base.graph_launch_latency_ns,
        base.kernel_gap_ns,
        base.drain_ns,
        base.graph_node_gap_ns,
    ])  # fmt: skip


def _model(costs: Sequence[Any] | Array, base: CostModel) -> CostModel:
    """Return a cost model with the given costs, in the order of `COSTS`; sums are divided as the base divides them."""
    _, launch, ordering, graph_launch, graph_launch_node, round_trip, graph_latency, kernel_gap, crossing, graph_gap = map(float, costs)
    recorded = base.event_record_ns / (base.event_record_ns + base.stream_wait_ns)
    there = base.launch_latency_ns / (base.launch_latency_ns + base.synchronize_return_ns)
    return replace(
        base,
        launch_ns=launch,
        event_record_ns=ordering * recorded,
        stream_wait_ns=ordering * (1 - recorded),
        graph_launch_points=((1.0, graph_launch), (1001.0, graph_launch + 1000 * graph_launch_node)),
        launch_latency_ns=round_trip * there,
        synchronize_return_ns=round_trip * (1 - there),
        graph_launch_latency_ns=graph_latency,
        kernel_gap_ns=kernel_gap,
        event_pair_gated_excess_ns=base.event_pair_empty_ns + kernel_gap + crossing,
        graph_node_gap_ns=graph_gap,
        event_pair_graph_excess_ns=base.graph_event_ns + 2 * graph_gap,
    )


def _covariance(jacobian: Array) -> Array:
    """Return the inverse of JᵀJ, infinite on the diagonal for what the runs do not show."""
    scale = np.linalg.norm(jacobian, axis=0)
    shown = scale > 0
    covariance = np.full((len(scale), len(scale)), np.inf)
    scaled = jacobian[:, shown] / scale[shown]
    covariance[np.ix_(shown, shown)] = np.linalg.pinv(scaled.T @ scaled) / np.outer(scale[shown], scale[shown])
    return covariance
