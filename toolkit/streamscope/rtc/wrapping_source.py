"""Arithmetic of whole numbers that C++ leaves undefined, as NumPy has it.

A compiler takes it that what is undefined never happens, and uses that across the steps of a fused kernel: of ``(x + 1) > x`` it makes
``true`` without loading x. So sums, differences, products and negatives are computed in unsigned arithmetic, which wraps, in the same
instructions; and quotients and shifts look at their second operand first. All else is as in C++: the types of results, and ``/`` and ``%``
towards zero.

Expressions keep their operators: ``a + b - c`` becomes ``wrapping::result(wrapping::of(a) + b - c)``.
"""

from __future__ import annotations

import re

WRAPPING = """\
namespace wrapping {
template <typename T> struct kind { static constexpr bool whole = false; };
template <typename U, bool S> struct whole_kind { static constexpr bool whole = true, has_sign = S; typedef U bits; };
template <> struct kind<int> : whole_kind<unsigned, true> {};
template <> struct kind<long> : whole_kind<unsigned long, true> {};
template <> struct kind<long long> : whole_kind<unsigned long long, true> {};
template <> struct kind<unsigned> : whole_kind<unsigned, false> {};
template <> struct kind<unsigned long> : whole_kind<unsigned long, false> {};
template <> struct kind<unsigned long long> : whole_kind<unsigned long long, false> {};
template <typename T> struct number { T value; };
template <typename T> __device__ inline number<T> of(T value) { return {value}; }
template <typename T> __device__ inline T result(number<T> a) { return a.value; }
template <typename C> __device__ inline C negative(C a) { return C(-typename kind<C>::bits(a)); }
template <typename A> __device__ inline auto operator-(number<A> a)
{
    typedef decltype(-a.value) C;
    if constexpr (kind<C>::whole) return of(negative(C(a.value)));
    else return of(-a.value);
}
template <typename A, typename B> __device__ inline auto operator+(number<A> a, B b)
{
    typedef decltype(a.value + b) C;
    if constexpr (kind<C>::whole) return of(C(typename kind<C>::bits(a.value) + typename kind<C>::bits(b)));
    else return of(a.value + b);
}
template <typename A, typename B> __device__ inline auto operator-(number<A> a, B b)
{
    typedef decltype(a.value - b) C;
    if constexpr (kind<C>::whole) return of(C(typename kind<C>::bits(a.value) - typename kind<C>::bits(b)));
    else return of(a.value - b);
}
template <typename A, typename B> __device__ inline auto operator*(number<A> a, B b)
{
    typedef decltype(a.value * b) C;
    if constexpr (kind<C>::whole) return of(C(typename kind<C>::bits(a.value) * typename kind<C>::bits(b)));
    else return of(a.value * b);
}
// By zero, 0. The least number by -1 has no quotient.
template <typename A, typename B> __device__ inline auto operator/(number<A> a, B b)
{
    typedef decltype(a.value / b) C;
    if constexpr (!kind<C>::whole) return of(a.value / b);
    else if constexpr (kind<C>::has_sign) return of(C(b) == -1 ? negative(C(a.value)) : C(b) == 0 ? C(0) : C(C(a.value) / C(b)));
    else return of(C(b) == 0 ? C(0) : C(C(a.value) / C(b)));
}
template <typename A, typename B> __device__ inline auto operator%(number<A> a, B b)
{
    typedef decltype(a.value % b) C;
    if constexpr (!kind<C>::whole) return of(a.value % b);
    else if constexpr (kind<C>::has_sign) return of(C(b) == 0 || C(b) == -1 ? C(0) : C(C(a.value) % C(b)));
    else return of(C(b) == 0 ? C(0) : C(C(a.value) % C(b)));
}
// By the width or more, or by a negative number, everything is shifted out.
template <typename A, typename B> __device__ inline auto operator<<(number<A> a, B b)
{
    typedef decltype(a.value << b) C;
    if constexpr (!kind<C>::whole) return of(a.value << b);
    else return of((unsigned long long)b < 8 * sizeof(C) ? C(typename kind<C>::bits(a.value) << b) : C(0));
}
template <typename A, typename B> __device__ inline auto operator>>(number<A> a, B b)
{
    typedef decltype(a.value >> b) C;
    if constexpr (!kind<C>::whole) return of(a.value >> b);
    else if constexpr (!kind<C>::has_sign) return of((unsigned long long)b < 8 * sizeof(C) ? C(a.value >> b) : C(0));
    else return of(C(a.value >> ((unsigned long long)b < 8 * sizeof(C) ? int(b) : int(8 * sizeof(C) - 1))));
}
}
"""
"""Stands once before all kernels that name it."""

SIGNS = frozenset({"+", "-", "*", "/", "%", "<<", ">>"})
"""The operators that it has."""
_OF_TWO = re.compile(r"a [-+*] b")


def joined(kind: str, expression: str) -> str:
    """Return an expression of ``a`` and ``b``, which are of a C++ type: a sum or a product of whole numbers wraps."""
    return (
        f"wrapping::result(wrapping::of(a){expression[1:]})"
        if kind in ("int", "long long") and _OF_TWO.fullmatch(expression)
        else expression
    )


def added(dtype: str, a: str, b: str) -> str:
    """Return the C++ expression for the sum of two values of a dtype; shorter numbers than these two cannot overflow."""
    return f"wrapping::result(wrapping::of({a}) + {b})" if dtype in ("int32", "int64") else f"{a} + {b}"
