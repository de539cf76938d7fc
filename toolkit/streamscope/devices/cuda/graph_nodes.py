"""The nodes of a captured graph, read back from CUDA, with readable names of kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from streamscope.devices.graph_node import GraphNode, NodeKind, in_order, kernel_name
from streamscope.kernels.library.libraries import checked, driver_call, libraries

_KINDS = {
    "KERNEL": NodeKind.KERNEL,
    "MEMCPY": NodeKind.COPY,
    "MEMSET": NodeKind.SET,
    "HOST": NodeKind.HOST,
    "EMPTY": NodeKind.EMPTY,
    "WAIT_EVENT": NodeKind.EVENT_WAIT,
    "EVENT_RECORD": NodeKind.EVENT_RECORD,
}
_NAMES = {NodeKind.COPY: "memcpy", NodeKind.SET: "memset"}


def node_count(graph: int) -> int:
    """Return the number of nodes of a graph."""
    count = ctypes.c_size_t()
    checked((driver_call("cuGraphGetNodes", ctypes.c_void_p(graph), None, ctypes.byref(count)),))
    return count.value


def node_handles(graph: int, first: int = 0) -> list[int]:
    """Return the addresses of a graph's nodes in the order in which they were added, from a number on."""
    count = ctypes.c_size_t(node_count(graph))
    if count.value == first:
        return []
    handles = np.zeros(count.value, np.uint64)
    checked((driver_call("cuGraphGetNodes", ctypes.c_void_p(graph), ctypes.c_void_p(handles.ctypes.data), ctypes.byref(count)),))
    found: list[int] = handles[first:].tolist()
    return found


def _nodes(graph: int) -> list[Any]:
    """Return a graph's nodes in the same order, as cuda-python's type."""
    return list(map(libraries().cuda.CUgraphNode, node_handles(graph)))


