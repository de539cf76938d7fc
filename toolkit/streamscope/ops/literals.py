"""Numbers as C++17 writes them: what they are worth, and of which type."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

_WHOLE = re.compile(r"(?P<digits>0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)(?P<suffix>(?:[uU](?:ll?|LL?)?|(?:ll?|LL?)[uU]?)?)")
_FLOATING = re.compile(
    r"(?P<digits>(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+"
    r"|0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][-+]?\d+)(?P<suffix>[fFlL]?)"
)
_OCTAL = re.compile(r"0\d+[uUlL]*")


class LiteralError(ValueError):
    """A text that begins as a number does is none of C++.

    Attributes
    ----------
    problem, hint : str
    """

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


@lru_cache(maxsize=1024)
def literal(text: str) -> np.generic:
    """Return what a number of C++ stands for, in its type on the device, where ``long`` has 64 bits and ``long double`` is ``double``.

    Raises
    ------
    LiteralError
        It is no number of C++, or fits none of its types.
    """
    if match := _WHOLE.fullmatch(text):
        return _whole(match["digits"], match["suffix"].lower())
    if match := _FLOATING.fullmatch(text):
        digits, kind = match["digits"], np.float32 if match["suffix"] in ("f", "F") else np.float64
        with np.errstate(over="ignore", under="ignore"):
            return kind(float.fromhex(digits) if digits[:2] in ("0x", "0X") else float(digits))
    raise _no_number(text)


def _whole(digits: str, suffix: str) -> np.generic:
    decimal = digits[0] != "0"
    base = 10 if decimal else {"x": 16, "b": 2}.get(digits[1:2].lower(), 8)
    value = int(digits, base) if base in (10, 8) else int(digits[2:], base)
    # Decimal numbers become unsigned where they say so only, others where they fit no signed type of the width ([lex.icon]).
    kinds = [
        kind
        for kind in (np.int32, np.uint32, np.int64, np.uint64)
        if (np.dtype(kind).kind == "u" if "u" in suffix else not decimal or np.dtype(kind).kind == "i")
        and (np.dtype(kind).itemsize == np.dtype(np.int64).itemsize or "l" not in suffix)
    ]
    for kind in kinds:
        if value <= np.iinfo(kind).max:
            return kind(value)
    raise LiteralError(f"{digits} needs more than 64 bits", "write a floating-point number" + f", {digits}.0" * decimal)


def _no_number(text: str) -> LiteralError:
    if _OCTAL.fullmatch(text):
        return LiteralError(f"{text!r} is no number: a leading 0 makes it octal", f"write {text.lstrip('0') or '0'}")
    if re.fullmatch(r"\d+[fF]", text):
        return LiteralError(f"{text!r} is no number: the suffix of a float needs a point", f"write {text[:-1]}.0f")
    return LiteralError(f"{text!r} is no number of C++", "write for example 2, 2u, 2.5, 2.5f, 1e-3f, 0x1f")
