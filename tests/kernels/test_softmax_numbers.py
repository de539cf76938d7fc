"""The softmax kernels' numbers, from a build of the generated source for the host."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
import scipy.special

from streamscope.kernels.rows import RowForm
from streamscope.kernels.softmax import softmax_source
from streamscope.ops.softmaxes import _kernel, _log_softmax_gradient_of, _softmax_gradient_of
from streamscope.program.variable import ArraySpec

pytestmark = pytest.mark.slow

FLOATS = ["float16", "float32", "float64"]
TOLERANCE = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-14}
ONE_INPUT = {"softmax": scipy.special.softmax, "log_softmax": scipy.special.log_softmax}
TWO_INPUTS = {"softmax_gradient": _softmax_gradient_of, "log_softmax_gradient": _log_softmax_gradient_of}
# Every number of lanes, kept and not; odd lengths; an axis with others behind it.
SHAPES = [
    ((3, 1), 1),
    ((5, 7), 1),
    ((9, 32), 1),
    ((3, 33), 1),
    ((300, 2), 1),
    ((2, 600), 1),
    ((2, 2056), 1),
    ((2, 9000), 1),
    ((2, 12_001), 1),
    ((2, 40_001), 1),
    ((3, 5, 4), 1),
]
ADDING = [(5, 7), (2, 2056), (2, 40_001), (3, 5, 4)]
"""A row in registers, one in vectors, one that is read twice, and columns."""


@pytest.fixture(scope="module")
def kernels(build):
    sources = {}
    for dtype in FLOATS:
        for shape, axis in [*SHAPES, ((6, 3), 1), ((6, 40), 1), ((6, 40_000), 1)]:
            for name in ("softmax", "log_softmax", "softmax_gradient", "log_softmax_gradient"):
                for aligned in (True, False):
                    for add in (False, True) if shape in ADDING else (False,):
                        inputs = 2 if "gradient" in name else 1
                        source = _kernel(name, ArraySpec(shape, dtype), axis, inputs, aligned=aligned, add=add).source
                        sources[source] = source
    return build(sources)


def run(bench, name, axis, *arrays, aligned=True, out=None, add=False):
    spec = ArraySpec(arrays[0].shape, arrays[0].dtype)
    kernel = _kernel(name, spec, axis, len(arrays), aligned=aligned, add=add)
    result = np.zeros(spec.shape, spec.dtype) if out is None else out
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arrays, result)]
    bench.kernel(kernel.source, kernel.blocks, kernel.threads, [*pointers, *map(ctypes.c_longlong, kernel.numbers)])()
    return result


def numbers(shape, dtype, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(dtype)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_values(kernels, shape, axis, dtype, aligned):
    x = numbers(shape, dtype)
    for name, function in ONE_INPUT.items():
        expected = function(x.astype(np.float64), axis=axis)
        scale = np.maximum(1, np.abs(expected))
        assert (np.abs(run(kernels, name, axis, x, aligned=aligned) - expected) <= TOLERANCE[dtype] * scale).all(), name
    dy, y = numbers(shape, dtype, 1), scipy.special.softmax(x.astype(np.float64), axis=axis).astype(dtype)
    for name, function in TWO_INPUTS.items():
        expected = function(dy.astype(np.float64), y.astype(np.float64), axis)
        scale = np.abs(dy.astype(np.float64)).sum(axis=axis, keepdims=True)
        assert (np.abs(run(kernels, name, axis, dy, y, aligned=aligned) - expected) <= TOLERANCE[dtype] * scale).all(), name


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [3, 40, 40_000])
@pytest.mark.parametrize("place", [0, 1, -1])
def test_extremes(kernels, dtype, columns, place):
    largest, nan = np.finfo(dtype).max, np.nan
    rows = np.zeros((6, columns), dtype)
    rows[:, place] = [largest, -largest, -np.inf, np.inf, nan, 0]
    rows[5] = -np.inf
    expected = np.zeros((6, columns))
    expected[0, place] = 1
    expected[1:3] = 1 / (columns - 1)
    expected[1:3, place] = 0
    expected[3:] = nan
    np.testing.assert_allclose(run(kernels, "softmax", 1, rows), expected, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [7, 2056, 40_001])
def test_in_place(kernels, dtype, columns):
    x = numbers((3, columns) if columns == 7 else (2, columns), dtype)
    if columns == 7:
        x = numbers((5, 7), dtype)
    expected = scipy.special.softmax(x.astype(np.float64), axis=1)
    np.testing.assert_allclose(run(kernels, "softmax", 1, x, out=x), expected, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", ADDING)
def test_added_to(kernels, shape, dtype, aligned):
    x, before = numbers(shape, dtype), numbers(shape, dtype, 2)
    for name, function in ONE_INPUT.items():
        expected = before.astype(np.float64) + function(x.astype(np.float64), axis=1)
        got = run(kernels, name, 1, x, aligned=aligned, out=before.copy(), add=True)
        assert (np.abs(got - expected) <= TOLERANCE[dtype] * np.maximum(1, np.abs(expected) + np.abs(before))).all(), name
    dy, y = numbers(shape, dtype, 1), scipy.special.softmax(x.astype(np.float64), axis=1).astype(dtype)
    for name, function in TWO_INPUTS.items():
        expected = before.astype(np.float64) + function(dy.astype(np.float64), y.astype(np.float64), 1)
        scale = np.abs(dy.astype(np.float64)).sum(axis=1, keepdims=True) + np.abs(before)
        got = run(kernels, name, 1, dy, y, aligned=aligned, out=before.copy(), add=True)
        assert (np.abs(got - expected) <= TOLERANCE[dtype] * scale).all(), name


def drop_barrier(code):
    return code.replace("__syncthreads();", "", 1)


def stop_early(code):
    return code.replace("offset = 16", "offset = 8")


@pytest.mark.parametrize("change", [drop_barrier, stop_early])
def test_the_host_build_notices_a_broken_reduction(build, change):
    source = softmax_source("softmax", "float32", RowForm(1, 256, 3))
    broken = build({source: replace(source, code=change(source.code))})
    x = numbers((2, 600), "float32")
    result = np.zeros_like(x)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, result)]
    broken.kernel(source, 2, 256, [*pointers, ctypes.c_longlong(2), ctypes.c_longlong(600)])()
    assert not np.allclose(result, scipy.special.softmax(x.astype(np.float64), axis=1), atol=1e-4)
