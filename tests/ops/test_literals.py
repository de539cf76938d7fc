"""Numbers mean what they mean in C++, or are told to be none."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.kernels.expression.tokens import LiteralError, literal


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("0", 0, "int32"),
        ("10", 10, "int32"),
        ("010", 8, "int32"),
        ("0x10", 16, "int32"),
        ("0b101", 5, "int32"),
        ("10u", 10, "uint32"),
        ("10L", 10, "int64"),
        ("10llU", 10, "uint64"),
        ("2147483648", 2**31, "int64"),
        ("0x80000000", 2**31, "uint32"),
        ("0xffffffffffffffff", 2**64 - 1, "uint64"),
        ("4294967296u", 2**32, "uint64"),
        ("1.", 1, "float64"),
        ("1.f", 1, "float32"),
        (".5F", 0.5, "float32"),
        ("1e3", 1000, "float64"),
        ("1e3f", 1000, "float32"),
        ("010.5", 10.5, "float64"),
        ("08e1", 80, "float64"),
        ("0x1.8p-1", 0.75, "float64"),
        ("0x1Fp2f", 124, "float32"),
        ("1.000000059604644775390625f", 1, "float32"),  # half-way, to even
        ("16777217.0f", 2**24, "float32"),
        ("3.4028235677e38f", 2.0**128 - 2.0**104, "float32"),
        ("7.1e-46f", 2.0**-149, "float32"),
        ("0x1p-149f", 2.0**-149, "float32"),
        ("0e-400", 0, "float64"),
        ("0x0p-9999f", 0, "float32"),
        ("3e-324", 5e-324, "float64"),
        ("0." + "1" * 5000, 1 / 9, "float64"),
        ("1.5L", 1.5, "float64"),
        ("1e99f", np.inf, "float32"),
        ("0x1p5000", np.inf, "float64"),
        ("1e-400", 0, "float64"),
    ],
)
def test_what_numbers_are_worth(text, value, dtype):
    assert (literal(text), literal(text).dtype.name) == (value, dtype)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *((text, "not a number of C") for text in ("08", "1f", "1h", "0x", "1e", "1.2.3", "1lL", "0x1.8")),
        *((text, "more than 64 bits") for text in ("9223372036854775808", "0x1ffffffffffffffff")),
        ("1" * 5000, "5000 digits needs more than 64 bits"),
    ],
)
def test_what_is_no_number(text, problem):
    with pytest.raises(LiteralError, match=problem):
        literal(text)


def test_numbers_have_their_types_in_the_stand_in(evaluate):
    x = np.array([-1, 5], np.int32)
    lines = ["y = x & 010", "y = x > 2u ? 1 : 0", "y = x / 2u", "y = x * 3000000000 / 3000000000", "y = x + 0x10 + 0b1 + 1.f"]
    results = [evaluate(ss.elementwise(line), x).tolist() for line in lines]
    assert results == [[8, 0], [1, 1], [2**31 - 1, 2], [-1, 5], [17, 23]]
