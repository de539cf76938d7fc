"""The words of a C++ expression, with their places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d|\.\d)[\w.]*(?:(?<=[eEpP])[-+]\w+)?)|(?P<name>(?:::)?[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)*)"
    r"|(?P<sign>\*\*|<<|>>|&&|\|\||[<>=!]=|[-+*/%&|^]=|\+\+|--|.))",
    re.DOTALL,
)

WORDS_OF_TYPES = frozenset("bool char const double float int long short signed size_t unsigned T".split())  # noqa: SIM905 — a list of words


class Token(NamedTuple):
    """A word of an expression.

    Attributes
    ----------
    kind : {"number", "name", "sign", "end"}
    text : str
    position : int
        Index of its first character.
    """

    kind: str
    text: str
    position: int


def tokens(expression: str) -> Iterator[Token]:
    """Yield the words of an expression, as greedily as C++ reads them."""
    for match in _TOKEN.finditer(expression.rstrip()):
        kind = match.lastgroup or "sign"
        yield Token(kind, match[kind], match.start(kind))


def is_template(words: Sequence[Token], at: int) -> bool:
    """Tell whether the words from an index on are the types of a template, as behind the name in ``f<unsigned int>(x)``."""
    if at >= len(words) or words[at].text != "<":
        return False
    behind = _behind_types(words, at + 1)
    return behind > at + 1 and behind < len(words) and words[behind].text in (">", ",", "*")


def behind_template(words: Sequence[Token], at: int) -> int:
    """Return the index of the first word behind the types of a template that begin at an index; the index where there are none."""
    if not is_template(words, at):
        return at
    while at < len(words) and words[at].text not in (">", ""):
        at += 1
    return min(at + 1, len(words))


def is_cast(words: Sequence[Token], at: int) -> bool:
    """Tell whether a type in parentheses begins at an index; a conversion in them, as in ``(T(1) + x)``, is none."""
    behind = _behind_types(words, at + 1)
    return words[at].text == "(" and behind > at + 1 and behind < len(words) and words[behind].text == ")"


def is_call(words: Sequence[Token], at: int) -> bool:
    """Tell whether the parenthesis at an index holds the arguments of a function, as in ``f(x)`` and ``f<int>(x)``."""
    before = at - 1
    if at and words[before].text == ">":
        while before > 0 and (words[before].text in (">", ",", "*") or words[before].text in WORDS_OF_TYPES):
            before -= 1
        before -= 1  # what stands before <, if that is there
        if words[before + 1].text != "<":
            return False
    no_function = {*WORDS_OF_TYPES, "sizeof", "static_cast"}
    return words[at].text == "(" and before >= 0 and words[before].kind == "name" and words[before].text not in no_function


def _behind_types(words: Sequence[Token], at: int) -> int:
    while at < len(words) and words[at].text in WORDS_OF_TYPES:
        at += 1
    return at
