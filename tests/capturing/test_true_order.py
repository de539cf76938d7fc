"""The true order of captured code, against a search that looks at each pair of nodes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.capturing.true_order import true_order

SPANS = st.tuples(st.integers(0, 12), st.integers(1, 5)).map(lambda one: (one[0], one[0] + one[1]))
USES = st.sampled_from([(True, False), (False, True), (True, True)])
ACCESSES = st.builds(lambda span, use: Access(*span, *use, Evidence.POINTER), SPANS, USES)
MEMORIES = st.builds(
    lambda accesses, unknown: NodeMemory(tuple(accesses), "no source" if unknown else ""),
    st.lists(ACCESSES, max_size=3),
    st.integers(0, 7).map(lambda number: number == 0),
)


@st.composite
def captures(draw):
    """Draw nodes with their memory and the edges of a capture, most of them chains."""
    memories = draw(st.lists(MEMORIES, max_size=10))
    if draw(st.booleans()):
        return memories, tuple((number - 1,) if number else () for number in range(len(memories)))
    edges = [draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set() for number in range(len(memories))]
    return memories, tuple(tuple(sorted(one)) for one in edges)


def closure(edges):
    """Return for each node all that come before it."""
    found = []
    for before in edges:
        found.append(set(before).union(*(found[earlier] for earlier in before)))
    return found


def conflict(one, other):
    """Tell whether two nodes may not change places."""
    if one.why_unknown or other.why_unknown:
        return True
    return any(a.start < b.end and b.start < a.end and (a.writes or b.writes) for a in one.accesses for b in other.accesses)


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
