"""Batch normalization over all axes but the last, channels last as in convolutions: with given statistics, and with those of the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from streamscope.ops.application import require, specs_of
from streamscope.ops.definition import Definition
from streamscope.ops.layer_norms import checked_eps
from streamscope.ops.selection import astype
from streamscope.ops.variances import OfFirst, exact_moments
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Backward, applies_operators

_OPERANDS = ("x", "weight", "bias", "mean", "variance", "eps")
_normalise = OfFirst(
    Definition(
        "batch_norm",
        "Return ``(x - mean) * rsqrt(variance + eps) * weight + bias``.",
        _OPERANDS,
        "(x - mean) * rsqrt(variance + eps) * weight + bias",
        np.add,
        None,
        gradient=(None, "dy * ((x - mean) * rsqrt(variance + eps))", "dy", None, None, None),
        flops=6,
    )
)
_given = OfFirst(
    replace(
        _normalise.definition,
        gradient=(
            "dy * (weight * rsqrt(variance + eps))",
            "dy * ((x - mean) * rsqrt(variance + eps))",
            "dy",
            "-dy * (weight * rsqrt(variance + eps))",
            "-dy * ((x - mean) * rsqrt(variance + eps) * weight / (2 * (variance + eps)))",
            None,
        ),
    )
)
"""With statistics that are given: only a backward pass asks for their gradients, and for that of x."""
_through_statistics = OfFirst(
    Definition(
        "batch_norm_gradient",
        "Return the gradient of x through the batch's statistics, too.",
        ("dy", "x", "weight", "mean", "variance", "dweight", "dbias", "eps", "share"),
        "weight * rsqrt(variance + eps) * (dy - (dbias + (x - mean) * rsqrt(variance + eps) * dweight) * share)",
        np.add,
        None,
        flops=10,
    )
)


class _OfBatch(OfFirst):
    """With the batch's own statistics: the gradient of x goes through them, too, so that they have none of their own."""

    def _pulled_back(self, backward: Backward) -> Sequence[Symbol | None]:
        x, weight, mean, variance = map(backward.operand, (0, 1, 3, 4))
        eps = backward.attributes["scalars"]["eps"]
        dx, dweight, dbias = batch_norm_backward(x, weight, mean, variance, backward.dy, eps=eps)
        dtype = backward.read_specs[2].dtype
        return [dx, dweight, dbias if dbias.dtype == dtype else astype(dbias, dtype), None, None]


_of_batch = _OfBatch(_normalise.definition)


def _check(operator: str, x: object, **rows: object) -> Symbol:
    """Return x, which has channels; each of the others has one element for each of them."""
    (spec, *others) = specs_of(operator, [x, *rows.values()])
    for name, each in zip(("x", *rows), (spec, *others), strict=True):
        require(each.dtype.kind == "f", operator, f"{name} is {each.dtype.name}", "use float16, float32 or float64")
    require(len(spec.shape) > 1 and spec.size > 0, operator, f"x of shape {spec.shape} has no channels of several elements")
    for name, row in zip(rows, others, strict=True):
        hint = f"channels come last: its shape must be {spec.shape[-1:]}"
        require(row.shape == spec.shape[-1:], operator, f"{name} of shape {row.shape} does not fit x of shape {spec.shape}", hint)
    return cast("Symbol", x)


@applies_operators
def batch_norm(x: object, weight: object, bias: object, mean: object, variance: object, *, eps: float = 1e-5, out: object = None) -> Symbol:
    """Return ``(x - mean) / sqrt(variance + eps) * weight + bias`` with given statistics, as after training: one element-wise kernel.

    Parameters
    ----------
    x : variable
        Shape (..., C), channels last, of a floating dtype, which is the result's, too.
    weight, bias, mean, variance : variable
        Shape (C,), of floating dtypes; beside half they may be float32.
    eps : float
    {out_or_x}

    {variables_misfit}

    Examples
    --------
    >>> x, one = np.array([[1.0, 2.0], [3.0, 6.0]]), np.ones(2)
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(lambda x, m, one: ss.ops.batch_norm(x, one, one, m, one, eps=0)), x, x[0], one))
    [[1. 1.]
     [3. 5.]]
    """
    _check("batch_norm", x, weight=weight, bias=bias, mean=mean, variance=variance)
    return _given(x, weight, bias, mean, variance, checked_eps("batch_norm", eps), out=out)


