"""Causes that order nodes of captured code without need, against orders worked out by hand."""

from __future__ import annotations

from streamscope.capturing.certificate import used_once
from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.capturing.true_order import true_order
from streamscope.devices.graph_node import GraphNode, NodeKind

CHAIN = ((), (0,), (1,), (2,))


def own(number, evidence=Evidence.SCHEMA):
    return Access(512 * number, 512 * number + 512, True, True, evidence)


def nodes_of(*operators):
    return [GraphNode(NodeKind.KERNEL, "kernel", after, operator=name) for name, after in zip(operators, CHAIN, strict=True)]


def test_memory_that_is_handed_out_again_orders_only_because_of_the_allocator():
    """Operator a leaves something in piece 0 and b reads it; c gets it anew from the allocator, and d reads what c left."""
    temporary = own(0, Evidence.ALLOCATED)
    memories = [NodeMemory((one, own(number + 1))) for number, one in enumerate((temporary, own(0), temporary, own(0)))]
    assert true_order(memories, CHAIN) == CHAIN
    apart, again = used_once(nodes_of("a", "b", "c", "d"), memories)
    assert again == [2]
    assert true_order(apart, CHAIN) == ((), (0,), (), (2,))


def test_what_an_operator_of_several_nodes_allocates_is_handed_out_once():
    allocated = own(0, Evidence.ALLOCATED)
    memories = [NodeMemory((own(1), allocated)), *[NodeMemory((allocated,))] * 3]
    assert used_once(nodes_of("a", "a", "a", "a"), memories) == (memories, [])
