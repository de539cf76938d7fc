"""What launches, graphs and second streams cost on a device: fitted to measured runs, with how sure that is."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.advising.probes import Sample, capture_points, samples
from streamscope.advising.simulation import LEAST_NS, simulated_ns
from streamscope.devices.cost_model import CostModel
from streamscope.devices.points import Points, interpolate
from streamscope.devices.protocol import Device
from streamscope.errors import DeviceError
from streamscope.trace.info import DeviceInfo

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
LEAST_STEP_NS = 50.0
"""By how much a cost is varied at least: much more than the whole ns in which the host's clock counts."""
MOST_STEPS = 20
STEPS = (1.0, 0.5, 0.25)
"""How far a step of the fit goes: shares of the way to where the costs should be, tried until one makes the fit better."""
ENOUGH = 2e-3
"""A fit that a step makes better by less than this share is done."""
VARIED = (
    ("run",),
    ("round_trip",),
    ("launch", "graph_launch"),
    ("ordering", "graph_launch_node"),
    ("kernel_gap", "graph_latency"),
    ("crossing", "graph_gap"),
)
"""The costs, those together of which one shows only in graphs and the other only outside."""


@dataclass(frozen=True)
class Fitted:
    """A fitted cost."""

    value_ns: float
    margin_ns: float
    """Half the width of its 95 % confidence interval (linearised least squares, Student's t); infinite where the runs do not show it."""


@dataclass(frozen=True)
class DeviceCosts:
    """What a device and its host were found to cost."""

    device: DeviceInfo
    """If it is simulated, so are the measurements."""
    fitted: dict[str, Fitted]
    """Each of `COSTS`."""
    captures: Points
    """Host: capturing and instantiating a graph of so many nodes, as measured."""
    residual: float
    """Root mean square of ln(predicted / measured) over the runs: the relative error that the model leaves."""
    runs: int
    """How many times the costs were fitted to."""

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

    @cached_property
    def corners(self) -> dict[tuple[str, str, int], tuple[Array, Array]]:
        """What was simulated with these costs, for `break_even`: corners of makespans over kernel length, by shape, engine and kernels."""
        return {}

    def capture_ns(self, nodes: float) -> float:
        """Return what capturing and instantiating a graph of so many nodes costs the host, in ns."""
        return interpolate(self.captures, nodes)


_costs: dict[tuple[str, ...], DeviceCosts] = {}
_fitting = threading.Lock()


def device_costs(device: Device, said: Callable[[str], None] = lambda what: None) -> DeviceCosts:
    """Return a device's costs, fitted at the first call for it in this process; ``said`` is told what is being measured."""
    # Devices of one kind are alike; simulated ones are if their cost models are.
    key = (device.info.kind, device.info.name, repr(sorted(device.info.details.items())), repr(getattr(device, "model", None)))
    with _fitting:
        if key not in _costs:
            _costs[key] = fitted_costs(device, said)
        return _costs[key]


def fitted_costs(device: Device, said: Callable[[str], None] = lambda what: None) -> DeviceCosts:
    """Measure small programs on a device and fit its costs to them; takes some seconds."""
    taken = samples(device, said)
    said("graph captures")
    captures = capture_points(device)
    fitted, residual = fit(taken, device.info)
    return DeviceCosts(device.info, fitted, captures, residual, 2 * len(taken))


def fit(taken: Sequence[Sample], device: DeviceInfo) -> tuple[dict[str, Fitted], float]:
    """Fit costs to samples; return them and the root mean square of ln(simulated / measured).

    The costs are those with which the simulated device comes nearest to the times until all is issued and until all is done, by the least
    squares of simulated / measured - 1 (Gauss-Newton). A time is piecewise linear in the costs, so a few steps lead there.
    """
    from scipy.optimize import lsq_linear
    from scipy.stats import t

    base = _base(device)
    measured = np.array([time for sample in taken for time in (sample.issue_ns, sample.makespan_ns)], np.float64)

    def shares(costs: Array) -> Array:
        return np.asarray(_times_ns(taken, costs, base) / measured, np.float64)

    costs = _start(base)
    reached = shares(costs)
    for _ in range(MOST_STEPS):
        slopes = _slopes(taken, shares, costs, reached)
        change = lsq_linear(slopes, 1 - reached, bounds=(LEAST_NS - costs, np.inf)).x
        tried = ((nearer, shares(nearer)) for part in STEPS for nearer in [costs + part * change])
        better = next((found for found in tried if _error(found[1]) < _error(reached)), None)
        if better is None:
            break
        gain = 1 - _error(better[1]) / _error(reached)
        costs, reached = better
        if gain < ENOUGH:
            break
    residual = _error(reached)
    if not np.isfinite(residual):
        raise DeviceError(f"the costs of {device.name} could not be fitted", hint="is the device busy with other work?")
    freedom = len(measured) - len(costs)
    deviations = residual * math.sqrt(len(measured) / freedom) * np.sqrt(np.diag(_covariance(slopes)))
    margins = t.ppf(0.975, freedom) * deviations
    return {name: Fitted(float(costs[index]), float(margins[index])) for index, name in enumerate(COSTS)}, residual


def _error(shares: Array) -> float:
    """Return the root mean square of ln(simulated / measured)."""
    return float(np.sqrt(np.mean(np.log(shares) ** 2)))


def _times_ns(taken: Sequence[Sample], costs: Array, base: CostModel) -> Array:
    """Return the simulated times of samples, in ns: for each, until all is issued, and until the host knows that all is done."""
    model = _model(costs, base)
    times = [time for sample in taken for time in simulated_ns(sample.plan, sample.duration_ns, model)]
    return np.array(times, np.float64) + float(costs[0])


def _slopes(taken: Sequence[Sample], shares: Callable[[Array], Array], costs: Array, reached: Array) -> Array:
    """Return the change of each time with each cost; costs that do not show in the same times are varied together."""
    in_graph = np.repeat([sample.plan.engine.startswith("graph") for sample in taken], 2)
    names = list(COSTS)
    steps = np.maximum(0.01 * costs, LEAST_STEP_NS)
    slopes = np.zeros((len(reached), len(costs)))
    for together in VARIED:
        columns = [names.index(name) for name in together]
        changed = costs.copy()
        changed[columns] += steps[columns]
        change = shares(changed) - reached
        for name, column in zip(together, columns, strict=True):
            shown = True if len(together) == 1 else in_graph == name.startswith("graph")
            slopes[:, column] = np.where(shown, change / steps[column], 0.0)
    return slopes


def _base(device: DeviceInfo) -> CostModel:
    """Return what the costs are put into: only the size of the chip matters beside them."""
    reference = CostModel.load()
    return replace(reference, multiprocessors=int(device.details.get("multiprocessors", reference.multiprocessors)))


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
