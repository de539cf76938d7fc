"""The nodes of captured code: how to launch each by itself, its arguments, and the memory of copies and sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamscope.capturing.arguments import Parameter, parameters_of
from streamscope.capturing.memory import Access, AddressRange, Evidence, NodeMemory, around, regions_of, united
from streamscope.devices.cuda.graph_nodes import nodes_in_order
from streamscope.devices.cuda.node_launches import HOST, Bind, node_launch
from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.kernels.library.libraries import checked, libraries
from streamscope.program.launch import Cost, LaunchKind

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

    ``origins`` says where nodes came from, by their handles, for errors.
    """
    return [_launchable(handle, node, (origins or {}).get(int(handle), "")) for handle, node in nodes_in_order(graph)]


def _launchable(handle: Any, node: GraphNode, origin: str = "") -> LaunchableNode:
    found = node_launch(handle, node, origin)
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
