"""Sums of all elements up to each one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from streamscope.arrays import Array
from streamscope.kernels.cumsum import planned_cumsum
from streamscope.kernels.expression.promotion import arithmetic
from streamscope.kernels.reduce.reduction_plan import checked_axis, in_turn
from streamscope.kernels.source import PlannedKernel
from streamscope.ops.application import require, specs_of
from streamscope.ops.reductions import sum as sum_of
from streamscope.ops.views import reshape
from streamscope.program.launch import Cost, CudaBench, CudaCall, Launch
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Backward, Operator, applies_operators
from streamscope.program.variable import ArraySpec
from streamscope.program.view import SECTOR_BYTES, one_piece


def _infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
    (x,) = specs
    shape = (x.size,) if attributes["axis"] is None else x.shape
    return [ArraySpec(shape, sum_of.result_dtype(x.dtype))]


def _plan(x: ArraySpec, result: ArraySpec, attributes: Attributes) -> tuple[PlannedKernel, ...]:
    axis = attributes["axis"]
    outer, count, inner = (1, x.size, 1) if axis is None else (math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]))
    return planned_cumsum(outer, count, inner, x.dtype.name, result.dtype.name, reverse=attributes["reverse"])


def _build(application: Application) -> tuple[Launch, ...]:
    (x,), (result,), attributes = application.read_specs, application.write_specs, application.attributes
    kernels = _plan(x, result, attributes)
    number = arithmetic(result.dtype)

    def reference(arrays: Sequence[Array]) -> Sequence[Array]:
        # In the dtype that it is given, where it is given one of more digits.
        wide = np.promote_types(number, arrays[0].dtype) if arrays[0].dtype.kind == "f" else number
        along = -1 if attributes["axis"] is None else attributes["axis"]
        values = arrays[0].reshape(result.shape)
        if attributes["reverse"]:
            return [np.flip(np.cumsum(np.flip(values, along), along, dtype=wide), along)]
        return [np.cumsum(values, along, dtype=wide)]

    def cuda(bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
        places = [[reads[0], writes[0]]]
        if len(kernels) > 1:
            totals = bench.stream.workspace(kernels[0].blocks * number.itemsize)
            places = [[reads[0], totals], [reads[0], totals, writes[0]]]
        return in_turn([kernel.bind(bench, arrays) for kernel, arrays in zip(kernels, places, strict=True)])

    last = kernels[-1]
    touched = int(last.sectors * SECTOR_BYTES * (x.size + result.size))
    cost = Cost(application.nbytes, x.size, max(1, last.blocks), last.threads, last.stages, touched_bytes=touched)
    if len(kernels) > 1:
        cost = Cost(x.nbytes, x.size, kernels[0].blocks, kernels[0].threads, kernels[0].stages, then=cost)
    return application.kernel("cumsum", cost, lambda arrays: [reference(arrays)[0].astype(result.dtype, copy=False)], cuda)


def _pulled_back(backward: Backward) -> Sequence[Symbol | None]:
    dx = cumsum(backward.dy, backward.attributes["axis"], reverse=not backward.attributes["reverse"])
    return [reshape(dx, backward.read_specs[0].shape)]


_operator = Operator("cumsum", _infer, _build, in_place=True, reads_view=one_piece, gradient=_pulled_back)


@applies_operators
def cumsum(x: object, axis: int | None = None, *, reverse: bool = False, out: object = None) -> Symbol:
    """Return the sums of all elements up to each one along an axis, as ``np.cumsum`` does; without an axis, of all elements in order.

    Half is added up in float32, whole numbers in 64 bits. The gradient is ``ss.ops.cumsum(dy, axis, reverse=True)``.

    Parameters
    ----------
    x : variable
    axis : int, optional
    reverse : bool
        Sum from each element to the end instead.
    {out_or_x}

    Raises
    ------
    ProgramError
        Called outside a program, or x has no such axis.

    Examples
    --------
    >>> def both(x):
    ...     return ss.ops.cumsum(x), ss.ops.cumsum(x, reverse=True)
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(*engine.run(ss.program(both), np.array([1, 2, 3])))
    [1 3 6] [6 5 3]
    """
    (spec,) = specs_of("cumsum", [x])
    along = None if axis is None else checked_axis("cumsum", spec.shape, axis)
    require(isinstance(reverse, bool), "cumsum", f"reverse={reverse!r} is neither True nor False")
    return cast("Symbol", _operator(x, out=out, axis=along, reverse=reverse))
