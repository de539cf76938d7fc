"""Pieces of memory that captured code changes: which they are, without a GPU."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamscope.capturing import state
from streamscope.capturing.memory import around

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda each: (each[0], each[0] + each[1])), max_size=8)


def members(found):
    return {byte for start, end in found for byte in range(start, end)}


@given(spans)
def test_merged_spans_are_the_same_memory_sorted_and_apart(found):
    merged = state._merged(found)
    assert members(merged) == members(found)
    assert sum(end - start for start, end in merged) == len(members(found))
    assert merged == sorted(merged)


@given(spans, spans)
def test_what_is_without_others_is_the_rest(found, others):
    assert members(state._without(state._merged(found), state._merged(others))) == members(found) - members(others)


def test_long_memory_is_saved_in_pieces():
    start, nbytes = 4096, 2 * state.PIECE + 512
    assert [end - at for at, end in state._merged([(start, start + nbytes)])] == [state.PIECE, state.PIECE, 512]


def test_neighbouring_lines_are_one_span_and_the_last_ends_with_the_memory():
    lines = np.array([False, True, True, False, True])
    assert state.rows_of_lines(lines, 1000, 1000 + 4 * state.LINE + 8) == [
        (1000 + state.LINE, 1000 + 3 * state.LINE),
        (1000 + 4 * state.LINE, 1000 + 4 * state.LINE + 8),
    ]


@given(st.integers(0, 90), spans)
def test_the_span_around_an_address(address, found):
    apart = state._merged(found)
    found_around = around(apart, address)
    assert (found_around is not None) == (address in members(apart))
    assert found_around is None or found_around[0] <= address < found_around[1]
