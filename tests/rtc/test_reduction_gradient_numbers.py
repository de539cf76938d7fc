"""Gradients of reductions, from the generated source built for the host or on a GPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from streamscope.ops import reductions
from streamscope.ops.norm import norm_of_order
from streamscope.program.reference import run_reference

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
