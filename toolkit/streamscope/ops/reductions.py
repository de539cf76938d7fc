"""Reductions: sum, mean, prod, max, min, any, all, argmax, argmin, those that leave NaN out, and norms of any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from numbers import Real
from typing import Any, cast

import numpy as np

from streamscope.arguments import shown
from streamscope.arrays import Array
from streamscope.kernels.form import THREADS
from streamscope.kernels.reduce.reducers import FLOATS, REDUCERS, UNSIGNED, Reducer, power_norm
from streamscope.kernels.reduce.reduction_plan import checked_axes, checked_axis, plan_reduction, reduced_shape
from streamscope.ops.application import Request, apply_request, require
from streamscope.ops.definition import documentation, example_of
from streamscope.program.launch import Cost, CudaBench, CudaCall, Launch
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Backward, Operator, applies_operators
from streamscope.program.variable import ArraySpec
from streamscope.program.view import forward_view

Axis = int | Sequence[int] | None
_NEED_ELEMENTS = ("max", "min", "argmax", "argmin", "norm_inf")
"""Reducers without an identity."""


@applies_operators
class Reduction:
    """An operator that joins the elements along some axes.

    Apply it, inside a program, to a variable: ``operator(x)``, ``operator(x, axis=1)``, ``operator(x, axis=(0, 2), keepdims=True)``; with
    ``out=c, request="add"`` the result is added to ``c``.

    ``summary``: one sentence, for its documentation.
    ``reference``: NumPy function ``reference(x, axis=, keepdims=)`` that means the same.
    ``order``: of a norm.
    ``exact``: the result of half is float32, for operators that go on computing with it.
    """

    def __init__(
        self, name: str, summary: str, reducer: Reducer, reference: Callable[..., Any], order: float = 0.0, *, exact: bool = False
    ) -> None:
        self.__name__ = name
        self.__doc__ = documentation(summary, Reduction.__call__, example_of(name))
        self.reducer = reducer
        self.reference = reference
        self.order = order
        self.exact = exact
        self._operator = Operator(name, self._infer, self._build, reads_view=forward_view, gradient=self._pulled_back)
        self._adding = replace(self._operator, in_place=True)

    def __repr__(self) -> str:
        return f"<reduction {self.__name__}(x)>"

    def __call__(self, x: object, axis: Axis = None, *, keepdims: bool = False, out: object = None, request: Request = "write") -> Symbol:
        """Apply the operator inside a program that is being traced.

        Parameters
        ----------
        x : variable
        axis : int or tuple of int, optional
            All axes by default.
        keepdims : bool
            Reduced axes stay, with extent 1.
        out : variable, optional
            Where the result goes; by default a new variable.
        request : {"write", "add", "null"}
            Whether ``out`` is replaced, added to or left alone.

        Raises
        ------
        ProgramError
            Called outside a program, or the operands do not fit.
        """
        attributes: dict[str, Any] = {"axis": axis, "keepdims": self._truth(keepdims)}
        self._check_added(request)
        return apply_request(self._operator, [x], attributes, out, request, adding=self._adding)

    def gradient(
        self, dy: Symbol, x: Symbol, axis: Axis = None, *, keepdims: bool = False, out: object = None, request: Request = "write"
    ) -> Symbol:
        """Return the gradient of the argument, inside a program.

        Where several elements are the largest, ``max`` gives each of them the whole gradient. That of ``prod`` is the product of all
        elements over each one, in double whatever their dtype, so it is wrong where a product of some of them overflows or underflows
        double. Zeros and infinite elements are counted instead: each one's gradient is the product of the others. If an element is NaN,
        that of all is; ``nanprod`` leaves such elements out, and their gradient is 0.

        Parameters
        ----------
        dy : variable
            Gradient of the result, of its shape.
        x : variable
            The operator's argument, with the same ``axis`` and ``keepdims``.
        out : variable, optional
            Where the gradient goes, which may be ``x`` (in place); by default a new variable.
        request : {"write", "add", "null"}
            Whether ``out`` is replaced, added to or left alone.

        Raises
        ------
        ProgramError
            The operator is not differentiable, or the variables do not fit.
        """
        from streamscope.ops.reduction_gradients import gradient

        return cast("Symbol", gradient(self, dy, x, axis, keepdims=self._truth(keepdims), out=out, request=request))

    def _pulled_back(self, backward: Backward) -> Sequence[Symbol | None]:
        from streamscope.ops.reduction_gradients import pulled_back

        return pulled_back(self, backward)

    def result_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype of the result, which is NumPy's."""
        if self.reducer.located:
            return np.dtype(np.int64)
        if self.reducer.name in ("any", "all"):
            return np.dtype(np.bool_)
        if dtype.name in FLOATS and not self.reducer.double:
            return np.dtype(np.float32) if self.exact and dtype == np.float16 else dtype
        if self.reducer.real or self.reducer.double:
            return np.dtype(np.float64)
        return np.dtype(np.uint64 if dtype.name in UNSIGNED else np.int64) if self.reducer.wide else dtype

    def _truth(self, keepdims: object) -> bool:
        """Return ``keepdims`` as Python's, which is the only one that NumPy takes."""
        good = isinstance(keepdims, bool | np.bool_)
        require(good, self.__name__, f"keepdims={shown(keepdims)} is neither True nor False", "give one of them")
        return bool(keepdims)

    def _check_added(self, request: Request) -> None:
        require(request != "add" or self.reducer.name not in ("any", "all"), self.__name__, "truth values cannot be added")

    def _infer(self, specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        x, axis = specs[0], attributes["axis"]
        axes = checked_axes(self.__name__, x.shape, axis)
        if self.reducer.located and axis is not None:
            checked_axis(self.__name__, x.shape, axis)
        nothing = 0 in [x.shape[one] for one in axes]
        require(not nothing or self.reducer.name not in _NEED_ELEMENTS, self.__name__, f"{x} has no elements to reduce over axis {axis}")
        return [ArraySpec(reduced_shape(x.shape, axes, keepdims=attributes["keepdims"]), self.result_dtype(x.dtype))]

    def _build(self, application: Application) -> tuple[Launch, ...]:
        x, (result,), attributes = application.read_specs[0], application.write_specs, application.attributes
        axes = checked_axes(self.__name__, x.shape, attributes["axis"])
        add = attributes.get("request") == "add"
        plan = plan_reduction(self.reducer, x, result, axes, add=add)

        def reference(arrays: Sequence[Array]) -> Sequence[Array]:
            value = self._reference(arrays[0], result, attributes, axes)
            return [(arrays[1] + value).astype(result.dtype) if add else value]

        def cuda(bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
            source = reads[0]
            # Strides of an empty array mean nothing, and are CuPy's own.
            strides = tuple(step // x.dtype.itemsize for step in source.strides) if x.size else None
            fitted = plan_reduction(self.reducer, x, result, axes, strides=strides, address=int(source.data.ptr) % 256, add=add)
            return fitted.bind(bench, source, writes[0])

        joining = [
            Cost(plan.scratch_bytes + result.nbytes, 0, each.blocks, each.threads, 1 + self.reducer.located) for each in plan.kernels[1:]
        ]
        cost = Cost(application.nbytes, x.size, plan.blocks or 1, THREADS, 1 + self.reducer.located, then=joining[0] if joining else None)
        return application.kernel(self.__name__, cost, reference, cuda)

    def _reference(self, x: Array, result: ArraySpec, attributes: Attributes, axes: tuple[int, ...]) -> Array:
        """Call NumPy, with half joined in float32 as the kernels do."""
        exact = x.astype(np.float32) if x.dtype == np.float16 else x
        axis = attributes["axis"] if not isinstance(attributes["axis"], list | tuple) else axes
        value = np.asarray(self.reference(exact, axis=axis, keepdims=attributes["keepdims"]))
        return value.astype(result.dtype, copy=False)


def _mean(x: Array, axis: Axis, keepdims: bool) -> Any:  # noqa: FBT001 — NumPy's signature
    """Return `np.mean`, without its warning of no elements."""
    total = np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype if x.dtype.kind == "f" else np.float64)
    with np.errstate(invalid="ignore"):
        return total / total.dtype.type(x.size / total.size if total.size else 1)


sum = Reduction("sum", "Sum; half is added up in float32, whole numbers in 64 bits.", REDUCERS["sum"], np.sum)  # noqa: A001 — NumPy's name
mean = Reduction("mean", "Mean; that of whole numbers is float64.", REDUCERS["mean"], _mean)
prod = Reduction("prod", "Product; that of whole numbers has 64 bits, and wraps.", REDUCERS["prod"], np.prod)
nansum = Reduction("nansum", "Sum, with NaN as 0.", REDUCERS["nansum"], np.nansum)
nanprod = Reduction("nanprod", "Product, with NaN as 1.", REDUCERS["nanprod"], np.nanprod)
max = Reduction("max", "Largest element; NaN is passed on.", REDUCERS["max"], np.max)  # noqa: A001
min = Reduction("min", "Smallest element; NaN is passed on.", REDUCERS["min"], np.min)  # noqa: A001
any = Reduction("any", "Whether any element is not zero; NaN is not zero.", REDUCERS["any"], np.any)  # noqa: A001
all = Reduction("all", "Whether all elements are not zero.", REDUCERS["all"], np.all)  # noqa: A001
argmax = Reduction("argmax", "Index of the first largest element, or of the first NaN, as int64.", REDUCERS["argmax"], np.argmax)
argmin = Reduction("argmin", "Index of the first smallest element, or of the first NaN, as int64.", REDUCERS["argmin"], np.argmin)


def norm_of_order(order: object) -> Reduction:
    """Return the reduction ``(sum |x|^order)^(1/order)``."""
    try:
        number = float(order) if isinstance(order, Real) and not isinstance(order, bool) else 0.0
    except OverflowError:
        number = 0.0
    require(number >= 1, "norm", f"order={order!r} must be a number from 1 on", "use 1, 2, another number above 1, or float('inf')")
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


@applies_operators
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
        ``order`` must be a number from 1 on.

    Examples
    --------
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(ss.ops.norm), np.array([3.0, 4.0])))
    5.0
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
            The operator's arguments.
        out, request
            As for `sum`'s gradient.
        """
        return norm_of_order(order).gradient(dy, x, axis, keepdims=keepdims, out=out, request=request)


norm = Norm()
