"""One node of a captured graph, as any device describes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod

from streamscope.trace.symbols import readable_name
from streamscope.words import shortened

_Extents = tuple[int, int, int]

NO_OPERATION = -1
_LONGEST_NAME = 60


class NodeKind(Enum):
    """Kinds of nodes."""

    KERNEL = "kernel"
    COPY = "copy"
    SET = "set"
    EVENT_RECORD = "event record"
    EVENT_WAIT = "event wait"
    HOST = "host function"
    EMPTY = "empty"
    OTHER = "other"


@dataclass(frozen=True)
class Communication:
    """A collective that a node of captured code belongs to."""

    kind: str
    """``"all_reduce"``."""
    communicator: str
    """Name of the process group; empty where it is not known."""
    ranks: tuple[int, ...] = ()
    """The group's ranks, of all those of the job."""
    nbytes: int = 0
    """Of the largest of its tensors."""
    number: int = 0
    """Its place among the collectives of the capture."""

    def __str__(self) -> str:
        group = f" over group {self.communicator!r} of {len(self.ranks)} ranks" if self.ranks else ""
        return f"{self.kind} of {self.nbytes:,} bytes{group}"


@dataclass(frozen=True)
class GraphNode:
    """One node of a captured graph.

    Attributes
    ----------
    kind : NodeKind
    name : str
        Of a kernel, `kernel_name` of its symbol; else the node's kind.
    after : tuple of int
        The nodes that it depends on, by their index in the graph; all come earlier.
    grid, block : tuple of int
        Blocks in the grid, threads in a block; zeros where there are none.
    registers : int, optional
        Registers of each thread; None where the device does not say.
    shared_bytes : int, optional
        Shared memory of each block, static and dynamic; None where the device does not say.
    nbytes : int
        Bytes that a copy or set moves; 0 for other kinds.
    lane : str
        Name of the stream on which the operation was captured; empty where that is not known. What an operator puts on a stream of its
        own is on the operator's lane here.
    operation : int
        Which operation of the program it belongs to; `NO_OPERATION` where it belongs to none.
    operator, where : str
        The operation's name, and the user's line that applied it: ``"file.py:12"``.
    symbol : str
        Of a kernel its whole name, as it was written; empty where there is none.
    module : str
        Of captured PyTorch code the module that launched it, by its path in the outermost one: ``"layer3.0.conv1"``; else empty.
    communication : Communication, optional
        The collective that it is, or that it belongs to.
    """

    kind: NodeKind
    name: str
    after: tuple[int, ...] = ()
    grid: _Extents = (0, 0, 0)
    block: _Extents = (0, 0, 0)
    registers: int | None = None
    shared_bytes: int | None = None
    nbytes: int = 0
    lane: str = ""
    operation: int = NO_OPERATION
    operator: str = ""
    where: str = ""
    symbol: str = ""
    module: str = ""
    communication: Communication | None = None

    @property
    def shape(self) -> str:
        """Grid and block of a kernel (``"64 × 256"``; extents that are 1 are left out), bytes of a copy or set, else nothing."""
        if self.kind is NodeKind.KERNEL and any(self.grid):
            return f"{_extents(self.grid)} × {_extents(self.block)}"
        return f"{self.nbytes:,} B" if self.nbytes else ""

    @property
    def details(self) -> tuple[str, ...]:
        """All that is known of the node, a line each."""
        lines = [f"{self.name} ({self.kind.value})" if self.name != self.kind.value else self.name]
        if self.operation != NO_OPERATION:
            lines.append(f"operation {self.operation}, {self.operator}, {self.where}")
        if self.module:
            lines.append(f"module {self.module}")
        if self.communication is not None:
            lines.append(str(self.communication))
        if self.lane:
            lines.append(f"stream {self.lane}")
        if self.kind is NodeKind.KERNEL and any(self.grid):
            lines.append(f"grid {_extents(self.grid)}, block {_extents(self.block)}")
        if self.registers is not None:
            lines.append(f"{self.registers} registers a thread")
        if self.shared_bytes is not None:
            lines.append(f"{self.shared_bytes:,} bytes of shared memory a block")
        if self.nbytes:
            lines.append(f"{self.nbytes:,} bytes")
        return tuple(lines)


