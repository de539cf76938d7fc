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


def is_template(following: Sequence[Token]) -> bool:
    """Tell whether the words behind a name are the types of a template, as in ``f<unsigned int>(x)``."""
    if not following or following[0].text != "<":
        return False
    behind = next((at for at, word in enumerate(following[1:], 1) if word.text not in WORDS_OF_TYPES), 0)
    return behind > 1 and following[behind].text in (">", ",", "*")
