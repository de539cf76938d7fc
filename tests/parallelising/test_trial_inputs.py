"""Inputs made like given ones can be used wherever those could."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamscope.parallelising.proving import made_like

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6)


@given(hnp.arrays(np.int64, SHAPES, elements=st.integers(-5, 5)), st.integers(0, 99))
def test_whole_numbers_stay_within_the_range_of_their_row_along_each_axis(values, seed):
    made = made_like(values, np.random.default_rng(seed))
    assert (made.shape, made.dtype) == (values.shape, values.dtype)
    axes = [axis for axis, length in enumerate(values.shape) if length > 1]
    for axis in axes if len(axes) > 1 else ():
        for place in range(values.shape[axis]):
            before, after = values.take(place, axis), made.take(place, axis)
            assert not before.size or (after.min() >= before.min() and after.max() <= before.max())


@given(hnp.arrays(np.int64, st.integers(2, 30), elements=st.integers(-5, 5)), st.integers(0, 99))
def test_a_row_of_whole_numbers_changes_places_unless_it_is_sorted(values, seed):
    made = made_like(values, np.random.default_rng(seed))
    assert sorted(made) == sorted(values)
    if list(values) == sorted(values):
        assert list(made) == list(values)


def test_rows_do_change():
    values = np.random.default_rng(1).permutation(100)
    assert (made_like(values, np.random.default_rng(0)) != values).sum() > 90
    flags = np.arange(100) % 3 == 0
    assert (made_like(flags, np.random.default_rng(0)) != flags).any()


@given(hnp.arrays(np.float32, SHAPES, elements=st.floats(-100, 100, width=32)), st.integers(0, 99))
def test_floats_keep_their_scale_and_signs(values, seed):
    made = made_like(values, np.random.default_rng(seed))
    assert (made.shape, made.dtype) == (values.shape, values.dtype)
    assert (np.sign(made) != 0).sum() <= (np.sign(values) != 0).sum()
    assert np.abs(made).max(initial=0) <= 1.5 * np.abs(values).max(initial=0) * 1.000001
    assert (made > 0).sum() <= (values > 0).sum()


def test_numbers_at_the_end_of_their_range_make_no_noise():
    assert np.isinf(made_like(np.full(50, 60_000, np.float16), np.random.default_rng(0))).any()
