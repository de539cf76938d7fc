"""Element-wise operators of one operand: arithmetic, rounding, exponentials and logarithms, powers, angles, tests."""

from __future__ import annotations

import numpy as np

from streamscope.ops.definition import Definition, Reference
from streamscope.ops.pointwise import Elementwise

PI_OVER_180 = "T(0.0174532925199432957692)"
LN_2 = "T(0.693147180559945309417)"
LN_10 = "T(2.30258509299404568402)"


def _unary(
    name: str,
    summary: str,
    expression: str,
    like: np.ufunc,
    gradient: str | None = None,
    *,
    reference: Reference | None = None,
    whole: str | None = None,
    truth: str | None = None,
    flops: int = 1,
    ulp: float = 0.5,
    domain: tuple[float, float] = (-8.0, 8.0),
) -> Elementwise:
    gradients = None if gradient is None else (gradient,)
    return Elementwise(
        Definition(name, summary, ("a",), expression, like, reference or like, whole, truth, gradients, flops=flops, ulp=ulp, domain=domain)
    )


negative = _unary("negative", "Return ``-a``.", "-a", np.negative, "-dy")
abs = _unary("abs", "Return the absolute value.", "fabs(a)", np.absolute, "dy * sign(a)", whole="a < 0 ? -a : a", truth="a")  # noqa: A001 — NumPy's name
sign = _unary("sign", "Return -1, 0 or 1 by the sign of a; NaN stays NaN.", "sign(a)", np.sign, "0")
reciprocal = _unary(
    "reciprocal",
    "Return ``1 / a``; of whole numbers its whole part, and 0 of 0.",
    "1 / a",
    np.reciprocal,
    "-dy * y * y",
    whole="a == 1 || (a < 0 && a == T(-1)) ? a : T(0)",
    reference=lambda a: np.reciprocal(a) if a.dtype.kind == "f" else np.where(np.abs(a) == 1, a, 0).astype(a.dtype),
)
square = _unary("square", "Return ``a * a``.", "a * a", np.square, "2 * a * dy")

rint = _unary("rint", "Round to the nearest whole number, halves to the even one.", "rint(a)", np.rint, "0")
round = _unary(  # noqa: A001 — NumPy's name
    "round",
    "Round to the nearest whole number, halves to the even one; whole numbers keep their dtype.",
    "rint(a)",
    np.floor,
    "0",
    whole="a",
    reference=np.round,
)
ceil = _unary("ceil", "Round up.", "ceil(a)", np.ceil, "0", whole="a")
floor = _unary("floor", "Round down.", "floor(a)", np.floor, "0", whole="a")
trunc = _unary("trunc", "Round towards zero.", "trunc(a)", np.trunc, "0", whole="a")
fix = _unary("fix", "Round towards zero; another name of `trunc`.", "trunc(a)", np.trunc, "0", whole="a")

exp = _unary("exp", "Return e to the power of a.", "exp(a)", np.exp, "dy * y", ulp=1)
expm1 = _unary("expm1", "Return ``exp(a) - 1``, exact near 0.", "expm1(a)", np.expm1, "dy * (y + 1)", ulp=1)
log = _unary("log", "Return the natural logarithm.", "log(a)", np.log, "dy / a", ulp=1, domain=(0.01, 100))
log2 = _unary("log2", "Return the logarithm to base 2.", "log2(a)", np.log2, f"dy / (a * {LN_2})", ulp=1, domain=(0.01, 100))
log10 = _unary("log10", "Return the logarithm to base 10.", "log10(a)", np.log10, f"dy / (a * {LN_10})", ulp=2, domain=(0.01, 100))
log1p = _unary("log1p", "Return ``log(1 + a)``, exact near 0.", "log1p(a)", np.log1p, "dy / (1 + a)", ulp=1, domain=(-0.9, 100))

