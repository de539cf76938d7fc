"""Gradients of reductions: one element-wise kernel over the argument, along which the result and its gradient repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.errors import ProgramError
from streamscope.ops.fitting import bind, fitted_fresh
from streamscope.ops.operator import Application, Attributes, Operator, check_request, require
from streamscope.ops.reduction_plan import checked_axes, reduced_shape
from streamscope.ops.reductions import Axis, Reduction
from streamscope.program.launch import Array, Cost, Launch, LaunchKind
from streamscope.program.symbol import Symbol
from streamscope.program.tracing import current_tracer
from streamscope.program.variable import ArraySpec
from streamscope.rtc.form import THREADS
from streamscope.rtc.reducers_source import Reducer
from streamscope.rtc.signature import Parameter, Signature

if TYPE_CHECKING:
    from streamscope.devices.cuda import CudaBench, CudaCall

Formula = Callable[..., Any]


@dataclass(frozen=True)
class Gradient:
    """How the gradient of a reduction is computed.

    Attributes
    ----------
    expression : str
        CUDA expression over the element ``x``, the gradient ``dy`` and the helping reductions by name; ``T`` is the type of arithmetic.
    reference : callable
        The same in NumPy: ``reference(dy, x, *helping)``.
    helping : tuple of (str, Reduction)
        Reductions of ``x`` that it needs; exact, since nobody sees them rounded.
    numbers : mapping of str to NumPy number
        Numbers that the expression takes by name, so that others need no other kernel.
    """

    expression: str
    reference: Formula
    helping: tuple[tuple[str, Reduction], ...] = ()
    numbers: Mapping[str, np.generic] = field(default_factory=dict)


_SIGN = "(x != x ? x : T((x > 0) - (x < 0)))"


def _sign(x: Array) -> Array:
    return np.asarray(np.sign(x))


def _nonzero_product(x: Array, axis: Any, keepdims: bool) -> Any:  # noqa: FBT001 — NumPy's signature
    return np.prod(np.where(x == 0, 1, x), axis=axis, keepdims=keepdims)


def _nonzero_number_product(x: Array, axis: Any, keepdims: bool) -> Any:  # noqa: FBT001
    return _nonzero_product(np.where(np.isnan(x), 1, x), axis, keepdims)


def _zeros(x: Array, axis: Any, keepdims: bool) -> Any:  # noqa: FBT001
    return np.sum(x == 0, axis=axis, keepdims=keepdims).astype(x.dtype)


# The product of all but one element is that of all over that one, unless it or another is zero.
_NO_NUMBER = "(others != others ? others : T(0))"  # a NaN among the others is passed on, whatever it is multiplied by
_PRODUCT = f"x == 0 ? (zeros == 1 ? dy * others : {_NO_NUMBER}) : zeros == 0 ? dy * others / x : {_NO_NUMBER}"


def _helper(name: str, initial: int, mapped: str, joined: str, reference: Formula) -> Reduction:
    return Reduction(name, "", Reducer(name, f"value_t({initial})", mapped, joined), reference, exact=True)


_ZEROS = _helper("count_zeros", 0, "value_t(x == 0)", "a + b", _zeros)
_OTHERS = _helper("prod_nonzero", 1, "x == 0 ? value_t(1) : value_t(x)", "a * b", _nonzero_product)
_OTHER_NUMBERS = _helper("nanprod_nonzero", 1, "x == 0 || x != x ? value_t(1) : value_t(x)", "a * b", _nonzero_number_product)


def _product_reference(dy: Array, x: Array, others: Array, zeros: Array) -> Any:
    no_number = np.where(np.isnan(others), others, 0)
    by_zero = np.where(zeros == 1, dy * others, no_number)
    return np.where(x == 0, by_zero, np.where(zeros == 0, dy * others / np.where(x == 0, 1, x), no_number))


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
            return Gradient(_PRODUCT, _product_reference, (("others", _OTHERS), ("zeros", _ZEROS)))
        case "nanprod":
            return Gradient(
                f"x != x ? T(0) : {_PRODUCT}",
                lambda dy, x, others, zeros: np.where(np.isnan(x), 0, _product_reference(dy, x, others, zeros)),
                (("others", _OTHER_NUMBERS), ("zeros", _ZEROS)),
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


def gradient(reduction: Reduction, dy: Any, x: Any, axis: Axis, *, keepdims: bool, out: object, request: str) -> Any:
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
    kernel = fitted_fresh(signature, (*[kept] * (1 + len(how.helping)), x.shape, x.shape))
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
    parameters = (Parameter("dy", dtype, dtype), *helping, Parameter("x", dtype, dtype), *numbers)
    return how, Signature(f"{name}_gradient", parameters, dtype, how.expression, dtype, accumulate=accumulate)


def _apply(signature: Signature, how: Gradient, repeated: Sequence[Any], x: Any, kept: tuple[int, ...], out: object) -> Any:
    count = len(repeated)

    def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        return [specs[count]]

    def build(application: Application) -> tuple[Launch, ...]:
        spec = application.read_specs[count]
        kernel = fitted_fresh(signature, (*[kept] * count, spec.shape, spec.shape))

        def reference(arrays: Sequence[Array]) -> Sequence[Array]:
            exact = [array.astype(np.float32) if array.dtype == np.float16 else array for array in arrays]
            dy, *helping = (array.reshape(kept) for array in exact[:count])
            with np.errstate(all="ignore"):
                value = np.asarray(how.reference(dy, exact[count], *helping))
                return [(exact[-1] + value if signature.accumulate else value).astype(spec.dtype)]

        def cuda(bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
            return bind(bench, signature, [*(array.reshape(kept) for array in reads[:count]), reads[count], writes[0]], how.numbers)

        moved = sum(one.nbytes for one in application.read_specs) + spec.nbytes
        cost = Cost(moved, spec.size, kernel.blocks or 1, THREADS)
        reads, writes = application.reads, application.writes
        return (Launch(application.operation, 0, signature.name, LaunchKind.KERNEL, reads, writes, cost, reference, cuda),)

    operator = Operator(signature.name, infer, build, in_place=True)
    added: list[Any] = [out] if signature.accumulate else []
    attributes = {"request": "add"} if signature.accumulate else {}
    return current_tracer(signature.name).apply(operator, [*repeated, x, *added], attributes, out)
