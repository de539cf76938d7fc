"""The nodes of a captured graph, and how to launch each of them again by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from streamscope.capturing.arguments import Parameter, parameters_of
from streamscope.capturing.memory import Access, Evidence, NodeMemory, Region, around, regions_of, united
from streamscope.devices.cuda.graph_nodes import described, kernel_function, make_room, node_handles, predecessors
from streamscope.devices.graph_node import GraphNode, NodeKind, in_order
from streamscope.errors import DeviceError, EngineError
from streamscope.kernels.library.libraries import checked, libraries
from streamscope.program.launch import Cost, LaunchKind

Call = Callable[[], None]
Bind = Callable[[int], Call]
"""``bind(stream pointer) -> call`` that launches a node by itself."""

_UNKNOWN_HERE = (1, 801)  # CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED: the node has no such attribute
_HOST, _DEVICE, _ARRAY = 1, 2, 3  # CUmemorytype


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
    """What a copy or set touches, on the host too; None for a kernel."""
    handle: int = 0
    """Address of the captured node."""
    alone_ns: float | None = None
    """How long it takes alone, where that was measured."""
    per_multiprocessor: int = 0
    """Blocks of a kernel that fit on a multiprocessor; 0 where the driver does not say."""

    @property
    def words(self) -> tuple[int, ...]:
        """All words of its arguments; those that are addresses of device memory lead to what it may touch."""
        own = self.memory.accesses if self.memory is not None else ()
        return tuple(one.start for one in own) + tuple(word for one in self.parameters for word in one.words)

    @property
    def cost(self) -> Cost:
        """What is known of its cost: the bytes of copies and sets, the blocks and threads of kernels, and how long it takes alone."""
        if self.node.kind is not NodeKind.KERNEL:
            return Cost(self.node.nbytes, alone_ns=self.alone_ns)
        (x, y, z), (i, j, k) = self.node.grid, self.node.block
        return Cost(0, 0, x * y * z, i * j * k, alone_ns=self.alone_ns, per_multiprocessor=self.per_multiprocessor)


def addresses_of(nodes: Sequence[LaunchableNode], memories: Sequence[NodeMemory]) -> set[int]:
    """Return the addresses that lead to all that nodes may touch, as far as their arguments and their evidence say.

    Of a node that is understood, these lie in what it touches. Its arguments may hold others, left there by earlier kernels: what lies
    there may belong to somebody else by now.
    """
    found: set[int] = set()
    for node, memory in zip(nodes, memories, strict=True):
        touched = united(regions_of(memory))
        found.update(start for start, _ in touched)
        found.update(word for word in node.words if not memory.understood or around(touched, word) is not None)
    return found


def read_nodes(graph: int, origins: Mapping[int, str] | None = None) -> list[LaunchableNode]:
    """Return the nodes of a graph in an order in which they can run; empty nodes are left out, what they order is kept.

    ``origins`` says where nodes came from, by their handles, for errors.
    """
    handles = node_handles(graph)
    before = predecessors(graph, handles)
    kept: list[LaunchableNode] = []
    index: dict[int, tuple[int, ...]] = {}
    for position in in_order(before):
        after = tuple(dict.fromkeys(one for earlier in before[position] for one in index[earlier]))
        node = replace(described(handles[position]), after=after)
        if node.kind is NodeKind.EMPTY:
            index[position] = after
        else:
            index[position] = (len(kept),)
            origin = (origins or {}).get(int(handles[position]), "")
            kept.append(replace(_launchable(handles[position], node, origin), handle=int(handles[position])))
    return kept


def _launchable(handle: Any, node: GraphNode, origin: str = "") -> LaunchableNode:
    if node.kind is NodeKind.KERNEL:
        return _kernel(handle, node)
    if node.kind is NodeKind.SET:
        return _memset(handle, node)
    if node.kind is NodeKind.COPY:
        return _memcpy(handle, node)
    what = f"the captured code has a node ({node.name}) that cannot run by itself"
    raise EngineError(what + (f", of {origin}" if origin else ""), hint="leave it out of the captured function")


def _kernel(handle: Any, node: GraphNode) -> LaunchableNode:
    cuda = libraries().cuda
    p = checked(cuda.cuGraphKernelNodeGetParams(handle))
    function = cuda.CUfunction(int(kernel_function(p)[0]))  # A value of its own: what ``p`` hands out is a view of it.
    # The node owns its arguments, as pointers to values or, from some libraries, as one packed buffer ("extra").
    arguments, attributes, shared_bytes = (int(p.kernelParams), int(p.extra)), _attributes(handle), int(p.sharedMemBytes)

    def bind(stream: int) -> Call:
        if not attributes:
            launch = partial(libraries().driver.launchKernel, int(function), *node.grid, *node.block, shared_bytes, stream, *arguments)
            return partial(_with_room, launch, function, shared_bytes) if shared_bytes else launch
        config = cuda.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = node.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = node.block
        config.sharedMemBytes, config.hStream = shared_bytes, cuda.CUstream(stream)
        config.attrs, config.numAttrs = attributes, len(attributes)

        def launch_with_attributes() -> None:
            # Attributes that a node cannot be asked for, such as programmatic stream serialisation, are lost: slower, not wrong.
            checked(cuda.cuLaunchKernelEx(config, function, *arguments))

        return partial(_with_room, launch_with_attributes, function, shared_bytes) if shared_bytes else launch_with_attributes

    status, fit = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, math.prod(node.block), shared_bytes)
    fitting = int(fit) if int(status) == 0 else 0
    return LaunchableNode(node, LaunchKind.KERNEL, bind, parameters_of(function, *arguments), int(function), per_multiprocessor=fitting)


def _with_room(launch: Call, function: Any, shared_bytes: int) -> None:
    """Launch a kernel with dynamic shared memory, whose limit may be too low by now."""
    try:
        launch()
    except (DeviceError, libraries().driver.CUDADriverError):
        if not make_room(function, shared_bytes):
            raise
        launch()


def _attributes(handle: Any) -> list[Any]:
    """Return the launch attributes of a kernel node that differ from what a plain launch has."""
    cuda = libraries().cuda
    identifiers = cuda.CUlaunchAttributeID
    found = []

    def node_value(name: str) -> tuple[Any, Any]:
        identifier = getattr(identifiers, f"CU_LAUNCH_ATTRIBUTE_{name}")
        status, value = cuda.cuGraphKernelNodeGetAttribute(handle, identifier)
        if int(status) not in _UNKNOWN_HERE:
            checked((status,))  # A kernel with clusters that is launched without them dies with an illegal instruction.
        attribute = cuda.CUlaunchAttribute()
        attribute.id = identifier
        return (value if int(status) == 0 else None), attribute

    # Field by field: the value of a node's attribute is a view that does not outlive this call.
    value, attribute = node_value("CLUSTER_DIMENSION")
    if value is not None and value.clusterDim.x * value.clusterDim.y * value.clusterDim.z > 1:
        extents = attribute.value.clusterDim
        extents.x, extents.y, extents.z = value.clusterDim.x, value.clusterDim.y, value.clusterDim.z
        found.append(attribute)
        value, attribute = node_value("CLUSTER_SCHEDULING_POLICY_PREFERENCE")
        if value is not None and int(value.clusterSchedulingPolicyPreference) != 0:
            attribute.value.clusterSchedulingPolicyPreference = value.clusterSchedulingPolicyPreference
            found.append(attribute)
    value, attribute = node_value("COOPERATIVE")
    if value is not None and value.cooperative:
        attribute.value.cooperative = 1
        found.append(attribute)
    return found


def _memset(handle: Any, node: GraphNode) -> LaunchableNode:
    cuda = libraries().cuda
    p = checked(cuda.cuGraphMemsetNodeGetParams(handle))
    fill = {1: cuda.cuMemsetD2D8Async, 2: cuda.cuMemsetD2D16Async, 4: cuda.cuMemsetD2D32Async}[p.elementSize]
    width = p.width * p.elementSize
    pitch = p.pitch or width

    def bind(stream: int) -> Call:
        queue = cuda.CUstream(stream)

        def call() -> None:
            checked(fill(p.dst, pitch, p.value, p.width, p.height, queue))

        return call

    start = int(p.dst)
    written = Access(start, start + (p.height - 1) * pitch + width, False, True, Evidence.NODE)
    return LaunchableNode(node, LaunchKind.KERNEL, bind, memory=NodeMemory((written,)))


def _memcpy(handle: Any, node: GraphNode) -> LaunchableNode:
    cuda = libraries().cuda
    p = checked(cuda.cuGraphMemcpyNodeGetParams(handle))
    source, target = int(p.srcMemoryType), int(p.dstMemoryType)
    kind = {(_HOST, _DEVICE): LaunchKind.COPY_IN, (_DEVICE, _HOST): LaunchKind.COPY_OUT}.get((source, target), LaunchKind.KERNEL)

    def bind(stream: int) -> Call:
        queue = cuda.CUstream(stream)

        def call() -> None:
            checked(cuda.cuMemcpy3DAsync(p, queue))

        return call

    sides = {"src": source, "dst": target}
    plain = tuple(Access(*_copied(p, one), one == "src", one == "dst", Evidence.NODE) for one, where in sides.items() if where != _ARRAY)
    why_unknown = "" if len(plain) == len(sides) else "it copies from or to a CUDA array"
    return LaunchableNode(node, kind, bind, memory=NodeMemory(plain, why_unknown))


def _copied(p: Any, side: str) -> Region:
    """Return what a copy reads ("src") or writes ("dst"), from its first byte to its last; rows and slices may lie apart."""

    def field(name: str) -> int:
        return int(getattr(p, side + name))

    base = field("Host") if field("MemoryType") == _HOST else field("Device")
    height, depth = max(1, p.Height), max(1, p.Depth)
    pitch = field("Pitch") or p.WidthInBytes
    layer = pitch * (field("Height") or height)
    start = base + field("XInBytes") + field("Y") * pitch + field("Z") * layer
    return start, start + (depth - 1) * layer + (height - 1) * pitch + p.WidthInBytes
