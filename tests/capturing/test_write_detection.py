"""Which writes are hidden: those that lie outside what a node was said to write."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.capturing import write_detection
from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.capturing.state import LINE
from streamscope.capturing.write_detection import checked_memories, hidden_writes, rows_of_pieces

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


class OutOfMemoryError(Exception):
    """CuPy's."""


@pytest.fixture
def cupy(monkeypatch):
    memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
    monkeypatch.setattr(write_detection, "libraries", lambda: SimpleNamespace(cupy=SimpleNamespace(cuda=SimpleNamespace(memory=memory))))


def test_claims_stand_where_there_is_no_room_to_look(monkeypatch, cupy):
    def full(*_):
        raise OutOfMemoryError

    memories = [memory([(0, 8)])]
    monkeypatch.setattr(write_detection, "observed_writes", lambda *_: write_detection._with_room(full))
    found, (note,) = checked_memories([None], memories, [], [], lambda: None)
    assert found == memories
    assert "no room" in note
    # Behind that step, other ranks run the nodes: they are told by the error that this one does not.
    monkeypatch.setattr(write_detection, "observed_writes", full)
    with pytest.raises(OutOfMemoryError):
        checked_memories([None], memories, [], [], lambda: None)


def test_claims_stand_where_looking_would_take_long(cupy):
    memories = [memory([(0, 8)])] * 2
    assert checked_memories([None] * 2, memories, [(0, write_detection.MOST_LOOKED_AT)], [], lambda: None)[0] == memories


def test_a_node_that_changes_something_else_is_not_understood(monkeypatch, cupy):
    monkeypatch.setattr(write_detection, "observed_writes", lambda *_: [[(0, LINE)], [(4 * LINE, 5 * LINE)], [(0, LINE)]])
    memories = [memory([(0, 8)]), memory([(0, 8)]), NodeMemory(why_unknown="for another reason")]
    (first, second, third), notes = checked_memories([None] * 3, memories, [], [], lambda: None)
    assert notes == ()
    assert first is memories[0]
    assert "changed memory" in second.why_unknown
    assert second.accesses == memories[1].accesses
    assert third is memories[2]


@pytest.mark.parametrize(
    ("bits", "size", "rows"),
    [
        ({0}, write_detection.PIECE, [(0, 1)]),
        ({0, 1, 5, 127}, write_detection.PIECE, [(0, 2), (5, 6), (127, 128)]),
        (set(range(128)), write_detection.PIECE, [(0, 128)]),
        ({1}, LINE + 8, [(1, 1 + 8 / LINE)]),
    ],
)
def test_bits_of_lines_become_rows(bits, size, rows):
    words = [sum(1 << bit - 32 * word for bit in bits if bit // 32 == word) for word in range(4)]
    starts, sizes = np.array([0, 7 * write_detection.PIECE], np.uint64), np.array([0, size], np.uint32)
    found = rows_of_pieces(np.array([[5, 1, *words]], np.uint32), starts, sizes)
    start = 7 * write_detection.PIECE
    assert found == [(5, (start + first * LINE, start + int(last * LINE))) for first, last in rows]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.sets(st.integers(0, 127), min_size=1)), unique_by=lambda one: one[:2]))
def test_rows_of_neighbouring_pieces_are_joined(changed):
    starts, sizes = np.arange(4, dtype=np.uint64) * np.uint64(write_detection.PIECE), np.full(4, write_detection.PIECE, np.uint32)
    words = [[sum(1 << bit - 32 * word for bit in bits if bit // 32 == word) for word in range(4)] for _, _, bits in sorted(changed)]
    rows = np.array([[look, piece, *each] for (look, piece, _), each in zip(sorted(changed), words, strict=True)], np.uint32).reshape(-1, 6)
    found = rows_of_pieces(rows, starts, sizes)
    lines = {(look, at // LINE) for look, (start, end) in found for at in range(start, end, LINE)}
    assert lines == {(look, piece * 128 + bit) for look, piece, bits in changed for bit in bits}
    assert all(one != other or end < start for (one, (_, end)), (other, (start, _)) in pairwise(found))
