"""The kernels, copies and sets of a launch, found by capturing it alone; their spans, and those of the host's calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from math import prod

from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.devices.protocol import Call, Graph
from streamscope.engines.binding import BoundStep, capturing
from streamscope.engines.plan import CallHost, HostWait, Issue, RecordEvent, Replay, Synchronize, WaitEvent
from streamscope.engines.prepared import Prepared
from streamscope.errors import DeviceError, EngineError, described
from streamscope.program.launch import Cost, Launch
from streamscope.recording.communication import call_of
from streamscope.recording.timed_run import HostInterval, call_all, launches_of
from streamscope.trace.spans import Basis, SpanBuilder, SpanKind
from streamscope.words import counted

_HOST_LANE = "host"
_KINDS = {NodeKind.KERNEL: SpanKind.KERNEL, NodeKind.COPY: SpanKind.COPY, NodeKind.SET: SpanKind.SET}


@dataclass(frozen=True)
class LaunchKernel:
    """One kernel, copy or set of a launch; times are since the start of the launch or, once it is `stretched`, since the zero of its trace.

    ``symbol`` is the kernel's own name, ``graph_node`` its node in a graph, or -1; blocks and threads are 0 where unknown.
    """

    kind: SpanKind
    start_ns: float = 0.0
    end_ns: float = 0.0
    symbol: str = ""
    blocks: int = 0
    threads: int = 0
    graph_node: int = -1


def pieces_of(
    prepared: Prepared,
    steps: Sequence[BoundStep],
    whole_ns: dict[int, float],
    durations_ns: Callable[[Sequence[BoundStep], Mapping[int, Call]], dict[int, float]],
) -> dict[int, tuple[LaunchKernel, ...]]:
    """Return the pieces of each launch among steps, by index in ``steps``.

    The nodes of a launch of several are launched one by one, to find how long each takes behind those before it. Where the launch takes
    longer than all of them, there are gaps between them, which are taken for equal. Where a launch cannot be taken apart, it is one piece,
    and a note among those of ``prepared`` says so.

    ``whole_ns`` is how long each launch takes alone. ``durations_ns`` measures that of steps, by their index; its second argument holds,
    for some of them, the call that launches the nodes in front.
    """
    found: dict[int, tuple[LaunchKernel, ...]] = {}
    apart: list[BoundStep] = []
    before: dict[int, Call] = {}
    owners: list[int] = []
    whole: dict[str, list[str]] = {}
    kept: list[Graph] = []  # They own the arguments of their nodes.
    for index in launches_of(steps):
        bound, launch = steps[index], _launch(steps[index])
        if launch.collective is not None:  # A part alone would wait for the others.
            found[index] = (whole_piece(launch, whole_ns[index]),)
            continue
        try:
            kept.append(_captured_alone(prepared, bound))
            nodes = [node for node in kept[-1].nodes if node.kind is not NodeKind.EMPTY]
            calls = _calls(kept[-1], bound) if len(nodes) > 1 else []
            found[index] = tuple(_piece(node, launch, whole_ns[index]) for node in nodes)
        except EngineError as error:
            whole.setdefault(error.message, []).append(launch.name)
            found[index] = (whole_piece(launch, whole_ns[index]),)
            continue
        for position, call in enumerate(calls):
            before[len(apart)] = partial(call_all, calls[:position])
            apart.append(BoundStep(bound.step, call, bound.stream))
            owners.append(index)
    alone_ns = durations_ns(apart, before) if apart else {}
    for index in dict.fromkeys(owners):
        found[index] = in_order(found[index], [alone_ns[i] for i, owner in enumerate(owners) if owner == index], whole_ns[index])
    for reason, names in whole.items():
        note = f"{counted(len(names), 'launch')} shown as one span each ({', '.join(dict.fromkeys(names))}): {reason}"
        if note not in prepared.notes:
            prepared.notes.append(note)
    return found


def in_order(pieces: Sequence[LaunchKernel], alone_ns: Sequence[float], whole_ns: float) -> tuple[LaunchKernel, ...]:
    """Return the pieces of a launch one after the other: as long as they take alone, unless that is longer than the launch.

    The rest of the launch's time goes to the gaps between them, in equal parts.
    """
    total = sum(alone_ns)
    shrunk = min(1.0, whole_ns / total) if total > 0 else 0.0
    gap = max(0.0, whole_ns - total * shrunk) / max(1, len(pieces) - 1)
    starts = accumulate((shrunk * length + gap for length in alone_ns), initial=0.0)
    timed = zip(pieces, starts, alone_ns, strict=False)
    return tuple(replace(piece, start_ns=start, end_ns=start + shrunk * length) for piece, start, length in timed)


def stretched(pieces: Sequence[LaunchKernel], start_ns: float, end_ns: float) -> list[LaunchKernel]:
    """Return the pieces of a launch where it began and ended, each with its part of that time."""
    whole_ns, length_ns = max((piece.end_ns for piece in pieces), default=0.0), end_ns - start_ns
    if whole_ns <= 0:  # All of it is the last one's.
        return [replace(piece, start_ns=start_ns, end_ns=end_ns if piece is pieces[-1] else start_ns) for piece in pieces]
    times = [(start_ns + piece.start_ns / whole_ns * length_ns, start_ns + piece.end_ns / whole_ns * length_ns) for piece in pieces]
    return [replace(piece, start_ns=start, end_ns=end) for piece, (start, end) in zip(pieces, times, strict=True)]


def whole_piece(launch: Launch, end_ns: float, start_ns: float = 0.0) -> LaunchKernel:
    """Return a launch as one piece, as its operator describes it."""
    kind = SpanKind.KERNEL if launch.kind.on_multiprocessors else SpanKind.COPY
    return LaunchKernel(kind, start_ns, end_ns, blocks=launch.cost.blocks, threads=launch.cost.threads)


def node_id(graph: int, node: int) -> int:
    """Return the id of a node, which no other graph of the program has: the step that replays the graph stands above the node."""
    return graph << 32 | node


def in_graph(pieces: dict[int, tuple[LaunchKernel, ...]], owners: Sequence[int], graph: int) -> dict[int, tuple[LaunchKernel, ...]]:
    """Return pieces with the nodes of a graph that they are; ``owners`` says of each node which launch made it."""
    nodes: dict[int, list[int]] = {}
    for node, owner in enumerate(owners):
        nodes.setdefault(owner, []).append(node)
    return {
        index: tuple(replace(one, graph_node=node_id(graph, node)) for one, node in zip(own, nodes[index], strict=True))
        if len(nodes.get(index, ())) == len(own)
        else own
        for index, own in pieces.items()
    }


def builder_of(prepared: Prepared) -> SpanBuilder:
    """Return a builder with the host's lane and those of the streams that carry work, in the plan's order."""
    plan = prepared.plan
    used = sorted({step.lane for step in plan.flat() if isinstance(step, Issue)} | {0})
    gpus = (-1, *(plan.gpu(lane) for lane in used)) if plan.gpus else ()
    return SpanBuilder([_HOST_LANE, *(plan.lanes[lane] for lane in used)], gpus)


def add_host_span(builder: SpanBuilder, interval: HostInterval, index: int, zero: int) -> None:
    """Add the span of one host call to a trace that is being built; ``index`` is its correlation."""
    operation, part, correlation = -1, 0, -1
    match interval.step:
        case None:
            kind, name = SpanKind.SYNC, "wait for the device"
        case Issue(launch):
            if call_of(interval.step, index) != index:
                return  # The call of the last part puts all parts of a collective on their streams.
            kind, name = SpanKind.LAUNCH, f"launch {launch.name}"
            operation, part, correlation = launch.operation, launch.part, index
        case Replay():
            kind, name, correlation = SpanKind.GRAPH_LAUNCH, "launch graph", index
        case RecordEvent():
            kind, name = SpanKind.EVENT, "record event"
        case WaitEvent():
            kind, name = SpanKind.EVENT, "stream waits for event"
        case HostWait():
            kind, name = SpanKind.SYNC, "wait for an event"
        case Synchronize():
            kind, name = SpanKind.SYNC, "wait for the stream"
        case CallHost(call):
            kind, name, operation = SpanKind.HOST, call.name, call.operation
    times = interval.start_ns - zero, interval.end_ns - zero
    builder.add(kind, name, _HOST_LANE, *times, operation=operation, part=part, correlation=correlation)


def add_pieces(builder: SpanBuilder, launch: Launch, lane: str, correlation: int, pieces: Sequence[LaunchKernel], basis: Basis) -> None:
    """Add the spans of a launch's pieces to a trace that is being built; bytes and flops of the operation are shared out by duration."""
    for piece, nbytes, flops in zip(pieces, *_shared_out(pieces, launch.cost), strict=True):
        builder.add(
            piece.kind,
            launch.name,
            lane,
            piece.start_ns,
            piece.end_ns,
            operation=launch.operation,
            part=launch.part,
            correlation=correlation,
            basis=basis,
            blocks=piece.blocks,
            threads=piece.threads,
            nbytes=nbytes,
            flops=flops,
            symbol=piece.symbol,
            graph_node=piece.graph_node,
        )


