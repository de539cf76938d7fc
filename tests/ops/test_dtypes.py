"""Dtypes of what every function of NumPy's gives in a program, for every dtype and pair of dtypes: NumPy's, or it is refused."""

from __future__ import annotations

import operator as python
import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.combinations import THOROUGH

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.ops.operators import ADAPTED, FUNCTIONS, OPERATORS, UFUNCS
from streamscope.program.symbol import Symbol
from streamscope.program.variable import SUPPORTED_DTYPES

REFUSED = {
    "matmul": "the libraries multiply floating-point numbers of one dtype",
    "uint16": "no kernel computes in it; a number of NumPy's beside uint8 or bool would need it",
    "uint32": "the same",
    "divmod": "it has two results; Python's divmod(x, y) makes two operations, but a number of NumPy's on the left calls NumPy's",
}
"""Functions, and dtypes of NumPy's results, that programs refuse though NumPy has them; `docs/operators.md` says so."""
OURS = {"round": "Python's round() has no meaning for NumPy's arrays, and rounds the elements of a variable"}
"""What programs do and NumPy does not."""

NUMBERS = [True, 1, 1.0, np.bool_(True), *(np.dtype(dtype).type(1) for dtype in SUPPORTED_DTYPES), np.uint16(1), np.uint32(1)]
ARGUMENTS = {
    "swapaxes": (0, 1),
    "moveaxis": (0, 1),
    "expand_dims": (0,),
    "broadcast_to": ((2, 2, 2),),
    "reshape": (4,),
    "split": (2,),
    "astype": ("float32",),
}
METHODS = [name for name in vars(Symbol) if not name.startswith("_") and callable(getattr(Symbol, name))]
ALONE = {
    **{f"np.{function.__name__}": function for function in FUNCTIONS if function not in (np.shape, np.ndim, np.size, np.take)},
    **{f"np.{function.__name__}": function for function in UFUNCS if function.nin == 1},
    **{f".{name}": lambda x, *given, name=name: getattr(x, name)(*given) for name in METHODS},
    "-": python.neg,
    "~": python.invert,
    "abs()": python.abs,
    "round()": round,
    ".T": lambda x: x.T,
    "[0]": lambda x: x[0],
}
SIGNS = [
    python.add, python.sub, python.mul, python.truediv, python.floordiv, python.mod, python.pow, python.and_, python.or_, python.xor,
    python.lshift, python.rshift, python.lt, python.le, python.gt, python.ge, python.eq, python.ne, divmod,
]  # fmt: skip
OF_TWO = {
    **{f"np.{function.__name__}": function for function in UFUNCS if function.nin == 2},
    **{f"{function.__name__}()": function for function in SIGNS},
    "np.where": lambda a, b: np.where(a != 0, a, b),
    "np.clip": lambda a, b: np.clip(a, b, b),
    "np.clip, low": lambda a, b: np.clip(a, b, None),
}
OF_TWO_ARRAYS = {
    "np.concatenate": lambda a, b: np.concatenate([a, b]),
    "np.stack": lambda a, b: np.stack([a, b]),
    "np.take": np.take,
    "[i]": lambda a, b: a[b],
}


def numpys(function, given):
    """Return the dtypes of NumPy's results; None where it raises."""
    try:
        with np.errstate(all="ignore"):
            results = function(*given)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return [np.asarray(each).dtype.name for each in (results if isinstance(results, tuple | list) else [results])]


def programs(function, given):
    """Return the dtypes of a program's results, arrays being its inputs; None where it is refused."""

    def apply(*variables):
        left = iter(variables)
        results = function(*(next(left) if isinstance(each, np.ndarray) else each for each in given))
        return tuple(results) if isinstance(results, tuple | list) else results

    try:
        traced = ss.program(apply).trace(*(each for each in given if isinstance(each, np.ndarray)))
    except ProgramError:
        return None
    return [traced.variables[variable].spec.dtype.name for variable in traced.outputs]


def differences(name, function, cases):
    """Return where a program's dtypes are neither NumPy's nor known to differ."""
    wrong, called = [], name.removeprefix("np.").removesuffix("()")
    for given in cases:
        expected, found = numpys(function, given), programs(function, given)
        known = (found is None and REFUSED.keys() & {called, *(expected or [])}) or (expected is None and called in OURS)
        compared = found is None and expected == ["bool"] and any(getattr(each, "dtype", None) in ("uint16", "uint32") for each in given)
        if found != expected and not known and not compared:
            wrong.append(([getattr(each, "dtype", each) for each in given], found, expected))
    return wrong


