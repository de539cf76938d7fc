"""Captures that hypothesis draws, and what it takes to look at each pair of their nodes."""

from __future__ import annotations

from hypothesis import strategies as st

from streamscope.capturing.memory import Access, Evidence, NodeMemory

SPANS = st.tuples(st.integers(0, 12), st.integers(0, 5)).map(lambda one: (one[0], one[0] + one[1]))
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
    """Return for each node all that come before it; those it comes after may have any number."""
    found = {}

    def before(number):
        if number not in found:
            found[number] = set(edges[number]).union(*(before(earlier) for earlier in edges[number]))
        return found[number]

    return [before(number) for number in range(len(edges))]


def conflict(one, other):
    """Tell whether two nodes may not change places."""
    if one.why_unknown or other.why_unknown:
        return True
    return any(max(a.start, b.start) < min(a.end, b.end) and (a.writes or b.writes) for a in one.accesses for b in other.accesses)
