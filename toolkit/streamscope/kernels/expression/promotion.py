"""Which dtypes an element-wise operator computes in: NumPy's own answer, asked of NumPy.

Python numbers are weak, as in NumPy 2: they take the dtype of the arrays beside them. Where we differ from NumPy and SciPy:

- half stays half in functions that SciPy computes in float32 or float64 only (``erf``, ``gamma``, ...); it is computed in float;
- NumPy's 8-bit functions of whole numbers stay as they are: ``exp`` of int8 is half, ``divide`` of whole numbers is float64;
- a whole number to a negative whole power gives the power's whole part where NumPy raises (a Python number as exponent raises here too);
- a Python number that does not fit the dtype raises for comparisons too, where NumPy compares it exactly;
- ``gammaln`` of minus infinity is infinity, as C has it, where SciPy has minus infinity;
- nothing is signalled: what divides by zero or overflows goes on, as on a GPU. Whole numbers divided by zero give 0, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from streamscope.arguments import shown
from streamscope.errors import ProgramError
from streamscope.program.variable import SUPPORTED_DTYPES

DType = np.dtype[Any]
_Number = bool | int | float

_ANOTHER = "pass an array of another dtype, by x.astype(...)"


@dataclass(frozen=True)
class Promoted:
    """Dtypes of one application."""

    taken: tuple[DType, ...]
    """That each operand is converted to."""
    result: DType
    first: DType
    """NumPy's type of the first operand, in which it computes."""


def promote(operator: str, like: np.ufunc, operands: Sequence[DType | type], *, keep_whole: bool = False) -> Promoted:
    """Return the dtypes that a NumPy function would choose for dtypes of arrays, and ``int`` or ``float`` for Python numbers.

    Where their number is not that of the function, their common dtype stands for each. With ``keep_whole``, whole numbers beside
    floating-point ones stay whole; Python's get the dtype that NumPy gives them beside the other whole ones.
    """
    promoted = _promote(operator, like, tuple(operands))
    return replace(promoted, taken=_kept_whole(operands, promoted.taken)) if keep_whole else promoted


def _kept_whole(operands: Sequence[DType | type], taken: Sequence[DType]) -> tuple[DType, ...]:
    whole = [each for each in operands if isinstance(each, np.dtype) and each.kind in "iub" and each.name in SUPPORTED_DTYPES]
    weak = np.result_type(0, *whole)

    def kept(operand: DType | type, converted: DType) -> DType:
        if converted.kind != "f" or operand is float:
            return converted
        return weak if operand is int else operand if isinstance(operand, np.dtype) and operand in whole else converted

    return tuple(kept(operand, converted) for operand, converted in zip(operands, taken, strict=True))


@lru_cache(maxsize=4096)
def _promote(operator: str, like: np.ufunc, operands: tuple[DType | type, ...]) -> Promoted:
    names = ", ".join(operand.__name__ if isinstance(operand, type) else operand.name for operand in operands)
    try:
        if len(operands) == like.nin:
            resolved = like.resolve_dtypes((*operands, *[None] * like.nout))
        else:
            common = np.result_type(*(operand(0) if isinstance(operand, type) else operand for operand in operands))
            resolved = like.resolve_dtypes((common,) * like.nin + (None,) * like.nout)
            resolved = (resolved[0],) * len(operands) + resolved[like.nin :]
    except TypeError:
        raise ProgramError(f"{operator}: dtypes {names} do not fit", hint=f"NumPy's {like.__name__} takes none such; {_ANOTHER}") from None
    if any(dtype.name not in SUPPORTED_DTYPES for dtype in resolved):
        wide = next(dtype.name for dtype in resolved if dtype.name not in SUPPORTED_DTYPES)
        raise ProgramError(f"{operator}: dtypes {names} need {wide}, which is not supported", hint=_ANOTHER)
    *taken, result = (np.dtype(dtype.name) for dtype in resolved)
    return Promoted(tuple(taken), result, taken[0])


def kind_of(number: _Number | np.generic) -> DType | type:
    """Return a number's type for promotion: its dtype, or ``int`` or ``float`` for Python's own."""
    if isinstance(number, np.generic):
        return number.dtype
    return np.dtype(np.bool_) if isinstance(number, bool) else type(number)


def converted(operator: str, number: _Number | np.generic, dtype: DType) -> np.generic:
    """Return a number in the dtype that an operator takes it in."""
    try:
        with np.errstate(over="ignore"):
            value: np.generic = dtype.type(number)
    except OverflowError:
        hint = f"{_ANOTHER}, or a floating-point number"
        raise ProgramError(f"{operator}: {shown(number)} does not fit {dtype.name}", hint=hint) from None
    return value


def arithmetic(dtype: DType) -> DType:
    """Return the dtype in which values are computed: float32 for half, else the dtype itself."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype
