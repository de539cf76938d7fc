"""A captured graph as it was captured, and graphs of the same nodes with other edges.

A node that is launched by itself loses its programmatic edges, and attributes that it cannot be asked for. A clone of the graph keeps them.
So captured code runs in another order as a clone whose edges are replaced.

CUDA puts the nodes of a graph on streams by itself, and goes by the order in which they were added. So the nodes of an order on several
streams are copied into a new graph, one stream after the other, with all their attributes. Where copies would lose something, as with
programmatic edges, it stays a clone. On an H200, GoogLeNet's orders by rank on 4 to 12 streams are 4 to 6 % faster as copies.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from streamscope.devices.cuda.captures import CAPTURES
from streamscope.devices.cuda.graph import CudaGraph
from streamscope.devices.cuda.graph_nodes import make_room_for, node_handles
from streamscope.devices.cuda.streams import CudaEvent, event_done
from streamscope.devices.graph_node import NO_OPERATION
from streamscope.devices.hang import hung
from streamscope.errors import DeadlockError, DeviceError, HungError
from streamscope.interrupts import deferred
from streamscope.job import differing_rank, gathered, since_last_start
from streamscope.kernels.library.libraries import checked, driver_call, libraries
from streamscope.program.captured_graph import Edges

_Pair = tuple[int, int]
"""An edge: predecessor and successor."""
_Words = npt.NDArray[np.uint64]
_Asked = tuple[Edges, tuple[int, ...]]
"""The edges of a graph, and in which order its nodes are added."""
Result = TypeVar("Result")

FULL = 0
"""The data of an edge (CUgraphEdgeData) that waits for the end of a node. A programmatic one lets a kernel start before that."""
_TRYING_S = 0.5
"""How long orders of captured code may be tried, about; and those that may be the fastest once more."""
MOST_TURNS, FEWEST_TURNS = 15, 3
_MOST_WAITS = 60
STUCK_S = 20.0
"""A replay that takes longer than this hangs."""

_KERNEL = 0  # CU_GRAPH_NODE_TYPE_KERNEL
_COPIED = {_KERNEL: ("cuGraphKernelNode", "_v2"), 1: ("cuGraphMemcpyNode", ""), 2: ("cuGraphMemsetNode", "")}
"""How the driver's functions are called for each type of nodes that can be copied."""
_EVENTS = {6: "Wait", 7: "Record"}  # CU_GRAPH_NODE_TYPE_WAIT_EVENT, _EVENT_RECORD
_PARAMETERS_BYTES = 1024
"""Room for the parameters of any node; those of a copy, the longest, take 200."""

_HUNG: list[object] = []
"""Graphs that never end, and their memory, which nobody may free."""


class NodeMarks:
    """Marks of nodes of a graph that is not instantiated yet.

    The bytes lie in device memory, which can be read by a copy on another stream even if a kernel never ends.

    ``graph``: address of the graph, which gets as many nodes more.
    ``nodes``: addresses of the nodes that are marked.
    """

    def __init__(self, graph: int, nodes: Sequence[int]) -> None:
        lib = libraries()
        self._bytes: Any = lib.cupy.empty(max(1, len(nodes)), np.uint8)
        self._pinned: Any = lib.cupy.cuda.alloc_pinned_memory(max(1, len(nodes)))
        # Of its own: a copy on the graph's stream would wait for the kernel that hangs.
        self._stream: Any = lib.cupy.cuda.Stream(non_blocking=True)
        lib.runtime.memsetAsync(self._bytes.data.ptr, 0, self._bytes.nbytes, self._stream.ptr)
        self._stream.synchronize()
        self._count = len(nodes)
        cuda, context = lib.cuda, checked(lib.cuda.cuCtxGetCurrent())
        for number, node in enumerate(nodes):
            mark = cuda.CUDA_MEMSET_NODE_PARAMS()
            mark.dst = cuda.CUdeviceptr(self._bytes.data.ptr + number)
            mark.value, mark.elementSize, mark.width, mark.height, mark.pitch = 1, 1, 1, 1, 1
            # A leaf behind its node: it adds no order between nodes of the graph.
            checked(cuda.cuGraphAddMemsetNode(cuda.CUgraph(graph), [cuda.CUgraphNode(node)], 1, mark, context))

    def ended(self) -> npt.NDArray[np.bool_]:
        """Return which nodes have ended by now, in their order."""
        runtime = libraries().runtime
        runtime.memcpyAsync(self._pinned.ptr, self._bytes.data.ptr, self._bytes.nbytes, runtime.memcpyDeviceToHost, self._stream.ptr)
        self._stream.synchronize()
        return np.asarray(np.frombuffer(self._pinned, np.uint8, self._count) != 0)


