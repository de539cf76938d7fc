from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.program.reference import run_reference

FLOATS = ["float16", "float32", "float64"]


def pairs():
    """Two arrays of one shape and dtype, infinities and NaN among their values."""
    shapes = nps.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    return st.tuples(st.sampled_from(FLOATS), shapes).flatmap(lambda spec: st.tuples(nps.arrays(*spec), nps.arrays(*spec)))


def element_by_element(function, *arrays):
    """Compute in Python's own floating point, rounded once at the end: exact for half and single precision."""
    result = np.empty(arrays[0].shape, arrays[0].dtype)
    with np.errstate(all="ignore"):
        for place in np.ndindex(result.shape):
            result[place] = function(*(float(array[place]) for array in arrays))
    return result


@given(pairs())
def test_values(pair):
    a, b = pair
    program = ss.program(lambda a, b: (ss.ops.add(a, b), ss.ops.multiply(a, b), ss.ops.relu(a))).trace(a, b)
    total, product, positive = run_reference(program, [a, b])
    np.testing.assert_array_equal(total, element_by_element(lambda x, y: x + y, a, b))
    np.testing.assert_array_equal(product, element_by_element(lambda x, y: x * y, a, b))
    np.testing.assert_array_equal(positive, element_by_element(lambda x: x if x > 0 or math.isnan(x) else 0.0, a))
    assert total.dtype == product.dtype == positive.dtype == a.dtype


@pytest.mark.parametrize("dtype", FLOATS)
def test_relu_keeps_nan_and_infinity(evaluate, dtype):
    x = np.array([np.nan, np.inf, -np.inf, -1, 0, 2], dtype)
    np.testing.assert_array_equal(evaluate(ss.ops.relu, x), [np.nan, np.inf, 0, 0, 0, 2])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gradients_of_activations_have_their_limits_at_infinity(evaluate, dtype):
    x = np.array([np.inf, -np.inf, np.nan], dtype)
    limits = {
        ss.ops.relu: [1, 0],
        ss.ops.sigmoid: [0, 0],
        ss.ops.softsign: [0, 0],
        ss.ops.log_sigmoid: [0, 1],
        ss.ops.mish: [1, 0],
        ss.ops.erf: [0, 0],
    }
    for function, expected in limits.items():
        got = evaluate(lambda dy, x, function=function: function.gradient(dy, x), np.ones(3, dtype), x)
        np.testing.assert_array_equal(got[:2], expected, err_msg=str(function))
        assert np.isnan(got[2]) or function is ss.ops.relu


def test_half_is_rounded_once(evaluate):
    # 1 + 2**-11 lies half-way between two halves and rounds to even, whichever way it is computed.
    a, b = np.array([1, 65504], np.float16), np.array([2**-11, 65504], np.float16)
    np.testing.assert_array_equal(evaluate(ss.ops.add, a, b), [1, np.inf])


def test_bias_repeats_along_the_last_axis(evaluate):
    x, bias = np.arange(12.0).reshape(2, 2, 3), np.array([10.0, 20.0, 30.0])
    expected = [[[10, 21, 32], [13, 24, 35]], [[16, 27, 38], [19, 30, 41]]]
    np.testing.assert_array_equal(evaluate(ss.ops.bias_add, x, bias), expected)
    np.testing.assert_array_equal(evaluate(ss.ops.bias_add, bias, bias), [20, 40, 60])
    assert evaluate(ss.ops.bias_add, np.zeros((2, 0)), np.zeros(0)).shape == (2, 0)


@pytest.mark.parametrize("operator", [ss.ops.add, ss.ops.multiply])
def test_shapes_must_broadcast(evaluate, operator):
    with pytest.raises(ProgramError, match=rf"{operator.__name__}: shapes \(2, 3\) and \(2,\) do not broadcast"):
        evaluate(operator, np.ones((2, 3)), np.ones(2))


@pytest.mark.parametrize(("x", "bias"), [((2, 3), (2,)), ((2, 3), (2, 3)), ((), (1,)), ((2, 3), ())])
def test_a_bias_that_does_not_fit(evaluate, x, bias):
    with pytest.raises(ProgramError, match=r"bias_add: bias of shape .*one bias for each entry of the last axis"):
        evaluate(ss.ops.bias_add, np.ones(x), np.ones(bias))


@pytest.mark.parametrize(
    ("function", "arrays", "nbytes", "flops", "blocks"),
    [
        # Two operands read and one result written, 4 bytes each; 4 elements a thread, 256 threads a block.
        (ss.ops.add, (np.ones(4096, "f4"), np.ones(4096, "f4")), 3 * 4096 * 4, 4096, 4),
        (ss.ops.relu, (np.ones(4096, "f2"),), 2 * 4096 * 2, 4096, 2),
        (ss.ops.multiply, (np.ones(4096, "f8"), np.ones(4096, "f8")), 3 * 4096 * 8, 4096, 8),
        # 4,097 is no multiple of 4: the last vector is masked.
        (ss.ops.relu, (np.ones(4097, "f4"),), 2 * 4097 * 4, 4097, 5),
        # The bias is read once.
        (ss.ops.bias_add, (np.ones((32, 64), "f4"), np.ones(64, "f4")), (2 * 2048 + 64) * 4, 2048, 2),
        # 63 biases are no multiple of 4, but 64 * 63 elements are.
        (ss.ops.bias_add, (np.ones((64, 63), "f4"), np.ones(63, "f4")), (2 * 64 * 63 + 63) * 4, 64 * 63, 4),
    ],
)
def test_cost(launches, function, arrays, nbytes, flops, blocks):
    (launch,) = launches(function, *arrays)
    assert (launch.cost.bytes, launch.cost.flops, launch.cost.blocks, launch.cost.threads) == (nbytes, flops, blocks, 256)
    assert launch.capturable
    assert launch.cost.product is None


@pytest.mark.parametrize("axes", [33, 64, 65])
def test_arrays_of_too_many_axes(axes):
    shape = (1,) * axes
    with pytest.raises(ProgramError, match=rf"add: a shape has {axes} axes; the most is 32, .*merge axes"):
        ss.program(ss.ops.add).trace(ss.ArraySpec(shape, "float32"), np.ones((2, 2), np.float32))
    if axes == 65:
        return  # NumPy has none
    x = np.ones(shape, np.float32)
    for function in (ss.ops.relu, lambda x: x + 1, lambda x: ss.ops.multiply.gradient(x, x, x), ss.elementwise("y = x + 1")):
        with pytest.raises(ProgramError, match=rf"a shape has {axes} axes; the most is 32"):
            ss.program(function).trace(x)


def test_arrays_of_as_many_axes_as_there_may_be(evaluate):
    assert evaluate(lambda x: x + 1, np.ones((1,) * 32, np.float32)).ndim == 32
