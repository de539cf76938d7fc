"""Layer normalization along the last axis, and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, cast

import numpy as np

from streamscope.arguments import shown
from streamscope.arrays import Array
from streamscope.kernels.expression.promotion import arithmetic
from streamscope.kernels.layer_norm import INPUTS, layer_norm_source
from streamscope.kernels.rows import WARP, row_form
from streamscope.kernels.signature import ctype_of
from streamscope.kernels.source import PlannedKernel
from streamscope.ops.application import planned_launch, require, require_float, specs_of
from streamscope.ops.definition import Definition
from streamscope.ops.elementwise_operator import Elementwise
from streamscope.ops.reductions import sum as sum_of
from streamscope.program.launch import Launch
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Backward, Operator, applies_operators
from streamscope.program.variable import ArraySpec
from streamscope.program.view import one_piece


def checked_eps(operator: str, eps: object) -> float:
    """Return epsilon, which is added to a variance."""
    number = float(eps) if isinstance(eps, Real) and not isinstance(eps, bool) else -1.0
    require(0 <= number < float("inf"), operator, f"eps={shown(eps)} must be a small number", "give 0 or more, for example 1e-5")
    return number


def _normalised(x: Array, eps: float) -> tuple[Array, Array]:
    """Return the rows around their means, by their deviations, and one over these."""
    centred = x - x.mean(axis=-1, keepdims=True)
    scale = 1 / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + x.dtype.type(eps))
    return centred * scale, scale


def _layer_norm_of(arrays: Sequence[Array], shared: Sequence[str], eps: float) -> Array:
    x, *rest = arrays
    named = dict(zip(shared, rest, strict=True))
    normalised, _ = _normalised(x, eps)
    scaled = normalised * named["weight"] if "weight" in named else normalised
    return np.asarray(scaled + named["bias"] if "bias" in named else scaled)


def _layer_norm_gradient_of(arrays: Sequence[Array], shared: Sequence[str], eps: float) -> Array:
    dy, x, *rest = arrays
    gradient = dy * rest[0] if shared else dy
    normalised, scale = _normalised(x, eps)
    along = normalised * (gradient * normalised).mean(axis=-1, keepdims=True)
    return np.asarray(scale * (gradient - gradient.mean(axis=-1, keepdims=True) - along))


_REFERENCES = {"layer_norm": _layer_norm_of, "layer_norm_gradient": _layer_norm_gradient_of}


def _operator(name: str) -> Operator:
    inputs = INPUTS[name]

    def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        require_float(specs, name)
        shape = specs[0].shape
        require(len(shape) > 0 and shape[-1] > 0, name, f"shape {shape} has no last axis with elements")
        require(
            all(spec.shape == shape for spec in specs[: len(inputs)]), name, f"shapes {' and '.join(str(s.shape) for s in specs)} differ"
        )
        for spec, called in zip(specs[len(inputs) :], attributes["shared"], strict=True):
            problem = f"{called} of shape {spec.shape} does not fit the last axis of {shape}"
            require(spec.shape == shape[-1:], name, problem, f"its shape must be {shape[-1:]}")
        return [specs[0]]

    def build(application: Application) -> tuple[Launch, ...]:
        spec, shared, eps = application.write_specs[0], application.attributes["shared"], application.attributes["eps"]

        def reference(*arrays: Array) -> Array:
            exact = [array.astype(arithmetic(array.dtype), copy=False) for array in arrays]
            return _REFERENCES[name](exact, shared, eps)

        planned, scalars = partial(_kernel, name, spec, shared), [ctype_of(spec.dtype.name)(eps)]
        return planned_launch(application, name, planned, reference, 8 * spec.size * len(inputs), scalars=scalars)

    return Operator(name, infer, build, in_place=True, reads_view=one_piece)


def _kernel(name: str, spec: ArraySpec, shared: tuple[str, ...], *, aligned: bool) -> PlannedKernel:
    columns = spec.shape[-1]
    rows = spec.size // columns
    form = row_form(columns, spec.dtype.itemsize, len(INPUTS[name]), aligned=aligned)
    source = partial(layer_norm_source, name, spec.dtype.name, form, shared)
    stages = 1 if form.lanes <= WARP else 2  # Mean and variance; threads of a warp hardly wait for each other.
    return PlannedKernel(source, -(-rows // (form.threads // form.lanes)), form.threads, (rows, columns), stages=stages)


_scaling = Elementwise(
    Definition(
        "layer_norm",
        "Return rows that are normalised, scaled.",
        ("normalised", "weight"),
        "normalised * weight",
        np.multiply,
        np.multiply,
        gradient=(None, "dy * normalised"),
    )
)
"""Effect of the weight; only its gradient is computed by itself."""


def _pulled_back(backward: Backward) -> Sequence[Symbol | None]:
    shared, eps = backward.attributes["shared"], backward.attributes["eps"]
    weight = backward.operand(1) if "weight" in shared else None
    dx, dweight, dbias = layer_norm_backward(backward.operand(0), weight, backward.dy, eps=eps)
    return [dx, *({"weight": dweight, "bias": dbias}[name] for name in shared)]


_forward, _of_x = replace(_operator("layer_norm"), gradient=_pulled_back), _operator("layer_norm_gradient")


@applies_operators
def layer_norm(x: object, weight: object = None, bias: object = None, *, eps: float = 1e-5, out: object = None) -> Symbol:
    """Return ``(x - mean) / sqrt(variance + eps) * weight + bias``, mean and variance those of each row along the last axis.

    One kernel reads each row once where it fits the registers. Half is computed in float32.

    Parameters
    ----------
    x : variable
        Shape (..., C), of a floating dtype.
    weight, bias : variable, optional
        Shape (C,), of the same dtype; left out where there are none.
    eps : float
    {out_or_x}

    {variables_misfit}

    Examples
    --------
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(lambda x: ss.ops.layer_norm(x, eps=0)), np.array([[1.0, 3.0], [5.0, 1.0]])))
    [[-1.  1.]
     [ 1. -1.]]
    """
    given = {"weight": weight, "bias": bias}
    shared = tuple(name for name, value in given.items() if value is not None)
    arrays = [x, *(given[name] for name in shared)]
    return cast("Symbol", _forward(*arrays, out=out, shared=shared, eps=checked_eps("layer_norm", eps), axis=-1))


@applies_operators
def layer_norm_backward(x: Any, weight: Any, dy: Any, *, eps: float = 1e-5, out: object = None) -> tuple[Symbol, Symbol | None, Symbol]:
    """Return ``(dx, dweight, dbias)`` for the gradient ``dy`` of a layer normalization's result.

    They are operations of their own, ``dx`` independent of the other two, so that two streams can run them side by side.

    Parameters
    ----------
    x, dy : variable
        Shape (..., C), of one floating dtype.
    weight : variable, optional
        Shape (C,); None if there was none, which has no gradient then.
    eps : float
        That of the layer normalization.
    out : variable, optional
        Where ``dx`` goes, which may be ``dy`` or ``x``; by default a new variable.

    {variables_misfit}

    Examples
    --------
    >>> x, w, dy = np.array([[0.0, 2.0]]), np.ones(2), np.array([[1.0, 3.0]])
    >>> with ss.Engine(device="simulated") as engine:
    ...     dx, dw, db = engine.run(ss.program(lambda *args: ss.ops.layer_norm_backward(*args, eps=0)), x, w, dy)
    >>> print(dx, dw, db)
    [[0. 0.]] [-1.  3.] [1. 3.]
    """
    number = checked_eps("layer_norm_backward", eps)
    weights = [] if weight is None else [weight]
    spec, *_ = specs_of("layer_norm_backward", [dy, x, *weights])
    dweight = None
    if weight is not None:
        _, dweight = _scaling.gradient(dy, layer_norm(x, eps=number), weight)
    dbias = sum_of(dy, axis=tuple(range(len(spec.shape) - 1)))
    dx = _of_x(dy, x, *weights, out=out, shared=("weight",)[: len(weights)], eps=number, axis=-1)
    return cast("Symbol", dx), dweight, dbias
