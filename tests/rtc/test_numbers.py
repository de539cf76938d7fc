"""The generated kernels' numbers, from a build for the host: the same source, arguments packed by the same code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.special

import streamscope as ss
from streamscope.rtc.softmax_source import softmax_source

FLOATS = ["float16", "float32", "float64"]
# One element, the vector widths and their neighbours, a block and a bit.
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 16, 255, 256, 257, 1024, 2049]
TOLERANCE = {"float16": 1e-3, "float32": 1e-6, "float64": 1e-14}


def values(shape, dtype, seed=0):
    array = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    flat = array.reshape(-1)
    special = [np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).max, np.finfo(dtype).tiny]
    flat[: len(special) * 7 : 7] = special[: len(flat[: len(special) * 7 : 7])]
    return array


def same_bits(result, expected):
    """Compare NaN by NaN, everything else bit by bit, the sign of zero included."""
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    number = ~np.isnan(expected)
    unsigned = f"u{expected.dtype.itemsize}"
    np.testing.assert_array_equal(result[number].view(unsigned), expected[number].view(unsigned))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", SIZES)
def test_elementwise(bench, on_host, dtype, size):
    a, b = values(size, dtype), values(size, dtype, seed=1)[::-1].copy()
    with np.errstate(all="ignore"):
        same_bits(on_host(bench, ss.add, a, b), a + b)
        same_bits(on_host(bench, ss.multiply, a, b), a * b)
    same_bits(on_host(bench, ss.relu, a), np.where(a < 0, np.zeros_like(a), a))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 8), (2, 3, 4), (5, 33), (40, 16), (16,), (64, 63)])
def test_bias_add(bench, on_host, dtype, shape):
    x, bias = values(shape, dtype), np.random.default_rng(2).standard_normal(shape[-1]).astype(dtype)
    with np.errstate(all="ignore"):
        same_bits(on_host(bench, ss.bias_add, x, bias), x + bias)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [64, 65])
def test_in_place_and_twice_the_same(bench, on_host, dtype, size):
    a, b = (np.random.default_rng(seed).standard_normal(size).astype(dtype) for seed in (0, 1))
    same_bits(on_host(bench, lambda a, b: ss.add(a, b, out=a), a, b), a + b)
    same_bits(on_host(bench, lambda a, b: ss.multiply(a, b, out=b), a, b), a * b)
    same_bits(on_host(bench, lambda a: ss.add(a, a, out=a), a), a + a)
    same_bits(on_host(bench, lambda a: ss.relu(a, out=a), a), np.where(a < 0, np.zeros_like(a), a))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0)])
@pytest.mark.parametrize("function", [ss.relu, lambda x: ss.add(x, x)])
def test_nothing_is_launched_for_no_elements(on_host, shape, function):
    asked = []

    class Bench:
        def kernel(self, source, blocks, threads, arguments):
            asked.append(blocks)
            return lambda: None

    on_host(Bench(), function, np.zeros(shape, np.float32))
    assert asked == [0]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [1, 2, 31, 32, 33, 255, 256, 257, 600])
def test_softmax(bench, on_host, dtype, columns):
    x = (np.random.default_rng(columns).standard_normal((3, columns)) * 4).astype(dtype)
    expected = scipy.special.softmax(x.astype(np.float64), axis=-1)
    np.testing.assert_allclose(on_host(bench, ss.softmax, x), expected, atol=TOLERANCE[dtype])
    np.testing.assert_allclose(on_host(bench, lambda x: ss.softmax(x, out=x), x), expected, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [3, 40, 300])
@pytest.mark.parametrize("place", [0, 1, -1])
def test_softmax_of_extremes(bench, on_host, dtype, columns, place):
    largest, nan = np.finfo(dtype).max, np.nan
    rows = np.zeros((6, columns), dtype)
    rows[:, place] = [largest, -largest, -np.inf, np.inf, nan, 0]
    rows[5] = -np.inf
    expected = np.zeros((6, columns))
    expected[0, place] = 1
    expected[1:3] = 1 / (columns - 1)
    expected[1:3, place] = 0
    expected[3:] = nan
    np.testing.assert_allclose(on_host(bench, ss.softmax, rows), expected, atol=TOLERANCE[dtype])


def drop_first_barrier(code):
    return code.replace("__syncthreads();", "", 1)


def drop_last_barrier(code):
    before, _, after = code.rpartition("__syncthreads();")
    return before + after


def stop_reduction_early(code):
    return code.replace("offset = 16", "offset = 8")


@pytest.mark.parametrize("change", [drop_first_barrier, drop_last_barrier, stop_reduction_early])
def test_the_host_build_notices_a_broken_reduction(build, on_host, change):
    source = softmax_source("float32")
    broken = build({source: replace(source, code=change(source.code))})
    x = np.random.default_rng(0).standard_normal((2, 600)).astype(np.float32)
    expected = scipy.special.softmax(x.astype(np.float64), axis=-1)
    assert not np.allclose(on_host(broken, ss.softmax, x), expected, atol=1e-3)
