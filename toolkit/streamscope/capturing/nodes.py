"""The nodes of a captured graph, and how to launch each of them again by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamscope.capturing.names import short_name
from streamscope.devices.cuda.driver import checked, libraries
from streamscope.errors import EngineError
from streamscope.program.launch import Cost, LaunchKind

Call = Callable[[], None]

_HOST, _DEVICE = 1, 2  # CUmemorytype


@dataclass(frozen=True)
class Node:
    """One node of a captured graph.

    Attributes
    ----------
    name : str
        Short name of the kernel, or ``"memset"``, ``"memcpy"``.
    full_name : str
    kind : LaunchKind
        Copies between host and device are copies; a copy within the device is a kernel here.
    grid, block : tuple of int
        Zeros for copies and sets.
    cost : Cost
    after : tuple of int
        The nodes that it depends on, by index.
    bind : callable
        ``bind(stream pointer) -> call`` that launches it by itself.
    """

    name: str
    full_name: str
    kind: LaunchKind
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cost: Cost
    after: tuple[int, ...]
    bind: Callable[[int], Call]


def read_nodes(graph: int) -> list[Node]:
    """Return the nodes of a graph in an order in which they can run; empty nodes are left out, what they order is kept.

    Raises
    ------
    EngineError
        A node is of a kind that cannot be launched by itself.
    """
    cuda = libraries().cuda
    handle = cuda.CUgraph(graph)
    _, count = checked(cuda.cuGraphGetNodes(handle))
    handles, _ = checked(cuda.cuGraphGetNodes(handle, count))
    before = _dependencies(handle, handles)
    kept: list[Node] = []
    index: dict[int, tuple[int, ...]] = {}
    for position in _in_order(before):
        after = tuple(dict.fromkeys(one for earlier in before[position] for one in index[earlier]))
        node = _read(handles[position], after)
        if node is None:
            index[position] = after
        else:
            index[position] = (len(kept),)
            kept.append(node)
    return kept


def _dependencies(graph: Any, handles: list[Any]) -> list[list[int]]:
    cuda = libraries().cuda
    position = {int(handle): number for number, handle in enumerate(handles)}
    before: list[list[int]] = [[] for _ in handles]
    *_, count = checked(cuda.cuGraphGetEdges(graph))
    if count:
        sources, targets, *_ = checked(cuda.cuGraphGetEdges(graph, count))
        for source, target in zip(sources, targets, strict=True):
            before[position[int(target)]].append(position[int(source)])
    return before


def _in_order(before: list[list[int]]) -> list[int]:
    """Return a topological order that keeps the order of capture where it can."""
    done: set[int] = set()
    order: list[int] = []
    for start in range(len(before)):
        pending = [start]
        while pending:
            node = pending[-1]
            missing = [earlier for earlier in before[node] if earlier not in done]
            if missing:
                pending += missing
                continue
            pending.pop()
            if node not in done:
                done.add(node)
                order.append(node)
    return order


def _read(handle: Any, after: tuple[int, ...]) -> Node | None:
    cuda = libraries().cuda
    kinds = cuda.CUgraphNodeType
    kind = checked(cuda.cuGraphNodeGetType(handle))
    if kind == kinds.CU_GRAPH_NODE_TYPE_KERNEL:
        return _kernel(handle, after)
    if kind == kinds.CU_GRAPH_NODE_TYPE_MEMSET:
        return _memset(handle, after)
    if kind == kinds.CU_GRAPH_NODE_TYPE_MEMCPY:
        return _memcpy(handle, after)
    if kind == kinds.CU_GRAPH_NODE_TYPE_EMPTY:
        return None
    what = kind.name.removeprefix("CU_GRAPH_NODE_TYPE_").lower().replace("_", " ")
    raise EngineError(f"the captured code has a {what} node, which cannot run by itself", hint="leave it out of the captured function")


def _kernel(handle: Any, after: tuple[int, ...]) -> Node:
    cuda = libraries().cuda
    p = checked(cuda.cuGraphKernelNodeGetParams(handle))
    if int(p.func):
        function, name = p.func, checked(cuda.cuFuncGetName(p.func)).decode()
    else:
        function, name = checked(cuda.cuKernelGetFunction(p.kern)), checked(cuda.cuKernelGetName(p.kern)).decode()
    grid, block = (p.gridDimX, p.gridDimY, p.gridDimZ), (p.blockDimX, p.blockDimY, p.blockDimZ)
    blocks, threads = grid[0] * grid[1] * grid[2], block[0] * block[1] * block[2]
    # The node owns its arguments, as pointers to values or, from some libraries, as one packed buffer ("extra").
    arguments, attributes = (int(p.kernelParams), int(p.extra)), _attributes(handle)

    def bind(stream: int) -> Call:
        if not attributes:
            launch = libraries().driver.launchKernel
            return partial(launch, int(function), *grid, *block, p.sharedMemBytes, stream, *arguments)
        config = cuda.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes, config.hStream = p.sharedMemBytes, cuda.CUstream(stream)
        config.attrs, config.numAttrs = attributes, len(attributes)

        def launch_with_attributes() -> None:
            # Attributes that a node cannot be asked for, such as programmatic stream serialisation, are lost: slower, not wrong.
            checked(cuda.cuLaunchKernelEx(config, function, *arguments))

        return launch_with_attributes

    return Node(short_name(name), name, LaunchKind.KERNEL, grid, block, Cost(0, 0, blocks, threads), after, bind)


def _attributes(handle: Any) -> list[Any]:
    """Return the launch attributes of a kernel node that differ from what a plain launch has."""
    cuda = libraries().cuda
    identifiers = cuda.CUlaunchAttributeID
    found = []

    def node_value(name: str) -> tuple[Any, Any]:
        identifier = getattr(identifiers, f"CU_LAUNCH_ATTRIBUTE_{name}")
        status, value = cuda.cuGraphKernelNodeGetAttribute(handle, identifier)
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


def _memset(handle: Any, after: tuple[int, ...]) -> Node:
    cuda = libraries().cuda
    p = checked(cuda.cuGraphMemsetNodeGetParams(handle))
    fill = {1: cuda.cuMemsetD2D8Async, 2: cuda.cuMemsetD2D16Async, 4: cuda.cuMemsetD2D32Async}[p.elementSize]
    pitch = p.pitch or p.width * p.elementSize

    def bind(stream: int) -> Call:
        queue = cuda.CUstream(stream)

        def call() -> None:
            checked(fill(p.dst, pitch, p.value, p.width, p.height, queue))

        return call

    return Node("memset", "memset", LaunchKind.KERNEL, (0, 0, 0), (0, 0, 0), Cost(p.width * p.elementSize * p.height), after, bind)


def _memcpy(handle: Any, after: tuple[int, ...]) -> Node:
    cuda = libraries().cuda
    p = checked(cuda.cuGraphMemcpyNodeGetParams(handle))
    source, target = int(p.srcMemoryType), int(p.dstMemoryType)
    kind = {(_HOST, _DEVICE): LaunchKind.COPY_IN, (_DEVICE, _HOST): LaunchKind.COPY_OUT}.get((source, target), LaunchKind.KERNEL)

    def bind(stream: int) -> Call:
        queue = cuda.CUstream(stream)

        def call() -> None:
            checked(cuda.cuMemcpy3DAsync(p, queue))

        return call

    nbytes = p.WidthInBytes * max(1, p.Height) * max(1, p.Depth)
    return Node("memcpy", "memcpy", kind, (0, 0, 0), (0, 0, 0), Cost(nbytes), after, bind)
