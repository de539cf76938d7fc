"""Compact layouts mean the same as the shapes and strides that they are made of."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamscope.kernels.layout import INDEX32_LIMIT, broadcast_strides, compact, divisor, layout_numbers
from streamscope.program.view import row_major


@given(st.integers(1, INDEX32_LIMIT - 1), st.integers(0, INDEX32_LIMIT - 1))
def test_division_by_a_multiplication(extent, n):
    magic, shift = divisor(extent)
    assert magic < 2**32
    assert (n * magic >> 32) + n < 2**32  # so that the kernel's sum of 32 bits holds it
    assert ((n * magic >> 32) + n) >> shift == n // extent


def offsets(extents, *strides):
    """Return, for each element in order, its offset in every array."""
    places = np.indices(extents).reshape(len(extents), -1)
    return sorted(zip(*[(np.array(steps)[:, None] * places).sum(axis=0).tolist() for steps in strides], strict=True))


shapes = st.lists(st.integers(1, 4), max_size=4).map(tuple)


@given(shapes, st.data())
def test_compact_layouts_meet_the_same_elements(shape, data):
    mask = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    permutation = data.draw(st.permutations(range(len(shape))))
    operand = tuple(1 if repeated else extent for repeated, extent in zip(mask, shape, strict=True))
    first = broadcast_strides(operand, row_major(operand), shape)
    result = np.empty([shape[axis] for axis in permutation], np.int8).transpose(np.argsort(permutation)).strides
    layout = compact(shape, [first, result])
    assert layout.size == np.prod(shape)
    assert layout.extents == (1,) or 1 not in layout.extents
    if layout.size > 1:
        assert offsets(layout.extents, *layout.strides) == offsets(shape, first, result)
        # The result lies in memory in the order in which it is walked, whatever the order of its axes.
        assert layout.strides[-1] == row_major(layout.extents)


def test_examples_by_hand():
    # Contiguous arrays of one shape are one axis; a bias keeps two; a scalar repeats along one.
    assert compact((2, 3, 4), [(12, 4, 1)] * 2) == compact((24,), [(1,), (1,)])
    assert compact((2, 3, 4), [(12, 4, 1), (0, 0, 1), (12, 4, 1)]).extents == (6, 4)
    assert compact((2, 3, 4), [(0, 0, 0), (12, 4, 1)]).strides == ((0,), (1,))
    assert compact((2, 1, 4), [(4, 4, 1), (0, 0, 1), (4, 4, 1)]).extents == (2, 4)
    assert compact((), [(), ()]).strides == ((1,), (1,))


def test_the_numbers_of_a_layout():
    layout = compact((3, 8), [(8, 1), (0, 1), (8, 1)])
    # Extents; reciprocals of 3 (rounded up: 2**32 * (4 - 3) // 3 + 1) and of 8; shifts; strides of the second array.
    assert layout_numbers(layout, [1]) == [3, 8, 1431655766, 1, 2, 3, 0, 1]
