"""Dtypes of results are NumPy's for every pair of dtypes and every kind of number; errors and programs say what made one wider."""

from __future__ import annotations

import itertools
import operator as python

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.program.reference import run_reference

DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"]
NUMBERS = [True, 1, 1.0, *(np.dtype(dtype).type(1) for dtype in (*DTYPES, "uint16", "uint32", "uint64"))]
PAIRS = [*itertools.product(DTYPES, DTYPES), *itertools.product(DTYPES, NUMBERS), *itertools.product(NUMBERS, DTYPES)]
BINARY = [
    python.add, python.sub, python.mul, python.truediv, python.floordiv, python.mod, python.pow, python.lt, python.eq, python.and_,
    python.lshift, np.add, np.maximum, np.fmin, np.hypot, np.logical_or, np.copysign,
]  # fmt: skip


def operands(pair):
    return [np.ones(2, each) if isinstance(each, str) else each for each in pair]


def numpys_dtype(function, given):
    """Return the dtype of NumPy's result; None where it raises, or the dtype is not one of a variable."""
    try:
        with np.errstate(all="ignore"):
            dtype = np.asarray(function(*given)).dtype
    except TypeError:
        return None
    return dtype.name if dtype.name in DTYPES else None


def traced(function, given):
    """Return the program that applies a function to what is given: arrays become variables, numbers stay."""

    def apply(*variables):
        left = iter(variables)
        return function(*(next(left) if isinstance(each, np.ndarray) else each for each in given))

    arrays = [each for each in given if isinstance(each, np.ndarray)]
    return ss.program(apply).trace(*arrays), arrays


def is_wide_unsigned(operand):
    """Tell whether an operand is a number of a dtype that no variable can have."""
    return isinstance(operand, np.unsignedinteger) and operand.dtype.name not in DTYPES


@pytest.mark.parametrize("function", BINARY, ids=lambda function: f"{type(function).__name__} {function.__name__}")
def test_two_operands(function):
    wrong = []
    for pair in PAIRS:
        given = operands(pair)
        expected = numpys_dtype(function, given)
        try:
            program, _ = traced(function, given)
            found = program.variables[program.outputs[0]].spec.dtype.name
        except ProgramError:
            found = None
        compared_in_what_no_kernel_has = found is None and expected == "bool" and any(map(is_wide_unsigned, given))
        if found != expected and not compared_in_what_no_kernel_has:
            wrong.append((pair, found, expected))
    assert not wrong


@pytest.mark.parametrize("condition", ["bool", "int32", "float16", True])
def test_where(condition):
    for pair in PAIRS if condition == "bool" else PAIRS[::7]:
        given = operands((condition, *pair))
        expected = numpys_dtype(np.where, given)
        if expected is None:
            with pytest.raises(ProgramError, match=r"where: dtypes .* need"):
                traced(ss.ops.where, given)
            continue
        program, arrays = traced(ss.ops.where, given)
        assert program.variables[program.outputs[0]].spec.dtype == expected, pair
        np.testing.assert_array_equal(run_reference(program, arrays)[0], np.where(*given))


def test_where_of_numbers_is_of_the_dtype_that_numpy_gives_them():
    mask = np.array([True, False])
    for a, b in [(1.0, 0.0), (1, 0), (np.float32(1), 0.0), (True, False)]:
        program, _ = traced(np.where, [mask, a, b])
        assert program.variables[program.outputs[0]].spec.dtype == np.where(mask, a, b).dtype


@pytest.mark.parametrize("low", [0, 0.0, np.float32(0), "int8", "float64"])
def test_clip(low):
    for dtype, high in itertools.product(DTYPES[:-1], [1, 1.0, np.int16(1), "float16"]):  # NumPy clips no bools
        given = operands((dtype, low, high))
        program, arrays = traced(ss.ops.clip, given)
        expected = np.clip(*given)
        assert program.variables[program.outputs[0]].spec.dtype == expected.dtype, (dtype, high)
        np.testing.assert_array_equal(run_reference(program, arrays)[0], expected)


def test_a_line_of_ones_own_promotes_as_numpy():
    line = ss.elementwise("y = a * x + b")
    for dtypes in itertools.product(DTYPES[:-1], [1, 1.0, np.float64(1), "float32", "int32"]):
        given = operands((dtypes[0], dtypes[1], dtypes[0]))
        program, _ = traced(line, given)
        assert program.variables[program.outputs[0]].spec.dtype == np.result_type(*given)


X, MASK = np.ones((4, 4), np.float32), np.ones((4, 4), np.int32)


def scaled(x, w, mask):
    h = np.tanh(x * mask)
    return (h * 2.0) @ w


def with_a_numpy_number(x, w, mask):
    return (x * np.float64(2.0)) @ w


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            scaled,
            r"multiply at test_promotion\.py:\d+ made float64 from float32 'x' and int32 'mask', as in NumPy: .*mask\.astype\('float32'\)",
        ),
        (with_a_numpy_number, r"made float64 from np\.float64\(2\.0\): write float\(\.\.\.\) around that number"),
        (lambda x, w, mask: ss.ops.add(x, mask, out=w), r"the operands are float32 'x' and int32 'mask': convert 'mask' to float32"),
        (lambda x, w, mask: np.add(mask, 1.5, out=mask), r"the operands are int32 'mask' and 1\.5: convert 1\.5 to int32"),
        (lambda x, w, mask: np.divide(mask, mask, out=mask), r"give float64 as out=, or leave it out"),
    ],
)
def test_an_error_says_which_operand_made_the_result_wider(function, said):
    with pytest.raises(ProgramError) as caught:
        ss.program(function).trace(X, X, MASK)
    assert caught.match(said)
    assert "use one of" not in str(caught.value)  # one remedy


def test_an_input_that_was_wide_from_the_beginning_has_no_origin():
    with pytest.raises(ProgramError) as caught:
        ss.program(lambda x, w: x @ w).trace(X, X.astype(np.float64))
    assert "made" not in str(caught.value)


def test_the_printed_program_says_it_too():
    def step(x, mask):
        wide = x * mask
        return wide + x, x * 2.0, x + np.float64(2), np.exp(mask), mask.astype(np.float64), x > mask

    remarks = [line.partition("; ")[2] for line in str(ss.program(step).trace(X, MASK)).splitlines()[1:]]
    assert remarks == ["float64 from float32 and int32", "", "", "float64 from np.float64(2.0)", "float64 from int32", "", ""]
