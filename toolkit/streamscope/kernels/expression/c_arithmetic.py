"""C's arithmetic in NumPy, as CUDA's device code has it: promotions, conversions and operators that NumPy defines otherwise.

C brings two numbers to a common type before it joins them (C++17, [expr.arith.conv]), which is not NumPy's: ``int`` with ``float`` is
``float``, and ``int`` with ``unsigned`` is ``unsigned``. A floating-point number becomes a whole one by PTX's ``cvt.rzi`` (PTX ISA, "cvt"):
towards zero, and beyond the range the nearest end of it. NaN becomes 0, or where either of the two has 64 bits the number whose highest bit
alone is set (so on an H200). Whole numbers shorter than 32 bits take the low bits of that conversion to 32 bits, since
registers are not shorter. Undefined cases of C's whole numbers, overflow, division by zero and shifts by the width or more, is NumPy's,
here and in kernels (`streamscope.kernels.expression.wrapping`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

DType = np.dtype[Any]

_INT = np.dtype(np.int32)


def promoted(value: Any) -> Any:
    """Return a value as C's arithmetic takes it: whole numbers shorter than ``int``, and truth values, become ``int``."""
    array = value if isinstance(value, np.ndarray | np.generic) else np.asarray(value)
    return array.astype(_INT) if array.dtype.kind in "biu" and array.dtype.itemsize < _INT.itemsize else array


def alike(*values: Any) -> tuple[Any, ...]:
    """Return values in the type that C joins them in."""
    numbers = [promoted(value) for value in values]
    common = _common([number.dtype for number in numbers])
    return tuple(number.astype(common, copy=False) for number in numbers)


def _common(dtypes: list[DType]) -> DType:
    floating = [dtype for dtype in dtypes if dtype.kind == "f"]
    if floating:
        return max(floating, key=lambda dtype: dtype.itemsize)
    widest = max(dtype.itemsize for dtype in dtypes)
    unsigned = any(dtype.kind == "u" and dtype.itemsize == widest for dtype in dtypes)
    return np.dtype(f"{'u' if unsigned else 'i'}{widest}")


def converted(value: Any, dtype: DType) -> Any:
    """Return a value converted to a dtype as CUDA's device code converts it."""
    array = np.asarray(value)
    if array.dtype.kind != "f" or dtype.kind not in "iu":
        with np.errstate(over="ignore", invalid="ignore"):
            return array.astype(dtype, copy=False)
    wide = np.dtype(f"{dtype.kind}{max(dtype.itemsize, _INT.itemsize)}")
    return _saturated(array, wide).astype(dtype, copy=False)


def _saturated(array: Any, dtype: DType) -> Any:
    """Return floating-point numbers as whole ones of at least 32 bits."""
    limits = np.iinfo(dtype)
    low, end = float(limits.min), float(limits.max + 1)  # powers of two, exact in double; the greatest number itself is not
    towards_zero = np.trunc(array.astype(np.float64))
    inside = (towards_zero >= low) & (towards_zero < end)
    whole = np.where(inside, towards_zero, 0).astype(dtype)
    outside = np.where(towards_zero < low, dtype.type(limits.min), dtype.type(limits.max))  # NumPy 2.5 takes no whole number of 64 bits.
    highest = 1 << (8 * dtype.itemsize - 1)
    no_number = np.array(highest if 8 in (dtype.itemsize, array.dtype.itemsize) else 0, np.uint64).astype(dtype)
    return np.where(np.isnan(array), no_number, np.where(inside, whole, outside))


def divided(a: Any, b: Any) -> Any:
    """Return a quotient: of whole numbers towards zero, and 0 by zero, which C leaves undefined."""
    if a.dtype.kind == "f":
        return np.true_divide(a, b)
    with np.errstate(divide="ignore", over="ignore"):
        below = np.floor_divide(a, b)
        return below + ((b != 0) & (below * b != a) & ((a < 0) != (b < 0)))


def shifted_left(a: Any, b: Any) -> Any:
    """Return ``a << b`` in the type of ``a``."""
    return np.left_shift(promoted(a), _count(a, b))


def shifted_right(a: Any, b: Any) -> Any:
    """Return ``a >> b`` in the type of ``a``."""
    return np.right_shift(promoted(a), _count(a, b))


def _count(a: Any, b: Any) -> Any:
    # Bits that do not fit are looked at before they are lost: a shift by the width or more leaves nothing, on a GPU and in NumPy.
    number, count = promoted(a), promoted(b)
    width = 8 * number.dtype.itemsize
    return np.where((count < 0) | (count >= width), width, count).astype(number.dtype)


def chosen(condition: Any, one: Any, other: Any) -> Any:
    """Return ``condition ? one : other``."""
    return np.where(condition, *(one, other) if np.asarray(one).dtype == np.asarray(other).dtype else alike(one, other))


def multiplied_and_added(a: Any, b: Any, c: Any) -> Any:
    """Return ``a * b + c``: of floats rounded once but for rare ties, of doubles rounded twice, where a GPU rounds once."""
    wide = np.float64 if a.dtype == np.float32 else a.dtype
    return (a.astype(wide) * b + c).astype(a.dtype)
