"""Element-wise operators of neural networks and of statistics: relu, sigmoid and their kin, error and gamma functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamscope.arrays import Array
from streamscope.ops.definition import Reference
from streamscope.ops.elementwise_operator import Elementwise, defined


def _special(name: str) -> Callable[[Array], Array]:
    """Return a function of SciPy, which is imported when it is called."""

    def function(a: Array) -> Array:
        import scipy.special

        values: Array = getattr(scipy.special, name)(a)
        return values

    return function


def _activation(
    name: str, summary: str, expression: str, gradient: str, reference: Reference, *, like: np.ufunc = np.exp, **others: Any
) -> Elementwise:
    return defined(("x",), name, summary, expression, like, gradient, reference=reference, **{"flops": 4, **others})


def _gammaln(a: Array) -> Array:
    return np.where(a == -np.inf, a.dtype.type(np.inf), _special("gammaln")(a))  # as C and CUDA have it; SciPy's is -inf


def _log_sigmoid(a: Array) -> Array:
    return np.minimum(a, 0) - np.log1p(np.exp(-np.abs(a)))


def _smooth_l1(a: Array, s: Array) -> Array:
    size = np.abs(a)
    return np.where(size * s * s < 1, (s * a) ** 2 / 2, size - 1 / (2 * s * s))


relu = _activation(
    "relu",
    "Return ``max(x, 0)``, NaN kept.",
    "x < 0 ? T(0) : x",
    "x <= 0 ? T(0) : dy",
    lambda x: np.where(x < 0, x.dtype.type(0), x),
    like=np.positive,
    flops=1,
)
sigmoid = _activation(
    "sigmoid", "Return ``1 / (1 + exp(-x))``.", "sigmoid(x)", "dy * y * sigmoid(-x)", _special("expit"), half="half_sigmoid(x)"
)
softsign = _activation(
    "softsign",
    "Return ``x / (1 + abs(x))``.",
    "x / (1 + fabs(x))",
    "dy / ((1 + fabs(x)) * (1 + fabs(x)))",
    lambda x: x / (1 + np.abs(x)),
)
log_sigmoid = _activation("log_sigmoid", "Return the logarithm of `sigmoid`.", "-softplus(-x)", "dy * sigmoid(-x)", _log_sigmoid)
mish = _activation(
    "mish",
    "Return ``x * tanh(log(1 + exp(x)))`` (Misra 2019).",
    "x * tanh(softplus(x))",
    # No infinity times zero: from 800 on the product is 0 in every dtype.
    "dy * (tanh(softplus(x)) + fmin(fmax(x, T(-800)), T(800)) * sigmoid(x) * (1 - tanh(softplus(x)) * tanh(softplus(x))))",
    lambda x: x * np.tanh(np.logaddexp(x, x.dtype.type(0))),
)
erf = _activation(
    "erf",
    "Return the error function.",
    "erf(x)",
    "dy * T(1.12837916709551257390) * exp(-x * x)",
    _special("erf"),
    half="half_erf(x)",
)
erfinv = _activation(
    "erfinv",
    "Return the inverse of the error function.",
    "erfinv(x)",
    "dy * T(0.886226925452758013649) * exp(y * y)",
    _special("erfinv"),
)
gamma = _activation("gamma", "Return the gamma function.", "tgamma(x)", "dy * y * digamma(x)", _special("gamma"))
gammaln = _activation(
    "gammaln", "Return the logarithm of the absolute value of the gamma function.", "lgamma(x)", "dy * digamma(x)", _gammaln
)
digamma = _activation("digamma", "Return the derivative of `gammaln`.", "digamma(x)", "dy * trigamma(x)", _special("digamma"), flops=40)
smooth_l1 = defined(
    ("a", "s"),
    "smooth_l1",
    "Return the Huber loss of a, quadratic where ``abs(a) < 1 / s**2``: there ``(s * a)**2 / 2``, else ``abs(a) - 1 / (2 * s**2)``.",
    "fabs(a) * s * s < 1 ? s * a * (s * a) / 2 : fabs(a) - 1 / (2 * s * s)",
    np.arctan2,
    reference=_smooth_l1,
    gradient=("dy * (fabs(a) * s * s < 1 ? s * s * a : sign(a))", "dy * (fabs(a) * s * s < 1 ? s * a * a : 1 / (s * s * s))"),
    flops=6,
)
