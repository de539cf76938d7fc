from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.program.reference import run_reference

X = np.random.default_rng(0).standard_normal((3, 5, 4))
PLACES = np.array([[4, 0, -1], [-5, 2, 2]], np.int32)


@given(st.data())
def test_take_is_numpys(data):
    shape = data.draw(nps.array_shapes(max_dims=3, max_side=5))
    axis = data.draw(st.sampled_from([None, *range(-len(shape), len(shape))]))
    count = int(np.prod(shape)) if axis is None else shape[axis]
    indices = data.draw(nps.arrays(np.int64, nps.array_shapes(min_dims=0, max_dims=2, max_side=4), elements=st.integers(-count, count - 1)))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    (found,) = run_reference(ss.program(lambda x, i: np.take(x, i, axis)).trace(x, indices), [x, indices])
    np.testing.assert_array_equal(found, np.take(x, indices, axis))


@pytest.mark.parametrize("index", ["int8", "uint8", "int16", "int32", "int64", "uint64"])
def test_what_is_out_of_range_is_no_element(evaluate, index):
    places = np.array([0, 2, 3, 100], index)
    np.testing.assert_array_equal(evaluate(ss.ops.take, np.array([1.0, 2.0, 3.0]), places), [1, 3, np.nan, np.nan])
    np.testing.assert_array_equal(evaluate(ss.ops.take, np.array([1, 2, 3], "int16"), places), [1, 3, 0, 0])
    if index != "uint8":
        np.testing.assert_array_equal(evaluate(ss.ops.take, np.array([1.0, 2.0, 3.0]), -places - 1), [3, 1, np.nan, np.nan])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_gradients_are_slopes(evaluate, slopes, axis):
    places = PLACES % 3 if axis == 0 else PLACES % 4 if axis == -1 else PLACES

    def forward(x):
        return ss.ops.take(x, ss.ops.to_device(host_places()), axis)

    host_places = ss.host_function(lambda: places, results=[(places.shape, places.dtype)])
    dy = np.random.default_rng(1).standard_normal(np.take(X, places, axis).shape)
    found = evaluate(lambda x, i, dy: ss.ops.take_backward(x, i, dy, axis), X, places, dy)
    np.testing.assert_allclose(found, slopes(forward, dy, X)[0], atol=1e-8)


def test_indices_that_come_again_are_added_up(evaluate):
    tokens, dy = np.array([2, 0, 2, 2, 9, -9]), np.arange(6.0).reshape(6, 1) + 1
    table = np.zeros((3, 1), np.float64)
    np.testing.assert_array_equal(evaluate(ss.ops.embedding_backward, table, tokens, dy), [[2], [0], [1 + 3 + 4]])
    half = evaluate(ss.ops.embedding_backward, table.astype(np.float16), np.zeros(4096, np.int32), np.ones((4096, 1), np.float16))
    assert half[0, 0] == 4096  # in half, a sum of ones stops at 2,048


def test_embedding_is_take_along_the_first_axis(evaluate):
    np.testing.assert_array_equal(evaluate(ss.ops.embedding, X, PLACES % 3), X[PLACES % 3])


def test_cost(launches):
    # 6 rows are written, of 5, each of which is read once. The gradient's blocks, one for each of 5 rows, look through 6 indices each.
    x, places = np.ones((5, 4), np.float32), PLACES.ravel()
    (launch,) = launches(ss.ops.embedding, x, places)
    assert (launch.cost.bytes, launch.cost.flops) == ((5 + 6) * 16 + 24, 0)
    (launch,) = launches(ss.ops.embedding_backward, x, places, np.ones((6, 4), np.float32))
    assert (launch.cost.bytes, launch.cost.flops, launch.cost.blocks) == ((6 * 4 + 5 * 4) * 4 + 24, 6 * 4 + 5 * 6, 5)


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda x, i: ss.ops.take(x, x), r"take: indices are float64.*use whole numbers"),
        (lambda x, i: ss.ops.take(x, i > 0), r"take: indices are bool"),
        (lambda x, i: ss.ops.take(x, i, 3), r"take: axis 3 is outside of shape"),
        (lambda x, i: ss.ops.take(x, i, (0, 1)), r"take: axis=\(0, 1\) is not one axis"),
        (lambda x, i: ss.ops.take(x, i, (0,)), r"take: axis=\(0,\) is not one axis"),
        (lambda x, i: ss.ops.take(x, [0, 1]), r"take at .* got a list instead of a variable"),
        (lambda x, i: np.take(x, i, mode="clip"), r"NumPy's take with mode="),
        (lambda x, i: ss.ops.take_backward(x, i, x, 0), r"dy of shape .* does not fit x .*its shape must be \(2, 3, 5, 4\)"),
        (lambda x, i: ss.ops.embedding_backward(x, i, i), r"x is float64 and dy is int32"),
    ],
)
def test_what_does_not_fit(use, said):
    with pytest.raises(ProgramError, match=said):
        ss.program(use).trace(X, PLACES)
