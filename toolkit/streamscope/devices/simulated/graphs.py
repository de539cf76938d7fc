"""Graphs of the simulated device: streams under capture, breaches of a capture, instantiated graphs and their launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from threading import get_ident

from streamscope.devices.graph_node import Branching, GraphNode, NodeKind
from streamscope.devices.protocol import Call, Stream
from streamscope.devices.simulated.core import Core, Moment
from streamscope.devices.simulated.execution import BoundLaunch
from streamscope.devices.simulated.streams import Item, SimulatedEvent, SimulatedStream
from streamscope.errors import EngineError
from streamscope.interrupts import deferred
from streamscope.order.graph import successors, without_implied
from streamscope.program.launch import LaunchKind
from streamscope.words import counted

UPDATE_SHARE = 1 / 3
"""Host cost of updating a graph, as a share of instantiating it: assumed, not measured."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a graph: a launch, or the record of a timed event."""

    content: BoundLaunch | SimulatedEvent
    stream: str
    """Name of the stream that was captured."""
    after: frozenset[int]
    """The nodes that it depends on."""

    @property
    def is_copy(self) -> bool:
        """Whether it is a copy between host and device."""
        return isinstance(self.content, BoundLaunch) and not self.content.launch.kind.on_multiprocessors

    @property
    def launch_kind(self) -> LaunchKind | None:
        """Which part of a device does its work; None for an event."""
        return self.content.launch.kind if isinstance(self.content, BoundLaunch) else None

    @property
    def communicator(self) -> object:
        """Communicator of the collective that it is a part of; None for any other node."""
        collective = self.content.launch.collective if isinstance(self.content, BoundLaunch) else None
        return None if collective is None else collective.communicator

    @property
    def gap_ns(self) -> float:
        """How much later than others it starts."""
        return self.content.launch.cost.gap_ns if isinstance(self.content, BoundLaunch) else 0.0

    def described(self) -> GraphNode:
        """Return the node as graphs show it; grid and block are the cost's."""
        after = tuple(sorted(self.after))
        if isinstance(self.content, SimulatedEvent):
            return GraphNode(NodeKind.EVENT_RECORD, NodeKind.EVENT_RECORD.value, after)
        launch = self.content.launch
        if not launch.kind.on_multiprocessors:
            return GraphNode(NodeKind.COPY, launch.name, after, nbytes=launch.cost.bytes)
        return GraphNode(NodeKind.KERNEL, launch.name, after, (launch.cost.blocks, 1, 1), (launch.cost.threads, 1, 1))


@dataclass(frozen=True, slots=True)
class Mark:
    """Where in a capture an event was recorded: behind these nodes."""

    capture: Capture
    frontier: frozenset[int]


class Capture:
    """One capture, from its beginning on a stream to its end there; that of the thread that begins it.

    The frontier of a stream are the nodes that the next one put on it will depend on.
    """

    def __init__(self, origin: SimulatedStream) -> None:
        self.origin = origin
        self.thread = get_ident()
        self.nodes: list[Node] = []
        self._frontiers: dict[SimulatedStream, frozenset[int]] = {origin: frozenset()}
        self._error: EngineError | None = None
        self._over = False
        origin.capture = self
        origin.core.captures.append(self)

    def launch(self, stream: SimulatedStream, work: BoundLaunch) -> None:
        """Add a launch."""
        self._check()
        launch = work.launch
        if not launch.capturable:
            reason = launch.why_not or "no reason was given"
            raise self.fail(f"{launch.name!r} (operation {launch.operation}) cannot be captured: {reason}", hint="run it outside the graph")
        self._add(stream, work)

    def record(self, stream: SimulatedStream, event: SimulatedEvent) -> None:
        """Add the record of an event: with timing a node, without it a mark that others can wait for."""
        self._check()
        if event.timing:
            self._add(stream, event)
        else:
            event.mark = Mark(self, self._frontiers[stream])

    def wait(self, stream: SimulatedStream, event: SimulatedEvent) -> None:
        """Let a stream wait for an event; a stream from outside joins the capture."""
        self._check()
        if self._over:
            raise EngineError("a stream cannot wait for an event that was last recorded in a capture", hint="record the event anew")
        if event.mark is None:
            if any(node.content is event for node in self.nodes):
                raise self.fail("a captured stream waits for an event with timing", hint="order captured work by events without timing")
            if event.latest is None:
                return
        if event.mark is None or event.mark.capture is not self:
            hint = "record the event in this capture, or wait before it"
            raise self.fail("a captured stream waits for an event from outside its capture", hint=hint)
        # In this order, so that `leave` lets go of every stream, whatever comes between.
        self._frontiers[stream] = self._frontiers.get(stream, frozenset()) | event.mark.frontier
        stream.capture = self

    def fail(self, message: str, *, hint: str) -> EngineError:
        """Break the capture, if it is not broken yet, and return the error that says so."""
        if self._error is None:
            self._error = EngineError(message, hint=hint)
        return EngineError(message, hint=hint)

    def size(self) -> int:
        """Return the number of nodes up to now."""
        self._check()
        return len(self.nodes)

    def end(self) -> list[Node]:
        """End the capture and return its nodes; the streams are usable again, also after an error."""
        self.leave()
        if self._error is None and (unjoined := self._unjoined()):
            names = ", ".join(map(repr, unjoined))
            message = f"work on stream {names} was not joined to {self.origin.name!r}"
            self.fail(message, hint="let it wait for an event recorded behind that work")
        if self._error is not None:
            raise self._error
        return self.nodes

    def leave(self) -> None:
        """Let every stream go; the capture is lost unless `end` returned it."""
        with deferred():
            self._over = True
            for stream in self._frontiers:
                stream.capture = None
            if self in self.origin.core.captures:
                self.origin.core.captures.remove(self)

    def _add(self, stream: SimulatedStream, content: BoundLaunch | SimulatedEvent) -> None:
        self.nodes.append(Node(content, stream.name, self._frontiers[stream]))
        self._frontiers[stream] = frozenset((len(self.nodes) - 1,))

    def _check(self) -> None:
        if self._error is not None and not self._over:
            raise EngineError(f"the capture was broken before: {self._error.message}", hint=self._error.hint)

    def _unjoined(self) -> list[str]:
        joined: set[int] = set()
        reached = list(self._frontiers[self.origin])
        while reached:
            index = reached.pop()
            if index not in joined:
                joined.add(index)
                reached.extend(self.nodes[index].after)
        return sorted({node.stream for index, node in enumerate(self.nodes) if index not in joined})


