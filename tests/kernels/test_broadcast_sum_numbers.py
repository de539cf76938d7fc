"""Sums over broadcast axes: the generated kernels against NumPy in double, over shapes, dtypes, alignments and parts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.reduction_runs import fenced

import streamscope as ss
from streamscope.kernels.form import THREADS
from streamscope.kernels.reduce.broadcast_sum import BLOCKS, VECTOR_BYTES, bind_sum, fitted_sums, fresh_sums
from streamscope.kernels.signature import Parameter, Signature
from streamscope.program.view import row_major

pytestmark = pytest.mark.slow

UNIT = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
SHAPES = [
    # What the operand that is summed to has, and what it is broadcast to.
    ((64,), (3000, 64)),  # a bias: in parts, by vectors of results
    ((33,), (1001, 33)),  # odd: no vectors
    ((3,), (40_000, 3)),
    ((), (70_000,)),
    ((1,), (70_001,)),
    ((500, 1), (500, 40)),  # short rows
    ((70, 1), (70, 3000)),  # long ones
    ((2, 1), (2, 50_001)),
    ((3, 1, 1), (5, 3, 31, 32)),  # of images, channels first
    ((4, 1, 6), (4, 700, 6)),
    ((9000,), (2, 9000)),  # many results of few values
    ((1, 300), (9, 300)),
    ((5, 1, 7, 1), (5, 6, 7, 8)),
]


def signature(dtype="float32", *, accumulate=False, other="float32"):
    parameters = (Parameter("dy", dtype, dtype), Parameter("x", other, other))
    return Signature("product", parameters, dtype, "dy * x", dtype, accumulate=accumulate)


def gradient_of_second(dy, x, s):
    return ss.ops.multiply.gradient(dy, x, s)[1]


def expected_sum(values, shape):
    axes = tuple(range(values.ndim - len(shape)))
    axes += tuple(
        values.ndim - len(shape) + axis for axis, extent in enumerate(shape) if extent != values.shape[values.ndim - len(shape) + axis]
    )
    return values.sum(axis=axes, keepdims=True).reshape(shape)


@pytest.fixture(scope="module")
def programs(new_bench, bound_program):
    bench, made = new_bench(), []
    random = np.random.default_rng(0)
    for shape, walked in SHAPES:
        for dtype in UNIT:
            dy, x = (random.uniform(-1, 2, walked).astype(dtype) for _ in range(2))
            arrays = [dy, x, np.ones(shape, dtype)]
            made.append((shape, dtype, arrays, bound_program(bench, gradient_of_second, arrays)))
    bench.finish()
    return made


def test_sums(programs):
    for shape, dtype, (dy, x, _), program in programs:
        (got,) = program.run()
        terms = dy.astype(np.float64) * x.astype(np.float64)
        bound = expected_sum(np.abs(terms), shape)
        # Each term is rounded once, their sum in a few dozen steps, and the result once.
        inside = UNIT["float32" if dtype == "float16" else dtype] * 40 * bound
        np.testing.assert_array_less(
            np.abs(got - expected_sum(terms, shape)), inside + UNIT[dtype] * 1.01 * np.abs(expected_sum(terms, shape)) + 1e-30
        )


@pytest.mark.parametrize("shape", [(), (8,), (1, 1)])
def test_many_equal_values_are_not_added_one_by_one(new_bench, bound_program, shape):
    """2**22 times 0.1: one by one in float32, in each of 256 threads, is off by 1e-4."""
    walked = (2**22 // 8, 8)
    dy, x = np.ones(walked, np.float32), np.full(walked, 0.1, np.float32)
    bench = new_bench()
    program = bound_program(bench, gradient_of_second, [dy, x, np.ones(shape, np.float32)])
    bench.finish()
    (got,) = program.run()
    np.testing.assert_allclose(got, np.full(shape, 2**22 // max(1, math.prod(shape)) * np.float64(np.float32(0.1))), rtol=3e-6)


@pytest.mark.parametrize("dtype", list(UNIT))
def test_parts_are_added_to_what_is_there(new_bench, bound_program, dtype):
    def adding(dy, s, out):
        ss.ops.bias_add.gradient(dy, dy, s, out=(dy, out), request="add")
        return out

    dy = np.random.default_rng(1).integers(-8, 9, (6000, 16)).astype(dtype)
    start = np.arange(16, dtype=dtype)
    bench = new_bench()
    bound = bound_program(bench, adding, [dy, start, start])
    bench.finish()
    (got,) = bound.run()
    np.testing.assert_array_equal(got, start + dy.astype(np.float64).sum(axis=0))


@pytest.mark.parametrize("at_end", [False, True])
def test_nothing_is_read_beside_the_arrays(host_bench, build, at_end):
    """Arrays flush with a page that nobody may touch, at whatever alignment their sizes leave them."""
    bench, made = host_bench(build), []
    for shape, walked in SHAPES:
        for dtype in ("float16", "float32"):
            dy = fenced(np.ones(walked, dtype), at_end=at_end)
            x, out = fenced(np.full(walked, 0.25, dtype), at_end=not at_end), np.zeros(shape, dtype)
            made.append((out, bind_sum(bench, signature(dtype, other=dtype), [bench.argument(each) for each in (dy, x, out)], {}), dy.size))
    bench.finish()
    for out, call, count in made:
        call()
        np.testing.assert_array_equal(out, np.full(out.shape, count / 4 / out.size).astype(out.dtype))


def test_operands_of_other_dtypes_and_misaligned_ones(host_bench, build):
    bench, made = host_bench(build), []
    random = np.random.default_rng(2)
    for shift in (0, 1, 2, 4):
        for shape in ((), (24,), (50, 1)):
            dy = random.integers(-4, 5, 50 * 24 + shift).astype("float16")[shift:].reshape(50, 24)
            x = random.integers(-4, 5, (24,)).astype("float64")  # repeats along the other axis
            out = np.zeros(shape, "float16")
            call = bind_sum(bench, signature("float16", other="float64"), [bench.argument(each) for each in (dy, x, out)], {})
            made.append((out, call, expected_sum(dy.astype(np.float64) * x, shape)))
    bench.finish()
    for out, call, expected in made:
        call()
        np.testing.assert_array_equal(out, expected.astype("float16"))


extents = st.lists(st.tuples(st.integers(1, 3000), st.booleans()), min_size=1, max_size=4)


@given(extents, st.sampled_from([*UNIT, "int8"]), st.sampled_from([*UNIT, "int8"]), st.booleans(), st.integers(0, 15))
def test_blocks_share_all_values_and_vectors_are_aligned(axes, dtype, other, repeated, shift):
    walked, target = tuple(extent for extent, _ in axes), tuple(1 if gone else extent for extent, gone in axes)
    shapes, taken = (walked, target if repeated else walked, target), signature(dtype, other=other)
    addresses = [shift * np.dtype(dtype).itemsize, shift * np.dtype(other).itemsize, 0]
    for kernel in fitted_sums(taken, shapes, [row_major(shape) for shape in shapes], addresses):
        form = kernel.form
        assert form.loads >= 1
        assert (kernel.parts - 1) * kernel.share < max(1, kernel.count) <= kernel.parts * kernel.share
        assert (kernel.tiles - 1) * form.across < kernel.size <= kernel.tiles * form.across
        assert kernel.share % form.step == 0 == kernel.count % form.step
        assert kernel.size % form.results == 0
        assert form.lanes * (form.across // form.results) == THREADS
        for parameter, run, address in zip(
            kernel.signature.arrays, form.runs, addresses if kernel.signature.name == taken.name else [0], strict=False
        ):
            nbytes = form.width * np.dtype(parameter.stored).itemsize
            assert not run or (nbytes <= VECTOR_BYTES and address % nbytes == 0)
    first, *rest = fitted_sums(taken, shapes, [row_major(shape) for shape in shapes], addresses)
    assert math.prod((first.size, first.count)) == math.prod(walked)
    assert [kernel.count for kernel in rest] == [first.parts] * (first.parts > 1)


def test_a_sum_of_many_values_takes_the_whole_gpu():
    for shape, walked in (
        ((64,), (2**20, 64)),
        ((), (2**26,)),
        ((1,), (2**24, 1)),
        ((16, 1), (16, 2**20)),
        ((32, 1, 1), (64, 32, 112, 112)),
    ):
        first, joining = fresh_sums(signature("float16", other="float16"), (walked, walked, shape))
        assert BLOCKS // 2 < first.blocks <= BLOCKS
        assert joining.blocks < BLOCKS