_SPINS_ON_PEERS = re.compile(r"nccl\w*Symk|symm_mem|multimem_|[ot]\w+_shot_all_reduce|signal_pad|nvshmem", re.IGNORECASE)
"""Kernels that read or write the memory of peers, as of symmetric memory: they spin until the others come."""


def spins_on_peers(symbol: str) -> bool:
    """Tell a kernel that waits for other GPUs in their memory, and is no collective whose accesses are known."""
    return _SPINS_ON_PEERS.search(symbol) is not None


def waiting_groups(nodes: Iterable[GraphNode]) -> dict[str, list[int]]:
    """Return the kernels that wait for other GPUs, by communicator; each one that belongs to no collective is a group of its own."""
    found: dict[str, list[int]] = {}
    for number, node in enumerate(nodes):
        if node.kind is NodeKind.KERNEL and (node.communication is not None or spins_on_peers(node.symbol)):
            name = node.communication.communicator if node.communication is not None else f"node {number}"
            found.setdefault(name, []).append(number)
    return found


def crowds(nodes: Sequence[GraphNode], before: Callable[[int, int], bool], multiprocessors: int) -> Iterator[list[int]]:
    """Yield kernels of several groups that may run side by side, and hold more multiprocessors than there are while they wait for peers.

    ``before``: ``before(one, other)`` tells whether the other one is done before one starts.
    ``multiprocessors``: of the GPU. Each block of a kernel counts as one.
    """
    groups = waiting_groups(nodes)

    def blocks(number: int) -> int:
        return prod(nodes[number].grid)

    for name, mine in groups.items():
        others = [each for other, each in groups.items() if other != name]
        for number in mine:
            free = ([one for one in each if not before(number, one) and not before(one, number)] for each in others)
            together = [number, *(max(each, key=blocks) for each in free if each)]
            if len(together) > 1 and sum(map(blocks, together)) > multiprocessors:
                yield together


def kernel_name(symbol: str) -> str:
    """Name a kernel for pictures and tables, in at most `_LONGEST_NAME` characters; ``symbol`` is its whole name, demangled."""
    return shortened(readable_name(symbol), _LONGEST_NAME)


def _extents(extents: _Extents) -> str:
    """Write (64, 2, 1) as 64·2."""
    x, y, z = extents
    shown = (x, y, z) if z > 1 else (x, y) if y > 1 else (x,)
    return "·".join(map(str, shown))


@dataclass(frozen=True)
class Branching:
    """Cost of branches in a graph, as measured on graphs of spinning kernels (`benchmarks/graph_laws.py`).

    CUDA puts nodes behind the same nodes without predecessors, the *roots*, on the device together, and there an edge costs the same
    within a branch and across. The host puts one root after the other there. A node that comes after nodes of other roots waits for
    them as streams wait for each other.
    """

    roots: tuple[int, ...]
    """The nodes without predecessors, in the order in which the host puts them on the device."""
    leaves: int
    """How many nodes nothing comes after."""
    crossing: tuple[bool, ...]
    """Of each node, whether it comes right after one that does not come after all the roots that it comes after."""

    @classmethod
    def of(cls, before: Sequence[Sequence[int]]) -> Branching:
        """Return it of nodes, each given by those that it comes right after, all before it."""
        above: list[int] = []  # Of each node, a bit for each root that it comes after.
        crossing: list[bool] = []
        roots: list[int] = []
        for node, earlier in enumerate(before):
            bits = 0
            for one in earlier:
                bits |= above[one]
            crossing.append(any(above[one] != bits for one in earlier))
            if not earlier:
                bits = 1 << len(roots) % _MOST_ROOTS
                roots.append(node)
            above.append(bits)
        return cls(tuple(roots), len(before) - len({one for earlier in before for one in earlier}), tuple(crossing))


_MOST_ROOTS = 1024
"""That are told apart, so that a graph of many roots takes no more memory than its nodes."""


def in_order(before: Sequence[Sequence[int]]) -> list[int]:
    """Return a topological order of nodes, each given by those that it comes after, which keeps their own order where it can."""
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
