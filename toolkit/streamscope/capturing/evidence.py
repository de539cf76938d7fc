"""What each node touches, put together from all that says so, the strongest first. What nothing explains stays unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamscope.capturing.allocations import Allocated, united
from streamscope.capturing.arguments import pointers_among
from streamscope.capturing.memory import Access, Evidence, NodeMemory, around
from streamscope.capturing.nodes import LaunchableNode
from streamscope.capturing.operators import Operator

_OWN_KERNELS = ("at::", "void at::", "c10::", "void c10::")
"""Kernels of PyTorch's own, which get all that they touch as arguments."""


def node_memories(nodes: Sequence[LaunchableNode], operators: Iterable[Operator], allocated: Allocated) -> list[NodeMemory]:
    """Return what each node reads and writes.

    Copies and sets say it themselves. The nodes of a PyTorch operator may touch all of the operator's tensors, all that it allocated, and
    what any other address in their arguments leads to. Other kernels are not understood.

    Parameters
    ----------
    nodes : sequence of LaunchableNode
    operators : iterable of Operator
        Those that launched nodes. A node that two of them claim is not understood.
    allocated : Allocated
    """
    claims: dict[int, list[Operator]] = {}
    for operator in operators:
        for handle in operator.nodes:
            claims.setdefault(handle, []).append(operator)
    return [_memory(node, claims.get(node.handle, ()), allocated) for node in nodes]


def _memory(node: LaunchableNode, claims: Sequence[Operator], allocated: Allocated) -> NodeMemory:
    if node.memory is not None:
        return node.memory
    if not claims:
        return NodeMemory(why_unknown=f"no operator launched {node.node.name}, and nothing else says what it touches")
    if len(claims) > 1:
        return NodeMemory(why_unknown=f"{claims[0].name} and {claims[1].name} both seem to have launched {node.node.name}")
    return _of_operator(node, claims[0], allocated)


def _of_operator(node: LaunchableNode, operator: Operator, allocated: Allocated) -> NodeMemory:
    if operator.why_unknown:
        return NodeMemory(why_unknown=operator.why_unknown)
    if operator.allocated.stop > len(allocated.made):
        return NodeMemory(why_unknown=f"the allocator's history does not say what {operator.name} allocated")
    made = [allocated.made[number] for number in operator.allocated]
    known = united((*operator.reads, *operator.writes, *made))
    addresses = pointers_among(node.words, allocated.around)
    if not addresses and not node.node.symbol.startswith(_OWN_KERNELS):
        return NodeMemory(why_unknown=f"no address was found in the arguments of {node.node.name}")
    beside = (allocated.around(address) for address in addresses if around(known, address) is None)
    others = dict.fromkeys(region for region in beside if region is not None)
    return NodeMemory(
        (
            *(Access(*region, reads=True, writes=False, evidence=Evidence.SCHEMA) for region in operator.reads),
            *(Access(*region, reads=True, writes=True, evidence=Evidence.SCHEMA) for region in operator.writes),
            *(Access(*region, reads=True, writes=True, evidence=Evidence.ALLOCATED) for region in made),
            *(Access(*region, reads=True, writes=True, evidence=Evidence.POINTER) for region in others),
        )
    )
