"""CUDA's functions, and our own device functions: what they are in NumPy and SciPy, and which types of numbers they and C's operators take.

NVRTC has functions of ``float`` and ``double``, and few others. So a call of others is either ambiguous, or fits no template of ours. Where
``long`` and ``long long`` make the difference the call passes, since NumPy has one type for both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamscope.kernels.cuda import pieces
from streamscope.kernels.expression.c_arithmetic import DType, alike, converted, multiplied_and_added, promoted
from streamscope.kernels.expression.tokens import Mistake, Token

FUNCTIONS = pieces("functions")
"""Our device functions by name, as source: what CUDA does not have, or has with another meaning. Each stands behind those that it calls."""

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
"""What makes whole numbers of whole numbers; all others make ``double`` of them."""
_WITH_EXPONENT = frozenset({"ldexp", "scale_by_power"})
"""What takes a whole number besides, which has no part in the type of the result."""

_OF_ONE_TYPE = frozenset({"maximum", "minimum", "sign"})
"""Our templates, which keep short whole numbers short."""
_INT, _FLOAT = np.dtype(np.int32), np.dtype(np.float32)
_ASKING = frozenset({"isfinite", "isinf", "isnan", "signbit"})
"""What answers with an int."""

_OF_BOTH_PRECISIONS = (_NUMPY.keys() | _DERIVED.keys() | _SCIPY.keys()) - FUNCTIONS.keys() - _ASKING - {"abs", "max", "min"}
_FOR_HALF = ("half_cos", "half_erf", "half_log1p", "half_sigmoid", "half_sin")
IN_FLOAT = {name: name.removeprefix("half_") for name in _FOR_HALF} | {f"{name}f": name for name in _OF_BOTH_PRECISIONS}
"""What converts its arguments to float, and the function that it is then, for example ``expf``."""

NAMES = frozenset([*_NUMPY, *_DERIVED, *_SCIPY, *IN_FLOAT])


def argument_count(name: str) -> int:
    """Return how many arguments one of `NAMES` takes."""
    of_any = IN_FLOAT.get(name, name)
    return 3 if of_any == "fma" else _NUMPY[of_any].nin if of_any in _NUMPY else 1


def numpy_function(name: str) -> Callable[..., Any]:
    """Return one of `NAMES` as a function of arrays, which it converts as C does."""
    if name in IN_FLOAT:
        in_float, floats = numpy_function(IN_FLOAT[name]), 1 if IN_FLOAT[name] in _WITH_EXPONENT else None
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


class UnknownExpressionError(ValueError):
    """The expression is not one that can be evaluated in NumPy."""


class WrongExpressionError(UnknownExpressionError):
    """The expression is not one that CUDA takes either."""

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(mistake.problem)
        self.mistake = mistake


def check_whole(sign: Token, numbers: Sequence[Any]) -> None:
    """Check the operands of an operator."""
    floating = dict.fromkeys(number.dtype.name for number in numbers if number.dtype.kind == "f")
    if floating and sign.text in _OF_WHOLE:
        problem = f"C++ has {sign.text} for whole numbers only, not for {' and '.join(floating)}"
        raise WrongExpressionError(Mistake(sign.position, problem, _OF_WHOLE[sign.text]))


def check_arguments(name: str, position: int, dtypes: Sequence[DType]) -> None:
    """Check the types that C++ gives the arguments of a function of `NAMES`: CUDA may have none for them, or several that fit as well."""
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


def functions_source(texts: Iterable[str]) -> str:
    """Return the functions that some pieces of source name, and those that these call, in order."""
    return "".join(reversed(list(_needed(" ".join(texts)))))


def _needed(text: str) -> Iterator[str]:
    for name, source in reversed(FUNCTIONS.items()):
        if re.search(rf"\b{name}\b", text):
            text += source
            yield source
