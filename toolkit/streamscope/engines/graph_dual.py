"""The multi-stream graph engine: the auxiliary streams inside the capture, so that forks and joins cost the host nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from streamscope.device_entry import simulated_device
from streamscope.devices.cost_model import CostModel
from streamscope.devices.protocol import Device
from streamscope.engine_entry import GRAPH, STREAM, EngineEntry
from streamscope.engines.issuing import captured_plan
from streamscope.engines.makespan_estimate import makespan_ns, reference_model
from streamscope.engines.plan import FEWEST_EDGES, OWN_ORDER, Estimate, Plan, Replay, StreamOf, most_streams, own_branches
from streamscope.engines.scheduling import best_plan, in_a_graph, may_open_scopes, schedules_in_a_graph
from streamscope.order.graph import without_implied
from streamscope.program.captured_graph import Edges
from streamscope.program.operation import Operation, Program
from streamscope.words import listed, time_text

_TRIED_STREAMS = (2, 3, 4, 6, 8, 12)
"""On how many streams captured code is spread, as far as that many are allowed, to see which order is the fastest."""
_FINALISTS, _NEARLY = 8, 1.05
"""How many orders are measured once more, and up to which share of the time of the fastest one."""
_SAID = 2
"""How many orders are named beside the one that is taken and the capture's own: those that are the fastest."""
SIMULATED = 6
"""How many orders the simulated device runs of those that the model takes for the fastest; a run takes it 80 µs for each node."""


def plan(program: Program, estimate: Estimate, streams: int | None = None) -> Plan:
    """Capture each segment with at most so many compute streams; with one, this is the graph engine.

    Captured code takes the order that memory asks for: on some of these streams, or with the fewest edges, or its own where that is faster;
    see `fastest`. The last two are graphs that are on no streams, since CUDA places the branches of a graph by itself; their plans have a
    lane for each branch. Where the user gives a number of streams, the fewest edges are left out if they have more branches than that;
    the capture's own order, which is the user's, never is.
    """

    def make(operations: Sequence[Operation], stream_of: StreamOf, edges: Edges | None = None) -> Plan:
        scopes = streams != 1 and may_open_scopes(program)
        return captured_plan(GRAPH_DUAL.name, program, operations, stream_of, scopes=scopes, edges=edges, communication=True)

    if program.certificate is None and program.raw is None:
        return best_plan(program, estimate, streams, in_a_graph, make)
    most = most_streams(program, streams)
    operations, needed = program.operations, tuple(operation.reads for operation in program.operations)
    own = make(operations, own_branches(operations, program.captured), program.captured)
    own = replace(own, order=OWN_ORDER)
    if most == 1 or without_implied(needed) == without_implied(program.captured):
        return own
    widest = replace(make(operations, own_branches(operations, needed), needed), order=FEWEST_EDGES)
    others: dict[Edges, Plan] = {}
    counts = sorted({*(count for count in _TRIED_STREAMS if count < most), most})
    for name, schedule, edges in schedules_in_a_graph(program, estimate, [count for count in counts if count < widest.streams]):
        spread = make([operations[position] for position in schedule.order], schedule.stream_of, edges)
        # Schedules with the same edges are one graph, so only the first counts.
        others.setdefault(_edges(spread), replace(spread, order=name))
    if streams is not None and widest.streams > most:
        *rest, first = others.values()  # On the most streams: what hangs, hangs in the freest order, and that is replayed first.
        return replace(first, others=(*rest, own))
    return replace(widest, others=(*others.values(), own))


def fastest(made: Plan, device: Device) -> Plan:
    """Return the plan of captured code that is the fastest on a device.

    Their graphs are measured, and the few that are nearly as fast as the fastest once more, by what the host waits for them. Those of a
    file or on a simulated device are predicted: the simulated device runs the first plan, the last one, and the `SIMULATED` of the others
    that the model takes for the fastest.
    """
    plans = (replace(made, others=()), *made.others)
    raw = None if device.info.simulated else made.program.raw
    if raw is not None:
        orders, added = [_edges(one) for one in plans], [_replay(one).by_lanes for one in plans]
        times_us = raw.times_us(orders, added)
        best, *_ = likely = _likely(times_us)
        if len(likely) > 1:
            # A second look at the few that are left: medians of few turns cannot tell these apart.
            waits_us = raw.waits_us([orders[number] for number in likely], [added[number] for number in likely])
            best = likely[waits_us.index(min(waits_us))]
        how = ", by how long the host waits" if times_us[best] > min(times_us) else ""
    else:
        times_us, how = _simulated_us(plans, device), ", as predicted"
        best = times_us.index(min(times_us))
    said = [f"{one.order} {time_text(1e3 * time_us)}" for one, time_us in zip(plans, times_us, strict=True)]
    own = len(said) - 1
    then = listed([said[one] for one in sorted(set(range(own)) - {best}, key=times_us.__getitem__)[:_SAID]])
    parts = [said[best], *([f"then {then}"] if then else []), *([said[own]] if best != own else [])]
    return replace(plans[best], chosen=f"taken of {len(said)} orders{how}: {'; '.join(parts)}")


def _likely(times_us: Sequence[float]) -> list[int]:
    """Return which few orders may be the fastest if all are measured again, the fastest first."""
    enough_us = _NEARLY * min(times_us)
    return [number for number in sorted(range(len(times_us)), key=times_us.__getitem__)[:_FINALISTS] if times_us[number] <= enough_us]


def _simulated_us(plans: Sequence[Plan], device: Device) -> list[float]:
    """Return how long a replay of each plan takes on the simulated device; infinite where the model says that others are faster."""
    from streamscope.engines.prepared import Prepared  # It takes the plans of this module.

    model = getattr(device, "model", None)
    model = model if isinstance(model, CostModel) else reference_model()
    likely = sorted(range(1, len(plans) - 1), key=lambda number: makespan_ns(plans[number], device.estimate_ns, model))
    times_us = [inf] * len(plans)
    for number in (0, *likely[:SIMULATED], len(plans) - 1):
        simulated: Device = simulated_device(model)
        prepared = Prepared(plans[number], simulated)
        prepared.capture()
        start_ns = simulated.now_ns()
        prepared.run()
        prepared.wait()
        times_us[number] = (simulated.now_ns() - start_ns) / 1e3
    return times_us


def _replay(plan: Plan) -> Replay:
    """Return the one graph of captured code."""
    return next(step for step in plan.steps if isinstance(step, Replay))


def _edges(plan: Plan) -> Edges:
    edges = _replay(plan).edges
    assert edges is not None
    return edges


GRAPH_DUAL = EngineEntry(
    name="graph-dual", line="a CUDA graph of several compute streams", plan=plan, traits=frozenset({STREAM, GRAPH}), rank=4
)
