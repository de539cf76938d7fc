"""Segments of a prepared program: which operations are in which graph, and why an operation is in none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamscope.devices.graph_node import GraphNode
from streamscope.engines.graphs.view import GraphView
from streamscope.engines.issuing import segments as split
from streamscope.engines.plan import Issue, Replay
from streamscope.program.launch import HostCall
from streamscope.program.operation import Operation

if TYPE_CHECKING:
    from streamscope.engines.binding import Bound
    from streamscope.engines.prepared import Prepared


@dataclass(frozen=True)
class Segment:
    """A run of operations that are one graph, or none.

    Attributes
    ----------
    index : int
        Position among the program's segments.
    operations : tuple of Operation
        In program order.
    graph : GraphView, optional
        The graph that they were captured as.
    why_not : mapping of int to str
        If there is no graph: for each operation, by id, the reason.
    """

    index: int
    operations: tuple[Operation, ...]
    graph: GraphView | None
    why_not: Mapping[int, str]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        nodes = f"a graph of {len(self.graph.nodes)} nodes" if self.graph else "no graph"
        yield f"segment {self.index}: {len(self.operations)} operations, {nodes}"
        for operation in self.operations:
            reason = f": {self.why_not[operation.id]}" if operation.id in self.why_not else ""
            yield f"  {operation}{reason}"


def segments_of(prepared: Prepared) -> tuple[Segment, ...]:
    """Return the segments of a prepared program, with the graphs that were captured by now."""
    program = prepared.program
    replays = iter([bound for bound in prepared.bound if isinstance(bound.step, Replay)])
    if not any(isinstance(step, Replay) for step in prepared.plan.steps):
        reason = f"engine {prepared.plan.engine!r} captured no graphs"
        return (Segment(0, program.operations, None, {one.id: _reason(one, reason) for one in program.operations}),)
    found: list[Segment] = []
    for index, (capturable, operations) in enumerate(split(program)):
        bound = next(replays) if capturable else None
        graph = None if bound is None else _view(prepared, bound, index)
        reason = "" if bound is None else bound.why_not or "it is captured by the second run"
        found.append(Segment(index, operations, graph, {} if graph else {one.id: _reason(one, reason) for one in operations}))
    return tuple(found)


def _view(prepared: Prepared, bound: Bound, segment: int) -> GraphView | None:
    """Return the graph of a bound replay; each node with the stream and the operation of the step that made it."""
    if bound.graph is None:
        return None
    program, lanes = prepared.program, prepared.plan.lanes
    nodes: list[GraphNode] = []
    for node, owner in zip(bound.graph.nodes, bound.owners, strict=True):
        step = bound.inner[owner].step
        if isinstance(step, Issue):
            operation = program.operations[step.launch.operation]
            lane = lanes[step.lane]
            nodes.append(replace(node, lane=lane, operation=operation.id, operator=operation.name, where=operation.where))
        else:
            nodes.append(node)
    return GraphView(program.name, segment, tuple(nodes), lanes)


def _reason(operation: Operation, else_reason: str) -> str:
    """Say why an operation is in no graph: because of what it is, or else for the reason given."""
    if isinstance(operation.work, HostCall):
        return "it is a host function"
    if not operation.launches:
        return "it launches nothing"
    refusing = (launch for launch in operation.launches if not launch.capturable)
    return next((launch.why_not or "its operator says no" for launch in refusing), else_reason)
