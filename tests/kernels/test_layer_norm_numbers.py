"""The kernels of layer normalization and of its gradients, built for the host or on a GPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss

pytestmark = pytest.mark.slow

FLOATS = ["float16", "float32", "float64"]
# One lane and many, one block a row, vectors and single elements, rows that are read again, one row, none.
SHAPES = [(3, 1), (5, 7), (9, 64), (2, 3, 33), (300, 3), (2, 600), (2, 2056), (1, 9001), (1, 40_001), (4,), (0, 5)]


def inputs(shape, dtype):
    random = np.random.default_rng(len(shape) + shape[-1])
    x, dy = (random.standard_normal(shape).astype(dtype) * 2 + 1 for _ in range(2))
    weight, bias = (random.standard_normal(shape[-1]).astype(dtype) for _ in range(2))
    return x.astype(dtype), weight, bias, dy.astype(dtype)


def backward(x, weight, dy):
    return ss.ops.layer_norm_backward(x, weight, dy)


@pytest.mark.parametrize("dtype", FLOATS)
def test_values(differing, dtype):
    cases = {}
    for shape in SHAPES if dtype != "float64" else SHAPES[1::3]:
        x, weight, bias, dy = inputs(shape, dtype)
        cases[f"whole {shape}"] = ss.ops.layer_norm, x, weight, bias
        cases[f"backward {shape}"] = backward, x, weight, dy
    for shape in [(5, 7), (2, 2056), (1, 40_001)]:
        x, weight, bias, _ = inputs(shape, dtype)
        cases[f"of a view {shape}"] = lambda x, w, b: ss.ops.layer_norm(x[1:], w, b), x, weight, bias
        cases[f"plain {shape}"] = lambda x: ss.ops.layer_norm(x, eps=0.1), x
        cases[f"without bias {shape}"] = ss.ops.layer_norm, x, weight
        cases[f"in place {shape}"] = lambda x, w, b: ss.ops.layer_norm(x, w, b, out=x), x, weight, bias
    assert differing(cases) == []


def test_a_mean_far_from_zero_costs_no_digits(differing):
    x = (1e4 + np.random.default_rng(0).standard_normal((4, 1000))).astype(np.float32)
    assert differing({"far": (ss.ops.layer_norm, x)}) == []
