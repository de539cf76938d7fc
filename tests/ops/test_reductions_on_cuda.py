"""Reductions, softmax and their gradients on a GPU, against the NumPy references."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.ops import reductions
from streamscope.ops.reductions import norm_of_order
from streamscope.program.reference import run_reference

pytestmark = pytest.mark.gpu

DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"]
SHAPES = [
    ((1000, 33), 1),
    ((1000, 33), 0),
    ((3, 100_000), 1),
    ((100_000, 3), 0),
    ((7, 129, 40), 1),
    ((3000, 16, 64), 1),
    ((40, 5, 3000), 1),
    ((5, 6, 7, 8), (0, 2)),
    ((5, 6, 7, 8), (1, 3)),
    ((300, 64, 49), (0, 2)),
    ((2, 3, 400_001), (0, 2)),
    ((20_000, 34), 0),
    ((50_000, 24), 0),
    ((3, 1601), 1),
    ((200_003, 7), 1),
    ((1_200_001, 3), 1),
    ((30_001, 49), 1),
    ((20_000, 3, 33), 1),
    ((123_457,), None),
    ((), None),
    ((4, 0), 0),
]
NAMES = ("sum", "mean", "prod", "nansum", "nanprod", "max", "min", "any", "all", "argmax", "argmin")
REDUCTIONS = [getattr(reductions, name) for name in NAMES]
NORMS = [norm_of_order(order) for order in (1.0, 2.0, 3.0, float("inf"))]
TOLERANCE = {"float16": 4e-3, "float32": 1e-5, "float64": 1e-12}


def numbers(shape, dtype, name):
    random = np.random.default_rng(0)
    if dtype == "bool":
        return np.asarray(random.random(shape) < 0.99)
    if np.dtype(dtype).kind in "iu":
        return np.asarray(random.integers(1, 4, shape), dtype)
    if "prod" in name:
        return np.asarray(1 + random.standard_normal(shape) / 1000, dtype)
    return np.asarray(random.standard_normal(shape), dtype)


def both(function, *inputs):
    program = ss.program(function).trace(*inputs)
    prepared = ss.prepare(program, engine="async", device="cuda")
    prepared.load(inputs)
    prepared.run()
    return prepared.outputs(), run_reference(program, inputs)


def assert_close(got, expected, scale):
    assert got.dtype == expected.dtype
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected)
        return
    limit = TOLERANCE[got.dtype.name] * np.maximum(np.abs(expected.astype(np.float64)), scale)
    with np.errstate(invalid="ignore"):  # infinity less infinity
        near = np.abs(got.astype(np.float64) - expected) <= limit
    assert (near | (got == expected)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", REDUCTIONS + NORMS, ids=str)
def test_reductions(reduction, dtype):
    for shape, axis in SHAPES:
        if reduction.reducer.located and (isinstance(axis, tuple) or 0 in shape):
            continue
        if 0 in shape and reduction.reducer.name in ("max", "min", "norm_inf"):
            continue
        x = numbers(shape, dtype, reduction.__name__)
        (got,), (expected,) = both(lambda x, axis=axis: reduction(x, axis), x)
        scale = np.abs(x.astype(np.float64)).sum(axis=axis) if x.size else 0
        assert_close(got, expected, scale if "prod" not in reduction.__name__ else 100 * np.abs(expected.astype(np.float64)))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
@pytest.mark.parametrize("reduction", [reductions.sum, reductions.mean, reductions.prod], ids=str)
def test_bytes_at_their_limits(reduction, dtype):
    low, high = {"int8": (-128, 127), "uint8": (0, 255), "bool": (0, 1)}[dtype]
    for shape, axis in (
        ((3, 40_000_000), 1),
        ((40_000_000, 3), 0),
        ((1_000_000, 64), 0),
        ((400_000, 3, 50), (0, 2)),
        ((50_000, 300, 2), (0, 2)),
    ):
        for limit in (low, high):
            (got,), (expected,) = both(lambda x, axis=axis: reduction(x, axis), np.full(shape, limit, dtype))
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", [reductions.argmax, reductions.argmin], ids=str)
def test_the_first_of_the_best_is_found_wherever_it_is(reduction, dtype):
    random = np.random.default_rng(0)
    layouts = (
        ((300, 37), 1),
        ((40_003, 49), 1),
        ((9, 70_001), 1),
        ((70_001, 9), 0),
        ((5000, 256), 0),
        ((4, 77, 64), 1),
        ((9001, 5, 7), 1),
        ((1_000_003,), None),
    )
    for shape, axis in layouts:
        x = np.asarray(random.integers(0, 2, shape), dtype)
        rare = x.copy()
        rare.reshape(-1)[random.integers(0, x.size, 50)] = 3 if dtype != "bool" else 1
        given = [x, rare, np.zeros_like(x)]
        if x.dtype.kind == "f":
            given += [np.full_like(x, -np.inf), np.full_like(x, np.inf), np.where(rare == 3, x.dtype.type(np.nan), x)]
        for values in given:
            (got,), _ = both(lambda x, axis=axis: reduction(x, axis), values)
            np.testing.assert_array_equal(got, getattr(np, reduction.__name__)(values, axis=axis))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("reduction", [*REDUCTIONS[:7], *NORMS], ids=str)
def test_gradients(reduction, dtype):
    for shape, axis in (((40, 33), 1), ((40, 33), 0), ((5, 6, 7, 8), (0, 2)), ((11, 5), None)):
        x = numbers(shape, dtype, reduction.__name__)
        dy = np.ones(np.sum(x, axis=axis).shape, dtype)
        (got,), (expected,) = both(lambda dy, x, axis=axis: reduction.gradient(dy, x, axis), dy, x)
        assert_close(got, expected, 1.0)
        (got,), (expected,) = both(lambda dy, x, b, axis=axis: reduction.gradient(dy, x, axis, out=b, request="add"), dy, x, x.copy())
        assert_close(got, expected, 1.0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(300, 5), (300, 64), (20, 3000), (3, 100_001), (7, 129, 40), (2, 65_536), (5, 9000), (3, 32_768)])
def test_softmax(shape, dtype):
    axis = 1
    x, dy = (np.random.default_rng(seed).standard_normal(shape).astype(dtype) for seed in (0, 1))
    for function in (ss.ops.softmax, ss.ops.log_softmax):
        (got,), (expected,) = both(lambda x, function=function: function(x, axis), x)
        assert_close(got, expected, 1e-3)
    y = np.abs(x) / 100
    for function in (ss.ops.softmax.gradient, ss.ops.log_softmax.gradient):
        (got,), (expected,) = both(lambda dy, y, function=function: function(dy, y, axis), dy, y)
        assert_close(got, expected, np.abs(dy.astype(np.float64)).sum(axis=axis, keepdims=True))
        (got,), (expected,) = both(lambda dy, y, b, function=function: function(dy, y, axis, out=b, request="add"), dy, y, x)
        assert_close(got, expected, np.abs(dy.astype(np.float64)).sum(axis=axis, keepdims=True) + np.abs(x))
    for function in (ss.ops.softmax, ss.ops.log_softmax):
        (got,), (expected,) = both(lambda x, b, function=function: function(x, axis, out=b, request="add"), x, dy)
        assert_close(got, expected, 1 + np.abs(expected.astype(np.float64)) + np.abs(dy.astype(np.float64)))


def test_the_same_twice():
    x = np.random.default_rng(0).standard_normal(10_000_000).astype(np.float32)
    program = ss.program(ss.ops.sum).trace(x)
    prepared = ss.prepare(program, engine="async", device="cuda")
    prepared.load([x])
    results = set()
    for _ in range(5):
        prepared.run()
        results.add(prepared.outputs()[0].tobytes())
    assert len(results) == 1
