"""What Python itself asks of a variable of a program: its operators and functions, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.program.reference import run_reference

X = np.ones((2, 4), np.float32)


def trace(function, *arguments):
    return ss.program(function).trace(*arguments)


@pytest.mark.parametrize("function", [float, int, complex, lambda x: +x, lambda x: x.__delitem__(0)])
def test_what_python_asks_of_values_is_refused(function):
    with pytest.raises(ProgramError, match="is not an operator of a program"):
        ss.program(lambda x: function(x)).trace(np.ones(3, np.float32))  # noqa: PLW0108 — a built-in function has no signature


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "uint8"])
@pytest.mark.parametrize(
    ("function", "meaning"),
    [
        (lambda x: divmod(x, 2), lambda x: divmod(x, x.dtype.type(2))),
        (lambda x: divmod(7, x), lambda x: divmod(x.dtype.type(7), x)),
        (lambda x: divmod(x, x + 1), lambda x: divmod(x, x + x.dtype.type(1))),
        (lambda x: (round(x),), lambda x: (np.round(x),)),
        (lambda x: (math.floor(x), math.ceil(x), math.trunc(x)), lambda x: (np.floor(x), np.ceil(x), np.trunc(x))),
    ],
)
def test_functions_of_python_mean_what_numpys_do(function, meaning, dtype):
    x = np.array([1, 2, 5.5, 2.5, 7], dtype)
    results = run_reference(trace(function, x), (x,))
    for result, expected in zip(results, meaning(x), strict=True):
        assert result.dtype == x.dtype
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("digits", [2, 0, -1, "many"])
def test_rounding_to_digits_is_refused(digits):
    with pytest.raises(ProgramError, match=rf"round\(\) of 'x' to {digits!r} digits at .*test_symbol.py.*ss.ops.round\(x \* 100\) / 100"):
        trace(lambda x: round(x, digits), X)
