"""Reductions of bytes, from a build of the generated source for the host, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.kernels.reduction_runs import expected_of, fenced, plan_of, run

from streamscope.kernels.reduce import reduction_kernels, reduction_plan
from streamscope.kernels.reduce.reducers import Reducer
from streamscope.kernels.reduce.reduction_plan import plan_reduction

pytestmark = pytest.mark.slow

BYTES = [((3, 70_000), 1), ((70_000, 3), 0), ((400, 16), 0), ((300, 3, 50), (0, 2)), ((50, 300, 2), (0, 2))]


@pytest.fixture(scope="module")
def sums(build):
    plans = [plan_of(name, dtype, *layout)[0] for name in ("sum", "mean") for dtype in ("int8", "uint8", "bool") for layout in BYTES]
    return build({kernel.source: kernel.source for plan in plans for kernel in plan.kernels})


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
@pytest.mark.parametrize("limit", ["min", "max"])
@pytest.mark.parametrize("name", ["sum", "mean"])
def test_bytes_at_their_limits(sums, name, limit, dtype):
    of = {"int8": (-128, 127), "uint8": (0, 255), "bool": (0, 1)}[dtype]
    for shape, axis in BYTES:
        x = np.full(shape, of[limit == "max"], dtype)
        plan, result = plan_of(name, dtype, shape, axis)
        got = run(sums, plan, x.ctypes.data, np.zeros(result.shape, result.dtype))
        np.testing.assert_array_equal(got, expected_of(name, x, axis))


def test_a_thread_adds_the_bytes_of_many_runs(build, monkeypatch):
    """In 16 bits instead of 32, so that an array of a test is large enough, and in one thread what many would take."""
    monkeypatch.setattr(Reducer, "own_type", lambda reducer, dtype: "short")
    monkeypatch.setattr(Reducer, "adds_bytes", lambda reducer, dtype: False)
    monkeypatch.setattr(reduction_kernels, "prelude", reduction_kernels.prelude.__wrapped__)  # which remembers the reducer as it is
    monkeypatch.setattr(reduction_plan, "MULTIPROCESSORS", 0)
    plan_reduction.cache_clear()
    shape, axis = (400, 3, 200), (0, 2)
    plan, result = plan_of("sum", "int8", shape, axis)
    plan_reduction.cache_clear()
    assert len(plan.kernels) == 1
    assert "typedef short own_t" in plan.kernels[0].source.code
    x = np.full(shape, -128, np.int8)
    got = run(build({plan.kernels[0].source: plan.kernels[0].source}), plan, x.ctypes.data, np.zeros(result.shape, result.dtype))
    np.testing.assert_array_equal(got, expected_of("sum", x, axis))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
def test_products_of_bytes(build, dtype):
    """Of odd numbers, whose product is never 0 in 64 bits; the largest bytes among them."""
    random = np.random.default_rng(0)
    layouts = [*BYTES, ((3, 17), 1), ((50, 24), 0), ((50, 20), 0), ((50, 7), 0)]
    plans = [(shape, axis, *plan_of("prod", dtype, shape, axis)) for shape, axis in layouts]
    bench = build({kernel.source: kernel.source for *_, plan, _ in plans for kernel in plan.kernels})
    for shape, axis, plan, result in plans:
        lowest, highest = {"int8": (-64, 64), "uint8": (0, 128), "bool": (0, 1)}[dtype]
        odd = np.asarray(random.integers(lowest, highest, shape) * 2 + 1, dtype)
        few = np.where(random.random(shape) < 4 / math.prod(shape), {"int8": -128, "uint8": 254, "bool": 0}[dtype], odd).astype(dtype)
        for at_end, values in enumerate((odd, few, np.full(shape, odd.max()))):
            x = fenced(values, at_end=at_end)
            got = run(bench, plan, x.ctypes.data, np.zeros(result.shape, result.dtype))
            np.testing.assert_array_equal(got, expected_of("prod", x, axis).astype(result.dtype))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
def test_bytes_are_found_along_columns(build, name, dtype):
    random = np.random.default_rng(0)
    layouts = [((37, 60), 0), ((131, 24), 0), ((3, 50, 16), 1), ((3000, 48), 0), ((40, 6), 0), ((40_000, 16), 0)]
    plans = [(shape, axis, *plan_of(name, dtype, shape, axis)) for shape, axis in layouts]
    bench = build({kernel.source: kernel.source for *_, plan, _ in plans for kernel in plan.kernels})
    lowest, highest = {"int8": (-128, 127), "uint8": (0, 255), "bool": (0, 1)}[dtype]
    for shape, axis, plan, result in plans:
        rare = np.where(random.random(shape) < 2 / shape[axis], highest if name == "argmax" else lowest, (lowest + highest) // 2)
        for x in (random.integers(lowest, highest + 1, shape), np.full(shape, lowest), np.full(shape, highest), rare):
            given = fenced(x.astype(dtype), at_end=x is rare)
            got = run(bench, plan, given.ctypes.data, np.full(result.shape, -9, result.dtype))
            np.testing.assert_array_equal(got, getattr(np, name)(given, axis=axis), err_msg=f"{shape}")
