"""Softmax and log-softmax along an axis, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from streamscope.arrays import Array
from streamscope.kernels.expression.promotion import arithmetic
from streamscope.kernels.form import THREADS
from streamscope.kernels.reduce.reduction_plan import checked_axes
from streamscope.kernels.rows import row_form
from streamscope.kernels.softmax import softmax_columns_source, softmax_source
from streamscope.kernels.source import PlannedKernel
from streamscope.ops.application import Request, apply_request, planned_launch, require, require_float
from streamscope.ops.definition import documentation, example_of
from streamscope.program.launch import Launch
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Backward, Operator, applies_operators
from streamscope.program.variable import ArraySpec
from streamscope.program.view import one_piece


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


_JOINED = 2.5
"""Elements with their exponentials that a thread joins in the time of a stage, on an H200."""


@applies_operators
class Softmax:
    """An operator that normalizes the elements along one axis: softmax or log-softmax.

    Apply it, inside a program, to a variable: ``operator(x)`` along the last axis, ``operator(x, axis=0)`` along another; with
    ``out=c, request="add"`` the result is added to ``c``.

    ``name``: of the kernel; that of its gradient's is ``name_gradient``.
    ``summary``: one sentence, for its documentation.
    ``function``: NumPy function ``function(x, axis)`` that means the same.
    ``gradient``: NumPy function ``gradient(dy, y, axis)`` of its gradient, from its result ``y``.
    """

    def __init__(self, name: str, summary: str, function: Callable[..., Array], gradient: Callable[..., Array]) -> None:
        self.__name__ = name
        self.__doc__ = documentation(summary, Softmax.__call__, example_of(name))
        self._forward = replace(_operator(name, function), gradient=self._pulled_back)
        self._backward = _operator(f"{name}_gradient", gradient)

    def __repr__(self) -> str:
        return f"<operator {self.__name__}(x)>"

    def __call__(self, x: object, axis: int = -1, *, out: object = None, request: Request = "write") -> Symbol:
        """Apply the operator inside a program that is being traced.

        Parameters
        ----------
        x : variable
            Of a floating dtype; the axis has elements.
        axis : int
        out : variable, optional
            Where the result goes, which may be the argument (in place); by default a new variable.
        request : {"write", "add", "null"}
            Whether ``out`` is replaced, added to or left alone.

        Raises
        ------
        ProgramError
            Called outside a program, or the operands do not fit.
        """
        return apply_request(self._forward, [x], {"axis": axis}, out, request)

    def gradient(self, dy: object, y: object, axis: int = -1, *, out: object = None, request: Request = "write") -> Symbol:
        """Return the gradient of the argument, inside a program.

        Parameters
        ----------
        dy : variable
            Gradient of the result, of its shape and dtype.
        y : variable
            The operator's result.
        axis : int
            Along which it was applied.
        out : variable, optional
            Where the gradient goes, which may be ``dy`` or ``y`` (in place); by default a new variable.
        request : {"write", "add", "null"}
            Whether ``out`` is replaced, added to or left alone.

        Raises
        ------
        ProgramError
            The variables do not fit.
        """
        return apply_request(self._backward, [dy, y], {"axis": axis}, out, request)

    def _pulled_back(self, backward: Backward) -> Sequence[Symbol | None]:
        axis = backward.attributes["axis"]
        y = self(backward.operand(0), axis) if backward.adds else backward.result(0)
        found = [self.gradient(backward.dy, y, axis)]
        return [*found, backward.dy] if backward.adds else found


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
        add = application.attributes.get("request") == "add"
        inputs = len(application.reads) - add

        def reference(*arrays: Array) -> Array:
            exact = [array.astype(arithmetic(array.dtype)) for array in arrays]
            value = function(*exact[:inputs], axis)
            return exact[-1] + value if add else value

        planned = partial(_kernel, name, spec, axis, inputs, add=add)
        return planned_launch(application, name, planned, reference, 5 * spec.size, pointers=slice(inputs))

    return Operator(name, infer, build, in_place=True, reads_view=one_piece)


def _kernel(name: str, spec: ArraySpec, axis: int, inputs: int, *, aligned: bool, add: bool = False) -> PlannedKernel:
    """Return the kernel for an array."""
    columns, inner = spec.shape[axis], math.prod(spec.shape[axis + 1 :])
    rows = spec.size // columns // inner if spec.size else 0
    if inner != 1:
        source = partial(softmax_columns_source, name, spec.dtype.name, accumulate=add)
        return PlannedKernel(source, -(-rows * inner // THREADS), THREADS, (rows, columns, inner), stages=_stages(name, columns))
    form = row_form(columns, spec.dtype.itemsize, inputs, aligned=aligned)
    source = partial(softmax_source, name, spec.dtype.name, form, accumulate=add)
    stages = _stages(name, 0 if form.items else columns // form.lanes)
    return PlannedKernel(source, -(-rows // (form.threads // form.lanes)), form.threads, (rows, columns), stages=stages)


def _stages(name: str, joined: int) -> int:
    """Return the waits of a thread: for others of its row, and for exponentials of its elements in a row."""
    return 1 if name.endswith("_gradient") else 1 + int(joined / _JOINED)


softmax = Softmax(
    "softmax",
    "``exp(x) / sum(exp(x))`` along an axis, the maximum taken off first; half is computed in float32.",
    _softmax_of,
    _softmax_gradient_of,
)
log_softmax = Softmax(
    "log_softmax",
    "``log(softmax(x))`` along an axis, without the loss of precision that its two steps would have.",
    _log_softmax_of,
    _log_softmax_gradient_of,
)
