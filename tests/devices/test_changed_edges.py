"""Edges of a captured graph that are replaced: the result orders what is wanted, and programmatic edges stay where they can."""

from __future__ import annotations

import copy
import pickle
from contextlib import nullcontext

from hypothesis import given
from hypothesis import strategies as st

from streamscope.devices.cuda.raw_graph import FULL, RawGraph, changed_edges

PROGRAMMATIC = 1 | 1 << 16
"""CUgraphEdgeData as a number: the programmatic port, and the programmatic type."""


def ancestors(pairs, count):
    """Return for each node all that come before it, by looking at each edge until nothing changes."""
    found = [set() for _ in range(count)]
    changed = True
    while changed:
        changed = False
        for earlier, later in pairs:
            more = found[earlier] | {earlier}
            changed = changed or not more <= found[later]
            found[later] |= more
    return found


@st.composite
def graphs(draw):
    """Draw the edges of a capture with their data, and the order that is wanted of its nodes, in which they need not be numbered."""
    count = draw(st.integers(1, 8))
    pairs = [(one, other) for other in range(count) for one in range(other)]
    kinds = {pair: draw(st.sampled_from([FULL, PROGRAMMATIC])) for pair in pairs if draw(st.booleans())}
    place = draw(st.permutations(range(count)))
    wanted = [[] for _ in range(count)]
    for one, other in pairs:
        first, second = (one, other) if place[one] < place[other] else (other, one)
        if draw(st.booleans()):
            wanted[second].append(first)
    return kinds, tuple(tuple(sorted(each)) for each in wanted)


@given(graphs())
def test_the_new_edges_order_what_is_wanted_and_touch_no_edge_that_stays(given_graph):
    kinds, wanted = given_graph
    removed, added = changed_edges(kinds, wanted)
    assert set(removed) <= kinds.keys()
    assert kinds.keys().isdisjoint(added)
    pairs = {(earlier, number) for number, after in enumerate(wanted) for earlier in after}
    left = kinds.keys() - set(removed)
    assert pairs <= left | set(added)
    assert ancestors(left | set(added), len(wanted)) == ancestors(pairs, len(wanted))
    # What is there and wanted stays as it is, whatever its kind.
    assert pairs & kinds.keys() <= left
    # A kernel that begins early waits as before for all that it waited for in full, if that is still to come before it.
    before = ancestors(pairs, len(wanted))
    for earlier, later in left:
        if kinds[earlier, later] != FULL:
            assert {one for (one, other), kind in kinds.items() if other == later and kind == FULL and one in before[later]} <= {
                one for one, other in left if other == later
            }


def test_a_chain_keeps_its_programmatic_edges_and_a_branch_gets_a_full_one():
    chain = {(0, 1): PROGRAMMATIC, (1, 2): PROGRAMMATIC, (2, 3): FULL}
    assert changed_edges(chain, ((), (0,), (1,), (2,))) == ([], [])
    assert changed_edges(chain, ((), (0,), (0,), (1, 2))) == ([(1, 2)], [(0, 2), (1, 3)])
    # 0 comes before 2 by way of 1 as well, which may begin before 0 is done.
    assert changed_edges({(0, 1): PROGRAMMATIC, (1, 2): PROGRAMMATIC, (0, 2): FULL}, ((), (0,), (1,))) == ([], [])


def test_a_raw_graph_stays_in_its_process():
    raw = RawGraph(1, [2], ((),), nullcontext, None)
    assert pickle.loads(pickle.dumps(raw)) is None
    assert copy.deepcopy({"raw": raw}) == {"raw": None}
