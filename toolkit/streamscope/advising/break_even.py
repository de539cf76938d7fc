"""Break-even points: from which kernel length and count on a graph, or a second stream, pays on a device with given costs.

Chains are predicted by formula, branches by a walk through the engines' own plans (`engines.prediction`). Kernels are taken to leave
room for each other on the multiprocessors; those that fill them gain nothing from a second stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import inf, isnan, nan, sqrt

from streamscope.advising.device_costs import DeviceCosts
from streamscope.advising.probe_programs import forked
from streamscope.engines import PLANNERS
from streamscope.engines.plan import Plan
from streamscope.engines.prediction import makespan_ns

WORTH = 0.05
"""A gain below this share of the makespan does not count as one that pays."""
MANY = 1000
"""Kernels of a chain that is as good as endless."""
SHORTEST_NS, LONGEST_NS = 100.0, 1e6
"""Kernel lengths among which break-even points are looked for."""
BRANCHED = ("async", "dual", "graph", "graph-dual")
"""Engines that compete for branches."""


@dataclass(frozen=True)
class BreakEven:
    """Up to, or from, which kernel length something pays.

    Attributes
    ----------
    low_ns, high_ns : float
        It pays for kernels of at least ``low_ns`` and at most ``high_ns``: 0 and infinite where there is no such limit between
        `SHORTEST_NS` and `LONGEST_NS`; both are NaN where it never pays.
    """

    low_ns: float
    high_ns: float

    @property
    def never(self) -> bool:
        """Whether it pays at no length."""
        return isnan(self.low_ns)


def chain_async_ns(costs: DeviceCosts, count: int, length_ns: float) -> float:
    """Return the makespan of a chain of kernels under async, in ns.

    Formula: run + launch + round trip + length + (count - 1) × max(launch, length + gap): either the host is the slower one, or the device.
    """
    each_ns = max(costs.ns("launch"), length_ns + costs.ns("kernel_gap"))
    return costs.run_ns + costs.ns("launch") + costs.ns("round_trip") + length_ns + (count - 1) * each_ns


def chain_graph_ns(costs: DeviceCosts, count: int, length_ns: float) -> float:
    """Return the makespan of a chain of kernels in a graph that was captured before, in ns.

    Formula: run + graph launch + graph latency + return + count × length + (count - 1) × gap in a graph.
    """
    model = costs.model
    around_ns = model.graph_launch_ns(count) + model.graph_launch_latency_ns + model.synchronize_return_ns
    return costs.run_ns + around_ns + count * length_ns + (count - 1) * costs.ns("graph_gap")


def graph_speedup(costs: DeviceCosts, count: int, length_ns: float) -> float:
    """Return how many times as fast a chain runs in a graph as under async; capture is not counted."""
    return chain_async_ns(costs, count, length_ns) / chain_graph_ns(costs, count, length_ns)


def launch_bound_below_ns(costs: DeviceCosts) -> float:
    """Return below which length kernels wait for the host under async, in ns: launch - gap on the stream; 0 where none does."""
    return max(costs.ns("launch") - costs.ns("kernel_gap"), 0.0)


def graph_pays(costs: DeviceCosts, count: int = MANY) -> BreakEven:
    """Return for which kernel lengths a chain is faster in a graph by `WORTH` or more, once it is captured."""
    return _range(lambda length_ns: graph_speedup(costs, count, length_ns))


def fewest_kernels(costs: DeviceCosts, length_ns: float) -> int | None:
    """Return from how many kernels of a length on a graph is faster by `WORTH`; None if it is not for a chain of `MANY` either."""
    return next((count for count in (*range(1, 100), MANY) if graph_speedup(costs, count, length_ns) >= 1 + WORTH), None)


def replays_to_pay(costs: DeviceCosts, nodes: float, saved_ns: float) -> float:
    """Return after how many replays a graph has paid for its capture; infinite if it saves nothing.

    Formula: capture and instantiation / (makespan under async - makespan in the graph).
    """
    return costs.capture_ns(nodes) / saved_ns if saved_ns > 0 else inf


def second_stream_pays(costs: DeviceCosts, kernels: int, *, in_graph: bool) -> BreakEven:
    """Return for which kernel lengths a second stream gains `WORTH`, for two branches of so many kernels each, that meet in one more."""
    one, two = ("graph", "graph-dual") if in_graph else ("async", "dual")
    return _range(lambda length_ns: branched_ns(costs, one, kernels, length_ns) / branched_ns(costs, two, kernels, length_ns))


def branched_ns(costs: DeviceCosts, engine: str, kernels: int, length_ns: float) -> float:
    """Return the makespan of two independent branches of so many kernels each, that meet in one more, in ns."""
    return costs.run_ns + makespan_ns(_branches(engine, kernels), lambda launch: length_ns, costs.model)


@cache
def _branches(engine: str, kernels: int) -> Plan:
    """Return the engine's plan of two branches; it depends on their shape, not on the length of their kernels."""
    program, inputs = forked(1, kernels, 1)
    return PLANNERS[engine](program.trace(*inputs), lambda launch: 1e4, streams=2)


def _range(speedup: Callable[[float], float]) -> BreakEven:
    """Return where a speed-up over kernel length is at least 1 + `WORTH`: one stretch, by bisection of its two ends."""
    ratio = 1.25
    lengths_ns = [SHORTEST_NS]
    while lengths_ns[-1] < LONGEST_NS:
        lengths_ns.append(lengths_ns[-1] * ratio)
    pays = [speedup(length_ns) >= 1 + WORTH for length_ns in lengths_ns]
    if not any(pays):
        return BreakEven(nan, nan)
    first, last = pays.index(True), len(pays) - 1 - pays[::-1].index(True)
    low_ns = 0.0 if first == 0 else _crossing(speedup, lengths_ns[first - 1], lengths_ns[first])
    high_ns = inf if last == len(pays) - 1 else _crossing(speedup, lengths_ns[last], lengths_ns[last + 1])
    return BreakEven(low_ns, high_ns)


def _crossing(speedup: Callable[[float], float], low_ns: float, high_ns: float) -> float:
    """Return where between two lengths it begins, or ceases, to pay, within 0.1 %."""
    rising = speedup(high_ns) >= 1 + WORTH
    while high_ns / low_ns > 1.001:
        middle_ns = sqrt(low_ns * high_ns)
        if (speedup(middle_ns) >= 1 + WORTH) == rising:
            high_ns = middle_ns
        else:
            low_ns = middle_ns
    return sqrt(low_ns * high_ns)
