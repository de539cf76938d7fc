"""Which types C's operators and CUDA's functions take: NVRTC has functions of ``float`` and ``double``, and few others.

So a call of others is either ambiguous, or fits no template of ours. Where ``long`` and ``long long`` make the difference the call passes,
since NumPy has one type for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamscope.kernels.expression.expression_check import Mistake
from streamscope.kernels.expression.numpy_functions import IN_FLOAT
from streamscope.kernels.expression.tokens import Token

DType = np.dtype[Any]

_OF_WHOLE = {
    "%": "write fmod(a, b), or modulo(a, b) with the sign of b",
    "&": "&& is logical; bits are those of whole numbers",
    "|": "|| is logical; bits are those of whole numbers",
    "^": "write pow(a, b) for the power; bits are those of whole numbers",
    "~": "! is logical; bits are those of whole numbers",
    "<<": "write ldexp(a, n), or (int)(...) << n for whole numbers",
    ">>": "write ldexp(a, -n), or (int)(...) >> n for whole numbers",
}
"""Operators of whole numbers only, and what those want who use them on others."""
OF_WHOLE = frozenset(_OF_WHOLE)

_BY_FIRST = frozenset({"ldexp", "scale_by_power"})
"""Whose first argument alone decides."""
_OF_ALIKE = frozenset({"log_add", "maximum", "minimum", "modulo"})
"""Our templates of two arguments, which must be of one type."""
_OF_ANY = frozenset({"sign", *IN_FLOAT})
_ONE_FLOATING = frozenset({"atan2", "fma", "fmax", "fmin", "fmod", "hypot", "pow"})
"""Where other arguments may be whole numbers."""
_INT = np.dtype(np.int32)


class UnknownExpressionError(ValueError):
    """The expression is not one that can be evaluated in NumPy."""


class WrongExpressionError(UnknownExpressionError):
    """The expression is not one that CUDA takes either.

    Attributes
    ----------
    mistake : Mistake
    """

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(mistake.problem)
        self.mistake = mistake


def check_whole(sign: Token, numbers: Sequence[Any]) -> None:
    """Check the operands of an operator.

    Raises
    ------
    WrongExpressionError
        It is for whole numbers only, and they are others.
    """
    floating = dict.fromkeys(number.dtype.name for number in numbers if number.dtype.kind == "f")
    if floating and sign.text in _OF_WHOLE:
        problem = f"C++ has {sign.text} for whole numbers only, not for {' and '.join(floating)}"
        raise WrongExpressionError(Mistake(sign.position, problem, _OF_WHOLE[sign.text]))


def check_arguments(name: str, position: int, dtypes: Sequence[DType]) -> None:
    """Check the types of the arguments of a function of `NAMES`.

    Parameters
    ----------
    name : str
    position : int
        Where the call is.
    dtypes : sequence of dtype
        As C++ has them: truth values and short numbers as they are.

    Raises
    ------
    WrongExpressionError
        CUDA has no such function for them, or several that fit as well.
    """
    if not takes(name, dtypes):
        given = " and ".join(dtype.name for dtype in dtypes)
        one_type = name in _OF_ALIKE and len(set(dtypes)) > 1
        problem = f"{name} takes two of one type, not {given}" if one_type else f"{name} of {given} is ambiguous in CUDA, or has no meaning"
        raise WrongExpressionError(Mistake(position, problem, _advice(name, dtypes)))


def takes(name: str, dtypes: Sequence[DType]) -> bool:
    """Tell whether CUDA takes a call of a function of `NAMES` with arguments of these types."""
    floating = [dtype.kind == "f" for dtype in dtypes]
    if name in _OF_ANY:
        return True
    if name == "abs":
        return dtypes[0].kind != "u" or dtypes[0].itemsize < _INT.itemsize
    if name in ("max", "min"):
        return all(floating) or (not any(floating) and len({max(dtype.itemsize, _INT.itemsize) for dtype in dtypes}) == 1)
    if name in ("maximum", "minimum"):
        return len(set(dtypes)) == 1
    if name in _BY_FIRST:
        return floating[0]
    if name in _ONE_FLOATING and not all(floating):
        one_type = len({dtype for dtype in dtypes if dtype.kind == "f"}) == 1
        return one_type and not (name == "pow" and floating[0] and not _is_int(dtypes[1]))
    return all(floating) and (name == "copysign" or len(set(dtypes)) == 1)


def _is_int(dtype: DType) -> bool:
    """Tell whether C's promotion makes an ``int`` of a whole number."""
    return dtype == _INT or dtype.itemsize < _INT.itemsize


def _advice(name: str, dtypes: Sequence[DType]) -> str:
    if name == "abs":
        return "it has no sign: leave abs out, or write abs((long long)(...))"
    if name == "pow" and dtypes[0].kind == "f" and dtypes[1].kind != "f":
        return f"convert the exponent: write (int)(...) or ({_spelt(dtypes[0])})(...)"
    floating = next((dtype for dtype in dtypes if dtype.kind == "f"), None)
    if floating is not None:
        number = "0.5f" if floating == np.float32 else "0.5"
        return f"make all arguments {_spelt(floating)}: write numbers as {number}, or as T(0.5) where T is {_spelt(floating)}"
    if name in ("max", "min", "maximum", "minimum"):
        return f"convert them to one type, for example {name}((long long)(...), (long long)(...))"
    return f"convert to a floating-point number, for example {name}((float)(...){', ...' * (len(dtypes) > 1)})"


def _spelt(dtype: DType) -> str:
    return "float" if dtype == np.float32 else "double"
