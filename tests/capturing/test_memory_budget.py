"""Memory that a capture keeps within its budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamscope.capturing.memory import Kept, MemoryHeld

PIECES = st.lists(st.tuples(st.integers(1, 50), st.booleans()), max_size=40)


@given(PIECES, st.integers(0, 300))
def test_only_what_nobody_uses_is_let_go_and_no_more_than_needed(pieces, budget):
    kept = Kept(budget, is_free=lambda piece: piece[1])
    for number, piece in enumerate(pieces):
        kept.add(number, piece, piece[0])
    left = [number for number in range(len(pieces)) if number in kept]
    assert kept.nbytes == sum(pieces[number][0] for number in left)
    assert kept.let_go == len(pieces) - len(left)
    assert all(piece[1] for number, piece in enumerate(pieces) if number not in left)
    if kept.nbytes > budget:  # All but the last is in use.
        assert not any(pieces[number][1] for number in left[:-1])
    if sum(nbytes for nbytes, _ in pieces) <= budget:
        assert kept.let_go == 0


def test_the_oldest_goes_first():
    kept = Kept(200, is_free=lambda _: True)
    for number in range(5):
        kept.add(number, None, 100)
    assert [number in kept for number in range(5)] == [False, False, False, True, True]


def test_the_memory_of_a_capture_is_told_beside_that_of_a_plain_call():
    assert str(MemoryHeld(2**20, ((0, 2**20), (2**21, 2**22)))) == "3.0 MiB held, where a plain call has at most 1.0 MiB in use"
