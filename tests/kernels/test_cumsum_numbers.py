"""The kernels of cumulative sums, built for the host or on a GPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss

pytestmark = pytest.mark.slow

# One element, a part of a tile, several tiles, several parts, lines with others beside them, a thread for each, none.
SHAPES = [
    ((1,), 0),
    ((3, 700), 1),
    ((2, 5000), 1),
    ((100_003,), 0),
    ((2, 700, 3), 1),
    ((20_000, 2), 0),
    ((3, 5, 5470), 1),
    ((0, 4), 1),
    ((4, 0), 1),
]


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_values(differing, dtype):
    cases = {}
    for shape, axis in SHAPES:
        x = (np.random.default_rng(0).standard_normal(shape) * 9).astype(dtype)
        for reverse in (False, True):
            cases[f"{shape} {reverse}"] = (lambda x, axis=axis, reverse=reverse: ss.ops.cumsum(x, axis, reverse=reverse)), x
    if dtype == "float32":
        cases["in place"] = (lambda x: ss.ops.cumsum(x, 0, out=x)), np.ones(100_003, np.float32)
    assert differing(cases) == []


def test_whole_numbers_wrap(differing):
    wrapping = {dtype: (ss.ops.cumsum, np.full(5000, 2**62, dtype)) for dtype in ("int64", "uint64")}
    assert differing(wrapping | {"uint8": (ss.ops.cumsum, np.full(5000, 255, np.uint8))}) == []