def under_way(edges: Sequence[Sequence[int]], ended: Sequence[bool] | npt.NDArray[np.bool_]) -> list[int]:
    """Return the nodes that have not ended though all have that they wait for.

    ``edges``: for each node those that it comes directly after.

    Examples
    --------
    >>> under_way([(), (), (0, 1), (0,)], [True, False, False, False])
    [1, 3]
    """
    return [number for number, earlier in enumerate(edges) if not ended[number] and all(ended[one] for one in earlier)]


def _nothing() -> None:
    """Put nothing back."""


def _trusted(edges: Edges) -> None:
    """Accept any edges."""


class RawGraph:
    """A captured graph, whose nodes are operations of a program.

    ``nodes``: address of each operation's node. Other nodes of the graph are empty.
    """

    def __init__(
        self,
        graph: int,
        nodes: Sequence[int],
        edges: Edges,
        keeping: Callable[[], AbstractContextManager[object]],
        kept: Sequence[Any],
        *,
        check: Callable[[Edges], object] = _trusted,
        named: Callable[[int], str] = "node {}".format,
        put_back: Callable[[], object] = _nothing,
    ) -> None:
        self.edges = edges
        """Orders of the capture, between operations, also across empty nodes."""
        self._captured: Edges | None = edges
        """The edges with which a graph is the captured one as it was; None where `edges` are those of another order."""
        self.check = check
        """Called with the edges of each graph before it is made; raises where they miss an order that is needed."""
        self.put_back = put_back
        """Restores the state changed by a replay, so that the next one begins as it did. A replay that adds to a counter, and uses it as an
        index, would else end up outside of its memory."""
        self.named = named
        """Names an operation, in errors."""
        self._graph = graph
        """Address of the captured graph."""
        self._nodes = tuple(nodes)
        self._numbers = tuple(range(len(self._nodes)))
        """The number that each operation had in the capture."""
        self._keeping = keeping
        """``with keeping(): ...`` undoes changes of replays in the block."""
        self.kept = kept
        """Objects that must live as long as graphs of these nodes: the captured graph, and the memory that nodes use."""
        self._times_us: dict[_Asked, float] = {}
        self._waits_us: dict[_Asked, float] = {}
        self._lock = threading.RLock()

    def reordered(self, numbers: Sequence[int], edges: Edges, check: Callable[[Edges], object], named: Callable[[int], str]) -> RawGraph:
        """Return it with its operations in another order: for each of the new ones its number here, and their edges."""
        nodes = [self._nodes[number] for number in numbers]
        found = RawGraph(self._graph, nodes, edges, self._keeping, self.kept, check=check, named=named, put_back=self.put_back)
        found._captured = None
        found._numbers = tuple(self._numbers[number] for number in numbers)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # It stays in its process; what is copied or pickled with it gets None.

    @cached_property
    def _stream(self) -> Any:
        return libraries().cupy.cuda.Stream(non_blocking=True)

    def graph(
        self, edges: Edges, events: Mapping[int, CudaEvent] = MappingProxyType({}), added: Sequence[int] = ()
    ) -> tuple[CudaGraph, tuple[int, ...]]:
        """Return an instantiated graph of the nodes with other edges, and the operation of each of its nodes.

        Behind some operations it records ``events``, for which nothing waits; their nodes are the last ones, and no operation.

        With the capture's own edges it is the capture as it was. Its empty nodes, which are not operations, are never taken out, since CUDA
        does not number the others anew; in another order nothing leads to them. Other nodes are added in the order ``added``, where it is
        given and they can be copied; else they stay in the order of the capture.
        """
        made, _ = self._made(edges, added, partial(self._add_events, events))
        operations = self._copied_in(edges, added) or [self._number.get(node, NO_OPERATION) for node in self._handles]
        return made, (*operations, *(NO_OPERATION for _ in events))

    def _made(self, edges: Edges, added: Sequence[int], add: Callable[[int, Sequence[int]], Result]) -> tuple[CudaGraph, Result]:
        """Return an instantiated graph, and the result of a function that got it with its operations' nodes before."""
        self.check(edges)
        _check_ranks(self._numbers, edges, added)
        with self._lock, deferred():
            graph = ctypes.c_void_p()
            copied = self._copied_in(edges, added)
            if copied:
                _call("cuGraphCreate", ctypes.byref(graph), ctypes.c_uint(0))
            else:
                _call("cuGraphClone", ctypes.byref(graph), ctypes.c_void_p(self._graph))
            address = int(graph.value or 0)
            try:
                nodes = self._copies(address, edges, copied) if copied else [_in_clone(node, address) for node in self._nodes]
                if edges != self._captured and not copied:
                    self._replace_edges(address, edges)
                result = add(address, nodes)
            except BaseException:
                CAPTURES.destroy(partial(libraries().runtime.graphDestroy, address))
                raise
            made = CudaGraph(address, CAPTURES, self._stream)
            made.kept = self.kept
        return made, result

    def _copied_in(self, edges: Edges, added: Sequence[int]) -> Sequence[int]:
        """Return the order in which copies of the nodes are added to a new graph; empty where the graph is a clone."""
        if edges == self._captured or not self._can_be_copied:
            return ()
        return added or (self._in_order if self._leaves_out else ())

    @cached_property
    def _in_order(self) -> Sequence[int]:
        return tuple(range(len(self._nodes)))

    @cached_property
    def _leaves_out(self) -> bool:
        """Whether the captured graph has more than its operations and empty nodes: in a clone, each of these would be a root."""
        return any(_type_of(node) in _COPIED | _EVENTS for node in self._handles if node not in self._number)

    @cached_property
    def _can_be_copied(self) -> bool:
        """Whether copies of the nodes are all that the captured graph is."""
        return all(_type_of(node) in _COPIED | _EVENTS for node in self._nodes) and not np.any(_edges_between(self._graph)[2])

    def _copies(self, graph: int, edges: Edges, added: Sequence[int]) -> list[int]:
        """Copy the nodes into a new graph in some order, with edges, and return the copy of each operation."""
        copies = [0] * len(self._nodes)
        for operation in added:
            copies[operation] = _copy(self._nodes[operation], graph)
        pairs = [(earlier, number) for number, after in enumerate(edges) for earlier in after]
        _change("cuGraphAddDependencies_v2", graph, np.array(copies, np.uint64), pairs, [FULL] * len(pairs))
        return copies

    @staticmethod
    def _add_events(events: Mapping[int, CudaEvent], graph: int, nodes: Sequence[int]) -> None:
        for operation, event in events.items():
            before = ctypes.c_void_p(nodes[operation])
            added = (ctypes.byref(ctypes.c_void_p()), ctypes.c_void_p(graph), ctypes.byref(before), ctypes.c_size_t(1))
            _call("cuGraphAddEventRecordNode", *added, ctypes.c_void_p(event.pointer))

    def _replay_first(self, edges: Edges, added: Sequence[int] = ()) -> None:
        """Replay an order for the first time: with marks, so that the error names the nodes under way if it hangs."""
        graph, marks = self._made(edges, added, NodeMarks)
        end = libraries().cupy.cuda.Event()
        self.put_back()
        graph.launch_on(self._stream.ptr)
        end.record(self._stream)
        try:
            _wait(end, lambda: [self.named(number) for number in under_way(edges, marks.ended())])
        except HungError:
            _HUNG.append((graph, marks))
            raise

    @cached_property
    def _handles(self) -> list[int]:
        """All nodes of the captured graph, in the order of capture."""
        return node_handles(self._graph)

    @cached_property
    def _number(self) -> dict[int, int]:
        """The operation of each node that is one."""
        return {node: number for number, node in enumerate(self._nodes)}

    def _replace_edges(self, clone: int, edges: Edges) -> None:
        """Take away the edges of a clone that are not wanted, and add those that are missing."""
        # Empty nodes are numbered behind the others, so that all of their edges go.
        nodes = [*self._nodes, *(node for node in self._handles if node not in self._number)]
        position = {node: number for number, node in enumerate(nodes)}
        ends = (each.tolist() for each in _edges_between(self._graph))
        kinds = {(position[source], position[target]): kind for source, target, kind in zip(*ends, strict=True)}
        removed, added = changed_edges(kinds, edges + ((),) * (len(nodes) - len(edges)))
        here = np.array([_in_clone(node, clone) for node in nodes], np.uint64)
        _change("cuGraphRemoveDependencies_v2", clone, here, removed, [kinds[pair] for pair in removed])
        _change("cuGraphAddDependencies_v2", clone, here, added, [FULL] * len(added))

    def times_us(self, orders: Sequence[Edges], added: Sequence[Sequence[int]] = ()) -> list[float]:
        """Return how long a replay takes on the device with each of these edges, in µs; measured once.

        They take turns, and the median counts. Changes of replays are put back. The first of the orders is the freest. ``added`` says
        for each of them in which order its nodes are added.
        """
        return self._measured(self._times_us, lambda graphs: _median_times_us(graphs, self._stream, self.put_back), orders, added)

    def waits_us(self, orders: Sequence[Edges], added: Sequence[Sequence[int]] = ()) -> list[float]:
        """Return how long the host waits for a replay with each of these edges, its launch included, in µs; measured once.

        The graphs are made anew, and take more turns than for `times_us`. Some orders take now less and now more, as their branches
        happen to meet on the device: a median of few turns, or of one graph, says little about them. So the mean counts, without the
        slowest tenth.
        """
        return self._measured(self._waits_us, lambda graphs: _mean_waits_us(graphs, self._stream, self.put_back), orders, added)

    def _measured(
        self,
        known_us: dict[_Asked, float],
        measure: Callable[[Sequence[CudaGraph]], Sequence[float]],
        orders: Sequence[Edges],
        added: Sequence[Sequence[int]],
    ) -> list[float]:
        asked = [(order, tuple(nodes)) for order, nodes in zip(orders, added or [()] * len(orders), strict=True)]
        with self._lock:
            missing = [one for one in dict.fromkeys(asked) if one not in known_us]
            if missing:
                # All of them anew: those that are compared have met the same clocks and neighbours.
                tried = list(dict.fromkeys(asked))
                graphs = [self.graph(order, added=nodes)[0] for order, nodes in tried]
                try:
                    with self._keeping():
                        # What hangs, hangs in the freest order, which is the first; to mark nodes takes longer than all replays.
                        for freest, nodes in [one for one in missing if one[0] != self._captured and one not in self._times_us][:1]:
                            self._replay_first(freest, nodes)
                        known_us.update(zip(tried, since_last_start("comparing orders", measure(graphs)), strict=True))
                except HungError:
                    _HUNG.append((self, graphs))
                    raise
            return [known_us[one] for one in asked]


