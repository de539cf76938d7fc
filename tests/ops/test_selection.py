"""where, clip and astype: by NumPy's functions and methods, on the device's kernels, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.program.variable import SUPPORTED_DTYPES

VALUES = [-300.7, -2.5, -1, -0.5, 0, 0.25, 1, 2.5, 100, 127.9, 300.2, 70_000]
FLOATS = ["float16", "float32", "float64"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.where(x > 0, x, 0.0),
        lambda x: np.where(x > 0, -1, x),
        lambda x: np.where(x, x, 7),
        lambda x: np.where(x > 0, x, x * x),
        lambda x: np.clip(x, -1, 1),
        lambda x: np.clip(x, None, 0.5),
        lambda x: np.clip(x, -0.5, None),
        lambda x: np.clip(x, min=-0.5, max=2.0),
        lambda x: np.clip(x, x * 0.5, 1.0),
        lambda x: x.astype(np.float64),
        lambda x: x.astype("int32", copy=False),
        lambda x: np.astype(x, np.bool_),
    ],
)
def test_numpys_own_functions(evaluate, function):
    x = np.array([[-3.0, -0.25, 0.0], [0.75, 2.0, 30.0]], np.float32)
    got, expected = evaluate(function, x), function(x)
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == expected.dtype


def in_range(values, dtype):
    limits = np.iinfo(dtype)
    return [value for value in values if limits.min <= np.trunc(value) <= limits.max]


@pytest.mark.parametrize("source", SUPPORTED_DTYPES)
def test_astype_is_numpys_within_the_range(evaluate, source):
    given = VALUES if source in FLOATS else [0, 1] if np.dtype(source).kind in "bu" else [-100, -1, 0, 1, 100]
    for target in SUPPORTED_DTYPES:
        with np.errstate(over="ignore"):
            x = np.array(in_range(given, target) if np.dtype(target).kind in "iu" else given, source)
            x = x[np.isfinite(x)]
            expected = x.astype(target)
        got = evaluate(lambda x, target=target: x.astype(target), x)
        np.testing.assert_array_equal(got, expected, err_msg=f"{source} to {target}")
        assert got.dtype == target


def test_astype_to_the_same_dtype_copies_unless_told():
    x = np.ones(3, np.float32)
    assert len(ss.program(lambda x: x.astype("float32")).trace(x).operations) == 1
    assert not ss.program(lambda x: x.astype(np.float32, copy=False)).trace(x).operations
    assert "astype(%0:float32[3], dtype='float16')" in str(ss.program(lambda x: x.astype(np.float16)).trace(x))


def test_gradients_reach_the_operand_that_was_chosen(evaluate):
    x, dy = np.array([-2.0, -1.0, 0.0, 1.0, 3.0]), np.array([1.0, 2.0, 4.0, 8.0, 16.0])

    def gradients(dy, x):
        _, low, high = ss.ops.clip.gradient(dy, x, x * 0 - 1, x * 0 + 1)
        _, left, right = ss.ops.where.gradient(dy, x > 0, x, x)
        return ss.ops.clip.gradient(dy, x, -1, 1)[0], low, high, left, right

    expected = [[0, 2, 4, 8, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 16], [0, 0, 0, 8, 16], [1, 2, 4, 0, 0]]
    np.testing.assert_array_equal(evaluate(gradients, dy, x), expected)


def test_a_gradient_comes_back_in_the_dtype_of_the_operand(evaluate):
    def back(dy, x):
        return ss.ops.astype(dy, x.dtype)

    assert evaluate(back, np.ones(3), np.ones(3, np.float16)).dtype == np.float16


def test_chosen_and_converted_values_fuse(evaluate):
    x = np.linspace(-3, 3, 40, dtype=np.float32)

    def step(x):
        return np.where(np.clip(x, -1, 1).astype(np.float16) > 0.3, x, 0.0).astype(np.float64)

    (operation,) = ss.program(step, fuse=True).trace(x).operations
    assert operation.name == "clip+...+astype (5)"
    np.testing.assert_array_equal(evaluate(ss.program(step, fuse=True), x), step(x))


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda x: np.where(x > 0), r"np\.where of a condition alone at test_selection\.py:\d+ has a result whose size depends on values"),
        (lambda x: np.clip(x, None, None), r"np\.clip at .* has no limit"),
        (lambda x: np.clip(x, 0, 1, dtype=np.float64), r"NumPy's clip with dtype= at .*\(leave dtype out\)"),
        (lambda x: x.astype("uint32"), r"astype: dtype 'uint32' is not supported"),
        (lambda x: x.astype("nonsense"), r"astype: dtype 'nonsense' is unknown to NumPy"),
        (lambda x: ss.ops.astype(3, "float32"), r"astype: it takes variables, got an int"),
        (lambda x: ss.ops.where(True, 1, 2), r"where: all operands are numbers"),
    ],
)
def test_what_is_refused(use, said):
    with pytest.raises(ProgramError, match=said):
        ss.program(use).trace(np.ones(3, np.float32))
