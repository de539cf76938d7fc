"""Tokens of a C++ expression with their places, and the values of its literals, typed by C++17."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

_OF_CUDA = "NULL blockDim blockIdx gridDim threadIdx warpSize"
_OF_CPP = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl concept const
    const_cast constexpr continue decltype default delete do double dynamic_cast else enum explicit export extern false float for friend
    goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template this thread_local throw
    true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq"""
_KEYWORDS = frozenset(_OF_CPP.split())
"""Words of C++, up to C++20."""
RESERVED = _KEYWORDS | frozenset(f"T {_OF_CUDA}".split())
"""Names that mean something in an expression already, so that no operand may have them."""
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d|\.\d)[\w.]*(?:(?<=[eEpP])[-+]\w+)?)|(?P<name>(?:::)?[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)*)"
    r"|(?P<sign>\*\*|<<|>>|&&|\|\||[<>=!]=|[-+*/%&|^]=|\+\+|--|.))",
    re.DOTALL,
)
WORDS_OF_TYPES = frozenset("bool char const double float int long short signed size_t unsigned T".split())  # noqa: SIM905 — a list of words


class Token(NamedTuple):
    """A word of an expression."""

    kind: str
    text: str
    position: int
    """Index of its first character."""


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


def is_cast(words: Sequence[Token], at: int) -> bool:
    """Tell whether a type in parentheses begins at an index; a conversion in them, as in ``(T(1) + x)``, is none."""
    behind = _behind_types(words, at + 1)
    return words[at].text == "(" and behind > at + 1 and behind < len(words) and words[behind].text == ")"


def _behind_types(words: Sequence[Token], at: int) -> int:
    while at < len(words) and words[at].text in WORDS_OF_TYPES:
        at += 1
    return at


_WHOLE = re.compile(r"(?P<digits>0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)(?P<suffix>(?:[uU](?:ll?|LL?)?|(?:ll?|LL?)[uU]?)?)")
_FLOATING = re.compile(
    r"(?P<digits>(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+"
    r"|0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][-+]?\d+)(?P<suffix>[fFlL]?)"
)
_LONGEST_WHOLE = 20
"""Decimal digits of the greatest number of 64 bits."""


class LiteralError(ValueError):
    """A text begins like a number, and C++ has no such number."""


@lru_cache(maxsize=1024)
def literal(text: str) -> np.generic:
    """Return the value of a C++ literal in its type on the device, where ``long`` has 64 bits and ``long double`` is ``double``."""
    if match := _WHOLE.fullmatch(text):
        return _whole(match["digits"], match["suffix"].lower())
    if match := _FLOATING.fullmatch(text):
        return _floating(match["digits"], match["suffix"].lower())
    raise LiteralError(f"{text!r} is not a number of C++")


def _whole(digits: str, suffix: str) -> np.generic:
    decimal = digits[0] != "0"
    base = 10 if decimal else {"x": 16, "b": 2}.get(digits[1:2].lower(), 8)
    if decimal and len(digits) > _LONGEST_WHOLE:
        raise LiteralError(f"a number of {len(digits)} digits needs more than 64 bits")
    value = int(digits, base) if base in (10, 8) else int(digits[2:], base)
    # Decimal numbers become unsigned where they say so only, others where they fit no signed type of the width ([lex.icon]).
    for name in ("int32", "uint32", "int64", "uint64"):
        kind = np.dtype(name)
        of_sign = kind.kind == "u" if "u" in suffix else not decimal or kind.kind == "i"
        if of_sign and (kind.itemsize == 8 or "l" not in suffix) and value <= np.iinfo(kind).max:
            return kind.type(value)
    raise LiteralError(f"{digits} needs more than 64 bits")


def _floating(digits: str, suffix: str) -> np.generic:
    """Return the number nearest to a text; NVRTC refuses what is out of range, which is infinite or zero here."""
    try:
        value = float.fromhex(digits) if digits[:2] in ("0x", "0X") else float(digits)
    except OverflowError:
        value = math.inf
    with np.errstate(over="ignore", under="ignore"):
        return (np.float32 if suffix == "f" else np.float64)(value)
