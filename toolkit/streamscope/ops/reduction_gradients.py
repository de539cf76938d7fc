"""Gradients of reductions: one element-wise kernel over the argument, along which the result and its gradient repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from streamscope.errors import ProgramError
from streamscope.kernels.elementwise.specialization import bind, specialized_fresh
from streamscope.kernels.form import THREADS
from streamscope.kernels.reduce.reducers import Reducer
from streamscope.kernels.reduce.reduction_plan import checked_axes, reduced_shape
from streamscope.kernels.signature import Parameter, Signature
from streamscope.ops.application import Request, check_request, require
from streamscope.ops.reductions import Axis, Reduction
from streamscope.program.launch import Array, Cost, CudaBench, CudaCall, Launch
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Operator, current_tracer
from streamscope.program.variable import ArraySpec
from streamscope.program.view import any_view

Formula = Callable[..., Any]


@dataclass(frozen=True)
class Gradient:
    """How the gradient of a reduction is computed."""

    expression: str
    """CUDA expression over the element ``x``, the gradient ``dy``, the helping reductions and ``lets``, all by name; ``T`` is the type of
    arithmetic."""
    reference: Formula
    """The same in NumPy: ``reference(dy, x, *helping)``."""
    helping: tuple[tuple[str, Reduction], ...] = ()
    """Reductions of ``x`` that it needs; exact, since nobody sees them rounded."""
    numbers: Mapping[str, np.generic] = field(default_factory=dict)
    """Numbers that the expression takes by name, so that others need no other kernel."""
    lets: tuple[tuple[str, str], ...] = ()
    """Names with the expressions that they stand for, computed first; of type ``T``."""
    double: bool = False
    """``T`` is double, and so are ``x`` and ``dy``, whatever the argument's dtype: only what the expression gives is rounded to that."""


_SIGN = "(x != x ? x : T((x > 0) - (x < 0)))"


def _sign(x: Array) -> Array:
    return np.asarray(np.sign(x))


# The product of all but one element is that of all over that one. Zeros and infinite elements cannot be divided by: they are counted, and
# all that is left of them in the product is a sign.
_FACTOR = "(x == 0 ? 1. : isinf(x) ? copysign(1., double(x)) : double(x))"


def _factors(x: Array) -> Array:
    return np.where(x == 0, 1, np.where(np.isinf(x), np.copysign(1, x), x)).astype(np.float64)


def _product(x: Array, axis: Any, keepdims: bool) -> Any:  # noqa: FBT001 — NumPy's signature
    return np.prod(_factors(x), axis=axis, keepdims=keepdims)


def _number_product(x: Array, axis: Any, keepdims: bool) -> Any:  # noqa: FBT001
    return _product(np.where(np.isnan(x), 1, x), axis, keepdims)


def _zeros(x: Array, axis: Any, keepdims: bool) -> Any:  # noqa: FBT001
    return np.sum(x == 0, axis=axis, keepdims=keepdims)


def _infinities(x: Array, axis: Any, keepdims: bool) -> Any:  # noqa: FBT001
    return np.sum(np.isinf(x), axis=axis, keepdims=keepdims)


def _counting(name: str, counted: str, reference: Formula) -> Reduction:
    return Reduction(name, "", Reducer(name, "value_t(0)", f"value_t({counted})", "a + b"), reference, exact=True)


def _multiplying(name: str, factor: str, reference: Formula) -> Reduction:
    return Reduction(name, "", Reducer(name, "value_t(1)", factor, "a * b", double=True), reference)


_COUNTS = (
    ("zeros", _counting("count_zeros", "x == 0", _zeros)),
    ("infinities", _counting("count_infinities", "isinf(x)", _infinities)),
)
_FACTORS = ("factors", _multiplying("prod_factors", _FACTOR, _product))
_NUMBER_FACTORS = ("factors", _multiplying("nanprod_factors", f"x != x ? 1. : {_FACTOR}", _number_product))

