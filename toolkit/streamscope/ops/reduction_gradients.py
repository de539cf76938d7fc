"""Gradients of reductions: one element-wise kernel over the argument, along which the result and its gradient repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from streamscope.arrays import Array
from streamscope.errors import ProgramError
from streamscope.kernels.expression.expressions import compiled, names_in
from streamscope.kernels.reduce.reducers import Reducer
from streamscope.kernels.reduce.reduction_plan import checked_axes, reduced_shape
from streamscope.kernels.signature import Parameter, Signature
from streamscope.ops.application import Request, check_request, require
from streamscope.ops.elementwise_gradients import applied_gradient
from streamscope.ops.reductions import Axis, Reduction
from streamscope.ops.selection import astype
from streamscope.ops.views import broadcast_to, reshape
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Backward
from streamscope.program.variable import ArraySpec

Formula = Callable[..., Any]


@dataclass(frozen=True)
class _Gradient:
    """How the gradient of a reduction is computed."""

    expression: str
    """CUDA expression over the element ``x``, the gradient ``dy``, the helping reductions and ``lets``, all by name; ``T`` is the type of
    arithmetic."""
    helping: tuple[tuple[str, Reduction], ...] = ()
    """Reductions of ``x`` that it needs; exact, since nobody sees them rounded. ``y`` is the result, where that is exact."""
    numbers: Mapping[str, np.generic] = field(default_factory=dict)
    """Numbers that the expression takes by name, so that others need no other kernel."""
    lets: tuple[tuple[str, str], ...] = ()
    """Names with the expressions that they stand for, computed first; of type ``T``."""
    double: bool = False
    """``T`` is double, and so are ``x`` and ``dy``, whatever the argument's dtype: only the expression's value is rounded to that."""

    @property
    def of_elements(self) -> bool:
        """Whether it depends on the argument's elements, and not on the result's gradient alone."""
        return any("x" in names_in(text) for text in (self.expression, *(text for _, text in self.lets)))


_SIGN = "(x != x ? x : T((x > 0) - (x < 0)))"


# The product of all but one element is that of all over that one. Zeros and infinite elements cannot be divided by: they are counted, and
# all that is left of them in the product is a sign.
_FACTOR = "(x == 0 ? 1. : isinf(x) ? copysign(1., double(x)) : double(x))"


def _counting(name: str, counted: str) -> Reduction:
    return Reduction(name, "", Reducer(name, "value_t(0)", f"value_t({counted})", "a + b"), partial(_of_each, np.sum, counted), exact=True)


def _multiplying(name: str, factor: str) -> Reduction:
    return Reduction(name, "", Reducer(name, "value_t(1)", factor, "a * b", double=True), partial(_of_each, np.prod, factor))


def _of_each(join: Formula, expression: str, x: Array, axis: Any, keepdims: bool) -> Any:  # noqa: FBT001 — NumPy's signature
    return join(compiled(expression)({"x": x}), axis=axis, keepdims=keepdims)


_COUNTS = (("zeros", _counting("count_zeros", "x == 0")), ("infinities", _counting("count_infinities", "isinf(x)")))
_FACTORS = ("factors", _multiplying("prod_factors", _FACTOR))
_NUMBER_FACTORS = ("factors", _multiplying("nanprod_factors", f"x != x ? 1. : {_FACTOR}"))

# A zero among the others makes their product 0, an infinite one makes it infinite, and both together NaN, as 0 / 0 is. A NaN among the
# others is passed on, whatever it is multiplied by.
_OTHERS = (
    ("others", f"factors / {_FACTOR}"),
    ("no_zero", "zeros == (x == 0)"),
    ("no_infinity", "infinities == isinf(x)"),
)
_PRODUCT = "dy * (others != others || (no_zero && no_infinity) ? others : copysign(no_zero, others) / no_infinity)"


@lru_cache(maxsize=256)
def _exact(reduction: Reduction) -> tuple[tuple[str, Reduction]]:
    """Return the result ``y`` of a reduction as a helper; made once, so that a gradient that is traced again has the same operators."""
    exact = Reduction(reduction.__name__, "", reduction.reducer, reduction.reference, reduction.order, exact=True)
    return (("y", exact),)


def _gradient_of(reduction: Reduction, count: int) -> _Gradient:
    """Return how the gradient is computed where each result joins ``count`` elements."""
    match reduction.reducer.name:
        case "sum":
            return _Gradient("dy")
        case "nansum":
            return _Gradient("x != x ? T(0) : dy")
        case "mean":
            return _Gradient("dy / count", numbers={"count": np.float64(count)})
        case "prod":
            return _Gradient(_PRODUCT, (_FACTORS, *_COUNTS), lets=_OTHERS, double=True)
        case "nanprod":
            return _Gradient(f"x != x ? T(0) : {_PRODUCT}", (_NUMBER_FACTORS, *_COUNTS), lets=_OTHERS, double=True)
        case "max" | "min":
            return _Gradient("x == y || x != x ? dy : T(0)", (("y", reduction),))
        case "norm_1":
            return _Gradient(f"dy * {_SIGN}")
        case "norm_2":
            return _Gradient("y == 0 ? T(0) : dy * x / y", _exact(reduction))
        case "norm_inf":
            return _Gradient(f"(x < 0 ? -x : x) == y || x != x ? dy * {_SIGN} : T(0)", (("y", reduction),))
        case "norm_p":
            power = f"pow((x < 0 ? -x : x) / y, T({reduction.order - 1!r}))"
            return _Gradient(f"y == 0 ? T(0) : dy * {_SIGN} * {power}", _exact(reduction))
    raise ProgramError(f"{reduction.__name__}: it has no gradient", hint="it is not differentiable")


def gradient(
    reduction: Reduction,
    dy: Any,
    x: Any,
    axis: Axis,
    *,
    keepdims: bool,
    out: object = None,
    request: Request = "write",
    result: Callable[[], Symbol | None] = lambda: None,
) -> Any:
    """Return the gradient of a reduction's argument; see `Reduction.gradient`. A backward pass has the reduction's ``result``."""
    name = reduction.__name__
    require(isinstance(dy, Symbol) and isinstance(x, Symbol), name, "the gradient is of variables of the program")
    check_request(f"{name}.gradient", request, has_target=out is not None)
    require(x.dtype.kind == "f", name, f"{x.dtype.name} has no gradient", "gradients are floating-point numbers")
    axes = checked_axes(name, x.shape, axis)
    how = _gradient_of(reduction, math.prod(x.shape[one] for one in axes))
    shape = reduced_shape(x.shape, axes, keepdims=keepdims)
    require(dy.shape == shape, name, f"the result's gradient has shape {dy.shape}, the result {shape}")
    require(dy.dtype == x.dtype, name, f"the result's gradient is {dy.dtype.name}, the argument {x.dtype.name}")
    if request == "null":
        return out
    kept = reduced_shape(x.shape, axes, keepdims=True)
    repeated = [reshape(dy, kept)]
    for title, helper in how.helping:
        found = result() if title == "y" and helper.result_dtype(x.dtype) == x.dtype else None
        repeated.append(reshape(helper(x, axis, keepdims=keepdims) if found is None else found, kept))
    signature = _signature(f"{name}_gradient", how, x.dtype, accumulate=request == "add")
    return applied_gradient(signature, [x, *repeated], x.spec, how.numbers, out)


def pulled_back(reduction: Reduction, backward: Backward) -> Sequence[Symbol | None]:
    """Return the gradient of the argument for a backward pass. That of sums and means repeats, so it is a view, and reads no argument."""
    (x, *_), given, dy = backward.read_specs, backward.attributes, backward.dy
    how = _gradient_of(reduction, math.prod(x.shape[one] for one in checked_axes(reduction.__name__, x.shape, given["axis"])))
    dy = dy if dy.dtype == x.dtype else astype(dy, x.dtype)
    if how.of_elements:
        own = partial(_result_of, backward)
        found = [gradient(reduction, dy, backward.operand(0), given["axis"], keepdims=given["keepdims"], result=own)]
    else:
        found = [_spread(reduction, how, x, dy, given["axis"])]
    return [*found, backward.dy] if backward.adds else found


def _result_of(backward: Backward) -> Symbol | None:
    """Return the result, unless it was added to something, or written in place since: then it has to be reduced again."""
    return None if backward.adds or not backward.holds(0) else backward.result(0)


def _spread(reduction: Reduction, how: _Gradient, x: ArraySpec, dy: Symbol, axis: Axis) -> Symbol:
    """Return the gradient of an argument in whose elements it does not differ: that of each result, repeated."""
    axes = checked_axes(reduction.__name__, x.shape, axis)
    kept = reshape(dy, reduced_shape(x.shape, axes, keepdims=True))
    if how.numbers:
        _, *parameters = _signature(f"{reduction.__name__}_gradient", how, x.dtype, accumulate=False).parameters
        signature = Signature(f"{reduction.__name__}_gradient", tuple(parameters), x.dtype.name, how.expression, x.dtype.name, how.lets)
        kept = applied_gradient(signature, [kept], kept.spec, how.numbers, None)
    return broadcast_to(kept, x.shape)


def _signature(name: str, how: _Gradient, dtype: np.dtype[Any], *, accumulate: bool) -> Signature:
    """Return the signature of a gradient's kernel."""
    taken = "float64" if how.double else dtype.name
    exact = "float32" if dtype == np.float16 else dtype.name
    helping = (Parameter(title, stored, stored) for title, stored in ((title, h.result_dtype(dtype).name) for title, h in how.helping))
    numbers = (Parameter(title, exact, exact, scalar=True) for title in how.numbers)
    parameters = (Parameter("x", dtype.name, taken), Parameter("dy", dtype.name, taken), *helping, *numbers)
    return Signature(name, parameters, dtype.name, how.expression, taken, how.lets, accumulate=accumulate)
