"""Pooling of images, channels last as in convolutions: ``x[N, H, W, C]`` becomes ``y[N, P, Q, C]``, and its gradients.

``P = (H + 2 * padding - window) // stride + 1``, and likewise ``Q``. A window begins where that of a convolution does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from streamscope.arguments import whole_number
from streamscope.arrays import Array
from streamscope.errors import ProgramError
from streamscope.kernels.expression.promotion import arithmetic
from streamscope.kernels.library.cudnn import ConvolutionShape
from streamscope.kernels.pooling import planned_pooling
from streamscope.ops.application import planned_launch, require, require_float, shape_of_argument
from streamscope.ops.convolutions import padded_images
from streamscope.program.launch import Launch
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Backward, Operator, applies_operators
from streamscope.program.variable import ArraySpec
from streamscope.program.view import one_piece

_LAYOUT = "the layout is x[N, H, W, C], channels last"


def _inside(shape: ConvolutionShape, padded: Array) -> Array:
    _, height, width, _ = shape.x
    return padded[:, shape.padding : shape.padding + height, shape.padding : shape.padding + width]


def _max_pool(shape: ConvolutionShape, x: Array) -> Array:
    padded = padded_images(shape, x, -np.inf)
    y = np.full(shape.y, -np.inf, padded.dtype)
    for _, _, window in shape.taps():
        y = np.maximum(y, padded[window])
    return y


def _avg_pool(shape: ConvolutionShape, x: Array) -> Array:
    padded = padded_images(shape, x, 0)
    total = np.zeros(shape.y, padded.dtype)
    for _, _, window in shape.taps():
        total += padded[window]
    return np.asarray(total / total.dtype.type(shape.w[1] * shape.w[2]))


def _max_pool_gradient(shape: ConvolutionShape, dy: Array, x: Array, y: Array) -> Array:
    inside = padded_images(shape, np.ones(shape.x, bool), value=False)
    padded, wide = padded_images(shape, x, 0), y.astype(arithmetic(y.dtype))
    total, given = np.zeros_like(padded), np.zeros(shape.y, bool)
    for _, _, window in shape.taps():
        mine = ((padded[window] == wide) | (np.isnan(padded[window]) & np.isnan(wide))) & inside[window] & ~given
        total[window] += np.where(mine, dy, 0)
        given |= mine
    return _inside(shape, total)


def _avg_pool_gradient(shape: ConvolutionShape, dy: Array) -> Array:
    total = padded_images(shape, np.zeros(shape.x, dy.dtype), 0)
    for _, _, window in shape.taps():
        total[window] += dy
    return np.asarray(_inside(shape, total) / total.dtype.type(shape.w[1] * shape.w[2]))


def _shape(operator: str, x: Sequence[int], attributes: Attributes) -> ConvolutionShape:
    """Return the extents of a pooling: those of a convolution with as many filters as channels."""
    require(len(x) == 4, operator, f"x of shape {tuple(x)} has no four axes", _LAYOUT)
    images, height, width, channels = x
    window, padding = attributes["window"], attributes["padding"]
    fits = window <= height + 2 * padding and window <= width + 2 * padding
    require(fits, operator, f"window {window} does not fit x of shape {tuple(x)} with padding {padding}", _LAYOUT)
    return ConvolutionShape((images, height, width, channels), (channels, window, window, channels), attributes["stride"], padding)


def _operator(name: str, reference: Callable[..., Array]) -> Operator:
    backward = name.endswith("_gradient")

    def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        require_float(specs, name)
        x = attributes["x"] if backward else specs[0].shape
        shape = _shape(name, x, attributes)
        expected = [shape.y, shape.x, shape.y][: len(specs)] if backward else [shape.x]
        for called, spec, right in zip(("dy", "x", "y"), specs, expected, strict=False) if backward else ():
            require(
                spec.shape == right, name, f"{called} of shape {spec.shape} does not fit x of shape {shape.x}", f"its shape must be {right}"
            )
        return [ArraySpec(shape.x if backward else shape.y, specs[0].dtype)]

    def build(application: Application) -> tuple[Launch, ...]:
        (result,), attributes = application.write_specs, application.attributes
        shape = _shape(name, result.shape if backward else application.read_specs[0].shape, attributes)
        planned = partial(planned_pooling, name, shape, result.dtype.name)
        flops = shape.w[1] * shape.w[2] * int(np.prod(shape.y))
        return planned_launch(application, name, planned, partial(reference, shape), flops)

    return Operator(name, infer, build, reads_view=one_piece)


def _of_max(backward: Backward) -> Sequence[Symbol | None]:
    x, y = backward.operand(0), backward.result(0)
    return [_max_gradient(backward.dy, x, y, x=x.shape, **backward.attributes)]


def _of_avg(backward: Backward) -> Sequence[Symbol | None]:
    return [_avg_gradient(backward.dy, x=backward.read_specs[0].shape, **backward.attributes)]


_max_gradient, _avg_gradient = _operator("max_pool_gradient", _max_pool_gradient), _operator("avg_pool_gradient", _avg_pool_gradient)
_max = replace(_operator("max_pool", _max_pool), gradient=_of_max)
_avg = replace(_operator("avg_pool", _avg_pool), gradient=_of_avg)


def _attributes(operator: str, window: object, stride: object, padding: object) -> dict[str, Any]:
    extent = whole_number(f"{operator}: window", window, least=1, error=ProgramError)
    step = extent if stride is None else whole_number(f"{operator}: stride", stride, least=1, error=ProgramError)
    edge = whole_number(f"{operator}: padding", padding, least=0, error=ProgramError)
    require(edge < extent, operator, f"padding {edge} is not smaller than window {extent}", "a window must have an element of x in it")
    return {"window": extent, "stride": step, "padding": edge}


@applies_operators
def max_pool(x: object, window: int, *, stride: int | None = None, padding: int = 0, out: object = None) -> Symbol:
    """Return the largest element of each window; NaN is passed on.

    Parameters
    ----------
    x : variable
        Shape (N, H, W, C), of a floating dtype.
    window : int
        Height and width of a window, in pixels.
    stride : int, optional
        From a window to the next; by default they lie side by side.
    padding : int
        Pixels around each image that are never the largest, fewer than the window has.
    {out}

    Raises
    ------
    ProgramError
        Called outside a program, or the window does not fit.

    Examples
    --------
    >>> x = np.arange(16.0).reshape(1, 4, 4, 1)
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(lambda x: ss.ops.max_pool(x, 2)), x)[0, :, :, 0])
    [[ 5.  7.]
     [13. 15.]]
    """
    return cast("Symbol", _max(x, out=out, **_attributes("max_pool", window, stride, padding)))


@applies_operators
def max_pool_backward(
    x: object, y: object, dy: object, window: int, *, stride: int | None = None, padding: int = 0, out: object = None
) -> Symbol:
    """Return ``dx`` for the gradient ``dy`` of a max pooling's result: each window gives its own to the first of its largest elements.

    Parameters
    ----------
    x : variable
        Shape (N, H, W, C), of a floating dtype.
    y, dy : variable
        Shape (N, P, Q, C): the result of `max_pool`, and its gradient.
    window, stride, padding : int
        Those of the pooling.
    {out}

    {variables_misfit}

    Examples
    --------
    >>> x, dy = np.array([1.0, 3.0, 3.0, 2.0]).reshape(1, 2, 2, 1), np.ones((1, 1, 1, 1))
    >>> def step(x, dy):
    ...     return ss.ops.max_pool_backward(x, ss.ops.max_pool(x, 2), dy, 2)
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(step), x, dy).ravel())
    [0. 1. 0. 0.]
    """
    attributes = _attributes("max_pool_backward", window, stride, padding)
    return cast("Symbol", _max_gradient(dy, x, y, out=out, x=shape_of_argument("max_pool_backward", x, dy), **attributes))


@applies_operators
def avg_pool(x: object, window: int, *, stride: int | None = None, padding: int = 0, out: object = None) -> Symbol:
    """Return the mean of each window. The mean of whole images is ``ss.ops.mean(x, axis=(1, 2))``.

    Parameters
    ----------
    x : variable
        Shape (N, H, W, C), of a floating dtype; half is added up in float32.
    window : int
        Height and width of a window, in pixels.
    stride : int, optional
        From a window to the next; by default they lie side by side.
    padding : int
        Pixels of zeros around each image, which count as others do, fewer than the window has.
    {out}

    Raises
    ------
    ProgramError
        Called outside a program, or the window does not fit.

    Examples
    --------
    >>> x = np.arange(16.0).reshape(1, 4, 4, 1)
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(lambda x: ss.ops.avg_pool(x, 2)), x)[0, :, :, 0])
    [[ 2.5  4.5]
     [10.5 12.5]]
    """
    return cast("Symbol", _avg(x, out=out, **_attributes("avg_pool", window, stride, padding)))


@applies_operators
def avg_pool_backward(x: object, dy: object, window: int, *, stride: int | None = None, padding: int = 0, out: object = None) -> Symbol:
    """Return ``dx`` for the gradient ``dy`` of an average pooling's result.

    Parameters
    ----------
    x : variable
        Shape (N, H, W, C); its values are not read.
    dy : variable
        Shape (N, P, Q, C), of the dtype of x.
    window, stride, padding : int
        Those of the pooling.
    {out}

    {variables_misfit}

    Examples
    --------
    >>> x, dy = np.ones((1, 2, 2, 1)), np.ones((1, 1, 1, 1))
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(lambda x, dy: ss.ops.avg_pool_backward(x, dy, 2)), x, dy).ravel())
    [0.25 0.25 0.25 0.25]
    """
    attributes = _attributes("avg_pool_backward", window, stride, padding)
    return cast("Symbol", _avg_gradient(dy, out=out, x=shape_of_argument("avg_pool_backward", x, dy), **attributes))