# A zero among the others makes their product 0, an infinite one makes it infinite, and both together NaN, as 0 / 0 is. A NaN among the
# others is passed on, whatever it is multiplied by.
_OTHERS = (
    ("others", f"factors / {_FACTOR}"),
    ("no_zero", "zeros == (x == 0)"),
    ("no_infinity", "infinities == isinf(x)"),
)
_PRODUCT = "dy * (others != others || (no_zero && no_infinity) ? others : copysign(no_zero, others) / no_infinity)"


def _product_gradient(dy: Array, x: Array, factors: Array, zeros: Array, infinities: Array) -> Any:
    others = factors / _factors(x)
    no_zero, no_infinity = zeros == (x == 0), infinities == np.isinf(x)
    singular = np.copysign(no_zero, others) / no_infinity
    return dy * np.where(np.isnan(others) | (no_zero & no_infinity), others, singular)


@lru_cache(maxsize=256)
def _exact(reduction: Reduction) -> tuple[tuple[str, Reduction]]:
    """Return the result ``y`` of a reduction as a helper; made once, so that a gradient that is traced again has the same operators."""
    exact = Reduction(reduction.__name__, "", reduction.reducer, reduction.reference, reduction.order, exact=True)
    return (("y", exact),)


def _gradient_of(reduction: Reduction, count: int) -> Gradient | None:
    """Return how the gradient is computed where each result joins ``count`` elements; None if there is none."""
    name = reduction.reducer.name
    match name:
        case "sum":
            return Gradient("dy", lambda dy, x: dy + np.zeros_like(x))
        case "nansum":
            return Gradient("x != x ? T(0) : dy", lambda dy, x: np.where(np.isnan(x), 0, dy))
        case "mean":
            return Gradient(
                "dy / count", lambda dy, x: dy / x.dtype.type(max(count, 1)) + np.zeros_like(x), numbers={"count": np.float64(count)}
            )
        case "prod":
            return Gradient(_PRODUCT, _product_gradient, (_FACTORS, *_COUNTS), lets=_OTHERS, double=True)
        case "nanprod":
            return Gradient(
                f"x != x ? T(0) : {_PRODUCT}",
                lambda dy, x, *helping: np.where(np.isnan(x), 0, _product_gradient(dy, x, *helping)),
                (_NUMBER_FACTORS, *_COUNTS),
                lets=_OTHERS,
                double=True,
            )
        case "max" | "min":
            return Gradient("x == y || x != x ? dy : T(0)", lambda dy, x, y: np.where((x == y) | np.isnan(x), dy, 0), _exact(reduction))
        case "norm_1":
            return Gradient(f"dy * {_SIGN}", lambda dy, x: dy * _sign(x))
        case "norm_2":
            return Gradient(
                "y == 0 ? T(0) : dy * x / y", lambda dy, x, y: np.where(y == 0, 0, dy * x / np.where(y == 0, 1, y)), _exact(reduction)
            )
        case "norm_inf":
            return Gradient(
                f"(x < 0 ? -x : x) == y || x != x ? dy * {_SIGN} : T(0)",
                lambda dy, x, y: np.where((np.abs(x) == y) | np.isnan(x), dy * _sign(x), 0),
                _exact(reduction),
            )
        case "norm_p":
            order = reduction.order

            def reference(dy: Array, x: Array, y: Array) -> Any:
                share = np.abs(x) / np.where(y == 0, 1, y)
                return np.where(y == 0, 0, dy * _sign(x) * share ** (order - 1))

            power = f"y == 0 ? T(0) : dy * {_SIGN} * pow((x < 0 ? -x : x) / y, T({order - 1!r}))"
            return Gradient(power, reference, _exact(reduction))
        case _:
            return None


