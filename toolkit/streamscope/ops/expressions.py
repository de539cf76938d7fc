"""CUDA expressions evaluated in NumPy: what gradients, and operators of one line, mean without a GPU.

The grammar is that of C's expressions without assignments, members and pointers: ``?:``, logic, comparisons, bits, shifts, arithmetic
and calls.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

Values = Mapping[str, Any]
Evaluator = Callable[[Values], Any]

_TOKEN = re.compile(
    r"""\s*(?:
        (\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)[fFlLuU]*  # a number
        | ([A-Za-z_]\w*)                                               # a name
        | (<<|>>|&&|\|\||[<>=!]=|[-+*/%<>!~&|^?:(),])                   # an operator
    )""",
    re.VERBOSE,
)


class UnknownExpressionError(ValueError):
    """The expression is not one that can be evaluated in NumPy."""


def _number(value: Any) -> Any:
    """Return a value as C's arithmetic takes it: whole numbers shorter than ``int``, and truth values, become ``int``."""
    short = isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biu" and value.dtype.itemsize < np.dtype(np.int32).itemsize
    return value.astype(np.int32) if short else value


def _whole(a: Any, b: Any) -> bool:
    return all(np.asarray(value).dtype.kind in "iu" for value in (a, b))


def _divide(a: Any, b: Any) -> Any:
    """Divide as C does: whole numbers towards zero (and by zero: 0)."""
    if not _whole(a, b):
        return np.true_divide(a, b)
    return np.where(b == 0, 0, np.sign(a) * np.sign(b) * (np.abs(a) // np.maximum(np.abs(b), 1)))


_BINARY: tuple[Mapping[str, Callable[[Any, Any], Any]], ...] = (
    {"||": np.logical_or},
    {"&&": np.logical_and},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge},
    {"<<": np.left_shift, ">>": np.right_shift},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": _divide, "%": np.fmod},
)
"""Binary operators, from those that bind loosest."""
_UNARY: Mapping[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "!": np.logical_not, "~": np.invert}

_NUMPY = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan, "atan2": np.arctan2,
    "atanh": np.arctanh, "abs": np.abs, "cbrt": np.cbrt, "ceil": np.ceil, "copysign": np.copysign, "cos": np.cos, "cosh": np.cosh,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "fabs": np.abs, "floor": np.floor, "fmax": np.fmax, "fmin": np.fmin,
    "fmod": np.fmod, "hypot": np.hypot, "isfinite": np.isfinite, "isinf": np.isinf, "isnan": np.isnan, "log": np.log, "log10": np.log10,
    "log1p": np.log1p, "log2": np.log2, "log_add": np.logaddexp, "max": np.fmax, "maximum": np.maximum, "min": np.fmin,
    "minimum": np.minimum, "modulo": np.remainder, "pow": np.power, "rint": np.rint, "scale_by_power": np.ldexp, "sign": np.sign,
    "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc,
}  # fmt: skip
_DERIVED: Mapping[str, Callable[..., Any]] = {
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


_OPEN = "("
_TRUTH = {"true": np.bool_(True), "false": np.bool_(False)}
_WORDS = {"T", *_TRUTH, "bool", "char", "short", "int", "long", "signed", "unsigned", "float", "double", "const", "sizeof"}
"""What looks like a variable and is none."""


def _special(name: str) -> Callable[..., Any]:
    import scipy.special

    function: Callable[..., Any] = getattr(scipy.special, name)
    return function


def _called(name: str) -> Callable[..., Any]:
    if name in _SCIPY:
        return _special(_SCIPY[name])
    if name not in _NUMPY and name not in _DERIVED:
        raise UnknownExpressionError(f"function {name}")
    return _NUMPY.get(name) or _DERIVED[name]


def names_in(expression: str) -> list[str]:
    """Return the variables that an expression names, in order of appearance: what is not called, and no word of C++."""
    found = re.finditer(r"(?<![\w.])([A-Za-z_]\w*)\b(?!\s*\()", re.sub(r"\b\d[\w.]*", "0", expression))
    return list(dict.fromkeys(match[1] for match in found if match[1] not in _WORDS))


@lru_cache(maxsize=1024)
def compiled(expression: str) -> Evaluator:
    """Return a function of the values by name that evaluates an expression; ``T(x)`` converts to the dtype of the value ``T``.

    Raises
    ------
    UnknownExpressionError
        The expression has a function or a construct that is unknown here.
    """
    return _Parser(expression).whole()


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, expression: str) -> None:
        self._tokens = list(_tokens(expression))
        self._next = 0

    def whole(self) -> Evaluator:
        """Parse everything."""
        evaluate = self._conditional()
        if self._peek():
            raise UnknownExpressionError(f"unexpected {self._peek()}")
        return evaluate

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self._peek()
        if not token or (expected and token != expected):
            raise UnknownExpressionError(f"expected {expected or 'a value'}, found {token or 'the end'}")
        self._next += 1
        return token

    def _conditional(self) -> Evaluator:
        condition = self._binary(0)
        if self._peek() != "?":
            return condition
        self._take()
        yes = self._conditional()
        self._take(":")
        no = self._conditional()
        return lambda values: np.where(condition(values), yes(values), no(values))

    def _binary(self, level: int) -> Evaluator:
        if level == len(_BINARY):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in _BINARY[level]:
            left = _joined(_BINARY[level][self._take()], left, self._binary(level + 1))
        return left

    def _unary(self) -> Evaluator:
        if self._peek() not in _UNARY:
            return self._primary()
        apply, inner = _UNARY[self._take()], self._unary()
        return lambda values: apply(_number(inner(values)))

    def _primary(self) -> Evaluator:
        token = self._take()
        if token == _OPEN:
            inner = self._conditional()
            self._take(")")
            return inner
        if token[0].isdigit() or token[0] == ".":
            constant = int(token) if token.isdigit() else float(token)
            return lambda values: constant
        if not token.isidentifier():
            raise UnknownExpressionError(f"unexpected {token}")
        if token in _TRUTH:
            return lambda values: _TRUTH[token]
        return self._call(token) if self._peek() == "(" else lambda values: values[token]

    def _call(self, name: str) -> Evaluator:
        self._take("(")
        arguments = [self._conditional()]
        while self._peek() == ",":
            self._take()
            arguments.append(self._conditional())
        self._take(")")
        if name == "T":
            return lambda values: np.asarray(arguments[0](values)).astype(values["T"])
        function = _called(name)
        return lambda values: function(*(_number(argument(values)) for argument in arguments))


def _joined(apply: Callable[[Any, Any], Any], left: Evaluator, right: Evaluator) -> Evaluator:
    return lambda values: apply(_number(left(values)), _number(right(values)))


def _tokens(expression: str) -> Iterator[str]:
    position = 0
    text = expression.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise UnknownExpressionError(f"character {text[position]!r}")
        yield next(token for token in match.groups() if token is not None)
        position = match.end()