def _shared_out(pieces: Sequence[LaunchKernel], cost: Cost) -> tuple[list[int], list[int]]:
    """Return each piece's part of bytes and flops, whose sums are the cost's."""
    if len(pieces) == 1:
        return [cost.bytes], [cost.flops]
    ends = [0.0, *accumulate(piece.end_ns - piece.start_ns for piece in pieces)]
    shares = [end / ends[-1] if ends[-1] > 0 else 1.0 for end in ends[1:]]
    until = ([0, *(round(amount * share) for share in shares)] for amount in (cost.bytes, cost.flops))
    nbytes, flops = ([later - earlier for earlier, later in pairwise(one)] for one in until)
    return nbytes, flops


def _launch(bound: BoundStep) -> Launch:
    assert isinstance(bound.step, Issue)
    return bound.step.launch


def _captured_alone(prepared: Prepared, bound: BoundStep) -> Graph:
    launch = _launch(bound)
    if not launch.capturable or bound.stream is None:
        raise EngineError(launch.why_not or "its operator says that it cannot be captured")
    try:
        with capturing(prepared.device, bound.stream) as graphs:
            bound.call()
    except EngineError:
        raise
    except Exception as error:
        raise EngineError(f"it cannot be captured: {described(error)}") from error
    return graphs[0]


def _calls(graph: Graph, bound: BoundStep) -> list[Call]:
    """Return a launch for each node of a launch, tried once, if they run one after the other.

    Raises
    ------
    EngineError
        They cannot be launched by themselves, or run beside each other.
    """
    assert bound.stream is not None
    nodes = graph.calls(bound.stream)
    if any(node.after != ((position - 1,) if position else ()) for position, (node, _) in enumerate(nodes)):
        raise EngineError("its kernels run beside each other")
    calls = [call for _, call in nodes]
    try:
        call_all(calls)
        bound.stream.synchronize()
    except DeviceError as error:
        raise EngineError(f"its kernels cannot be launched by themselves: {error.message}") from error
    return calls


def _piece(node: GraphNode, launch: Launch, whole_ns: float) -> LaunchKernel:
    """Return a node as a piece that takes as long as the whole launch, which is known of nodes that are alone."""
    if node.kind not in _KINDS:
        return whole_piece(launch, whole_ns)
    return LaunchKernel(_KINDS[node.kind], 0.0, whole_ns, node.symbol, prod(node.grid), prod(node.block))
