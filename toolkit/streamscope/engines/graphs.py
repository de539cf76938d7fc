"""The graphs of a prepared program: how often they were made, which operations are in which, and a graph to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from streamscope.devices.graph_node import GraphNode, NodeKind, in_order
from streamscope.engines.binding import NO_STEP
from streamscope.engines.issuing import segments as split
from streamscope.engines.plan import Issue, Replay
from streamscope.errors import printable
from streamscope.files import written_whole
from streamscope.program.launch import HostCall, labelled
from streamscope.program.operation import Operation
from streamscope.results import views
from streamscope.results.result import Result
from streamscope.trace.file_checks import plain
from streamscope.words import counted

if TYPE_CHECKING:
    from streamscope.engines.binding import BoundStep
    from streamscope.engines.prepared import Prepared

SHAPES = {NodeKind.KERNEL: "box", NodeKind.COPY: "cds", NodeKind.SET: "cds", NodeKind.HOST: "component", NodeKind.EMPTY: "point"}
"""Shapes of nodes by kind; others are ellipses."""


@dataclass(frozen=True)
class GraphCounts:
    """How often graphs were made and changed.

    Attributes
    ----------
    instantiated : int
        Captured graphs that were instantiated.
    updated : int
        Captured graphs that were applied to one that was there already (``cudaGraphExecUpdate``).
    refusals : tuple of str
        Why updates were refused; each led to an instantiation instead, which counts as one.
    """

    instantiated: int = 0
    updated: int = 0
    refusals: tuple[str, ...] = ()

    @property
    def refused(self) -> int:
        """Number of updates that were refused."""
        return len(self.refusals)

    def after(self, *, updated: bool, refused: str) -> GraphCounts:
        """Return the counts with one more graph; ``refused`` says why an update was not possible, if one was tried."""
        refusals = (*self.refusals, refused) if refused else self.refusals
        return GraphCounts(self.instantiated + (not updated), self.updated + updated, refusals)

    def to_dict(self) -> dict[str, int]:
        """Return the numbers, as a trace keeps them."""
        return {"graphs_instantiated": self.instantiated, "graphs_updated": self.updated, "graph_updates_refused": self.refused}


@dataclass(frozen=True, repr=False)
class GraphView(Result):
    """A captured graph.

    Attributes
    ----------
    program : str
        Name of the program.
    segment : int
        Which of the program's segments it was captured from.
    nodes : tuple of GraphNode
        In the order of capture, as far as each comes after those that it depends on.
    lanes : tuple of str
        Names of the streams, in the plan's order.
    """

    view = "graph"
    renamed: ClassVar[Mapping[str, str]] = {"write_dot": 'save("graph.dot")'}

    program: str
    segment: int
    nodes: tuple[GraphNode, ...]
    lanes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The program's name and the number of the segment."""
        return f"{self.program}, segment {self.segment}"

    def __repr__(self) -> str:
        return f"<{self.title}: a graph of {counted(len(self.nodes), 'node')}>"

    def dot(self) -> str:
        """Return the graph in Graphviz's DOT language, with a cluster for each stream."""
        return dot(self.nodes, self.title)

    def svg(self) -> str:
        """Return a picture of the graph as an SVG document."""
        return views.pictures(self)["graph"]()

    def to_dict(self) -> dict[str, Any]:
        """Return the nodes as JSON values, each with the numbers of the nodes that it comes after."""
        content = {
            "program": self.program,
            "segment": self.segment,
            "lanes": self.lanes,
            "nodes": [asdict(node) | {"kind": node.kind.value} for node in self.nodes],
        }
        found: dict[str, Any] = plain(content)
        return found

    def writers(self) -> dict[str, Callable[[Path], Path]]:
        """Return the functions that write the graph, each by the suffix of its files."""
        return super().writers() | {".dot": self._save_dot}

    def _save_dot(self, path: Path) -> Path:
        with written_whole(path) as temporary:
            temporary.write_text(self.dot(), encoding="utf-8")
        return path

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"graph of {self.title}: {counted(len(self.nodes), 'node')}"
        for index, node in enumerate(self.nodes):
            after = ", ".join(map(str, node.after)) or "-"
            registers = "" if node.registers is None else f"{node.registers} registers"
            where = f"    # {labelled(node.where, node.module)}" if node.where else ""
            yield f"{index:>4}  {node.kind.value:<12}  {node.name:<32}  {node.shape:<16}  {registers:<14}  after {after}{where}"


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
        nodes = f"a graph of {counted(len(self.graph.nodes), 'node')}" if self.graph else "no graph"
        yield f"segment {self.index}: {counted(len(self.operations), 'operation')}, {nodes}"
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


