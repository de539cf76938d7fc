"""What can be told of a CUDA expression without a compiler: where its grammar is certainly wrong, and which functions it cannot call.

The list of functions is ours, so the answer is the same without NVRTC.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from streamscope.kernels.expression.functions import FUNCTIONS, NAMES
from streamscope.kernels.expression.tokens import (
    KEYWORDS,
    WORDS_OF_TYPES,
    LiteralError,
    Mistake,
    Token,
    behind_template,
    is_call,
    is_cast,
    literal,
    tokens,
)

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
_BEFORE = frozenset("+-!~(")
"""Signs that may stand where an operand begins."""
_OF_POINTERS = {"&": "takes an address", "*": "follows a pointer"}
_BETWEEN = frozenset("+-*/%&|^<>?:,.[") | {"<<", ">>", "&&", "||", "==", "!=", "<=", ">="}
"""Signs that need an operand after them."""
_CLOSED_BY = {")": "(", "]": "[", ":": "?"}


def mistake_in(expression: str) -> Mistake | None:
    """Return the first mistake in a C++ expression that shows without knowing what its names mean; None where there is none."""
    foreign = re.search(r"//|/\*|[;{}#\"'\\@$`]", expression)
    if foreign is not None:
        return _foreign_mistake(expression, foreign[0], foreign.start())
    return _Reading(list(islice(tokens(expression), MOST_WORDS + 1))).mistake(len(expression.rstrip()))


class _Reading:
    """One pass over the words of an expression."""

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


_IN_BOTH_PRECISIONS = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc erfcinv erfcx erfinv"
    " exp exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10"
    " log1p log2 logb lrint lround modf nan nearbyint nextafter norm norm3d norm4d normcdf normcdfinv pow rcbrt remainder remquo rhypot"
    " rint rnorm rnorm3d rnorm4d round rsqrt scalbln scalbn sin sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn"
)
_IN_ONE = "abs isfinite isinf isnan labs llabs llmax llmin max min signbit ullmax ullmin umax umin"
_INTRINSICS = (
    "__brev __brevll __byte_perm __clz __clzll __cosf __double2hiint __double2loint __double_as_longlong __dp2a_hi __dp2a_lo __dp4a"
    " __exp10f __expf __fdividef __ffs __ffsll __float_as_int __float_as_uint __fns __frsqrt_rn __funnelshift_l __funnelshift_lc"
    " __funnelshift_r __funnelshift_rc __hadd __hiloint2double __int2double_rn __int_as_float __log10f __log2f __logf"
    " __longlong_as_double __mul24 __mul64hi __mulhi __popc __popcll __powf __rhadd __sad __saturatef __sinf __tanf __uhadd"
    " __uint2double_rn __uint_as_float __umul24 __umul64hi __umulhi __urhadd __usad"
)
_ROUNDED = (
    "dadd ddiv dmul double2float double2int double2ll double2uint double2ull drcp dsqrt dsub fadd fdiv float2int float2ll float2uint"
    " float2ull fma fmaf fmaf_ieee fmul frcp fsqrt fsub int2float ll2double ll2float uint2float ull2double ull2float"
)
_PACKED = (
    "abs absdiffs absdiffu absss add addss addus avgs avgu cmpeq cmpges cmpgeu cmpgts cmpgtu cmples cmpleu cmplts cmpltu cmpne haddu maxs"
    " maxu mins minu neg negss sads sadu seteq setges setgeu setgts setgtu setles setleu setlts setltu setne sub subss subus"
)
_CUDA = (
    frozenset([*_IN_ONE.split(), *_INTRINSICS.split()])
    | {each + suffix for each in _IN_BOTH_PRECISIONS.split() for suffix in ("", "f")}
    | {f"__{each}_r{direction}" for each in _ROUNDED.split() for direction in "nzud"}
    | {f"__v{each}{parts}" for each in _PACKED.split() for parts in "24"}
)
"""The functions of the CUDA Math API, and its intrinsics, that make numbers of numbers."""
_KNOWN = _CUDA | NAMES | frozenset(FUNCTIONS)
_WORDS = WORDS_OF_TYPES | {"sizeof", "static_cast"}
_PARTS = (".", "[")
"""Signs before a member, and before an index."""
_LIKENESS = 0.76
"""How like a name must be to be suggested, by `difflib`."""
_ELSEWHERE = {
    "clamp": "write fmin(fmax(x, low), high)",
    "clip": "write fmin(fmax(x, low), high)",
    "ln": "did you mean log?",
    "mod": "did you mean fmod?",
    "power": "did you mean pow?",
    "square": "write x * x",
    "where": "write condition ? one : other",
}
"""What functions of other languages are in CUDA, where the name does not tell."""


def unknown_function(expression: str, operands: frozenset[str], functions: str, *, vouched: bool = False) -> Mistake | None:
    """Return where an expression names what is neither an operand nor a function of numbers; None where only a compiler could tell.

    Whatever the source of the user's own ``functions`` mentions passes. ``vouched``: the user gave a reference, and so answers for
    functions of numbers that are not known here; a newer CUDA may have more.
    """
    own = set(re.findall(r"\w+", functions))
    end = Token("end", "", 0)
    words = [*tokens(expression), end, end]
    for at, word in enumerate(words):
        if word.text in _PARTS and not functions and not vouched:
            return Mistake(word.position, f"{word.text!r} asks for a part of a number", "put what has parts into functions=")
        if word.kind == "name" and word.text not in _WORDS and (at == 0 or words[at - 1].text != "."):
            mistake = _mistake_in_name(words, at, own, operands, vouched=vouched)
            if mistake is not None:
                return mistake
    return None


def _mistake_in_name(words: Sequence[Token], at: int, own: set[str], operands: frozenset[str], *, vouched: bool) -> Mistake | None:
    """Return what is wrong with a name that is called, or that is not an operand's: a template's, or one of a namespace."""
    behind, name = behind_template(words, at + 1), "".join(words[at].text.split())
    called, template, bare = words[behind].text == "(", behind > at + 1, name.removeprefix("::")
    if not (called or template or "::" in name) or name.rpartition("::")[2] in own:
        return None
    position = words[at].position
    if called and name in operands and name in _KNOWN:
        return Mistake(position, f"{name} is an operand, and is called too", "give the operand another name")
    # Ours are templates, and not in the global namespace.
    if called and (name in FUNCTIONS or (bare in _CUDA and not template)):
        return None
    if called and words[behind + 1].text == ")":
        return Mistake(position, f"{bare}() takes no number", "an expression only computes; for all else there is functions=")
    if vouched and name not in operands:
        return None
    kind = "function template" if template else "function" if called else "name"
    return Mistake(position, f"CUDA's math has no {kind} {name}", _advice(bare, operands))


def _advice(name: str, operands: frozenset[str]) -> str:
    if name in operands:
        return f"{name} is an operand; write {name} * (...) for a product"
    plain = name.rpartition("::")[2]
    if plain in _KNOWN:
        return f"write {plain}(...)"
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    swapped = [known for known in sorted(_KNOWN) if sorted(known) == sorted(name)]
    near = swapped or difflib.get_close_matches(name, sorted(_KNOWN), 1, _LIKENESS)
    return f"did you mean {near[0]}?" if near else "define it in functions=, or call it there"
