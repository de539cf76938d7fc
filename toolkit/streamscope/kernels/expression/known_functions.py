"""Which functions a CUDA expression may call: those of numbers. The list is ours, so the answer is the same without NVRTC."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from streamscope.kernels.elementwise.functions_source import FUNCTIONS
from streamscope.kernels.expression.expression_check import Mistake
from streamscope.kernels.expression.numpy_functions import NAMES
from streamscope.kernels.expression.tokens import WORDS_OF_TYPES, Token, behind_template, tokens

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
    """Return what is wrong with a name that is called, or that is no operand's: a template's, or one of a namespace."""
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
