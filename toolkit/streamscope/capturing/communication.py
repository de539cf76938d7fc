"""Collectives in captured code: kind, bytes and communicator of each, from the call of PyTorch's operator that launched it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.devices.graph_node import Communication, NodeKind, spins_on_peers
from streamscope.order.ancestors import has, known_before
from streamscope.program.captured_graph import Edges

_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")
_KINDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "barrier": "barrier",
    "scatter": "scatter",
    "gather": "gather",
    "reduce": "reduce",
    "send": "send",
    "recv": "recv",
}
"""Kinds by how operators are called without underscores, the longer names first; the rest of a name says how arguments are given."""
_KERNELS = re.compile(r"(?:void )?(?:\w+::)*nccl(?:Dev|Symk?)?Kernel")
"""Kernels of NCCL."""
SPINS = "it spins on the memory of other GPUs"
_WIRE = 8, 16
"""Stands for the links: each collective uses them, so all of them stay a chain. It is no address of device memory."""


def is_collective(symbol: str) -> bool:
    """Tell a kernel of NCCL by its name.

    Examples
    --------
    >>> from streamscope.capturing.communication import is_collective
    >>> is_collective("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    True
    """
    return _KERNELS.match(symbol) is not None and not spins_on_peers(symbol)


def uses_links() -> Access:
    """Return the access of each node of a collective that keeps all of them in order."""
    return Access(*_WIRE, reads=True, writes=True, evidence=Evidence.COMMUNICATOR)


def without_links(memory: NodeMemory) -> NodeMemory:
    """Return the accesses of a node but for the order of collectives among each other."""
    return replace(memory, accesses=tuple(one for one in memory.accesses if one.evidence is not Evidence.COMMUNICATOR))


def is_distributed(operator: str) -> bool:
    """Tell whether an operator is one of ``torch.distributed``, by its name, which other words may follow."""
    return operator.partition(".")[0] in _NAMESPACES


def kind_of(operator: str) -> str:
    """Return the kind of a collective by the name of its operator; empty of an operator that is none.

    Examples
    --------
    >>> from streamscope.capturing.communication import kind_of
    >>> kind_of("c10d.allreduce_.default"), kind_of("c10d._allgather_base_.default"), kind_of("aten.add.Tensor")
    ('all_reduce', 'all_gather', '')
    """
    if not is_distributed(operator):
        return ""
    bare = operator.split(".")[1].strip("_")
    found = (kind for name, kind in _KINDS.items() if name.replace("_", "") in bare.replace("_", ""))
    return next(found, "")


def communication_of(operator: str, arguments: Iterable[Any], nbytes: int) -> Communication | None:
    """Return the collective that an operator's call is; None if it is none.

    ``nbytes``: of the largest of its tensors.
    """
    kind = kind_of(operator)
    if not kind:
        return None
    name, ranks = next(filter(None, map(_group, arguments)), ("", ()))
    return Communication(kind, name, ranks, nbytes)


def _group(argument: Any) -> tuple[str, tuple[int, ...]] | None:
    """Return name and ranks of the process group that an argument is or names; None if it is none."""
    distributed = sys.modules["torch.distributed"].distributed_c10d
    name = argument if isinstance(argument, str) else ""
    if type(argument).__name__ == "ScriptObject":
        try:
            name = distributed.ProcessGroup.unbox(argument).group_name
        except (RuntimeError, TypeError):
            return None  # Another object of TorchScript's, such as the operator of a reduction.
    # By name: the object of Python's that belongs to it knows the ranks.
    known = {group.group_name: group for group in distributed._world.pg_map}  # noqa: SLF001 — no public way
    return (name, tuple(distributed.get_process_group_ranks(known[name]))) if name in known else None


def without_early_records(edges: Edges, events: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    """Leave out records of events that are recorded again behind them, and return the nodes that are left with the edges among these.

    NCCL records one event behind each of its kernels, and the next kernel waits for that. Only the last record lets others wait for all of
    them. Without the others, a step of 16 small all-reduces takes 4 % less on two H100.

    ``events``: of each record, by the number of its node.

    Examples
    --------
    >>> from streamscope.capturing.communication import without_early_records
    >>> without_early_records(((), (0,), (1,), (2,)), {1: 7, 3: 7})
    {0: (), 2: (0,), 3: (1,)}
    """
    last, before = {event: node for node, event in sorted(events.items())}, known_before(edges)
    gone = {node for node, event in events.items() if has(before, last[event], node)}
    stands_for: list[tuple[int, ...]] = []
    left: dict[int, tuple[int, ...]] = {}
    for node, direct in enumerate(edges):
        after = tuple(dict.fromkeys(one for earlier in direct for one in stands_for[earlier]))
        stands_for.append(after if node in gone else (len(left),))
        if node not in gone:
            left[node] = after
    return left


def belongs_to_collective(kind: NodeKind, symbol: str) -> bool:
    """Tell whether a node that a collective's operator launched is the collective itself, and not a copy or kernel before or behind it."""
    return kind in (NodeKind.EVENT_RECORD, NodeKind.EVENT_WAIT, NodeKind.HOST) or is_collective(symbol)