@dataclass(frozen=True)
class OverGpus:
    """Costs of a graph over several GPUs beyond those of one on a single GPU: the host's, and until all GPUs have joined.

    ``tail_ns`` of the host's are left when the first GPUs begin; idle GPUs have joined by then. Behind a kernel, a part of a collective
    begins ``collective_ns`` later than another kernel would, and behind another collective of its communicator ``behind_ns`` later: a
    kernel that waits, too, is first. Behind that of another communicator, it is taken to begin as behind a kernel. A copy between GPUs
    begins ``copy_ns`` later, and work on the GPU that it goes to ``arrival_ns`` after its end.
    """

    call_ns: float = 0.0
    tail_ns: float = 0.0
    join_ns: float = 0.0
    collective_ns: float = 0.0
    behind_ns: float = 0.0
    copy_ns: float = 0.0
    arrival_ns: float = 0.0

    def gap_ns(self, before: Node, after: Node) -> float:
        """Return by how much the gap between two nodes is longer than in a graph on one GPU."""
        earlier, later = before.launch_kind, after.launch_kind
        if later is LaunchKind.COPY_PEER:
            return self.copy_ns
        if earlier is LaunchKind.COPY_PEER:
            return self.arrival_ns
        if later is LaunchKind.COLLECTIVE:
            return self.behind_ns if before.communicator == after.communicator else self.collective_ns
        return 0.0


_ON_ONE = OverGpus()


class SimulatedGraph:
    """An instantiated graph; `streamscope.devices.protocol.Graph`."""

    lost = False
    """Whether it cannot be launched any more: never, since an abort ends only collectives that are under way."""

    def __init__(self, core: Core, nodes: Sequence[Node], refused: str = "", over_gpus: OverGpus = _ON_ONE) -> None:
        self.core = core
        self._over_gpus = over_gpus
        self._nodes = nodes
        """In the order of capture, in which every node comes after those that it depends on."""
        self._edges = _Edges.of(nodes)
        self.refused = refused
        """Why the update was refused that this graph replaces; empty where none was tried."""
        self._latest = Moment()
        self._latest.come(0.0)

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self._nodes)

    @property
    def nodes(self) -> tuple[GraphNode, ...]:
        """The nodes, in the order of capture."""
        return tuple(node.described() for node in self._nodes)

    def calls(self, stream: Stream) -> Sequence[tuple[GraphNode, Call]]:
        """Return nothing: nodes are not launched by themselves."""
        return ()

    def update(self, nodes: Sequence[Node]) -> str:
        """Run other nodes from now on, if they are of the same kinds and have the same edges; return why not, or nothing.

        The rules are those of ``cudaGraphExecUpdate``, as far as the model has them. Launches that are pending keep their nodes.
        """
        if refused := _difference([node.described() for node in nodes], self.nodes):
            return refused
        self._nodes, self._edges = nodes, _Edges.of(nodes)
        return ""

    def launch(self, stream: Stream) -> None:
        """Put one run on a stream; it begins after the graph's previous one, as a graph never runs beside itself."""
        own = self.core.own(SimulatedStream, stream)
        if own.capture is not None:
            raise own.capture.fail("a graph was launched on a captured stream", hint="capture the work itself instead")
        run = _GraphRun(self._nodes, self._edges, own, self._latest, self._over_gpus)
        model, branching = self.core.model, self._edges.branching
        with self.core.lock, deferred():
            call_ns = model.graph_launch_ns(self.node_count, self._edges.copies, branching)
            call_ns += self._over_gpus.call_ns
            self._latest = own.put(Item(run.begin), call_ns, model.graph_branching_ns(branching) + self._over_gpus.tail_ns)
            # After the launch is on the stream: a wait for these events from now on is for this run.
            run.claim_events()


