"""Which functions a CUDA expression may call: those of numbers. The list is ours, so the answer is the same without NVRTC."""

from __future__ import annotations

import difflib
import re

from streamscope.ops.expression_check import Mistake
from streamscope.ops.numpy_functions import NAMES
from streamscope.ops.tokens import WORDS_OF_TYPES, Token, tokens
from streamscope.rtc.functions_source import FUNCTIONS

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
    """Return where an expression calls what is no function of numbers; None where it does not, or where only a compiler could tell.

    Parameters
    ----------
    expression : str
    operands : frozenset of str
    functions : str
        CUDA source of the user's own functions: whatever it mentions passes.
    vouched : bool
        Whether the user gave a reference, and so answers for functions of numbers that are not known here: a newer CUDA may have more.
    """
    own = set(re.findall(r"\w+", functions))
    for name, behind in _called(expression):
        called = name.text.removeprefix("::")
        if called in own or called in _KNOWN:
            continue
        if behind.text == ")":
            return Mistake(name.position, f"{called}() takes no number", "an expression only computes; for all else there is functions=")
        if not vouched:
            return Mistake(name.position, f"CUDA's math has no function {called}", _advice(called, operands))
    return None


def _called(expression: str) -> list[tuple[Token, Token]]:
    """Return what is called, each with the word behind its parenthesis."""
    words = [Token("end", "", 0), *tokens(expression), Token("end", "", 0)]
    return [
        (word, behind)
        for before, word, after, behind in zip(words, words[1:], words[2:], words[3:], strict=False)
        if word.kind == "name"
        and after.text == "("
        and word.text not in WORDS_OF_TYPES
        and word.text != "sizeof"
        and "::" not in word.text[2:]  # of a namespace that only the compiler knows
        and before.text != "."
    ]


def _advice(name: str, operands: frozenset[str]) -> str:
    if name in operands:
        return f"{name} is an operand; write {name} * (...) for a product"
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    swapped = [known for known in sorted(_KNOWN) if sorted(known) == sorted(name)]
    near = swapped or difflib.get_close_matches(name, sorted(_KNOWN), 1, _LIKENESS)
    return f"did you mean {near[0]}?" if near else "define it in functions=, or call it there"