def _check_ranks(numbers: Sequence[int], edges: Edges, added: Sequence[int]) -> None:
    """Refuse an order that is another one on another rank of the job: their collectives could wait for each other for ever."""
    if (other := differing_rank("making a graph", (numbers, edges, tuple(added)))) is not None:
        hint = "nothing was launched; this is a defect of the order and not of your code, so please report it"
        raise DeadlockError(f"rank {other} has another order of captured code than rank 0", hint=hint)


def changed_edges(kinds: Mapping[_Pair, int], wanted: Edges) -> tuple[list[_Pair], list[_Pair]]:
    """Return the edges to take away and those to add, so that a graph has the wanted orders and no others.

    An edge that is wanted and there is not touched, so that it stays programmatic if it is. A kernel that a programmatic edge leads to may
    begin before all is done that comes before the node at the other end. So full edges that lead to such a kernel stay, too, where they
    agree with what is wanted.

    ``kinds``: the data of each edge that is there, `FULL` or not.

    Examples
    --------
    A chain of three, of which the last comes after the first alone:

    >>> from streamscope.devices.cuda.raw_graph import changed_edges
    >>> changed_edges({(0, 1): 0, (1, 2): 0}, ((), (0,), (0,)))
    ([(1, 2)], [(0, 2)])
    """
    target = {(earlier, number) for number, after in enumerate(wanted) for earlier in after}
    early = {later for (earlier, later), kind in kinds.items() if kind != FULL and (earlier, later) in target}
    candidates = {pair for pair, kind in kinds.items() if kind == FULL and pair[1] in early}
    before = {number: _all_before(number, wanted) for number in {later for _, later in candidates}}
    kept = {pair for pair in kinds if pair in target} | {(earlier, later) for earlier, later in candidates if earlier in before[later]}
    return [pair for pair in kinds if pair not in kept], sorted(target - kept)


