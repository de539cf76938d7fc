"""Instantiated graphs of the simulated device, and their replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamscope.devices.graph_node import GraphNode
from streamscope.devices.protocol import Stream
from streamscope.devices.simulated.capture import Node
from streamscope.devices.simulated.core import Core
from streamscope.devices.simulated.events import SimulatedEvent
from streamscope.devices.simulated.execution import Placement, Work
from streamscope.devices.simulated.streams import Item, SimulatedStream
from streamscope.devices.simulated.timeline import Moment
from streamscope.interrupts import deferred

UPDATE_SHARE = 1 / 3
"""What updating a graph costs the host, as a share of instantiating it: assumed, not measured."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a graph replays.

    Attributes
    ----------
    nodes : sequence of Node
        In an order in which every node comes after those that it depends on.
    successors : list of list of int
        For each node, those that depend on it.
    """

    nodes: Sequence[Node]
    successors: list[list[int]]

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> Content:
        """Return the content that captured nodes make."""
        successors: list[list[int]] = [[] for _ in nodes]
        for index, node in enumerate(nodes):
            for before in sorted(node.after):
                successors[before].append(index)
        return cls(nodes, successors)


class SimulatedGraph:
    """An instantiated graph; `streamscope.devices.protocol.Graph`.

    Attributes
    ----------
    content : Content
        What launches from now on replay.
    refused : str
        Why the update was refused that this graph replaces.
    """

    def __init__(self, core: Core, nodes: Sequence[Node], refused: str = "") -> None:
        self.core = core
        self.content = Content.of(nodes)
        self._refused = refused
        self._latest = Moment()
        self._latest.come(0.0)

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self.content.nodes)

    @property
    def nodes(self) -> tuple[GraphNode, ...]:
        """The nodes, in the order of capture."""
        return tuple(node.described() for node in self.content.nodes)

    @property
    def refused(self) -> str:
        """Why the update was refused that this graph replaces; empty where none was tried."""
        return self._refused

    def update(self, nodes: Sequence[Node]) -> str:
        """Replay other nodes from now on, if they are of the same kinds and have the same edges; return why not, or nothing.

        The rules are those of ``cudaGraphExecUpdate``, as far as they concern what is simulated.
        """
        if refused := _difference([node.described() for node in nodes], self.nodes):
            return refused
        self.content = Content.of(nodes)
        return ""

    def launch(self, stream: Stream) -> None:
        """Put one replay on a stream; it begins after the graph's previous one, as a graph never runs beside itself."""
        own = self.core.own(SimulatedStream, stream)
        if own.capture is not None:
            raise own.capture.fail("a graph was launched on a captured stream", hint="capture the work itself instead")
        replay = Replay(self.core, self.content, own, previous=self._latest)
        with self.core.lock, deferred():
            own.put(replay, self.core.model.graph_launch_ns(self.node_count))
            replay.claim_events()
            self._latest = replay.done


class Replay(Item):
    """One replay: each node starts when those are done that it depends on."""

    __slots__ = ("_content", "_core", "_id", "_missing", "_previous", "_records", "_stream", "_sways", "_unfinished")

    def __init__(self, core: Core, content: Content, stream: SimulatedStream, previous: Moment) -> None:
        super().__init__()
        self._core = core
        self._content = content
        self._stream = stream
        self._previous = previous
        self._id = next(core.replay_ids)
        self._missing = [len(node.after) for node in content.nodes]
        self._unfinished = len(content.nodes)
        self._sways = [
            core.sway(node.content.launch, node.stream) if isinstance(node.content, Work) else (0.0, 1.0) for node in content.nodes
        ]
        self._records: dict[int, Moment] = {}

    def claim_events(self) -> None:
        """Make this replay's records the latest of its timed events."""
        for index, node in enumerate(self._content.nodes):
            if isinstance(node.content, SimulatedEvent):
                self._records[index] = Moment()
                node.content.recorded(self._records[index])

    def begin(self, stream: SimulatedStream) -> None:
        """Start when the stream lets it and the graph's previous replay is done."""
        start_ns = stream.work_start_ns(self.arrival_ns, stream.core.model.graph_launch_latency_ns)
        stream.core.timeline.at(start_ns, lambda: self._previous.then(self._start))

    def _start(self) -> None:
        if not self._unfinished:
            self._finish()
        for index, missing in enumerate(self._missing.copy()):
            if not missing:
                self._ready(index, gap_ns=0.0)

    def _ready(self, index: int, gap_ns: float) -> None:
        timeline = self._core.timeline
        timeline.at(timeline.now_ns + gap_ns + self._sways[index][0], lambda: self._run(index))

    def _run(self, index: int) -> None:
        core, node = self._core, self._content.nodes[index]
        if isinstance(node.content, Work):
            placement = Placement(node.stream, self._id, stretch=self._sways[index][1])
            core.execution.run(node.content, placement, lambda: self._done(index))
        else:
            core.timeline.at(core.timeline.now_ns + core.model.graph_event_ns, lambda: self._stamp(index))

    def _stamp(self, index: int) -> None:
        self._records[index].come(self._core.timeline.now_ns)
        self._done(index)

    def _done(self, index: int) -> None:
        self._unfinished -= 1
        for successor in self._content.successors[index]:
            self._missing[successor] -= 1
            if not self._missing[successor]:
                self._ready(successor, self._core.model.graph_node_gap_ns)
        if not self._unfinished:
            self._finish()

    def _finish(self) -> None:
        self._stream.finish(drain_ns=self._core.model.drain_ns)


def _difference(nodes: Sequence[GraphNode], before: Sequence[GraphNode]) -> str:
    """Say in which way nodes are no longer those of a graph, but for their parameters; nothing if they are."""
    if len(nodes) != len(before):
        return f"topology changed: {len(nodes)} nodes instead of {len(before)}"
    for index, (new, old) in enumerate(zip(nodes, before, strict=True)):
        if new.kind is not old.kind:
            return f"node type changed: node {index} is a {new.kind.value}, was a {old.kind.value}"
        if new.after != old.after:
            return f"topology changed: node {index} comes after {list(new.after)}, came after {list(old.after)}"
    return ""
