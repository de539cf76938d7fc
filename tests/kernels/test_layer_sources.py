"""Every kernel of the layers compiles for a GPU: of each dtype, in each form."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss

pytestmark = pytest.mark.slow

FLOATS = ["float16", "float32", "float64"]


def layer_norms(dtype):
    """Rows in registers of one thread and of many, in vectors and not, and longer ones."""
    for shape in [(5, 7), (9, 64), (1, 40_001)]:
        x, row = np.ones(shape, dtype), np.ones(shape[-1], dtype)
        yield lambda x, w, b: (ss.ops.layer_norm(x, w, b), ss.ops.layer_norm_backward(x, w, x)[0]), x, row, row


def batch_norms(dtype):
    x, row = np.ones((8, 6, 32), dtype), np.ones(32, dtype)

    def step(x, w, b):
        y, mean, variance = ss.ops.batch_norm_training(x, w, b)
        return y, ss.ops.batch_norm_backward(x, w, mean, variance, y)

    yield lambda x, w, b: (y := step(x, w, b))[1] + (y[0],), x, row, row


def pools(dtype):
    for channels in (3, 8):
        x = np.ones((1, 8, 8, channels), dtype)
        yield lambda x: ss.ops.max_pool_backward(x, ss.ops.max_pool(x, 2), ss.ops.avg_pool(x, 2), 2), x
        yield lambda x: ss.ops.avg_pool_backward(x, ss.ops.avg_pool(x, 2), 2), x


def takes(dtype):
    for columns, index in [(3, "int64"), (8, "int32")]:
        x, places = np.ones((4, columns), dtype), np.ones(5, index)
        yield lambda x, i: ss.ops.embedding_backward(x, i, ss.ops.embedding(x, i)), x, places


def cumulative_sums(dtype):
    for shape, axis in [((300,), 0), ((100_003,), 0), ((3, 5, 5470), 1)]:
        yield lambda x, axis=axis: ss.ops.cumsum(x, axis), np.ones(shape, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layer", [layer_norms, batch_norms, pools, takes, cumulative_sums])
def test_the_kernels_compile(traced_sources, compiled_together, layer, dtype):
    assert list(compiled_together([source for function, *arrays in layer(dtype) for source in traced_sources(function, *arrays)], "sm_90"))
