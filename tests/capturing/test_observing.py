"""Which writes are hidden: those that lie outside what a node was said to write."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.capturing import observing
from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.capturing.observing import checked_memories, hidden_writes
from streamscope.capturing.state import LINE

places = st.integers(0, 20).map(lambda line: line * LINE)
regions = st.lists(st.tuples(places, places).filter(lambda one: one[0] < one[1]), max_size=5)
extents = st.lists(st.tuples(st.integers(0, 20 * LINE), st.integers(1, 3 * LINE)).map(lambda one: (one[0], one[0] + one[1])), max_size=4)


def memory(written, read=()):
    writes = tuple(Access(*region, False, True, Evidence.SCHEMA) for region in written)
    return NodeMemory(writes + tuple(Access(*region, True, False, Evidence.SCHEMA) for region in read))


@given(regions, extents)
def test_lines_without_a_claim_near_them_are_hidden(changed, claimed):
    ((found,)) = hidden_writes([changed], [memory(claimed)])
    lines = {at for start, end in changed for at in range(start, end, LINE)}
    untouched = {at for at in lines if all(end <= at or at + LINE <= start for start, end in claimed)}
    assert {at for start, end in found for at in range(start, end, LINE)} == untouched


def test_what_is_only_read_is_no_claim():
    assert hidden_writes([[(0, LINE)]], [memory([(8 * LINE, 9 * LINE)], read=[(0, LINE)])]) == [[(0, LINE)]]


def test_a_node_that_changes_something_else_is_not_understood(monkeypatch):
    monkeypatch.setattr(observing, "observed_writes", lambda *_: [[(0, LINE)], [(4 * LINE, 5 * LINE)], [(0, LINE)]])
    memories = [memory([(0, 8)]), memory([(0, 8)]), NodeMemory(why_unknown="for another reason")]
    first, second, third = checked_memories([None] * 3, memories, [], [], lambda: None)
    assert first is memories[0]
    assert "changed memory" in second.why_unknown
    assert second.accesses == memories[1].accesses
    assert third is memories[2]


@pytest.mark.parametrize(
    ("bits", "size", "rows"),
    [
        ({0}, observing.PIECE, [(0, 1)]),
        ({0, 1, 5, 127}, observing.PIECE, [(0, 2), (5, 6), (127, 128)]),
        (set(range(128)), observing.PIECE, [(0, 128)]),
        ({1}, LINE + 8, [(1, 1 + 8 / LINE)]),
    ],
)
def test_bits_of_lines_become_rows(bits, size, rows):
    lines = observing._Lines.__new__(observing._Lines)
    lines._starts, lines._sizes = [0, 7 * observing.PIECE], [0, size]
    words = np.array([sum(1 << bit - 32 * word for bit in bits if bit // 32 == word) for word in range(4)], np.uint32)
    start = 7 * observing.PIECE
    assert lines._rows(1, words) == [(start + first * LINE, start + int(last * LINE)) for first, last in rows]
