"""The nodes of captured code: their arguments, how to launch each by itself, the memory of copies and sets, and how long each takes."""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from streamscope.capturing.communication import is_collective, is_distributed, without_early_records
from streamscope.capturing.memory import Access, AddressRange, Evidence, NodeMemory, around, regions_of, united
from streamscope.devices.cuda.device import CudaDevice
from streamscope.devices.cuda.graph_nodes import node_count, node_handles, nodes_in_order
from streamscope.devices.cuda.node_launches import HOST, Bind, node_launch
from streamscope.devices.cuda.streams import CudaStream
from streamscope.devices.gates import held, reference_call
from streamscope.devices.graph_node import GraphNode, NodeKind, spins_on_peers
from streamscope.devices.protocol import Call, Device
from streamscope.devices.reference import reference_kernel
from streamscope.errors import DeviceError
from streamscope.interrupts import deferred
from streamscope.job import gathered
from streamscope.kernels.library.libraries import checked, driver_call, libraries
from streamscope.program.launch import Cost, LaunchKind

Around = Callable[[int], AddressRange | None]
"""``around(address)`` returns the piece of memory that an address lies in."""

WORD = 8
_END, _BUFFER, _SIZE = 0, 1, 2  # CU_LAUNCH_PARAM_END, _BUFFER_POINTER, _BUFFER_SIZE


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel."""

    offset: int
    """Where it begins among all of them, in bytes."""
    values: bytes
    """Its value: a number, an address, a structure that is passed whole. A packed buffer whose parts nobody knows is one parameter."""

    @property
    def words(self) -> tuple[int, ...]:
        """Its aligned words of eight bytes, where an address can lie; also those of structures and tensor maps (see below)."""
        return tuple(np.frombuffer(self.values[: len(self.values) // WORD * WORD], np.uint64).tolist())


def parameters_of(function: Any, parameters: int, extra: int) -> tuple[Parameter, ...]:
    """Return the parameters of a kernel node.

    ``parameters``: address of an array of pointers to values; 0 where there is none.
    ``extra``: address of a list of keys and values that names one packed buffer, as libraries hand it over; 0 where there is none.
    """
    if parameters:
        pieces = enumerate(_described(function))
        return tuple(Parameter(offset, ctypes.string_at(_word_at(parameters + WORD * one), nbytes)) for one, (offset, nbytes) in pieces)
    if not extra:
        return ()
    packed = _packed(extra)
    described = list(_described(function))
    # Between two parameters there is padding at most, so described ones hold every word that means anything.
    if not described or any(offset + nbytes > len(packed) for offset, nbytes in described):
        return (Parameter(0, packed),)
    return tuple(Parameter(offset, packed[offset : offset + nbytes]) for offset, nbytes in described)


def _described(function: Any) -> Iterator[tuple[int, int]]:
    """Return offset and size of each parameter, as the function has them."""
    described = (libraries().cuda.cuFuncGetParamInfo(function, number) for number in itertools.count())
    return ((int(offset), int(nbytes)) for _, offset, nbytes in itertools.takewhile(lambda one: int(one[0]) == 0, described))


def _packed(extra: int) -> bytes:
    """Return the buffer that a list of keys and values names; libraries give the keys in any order."""
    values = {}
    while (key := _word_at(extra)) != _END:
        values[key], extra = _word_at(extra + WORD), extra + 2 * WORD
    return ctypes.string_at(values[_BUFFER], _word_at(values[_SIZE]))


def _word_at(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def pointers_among(words: Iterable[int], where: Around) -> tuple[int, ...]:
    """Return those words that are addresses in some piece of memory, each once, in their order.

    Examples
    --------
    The first word lies in the only piece of memory, and the second one just behind it:

    >>> from streamscope.capturing.nodes import pointers_among
    >>> from streamscope.capturing.memory import around
    >>> pointers_among([0x10000, 0x20000], lambda address: around([(0x10000, 0x20000)], address))
    (65536,)
    """
    return tuple(word for word in dict.fromkeys(words) if where(word) is not None)


_ARRAY = 3  # CUmemorytype


@dataclass(frozen=True)
class LaunchableNode:
    """A node that can be launched by itself."""

    node: GraphNode
    kind: LaunchKind
    """Copies between host and device are copies; a copy within the device is a kernel here, and so is a set."""
    bind: Bind
    parameters: tuple[Parameter, ...] = ()
    """Those of a kernel."""
    function: int = 0
    """The ``CUfunction`` of a kernel, 0 elsewhere."""
    memory: NodeMemory | None = None
    """Accesses of a copy or set, on the host too; None for a kernel."""
    handle: int = 0
    """Address of the captured node."""
    alone_ns: float | None = None
    """How long it takes alone, where that was measured."""
    per_multiprocessor: int = 0
    """Blocks of a kernel that fit on a multiprocessor; 0 where the driver does not say."""

    @property
    def words(self) -> tuple[int, ...]:
        """All words of its arguments; those that are addresses of device memory show where it may read and write."""
        own = self.memory.accesses if self.memory is not None else ()
        return tuple(one.start for one in own) + tuple(word for one in self.parameters for word in one.words)

    @property
    def cost(self) -> Cost:
        """Known costs: bytes of copies and sets, blocks and threads of kernels, and its duration alone."""
        if self.node.kind is not NodeKind.KERNEL:
            return Cost(self.node.nbytes, alone_ns=self.alone_ns)
        (x, y, z), (i, j, k) = self.node.grid, self.node.block
        return Cost(0, 0, x * y * z, i * j * k, alone_ns=self.alone_ns, per_multiprocessor=self.per_multiprocessor)


def without_internals(node: LaunchableNode, is_known: Callable[[int], bool]) -> LaunchableNode:
    """Return a node that waits for other GPUs without addresses of its library's own memory; any other node as it is.

    Ranks count there how far they have come together. To restore what was there before would make them wait for each other for ever.
    """
    if not (is_collective(node.node.symbol) or spins_on_peers(node.node.symbol)):
        return node
    return replace(node, parameters=(Parameter(0, np.array([one for one in node.words if is_known(one)], np.uint64).tobytes()),))


def addresses_of(nodes: Sequence[LaunchableNode], memories: Sequence[NodeMemory]) -> set[int]:
    """Return the addresses of all memory that nodes may touch, by their arguments and evidence.

    Of a node that is understood, these lie in its accesses. Its arguments may hold others, left there by earlier kernels: memory
    there may belong to somebody else by now.
    """
    found: set[int] = set()
    for node, memory in zip(nodes, memories, strict=True):
        touched = united(regions_of(memory))
        found.update(start for start, _ in touched)
        found.update(word for word in node.words if not memory.understood or around(touched, word) is not None)
    return found


def read_nodes(graph: int, origins: Mapping[int, str] | None = None) -> list[LaunchableNode]:
    """Return the nodes of a graph in an order in which they can run; empty nodes are left out, their orders are kept.

    So are all but the last of the events that a communicator records. ``origins`` says where nodes came from, by their handles.
    """
    come_from, cuda = origins or {}, libraries().cuda
    nodes = list(nodes_in_order(graph))
    collectives = any(is_collective(node.symbol) for _, node in nodes)
    found = [_launchable(handle, node, come_from.get(int(handle), ""), collectives=collectives) for handle, node in nodes]
    records = {at: one.handle for at, one in enumerate(found) if one.node.kind is NodeKind.EVENT_RECORD}
    handles = {at: cuda.CUgraphNode(handle) for at, handle in records.items() if is_distributed(come_from.get(handle, ""))}
    if len(handles) < 2:
        return found
    events = {at: int(checked(cuda.cuGraphEventRecordNodeGetEvent(handle))) for at, handle in handles.items()}
    left = without_early_records(tuple(one.node.after for one in found), events)
    return [replace(found[at], node=replace(found[at].node, after=after)) for at, after in left.items()]


def _launchable(handle: Any, node: GraphNode, origin: str, *, collectives: bool) -> LaunchableNode:
    # Some of NCCL's events come when several collectives end together, of no operator.
    of_nccl = is_distributed(origin) or (collectives and not origin and node.kind is not NodeKind.HOST)
    found = node_launch(handle, node, origin, of_nccl=of_nccl)
    kernel = node.kind is NodeKind.KERNEL
    parameters = parameters_of(libraries().cuda.CUfunction(found.function), *found.arguments) if kernel else ()
    memory = _set_memory(handle) if node.kind is NodeKind.SET else _copy_memory(handle) if node.kind is NodeKind.COPY else None
    return LaunchableNode(
        node, found.kind, found.bind, parameters, found.function, memory, int(handle), per_multiprocessor=found.per_multiprocessor
    )


def _set_memory(handle: Any) -> NodeMemory:
    p = checked(libraries().cuda.cuGraphMemsetNodeGetParams(handle))
    width, start = p.width * p.elementSize, int(p.dst)
    written = Access(start, start + (p.height - 1) * (p.pitch or width) + width, False, True, Evidence.NODE)
    return NodeMemory((written,))


def _copy_memory(handle: Any) -> NodeMemory:
    p = checked(libraries().cuda.cuGraphMemcpyNodeGetParams(handle))
    sides = {"src": int(p.srcMemoryType), "dst": int(p.dstMemoryType)}
    plain = tuple(Access(*_copied(p, one), one == "src", one == "dst", Evidence.NODE) for one, where in sides.items() if where != _ARRAY)
    return NodeMemory(plain, "" if len(plain) == len(sides) else "it copies from or to a CUDA array")


def _copied(p: Any, side: str) -> AddressRange:
    """Return the source ("src") or target ("dst") of a copy, from its first byte to its last; rows and slices may lie apart."""

    def field(name: str) -> int:
        return int(getattr(p, side + name))

    base = field("Host") if field("MemoryType") == HOST else field("Device")
    height, depth = max(1, p.Height), max(1, p.Depth)
    pitch = field("Pitch") or p.WidthInBytes
    layer = pitch * (field("Height") or height)
    start = base + field("XInBytes") + field("Y") * pitch + field("Z") * layer
    return start, start + (depth - 1) * layer + (height - 1) * pitch + p.WidthInBytes


class GrowingGraph:
    """The graph that a stream captures into. CUDA allows to read it meanwhile, from any thread.

    ``stream``: the pointer of a stream that captures.

    Raises
    ------
    DeviceError
        The stream does not capture.
    """

    def __init__(self, stream: int) -> None:
        self._graph = _captured_by(stream)

    def count(self) -> int:
        """Return the number of nodes so far."""
        return node_count(self._graph)

    def since(self, count: int) -> tuple[int, ...]:
        """Return the handles of the nodes that came when there were ``count`` already: CUDA lists nodes as they come."""
        return tuple(node_handles(self._graph, count))


def _captured_by(stream: int) -> int:
    status, identity, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
    found = map(ctypes.byref, (status, identity, graph))
    # By ctypes: what cuda-python's function returns differs from version to version.
    checked((driver_call("cuStreamGetCaptureInfo_v2", ctypes.c_void_p(stream), *found, None, None),))
    if not graph.value:
        raise DeviceError("the stream does not capture")
    return graph.value


_BUDGET_S = 0.4
"""Passes are repeated for about so long; the median of each node counts."""
_MOST_PASSES = 9
_CHUNK = 100
"""Nodes that are queued behind one gate, each with two events: a stream holds about 1,024 pending launches, and blocks the host then.
They are read in a thirtieth of the time that a gate for each takes."""
_LEAST_NS = 100.0
"""Readings differ by more than this from pass to pass."""


def timed(
    nodes: Sequence[LaunchableNode], keeping: Callable[[], AbstractContextManager[object]], put_back: Callable[[], object]
) -> list[LaunchableNode]:
    """Return nodes with how long each takes alone; ``with keeping(): ...`` undoes their changes in the block, ``put_back`` in a pass."""
    # Its methods take its own streams and events only, which the protocol cannot say.
    device = cast("Device", CudaDevice([libraries().runtime.getDevice()]))
    with keeping():
        found_ns = _durations_ns(nodes, device, put_back)
    return [replace(node, alone_ns=alone_ns) for node, alone_ns in zip(nodes, _of_all_ranks(nodes, found_ns), strict=True)]


def _of_all_ranks(nodes: Sequence[LaunchableNode], found_ns: Sequence[float]) -> list[float]:
    """Return the durations that all ranks go by, so that orders that follow from them are the same everywhere.

    A kernel counts as its slowest rank has it. A collective includes the wait for other ranks, so the rank that came last counts.
    """
    ranks = gathered("comparing durations", list(found_ns))
    waits = [is_collective(node.node.symbol) for node in nodes]
    return [min(each) if wait else max(each) for wait, each in zip(waits, zip(*ranks, strict=True), strict=True)]


def _durations_ns(nodes: Sequence[LaunchableNode], device: Device, put_back: Callable[[], object] = int) -> list[float]:
    """Return how long each node takes alone, in ns.

    The nodes run in order, so that each reads the same values as in a run. ``put_back`` undoes their changes before each pass.

    A pair of events around a kernel reads its duration and an excess that does not depend on it. The reading around a kernel whose
    duration is known tells the excess. An event does not wait for a set or a copy as it does for a kernel, so there the known kernel comes
    behind, within the pair.
    """
    timer = _Timer(device)
    twice = partial(_both, timer.reference, timer.reference)
    kernels = np.array([one.node.kind is NodeKind.KERNEL for one in nodes])
    calls = [one.bind(timer.address) for one in nodes]
    works = [call if kernel else partial(_both, call, timer.reference) for call, kernel in zip(calls, kernels, strict=True)]
    try:
        timer.reference()
        timer.stream.synchronize()  # Ungated first, so that nothing is loaded behind a gate.
        timer.readings_ns([timer.reference] * _CHUNK)  # Clocks go up.
        one_ns, two_ns = (float(np.median(timer.readings_ns([known] * _CHUNK))) for known in (timer.reference, twice))
        passes: list[list[float]] = []
        start = time.perf_counter()
        # As many on each rank, since a collective waits for those of the others.
        while len(passes) < _MOST_PASSES and all(gathered("timing nodes", not passes or time.perf_counter() - start < _BUDGET_S)):
            put_back()
            passes.append(timer.readings_ns(works))
    finally:
        with deferred():
            timer.stream.synchronize()
    excess_ns = np.where(kernels, one_ns, two_ns) - reference_kernel(device).queued_ns
    found: list[float] = np.maximum(np.median(passes, axis=0) - excess_ns, _LEAST_NS).tolist()
    return found


class _Timer:
    """Reads pairs of events around calls on a stream of its own, where they are queued behind gates."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.stream = device.stream("durations")
        self.address = cast("CudaStream", self.stream).pointer
        self.reference = reference_call(device, self.stream)
        self._events = [(device.event(timing=True), device.event(timing=True)) for _ in range(_CHUNK)]

    def readings_ns(self, calls: Sequence[Call]) -> list[float]:
        """Return the reading of a pair of events around each call, in ns."""
        readings: list[float] = []
        for first in range(0, len(calls), _CHUNK):
            pairs = list(zip(calls[first : first + _CHUNK], self._events, strict=False))
            with held(self.device, [self.stream], "captured code"):
                self.reference()
                for call, (start, end) in pairs:
                    self.stream.record(start)
                    call()
                    self.stream.record(end)
            self.stream.synchronize()
            readings += [self.device.elapsed_ns(start, end) for _, (start, end) in pairs]
        return readings


def _both(first: Call, second: Call) -> None:
    first()
    second()
