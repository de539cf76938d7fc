"""Pieces of memory that captured code changes: which they are, without a GPU."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from unittest import mock

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


def moved(grid, _, arguments):
    """Do what the kernel does, in host memory."""
    ((count,), (parts,)) = grid, arguments
    assert parts.shape == (count, 3)
    for source, target, size in parts.tolist():
        assert 0 < size <= state.MOVED
        if source:
            ctypes.memmove(target, source, size)
        else:
            ctypes.memset(target, 0, size)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3 * state.MOVED), st.integers(0, 2 * state.MOVED + 5)), max_size=4))
def test_all_moves_are_parts_of_one_launch(wanted):
    """Each is told by whether it clears, where its source begins, and how long it is."""
    memory = np.random.default_rng(0).integers(1, 255, 5 * state.MOVED + 8, np.uint8)
    targets = [np.full(size + 2, 7, np.uint8) for _, _, size in wanted]
    pairs = [
        (0 if clears else memory.ctypes.data + at, (target.ctypes.data + 1, target.ctypes.data + 1 + size))
        for (clears, at, size), target in zip(wanted, targets, strict=True)
    ]
    lib = SimpleNamespace(cupy=SimpleNamespace(asarray=np.asarray))
    with mock.patch.object(state, "libraries", return_value=lib), mock.patch.object(state, "_moving", return_value=moved):
        state.Moves(pairs).run()
    for (clears, at, size), target in zip(wanted, targets, strict=True):
        inside = np.zeros(size, np.uint8) if clears else memory[at : at + size]
        assert target.tolist() == [7, *inside.tolist(), 7]
