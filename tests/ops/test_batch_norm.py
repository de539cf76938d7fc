"""Variances and batch normalization, with given statistics and with those of the batch; and its gradients."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import ProgramError

RANDOM = np.random.default_rng(7)
X, DY = (RANDOM.standard_normal((2, 3, 4, 5)) for _ in range(2))
W, B, MEAN = (RANDOM.standard_normal(5) for _ in range(3))
VARIANCE = RANDOM.uniform(0.5, 2, 5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "bool"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (1, 2, 3), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_variances_are_numpys(evaluate, dtype, axis, keepdims):
    x = (X * 3 + 2).astype(dtype)
    found = evaluate(lambda x: np.var(x, axis, keepdims=keepdims), x)
    expected = np.var(x, axis, keepdims=keepdims, dtype=np.float32 if dtype == "float16" else None)
    np.testing.assert_allclose(found, expected, rtol=2e-3 if dtype == "float16" else 1e-5, atol=1e-30)
    assert found.dtype == np.var(x, axis).dtype
    assert found.shape == expected.shape


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"])
@pytest.mark.parametrize("count", [1, 2, 8, 15, 16, 17, 32, 48, 256])
def test_variances_around_the_width_of_vectors(evaluate, dtype, count):
    """Of 16 bytes in a row beside a mean in double, a thread cannot load as many at once as of other arrays, but it loads one."""
    x = (np.arange(3 * count) % 5).reshape(3, count).astype(dtype)
    for axis in (None, 0, 1):
        found, expected = evaluate(lambda x, axis=axis: np.var(x, axis), x), np.var(x, axis)
        np.testing.assert_allclose(found, expected, rtol=2e-3 if dtype == "float16" else 1e-6)
        assert found.dtype == expected.dtype


def test_degrees_of_freedom(evaluate):
    np.testing.assert_allclose(evaluate(lambda x: ss.ops.var(x, 0, ddof=1), X), X.var(0, ddof=1))
    with pytest.raises(ProgramError, match=r"has 2 elements along axis 0, less ddof=2 none"):
        evaluate(lambda x: ss.ops.var(x, 0, ddof=2), X)
    with pytest.raises(ProgramError, match=r"var: float64\[0, 3\] has 0 elements"):
        evaluate(ss.ops.var, np.ones((0, 3)))


def test_given_statistics(evaluate):
    expected = (X - MEAN) / np.sqrt(VARIANCE + 1e-5) * W + B
    np.testing.assert_allclose(evaluate(ss.ops.batch_norm, X, W, B, MEAN, VARIANCE), expected, rtol=1e-12)
    half = evaluate(ss.ops.batch_norm, X.astype(np.float16), *(each.astype(np.float32) for each in (W, B, MEAN, VARIANCE)))
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, expected, atol=5e-3)


def test_statistics_of_the_batch_are_results(evaluate):
    y, mean, variance = evaluate(lambda x, w, b: ss.ops.batch_norm_training(x, w, b, eps=0.1), X, W, B)
    np.testing.assert_allclose(mean, X.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(variance, X.var((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(y, (X - mean) / np.sqrt(variance + 0.1) * W + B, rtol=1e-12, atol=1e-12)
    half = evaluate(ss.ops.batch_norm_training, X.astype(np.float16), W.astype(np.float32), B.astype(np.float32))
    assert [each.dtype.name for each in half] == ["float16", "float32", "float32"]


def test_gradients_go_through_the_statistics(evaluate, slopes):
    x, dy = X[:, :2, :2], DY[:, :2, :2]

    def both(x, w, dy):
        _, mean, variance = ss.ops.batch_norm_training(x, w, w)
        return ss.ops.batch_norm_backward(x, w, mean, variance, dy)

    found = evaluate(both, x, W, dy)
    expected = slopes(lambda x, w, b: ss.ops.batch_norm_training(x, w, b)[0], dy, x, W, B)
    for gradient, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(gradient, right, rtol=1e-6, atol=1e-7)


def test_a_running_average_is_a_line_of_the_program(evaluate):
    def step(x, w, b, running):
        y, mean, _ = ss.ops.batch_norm_training(x, w, b)
        return y, running * 0.9 + mean * 0.1

    _, running = evaluate(step, X, W, B, MEAN)
    np.testing.assert_allclose(running, MEAN * 0.9 + X.mean((0, 1, 2)) * 0.1)


def test_the_two_sums_of_the_gradient_can_run_side_by_side():
    operations = ss.program(ss.ops.batch_norm_backward).trace(X, W, MEAN, VARIANCE, DY).operations
    assert [operation.name for operation in operations] == ["batch_norm_gradient_weight", "batch_norm_gradient_bias", "batch_norm_gradient"]
    assert not set(operations[0].writes) & set(operations[1].reads)


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda x, w: ss.ops.batch_norm(x, w, w, w, x), r"variance of shape .* does not fit x .*its shape must be \(5,\)"),
        (lambda x, w: ss.ops.batch_norm_training(x.astype("int32"), w, w), r"batch_norm_training: x is int32"),
        (lambda x, w: ss.ops.batch_norm_training(w, w, w), r"x of shape \(5,\) has no channels"),
        (lambda x, w: ss.ops.batch_norm_training(x, w, 1.0), r"it takes variables, got a float"),
        (lambda x, w: ss.ops.batch_norm_backward(x, w, w, w, x.astype("float32")), r"dy is float32\[.*, x is float64"),
        (lambda x, w: ss.ops.batch_norm_training(x, w, w, eps="small"), r"eps='small' must be a small number"),
        (lambda x, w: np.var(x, dtype=np.float64), r"NumPy's var with dtype="),
        (lambda x, w: ss.ops.var(x, ddof=True), r"ddof=True must be a number"),
    ],
)
def test_what_does_not_fit(use, said):
    with pytest.raises(ProgramError, match=said):
        ss.program(use).trace(X, W)
