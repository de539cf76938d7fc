"""What can be told of a CUDA expression without a compiler: where it is certainly wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamscope.ops.literals import LiteralError, literal
from streamscope.ops.tokens import WORDS_OF_TYPES, Token, tokens
from streamscope.rtc.signature import KEYWORDS

_FOREIGN = {
    "//": "leave comments out",
    "/*": "leave comments out",
    ";": "give one expression, and put more into functions=",
    "{": "put blocks into functions=",
    "}": "put blocks into functions=",
    "#": "put directives into functions=",
}
_KEYWORDS = KEYWORDS - WORDS_OF_TYPES - {"char16_t", "char32_t", "false", "sizeof", "static_cast", "true"}
"""Words of C++ that have no place in an expression."""
_SPELT = {"and": "&&", "or": "||", "not": "!", "xor": "^"}
_BEFORE = frozenset("+-!~*&(")
"""Signs that may stand where an operand begins."""
_BETWEEN = frozenset("+-*/%&|^<>?:,.[") | {"<<", ">>", "&&", "||", "==", "!=", "<=", ">="}
"""Signs that need an operand after them."""
_CLOSED_BY = {")": "(", "]": "[", ":": "?"}


@dataclass(frozen=True)
class Mistake:
    """Where an expression is wrong, and why.

    Attributes
    ----------
    position : int
        Index of the character.
    problem, hint : str
    """

    position: int
    problem: str
    hint: str

    def shown(self, expression: str) -> str:
        """Return the problem with the expression and a caret below the place."""
        line = " ".join(expression.splitlines())
        return f"{self.problem}\n    {line}\n    {' ' * self.position}^"


def mistake_in(expression: str) -> Mistake | None:
    """Return the first mistake in a C++ expression that shows without knowing what its names mean; None where there is none."""
    foreign = re.search(r"//|/\*|[;{}#\"'\\@$`]", expression)
    if foreign is not None:
        return _foreign_mistake(expression, foreign[0], foreign.start())
    opened: list[Token] = []
    wanted, before = True, ""
    for token in tokens(expression):
        kind, text, at = token
        mistake = _MISTAKES[kind](token, opened)
        if mistake is not None:
            return mistake
        if kind != "sign":
            if not wanted and before not in (")", *WORDS_OF_TYPES):  # behind a parenthesis, it may be a cast
                return Mistake(at, f"an operator is missing before {text!r}", "for example *")
            wanted = text == "sizeof"
        elif wanted and text not in _BEFORE and (before, text) != ("(", ")"):
            return Mistake(at, f"an operand is missing before {text!r}", "complete the expression")
        else:
            wanted = text in _BETWEEN or text in _BEFORE
        before = text
    if opened:
        return _unclosed(opened[-1])
    return Mistake(len(expression.rstrip()), "an operand is missing at the end", "complete the expression") if wanted else None


def _foreign_mistake(expression: str, sign: str, at: int) -> Mistake:
    number = re.match(r"\d[\d']*", expression[re.search(r"[\w']*$", expression[:at]).start() :]) if sign == "'" else None  # type: ignore[union-attr]
    if number is not None and "'" in number[0]:
        return Mistake(at, '"\'" separates digits, which is not supported here', f"write {number[0].replace(chr(39), '')}")
    return Mistake(at, f"{sign!r} has no place in an expression", _FOREIGN.get(sign, "leave it out"))


def _unclosed(token: Token) -> Mistake:
    if token.text == "?":
        return Mistake(token.position, "'?' has no ':'", "write condition ? one : other")
    return Mistake(token.position, f"{token.text!r} is not closed", "close it")


def _number_mistake(token: Token, _: list[Token]) -> Mistake | None:
    try:
        literal(token.text)
    except LiteralError as error:
        return Mistake(token.position, error.problem, error.hint)
    return None


def _word_mistake(token: Token, _: list[Token]) -> Mistake | None:
    word, at = token.text, token.position
    if word in _SPELT:
        return Mistake(at, f"{word!r} is an operator of C++, spelt in letters", f"write {_SPELT[word]}")
    if word in ("if", "else"):
        return Mistake(at, f"{word!r} has no place in an expression", "write condition ? one : other")
    return Mistake(at, f"{word!r} is a word of C++", "use another name") if word in _KEYWORDS else None


def _sign_mistake(token: Token, opened: list[Token]) -> Mistake | None:
    """Return what is wrong with a sign, and keep what is open."""
    sign, at = token.text, token.position
    if sign == "**":
        return Mistake(at, "C++ has no operator **", "write x * x, or pow(x, a)")
    if sign in ("=", "++", "--") or (len(sign) == 2 and sign[1] == "=" and sign not in _BETWEEN):
        return Mistake(at, f"{sign!r} changes an operand", "an expression only computes; == compares")
    if sign in _CLOSED_BY.values():
        opened.append(token)
    elif sign in _CLOSED_BY:
        if opened and opened[-1].text == _CLOSED_BY[sign]:
            opened.pop()
        elif opened and opened[-1].text == "?":
            return _unclosed(opened[-1])
        else:
            return Mistake(
                at,
                *(
                    ("':' has no '?'", "write condition ? one : other")
                    if sign == ":"
                    else (f"{sign!r} closes nothing", "open it, or leave it out")
                ),
            )
    return None


_MISTAKES: Mapping[str, Callable[[Token, list[Token]], Mistake | None]] = {
    "number": _number_mistake,
    "name": _word_mistake,
    "sign": _sign_mistake,
}
