"""What tests know of the numbers of element-wise operators: how far they may be off, and where they are interesting."""

from __future__ import annotations

_BY_ULP = {
    1: "exp expm1 log log2 log1p cbrt rcbrt",
    1.5: "softsign",
    2: "log10 rsqrt sin cos arcsin arccos arctan degrees radians cosh tanh erf",
    3: "sinh arcsinh arctanh hypot arctan2",
    4: "tan arccosh sigmoid log_sigmoid smooth_l1 power logaddexp",
    5: "erfinv",
    8: "mish gammaln",
    10: "gamma",
    16: "digamma",
}
ULP = {name: ulp for ulp, names in _BY_ULP.items() for name in names.split()}
"""How far a CUDA result may be from the exact one, in units in the last place of the type of arithmetic, if not half a unit: CUDA's
documented bound for its function (CUDA C++ Programming Guide, "Mathematical Functions"), or ours."""

DOMAIN = {
    "log": (0.01, 100),
    "log2": (0.01, 100),
    "log10": (0.01, 100),
    "log1p": (-0.9, 100),
    "sqrt": (0.01, 100),
    "rsqrt": (0.01, 100),
    "arcsin": (-0.99, 0.99),
    "arccos": (-0.99, 0.99),
    "radians": (-360, 360),
    "arccosh": (1.01, 100),
    "arctanh": (-0.99, 0.99),
    "erf": (-4, 4),
    "erfinv": (-0.99, 0.99),
    "gamma": (0.5, 20),
    "gammaln": (2.5, 50),
    "digamma": (2, 50),
    "power": (0.1, 5),
}
"""Between which numbers operands are interesting, if not between -8 and 8."""


def ulp_of(operator: str) -> float:
    return ULP.get(operator, 0.5)


def domain_of(operator: str) -> tuple[float, float]:
    return DOMAIN.get(operator, (-8.0, 8.0))
