"""A few programs with kernels of every kind, against NumPy: the numbers that `make quick` tries. Most other tests of numbers are slow."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.program.reference import run_reference


def element_wise(x, row):
    return x + row, 2 * x * x, ss.ops.exp(x), ss.ops.multiply(x, x, out=x + 1, request="add")


def of_rows(x, row):
    return ss.ops.sum(x, axis=1), ss.ops.max(x, axis=1), ss.ops.argmin(x, axis=1), ss.ops.norm(x, axis=1)


def of_columns(x, row):
    return ss.ops.mean(x, axis=0), ss.ops.min(x, axis=0), ss.ops.argmax(x, axis=0), ss.ops.nansum(x, axis=0)


def of_everything(x, row):
    return ss.ops.sum(x), ss.ops.max(x), ss.ops.argmax(x)


def gradients(x, row):
    return ss.ops.multiply.gradient(x, x, row)


KINDS = {
    "add_": (element_wise, (37, 46)),
    "sum_rows_": (of_rows, (37, 304)),
    "sum_columns_": (of_columns, (70, 33)),
    "sum_short_rows_": (of_rows, (55, 23)),
    "argmax_rows_": (of_everything, (37, 301)),
    "softmax_": (lambda x, row: ss.ops.softmax(x), (37, 301)),
    "_sum_beside_": (gradients, (700, 46)),
}
"""What the name of a kernel has -> a function that has such kernels, and the shape of its first input."""


def inputs_of(shape, dtype):
    random = np.random.default_rng(0)
    return [random.standard_normal(each).astype(dtype) for each in (shape, shape[1:])]


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_a_kernel_of_each_kind(traced_sources, kind):
    function, shape = KINDS[kind]
    assert any(kind in source.name for source in traced_sources(function, *inputs_of(shape, "float32")))


@pytest.fixture(scope="module")
def programs(new_bench, bound_program):
    bench = new_bench()
    made = {}
    for kind, (function, shape) in KINDS.items():
        for dtype in ("float16", "float32"):
            made[kind, dtype] = bound_program(bench, function, inputs_of(shape, dtype))
    bench.finish()
    return made


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_of_each_kind_of_kernel_are_numpys(programs, kind, dtype):
    program, inputs = programs[kind, dtype], inputs_of(KINDS[kind][1], dtype)
    for found, expected in zip(program.run(), run_reference(program.program, inputs), strict=True):
        assert found.dtype == expected.dtype
        rough = 3e-3 if found.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(found, expected, rtol=0, atol=rough * np.abs(expected).max())
