"""What can be told of a CUDA expression without a compiler: where it is certainly wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from streamscope.kernels.expression.literals import LiteralError, literal
from streamscope.kernels.expression.tokens import WORDS_OF_TYPES, Token, behind_template, is_call, is_cast, tokens
from streamscope.kernels.signature import KEYWORDS

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
DEEPEST, MOST_WORDS = 64, 8000
"""How deep expressions are nested at most, and how long they are: NVRTC ends the process for 4,000 levels, and takes minutes for 400 kB."""
_SIDE = 80
"""Characters of a long expression that messages show before and behind the place."""
_BEFORE = frozenset("+-!~(")
"""Signs that may stand where an operand begins."""
_OF_POINTERS = {"&": "takes an address", "*": "follows a pointer"}
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
        start, end = max(0, self.position - _SIDE), self.position + _SIDE
        line = " ".join(expression[start:end].splitlines())
        before, behind = "..." * (start > 0), "..." * (end < len(expression))
        return f"{self.problem}\n    {before}{line}{behind}\n    {' ' * (len(before) + self.position - start)}^"


def mistake_in(expression: str) -> Mistake | None:
    """Return the first mistake in a C++ expression that shows without knowing what its names mean; None where there is none."""
    foreign = re.search(r"//|/\*|[;{}#\"'\\@$`]", expression)
    if foreign is not None:
        return _foreign_mistake(expression, foreign[0], foreign.start())
    return _Reading(list(islice(tokens(expression), MOST_WORDS + 1))).mistake(len(expression.rstrip()))


class _Reading:
    """One pass over the words of an expression.

    Parameters
    ----------
    words : sequence of Token
    """

    def __init__(self, words: Sequence[Token]) -> None:
        self._words = words
        self._opened: list[Token] = []
        self._calls: set[Token] = set()
        """Parentheses that hold arguments."""
        self._in_cast = False
        self._in_front = 0
        """Signs and casts before the next operand."""
        self._wanted = True
        """Whether an operand must come."""

    def mistake(self, end: int) -> Mistake | None:
        """Return the first mistake of an expression that ends at some character."""
        for at, word in enumerate(self._words):
            of_kind = self._at_sign if word.kind == "sign" else self._at_operand
            mistake = _MISTAKES[word.kind](word, self._opened) or of_kind(at, word)
            if mistake is not None:
                return mistake
            if max(len(self._opened), self._in_front) > DEEPEST:
                return Mistake(word.position, f"the expression is nested deeper than {DEEPEST} levels", "put a part of it into functions=")
            if at == MOST_WORDS:
                problem = f"the expression has more than {MOST_WORDS:,} words"
                return Mistake(word.position, problem, "make several operators of it, or a loop in functions=")
        if self._opened:
            return _unclosed(self._opened[-1])
        return Mistake(end, "an operand is missing at the end", "complete the expression") if self._wanted else None

    def _at_operand(self, at: int, word: Token) -> Mistake | None:
        if not self._wanted and self._before(at) not in WORDS_OF_TYPES:
            return Mistake(word.position, f"an operator is missing before {word.text!r}", "for example *")
        if self._before(at) == "sizeof" and word.text in WORDS_OF_TYPES:
            return Mistake(word.position, f"sizeof takes a type in parentheses, not {word.text!r}", f"write sizeof({word.text})")
        if word.text == "static_cast":
            behind = behind_template(self._words, at + 1)
            if behind == at + 1 or [each.text for each in self._words[behind : behind + 1]] != ["("]:
                return Mistake(word.position, "static_cast has no type, or nothing to convert", "write static_cast<int>(x)")
        self._wanted = word.text == "sizeof"
        if word.text == "sizeof":
            self._in_front += 1
        elif word.text not in WORDS_OF_TYPES:
            self._in_front = 0
        return None

    def _at_sign(self, at: int, word: Token) -> Mistake | None:
        sign, before = word.text, self._before(at)
        if self._wanted and sign in _OF_POINTERS:
            return Mistake(word.position, f"{sign!r} before an operand {_OF_POINTERS[sign]}", "leave it out: operands are numbers")
        if sign == "," and before not in WORDS_OF_TYPES and not (self._opened and self._opened[-1] in self._calls):
            return Mistake(word.position, "',' stands outside the arguments of a function", "give one expression")
        if self._wanted and sign not in _BEFORE and not (sign == ")" and self._may_be_empty(at - 1)):
            return Mistake(word.position, f"an operand is missing before {sign!r}", "complete the expression")
        if not self._wanted and (sign in ("!", "~") or (sign == "(" and self._words[at - 1].kind != "name")):
            hint = "for example *; a function has its bare name before it: exp(x)"
            return Mistake(word.position, f"an operator is missing before {sign!r}", hint)
        if is_call(self._words, at):
            self._calls.add(word)
        ends_cast = self._in_cast and sign == ")"
        self._in_front += ends_cast or (self._wanted and sign in "+-!~")
        self._in_cast = self._wanted and before != "sizeof" and is_cast(self._words, at)
        self._wanted = ends_cast or sign in _BETWEEN or sign in _BEFORE
        return None

    def _may_be_empty(self, at: int) -> bool:
        """Tell whether a parenthesis opens at an index that may hold nothing, as in ``f()`` and ``T()``."""
        return at >= 0 and self._words[at].text == "(" and (self._words[at] in self._calls or self._before(at) in WORDS_OF_TYPES)

    def _before(self, at: int) -> str:
        return self._words[at - 1].text if at else ""


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
