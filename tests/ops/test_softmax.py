from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.program.reference import run_reference

FLOATS = ["float16", "float32", "float64"]
TOLERANCE = {"float16": 1e-3, "float32": 1e-5, "float64": 1e-12}


@st.composite
def rows(draw):
    dtype = draw(st.sampled_from(FLOATS))
    shape = draw(nps.array_shapes(max_dims=3, max_side=6))
    width = np.dtype(dtype).itemsize * 8
    largest = float(np.finfo(dtype).max) / 4
    return draw(nps.arrays(dtype, shape, elements=st.floats(-largest, largest, width=width)))


@given(rows())
def test_values(x):
    (result,) = run_reference(ss.program(ss.ops.softmax).trace(x), [x])
    assert result.dtype == x.dtype
    expected = scipy.special.softmax(x.astype(np.float64), axis=-1)
    np.testing.assert_allclose(result, expected, atol=TOLERANCE[x.dtype.name])
    np.testing.assert_allclose(result.astype(np.float64).sum(axis=-1), 1, atol=6 * TOLERANCE[x.dtype.name])


@pytest.mark.parametrize("dtype", FLOATS)
def test_extremes(evaluate, dtype):
    largest = np.finfo(dtype).max
    x = np.array([[largest, 0, 0], [-largest, -largest, largest], [-np.inf, 0, 0], [0, np.inf, 0], [np.nan, 0, 0], [-np.inf] * 3], dtype)
    nan = np.nan
    expected = [[1, 0, 0], [0, 0, 1], [0, 0.5, 0.5], [nan] * 3, [nan] * 3, [nan] * 3]
    np.testing.assert_array_equal(evaluate(ss.ops.softmax, x), expected)


def test_half_accumulates_in_single_precision(evaluate):
    # In half, a sum of 4,096 ones stops at 2,048.
    np.testing.assert_array_equal(evaluate(ss.ops.softmax, np.zeros((1, 4096), np.float16)), np.full((1, 4096), 1 / 4096, np.float16))


def test_one_column_is_one(evaluate):
    np.testing.assert_array_equal(evaluate(ss.ops.softmax, np.array([[3.0], [-7.0]])), [[1], [1]])


def test_no_rows(evaluate):
    assert evaluate(ss.ops.softmax, np.ones((0, 5))).shape == (0, 5)


@pytest.mark.parametrize("shape", [(), (3, 0), (0,)])
def test_no_last_axis(evaluate, shape):
    with pytest.raises(ProgramError, match=r"softmax: (shape .* has no (last axis with elements|axis)|axis)"):
        evaluate(ss.ops.softmax, np.ones(shape))


def test_cost(launches):
    # 6 rows of 10: each element read and written, and (by convention) five operations; 16 threads a row, 16 rows a block.
    (launch,) = launches(ss.ops.softmax, np.ones((2, 3, 10), np.float32))
    assert (launch.cost.bytes, launch.cost.flops, launch.cost.blocks, launch.cost.threads) == (2 * 60 * 4, 5 * 60, 1, 256)


@pytest.mark.parametrize("operator", [ss.ops.softmax, ss.ops.log_softmax])
@pytest.mark.parametrize("axis", [0, 1])
def test_gradients_are_slopes(evaluate, operator, axis):
    rng = np.random.default_rng(3)
    x, dy = rng.standard_normal((4, 5)), rng.standard_normal((4, 5))
    got = evaluate(lambda dy, x: operator.gradient(dy, operator(x, axis), axis), dy, x)
    for place in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[place] += 1e-6
        down[place] -= 1e-6
        slope = np.sum(dy * (evaluate(lambda x: operator(x, axis), up) - evaluate(lambda x: operator(x, axis), down))) / 2e-6
        assert got[place] == pytest.approx(slope, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("dtype", FLOATS)
def test_requests(evaluate, dtype):
    x, before = np.array([[1.0, 1.0], [3.0, 3.0]], dtype), np.array([[5.0, 6.0], [7.0, 8.0]], dtype)
    added = evaluate(lambda x, b: ss.ops.softmax(x, out=b, request="add"), x, before)
    np.testing.assert_array_equal(added, np.array([[5.5, 6.5], [7.5, 8.5]], dtype))
    # y * (dy - sum(dy * y)), on top of what was there
    halves, dy = np.full((2, 2), 0.5, dtype), np.array([[1.0, 3.0], [2.0, 0.0]], dtype)
    added = evaluate(lambda dy, y, b: ss.ops.softmax.gradient(dy, y, out=b, request="add"), dy, halves, before)
    np.testing.assert_array_equal(added, np.array([[4.5, 6.5], [7.5, 7.5]], dtype))
    np.testing.assert_array_equal(
        evaluate(lambda x, b: (ss.ops.softmax(x, out=b, request="null"), ss.ops.relu(x))[0] * 1.0, x, before), before
    )


def test_wrong_requests():
    x = np.ones((2, 2), np.float32)
    for request, problem in (("add", "needs a variable"), ("null", "needs a variable"), ("take", "is unknown")):
        with pytest.raises(ProgramError, match=rf"softmax: request='{request}' {problem}"):
            ss.program(lambda x, request=request: ss.ops.softmax(x, request=request)).trace(x)


@pytest.mark.parametrize(
    ("shape", "axis", "stages"),
    [
        ((4, 256), 1, 1),  # A row fits registers.
        ((4, 100_000), 1, 1 + 156),  # Each of 256 threads joins 390 elements.
        ((1000, 64), 0, 1 + 400),  # A thread joins a line.
    ],
)
def test_threads_wait_for_exponentials_of_long_rows(launches, shape, axis, stages):
    x = np.zeros(shape, np.float32)
    (launch,) = launches(lambda x: ss.ops.softmax(x, axis=axis), x)
    assert launch.cost.stages == stages
    (launch,) = launches(lambda x, dy: ss.ops.softmax.gradient(dy, x, axis=axis), x, x)
    assert launch.cost.stages == 1
