"""The reduction kernels' numbers, from a build of the generated source for the host, against NumPy."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from tests.combinations import in_pairs
from tests.kernels.reduction_runs import FLOATS, TOLERANCE, WHOLE, expected_of, numbers, plan_of, run

from streamscope.kernels.reduce import reduction_plan
from streamscope.kernels.reduce.reducers import REDUCERS
from streamscope.kernels.reduce.reduction_plan import plan_reduction

pytestmark = pytest.mark.slow

LAYOUTS = [
    # shape, axis: rows of every number of lanes, masked ends, columns, both together, outer runs
    ((1,), None),
    ((5, 3), 1),
    ((40, 17), 1),
    ((3, 333), 1),
    ((2, 1501), 1),
    ((3, 1601), 1),
    ((4, 3, 5), 1),
    ((5, 3), 0),
    ((333, 40), 0),
    ((70, 33), 0),
    ((70, 34), 0),
    ((70, 36), 0),
    ((2, 37, 12), 1),
    ((70, 9, 16), 1),
    ((3, 4, 5, 6), (0, 2)),
    ((3, 4, 5, 6), (1, 3)),
    ((9, 3, 50), (0, 2)),
    ((2, 3, 9000), (0, 2)),
    ((4, 5, 6), None),
    ((), None),
    ((1, 4, 1), (0, 2)),
]
FEW = [((3, 333), 1), ((70, 33), 0), ((4, 5, 6), None)]
NORMS = [1.0, 2.0, 3.0, float("inf")]
FUNCTIONS = [*(name for name in REDUCERS if not name.startswith("norm")), *(f"norm {order}" for order in NORMS)]


def cases():
    """Every function in every dtype; and every layout in a dtype of each width that counts, for a value and for a place in turns.

    Of the pairs, a function meets each kind of layout in one dtype of floats only: three functions meet it in all of them.
    """
    chosen = [
        *in_pairs(FUNCTIONS, FLOATS + WHOLE, FEW),
        *product(("max", "nansum", "norm 1.0"), FLOATS, FEW),
        *((name, dtype, layout) for layout, dtype, name in in_pairs(LAYOUTS, ("float16", "float32", "int8"), ("sum", "argmax"))),
    ]
    for name, dtype, (shape, axis) in dict.fromkeys(chosen):
        if not (name.startswith("arg") and isinstance(axis, tuple)):
            yield name, dtype, shape, axis


WITH_IDENTITY = ["sum", "prod", "any", "all", "nansum"]
TIES = [((60, 37), 1), ((60, 300), 1), ((37, 60), 0), ((131, 24), 0), ((3, 50, 16), 1)]
LARGE = [
    ("sum", "float32", (1, 300_000), 1),
    ("argmax", "float16", (100_000,), None),
    ("max", "int32", (40_000, 3), 0),
    ("mean", "int8", (3, 500_000), 1),
    # A few long runs, each of which is split.
    ("sum", "float32", (2, 3, 40_001), (0, 2)),
    ("sum", "int8", (3, 2, 300_003), (0, 2)),
    ("max", "int16", (2, 2, 2, 50_007), (1, 3)),
]


@pytest.fixture(scope="module")
def reductions(build):
    sources = {}
    for case in [*cases(), *LARGE]:
        sources |= {kernel.source: kernel.source for kernel in plan_of(*case)[0].kernels}
    for name in ("sum", "nansum", "nanprod", "max", "min", "argmax", "argmin", "any", "all"):
        for dtype in FLOATS:
            sources |= {kernel.source: kernel.source for kernel in plan_of(name, dtype, (5, 3), 1)[0].kernels}
        for shape, axis in TIES if name.startswith("arg") else ():
            for dtype in (*FLOATS, "int8"):
                sources |= {kernel.source: kernel.source for kernel in plan_of(name, dtype, shape, axis)[0].kernels}
    for name in WITH_IDENTITY:
        sources |= {kernel.source: kernel.source for kernel in plan_of(name, "float32", (4, 0), 1)[0].kernels}
    for options in ({}, {"add": True}, {"strides": (2, 60)}, {"strides": (-33, -1)}):
        for name in ("sum", "argmin", "norm 2.0"):
            sources |= {kernel.source: kernel.source for kernel in plan_of(name, "float32", (20, 33), 1, **options)[0].kernels}
    return build(sources)


@pytest.mark.parametrize("dtype", FLOATS + WHOLE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_reductions_equal_numpy(reductions, name, dtype):
    for _, _, shape, axis in (case for case in cases() if case[:2] == (name, dtype)):
        x = numbers(shape, dtype, name)
        plan, result = plan_of(name, dtype, shape, axis)
        out = np.full(result.shape, 77, result.dtype)
        got = run(reductions, plan, x.ctypes.data, out)
        expected = expected_of(name, x, axis)
        if result.dtype.kind == "f":
            scale = expected_of("norm 1.0", x, axis) if "prod" not in name else np.abs(expected) * 10
            allowed = TOLERANCE[result.dtype.name] * scale
            assert (np.abs(got - expected) <= allowed).all(), f"{shape} {axis}"
        else:
            np.testing.assert_array_equal(got, expected.astype(result.dtype), err_msg=f"{shape} {axis}")


@pytest.mark.parametrize(("name", "dtype", "shape", "axis"), LARGE)
def test_split_reductions(reductions, name, dtype, shape, axis):
    x = numbers(shape, dtype, name)
    plan, result = plan_of(name, dtype, shape, axis)
    assert len(plan.kernels) == 2
    if isinstance(axis, tuple):
        _, _, outer, splits = plan.kernels[0].numbers[:4]
        assert splits > outer
    got = run(reductions, plan, x.ctypes.data, np.zeros(result.shape, result.dtype))
    np.testing.assert_allclose(got, expected_of(name, x, axis), rtol=1e-4, atol=1e-2)


def test_counting_with_64_bits(build, monkeypatch):
    """No array of a test is that long, so the limit is set low."""
    monkeypatch.setattr(reduction_plan, "INDEX32_COUNT", 2)
    plan_reduction.cache_clear()
    layouts = [((4, 3333), 1), ((333, 40), 0), ((100_000,), None), ((3, 50, 16), 1)]
    plans = [
        (*case, *plan_of(*case))
        for name in ("sum", "argmax", "argmin", "max")
        for dtype in ("float32", "int8")
        for case in [(name, dtype, *layout) for layout in layouts]
    ]
    plan_reduction.cache_clear()
    bench = build({kernel.source: kernel.source for *_, plan, _ in plans for kernel in plan.kernels})
    for name, dtype, shape, axis, plan, result in plans:
        assert "typedef long long index_t" in plan.kernels[0].source.code
        x = numbers(shape, dtype, name)
        got = run(bench, plan, x.ctypes.data, np.zeros(result.shape, result.dtype))
        np.testing.assert_allclose(got, expected_of(name, x, axis), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 5])
def test_rows_that_begin_anywhere(reductions, offset):
    memory = np.random.default_rng(0).standard_normal(4900).astype(np.float32)
    for shape in ((20, 33), (3, 1601)):
        x = memory[offset : offset + math.prod(shape)].reshape(shape)
        plan, result = plan_of("sum", "float32", shape, 1)
        got = run(reductions, plan, x.ctypes.data, np.zeros(result.shape, result.dtype))
        np.testing.assert_allclose(got, x.sum(1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["sum", "argmin", "norm 2.0"])
def test_strided_input(reductions, name):
    memory = np.random.default_rng(0).standard_normal((33, 60)).astype(np.float32)
    x = memory[:, :40:2].T
    plan, result = plan_of(name, "float32", (20, 33), 1, strides=(2, 60))
    got = run(reductions, plan, x.ctypes.data, np.zeros(result.shape, result.dtype))
    np.testing.assert_allclose(got, expected_of(name, x, 1), rtol=1e-5, atol=1e-5)
    backwards = np.ascontiguousarray(memory[:20, :33])[::-1, ::-1]
    plan, result = plan_of(name, "float32", (20, 33), 1, strides=(-33, -1))
    got = run(reductions, plan, backwards.ctypes.data, np.zeros(result.shape, result.dtype))
    np.testing.assert_allclose(got, expected_of(name, backwards, 1), rtol=1e-5, atol=1e-5)


def test_adding_to_what_is_there(reductions):
    x = numbers((20, 33), "float32", "sum")
    plan, result = plan_of("sum", "float32", (20, 33), 1, add=True)
    got = run(reductions, plan, x.ctypes.data, np.full(result.shape, 5, result.dtype))
    np.testing.assert_allclose(got, 5 + x.sum(1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_and_infinities(reductions, dtype):
    x = np.zeros((5, 3), dtype)
    x[0] = [1, np.nan, 3]
    x[1] = [np.inf, -np.inf, 0]
    x[2] = [np.nan, np.nan, -1]
    x[3] = [-np.inf, -np.inf, -np.inf]
    x[4] = [2, 2, 1]
    for name in ("sum", "nansum", "nanprod", "max", "min", "argmax", "argmin", "any", "all"):
        plan, result = plan_of(name, dtype, x.shape, 1)
        got = run(reductions, plan, x.ctypes.data, np.zeros(result.shape, result.dtype))
        np.testing.assert_array_equal(got, expected_of(name, x, 1).astype(result.dtype), err_msg=name)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
def test_the_first_of_the_best_is_found_wherever_it_is(reductions, name, dtype):
    random = np.random.default_rng(0)
    for shape, axis in TIES:
        x = np.asarray(random.integers(-1, 2, shape), dtype)  # many are alike
        best = np.zeros(shape, bool)
        np.put_along_axis(best, random.integers(0, shape[axis], (*shape[:axis], 1, *shape[axis + 1 :])), values=True, axis=axis)
        worst = x.astype(np.float64).max() if name == "argmin" else x.astype(np.float64).min()
        hopeless = -np.inf if name == "argmax" else np.inf
        for values in (x, np.where(best, -worst * 2, x), np.full(shape, worst), np.full(shape, hopeless), np.where(best, np.nan, x)):
            if dtype == "int8" and not np.isfinite(values).all():
                continue
            given = np.asarray(values, dtype)
            plan, result = plan_of(name, dtype, shape, axis)
            got = run(reductions, plan, given.ctypes.data, np.full(result.shape, -9, result.dtype))
            np.testing.assert_array_equal(got, getattr(np, name)(given, axis=axis))


@pytest.mark.parametrize("name", WITH_IDENTITY)
def test_nothing_to_reduce_gives_the_identity(reductions, name):
    plan, result = plan_of(name, "float32", (4, 0), 1)
    got = run(reductions, plan, 0, np.full(result.shape, 9, result.dtype))
    np.testing.assert_array_equal(got, expected_of(name, np.zeros((4, 0), np.float32), 1))


def test_no_results_launch_nothing():
    plan, _ = plan_of("sum", "float32", (0, 4), 1)
    assert plan.kernels == ()
