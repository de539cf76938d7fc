"""Element-wise operators: add, multiply, relu, bias_add."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.ops.operator import Application, Attributes, Operator, require, require_float
from streamscope.program.launch import Array, Cost, Launch, LaunchKind
from streamscope.program.variable import ArraySpec
from streamscope.rtc.elementwise_source import THREADS, elementwise_source, grid_blocks, vector_width

if TYPE_CHECKING:
    from streamscope.devices.cuda import CudaBench, CudaCall


def _same_shape(operator: str) -> Callable[[Sequence[ArraySpec], Attributes], Sequence[ArraySpec]]:
    def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        require_float(specs, operator)
        shapes = [str(spec.shape) for spec in specs]
        require(len(set(shapes)) == 1, operator, f"shapes {' and '.join(shapes)} differ")
        return [specs[0]]

    return infer


def _elementwise(name: str, expression: str, function: Callable[..., Array], arity: int, *, broadcast_last: bool = False) -> Operator:
    """Make an operator from a CUDA expression over ``a`` (and ``b``) and the NumPy function that means the same.

    With ``broadcast_last`` the last operand is a vector that repeats along the last axis.
    """

    def build(application: Application) -> tuple[Launch, ...]:
        result = application.write_specs[0]
        inner = application.read_specs[-1].size if broadcast_last else 0
        width = vector_width(result, inner)
        source = elementwise_source(name, expression, result.dtype.name, arity, width, broadcast_last=broadcast_last)

        def reference(arrays: Sequence[Array]) -> Sequence[Array]:
            return [function(*arrays).astype(result.dtype, copy=False)]

        def cuda(bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
            arguments = [*reads, *writes, ctypes.c_longlong(result.size)]
            if broadcast_last:
                arguments.append(ctypes.c_longlong(inner))
            return bench.kernel(source, grid_blocks(result.size, width), THREADS, arguments)

        moved = sum(spec.nbytes for spec in application.read_specs) + result.nbytes
        cost = Cost(bytes=moved, flops=result.size, blocks=max(1, grid_blocks(result.size, width)), threads=THREADS)
        kernel = LaunchKind.KERNEL
        return (Launch(application.operation, 0, name, kernel, application.reads, application.writes, cost, reference, cuda),)

    return Operator(name, _infer_bias if broadcast_last else _same_shape(name), build, in_place=True)


def _infer_bias(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
    require_float(specs, "bias_add")
    x, bias = specs
    require(
        len(bias.shape) == 1 and x.shape[-1:] == bias.shape,
        "bias_add",
        f"bias of shape {bias.shape} does not fit the last axis of {x.shape}",
        "give one bias for each entry of the last axis",
    )
    return [x]


_add = _elementwise("add", "a + b", np.add, 2)
_multiply = _elementwise("multiply", "a * b", np.multiply, 2)
_relu = _elementwise("relu", "a < 0 ? compute_t(0) : a", lambda a: np.where(a < 0, a.dtype.type(0), a), 1)
_bias_add = _elementwise("bias_add", "a + b", np.add, 2, broadcast_last=True)


def add(a: object, b: object, *, out: object = None) -> Any:
    """Return ``a + b``.

    Parameters
    ----------
    a, b : variable
        Of one shape and one floating dtype.
    out : variable, optional
        Where the result goes, which may be an argument (in place); by default a new variable.
    """
    return _add(a, b, out=out)


def multiply(a: object, b: object, *, out: object = None) -> Any:
    """Return ``a * b``, element by element.

    Parameters
    ----------
    a, b : variable
        Of one shape and one floating dtype.
    out : variable, optional
        Where the result goes, which may be an argument (in place); by default a new variable.
    """
    return _multiply(a, b, out=out)


def relu(x: object, *, out: object = None) -> Any:
    """Return ``max(x, 0)``, NaN kept.

    Parameters
    ----------
    x : variable
        Of a floating dtype.
    out : variable, optional
        Where the result goes, which may be an argument (in place); by default a new variable.
    """
    return _relu(x, out=out)


def bias_add(x: object, bias: object, *, out: object = None) -> Any:
    """Return ``x + bias``, the bias repeated over all but the last axis of ``x``.

    Parameters
    ----------
    x : variable
        Shape (..., C), of a floating dtype.
    bias : variable
        Shape (C,), of the same dtype.
    out : variable, optional
        Where the result goes, which may be an argument (in place); by default a new variable.
    """
    return _bias_add(x, bias, out=out)
