"""Instantiated graphs of the simulated device, and their replays."""

from __future__ import annotations

from collections.abc import Sequence

from streamscope.devices.protocol import Stream
from streamscope.devices.simulated.capture import Node
from streamscope.devices.simulated.core import Core
from streamscope.devices.simulated.events import SimulatedEvent
from streamscope.devices.simulated.execution import Placement, Work
from streamscope.devices.simulated.streams import Item, SimulatedStream
from streamscope.devices.simulated.timeline import Moment


class SimulatedGraph:
    """An instantiated graph; `streamscope.devices.protocol.Graph`.

    Attributes
    ----------
    nodes : sequence of Node
        In an order in which every node comes after those that it depends on.
    successors : list of list of int
        For each node, those that depend on it.
    """

    def __init__(self, core: Core, nodes: Sequence[Node]) -> None:
        self.core = core
        self.nodes = nodes
        self.successors: list[list[int]] = [[] for _ in nodes]
        for index, node in enumerate(nodes):
            for before in sorted(node.after):
                self.successors[before].append(index)
        self._latest = Moment()
        self._latest.come(0.0)

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    def launch(self, stream: Stream) -> None:
        """Put one replay on a stream; it begins after the graph's previous one, as a graph never runs beside itself."""
        own = self.core.own(SimulatedStream, stream)
        if own.capture is not None:
            raise own.capture.fail("a graph was launched on a captured stream", hint="capture the work itself instead")
        replay = Replay(self, own, previous=self._latest)
        own.put(replay, self.core.model.graph_launch_ns(self.node_count))
        replay.claim_events()
        self._latest = replay.done


class Replay(Item):
    """One replay: each node starts when those are done that it depends on."""

    __slots__ = ("_graph", "_id", "_missing", "_previous", "_records", "_stream", "_sways", "_unfinished")

    def __init__(self, graph: SimulatedGraph, stream: SimulatedStream, previous: Moment) -> None:
        super().__init__()
        self._graph = graph
        self._stream = stream
        self._previous = previous
        self._id = next(graph.core.replay_ids)
        self._missing = [len(node.after) for node in graph.nodes]
        self._unfinished = graph.node_count
        self._sways = [
            graph.core.sway(node.content.launch, node.stream) if isinstance(node.content, Work) else (0.0, 1.0) for node in graph.nodes
        ]
        self._records: dict[int, Moment] = {}

    def claim_events(self) -> None:
        """Make this replay's records the latest of its timed events."""
        for index, node in enumerate(self._graph.nodes):
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
        timeline = self._graph.core.timeline
        timeline.at(timeline.now_ns + gap_ns + self._sways[index][0], lambda: self._run(index))

    def _run(self, index: int) -> None:
        core, node = self._graph.core, self._graph.nodes[index]
        if isinstance(node.content, Work):
            placement = Placement(node.stream, self._id, stretch=self._sways[index][1])
            core.execution.run(node.content, placement, lambda: self._done(index))
        else:
            core.timeline.at(core.timeline.now_ns + core.model.graph_event_ns, lambda: self._stamp(index))

    def _stamp(self, index: int) -> None:
        self._records[index].come(self._graph.core.timeline.now_ns)
        self._done(index)

    def _done(self, index: int) -> None:
        self._unfinished -= 1
        for successor in self._graph.successors[index]:
            self._missing[successor] -= 1
            if not self._missing[successor]:
                self._ready(successor, self._graph.core.model.graph_node_gap_ns)
        if not self._unfinished:
            self._finish()

    def _finish(self) -> None:
        self._stream.finish(drain_ns=self._graph.core.model.drain_ns)