def _all_before(number: int, edges: Edges) -> Collection[int]:
    found: set[int] = set()
    pending = list(edges[number])
    while pending:
        earlier = pending.pop()
        if earlier not in found:
            found.add(earlier)
            pending += edges[earlier]
    return found


def _median_times_us(graphs: Sequence[CudaGraph], stream: Any, put_back: Callable[[], object]) -> list[float]:
    """Let graphs take turns and return the median time of each, from the launch to the end on the device, in µs."""
    cupy = libraries().cupy
    start, end = cupy.cuda.Event(), cupy.cuda.Event()

    def replay_us(graph: CudaGraph) -> float:
        put_back()
        # Behind the copies that put state back, so that they are not timed.
        start.record(stream)
        graph.launch_on(stream.ptr)
        end.record(stream)
        _wait(end)
        return 1e3 * float(cupy.cuda.get_elapsed_time(start, end))

    return [float(each) for each in np.median(_turns(graphs, replay_us, MOST_TURNS), axis=0)]


def _mean_waits_us(graphs: Sequence[CudaGraph], stream: Any, put_back: Callable[[], object]) -> list[float]:
    """Let graphs take turns and return for each the mean time from the call that launches it until the host knows its end, in µs."""
    end = libraries().cupy.cuda.Event(disable_timing=True)

    def wait_us(graph: CudaGraph) -> float:
        put_back()
        # The device is idle: the turn before was waited for, and `put_back` waits for its copies.
        start_ns = time.perf_counter_ns()
        graph.launch_on(stream.ptr)
        end.record(stream)
        _wait(end)
        return (time.perf_counter_ns() - start_ns) / 1e3

    waits_us = np.sort(_turns(graphs, wait_us, _MOST_WAITS), axis=0)
    return [float(each) for each in waits_us[: -(-9 * len(waits_us) // 10)].mean(axis=0)]


def _turns(graphs: Sequence[CudaGraph], once: Callable[[CudaGraph], float], most: int) -> npt.NDArray[np.float64]:
    """Return the time of each graph in each turn, as many as there is time for, after one that does not count."""
    first = [once(graph) for graph in graphs]
    turns = int(min(most, max(FEWEST_TURNS, _TRYING_S * 1e6 / max(sum(first), 1.0))))
    # As many on each rank of a job, since a collective waits for those of the others.
    turns = min(gathered("timing orders", turns))
    return np.array([[once(graph) for graph in graphs] for _ in range(turns)])


def _wait(event: Any, names: Callable[[], Sequence[str]] = tuple) -> None:
    """Wait for an event, in a way that Ctrl-C ends; ``names`` tells which nodes are under way."""
    limit = time.monotonic() + STUCK_S
    while not event_done(event.ptr):
        if time.monotonic() > limit:
            raise hung("a replay of captured code in another order", STUCK_S, names())


def _edges_between(graph: int) -> tuple[_Words, _Words, _Words]:
    """Return for each edge of a graph the nodes that it leads from and to, and its data."""
    count = ctypes.c_size_t(0)
    _call("cuGraphGetEdges_v2", ctypes.c_void_p(graph), None, None, None, ctypes.byref(count))
    sources, targets, kinds = (np.zeros(count.value, np.uint64) for _ in range(3))
    if count.value:
        addresses = (_address(each) for each in (sources, targets, kinds))
        _call("cuGraphGetEdges_v2", ctypes.c_void_p(graph), *addresses, ctypes.byref(count))
    return sources, targets, kinds


def _in_clone(node: int, clone: int) -> int:
    handle = ctypes.c_void_p()
    _call("cuGraphNodeFindInClone", ctypes.byref(handle), ctypes.c_void_p(node), ctypes.c_void_p(clone))
    return int(handle.value or 0)


def _type_of(node: int) -> int:
    found = ctypes.c_int()
    _call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(found))
    return found.value


def _copy(node: int, graph: int) -> int:
    """Copy a node into another graph, without its edges."""
    kind = _type_of(node)
    if kind in _EVENTS:
        return _copied_event(_EVENTS[kind], node, graph)
    name, version = _COPIED[kind]
    copy, parameters = ctypes.c_void_p(), ctypes.create_string_buffer(_PARAMETERS_BYTES)
    arguments: list[object] = [ctypes.byref(copy), ctypes.c_void_p(graph), None, ctypes.c_size_t(0), parameters]
    _call(f"{name}GetParams{version}", ctypes.c_void_p(node), parameters)
    # Copies and sets are added in a context; a kernel's function belongs to one.
    if kind != _KERNEL:
        context = ctypes.c_void_p()
        _call("cuCtxGetCurrent", ctypes.byref(context))
        arguments.append(context)
    add = partial(_call, f"{name.replace('cuGraph', 'cuGraphAdd')}{version}", *arguments)
    try:
        add()
    except DeviceError:
        if kind != _KERNEL or not make_room_for(node):
            raise
        add()
    if kind == _KERNEL:
        # Priorities, clusters and the like are no parameters: a new node has defaults.
        _call("cuGraphKernelNodeCopyAttributes", copy, ctypes.c_void_p(node))
    return int(copy.value or 0)


def _copied_event(kind: str, node: int, graph: int) -> int:
    copy, event = ctypes.c_void_p(), ctypes.c_void_p()
    _call(f"cuGraphEvent{kind}NodeGetEvent", ctypes.c_void_p(node), ctypes.byref(event))
    _call(f"cuGraphAddEvent{kind}Node", ctypes.byref(copy), ctypes.c_void_p(graph), None, ctypes.c_size_t(0), event)
    return int(copy.value or 0)


def _change(name: str, graph: int, nodes: _Words, pairs: Sequence[_Pair], kinds: Sequence[int]) -> None:
    """Remove or add edges between nodes."""
    if pairs:
        sources, targets = (np.ascontiguousarray(nodes[list(each)]) for each in zip(*pairs, strict=True))
        data = np.array(kinds, np.uint64)
        addresses = (_address(each) for each in (sources, targets, data))
        _call(name, ctypes.c_void_p(graph), *addresses, ctypes.c_size_t(len(pairs)))


def _address(words: _Words) -> ctypes.c_void_p:
    return ctypes.c_void_p(words.ctypes.data)


def _call(name: str, *arguments: object) -> None:
    # By ctypes: edges come as arrays, and cuda-python calls these functions by other names in CUDA 12 than in 13.
    try:
        status = driver_call(name, *arguments)
    except AttributeError:
        hint = "captured code runs in another order with a driver of CUDA 12.3 or later; engine='graph' keeps its own"
        raise DeviceError(f"the driver has no {name}", hint=hint) from None
    checked((status,))
