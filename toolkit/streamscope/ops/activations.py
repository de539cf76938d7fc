"""Element-wise operators of neural networks and of statistics: relu, sigmoid and their kin, error and gamma functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.ops.definition import Definition, Reference
from streamscope.ops.pointwise import Elementwise

Array = npt.NDArray[Any]


def _special(name: str) -> Callable[[Array], Array]:
    """Return a function of SciPy, which is imported when it is called."""

    def function(a: Array) -> Array:
        import scipy.special

        values: Array = getattr(scipy.special, name)(a)
        return values

    return function


def _activation(
    name: str,
    summary: str,
    expression: str,
    gradient: str,
    reference: Reference,
    *,
    like: np.ufunc = np.exp,
    whole: str | None = None,
    flops: int = 4,
    ulp: float = 4,
    domain: tuple[float, float] = (-8.0, 8.0),
) -> Elementwise:
    return Elementwise(
        Definition(name, summary, ("a",), expression, like, reference, whole, gradient=(gradient,), flops=flops, ulp=ulp, domain=domain)
    )


def _log_sigmoid(a: Array) -> Array:
    return np.minimum(a, 0) - np.log1p(np.exp(-np.abs(a)))


def _smooth_l1(a: Array, s: Array) -> Array:
    size = np.abs(a)
    return np.where(size * s * s < 1, (s * a) ** 2 / 2, size - 1 / (2 * s * s))


relu = _activation(
    "relu",
    "Return ``max(a, 0)``, NaN kept.",
    "a < 0 ? T(0) : a",
    "a > 0 ? dy : T(0)",
    lambda a: np.where(a < 0, a.dtype.type(0), a),
    like=np.positive,
    flops=1,
    ulp=0.5,
)
sigmoid = _activation("sigmoid", "Return ``1 / (1 + exp(-a))``.", "sigmoid(a)", "dy * y * (1 - y)", _special("expit"))
softsign = _activation(
    "softsign",
    "Return ``a / (1 + abs(a))``.",
    "a / (1 + fabs(a))",
    "dy / ((1 + fabs(a)) * (1 + fabs(a)))",
    lambda a: a / (1 + np.abs(a)),
    ulp=1.5,
)
log_sigmoid = _activation("log_sigmoid", "Return the logarithm of `sigmoid`.", "-softplus(-a)", "dy * sigmoid(-a)", _log_sigmoid)
mish = _activation(
    "mish",
    "Return ``a * tanh(log(1 + exp(a)))`` (Misra 2019).",
    "a * tanh(softplus(a))",
    "dy * (tanh(softplus(a)) + a * sigmoid(a) * (1 - tanh(softplus(a)) * tanh(softplus(a))))",
    lambda a: a * np.tanh(np.logaddexp(a, a.dtype.type(0))),
    ulp=8,
)
erf = _activation(
    "erf", "Return the error function.", "erf(a)", "dy * T(1.12837916709551257390) * exp(-a * a)", _special("erf"), ulp=2, domain=(-4, 4)
)
erfinv = _activation(
    "erfinv",
    "Return the inverse of the error function.",
    "erfinv(a)",
    "dy * T(0.886226925452758013649) * exp(y * y)",
    _special("erfinv"),
    ulp=5,
    domain=(-0.99, 0.99),
)
gamma = _activation("gamma", "Return the gamma function.", "tgamma(a)", "dy * y * digamma(a)", _special("gamma"), ulp=10, domain=(0.5, 20))
gammaln = _activation(
    "gammaln",
    "Return the logarithm of the absolute value of the gamma function.",
    "lgamma(a)",
    "dy * digamma(a)",
    _special("gammaln"),
    ulp=8,
    domain=(2.5, 50),
)
digamma = _activation(
    "digamma",
    "Return the derivative of `gammaln`.",
    "digamma(a)",
    "dy * trigamma(a)",
    _special("digamma"),
    flops=40,
    ulp=16,
    domain=(2, 50),
)
smooth_l1 = Elementwise(
    Definition(
        "smooth_l1",
        "Return the Huber loss of a, quadratic where ``abs(a) < 1 / s**2``: there ``(s * a)**2 / 2``, else ``abs(a) - 1 / (2 * s**2)``.",
        ("a", "s"),
        "fabs(a) * s * s < 1 ? s * a * (s * a) / 2 : fabs(a) - 1 / (2 * s * s)",
        np.arctan2,
        _smooth_l1,
        gradient=("dy * (fabs(a) * s * s < 1 ? s * s * a : sign(a))", "dy * (fabs(a) * s * s < 1 ? s * a * a : 1 / (s * s * s))"),
        flops=6,
        ulp=4,
    )
)
