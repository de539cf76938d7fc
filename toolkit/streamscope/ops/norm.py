"""Norms of any order: a reduction for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np

from streamscope.kernels.reduce.reducers_source import REDUCERS, power_norm
from streamscope.ops.operator import Request, require
from streamscope.ops.reductions import Axis, Reduction
from streamscope.program.launch import Array
from streamscope.program.symbol import Symbol


def norm_of_order(order: object) -> Reduction:
    """Return the reduction ``(sum |x|^order)^(1/order)``.

    Raises
    ------
    ProgramError
        ``order`` is no number from 1 on.
    """
    try:
        number = float(order) if isinstance(order, Real) and not isinstance(order, bool) else 0.0
    except OverflowError:
        number = 0.0
    require(number >= 1, "norm", f"order={order!r} is no number from 1 on", "use 1, 2, another number above 1, or float('inf')")
    return _norm(number)


@lru_cache(maxsize=64)
def _norm(order: float) -> Reduction:
    exact = {1.0: "norm_1", 2.0: "norm_2", float("inf"): "norm_inf"}
    reducer = REDUCERS[exact[order]] if order in exact else power_norm(order)
    return Reduction("norm", f"Norm of order {order:g}; that of whole numbers is float64.", reducer, _norm_reference(order), order)


def _norm_reference(order: float) -> Callable[..., Any]:
    def reference(x: Array, axis: Any, keepdims: bool) -> Any:  # noqa: FBT001 — NumPy's signature
        magnitude = np.abs(x if x.dtype.kind == "f" else x.astype(np.float64))
        if np.isinf(order):
            return np.max(magnitude, axis=axis, keepdims=keepdims)
        return np.sum(magnitude**order, axis=axis, keepdims=keepdims) ** (1 / order)

    return reference


class Norm:
    """The norm ``(sum |x|^order)^(1/order)`` over some axes; of whole numbers it is float64.

    Apply it, inside a program, to a variable: ``norm(x)``, ``norm(x, order=1, axis=0)``.

    Parameters
    ----------
    x : variable
    order : float
        At least 1; infinity is the largest absolute value.
    axis, keepdims, out, request
        As for `sum`.

    Raises
    ------
    ProgramError
        ``order`` is no number from 1 on.
    """

    __name__ = "norm"

    def __repr__(self) -> str:
        return "<reduction norm(x, order)>"

    def __call__(
        self, x: object, order: float = 2, axis: Axis = None, *, keepdims: bool = False, out: object = None, request: Request = "write"
    ) -> Symbol:
        """Apply the operator inside a program that is being traced."""
        return norm_of_order(order)(x, axis, keepdims=keepdims, out=out, request=request)

    def gradient(
        self,
        dy: Symbol,
        x: Symbol,
        order: float = 2,
        axis: Axis = None,
        *,
        keepdims: bool = False,
        out: object = None,
        request: Request = "write",
    ) -> Symbol:
        """Return the gradient of the argument, inside a program; 0 where the norm is not differentiable.

        Parameters
        ----------
        dy : variable
            Gradient of the result, of its shape.
        x, order, axis, keepdims
            What the operator was applied to.
        out, request
            As for `sum`'s gradient.
        """
        return norm_of_order(order).gradient(dy, x, axis, keepdims=keepdims, out=out, request=request)

    def source(
        self,
        dtype: Any,
        shape: Sequence[int] = (2**20,),
        axis: Axis = None,
        *,
        order: float = 2,
        request: Request = "write",
        gradient: bool = False,
    ) -> str:
        """Return the CUDA source of the kernels for an array in fresh memory, one behind the other, or of its gradient's."""
        return norm_of_order(order).source(dtype, shape, axis, request=request, gradient=gradient)


norm = Norm()
