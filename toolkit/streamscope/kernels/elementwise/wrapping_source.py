"""Arithmetic of whole numbers that C++ leaves undefined, as NumPy has it.

A compiler takes it that what is undefined never happens, and uses that across the steps of a fused kernel: of ``(x + 1) > x`` it makes
``true`` without loading x. So sums, differences, products and negatives are computed in unsigned arithmetic, which wraps, in the same
instructions; a quotient and a rest by zero are 0; and by the width or more, everything is shifted out. All else is as in C++: the types of
results, and ``/`` and ``%`` towards zero.

Expressions keep their operators: ``a + b - c`` becomes ``wrapping::result(wrapping::of(a) + b - c)`` or, where all three are known to be
of one type, ``int(unsigned(a) + b - c)``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_OPERATOR = """\
template <typename A, typename B> __device__ inline auto operator SIGN(number<A> a, B b) -> number<decltype(a.value SIGN b)>
{
    typedef decltype(a.value SIGN b) C;
    if constexpr (!kind<C>::whole) return {a.value SIGN b};
    else WHOLE
}
"""
_UNSIGNED = "return {C(typename kind<C>::bits(a.value) SIGN typename kind<C>::bits(b))};"
_WHOLE = {
    "+": _UNSIGNED,
    "-": _UNSIGNED,
    "*": _UNSIGNED,
    # The least number by -1 has no quotient.
    "/": "return {is_minus_one(C(b)) ? negative(C(a.value)) : C(b) == 0 ? C(0) : C(C(a.value) / C(b))};",
    "%": "return {C(b) == 0 || is_minus_one(C(b)) ? C(0) : C(C(a.value) % C(b))};",
    # A negative number of places is beyond the width, too.
    "<<": "return {(unsigned long long)b < 8 * sizeof(C) ? C(typename kind<C>::bits(a.value) << b) : C(0)};",
    ">>": """if constexpr (!kind<C>::has_sign) return {(unsigned long long)b < 8 * sizeof(C) ? C(a.value >> b) : C(0)};
    else return {C(a.value >> ((unsigned long long)b < 8 * sizeof(C) ? int(b) : int(8 * sizeof(C) - 1)))};""",
}
"""What an operator gives of whole numbers, which C++ brings to the type ``C``."""

WRAPPING = f"""\
namespace wrapping {{
template <typename T> struct kind {{ static constexpr bool whole = false; }};
template <typename U, bool S> struct whole_kind {{ static constexpr bool whole = true, has_sign = S; typedef U bits; }};
template <> struct kind<int> : whole_kind<unsigned, true> {{}};
template <> struct kind<long> : whole_kind<unsigned long, true> {{}};
template <> struct kind<long long> : whole_kind<unsigned long long, true> {{}};
template <> struct kind<unsigned> : whole_kind<unsigned, false> {{}};
template <> struct kind<unsigned long> : whole_kind<unsigned long, false> {{}};
template <> struct kind<unsigned long long> : whole_kind<unsigned long long, false> {{}};
template <typename T> struct number {{ T value; }};
template <typename T> __device__ inline number<T> of(T value) {{ return {{value}}; }}
template <typename T> __device__ inline T result(number<T> a) {{ return a.value; }}
template <typename C> __device__ inline C negative(C a) {{ return C(-typename kind<C>::bits(a)); }}
template <typename A> __device__ inline auto abs(A a) -> decltype(-a)
{{
    const decltype(-a) value = a;
    return value < 0 ? negative(value) : value;
}}
template <typename C> __device__ inline bool is_minus_one(C b) {{ return kind<C>::has_sign && b == C(-1); }}
template <typename A> __device__ inline auto operator-(number<A> a) -> number<decltype(-a.value)>
{{
    typedef decltype(-a.value) C;
    if constexpr (kind<C>::whole) return {{negative(C(a.value))}};
    else return {{-a.value}};
}}
{"".join(_OPERATOR.replace("WHOLE", whole).replace("SIGN", sign) for sign, whole in _WHOLE.items())}}}
"""
"""Stands once before all kernels that name it."""

SIGNS = frozenset(_WHOLE)
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
