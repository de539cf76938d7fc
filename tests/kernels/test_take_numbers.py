"""The kernels of take and of its gradient, built for the host or on a GPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss

pytestmark = pytest.mark.slow


def places(count, size, dtype):
    """Return indices, of which some come again and again and some are out of range, on both sides."""
    drawn = np.random.default_rng(size).integers(-count - 2, count + 3, size)
    return np.clip(drawn, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)


def both(axis):
    return lambda x, i, dy: (ss.ops.take(x, i, axis), ss.ops.take_backward(x, i, dy, axis))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_values(differing, dtype):
    cases = {}
    # One element and rows of vectors, more indices than a block has threads, an axis with others around it, rows longer than a block.
    for shape, axis, size, index in [
        ((7,), 0, 300, "int64"),
        ((50, 64), 0, 600, "int32"),
        ((3, 5, 7), 1, 11, "uint8"),
        ((4, 6), None, 33, "int8"),
        ((2, 2100), 0, 3, "int16"),
        ((5, 8), 0, 0, "int32"),
        ((0, 8), 0, 4, "int32"),
    ]:
        x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
        i = places(x.size if axis is None else shape[axis], size, index)
        taken = i.shape if axis is None else (*shape[:axis], size, *shape[axis + 1 :])
        cases[f"{shape} {axis}"] = both(axis), x, i, np.random.default_rng(1).standard_normal(taken).astype(dtype)
    assert differing(cases) == []


def test_whole_numbers(differing):
    cases = {
        dtype: (ss.ops.embedding, np.arange(60).reshape(5, 12).astype(dtype), places(5, 20, "int32")) for dtype in ("int8", "int64", "bool")
    }
    assert differing(cases) == []
