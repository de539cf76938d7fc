"""What can be told of a CUDA expression without a compiler: where it is certainly wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d|\.\d)[\w.]*(?:(?<=[eEpP])[-+]\w+)?)|(?P<name>[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)"
    r"|(?P<sign>\*\*|<<|>>|&&|\|\||[<>=!]=|[-+*/%&|^]=|\+\+|--|.))",
    re.DOTALL,
)
_FOREIGN = {
    "//": "leave comments out",
    "/*": "leave comments out",
    ";": "give one expression, and put more into functions=",
    "{": "put blocks into functions=",
    "}": "put blocks into functions=",
    "#": "put directives into functions=",
}
_WORDS_OF_TYPES = frozenset("bool char const double float int long short signed unsigned T".split())  # noqa: SIM905 — a list of words
_KEYWORDS = frozenset(
    (  # noqa: SIM905
        "alignas alignof and_eq asm auto bitand bitor break case catch class compl concept const_cast constexpr continue"
        " decltype default delete do else enum explicit export extern for friend goto if inline mutable namespace new noexcept not_eq"
        " nullptr operator or_eq private protected public register reinterpret_cast requires return static static_assert struct switch"
        " template this throw try typedef typename typeid union using virtual void volatile wchar_t while xor_eq"
    ).split()
)
_SPELT = {"and": "&&", "or": "||", "not": "!", "xor": "^"}
_BEFORE = frozenset("+-!~*&(")
"""Signs that may stand where an operand begins."""
_BETWEEN = frozenset("+-*/%&|^<>?:,.[") | {"<<", ">>", "&&", "||", "==", "!=", "<=", ">="}
"""Signs that need an operand after them."""
_PAIRS = {")": "(", "]": "["}


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
        return Mistake(foreign.start(), f"{foreign[0]!r} has no place in an expression", _FOREIGN.get(foreign[0], "leave it out"))
    opened: list[tuple[str, int]] = []
    wanted, before = True, ""
    for match in _TOKEN.finditer(expression.rstrip()):
        token, kind = match[match.lastgroup or 0], match.lastgroup
        at = match.start(kind or 0)
        mistake = _word_mistake(token, at) if kind == "name" else _sign_mistake(token, at, opened) if kind == "sign" else None
        if mistake is not None:
            return mistake
        if kind != "sign":
            if not wanted and before not in (")", *_WORDS_OF_TYPES):  # behind a parenthesis, it may be a cast
                return Mistake(at, f"an operator is missing before {token!r}", "for example *")
            wanted = False
        elif wanted and token not in _BEFORE and (before, token) != ("(", ")"):
            return Mistake(at, f"an operand is missing before {token!r}", "complete the expression")
        else:
            wanted = token in _BETWEEN or token in _BEFORE
        before = token
    if opened:
        return Mistake(opened[-1][1], f"{opened[-1][0]!r} is not closed", "close it")
    return Mistake(len(expression.rstrip()), "an operand is missing at the end", "complete the expression") if wanted else None


def _word_mistake(word: str, at: int) -> Mistake | None:
    if word in _SPELT:
        return Mistake(at, f"{word!r} is an operator of C++, spelt in letters", f"write {_SPELT[word]}")
    if word in ("if", "else"):
        return Mistake(at, f"{word!r} has no place in an expression", "write condition ? one : other")
    return Mistake(at, f"{word!r} is a word of C++", "use another name") if word in _KEYWORDS else None


def _sign_mistake(sign: str, at: int, opened: list[tuple[str, int]]) -> Mistake | None:
    if sign == "**":
        return Mistake(at, "C++ has no operator **", "write x * x, or pow(x, a)")
    if sign in ("=", "++", "--") or (len(sign) == 2 and sign[1] == "=" and sign not in _BETWEEN):
        return Mistake(at, f"{sign!r} changes an operand", "an expression only computes; == compares")
    if sign in _PAIRS.values():
        opened.append((sign, at))
    elif sign in _PAIRS:
        if not opened or opened[-1][0] != _PAIRS[sign]:
            return Mistake(at, f"{sign!r} closes nothing", "open it, or leave it out")
        opened.pop()
    return None
