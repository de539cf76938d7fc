"""Element-wise operators of one operand: arithmetic, rounding, exponentials and logarithms, powers, angles, tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from streamscope.kernels.expression.promotion import Promoted, promote
from streamscope.ops.definition import Definition, example_of
from streamscope.ops.elementwise_operator import Elementwise, Scalars, defined
from streamscope.program.variable import ArraySpec

_PI_OVER_180 = "T(0.0174532925199432957692)"
_LN_2 = "T(0.693147180559945309417)"
_LN_10 = "T(2.30258509299404568402)"


_unary = partial(defined, ("x",))

negative = _unary("negative", "Return ``-x``.", "-x", np.negative, "-dy")
abs = _unary("abs", "Return the absolute value.", "fabs(x)", np.absolute, "dy * sign(x)", whole="x < 0 ? -x : x", truth="x")  # noqa: A001 — NumPy's name
sign = _unary("sign", "Return -1, 0 or 1 by the sign of x; NaN stays NaN.", "sign(x)", np.sign, "0")
reciprocal = _unary(
    "reciprocal",
    "Return ``1 / x``; of whole numbers its whole part, and 0 of 0.",
    "1 / x",
    np.reciprocal,
    "-dy * y * y",
    whole="x == 1 || (x < 0 && x == T(-1)) ? x : T(0)",
    reference=lambda x: np.reciprocal(x) if x.dtype.kind == "f" else np.where(np.abs(x) == 1, x, 0).astype(x.dtype),
)
square = _unary("square", "Return ``x * x``.", "x * x", np.square, "2 * x * dy")

rint = _unary("rint", "Round to the nearest whole number, halves to the even one.", "rint(x)", np.rint, "0")


class _Round(Elementwise):
    """`rint` that keeps whole numbers; of truth values it is half, as `rint` is."""

    def promoted(self, specs: Sequence[ArraySpec], scalars: Scalars) -> Promoted:
        """Return the dtypes that the operand is taken in, and the result's."""
        kinds = self._kinds(specs, scalars)
        return promote(self.__name__, np.rint if kinds == (np.dtype(np.bool_),) else self.definition.like, kinds)


round = _Round(  # noqa: A001 — NumPy's name
    Definition(
        "round",
        "Round to the nearest whole number, halves to the even one; whole numbers keep their dtype, and truth values become half.",
        ("x",),
        "rint(x)",
        np.floor,
        np.round,
        whole="x",
        gradient=("0",),
        example=example_of("round"),
    )
)
ceil = _unary("ceil", "Round up.", "ceil(x)", np.ceil, "0", whole="x")
floor = _unary("floor", "Round down.", "floor(x)", np.floor, "0", whole="x")
trunc = _unary("trunc", "Round towards zero.", "trunc(x)", np.trunc, "0", whole="x")
fix = _unary("fix", "Round towards zero; another name of `trunc`.", "trunc(x)", np.trunc, "0", whole="x")

exp = _unary("exp", "Return e to the power of x.", "exp(x)", np.exp, "dy * y")
expm1 = _unary("expm1", "Return ``exp(x) - 1``, exact near 0.", "expm1(x)", np.expm1, "dy * exp(x)")
log = _unary("log", "Return the natural logarithm.", "log(x)", np.log, "dy / x")
log2 = _unary("log2", "Return the logarithm to base 2.", "log2(x)", np.log2, f"dy / (x * {_LN_2})")
log10 = _unary("log10", "Return the logarithm to base 10.", "log10(x)", np.log10, f"dy / (x * {_LN_10})")
log1p = _unary("log1p", "Return ``log(1 + x)``, exact near 0.", "log1p(x)", np.log1p, "dy / (1 + x)", half="half_log1p(x)")

sqrt = _unary("sqrt", "Return the square root.", "sqrt(x)", np.sqrt, "dy / (2 * y)")
rsqrt = _unary("rsqrt", "Return ``1 / sqrt(x)``.", "rsqrt(x)", np.sqrt, "dy * y / (-2 * x)", reference=lambda x: 1 / np.sqrt(x))
cbrt = _unary("cbrt", "Return the cube root.", "cbrt(x)", np.cbrt, "dy / (3 * y * y)")
rcbrt = _unary("rcbrt", "Return ``1 / cbrt(x)``.", "rcbrt(x)", np.cbrt, "dy * y / (-3 * x)", reference=lambda x: 1 / np.cbrt(x))

sin = _unary("sin", "Return the sine of radians.", "sin(x)", np.sin, "dy * cos(x)", half="half_sin(x)")
cos = _unary("cos", "Return the cosine of radians.", "cos(x)", np.cos, "-dy * sin(x)", half="half_cos(x)")
tan = _unary("tan", "Return the tangent of radians.", "tan(x)", np.tan, "dy * (1 + y * y)")
arcsin = _unary("arcsin", "Return the inverse sine, in radians.", "asin(x)", np.arcsin, "dy / sqrt((1 - x) * (1 + x))")
arccos = _unary("arccos", "Return the inverse cosine, in radians.", "acos(x)", np.arccos, "-dy / sqrt((1 - x) * (1 + x))")
arctan = _unary("arctan", "Return the inverse tangent, in radians.", "atan(x)", np.arctan, "dy / (1 + x * x)")
degrees = _unary("degrees", "Convert radians to degrees.", "x * T(57.2957795130823208768)", np.degrees, "dy * T(57.2957795130823208768)")
radians = _unary("radians", "Convert degrees to radians.", f"x * {_PI_OVER_180}", np.radians, f"dy * {_PI_OVER_180}")
sinh = _unary("sinh", "Return the hyperbolic sine.", "sinh(x)", np.sinh, "dy * cosh(x)")
cosh = _unary("cosh", "Return the hyperbolic cosine.", "cosh(x)", np.cosh, "dy * sinh(x)")
tanh = _unary("tanh", "Return the hyperbolic tangent.", "tanh(x)", np.tanh, "dy / (cosh(x) * cosh(x))")
arcsinh = _unary("arcsinh", "Return the inverse hyperbolic sine.", "asinh(x)", np.arcsinh, "dy / hypot(x, T(1))")
arccosh = _unary("arccosh", "Return the inverse hyperbolic cosine.", "acosh(x)", np.arccosh, "dy / (sqrt(x - 1) * sqrt(x + 1))")
arctanh = _unary("arctanh", "Return the inverse hyperbolic tangent.", "atanh(x)", np.arctanh, "dy / ((1 - x) * (1 + x))")

isnan = _unary("isnan", "Tell where x is NaN.", "x != x", np.isnan)
isinf = _unary("isinf", "Tell where x is infinite.", "isinf(x)", np.isinf, whole="false")
isposinf = _unary(
    "isposinf", "Tell where x is plus infinity.", "isinf(x) && x > 0", np.isinf, whole="false", reference=lambda x: np.isinf(x) & (x > 0)
)
isneginf = _unary(
    "isneginf", "Tell where x is minus infinity.", "isinf(x) && x < 0", np.isinf, whole="false", reference=lambda x: np.isinf(x) & (x < 0)
)
isfinite = _unary("isfinite", "Tell where x is neither infinite nor NaN.", "isfinite(x)", np.isfinite, whole="true")
logical_not = _unary("logical_not", "Tell where x is zero.", "!x", np.logical_not)
bitwise_not = _unary("bitwise_not", "Return x with every bit turned round.", "~x", np.invert, truth="!x")
