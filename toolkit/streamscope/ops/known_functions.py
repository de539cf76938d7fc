"""Which functions a CUDA expression may call, as far as that can be told before it is compiled."""

from __future__ import annotations

import difflib
import re
from functools import lru_cache

from streamscope.errors import CompilationError, NoDeviceError
from streamscope.ops.expression_check import Mistake
from streamscope.ops.numpy_functions import NAMES
from streamscope.ops.tokens import WORDS_OF_TYPES, Token, tokens
from streamscope.rtc.functions_source import FUNCTIONS
from streamscope.rtc.nvrtc import compile_unit, supported_architectures

_IN_BOTH_PRECISIONS = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc erfcinv erfcx erfinv"
    " exp exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10"
    " log1p log2 logb lrint lround modf nan nearbyint nextafter norm norm3d norm4d normcdf normcdfinv pow rcbrt remainder remquo rhypot"
    " rint rnorm rnorm3d rnorm4d round rsqrt scalbln scalbn sin sincos sincospi sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn"
)
_IN_ONE = "abs isfinite isinf isnan labs llabs llmax llmin max min signbit ullmax ullmin umax umin"
_CUDA = frozenset(_IN_ONE.split()) | {each + suffix for each in _IN_BOTH_PRECISIONS.split() for suffix in ("", "f")}
"""The functions of the CUDA Math API that have names without underscores in front."""
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


def unknown_function(expression: str, operands: frozenset[str], functions: str) -> Mistake | None:
    """Return where an expression calls what is no function; None where it does not, or where only a compiler could tell.

    What is not in CUDA's documentation is asked of NVRTC, since a newer CUDA may have more; where there is none, names that begin with
    two underscores pass.

    Parameters
    ----------
    expression : str
    operands : frozenset of str
    functions : str
        CUDA source of the user's own functions: whatever it mentions passes.
    """
    own = set(re.findall(r"\w+", functions))
    for name in _called(expression):
        called = name.text.removeprefix("::")
        if called not in own and not _is_function(called):
            return Mistake(name.position, f"CUDA has no function {called}", _advice(called, operands))
    return None


def _called(expression: str) -> list[Token]:
    words = list(tokens(expression))
    return [
        word
        for before, word, after in zip([None, *words], words, words[1:], strict=False)
        if word.kind == "name"
        and after.text == "("
        and word.text not in WORDS_OF_TYPES
        and word.text != "sizeof"
        and "::" not in word.text[2:]  # of a namespace that only the compiler knows
        and (before is None or before.text != ".")
    ]


def _is_function(name: str) -> bool:
    if name in _KNOWN:
        return True
    declared = _nvrtc_declares(name)
    return name.startswith("__") if declared is None else declared


def _nvrtc_declares(name: str) -> bool | None:
    """Ask NVRTC whether a name is declared in every translation unit; None where it cannot be asked."""
    try:
        return _declares(name, supported_architectures()[-1])
    except (NoDeviceError, CompilationError):
        return None


@lru_cache(maxsize=256)
def _declares(name: str, architecture: str) -> bool:
    """Compile a unit that names a function, which takes NVRTC some 20 ms; errors are not kept, for NVRTC may be installed later."""
    image, _ = compile_unit(f"namespace asked {{ using ::{name}; }}\n", "asked", architecture)
    return image is not None


def _advice(name: str, operands: frozenset[str]) -> str:
    if name in operands:
        return f"{name} is an operand; write {name} * (...) for a product"
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    swapped = [known for known in sorted(_KNOWN) if sorted(known) == sorted(name)]
    near = swapped or difflib.get_close_matches(name, sorted(_KNOWN), 1, _LIKENESS)
    return f"did you mean {near[0]}?" if near else "define it in functions="
