"""Element-wise operators that choose and convert: where, clip, astype."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np

from streamscope.arrays import Array
from streamscope.errors import ProgramError
from streamscope.kernels.expression.promotion import DType, Promoted, promote
from streamscope.ops.application import Request, apply_request, specs_of
from streamscope.ops.definition import Definition, example_of
from streamscope.ops.elementwise_operator import Elementwise, Scalars, defined
from streamscope.ops.indexing import index
from streamscope.ops.views import broadcast_to, reshape
from streamscope.program.aliasing import Aliasing
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import applies_operators, current_tracer
from streamscope.program.variable import ArraySpec


class _Where(Elementwise):
    """The choice between two operands, whose dtypes promote without that of the condition."""

    def promoted(self, specs: Sequence[ArraySpec], scalars: Scalars) -> Promoted:
        """Return the dtypes that the operands are taken in, and the result's."""
        condition, *choices = self._kinds(specs, scalars)
        chosen = promote(self.__name__, self.definition.like, choices)
        taken = np.dtype(np.bool_) if "condition" in scalars or isinstance(condition, type) else condition
        return Promoted((taken, *chosen.taken), chosen.result, chosen.first)

    def __call__(self, *operands: object, out: object = None, request: Request = "write") -> Symbol:
        """Apply the operator inside a program that is being traced."""
        result = super().__call__(*operands, out=out, request=request)
        if out is None:
            result.sharing = Aliasing.ARRAY  # also without axes, as in NumPy
        return result


where = _Where(
    Definition(
        "where",
        "Return a where the condition is not zero, and b elsewhere; the condition, of any dtype, does not promote.",
        ("condition", "a", "b"),
        "condition ? a : b",
        np.maximum,
        np.where,
        gradient=(None, "condition ? dy : T(0)", "condition ? T(0) : dy"),
        choosing=("condition",),
        example=example_of("where"),
    )
)


def filled(value: float, shape: tuple[int, ...], like: Symbol) -> Symbol:
    """Return a variable of one value, of the dtype and on the GPU of another one, of which it reads an element and ignores it."""
    first = reshape(index(like, (slice(0, 1),) * len(like.shape)), (1,) * len(shape))
    return where(True, value, broadcast_to(first, shape))


def _clip(x: Array, low: Array, high: Array) -> Array:
    return np.asarray(np.minimum(np.maximum(x, low), high))


clip = defined(
    ("x", "low", "high"),
    "clip",
    "Return x within limits: low where it is below, high where it is above. For one limit there are `maximum` and `minimum`.",
    "minimum(maximum(x, low), high)",
    np.maximum,
    ("x < low || x > high ? T(0) : dy", "x < low && low <= high ? dy : T(0)", "maximum(x, low) > high ? dy : T(0)"),
    reference=_clip,
    flops=2,
)


_ASTYPE = Definition("astype", "Return x in another dtype.", ("x",), "x", np.positive, None, gradient=("dy",), flops=0)


class _Conversion(Elementwise):
    """The conversion to one dtype."""

    def __init__(self, dtype: DType) -> None:
        super().__init__(_ASTYPE)
        self.dtype = dtype

    def __call__(self, *operands: object, out: object = None, request: Request = "write") -> Symbol:
        """Apply the operator inside a program that is being traced."""
        return apply_request(self._operator, operands, {"dtype": self.dtype.name}, out, request)

    def promoted(self, specs: Sequence[ArraySpec], scalars: Scalars) -> Promoted:
        """Return the dtypes that the operand is taken in, and the result's."""
        (x,) = specs
        return Promoted((x.dtype,), self.dtype, x.dtype)

    def update(self, target: Symbol, *operands: object) -> Symbol:
        """Write the operand, converted, to a variable of the dtype or to a part of one; see `Elementwise.update`."""
        return current_tracer("astype").update(self._operator, operands, {"dtype": self.dtype.name}, target)


@lru_cache(maxsize=16)
def conversion(dtype: DType) -> _Conversion:
    """Return the conversion to a dtype."""
    return _Conversion(dtype)


def _dtype(dtype: Any) -> DType:
    try:
        return ArraySpec((), dtype).dtype
    except ProgramError as error:
        raise ProgramError(f"astype: {error.message}", hint=error.hint) from None


@applies_operators
def astype(x: object, dtype: Any, *, copy: bool = True, out: object = None, request: Request = "write") -> Symbol:
    """Return a variable in another dtype; inside a program also ``x.astype(dtype)``.

    Of a floating-point number a whole one is its part before the point. One beyond the range becomes the nearest end of it (in 8 and 16
    bits, the low bits of that in 32), NaN becomes 0 or the least number: as the GPU has it, where NumPy leaves it open.

    Parameters
    ----------
    x : variable
    dtype : dtype
    copy : bool
        False: a variable that has the dtype is returned as it is, and nothing runs.
    {out}
    request : {"write", "add", "null"}
        Whether ``out`` is replaced, added to or left alone.

    Raises
    ------
    ProgramError
        Called outside a program, or the dtype is not supported.

    Examples
    --------
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(lambda x: x.astype("int32")), np.array([1.5, -2.5])))
    [ 1 -2]
    """
    convert = conversion(_dtype(dtype))
    (spec,) = specs_of("astype", [x])
    given = cast("Symbol", x)
    if not copy and out is None and spec.dtype == convert.dtype:
        return given
    result = convert(given, out=out, request=request)
    if out is None and given.sharing is not Aliasing.NUMBER:
        result.sharing = Aliasing.ARRAY  # also without axes
    return result
