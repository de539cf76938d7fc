"""Gradients on a GPU: random programs, half precision, and convolutions of which one gradient is wanted."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from tests.drawn_gradients import INDICES, drawn_gradients

import streamscope as ss
from streamscope.workloads import models

pytestmark = pytest.mark.gpu
RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize("seed", range(20))
def test_random_programs(both, seed):
    case = drawn_gradients(seed)
    program = ss.program(case.gradients).trace(INDICES, *case.inputs, *case.upstream)
    if any("convolution" in operation.name for operation in program.operations):
        pytest.skip("cuDNN computes no convolutions of float64")
    for found, right in zip(*both(case.gradients, INDICES, *case.inputs, *case.upstream, engine="graph-dual"), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(right).max()))


@pytest.mark.parametrize("fuse", [False, True])
def test_attention_in_half(both, fuse):
    arrays = [(RANDOM.standard_normal(shape) / 8).astype("float16") for shape in [(2, 64, 64), *[(64, 64)] * 4, (2, 64, 64)]]
    for found, right in zip(*both(ss.vjp(partial(models.attention, heads=4)).function, *arrays, fuse=fuse), strict=True):
        np.testing.assert_allclose(found, right, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("argnums", [0, 1])
def test_one_gradient_of_a_convolution(both, argnums):
    def loss(x, w):
        return np.square(ss.ops.convolution(x, w, padding=1)).mean()

    x, w = (RANDOM.standard_normal(shape).astype("float32") for shape in [(2, 8, 8, 16), (32, 3, 3, 16)])
    (found,), (right,) = both(ss.grad(loss, argnums).function, x, w)
    np.testing.assert_allclose(found, right, rtol=1e-2, atol=1e-4)
