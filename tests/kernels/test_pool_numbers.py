"""The kernels of pooling and of its gradients, built for the host or on a GPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.kernels.library.cudnn import ConvolutionShape
from streamscope.kernels.pooling import planned_pooling

pytestmark = pytest.mark.slow

FLOATS = ["float16", "float32", "float64"]
SETTINGS = [(2, 2, 0), (3, 2, 1), (2, 3, 1), (9, 1, 8)]


def values(shape, dtype, seed=0):
    """Return few different numbers, so that many windows have several of the largest, and NaN."""
    drawn = np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)
    drawn.reshape(-1)[5::97] = np.nan
    return drawn


def all_of_them(window, stride, padding):
    options = {"stride": stride, "padding": padding}

    def step(x, dy):
        y = ss.ops.max_pool(x, window, **options)
        others = ss.ops.avg_pool(x, window, **options), ss.ops.avg_pool_backward(x, dy, window, **options)
        return y, ss.ops.max_pool_backward(x, y, dy, window, **options), *others

    return step


@pytest.mark.parametrize("dtype", FLOATS)
def test_values(differing, dtype):
    cases = {}
    for channels in (3, 8):
        for setting in SETTINGS:
            x = values((2, 7, 5, channels), dtype)
            shape = ConvolutionShape(x.shape, (channels, setting[0], setting[0], channels), *setting[1:]).y
            dy = np.random.default_rng(1).standard_normal(shape).astype(dtype)
            cases[f"{channels} {setting}"] = all_of_them(*setting), x, dy
    cases["a view"] = (lambda x: ss.ops.max_pool(x[1:], 2)), values((2, 3, 3, 8), dtype)
    assert differing(cases) == []


def test_indices_of_large_images_have_64_bits():
    small = planned_pooling("max_pool", ConvolutionShape((1, 8, 8, 8), (8, 2, 2, 8), 2, 0), "float16", aligned=True)
    large = planned_pooling("max_pool", ConvolutionShape((64, 2048, 2048, 8), (8, 2, 2, 8), 2, 0), "float16", aligned=True)
    assert "typedef int index_t" in small.source.code
    assert "typedef long long index_t" in large.source.code
