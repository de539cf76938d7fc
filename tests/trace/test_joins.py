"""Joins by key: each wanted key gets the value of the first that has it, however large, sparse or negative keys are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamscope.trace.joins import call_rows, distinct, looked_up
from streamscope.trace.spans import SpanTable

keys = st.lists(st.one_of(st.integers(-2, 12), st.sampled_from([-(2**62), 2**31 - 1, 2**62])), max_size=12)


@given(keys, keys)
def test_it_is_what_a_dictionary_says(having, wanted):
    values = list(range(100, 100 + len(having)))
    first = {}
    for key, value in zip(having, values, strict=True):
        first.setdefault(key, value)
    found = looked_up(np.array(having, np.int64), np.array(values, np.int64), np.array(wanted, np.int64), -7)
    assert found.tolist() == [first.get(key, -7) for key in wanted]


@given(keys, st.integers(-(2**50), 2**50))
def test_different_values_are_those_of_numpy(values, by):
    """Dense and sparse numbers go two ways."""
    for moved in (values, [value + by for value in values if abs(value) < 2**40]):
        numbers = np.array(moved, np.int64)
        used, code = distinct(numbers)
        assert used.dtype == numbers.dtype
        assert used.tolist() == sorted(set(moved))
        assert used[code].tolist() == moved


def test_work_without_a_correlation_has_no_call():
    """Neither does a call without one have work: -1 is no key."""
    spans = SpanTable.of(
        ("launch", "a", "host", 0, 1), ("launch", "b", "host", 2, 3, 4), ("launch", "again", "host", 4, 5, 4),
        ("kernel", "a", "main", 6, 7), ("kernel", "b", "main", 8, 9, 4), ("kernel", "c", "main", 10, 11, 5),
    )  # fmt: skip
    assert call_rows(spans, np.array([3, 4, 5])).tolist() == [-1, 1, -1]
