"""Softmax over the last axis, one block a row."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.ops.linear import accumulation_dtype
from streamscope.ops.operator import Application, Attributes, Operator, require, require_float
from streamscope.program.launch import Array, Cost, Launch, LaunchKind
from streamscope.program.variable import ArraySpec
from streamscope.rtc.softmax_source import THREADS, softmax_source

if TYPE_CHECKING:
    from streamscope.devices.cuda import CudaBench, CudaCall


def _infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
    require_float(specs, "softmax")
    shape = specs[0].shape
    require(len(shape) > 0 and shape[-1] > 0, "softmax", f"shape {shape} has no last axis with elements")
    return [specs[0]]


def _reference(arrays: Sequence[Array]) -> Sequence[Array]:
    x = arrays[0].astype(accumulation_dtype(arrays[0].dtype))
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return [(exponentials / exponentials.sum(axis=-1, keepdims=True)).astype(arrays[0].dtype)]


def _build(application: Application) -> tuple[Launch, ...]:
    spec = application.write_specs[0]
    columns = spec.shape[-1]
    rows = spec.size // columns
    source = softmax_source(spec.dtype.name)

    def cuda(bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
        return bench.kernel(source, rows, THREADS, [*reads, *writes, ctypes.c_longlong(columns)])

    cost = Cost(2 * spec.nbytes, 5 * spec.size, max(1, rows), THREADS)
    reads, writes = application.reads, application.writes
    return (Launch(application.operation, 0, "softmax", LaunchKind.KERNEL, reads, writes, cost, _reference, cuda),)


_softmax = Operator("softmax", _infer, _build, in_place=True)


def softmax(x: object, *, out: object = None) -> Any:
    """Return ``exp(x) / sum(exp(x))`` over the last axis, the maximum taken off first; half is computed in float32.

    Parameters
    ----------
    x : variable
        Shape (..., C) with C > 0, of a floating dtype.
    out : variable, optional
        Where the result goes, which may be an argument (in place); by default a new variable.
    """
    return _softmax(x, out=out)
