"""The kernels of variances and of batch normalization, built for the host or on a GPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss

pytestmark = pytest.mark.slow

FLOATS = ["float16", "float32", "float64"]
SHAPES = [(4, 1), (2, 5, 3, 64), (700, 7)]


def training(x, w, b, dy):
    y, mean, variance = ss.ops.batch_norm_training(x, w, b)
    return y, mean, variance, *ss.ops.batch_norm_backward(x, w, mean, variance, dy, eps=0.5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_values(differing, dtype):
    cases = {}
    for shape in SHAPES:
        random = np.random.default_rng(shape[-1])
        x, dy = (random.standard_normal(shape).astype(dtype) for _ in range(2))
        w, b = (random.standard_normal(shape[-1]).astype("float32" if dtype == "float16" else dtype) for _ in range(2))
        cases[f"training {shape}"] = training, x, w, b, dy
        cases[f"inference {shape}"] = ss.ops.batch_norm, x, w, b, b, np.abs(w)
    assert differing(cases) == []


def test_variances(differing):
    cases = {}
    for dtype in (*FLOATS, "int8"):
        x = (np.random.default_rng(0).standard_normal((6, 5, 33)) * 3 + 1).astype(dtype)
        for axis, keepdims in [(None, False), (0, False), (1, True), (2, False), ((0, 2), False), ((), True)]:
            cases[f"{dtype} {axis}"] = (lambda x, axis=axis, keepdims=keepdims: ss.ops.var(x, axis, keepdims=keepdims)), x
        cases[f"{dtype} of a view"] = (lambda x: ss.ops.var(x.swapaxes(0, 2)[1:, ::2], 1)), x
    for dtype in ("int8", "uint8", "bool"):  # in whole vectors
        x = (np.arange(6 * 48) % 5).reshape(6, 48).astype(dtype)
        cases |= {f"vectors of {dtype} {axis}": ((lambda x, axis=axis: ss.ops.var(x, axis)), x) for axis in (None, 0, 1)}
    assert differing(cases) == []