def _view(prepared: Prepared, bound: BoundStep, segment: int) -> GraphView | None:
    """Return the graph of a bound replay; each node with the stream and the operation of the step that made it."""
    if bound.graph is None:
        return None
    program, lanes = prepared.program, prepared.plan.lanes
    nodes: list[GraphNode] = []
    for node, owner in zip(bound.graph.nodes, bound.owners, strict=True):
        step = bound.inner[owner].step if owner != NO_STEP else None
        if isinstance(step, Issue):
            operation = program.operations[step.launch.operation]
            lane = lanes[step.lane]
            owned = replace(node, operation=operation.id, operator=operation.name, where=operation.where, module=operation.label)
            nodes.append(replace(owned, lane=lane))
        else:
            nodes.append(node)
    order = in_order([node.after for node in nodes])  # Captured code may run in another order than that of capture.
    place = {node: number for number, node in enumerate(order)}
    ordered = (replace(nodes[one], after=tuple(sorted(place[earlier] for earlier in nodes[one].after))) for one in order)
    return GraphView(program.name, segment, tuple(ordered), lanes)


def _reason(operation: Operation, else_reason: str) -> str:
    """Say why an operation is in no graph: because of its kind, or else for the given reason."""
    if isinstance(operation.work, HostCall):
        return "it is a host function"
    if not operation.launches:
        return "it launches nothing"
    refusing = (launch for launch in operation.launches if not launch.capturable)
    return next((launch.why_not or "its operator says no" for launch in refusing), else_reason)


def dot(nodes: Sequence[GraphNode], name: str) -> str:
    """Return a graph as DOT, with a cluster for each stream on which nodes were captured."""
    return "\n".join(_dot_lines(nodes, name)) + "\n"


def _dot_lines(nodes: Sequence[GraphNode], name: str) -> Iterator[str]:
    yield f"digraph {quoted(name)} {{"
    yield "  rankdir=TB;"
    yield '  node [fontname="sans-serif", fontsize=10];'
    lanes = dict.fromkeys(node.lane for node in nodes)
    for number, lane in enumerate(lanes):
        indent = "    " if lane else "  "
        if lane:
            yield f"  subgraph cluster_{number} {{"
            yield f"    label={quoted(lane)};"
        for index, node in enumerate(nodes):
            if node.lane == lane:
                yield f"{indent}n{index} [{_attributes(node)}];"
        if lane:
            yield "  }"
    for index, node in enumerate(nodes):
        for before in node.after:
            yield f"  n{before} -> n{index};"
    yield "}"


def _attributes(node: GraphNode) -> str:
    label = [node.name, node.shape, node.module, node.where]
    attributes = {
        "label": "\n".join(line for line in label if line),
        "tooltip": "\n".join(node.details),
        "shape": SHAPES.get(node.kind, "ellipse"),
    }
    return ", ".join(f"{key}={quoted(value)}" for key, value in attributes.items())


def quoted(text: str) -> str:
    r"""Return a text as a double-quoted string of DOT: its quotes and backslashes stand for themselves, line breaks are ``\n``.

    DOT itself escapes nothing but the quote, but labels read ``\N``, ``\l`` and the like, so that a backslash needs one before it.
    Other characters that cannot be printed are replaced.
    """
    escaped = printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