sqrt = _unary("sqrt", "Return the square root.", "sqrt(a)", np.sqrt, "dy / (2 * y)", domain=(0.01, 100))
rsqrt = _unary(
    "rsqrt",
    "Return ``1 / sqrt(a)``.",
    "rsqrt(a)",
    np.sqrt,
    "dy * y / (-2 * a)",
    reference=lambda a: 1 / np.sqrt(a),
    ulp=2,
    domain=(0.01, 100),
)
cbrt = _unary("cbrt", "Return the cube root.", "cbrt(a)", np.cbrt, "dy / (3 * y * y)", ulp=1)
rcbrt = _unary("rcbrt", "Return ``1 / cbrt(a)``.", "rcbrt(a)", np.cbrt, "dy * y / (-3 * a)", reference=lambda a: 1 / np.cbrt(a), ulp=1)

sin = _unary("sin", "Return the sine of radians.", "sin(a)", np.sin, "dy * cos(a)", ulp=2)
cos = _unary("cos", "Return the cosine of radians.", "cos(a)", np.cos, "-dy * sin(a)", ulp=2)
tan = _unary("tan", "Return the tangent of radians.", "tan(a)", np.tan, "dy * (1 + y * y)", ulp=4)
arcsin = _unary("arcsin", "Return the inverse sine, in radians.", "asin(a)", np.arcsin, "dy / sqrt(1 - a * a)", ulp=2, domain=(-0.99, 0.99))
arccos = _unary(
    "arccos", "Return the inverse cosine, in radians.", "acos(a)", np.arccos, "-dy / sqrt(1 - a * a)", ulp=2, domain=(-0.99, 0.99)
)
arctan = _unary("arctan", "Return the inverse tangent, in radians.", "atan(a)", np.arctan, "dy / (1 + a * a)", ulp=2)
degrees = _unary(
    "degrees", "Convert radians to degrees.", "a * T(57.2957795130823208768)", np.degrees, "dy * T(57.2957795130823208768)", ulp=2
)
radians = _unary(
    "radians", "Convert degrees to radians.", f"a * {PI_OVER_180}", np.radians, f"dy * {PI_OVER_180}", ulp=2, domain=(-360, 360)
)
sinh = _unary("sinh", "Return the hyperbolic sine.", "sinh(a)", np.sinh, "dy * cosh(a)", ulp=3)
cosh = _unary("cosh", "Return the hyperbolic cosine.", "cosh(a)", np.cosh, "dy * sinh(a)", ulp=2)
tanh = _unary("tanh", "Return the hyperbolic tangent.", "tanh(a)", np.tanh, "dy * (1 - y * y)", ulp=2)
arcsinh = _unary("arcsinh", "Return the inverse hyperbolic sine.", "asinh(a)", np.arcsinh, "dy / sqrt(a * a + 1)", ulp=3)
arccosh = _unary(
    "arccosh", "Return the inverse hyperbolic cosine.", "acosh(a)", np.arccosh, "dy / sqrt(a * a - 1)", ulp=4, domain=(1.01, 100)
)
arctanh = _unary(
    "arctanh", "Return the inverse hyperbolic tangent.", "atanh(a)", np.arctanh, "dy / (1 - a * a)", ulp=3, domain=(-0.99, 0.99)
)

isnan = _unary("isnan", "Tell where a is NaN.", "a != a", np.isnan)
isinf = _unary("isinf", "Tell where a is infinite.", "isinf(a)", np.isinf, whole="false")
isposinf = _unary(
    "isposinf", "Tell where a is plus infinity.", "isinf(a) && a > 0", np.isinf, whole="false", reference=lambda a: np.isinf(a) & (a > 0)
)
isneginf = _unary(
    "isneginf", "Tell where a is minus infinity.", "isinf(a) && a < 0", np.isinf, whole="false", reference=lambda a: np.isinf(a) & (a < 0)
)
isfinite = _unary("isfinite", "Tell where a is neither infinite nor NaN.", "isfinite(a)", np.isfinite, whole="true")
logical_not = _unary("logical_not", "Tell where a is zero.", "!a", np.logical_not)
bitwise_not = _unary("bitwise_not", "Return a with every bit turned round.", "~a", np.invert, truth="!a")
