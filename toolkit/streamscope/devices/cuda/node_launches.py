"""Launching nodes of a captured graph again, each by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamscope.devices.cuda.graph_nodes import kernel_function, make_room
from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.errors import DeviceError, EngineError
from streamscope.kernels.library.libraries import checked, libraries
from streamscope.program.launch import LaunchKind

Call = Callable[[], None]
Bind = Callable[[int], Call]
"""``bind(stream pointer) -> call`` that launches a node by itself."""

HOST, DEVICE = 1, 2  # CUmemorytype
_UNKNOWN_HERE = (1, 801)  # CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED: the node has no such attribute


@dataclass(frozen=True)
class NodeLaunch:
    """How to launch a node by itself."""

    kind: LaunchKind
    """Copies between host and device are copies; a copy within the device is a kernel here, and so is a set."""
    bind: Bind
    function: int = 0
    """The ``CUfunction`` of a kernel, 0 elsewhere."""
    arguments: tuple[int, int] = (0, 0)
    """Addresses of a kernel's arguments, which the node owns: pointers to values or, from some libraries, one packed buffer ("extra")."""
    per_multiprocessor: int = 0
    """Blocks of a kernel that fit on a multiprocessor; 0 where the driver does not say."""


def node_launch(handle: Any, node: GraphNode, origin: str = "", *, of_nccl: bool = False) -> NodeLaunch:
    """Return how to launch a node by itself; ``origin`` says where it came from, for errors.

    ``of_nccl``: whether it belongs to NCCL's collectives. A host function of the user's may wait for a lock that the calling thread holds,
    and an event of the user's for anything.

    Raises
    ------
    EngineError
        It is of a kind that nothing launches by itself, such as a graph inside the graph.
    """
    launch = _LAUNCHES.get(node.kind) if of_nccl or node.kind not in _OF_NCCL else None
    if launch is not None:
        return launch(handle, node)
    what = f"the captured code has a node ({node.name}) that cannot run by itself"
    raise EngineError(what + (f", of {origin}" if origin else ""), hint="leave it out of the captured function")


def _kernel(handle: Any, node: GraphNode) -> NodeLaunch:
    cuda = libraries().cuda
    p = checked(cuda.cuGraphKernelNodeGetParams(handle))
    function = cuda.CUfunction(int(kernel_function(p)[0]))  # A value of its own: what ``p`` hands out is a view of it.
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
    return NodeLaunch(LaunchKind.KERNEL, bind, int(function), arguments, fitting)


def _with_room(launch: Call, function: Any, shared_bytes: int) -> None:
    """Launch a kernel with dynamic shared memory, whose limit may be too low by now."""
    try:
        launch()
    except (DeviceError, libraries().driver.CUDADriverError):
        if not make_room(function, shared_bytes):
            raise
        launch()


def _attributes(handle: Any) -> list[Any]:
    """Return the launch attributes of a kernel node that differ from those of a plain launch."""
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


def _memset(handle: Any, _: GraphNode) -> NodeLaunch:
    cuda = libraries().cuda
    p = checked(cuda.cuGraphMemsetNodeGetParams(handle))
    fill = {1: cuda.cuMemsetD2D8Async, 2: cuda.cuMemsetD2D16Async, 4: cuda.cuMemsetD2D32Async}[p.elementSize]
    width = p.width * p.elementSize
    pitch = p.pitch or width

    def bind(stream: int) -> Call:
        queue = cuda.CUstream(stream)
        return lambda: checked(fill(p.dst, pitch, p.value, p.width, p.height, queue))

    return NodeLaunch(LaunchKind.KERNEL, bind)


def _memcpy(handle: Any, _: GraphNode) -> NodeLaunch:
    cuda = libraries().cuda
    p = checked(cuda.cuGraphMemcpyNodeGetParams(handle))
    source, target = int(p.srcMemoryType), int(p.dstMemoryType)
    kind = {(HOST, DEVICE): LaunchKind.COPY_IN, (DEVICE, HOST): LaunchKind.COPY_OUT}.get((source, target), LaunchKind.KERNEL)

    def bind(stream: int) -> Call:
        queue = cuda.CUstream(stream)
        return lambda: checked(cuda.cuMemcpy3DAsync(p, queue))

    return NodeLaunch(kind, bind)


def _event_record(handle: Any, _: GraphNode) -> NodeLaunch:
    cuda = libraries().cuda
    event = checked(cuda.cuGraphEventRecordNodeGetEvent(handle))
    return NodeLaunch(LaunchKind.KERNEL, lambda stream: lambda: checked(cuda.cuEventRecord(event, cuda.CUstream(stream))))


def _event_wait(handle: Any, _: GraphNode) -> NodeLaunch:
    cuda = libraries().cuda
    event = checked(cuda.cuGraphEventWaitNodeGetEvent(handle))
    return NodeLaunch(LaunchKind.KERNEL, lambda stream: lambda: checked(cuda.cuStreamWaitEvent(cuda.CUstream(stream), event, 0)))


def _host_function(handle: Any, _: GraphNode) -> NodeLaunch:
    cuda = libraries().cuda
    p = checked(cuda.cuGraphHostNodeGetParams(handle))
    return NodeLaunch(LaunchKind.KERNEL, lambda stream: lambda: checked(cuda.cuLaunchHostFunc(cuda.CUstream(stream), p.fn, p.userData)))


_OF_NCCL = (NodeKind.HOST, NodeKind.EVENT_RECORD, NodeKind.EVENT_WAIT)
_LAUNCHES: dict[NodeKind, Callable[[Any, GraphNode], NodeLaunch]] = {
    NodeKind.KERNEL: _kernel,
    NodeKind.SET: _memset,
    NodeKind.COPY: _memcpy,
    # NCCL puts these beside its kernels, so that launches outside of graphs wait for those inside, and the other way round.
    NodeKind.EVENT_RECORD: _event_record,
    NodeKind.EVENT_WAIT: _event_wait,
    NodeKind.HOST: _host_function,
}
