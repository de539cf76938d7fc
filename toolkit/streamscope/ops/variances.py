"""Variances: the sum of squares around the mean, which a reduction computes before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, cast

import numpy as np

from streamscope.arguments import shown
from streamscope.arrays import Array
from streamscope.kernels.expression.promotion import Promoted
from streamscope.kernels.reduce.reducers import REDUCERS
from streamscope.kernels.reduce.reduction_plan import checked_axes, reduced_shape
from streamscope.kernels.signature import Parameter, Signature
from streamscope.ops.application import require, specs_of
from streamscope.ops.definition import Definition
from streamscope.ops.elementwise_gradients import summing_launch
from streamscope.ops.elementwise_operator import Elementwise, Scalars
from streamscope.ops.reductions import Axis, Reduction, mean
from streamscope.ops.views import reshape
from streamscope.program.launch import CudaBench, CudaBuilder, CudaCall, Launch
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Backward, Operator, applies_operators
from streamscope.program.variable import ArraySpec
from streamscope.program.view import forward_view

_exact_mean = Reduction("mean", "", REDUCERS["mean"], mean.reference, exact=True)
"""Of half in float32, for operators that go on computing with it."""


def _signature(x: np.dtype[Any], result: np.dtype[Any]) -> Signature:
    number = np.dtype(np.float32) if x == np.float16 else x if x.kind == "f" else np.dtype(np.float64)
    taken = x.name if x.kind == "f" else number.name
    operands = (
        Parameter("x", x.name, taken),
        Parameter("center", number.name, number.name),
        Parameter("share", number.name, number.name, scalar=True),
    )
    return Signature("var", operands, result.name, "(x - center) * (x - center) * share", number.name)


class OfFirst(Elementwise):
    """An element-wise operator whose first operand says the dtype of the result; statistics may have more digits."""

    def promoted(self, specs: Sequence[ArraySpec], scalars: Scalars) -> Promoted:
        """Return the dtypes that the operands are taken in, and the result's."""
        dtypes = iter(spec.dtype for spec in specs)
        first = specs[0].dtype
        number = np.dtype(np.float32) if first == np.float16 else first
        return Promoted(tuple(number if name in scalars else next(dtypes) for name in self.definition.operands), first, number)


_of_deviations = OfFirst(
    Definition(
        "var_gradient", "Return the gradient of x.", ("x", "center", "dy", "share"), "dy * (x - center) * share", np.add, None, flops=3
    )
)


def _gradient(backward: Backward) -> Sequence[Symbol | None]:
    """Return the gradient of x. That of the center is the sum of all deviations, which is zero."""
    x, axes = backward.operand(0), backward.attributes["axis"]
    count = math.prod(x.shape[axis] for axis in axes) - backward.attributes["ddof"]
    kept = reduced_shape(x.shape, axes, keepdims=True)
    center, dy = (reshape(each, kept) for each in (backward.operand(1), backward.dy))
    return [_of_deviations(x, center, dy, 2 / count), None]


def _operator(*, exact: bool) -> Operator:
    def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        x, center = specs
        shape = reduced_shape(x.shape, attributes["axis"], keepdims=attributes["keepdims"])
        return [ArraySpec(shape, x.dtype if x.dtype == np.float16 and not exact else center.dtype)]

    def build(application: Application) -> tuple[Launch, ...]:
        (x, center), (result,), attributes = application.read_specs, application.write_specs, application.attributes
        count = math.prod(x.shape[axis] for axis in attributes["axis"]) - attributes["ddof"]
        signature = _signature(x.dtype, result.dtype)
        kept = ArraySpec(center.shape, result.dtype)
        (launch,) = summing_launch(replace(application, write_specs=[kept]), signature, {"share": center.dtype.type(1 / count)})
        return (
            launch if kept == result else replace(launch, reference=partial(_reshaped, launch, result), cuda=partial(_bound, launch, kept)),
        )

    return Operator("var", infer, build, reads_view=forward_view, gradient=_gradient)


def _reshaped(launch: Launch, result: ArraySpec, arrays: Sequence[Array]) -> Sequence[Array]:
    reference = launch.reference
    return [] if reference is None else [array.reshape(result.shape) for array in reference(arrays)]


def _bound(launch: Launch, kept: ArraySpec, bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
    return cast("CudaBuilder", launch.cuda)(bench, reads, [writes[0].reshape(kept.shape)])


_of_dtype, _exact = _operator(exact=False), _operator(exact=True)


def exact_moments(x: Symbol, axes: tuple[int, ...]) -> tuple[Symbol, Symbol]:
    """Return mean and variance over the first axes of a variable; of half in float32."""
    center = _exact_mean(x, axes)
    return center, cast("Symbol", _exact(x, center, axis=axes, keepdims=False, ddof=0))


@applies_operators
def var(x: object, axis: Axis = None, *, ddof: Any = 0, keepdims: bool = False, out: object = None) -> Symbol:
    """Return the variance: the mean of squares around the mean, in two kernels, so that no digits cancel.

    Parameters
    ----------
    x : variable
        Half is computed in float32, whole numbers in float64.
    axis : int or tuple of int, optional
        All axes by default.
    ddof : number
        Taken off the number of elements that the sum is divided by: 1 for an estimate from samples.
    keepdims : bool
        Reduced axes stay, with extent 1.
    {out}

    Raises
    ------
    ProgramError
        Called outside a program, or there are too few elements.

    Examples
    --------
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(ss.ops.var), np.array([[1.0, 3.0], [5.0, 7.0]])))
    5.0
    """
    (spec,) = specs_of("var", [x])
    axes = checked_axes("var", spec.shape, axis)
    require(
        isinstance(ddof, Real) and not isinstance(ddof, bool),
        "var",
        f"ddof={shown(ddof)} must be a number",
        "use 0, or 1 for an estimate from samples",
    )
    count = math.prod(spec.shape[one] for one in axes)
    require(count > ddof, "var", f"{spec} has {count} elements along axis {axis}, less ddof={ddof} none")
    center = _exact_mean(x, axes, keepdims=True)
    return cast("Symbol", _of_dtype(x, center, out=out, axis=axes, keepdims=keepdims, ddof=ddof))
