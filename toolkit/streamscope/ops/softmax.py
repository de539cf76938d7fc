"""Softmax and log-softmax along an axis, and their gradients."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.ops.linear import accumulation_dtype
from streamscope.ops.operator import Application, Attributes, Operator, require, require_float
from streamscope.ops.reduction_plan import checked_axes
from streamscope.program.launch import Array, Cost, Launch, LaunchKind
from streamscope.program.variable import ArraySpec
from streamscope.rtc.softmax_source import THREADS, row_form, softmax_columns_source, softmax_source

if TYPE_CHECKING:
    from streamscope.devices.cuda import CudaBench, CudaCall
    from streamscope.rtc.source import KernelSource


def _softmax_of(x: Array, axis: int) -> Array:
    exponentials = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=axis, keepdims=True))


def _log_softmax_of(x: Array, axis: int) -> Array:
    shifted = x - x.max(axis=axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))


def _softmax_gradient_of(dy: Array, y: Array, axis: int) -> Array:
    return np.asarray(y * (dy - (dy * y).sum(axis=axis, keepdims=True)))


def _log_softmax_gradient_of(dy: Array, y: Array, axis: int) -> Array:
    return np.asarray(dy - np.exp(y) * dy.sum(axis=axis, keepdims=True))


def _operator(name: str, function: Callable[..., Array]) -> Operator:
    """Make an operator of one of the kernels and the NumPy function ``function(*arrays, axis)`` that means the same."""

    def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        require_float(specs, name)
        shape = specs[0].shape
        require(all(spec.shape == shape for spec in specs), name, f"shapes {' and '.join(str(spec.shape) for spec in specs)} differ")
        require(len(shape) > 0, name, f"shape {shape} has no axis")
        axes = checked_axes(name, shape, attributes["axis"])
        require(len(axes) == 1, name, f"axis={attributes['axis']} is not one axis of {shape}", "name one")
        (axis,) = axes
        require(shape[axis] > 0, name, f"shape {shape} has no {'last ' * (axis == len(shape) - 1)}axis with elements")
        return [specs[0]]

    def build(application: Application) -> tuple[Launch, ...]:
        spec = application.write_specs[0]
        (axis,) = checked_axes(name, spec.shape, application.attributes["axis"])
        inputs = len(application.reads)

        def reference(arrays: Sequence[Array]) -> Sequence[Array]:
            exact = [array.astype(accumulation_dtype(array.dtype)) for array in arrays]
            return [function(*exact, axis).astype(spec.dtype)]

        def cuda(bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
            aligned = all(_address(array) % 16 == 0 for array in (*reads, *writes))
            source, blocks, numbers = _kernel(name, spec, axis, inputs, aligned=aligned)
            return bench.kernel(source, blocks, THREADS, [*reads, *writes, *map(ctypes.c_longlong, numbers)])

        _, blocks, _ = _kernel(name, spec, axis, inputs, aligned=True)
        cost = Cost((inputs + 1) * spec.nbytes, 5 * spec.size, max(1, blocks), THREADS)
        reads, writes = application.reads, application.writes
        return (Launch(application.operation, 0, name, LaunchKind.KERNEL, reads, writes, cost, reference, cuda),)

    return Operator(name, infer, build, in_place=True)


def _kernel(name: str, spec: ArraySpec, axis: int, inputs: int, *, aligned: bool) -> tuple[KernelSource, int, tuple[int, ...]]:
    """Return the kernel for an array, its blocks and its numbers."""
    columns, inner = spec.shape[axis], math.prod(spec.shape[axis + 1 :])
    rows = spec.size // columns // inner if spec.size else 0
    if inner != 1:
        return softmax_columns_source(name, spec.dtype.name), -(-rows * inner // THREADS), (rows, columns, inner)
    form = row_form(columns, spec.dtype.itemsize, inputs, aligned=aligned)
    return softmax_source(name, spec.dtype.name, form), -(-rows // (THREADS // form.lanes)), (rows, columns)


def _address(array: Any) -> int:
    return int(array.data.ptr) if hasattr(array, "data") and hasattr(array.data, "ptr") else 0


_softmax = _operator("softmax", _softmax_of)
_log_softmax = _operator("log_softmax", _log_softmax_of)
_softmax_gradient = _operator("softmax_gradient", _softmax_gradient_of)
_log_softmax_gradient = _operator("log_softmax_gradient", _log_softmax_gradient_of)


def softmax(x: object, axis: int = -1, *, out: object = None) -> Any:
    """Return ``exp(x) / sum(exp(x))`` along an axis, the maximum taken off first; half is computed in float32.

    Parameters
    ----------
    x : variable
        Of a floating dtype; the axis has elements.
    axis : int
    out : variable, optional
        Where the result goes, which may be an argument (in place); by default a new variable.
    """
    return _softmax(x, axis=axis, out=out)


def log_softmax(x: object, axis: int = -1, *, out: object = None) -> Any:
    """Return ``log(softmax(x))`` along an axis, without the loss of precision that its two steps would have.

    Parameters
    ----------
    x : variable
        Of a floating dtype; the axis has elements.
    axis : int
    out : variable, optional
        Where the result goes, which may be an argument (in place); by default a new variable.
    """
    return _log_softmax(x, axis=axis, out=out)


def softmax_gradient(dy: object, y: object, axis: int = -1, *, out: object = None) -> Any:
    """Return the gradient of `softmax` with respect to its argument: ``y * (dy - sum(dy * y))``.

    Parameters
    ----------
    dy, y : variable
        The incoming gradient, and what `softmax` returned.
    axis : int
    out : variable, optional
        Where the result goes, which may be an argument (in place); by default a new variable.
    """
    return _softmax_gradient(dy, y, axis=axis, out=out)


def log_softmax_gradient(dy: object, y: object, axis: int = -1, *, out: object = None) -> Any:
    """Return the gradient of `log_softmax` with respect to its argument: ``dy - exp(y) * sum(dy)``.

    Parameters
    ----------
    dy, y : variable
        The incoming gradient, and what `log_softmax` returned.
    axis : int
    out : variable, optional
        Where the result goes, which may be an argument (in place); by default a new variable.
    """
    return _log_softmax_gradient(dy, y, axis=axis, out=out)
