"""CUDA expressions evaluated in NumPy: what gradients, and operators of one line, mean without a GPU.

The grammar is that of C's expressions without assignments, members and pointers: ``?:``, logic, comparisons, bits, shifts, arithmetic,
casts and calls. Numbers have the types that C++ gives them, and meet each other as C has it (`c_arithmetic`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from streamscope.ops.c_arithmetic import DType, alike, chosen, converted, divided, shifted_left, shifted_right
from streamscope.ops.expression_check import Mistake
from streamscope.ops.literals import LiteralError, literal
from streamscope.ops.numpy_functions import NAMES, argument_count, numpy_function
from streamscope.ops.tokens import WORDS_OF_TYPES, Token, tokens

Values = Mapping[str, Any]
Evaluator = Callable[[Values], Any]


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


_BINARY: Sequence[Mapping[str, Callable[[Any, Any], Any]]] = (
    {"||": np.logical_or},
    {"&&": np.logical_and},
    {"|": np.bitwise_or},
    {"^": np.bitwise_xor},
    {"&": np.bitwise_and},
    {"==": np.equal, "!=": np.not_equal},
    {"<": np.less, ">": np.greater, "<=": np.less_equal, ">=": np.greater_equal},
    {"<<": shifted_left, ">>": shifted_right},
    {"+": np.add, "-": np.subtract},
    {"*": np.multiply, "/": divided, "%": np.fmod},
)
"""Binary operators, from those that bind loosest."""
_UNARY: Mapping[str, Callable[[Any], Any]] = {"-": np.negative, "+": np.positive, "!": np.logical_not, "~": np.invert}
_UNLIKE = frozenset({"||", "&&", "<<", ">>"})
"""What does not bring its operands to a common type."""
_OF_WHOLE = {
    "%": "write fmod(a, b), or modulo(a, b) with the sign of b",
    "&": "&& is logical; bits are those of whole numbers",
    "|": "|| is logical; bits are those of whole numbers",
    "^": "write pow(a, b) for the power; bits are those of whole numbers",
    "~": "! is logical; bits are those of whole numbers",
    "<<": "write ldexp(a, n), or convert to whole numbers",
    ">>": "write ldexp(a, -n), or convert to whole numbers",
}
"""Operators of whole numbers only, and what those want who use them on others."""

_TRUTH = {"true": np.bool_(True), "false": np.bool_(False)}
_WORDS = WORDS_OF_TYPES | {*_TRUTH, "sizeof"}
"""What looks like a variable and is none."""
_BYTES = {"char": 1, "short": 2, "": 4, "long": 8, "long long": 8}
_OTHERS = {"bool": np.dtype(np.bool_), "float": np.dtype(np.float32), "double": np.dtype(np.float64)}


def names_in(expression: str) -> list[str]:
    """Return the variables that an expression names, in order of appearance: what is not called, and no word of C++."""
    found = re.finditer(r"(?<![\w.])([A-Za-z_]\w*)\b(?!\s*\()", re.sub(r"\b\d[\w.]*", "0", expression))
    return list(dict.fromkeys(match[1] for match in found if match[1] not in _WORDS))


@lru_cache(maxsize=1024)
def compiled(expression: str) -> Evaluator:
    """Return a function of the values by name that evaluates an expression; ``T(x)`` converts to the dtype of the value ``T``.

    It raises `WrongExpressionError` where an operator has no meaning for the dtypes of its operands.

    Raises
    ------
    UnknownExpressionError
        The expression has a function or a construct that is unknown here.
    WrongExpressionError
        A function gets too many arguments, or too few.
    """
    return _Parser(expression).whole()


@lru_cache(maxsize=1024)
def mistake_for(expression: str, dtypes: tuple[tuple[str, DType], ...]) -> Mistake | None:
    """Return where an expression is wrong for values of some dtypes, ``T`` among them; None where it is right, or unknown here."""
    try:
        evaluate = compiled(expression)
        if any(token.text in _OF_WHOLE for token in tokens(expression)):
            with np.errstate(all="ignore"):
                evaluate({name: dtype if name == "T" else np.zeros(0, dtype) for name, dtype in dtypes})
    except WrongExpressionError as error:
        return error.mistake
    except UnknownExpressionError:
        pass
    return None


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, expression: str) -> None:
        self._tokens = [*tokens(expression), Token("end", "", len(expression.rstrip()))]
        self._next = 0

    def whole(self) -> Evaluator:
        """Parse everything."""
        evaluate = self._conditional()
        if self._peek():
            raise UnknownExpressionError(f"unexpected {self._peek()}")
        return evaluate

    def _peek(self, ahead: int = 0) -> str:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)].text

    def _take(self, expected: str = "") -> Token:
        token = self._tokens[self._next]
        if not token.text or (expected and token.text != expected):
            raise UnknownExpressionError(f"expected {expected or 'a value'}, found {token.text or 'the end'}")
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
        return lambda values: chosen(condition(values), yes(values), no(values))

    def _binary(self, level: int) -> Evaluator:
        if level == len(_BINARY):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in _BINARY[level]:
            sign = self._take()
            left = _joined(sign, _BINARY[level][sign.text], left, self._binary(level + 1))
        return left

    def _unary(self) -> Evaluator:
        if self._peek() == "(" and self._peek(1) in WORDS_OF_TYPES:
            self._take()
            return self._cast(self._type(), self._unary)
        if self._peek() not in _UNARY:
            return self._primary()
        sign, inner = self._take(), self._unary()
        return _joined(sign, _UNARY[sign.text], inner)

    def _primary(self) -> Evaluator:
        token = self._take()
        if token.text == "(":
            inner = self._conditional()
            self._take(")")
            return inner
        if token.kind == "number":
            return _constant(token.text)
        if not token.text.isidentifier():
            raise UnknownExpressionError(f"unexpected {token.text}")
        if token.text in _TRUTH:
            return lambda values: _TRUTH[token.text]
        return self._call(token) if self._peek() == "(" else lambda values: values[token.text]

    def _type(self) -> list[str]:
        """Take the words of a type, and the parenthesis that closes the cast."""
        words = []
        while self._peek() in WORDS_OF_TYPES:
            words.append(self._take().text)
        self._take(")")
        return words

    def _cast(self, words: list[str], parse: Callable[[], Evaluator]) -> Evaluator:
        if words == ["T"]:
            inner = parse()
            return lambda values: converted(inner(values), values["T"])
        dtype, inner = _dtype(words), parse()
        return lambda values: converted(inner(values), dtype)

    def _call(self, name: Token) -> Evaluator:
        self._take("(")
        if name.text in WORDS_OF_TYPES:
            evaluate = self._cast([name.text], self._conditional)
            self._take(")")
            return evaluate
        arguments = [self._conditional()]
        while self._peek() == ",":
            self._take()
            arguments.append(self._conditional())
        self._take(")")
        if name.text not in NAMES:
            raise UnknownExpressionError(f"function {name.text}")
        _check_count(name, len(arguments))
        function = numpy_function(name.text)
        return lambda values: function(*(argument(values) for argument in arguments))


def _check_count(name: Token, given: int) -> None:
    wanted = argument_count(name.text)
    if given != wanted:
        problem = f"{name.text} takes {wanted} argument{'s' * (wanted > 1)}, got {given}"
        raise WrongExpressionError(Mistake(name.position, problem, "give as many"))


def _constant(text: str) -> Evaluator:
    try:
        constant = literal(text)
    except LiteralError as error:
        raise UnknownExpressionError(str(error)) from None
    return lambda values: constant


def _dtype(words: Sequence[str]) -> DType:
    """Return the dtype of a type of C++; ``char`` is signed on the device, and ``long`` has 64 bits."""
    kind = " ".join(word for word in words if word not in ("const", "int", "signed", "unsigned"))
    if kind in _OTHERS:
        return _OTHERS[kind]
    if kind not in _BYTES:
        raise UnknownExpressionError(f"type {' '.join(words)}")
    return np.dtype(f"{'u' if 'unsigned' in words else 'i'}{_BYTES[kind]}")


def _joined(sign: Token, apply: Callable[..., Any], *operands: Evaluator) -> Evaluator:
    """Return what applies an operator to what its operands come to."""

    def evaluate(values: Values) -> Any:
        numbers = [operand(values) for operand in operands]
        if sign.text in _OF_WHOLE:
            _check_whole(sign, numbers)
        return apply(*(numbers if sign.text in _UNLIKE else alike(*numbers)))

    return evaluate


def _check_whole(sign: Token, numbers: Sequence[Any]) -> None:
    floating = dict.fromkeys(number.dtype.name for number in numbers if number.dtype.kind == "f")
    if floating:
        problem = f"C++ has {sign.text} for whole numbers only, not for {' and '.join(floating)}"
        raise WrongExpressionError(Mistake(sign.position, problem, _OF_WHOLE[sign.text]))
