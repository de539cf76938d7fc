"""The arithmetic of intervals against sets of nanoseconds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamscope.analysis.intervals import count_steps, intersection_ns, union

pairs = st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 8)), max_size=8)


def columns(rows):
    start_ns = np.array([start for start, _ in rows], np.int64)
    return start_ns, start_ns + np.array([length for _, length in rows], np.int64)


def members(rows):
    return {tick for start, length in rows for tick in range(start, start + length)}


def test_touching_intervals_join_and_empty_ones_vanish():
    joined = union(*columns([(10, 5), (0, 4), (4, 2), (8, 0)]))
    assert joined.start_ns.tolist() == [0, 10]
    assert joined.end_ns.tolist() == [6, 15]
    assert joined.length_ns == 11


@given(pairs)
def test_a_union_holds_the_same_nanoseconds(rows):
    joined = union(*columns(rows))
    found = [tick for start, end in zip(joined.start_ns, joined.end_ns, strict=True) for tick in range(start, end)]
    assert found == sorted(members(rows))
    assert (joined.start_ns[1:] > joined.end_ns[:-1]).all()


@given(pairs, pairs)
def test_an_intersection_has_the_length_of_the_common_nanoseconds(first, second):
    assert intersection_ns(union(*columns(first)), union(*columns(second))) == len(members(first) & members(second))


@given(pairs)
def test_steps_count_what_runs(rows):
    steps = count_steps(*columns(rows))
    for tick in range(-21, 30):
        at = np.searchsorted(steps.time_ns, tick, side="right") - 1
        value = steps.value[at] if at >= 0 else 0
        assert value == sum(start <= tick < start + length for start, length in rows)


def test_time_at_each_value():
    assert count_steps(*columns([(0, 10), (5, 10)])).time_at_ns().tolist() == [0, 10, 5]
    assert count_steps(*columns([])).time_at_ns().tolist() == []
