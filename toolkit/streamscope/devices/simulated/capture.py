"""Streams under capture: work becomes nodes, events become edges, and what breaks a capture is found out."""

from __future__ import annotations

from dataclasses import dataclass
from threading import get_ident
from typing import TYPE_CHECKING

from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.devices.simulated.events import SimulatedEvent
from streamscope.devices.simulated.execution import Work
from streamscope.errors import EngineError
from streamscope.interrupts import deferred
from streamscope.program.launch import LaunchKind

if TYPE_CHECKING:
    from streamscope.devices.simulated.streams import SimulatedStream


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a graph: a launch, or the record of a timed event.

    Attributes
    ----------
    content : Work or SimulatedEvent
    stream : str
        Name of the stream that was captured.
    after : frozenset of int
        The nodes that it depends on.
    """

    content: Work | SimulatedEvent
    stream: str
    after: frozenset[int]

    def described(self) -> GraphNode:
        """Return the node as graphs show it; grid and block are the cost's."""
        after = tuple(sorted(self.after))
        if isinstance(self.content, SimulatedEvent):
            return GraphNode(NodeKind.EVENT_RECORD, NodeKind.EVENT_RECORD.value, after)
        launch = self.content.launch
        if launch.kind is not LaunchKind.KERNEL:
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

    def launch(self, stream: SimulatedStream, work: Work) -> None:
        """Add a launch.

        Raises
        ------
        EngineError
            It cannot be captured, which breaks the capture; or the capture is broken.
        """
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
        """Let a stream wait for an event; a stream from outside joins the capture.

        Raises
        ------
        EngineError
            The event is not one that this capture can wait for, which breaks it; or the capture is broken, or over.
        """
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
        """Return the number of nodes up to now.

        Raises
        ------
        EngineError
            The capture is broken.
        """
        self._check()
        return len(self.nodes)

    def end(self) -> list[Node]:
        """End the capture and return its nodes; the streams are usable again, also after an error.

        Raises
        ------
        EngineError
            The capture is broken, or a forked stream was not joined.
        """
        self.leave()
        if self._error is None and (unjoined := self._unjoined()):
            names = ", ".join(map(repr, unjoined))
            message = f"work on stream {names} was not joined to {self.origin.name!r}"
            self.fail(message, hint="let it wait for an event recorded behind that work")
        if self._error is not None:
            raise self._error
        return self.nodes

    def leave(self) -> None:
        """Let every stream go; what was captured is lost unless `end` returned it."""
        with deferred():
            self._over = True
            for stream in self._frontiers:
                stream.capture = None
            if self in self.origin.core.captures:
                self.origin.core.captures.remove(self)

    def _add(self, stream: SimulatedStream, content: Work | SimulatedEvent) -> None:
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
