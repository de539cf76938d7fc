"""Arithmetic of whole numbers that C++ leaves undefined, as NumPy has it: what ``cuda/wrapping.cuh`` is called by.

Expressions keep their operators: ``a + b - c`` becomes ``wrapping::result(wrapping::of(a) + b - c)`` or, where all three are known to be
of one type, ``int(unsigned(a) + b - c)``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SIGNS = frozenset({"+", "-", "*", "/", "%", "<<", ">>"})
"""The operators that it has."""
WRAPS = SIGNS | {"abs"}
"""What an expression has in it that may be written otherwise."""
CASTS = {"int32": ("int(", "unsigned("), "int64": ("(long long)(", "(unsigned long long)(")}
"""What takes the place of ``wrapping::result(`` and ``wrapping::of(`` in sums, differences and products of a known dtype."""
_OF_TWO = re.compile(r"a [-+*] b")


class Arithmetic(NamedTuple):
    """What whole numbers may overflow in, and how that is written so that they wrap.

    Attributes
    ----------
    signs : tuple of int
        Positions of operators of `SIGNS`, applied from left to right, or of ``abs``.
    inserted : tuple of (int, str)
        What is inserted where.
    """

    signs: tuple[int, ...]
    inserted: tuple[tuple[int, str], ...]


def cast(text: str, casts: tuple[str, str]) -> str:
    """Return what is inserted into an expression with casts of `CASTS` instead."""
    return text.replace("wrapping::result(", casts[0]).replace("wrapping::of(", casts[1])


def joined(kind: str, expression: str) -> str:
    """Return an expression of ``a`` and ``b``, which are of a C++ type: a sum or a product of whole numbers wraps."""
    dtype = {"int": "int32", "long long": "int64"}.get(kind, "")
    return _cast_of_two(dtype, "a", expression[1:]) if _OF_TWO.fullmatch(expression) else expression


def added(dtype: str, a: str, b: str) -> str:
    """Return the C++ expression for the sum of two values of a dtype; shorter numbers than these two cannot overflow."""
    return _cast_of_two(dtype, a, f" + {b}")


def _cast_of_two(dtype: str, a: str, rest: str) -> str:
    if dtype not in CASTS:
        return f"{a}{rest}"
    result, of = CASTS[dtype]
    return f"{result}{of}{a}){rest})"
