"""CUDA's functions and our own device functions, as functions of NumPy and SciPy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamscope.kernels.cuda import pieces
from streamscope.kernels.expression.c_arithmetic import alike, converted, multiplied_and_added, promoted
from streamscope.kernels.expression.tokens import Token

FUNCTIONS = pieces("functions")
"""Sources of our device functions, by name: those that CUDA lacks or defines otherwise. Each stands behind those that it calls."""

_NUMPY: Mapping[str, np.ufunc] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan, "atan2": np.arctan2,
    "atanh": np.arctanh, "abs": np.abs, "cbrt": np.cbrt, "ceil": np.ceil, "copysign": np.copysign, "cos": np.cos, "cosh": np.cosh,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "fabs": np.abs, "floor": np.floor, "fmax": np.fmax, "fmin": np.fmin,
    "fmod": np.fmod, "hypot": np.hypot, "isfinite": np.isfinite, "isinf": np.isinf, "isnan": np.isnan, "ldexp": np.ldexp, "log": np.log,
    "log10": np.log10, "log1p": np.log1p, "log2": np.log2, "log_add": np.logaddexp, "max": np.fmax, "maximum": np.maximum, "min": np.fmin,
    "minimum": np.minimum, "modulo": np.remainder, "pow": np.power, "rint": np.rint, "scale_by_power": np.ldexp, "sign": np.sign,
    "signbit": np.signbit, "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc,
}  # fmt: skip
_DERIVED: Mapping[str, Callable[..., Any]] = {
    "fma": multiplied_and_added,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "rcbrt": lambda a: 1 / np.cbrt(a),
    "softplus": lambda a: np.logaddexp(a, 0),
    "trigamma": lambda a: _special("zeta")(a.dtype.type(2), a),
}
_SCIPY = {
    "sigmoid": "expit",
    "digamma": "digamma",
    "erf": "erf",
    "erfc": "erfc",
    "erfinv": "erfinv",
    "lgamma": "gammaln",
    "tgamma": "gamma",
}
_KEEP_WHOLE = frozenset({"abs", "max", "maximum", "min", "minimum", "modulo", "sign"})
"""Functions from whole numbers to whole numbers; all others make ``double`` of them."""
_WITH_EXPONENT = frozenset({"ldexp", "scale_by_power"})
"""Functions with a whole-number parameter that has no part in the type of the result."""

_OF_ONE_TYPE = frozenset({"maximum", "minimum", "sign"})
"""Our templates, which keep short whole numbers short."""
_INT, _FLOAT = np.dtype(np.int32), np.dtype(np.float32)
_ASKING = frozenset({"isfinite", "isinf", "isnan", "signbit"})
"""Functions that return an int."""

_OF_BOTH_PRECISIONS = (_NUMPY.keys() | _DERIVED.keys() | _SCIPY.keys()) - FUNCTIONS.keys() - _ASKING - {"abs", "max", "min"}
_FOR_HALF = ("half_cos", "half_erf", "half_log1p", "half_sigmoid", "half_sin")
_IN_FLOAT = {name: name.removeprefix("half_") for name in _FOR_HALF} | {f"{name}f": name for name in _OF_BOTH_PRECISIONS}
"""Functions that convert their arguments to float, and the function that is then called, for example ``expf``."""

NAMES = frozenset([*_NUMPY, *_DERIVED, *_SCIPY, *_IN_FLOAT])


def argument_count(name: str) -> int:
    """Return how many arguments one of `NAMES` takes."""
    of_any = _IN_FLOAT.get(name, name)
    return 3 if of_any == "fma" else _NUMPY[of_any].nin if of_any in _NUMPY else 1


def numpy_function(name: str) -> Callable[..., Any]:
    """Return one of `NAMES` as a function of arrays, which it converts as C does."""
    if name in _IN_FLOAT:
        in_float, floats = numpy_function(_IN_FLOAT[name]), 1 if _IN_FLOAT[name] in _WITH_EXPONENT else None
        return lambda *values: in_float(*(converted(value, _FLOAT) for value in values[:floats]), *values[1:2] * (floats is not None))
    apply: Callable[..., Any] = _special(_SCIPY[name]) if name in _SCIPY else _NUMPY.get(name) or _DERIVED[name]
    if name in _WITH_EXPONENT:
        whole = _nearest_int if name == "scale_by_power" else _as_int
        return lambda value, exponent: apply(_floating(promoted(value)), whole(promoted(exponent)))
    if name in _OF_ONE_TYPE:
        return lambda *values: converted(apply(*alike(*values)), _kept([np.asarray(value).dtype for value in values]))
    if name in _KEEP_WHOLE:
        return lambda *values: apply(*alike(*values))
    if name in _ASKING:
        return lambda value: converted(apply(_floating(promoted(value))), _INT)
    return lambda *values: apply(*map(_floating, alike(*values)))


def _kept(dtypes: list[Any]) -> Any:
    """Return the dtype of a template's result."""
    return dtypes[0] if len(set(dtypes)) == 1 else alike(*(np.zeros(0, dtype) for dtype in dtypes))[0].dtype


def _floating(number: Any) -> Any:
    return number if number.dtype.kind == "f" else number.astype(np.float64)


def _as_int(number: Any) -> Any:
    return converted(number, _INT)


def _nearest_int(number: Any) -> Any:
    limits = np.iinfo(_INT)
    if number.dtype.kind == "u":
        number = np.minimum(number, number.dtype.type(limits.max))
    elif number.dtype.kind == "i":
        number = np.clip(number, limits.min, limits.max)
    return converted(number, _INT)


def _special(name: str) -> Callable[..., Any]:
    import scipy.special

    function: Callable[..., Any] = getattr(scipy.special, name)
    return function


OF_WHOLE = frozenset({"%", "&", "|", "^", "~", "<<", ">>"})
"""Operators that C++ has for whole numbers only."""


class UnknownExpressionError(ValueError):
    """The expression is not one that can be evaluated in NumPy."""


def check_whole(sign: Token, numbers: Sequence[Any]) -> None:
    """Raise an `UnknownExpressionError` for floating-point operands of an operator that C++ has for whole numbers only."""
    floating = dict.fromkeys(number.dtype.name for number in numbers if number.dtype.kind == "f")
    if floating and sign.text in OF_WHOLE:
        raise UnknownExpressionError(f"C++ has {sign.text} for whole numbers only, not for {' and '.join(floating)}")


def functions_source(texts: Iterable[str]) -> str:
    """Return the functions that some pieces of source name, and those that these call, in order."""
    return "".join(reversed(list(_needed(" ".join(texts)))))


def _needed(text: str) -> Iterator[str]:
    for name, source in reversed(FUNCTIONS.items()):
        if re.search(rf"\b{name}\b", text):
            text += source
            yield source