def array(dtype):
    return np.ones((2, 2), dtype)


@pytest.mark.parametrize("name", ALONE)
def test_of_one_array(name):
    given = ARGUMENTS.get(name.removeprefix("np.").removeprefix("."), ())
    assert differences(name, ALONE[name], [[array(dtype), *given] for dtype in SUPPORTED_DTYPES]) == []


@pytest.mark.parametrize("name", OF_TWO)
def test_of_two_arrays_and_of_an_array_and_a_number(name):
    """Each operator with a third of the pairs, drawn for it, so that each pair comes with about every third operator."""
    arrays = [array(dtype) for dtype in SUPPORTED_DTYPES]
    pairs = [*product(arrays, arrays), *product(arrays, NUMBERS), *product(NUMBERS, arrays)]
    if name in ("np.matmul", "np.clip", "np.clip, low"):  # which take no numbers first, or none at all
        pairs = [*product(arrays, arrays), *(product(arrays, NUMBERS) if name != "np.matmul" else ())]
    assert differences(name, OF_TWO[name], pairs if THOROUGH else random.Random(name).sample(pairs, len(pairs) // 3)) == []


@pytest.mark.parametrize("name", OF_TWO_ARRAYS)
def test_of_two_arrays_only(name):
    arrays = [array(dtype) for dtype in SUPPORTED_DTYPES]
    second = [each for each in arrays if each.dtype.kind in "iu"] if name in ("np.take", "[i]") else arrays
    assert differences(name, OF_TWO_ARRAYS[name], product(arrays, second)) == []


def test_every_operator_of_numpys_is_looked_at():
    named = {name.removeprefix("np.").split(",")[0] for name in (*ALONE, *OF_TWO, *OF_TWO_ARRAYS)}
    assert {function.__name__ for function in (*UFUNCS, *FUNCTIONS, *ADAPTED)} - named == {"shape", "ndim", "size"}
    of_numpy = {name for name in OPERATORS if hasattr(np, name)}
    assert {getattr(np, name).__name__ for name in of_numpy} <= named


@pytest.mark.parametrize(
    ("function", "values", "expected"),
    [
        (np.prod, np.full(8, 255, np.uint8), np.uint64(17878103347812890625)),
        (np.sum, np.full(3, 255, np.uint8), np.uint64(765)),
        (np.sum, np.full(2, 2**63, np.uint64), np.uint64(0)),
        (np.cumsum, np.full(3, 255, np.uint8), np.array([255, 510, 765], np.uint64)),
        (np.sum, np.full(3, True), np.int64(3)),
        (np.max, np.array([1, 2**64 - 1], np.uint64), np.uint64(2**64 - 1)),
        (np.argmin, np.array([2**63, 2**63 - 1], np.uint64), np.int64(1)),
        (np.mean, np.full(2, 2**63, np.uint64), np.float64(2.0**63)),
        (np.round, np.array([True, False]), np.array([1, 0], np.float16)),
        (lambda x: x + 1, np.array([2**64 - 1], np.uint64), np.array([0], np.uint64)),
        (lambda x: x // 3 * 3 + x % 3, np.array([2**64 - 1], np.uint64), np.array([2**64 - 1], np.uint64)),
        (lambda x: x.astype("int64"), np.array([2**63], np.uint64), np.array([-(2**63)])),
        (lambda x: np.sum(x) - np.int64(1), np.full(3, 255, np.uint8), np.float64(764)),
    ],
)
def test_whole_numbers_without_a_sign(evaluate, function, values, expected):
    found = evaluate(function, values)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


def test_comparisons_of_numbers_with_a_sign_and_without_one(evaluate):
    with_sign, without = np.array([-1, 0, 1, 2**62, -(2**63)]), np.array([2**64 - 1, 0, 2**63, 2**62, 2**63], np.uint64)
    for compare in (np.less, np.less_equal, np.equal, np.not_equal, np.greater, np.greater_equal):
        np.testing.assert_array_equal(evaluate(compare, with_sign, without), compare(with_sign, without))
        np.testing.assert_array_equal(evaluate(compare, without, with_sign), compare(without, with_sign))


def test_the_documentation_names_what_differs():
    page = (Path(__file__).parents[2] / "docs" / "operators.md").read_text(encoding="utf-8")
    assert [name for name in (*SUPPORTED_DTYPES, *REFUSED, *OURS) if name not in page] == []