def _predecessors(graph: int, handles: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return the nodes that each node depends on, by index, in ascending order."""
    cuda = libraries().cuda
    handle = cuda.CUgraph(graph)
    position = {int(one): number for number, one in enumerate(handles)}
    before: list[set[int]] = [set() for _ in handles]
    *_, count = checked(cuda.cuGraphGetEdges(handle))
    if count:
        sources, targets, *_ = checked(cuda.cuGraphGetEdges(handle, count))
        for source, target in zip(sources, targets, strict=True):
            before[position[int(target)]].add(position[int(source)])
    return [tuple(sorted(earlier)) for earlier in before]


def graph_nodes(graph: int) -> tuple[GraphNode, ...]:
    """Return all nodes of a graph, in the order in which they were added."""
    handles = _nodes(graph)
    return tuple(replace(_described(handle), after=after) for handle, after in zip(handles, _predecessors(graph, handles), strict=True))


def nodes_in_order(graph: int) -> Iterator[tuple[Any, GraphNode]]:
    """Yield handle and node in an order in which they can run; empty nodes are left out, what they order is kept.

    ``after`` counts the nodes that are yielded.
    """
    handles = _nodes(graph)
    before = _predecessors(graph, handles)
    index: dict[int, tuple[int, ...]] = {}
    count = 0
    for position in in_order(before):
        after = tuple(dict.fromkeys(one for earlier in before[position] for one in index[earlier]))
        node = replace(_described(handles[position]), after=after)
        if node.kind is NodeKind.EMPTY:
            index[position] = after
            continue
        index[position] = (count,)
        count += 1
        yield handles[position], node


def first_nodes(graph: int) -> list[int]:
    """Return the nodes of a graph that wait for none."""
    handles = _nodes(graph)
    return [int(handle) for handle, before in zip(handles, _predecessors(graph, handles), strict=True) if not before]


_MOST_CLEARED = 1 << 20
"""Bytes of all `first_sets` together. Nodes that do not need them wait for them, too: for half a µs at the speed of an H100's memory."""


def first_sets(graph: int, written: Sequence[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Return the small sets to zero with which a graph begins, and the memory that each sets: on this GPU, and not ``written`` before.

    They are chosen by where their memory lies, so of a clone of the graph they are the same.
    """
    lib = libraries()
    sets = (handle for handle in map(lib.cuda.CUgraphNode, first_nodes(graph)) if _node_kind(handle) is NodeKind.SET)
    found: dict[int, tuple[int, int]] = {}
    left = _MOST_CLEARED
    for start, end, handle in sorted(region for region in map(_cleared, sets) if region):
        overlaps = any(start < high and low < end for low, high in written)
        # A kernel may not write to another GPU, whose memory a function can set on a stream of its own.
        if end - start <= left and not overlaps and lib.runtime.pointerGetAttributes(start).device == lib.runtime.getDevice():
            found[handle] = start, end
            left -= end - start
    return found


def _cleared(handle: Any) -> tuple[int, int, int] | None:
    """Return the memory that a set makes zero, and the node; None if it sets other values, or rows that lie apart."""
    p = checked(libraries().cuda.cuGraphMemsetNodeGetParams(handle))
    start = int(p.dst)
    return (start, start + p.width * p.elementSize, int(handle)) if p.height == 1 and p.value == 0 else None


def _node_kind(handle: Any) -> NodeKind:
    """Return a node's kind."""
    return _KINDS.get(_type_name(handle), NodeKind.OTHER)


def _described(handle: Any) -> GraphNode:
    """Return a node as it is by itself, without its place in the graph."""
    cuda = libraries().cuda
    kind = _node_kind(handle)
    if kind is NodeKind.KERNEL:
        return _kernel(checked(cuda.cuGraphKernelNodeGetParams(handle)))
    if kind is NodeKind.COPY:
        p = checked(cuda.cuGraphMemcpyNodeGetParams(handle))
        return GraphNode(kind, _NAMES[kind], nbytes=p.WidthInBytes * max(1, p.Height) * max(1, p.Depth))
    if kind is NodeKind.SET:
        p = checked(cuda.cuGraphMemsetNodeGetParams(handle))
        return GraphNode(kind, _NAMES[kind], nbytes=p.width * p.elementSize * p.height)
    return GraphNode(kind, kind.value if kind is not NodeKind.OTHER else _type_name(handle).lower().replace("_", " "))


def kernel_function(p: Any) -> tuple[Any, str]:
    """Return the function that a kernel node's parameters name, and its full name."""
    cuda = libraries().cuda
    if int(p.func):
        return p.func, checked(cuda.cuFuncGetName(p.func)).decode()
    return checked(cuda.cuKernelGetFunction(p.kern)), checked(cuda.cuKernelGetName(p.kern)).decode()


def make_room(function: Any, shared_bytes: int) -> bool:
    """Let a kernel have as much dynamic shared memory as there is, if it may have less than that now; tell whether so.

    A library sets that limit before each of its launches, to this one's need. So the limit is that of the last launch, and another
    node of the same function may need more. From then on the library's own limits have no effect (so says `cuKernelSetAttribute`): with
    any smaller one than all there is, its next launch that needs more would fail.
    """
    cuda = libraries().cuda
    limit, static = (
        getattr(cuda.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}_BYTES") for name in ("MAX_DYNAMIC_SHARED_SIZE", "SHARED_SIZE")
    )
    lower = int(checked(cuda.cuFuncGetAttribute(limit, function))) < shared_bytes
    if lower:
        most = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        all_bytes = int(checked(cuda.cuDeviceGetAttribute(most, checked(cuda.cuCtxGetDevice()))))
        checked(cuda.cuFuncSetAttribute(function, limit, all_bytes - int(checked(cuda.cuFuncGetAttribute(static, function)))))
    return lower


def make_room_for(node: int) -> bool:
    """Do the same for a kernel node."""
    p = checked(libraries().cuda.cuGraphKernelNodeGetParams(libraries().cuda.CUgraphNode(node)))
    return make_room(kernel_function(p)[0], int(p.sharedMemBytes))


def _kernel(p: Any) -> GraphNode:
    cuda = libraries().cuda
    function, name = kernel_function(p)
    attributes = cuda.CUfunction_attribute
    registers = int(checked(cuda.cuFuncGetAttribute(attributes.CU_FUNC_ATTRIBUTE_NUM_REGS, function)))
    static_bytes = int(checked(cuda.cuFuncGetAttribute(attributes.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)))
    grid, block = (p.gridDimX, p.gridDimY, p.gridDimZ), (p.blockDimX, p.blockDimY, p.blockDimZ)
    shared_bytes = static_bytes + p.sharedMemBytes
    symbol = demangled(name)
    return GraphNode(NodeKind.KERNEL, kernel_name(symbol), (), grid, block, registers, shared_bytes, symbol=symbol)


def _type_name(handle: Any) -> str:
    name: str = checked(libraries().cuda.cuGraphNodeGetType(handle)).name
    return name.removeprefix("CU_GRAPH_NODE_TYPE_")


@cache
def _demangler() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    try:
        library, libc = ctypes.CDLL("libstdc++.so.6"), ctypes.CDLL(None)
    except OSError:
        return None
    demangle = library["__cxa_demangle"]
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    libc.free.argtypes = [ctypes.c_void_p]
    return demangle, libc.free


def demangled(name: str) -> str:
    """Return a C++ name as it was written; other names, and where there is no C++ library, as they are."""
    functions = _demangler() if name.startswith("_Z") else None
    if functions is None:
        return name
    demangle, free = functions
    pointer = demangle(name.encode(), None, None, None)
    if not pointer:
        return name
    try:
        return ctypes.string_at(pointer).decode(errors="replace")
    finally:
        free(pointer)
