from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import ProgramError

RANDOM = np.random.default_rng(4)
X, W, B, DY = (RANDOM.standard_normal(shape) for shape in ((3, 4, 6), (6,), (6,), (3, 4, 6)))


def by_hand(x, weight, bias, eps):
    result = np.empty_like(x)
    for place in np.ndindex(x.shape[:-1]):
        row = x[place]
        result[place] = (row - row.mean()) / np.sqrt(row.var() + eps) * weight + bias
    return result


def test_rows_are_normalised_scaled_and_shifted(evaluate):
    np.testing.assert_allclose(evaluate(ss.ops.layer_norm, X, W, B), by_hand(X, W, B, 1e-5), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(evaluate(ss.ops.layer_norm, X, W), by_hand(X, W, 0, 1e-5), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(evaluate(lambda x, b: ss.ops.layer_norm(x, None, b, eps=0.5), X, B), by_hand(X, 1, B, 0.5), rtol=1e-12)


def test_gradients_are_slopes(evaluate, slopes):
    x, w, b, dy = X[:2, :2], W, B, DY[:2, :2]
    found = evaluate(ss.ops.layer_norm_backward, x, w, dy)
    for gradient, expected in zip(found, slopes(ss.ops.layer_norm, dy, x, w, b), strict=True):
        np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-7)
    dx, _ = evaluate(lambda x, dy: ss.ops.layer_norm_backward(x, None, dy), x, dy)
    np.testing.assert_allclose(dx, slopes(ss.ops.layer_norm, dy, x)[0], rtol=1e-6, atol=1e-7)


def test_half_is_computed_in_single_precision(evaluate):
    x = np.full((1, 4096), 20, np.float16)
    x[0, ::2] = -20  # in half, the sum of squares would overflow
    np.testing.assert_array_equal(evaluate(lambda x: ss.ops.layer_norm(x, eps=0), x), np.sign(x))


def test_gradients_do_not_wait_for_each_other():
    program = ss.program(ss.ops.layer_norm_backward).trace(X, W, DY)
    assert [operation.name for operation in program.operations] == [
        "layer_norm",
        "layer_norm_gradient_weight",
        "sum",
        "layer_norm_gradient",
    ]
    written = set(program.operations[0].writes)
    assert [bool(written & set(operation.reads)) for operation in program.operations[1:]] == [True, False, False]


def test_cost(launches):
    # x is read and written once, weight and bias are read; 8 operations an element; 8 lanes a row of 6, 32 rows a block.
    (launch,) = launches(ss.ops.layer_norm, X, W, B)
    assert (launch.cost.bytes, launch.cost.flops, launch.cost.blocks, launch.cost.threads) == (8 * (2 * 72 + 12), 8 * 72, 1, 256)


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda x, w: ss.ops.layer_norm(x, x), r"weight of shape \(3, 4, 6\) does not fit the last axis .*its shape must be \(6,\)"),
        (lambda x, w: ss.ops.layer_norm(x, w, eps=-1), r"layer_norm: eps=-1 must be a small number"),
        (lambda x, w: ss.ops.layer_norm(x, w.astype("float32")), r"layer_norm: dtypes float64, float32 do not fit"),
        (lambda x, w: ss.ops.layer_norm(x.astype("int32")), r"layer_norm: dtypes int32 do not fit"),
        (lambda x, w: ss.ops.layer_norm_backward(x, w, w), r"differ|does not broadcast|has shape"),
    ],
)
def test_what_does_not_fit(use, said):
    with pytest.raises(ProgramError, match=said):
        ss.program(use).trace(X, W)


@pytest.mark.parametrize("shape", [(), (3, 0)])
def test_no_last_axis(shape):
    with pytest.raises(ProgramError, match="has no last axis with elements"):
        ss.program(ss.ops.layer_norm).trace(np.ones(shape))


@pytest.mark.parametrize(("columns", "stages"), [(512, 1), (513, 2)])
def test_more_threads_than_a_warp_wait_for_each_other_twice(launches, columns, stages):
    x = np.zeros((8, columns), np.float32)
    (launch,) = launches(ss.ops.layer_norm, x)
    assert launch.cost.stages == stages