@dataclass(frozen=True, slots=True)
class _Edges:
    """Successors of each node of a graph, the cost of its branches, and the number of copies."""

    successors: Sequence[Sequence[int]]
    branching: Branching
    copies: int

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> _Edges:
        before = without_implied([sorted(node.after) for node in nodes])
        return cls(successors(before), Branching.of(before), sum(node.is_copy for node in nodes))


class _GraphRun:
    """One run of a graph on a stream: each node starts when those are done that it depends on, and the front end has time for it."""

    def __init__(self, nodes: Sequence[Node], edges: _Edges, stream: SimulatedStream, previous: Moment, over_gpus: OverGpus) -> None:
        self._core = core = stream.core
        self._nodes = nodes
        self._edges = edges
        self._stream = stream
        self._previous = previous
        self._over_gpus = over_gpus
        self._id = next(core.replay_ids)
        self._free_ns = -math.inf  # When the front end has time for the next node.
        self._missing = [0] * len(nodes)
        for index in chain.from_iterable(edges.successors):
            self._missing[index] += 1
        self._unfinished = len(nodes)
        self._delays = [
            core.delay_and_stretch(node.content.launch, node.stream) if isinstance(node.content, BoundLaunch) else (0.0, 1.0)
            for node in nodes
        ]
        self._records: dict[int, Moment] = {}

    def claim_events(self) -> None:
        """Make this run's records the latest of its timed events."""
        for index, node in enumerate(self._nodes):
            if isinstance(node.content, SimulatedEvent):
                self._records[index] = Moment()
                node.content.recorded(self._records[index])

    def begin(self, stream: SimulatedStream, item: Item) -> None:
        """Start when the stream lets it and the graph's previous run is done."""
        model = self._core.model
        start_ns = stream.work_start_ns(item.arrival_ns, model.graph_launch_latency_ns)
        if start_ns > item.arrival_ns + model.graph_launch_latency_ns:
            start_ns += self._over_gpus.join_ns
        self._core.timeline.at(start_ns, lambda: self._previous.then(self._start))

    def _start(self) -> None:
        if not self._unfinished:
            self._finish()
        for number, index in enumerate(self._edges.branching.roots):
            self._ready(index, gap_ns=number * self._core.model.graph_root_ns)

    def _ready(self, index: int, gap_ns: float) -> None:
        timeline = self._core.timeline
        timeline.at(timeline.now_ns + gap_ns + self._delays[index][0], lambda: self._dispatch(index))

    def _dispatch(self, index: int) -> None:
        timeline = self._core.timeline
        if not isinstance(self._nodes[index].content, BoundLaunch):
            self._run(index)
            return
        start_ns = max(timeline.now_ns, self._free_ns)
        self._free_ns = start_ns + self._core.model.graph_dispatch_ns
        if start_ns > timeline.now_ns:
            timeline.at(start_ns, lambda: self._run(index))
        else:
            self._run(index)

    def _run(self, index: int) -> None:
        core, node = self._core, self._nodes[index]
        if isinstance(node.content, BoundLaunch):
            _, stretch = self._delays[index]
            node.content.execution.run(
                node.content, lambda: self._done(index), node.stream, stretch, core.model.graph_node_gap_ns, self._id
            )
        else:
            core.timeline.at(core.timeline.now_ns + core.model.graph_event_ns, lambda: self._stamp(index))

    def _stamp(self, index: int) -> None:
        self._records[index].come(self._core.timeline.now_ns)
        self._done(index)

    def _done(self, index: int) -> None:
        model, crossing = self._core.model, self._edges.branching.crossing
        self._unfinished -= 1
        for successor in self._edges.successors[index]:
            self._missing[successor] -= 1
            if not self._missing[successor]:
                gap_ns = model.graph_node_gap_ns + self._nodes[successor].gap_ns
                if self._over_gpus is not _ON_ONE:
                    gap_ns += self._over_gpus.gap_ns(self._nodes[index], self._nodes[successor])
                self._ready(successor, gap_ns + (model.graph_crossing_ns if crossing[successor] else 0.0))
        if not self._unfinished:
            self._finish()

    def _finish(self) -> None:
        self._stream.finish(drain_ns=self._core.model.drain_ns)


def _difference(nodes: Sequence[GraphNode], before: Sequence[GraphNode]) -> str:
    """Say in which way nodes are no longer those of a graph, but for their parameters; nothing if they are."""
    if len(nodes) != len(before):
        return f"topology changed: {counted(len(nodes), 'node')} instead of {len(before)}"
    for index, (new, old) in enumerate(zip(nodes, before, strict=True)):
        if new.kind is not old.kind:
            return f"node type changed: node {index} is a {new.kind.value}, was a {old.kind.value}"
        if new.after != old.after:
            return f"topology changed: node {index} comes after {list(new.after)}, came after {list(old.after)}"
    return ""