def gradient(reduction: Reduction, dy: Any, x: Any, axis: Axis, *, keepdims: bool, out: object, request: Request) -> Any:
    """Return the gradient of a reduction's argument; see `Reduction.gradient`."""
    name = reduction.__name__
    require(isinstance(dy, Symbol) and isinstance(x, Symbol), name, "the gradient is of variables of the program")
    check_request(f"{name}.gradient", request, has_target=out is not None)
    how, signature = _found(reduction, x.spec, axis, accumulate=request == "add")
    axes = checked_axes(name, x.shape, axis)
    shape = reduced_shape(x.shape, axes, keepdims=keepdims)
    require(dy.shape == shape, name, f"the result's gradient has shape {dy.shape}, the result {shape}")
    require(dy.dtype == x.dtype, name, f"the result's gradient is {dy.dtype.name}, the argument {x.dtype.name}")
    if request == "null":
        return out
    repeated = (dy, *(helper(x, axis, keepdims=keepdims) for _, helper in how.helping))
    return _apply(signature, how, repeated, x, reduced_shape(x.shape, axes, keepdims=True), out)


def gradient_source(reduction: Reduction, x: ArraySpec, axis: Axis, *, accumulate: bool) -> str:
    """Return the source of the kernels of a gradient; see `Reduction.source`."""
    how, signature = _found(reduction, x, axis, accumulate=accumulate)
    kept = reduced_shape(x.shape, checked_axes(reduction.__name__, x.shape, axis), keepdims=True)
    kernel = specialized_fresh(signature, (*[kept] * (1 + len(how.helping)), x.shape, x.shape))
    return "\n".join([*(helper.source(x.dtype, x.shape, axis) for _, helper in how.helping), kernel.source.code])


def _found(reduction: Reduction, x: ArraySpec, axis: Axis, *, accumulate: bool) -> tuple[Gradient, Signature]:
    """Return how the gradient of an argument is computed, and what the kernel of it is."""
    name, dtype = reduction.__name__, x.dtype.name
    require(x.dtype.kind == "f", name, f"{dtype} has no gradient", "gradients are floating-point numbers")
    axes = checked_axes(name, x.shape, axis)
    how = _gradient_of(reduction, math.prod(x.shape[one] for one in axes))
    if how is None:
        raise ProgramError(f"{name}: it has no gradient", hint="it is not differentiable")
    exact = "float32" if dtype == "float16" else dtype
    helping = (Parameter(title, stored, stored) for title, stored in ((title, h.result_dtype(x.dtype).name) for title, h in how.helping))
    numbers = (Parameter(title, exact, exact, scalar=True) for title in how.numbers)
    taken = "float64" if how.double else dtype
    parameters = (Parameter("dy", dtype, taken), *helping, Parameter("x", dtype, taken), *numbers)
    return how, Signature(f"{name}_gradient", parameters, dtype, how.expression, taken, how.lets, accumulate=accumulate)


def _apply(signature: Signature, how: Gradient, repeated: Sequence[Any], x: Any, kept: tuple[int, ...], out: object) -> Any:
    count = len(repeated)

    def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        return [specs[count]]

    def build(application: Application) -> tuple[Launch, ...]:
        spec = application.read_specs[count]
        kernel = specialized_fresh(signature, (*[kept] * count, spec.shape, spec.shape))

        def reference(arrays: Sequence[Array]) -> Sequence[Array]:
            exact = [array.astype(np.float32) if array.dtype == np.float16 else array for array in arrays]
            dy, *helping = (array.reshape(kept) for array in exact[:count])
            with np.errstate(all="ignore"):
                value = np.asarray(how.reference(dy, exact[count], *helping), exact[count].dtype)
                return [(exact[-1] + value if signature.accumulate else value).astype(spec.dtype)]

        def cuda(bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
            return bind(bench, signature, [*(array.reshape(kept) for array in reads[:count]), reads[count], writes[0]], how.numbers)

        return application.kernel(signature.name, Cost(application.nbytes, spec.size, kernel.blocks or 1, THREADS), reference, cuda)

    operator = Operator(signature.name, infer, build, in_place=True, reads_view=any_view)
    added: list[Any] = [out] if signature.accumulate else []
    attributes = {"request": "add"} if signature.accumulate else {}
    return current_tracer(signature.name).apply(operator, [*repeated, x, *added], attributes, out)
