"""Gradients of reductions, from the generated source built for the host or on a GPU, against NumPy."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from streamscope.ops import reductions
from streamscope.ops.reductions import norm_of_order
from streamscope.program.reference import run_reference

pytestmark = pytest.mark.slow

NORMS = [norm_of_order(order) for order in (1.0, 2.0, 3.0, float("inf"))]
DIFFERENTIABLE = [*(getattr(reductions, name) for name in ("sum", "mean", "prod", "nansum", "nanprod", "max", "min")), *NORMS]
SHAPES = [((7, 33), 1), ((33, 7), 0), ((3, 4, 8), (0, 2)), ((60,), None)]
CASES = [(reduction, dtype) for reduction in DIFFERENTIABLE for dtype in ("float16", "float32", "float64")]


def given(reduction, dtype, shape, axis):
    random = np.random.default_rng(0)
    x = (0.5 + random.random(shape)) * random.choice([-1, 1], shape)
    x.reshape(-1)[::17] = 0
    if reduction.__name__.startswith("nan"):
        x.reshape(-1)[1::9] = np.nan
    return [np.asarray(1 + random.random(np.sum(x, axis=axis).shape), dtype), x.astype(dtype)]


@pytest.fixture(scope="module")
def programs(new_bench, bound_program):
    bench = new_bench()
    made = {}
    for reduction, dtype in CASES:
        for shape, axis in SHAPES:
            arrays = given(reduction, dtype, shape, axis)
            program = bound_program(bench, lambda dy, x, r=reduction, axis=axis: r.gradient(dy, x, axis), arrays)
            made.setdefault((reduction.__name__, reduction.order, dtype), []).append((program, arrays))
    bench.finish()
    return made


@pytest.mark.parametrize(("reduction", "dtype"), CASES, ids=str)
def test_the_reference_means_the_same(programs, reduction, dtype):
    for program, arrays in programs[reduction.__name__, reduction.order, dtype]:
        (result,), (expected,) = program.run(), run_reference(program.program, arrays)
        assert result.dtype == expected.dtype
        tolerance = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-13}[dtype]
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)
        assert np.isfinite(result).all()


# What the elements of a product are multiplied by in it, worked out by hand; gradients are that times the result's, rounded only then.
PRODUCTS = [
    ("prod", "float32", [1e30, 1e30, 1e-30], [1, 1, 1e60]),
    ("prod", "float32", [1e-30, 1e-30, 1e5], [1e-25, 1e-25, 1e-60]),
    ("prod", "float32", [1e20, -1e20, 3], [-3e20, 3e20, -1e40]),
    ("prod", "float32", [1e30, 1e-30, 0], [0, 0, 1]),
    ("prod", "float32", [1e30, 1e30, inf], [inf, inf, 1e60]),
    ("prod", "float32", [-1e-30, 1e-30, inf], [inf, -inf, -1e-60]),
    ("prod", "float16", [300, 300, 0.001], [0.3, 0.3, 9e4]),
    ("prod", "float16", [1e-4, 1e-4, 3e4], [3, 3, 1e-8]),
    ("prod", "float64", [1e200, 1e-200, 3], [3e-200, 3e200, 1]),
    *(
        (name, dtype, x, expected)
        for dtype in ("float16", "float32", "float64")
        for name, x, expected in [
            ("prod", [inf, 2, 3], [6, inf, inf]),
            ("prod", [inf, -2, 3], [-6, inf, -inf]),
            ("prod", [inf, 0, 2], [0, inf, nan]),
            ("prod", [inf, -inf, 2], [-inf, inf, -inf]),
            ("prod", [inf, inf, inf], [inf, inf, inf]),
            ("prod", [-inf, 0, 0], [0, nan, nan]),
            ("prod", [inf, inf, 0], [nan, nan, inf]),
            ("prod", [0, 2, 3], [6, 0, 0]),
            ("prod", [0, 0, 3], [0, 0, 0]),
            ("prod", [nan, inf, 0], [nan, nan, nan]),
            ("nanprod", [nan, inf, 2], [0, 2, inf]),
            ("nanprod", [nan, inf, 0], [0, 0, inf]),
            ("nanprod", [nan, 0, 2], [0, 2, 0]),
        ]
    ),
]
GRADIENTS = [1, -2, 2**-10]
"""Gradients of the result, of a row each."""


@pytest.fixture(scope="module")
def products(new_bench, bound_program):
    """Return a program for each case, of a row or a column for each of `GRADIENTS`."""
    bench = new_bench()
    made = []
    for name, dtype, x, _ in PRODUCTS:
        for axis in (1, 0):
            rows = np.array([x] * len(GRADIENTS), dtype)
            arrays = [np.array(GRADIENTS, dtype), rows if axis else np.ascontiguousarray(rows.T)]
            gradient = getattr(reductions, name).gradient
            made.append((bound_program(bench, lambda dy, x, gradient=gradient, axis=axis: gradient(dy, x, axis), arrays), arrays))
    bench.finish()
    return made


def test_each_gradient_of_a_product_is_the_product_of_the_others(products):
    for number, (program, arrays) in enumerate(products):
        _, dtype, x, others = PRODUCTS[number // 2]
        with np.errstate(over="ignore", under="ignore"):
            expected = np.multiply.outer(GRADIENTS, others).astype(dtype)
        for (result,) in (program.run(), run_reference(program.program, arrays)):
            rows = result if number % 2 == 0 else result.T
            tolerance = {"float16": 2e-3, "float32": 3e-7, "float64": 1e-15}[dtype]
            np.testing.assert_allclose(rows, expected, rtol=tolerance, err_msg=f"{dtype} {x}")


def any_numbers(shape):
    """Return floats of all sizes, of which some are zero or infinite, but none so large or small that seven of them leave double."""
    random = np.random.default_rng(0)
    x = (10 ** random.uniform(-37, 37, shape) * random.choice([-1, 1], shape)).astype(np.float32)
    for special in (0, inf, -inf):
        x[random.random(shape) < 0.04] = special
    return x


@pytest.mark.parametrize("axis", [1, 0])
def test_gradients_of_products_of_any_numbers(new_bench, bound_program, axis):
    x = any_numbers((7, 300))
    with np.errstate(all="ignore"):
        exact = np.stack([np.prod(np.delete(x, row, axis=0).astype(np.float64), axis=0) for row in range(7)])
        expected = (exact * np.float32(1e-20)).astype(np.float32)
    bench = new_bench()
    arrays = [np.full(300, 1e-20, np.float32), x if axis == 0 else np.ascontiguousarray(x.T)]
    program = bound_program(bench, lambda dy, x: reductions.prod.gradient(dy, x, axis), arrays)
    bench.finish()
    (result,) = program.run()
    with np.errstate(under="ignore"):
        np.testing.assert_allclose(result if axis == 0 else result.T, expected, rtol=3e-7, atol=1e-44)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_gradients_of_products_compile(traced_sources, compiled_together, architecture):
    sources = set()
    for gradient in (reductions.prod.gradient, reductions.nanprod.gradient):
        for dtype in ("float16", "float32", "float64"):
            sources |= {*traced_sources(lambda dy, x, gradient=gradient: gradient(dy, x, 1), np.ones(4, dtype), np.ones((4, 64), dtype))}
    assert len(sources) == 3 * (2 + 2 + 2)  # two counts, which both take, and a product and a gradient of each
    assert list(compiled_together(sources, architecture))
