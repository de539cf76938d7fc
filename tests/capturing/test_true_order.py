"""The true order of captured code, against a search that looks at each pair of nodes."""

from __future__ import annotations

from hypothesis import given
from tests.capturing.drawn import captures, closure, conflict

from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.capturing.true_order import true_order


@given(captures())
def test_it_keeps_every_order_that_memory_asks_for_and_no_edge_that_is_not_needed(given_capture):
    memories, capture = given_capture
    before, order = closure(capture), true_order(memories, capture)
    needed = [{earlier for earlier in before[number] if conflict(memories[earlier], memory)} for number, memory in enumerate(memories)]
    assert closure(order) == closure(needed)
    for number, edges in enumerate(order):
        assert edges == tuple(sorted(edges))
        for edge in edges:
            assert edge not in set().union(*(closure(order)[other] for other in edges if other != edge)), number


def test_nodes_that_share_nothing_are_free_and_unknown_ones_are_a_chain():
    chain = ((), (0,), (1,), (2,))
    apart = [NodeMemory((Access(512 * n, 512 * n + 512, True, True, Evidence.SCHEMA),)) for n in range(4)]
    assert true_order(apart, chain) == ((), (), (), ())
    assert true_order([NodeMemory(why_unknown="no source")] * 4, chain) == chain
    one_unknown = [*apart[:2], NodeMemory(why_unknown="no source"), apart[3]]
    assert true_order(one_unknown, chain) == ((), (), (0, 1), (2,))
