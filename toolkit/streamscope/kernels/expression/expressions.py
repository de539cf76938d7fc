"""CUDA expressions evaluated in NumPy: the reference of gradients and of one-line operators without a GPU.

The grammar is that of C's expressions without assignments, members and pointers: ``?:``, logic, comparisons, bits, shifts, arithmetic,
casts and calls. Numbers have the types that C++ gives them, and meet each other as C has it (`c_arithmetic`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from streamscope.kernels.expression.c_arithmetic import DType, alike, chosen, converted, divided, shifted_left, shifted_right
from streamscope.kernels.expression.functions import (
    NAMES,
    UnknownExpressionError,
    argument_count,
    check_whole,
    numpy_function,
)
from streamscope.kernels.expression.tokens import WORDS_OF_TYPES, LiteralError, Token, is_cast, is_template, literal, tokens

_Values = Mapping[str, Any]
_Evaluator = Callable[[_Values], Any]


SIGNS = frozenset({"+", "-", "*", "/", "%", "<<", ">>"})
"""Operators that C++ leaves undefined for some whole numbers."""


class Arithmetic(NamedTuple):
    """Operators in which whole numbers may overflow, and their wrapping form."""

    signs: tuple[int, ...]
    """Positions of operators of `SIGNS`, applied from left to right, or of ``abs``."""
    inserted: tuple[tuple[int, str], ...]
    """Insertions, by position."""


class Typed(dict[str, Any]):
    """Values with the dtypes that a kernel computes in, and a record of the operators that whole numbers go through."""

    whole: dict[int, DType]
    """By position, the operators, and ``abs``, that were applied to whole numbers, with the dtype that these were brought to."""


_BY_LEVEL: Sequence[Mapping[str, Callable[[Any, Any], Any]]] = (
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
_BINARY = {sign: (level, apply) for level, each in enumerate(_BY_LEVEL) for sign, apply in each.items()}
_UNARY: Mapping[str, Callable[[Any], Any]] = {"-": np.negative, "+": np.positive, "!": np.logical_not, "~": np.invert}
_UNLIKE = frozenset({"||", "&&", "<<", ">>"})
"""Operators that do not bring their operands to a common type."""
_TRUTH = {"true": np.bool_(True), "false": np.bool_(False)}
_WORDS = WORDS_OF_TYPES | {*_TRUTH, "sizeof", "static_cast"}
"""Words that look like variables and are none."""
_BYTES = {"char": 1, "short": 2, "": 4, "long": 8, "long long": 8}
_OTHERS = {name: np.dtype(kind) for name, kind in (("bool", "?"), ("float", "f4"), ("double", "f8"), ("size_t", "u8"))}


def names_in(expression: str) -> list[str]:
    """Return the variables of an expression, in order of appearance: names that are not called, and no words of C++."""
    words = [Token("end", "", 0), *tokens(expression)]
    found = (
        word.text
        for at, word in enumerate(words)
        if word.kind == "name"
        and "::" not in word.text
        and word.text not in _WORDS
        and words[at - 1].text != "."
        and (at + 1 == len(words) or words[at + 1].text != "(")
        and not is_template(words, at + 1)
    )
    return list(dict.fromkeys(found))


@lru_cache(maxsize=1024)
def compiled(expression: str) -> _Evaluator:
    """Return a function of the values by name that evaluates an expression; ``T(x)`` converts to the dtype of the value ``T``.

    It raises `UnknownExpressionError` where an operator has no meaning for the dtypes of its operands.

    Raises
    ------
    UnknownExpressionError
        The expression has a function or a construct that is unknown here, or is nested deeper than Python calls functions.
    """
    evaluate, _, unknown = parsed(expression)
    if unknown:
        raise UnknownExpressionError(unknown)
    return evaluate


@lru_cache(maxsize=1024)
def parsed(expression: str) -> tuple[_Evaluator, Sequence[Arithmetic], str]:
    """Return an expression's evaluator, its arithmetic from the inside out, and a function that is unknown here.

    It raises as `compiled` does, but for unknown functions, which are raised where they are evaluated.
    """
    parser = _Parser(expression)
    try:
        return parser.whole(), parser.arithmetic, parser.unknown
    except RecursionError:
        raise UnknownExpressionError("nested too deeply") from None


def typed(dtypes: Iterable[tuple[str, DType]]) -> Typed:
    """Return no values of some dtypes, ``T`` among them."""
    values = Typed((name, dtype if name == "T" else np.zeros(0, dtype)) for name, dtype in dtypes)
    values.whole = {}
    return values


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, expression: str) -> None:
        self._tokens = [*tokens(expression), Token("end", "", len(expression.rstrip()))]
        self._next = 0
        self.arithmetic: list[Arithmetic] = []
        self.unknown = ""

    def whole(self) -> _Evaluator:
        """Parse everything."""
        evaluate = self._conditional()
        if self._peek():
            raise UnknownExpressionError(f"unexpected {self._peek()}")
        return evaluate

    def _peek(self) -> str:
        return self._tokens[min(self._next, len(self._tokens) - 1)].text

    def _take(self, expected: str = "") -> Token:
        token = self._tokens[self._next]
        if not token.text or (expected and token.text != expected):
            raise UnknownExpressionError(f"expected {expected or 'a value'}, found {token.text or 'the end'}")
        self._next += 1
        return token

    def _conditional(self) -> _Evaluator:
        cases, last = [], self._binary(0)
        while self._peek() == "?":
            self._take()
            cases.append((last, self._conditional()))
            self._take(":")
            last = self._binary(0)
        return _first_true(cases, last) if cases else last

    def _binary(self, loosest: int) -> _Evaluator:
        """Parse operators that bind as tightly as a level, or tighter."""
        start = self._tokens[self._next].position
        first, rest = self._unary(), []
        first_end, end, signs = self._end(), 0, list[int]()
        while self._peek() in _BINARY and _BINARY[self._peek()][0] >= loosest:
            sign = self._take()
            rest.append((sign, self._binary(_BINARY[sign.text][0] + 1)))
            if sign.text in SIGNS:  # which bind tighter than all others, and so come first
                end = self._end()
                signs.append(sign.position)
        if signs:
            inserted = (start, "wrapping::result(wrapping::of("), (first_end, ")"), (end, ")")
            self.arithmetic.append(Arithmetic(tuple(signs), inserted))
        return _chain(first, rest) if rest else first

    def _end(self) -> int:
        """Return where the word ends that was taken last."""
        return self._tokens[self._next - 1].position + len(self._tokens[self._next - 1].text)

    def _unary(self) -> _Evaluator:
        signs = []
        while self._peek() in _UNARY:
            signs.append(self._take())
        if is_cast(self._tokens, self._next):
            self._take()
            operand = self._cast(self._type(")"), self._unary)
        else:
            operand = self._primary()
        for _, text, at in reversed(signs):
            if text == "-":
                inserted = (at, "wrapping::result("), (at + 1, "wrapping::of("), (self._end(), "))")
                self.arithmetic.append(Arithmetic((at,), inserted))
        return _signed(signs, operand) if signs else operand

    def _primary(self) -> _Evaluator:
        token = self._take()
        if token.text == "(":
            inner = self._conditional()
            self._take(")")
            return inner
        if token.kind == "number":
            return _constant(token.text)
        if token.kind != "name":
            raise UnknownExpressionError(f"unexpected {token.text}")
        if token.text in _TRUTH:
            return lambda values: _TRUTH[token.text]
        if token.text == "static_cast":
            self._take("<")
            return self._cast(self._type(">"), self._primary)
        return self._call(token) if self._peek() == "(" else self._value(token)

    def _value(self, name: Token) -> _Evaluator:
        if "::" in name.text or is_template(self._tokens, self._next):
            raise UnknownExpressionError(f"name {name.text}")
        if name.text not in WORDS_OF_TYPES:
            return lambda values: values[name.text]
        raise UnknownExpressionError(f"{name.text!r} is a type, not a value")

    def _type(self, closing: str) -> list[str]:
        """Take the words of a type, and its closing bracket."""
        words = []
        while self._peek() in WORDS_OF_TYPES:
            words.append(self._take().text)
        self._take(closing)
        return words

    def _cast(self, words: list[str], parse: Callable[[], _Evaluator]) -> _Evaluator:
        if words == ["T"]:
            inner = parse()
            return lambda values: converted(inner(values), values["T"])
        dtype, inner = _dtype(words), parse()
        return lambda values: converted(inner(values), dtype)

    def _call(self, name: Token) -> _Evaluator:
        self._take("(")
        if name.text in WORDS_OF_TYPES:
            evaluate = self._cast([name.text], self._conditional)
            self._take(")")
            return evaluate
        arguments = [] if self._peek() == ")" else [self._conditional()]
        while self._peek() == ",":
            self._take()
            arguments.append(self._conditional())
        self._take(")")
        called = name.text.removeprefix("::")
        if called not in NAMES:
            self.unknown = self.unknown or f"function {name.text}"
        if called == "abs":
            self.arithmetic.append(Arithmetic((name.position,), ((name.position, "wrapping::" if called == name.text else "wrapping"),)))
        return _called(name, arguments)


def _called(name: Token, arguments: Sequence[_Evaluator]) -> _Evaluator:
    called = name.text.removeprefix("::")
    if called not in NAMES:
        return _raising(UnknownExpressionError(f"function {name.text}"))
    wanted = argument_count(called)
    if len(arguments) != wanted:
        raise UnknownExpressionError(f"{called} takes {wanted} argument{'s' * (wanted > 1)}, got {len(arguments)}")
    function = numpy_function(called)

    def evaluate(values: _Values) -> Any:
        numbers = [argument(values) for argument in arguments]
        if called == "abs" and isinstance(values, Typed) and numbers[0].dtype.kind != "f":
            values.whole[name.position] = numbers[0].dtype
        return function(*numbers)

    return evaluate


def _raising(error: Exception) -> _Evaluator:
    def evaluate(values: _Values) -> Any:
        raise error

    return evaluate


def _constant(text: str) -> _Evaluator:
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


def _first_true(cases: Sequence[tuple[_Evaluator, _Evaluator]], last: _Evaluator) -> _Evaluator:
    """Return ``condition ? value : condition ? value : last``."""

    def evaluate(values: _Values) -> Any:
        result = last(values)
        for condition, value in reversed(cases):
            result = chosen(condition(values), value(values), result)
        return result

    return evaluate


def _chain(first: _Evaluator, rest: Sequence[tuple[Token, _Evaluator]]) -> _Evaluator:
    """Return a function that applies operators from left to right; a loop, since sums may be longer than Python's stack."""

    def evaluate(values: _Values) -> Any:
        result = first(values)
        for sign, operand in rest:
            result = _applied(values, sign, _BINARY[sign.text][1], result, operand(values))
        return result

    return evaluate


def _signed(signs: Sequence[Token], operand: _Evaluator) -> _Evaluator:
    def evaluate(values: _Values) -> Any:
        result = operand(values)
        for sign in reversed(signs):
            result = _applied(values, sign, _UNARY[sign.text], result)
        return result

    return evaluate


def _applied(values: _Values, sign: Token, apply: Callable[..., Any], *numbers: Any) -> Any:
    check_whole(sign, numbers)
    joined = numbers if sign.text in _UNLIKE else alike(*numbers)
    if isinstance(values, Typed) and joined[0].dtype.kind != "f":
        values.whole[sign.position] = joined[0].dtype
    return apply(*joined)