@applies_operators
def batch_norm_training(x: object, weight: object, bias: object, *, eps: float = 1e-5) -> tuple[Symbol, Symbol, Symbol]:
    """Return ``(y, mean, variance)``: the batch normalized with its own statistics, and these, for running averages and the gradient.

    A running average is yours to keep: ``running_mean * 0.9 + mean * 0.1``. The variance is divided by the number of elements.

    Parameters
    ----------
    x : variable
        Shape (..., C), channels last, of a floating dtype. Statistics of half are float32.
    weight, bias : variable
        Shape (C,), of floating dtypes.
    eps : float

    {variables_misfit}

    Examples
    --------
    >>> x, w, b = np.array([[1.0, 2.0], [3.0, 6.0]]), np.ones(2), np.zeros(2)
    >>> with ss.Engine(device="simulated") as engine:
    ...     y, mean, variance = engine.run(ss.program(lambda *args: ss.ops.batch_norm_training(*args, eps=0)), x, w, b)
    >>> print(y, mean, variance)
    [[-1. -1.]
     [ 1.  1.]] [2. 4.] [1. 4.]
    """
    number = checked_eps("batch_norm_training", eps)
    batch = _check("batch_norm_training", x, weight=weight, bias=bias)
    mean, variance = exact_moments(batch, tuple(range(len(batch.shape) - 1)))
    return _of_batch(batch, weight, bias, mean, variance, number), mean, variance


@applies_operators
def batch_norm_backward(
    x: object, weight: object, mean: object, variance: object, dy: object, *, eps: float = 1e-5, out: object = None
) -> tuple[Symbol, Symbol, Symbol]:
    """Return ``(dx, dweight, dbias)`` for the gradient ``dy`` of the y of `batch_norm_training`.

    ``dweight`` and ``dbias`` are sums of their own, which two streams can run side by side; ``dx`` waits for both.

    Parameters
    ----------
    x, dy : variable
        Shape (..., C), of one floating dtype.
    weight, mean, variance : variable
        Shape (C,): the weight, and the statistics of the batch.
    eps : float
        That of the normalization.
    out : variable, optional
        Where ``dx`` goes, which may be ``dy`` or ``x`` (in place); by default a new variable.

    {variables_misfit}

    Examples
    --------
    >>> x, dy, one = np.array([[1.0], [3.0]]), np.array([[1.0], [3.0]]), np.ones(1)
    >>> def backward(x, w, mean, variance, dy):
    ...     return ss.ops.batch_norm_backward(x, w, mean, variance, dy, eps=0)
    >>> with ss.Engine(device="simulated") as engine:
    ...     dx, dw, db = engine.run(ss.program(backward), x, one, 2 * one, one, dy)
    >>> print(dx.ravel(), dw, db)
    [0. 0.] [2.] [4.]
    """
    number = checked_eps("batch_norm_backward", eps)
    batch = _check("batch_norm_backward", x, weight=weight, mean=mean, variance=variance)
    (upstream,) = specs_of("batch_norm_backward", [dy])
    require(upstream == batch.spec, "batch_norm_backward", f"dy is {upstream}, x is {batch.spec}", "the gradient of y is like x")
    # The bias's gradient needs nothing of the bias but its shape and dtype, which are the weight's.
    _, dweight, dbias, *_ = _normalise.gradient(dy, batch, weight, weight, mean, variance, number)
    share = batch.shape[-1] / batch.spec.size
    dx = _through_statistics(dy, batch, weight, mean, variance, dweight, dbias, number, share, out=out)
    return dx, dweight, dbias
