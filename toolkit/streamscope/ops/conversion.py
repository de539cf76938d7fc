"""Conversion between dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from streamscope.errors import ProgramError
from streamscope.kernels.expression.promotion import DType, Promoted
from streamscope.ops.application import Request, apply_request, specs_of
from streamscope.ops.definition import Definition
from streamscope.ops.elementwise_operator import Elementwise, Scalars
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import applies_operators
from streamscope.program.variable import ArraySpec

_DEFINITION = Definition("astype", "Return x in another dtype.", ("x",), "x", np.positive, None, gradient=("dy",), flops=0)


class _Conversion(Elementwise):
    """The conversion to one dtype."""

    def __init__(self, dtype: DType) -> None:
        super().__init__(_DEFINITION)
        self.dtype = dtype

    def __call__(self, *operands: object, out: object = None, request: Request = "write") -> Symbol:
        """Apply the operator inside a program that is being traced."""
        return apply_request(self._operator, operands, {"dtype": self.dtype.name}, out, request)

    def promoted(self, specs: Sequence[ArraySpec], scalars: Scalars) -> Promoted:
        """Return the dtypes that the operand is taken in, and the result's."""
        (x,) = specs
        return Promoted((x.dtype,), self.dtype, x.dtype)


@lru_cache(maxsize=16)
def _conversion(dtype: DType) -> _Conversion:
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
    out : variable, optional
        Where the result goes; by default a new variable.
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
    conversion = _conversion(_dtype(dtype))
    (spec,) = specs_of("astype", [x])
    if isinstance(x, Symbol) and not copy and out is None and spec.dtype == conversion.dtype:
        return x
    return conversion(x, out=out, request=request)
