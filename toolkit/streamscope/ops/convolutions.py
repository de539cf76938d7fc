"""Two-dimensional convolution, forward and backward, channels last, through cuDNN.

Shapes: input ``x[N, H, W, C]``, weights ``w[K, R, S, C]``, output ``y[N, P, Q, K]`` with ``P = (H + 2 * padding - R) // stride + 1``
and likewise ``Q``. It is the cross-correlation of deep learning: ``y[n,p,q,k] = sum x[n, p*stride+r-padding, ...] * w[k,r,s,c]``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from streamscope.arrays import Array
from streamscope.kernels.expression.promotion import arithmetic
from streamscope.kernels.library.cudnn import ConvolutionShape, Direction
from streamscope.ops.application import require, require_float
from streamscope.ops.linear import tiles
from streamscope.program.launch import Cost, CudaBench, CudaCall, Launch, LaunchKind, Product
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Backward, Operator, applies_operators
from streamscope.program.variable import ArraySpec

STEM_CHANNELS, _STEM_PIXELS = 8, 49
"""Filters of at most so many channels and at least so many pixels, as networks begin with, take cuDNN longer than as much other work."""

_LAYOUT = "the layouts are x[N, H, W, C], w[K, R, S, C] and dy[N, P, Q, K], of one floating dtype"


def padded_images(shape: ConvolutionShape, x: Array, value: float = 0.0) -> Array:
    """Return the input with its border of one value, in the dtype that sums are kept in."""
    edge = (shape.padding, shape.padding)
    return np.pad(x.astype(arithmetic(x.dtype)), ((0, 0), edge, edge, (0, 0)), constant_values=value)


def _forward_reference(shape: ConvolutionShape, x: Array, w: Array) -> Array:
    """Return ``y`` in NumPy: one matrix product for each filter position."""
    padded, wide = padded_images(shape, x), w.astype(arithmetic(w.dtype))
    y = np.zeros(shape.y, wide.dtype)
    for r, s, window in shape.taps():
        y += padded[window] @ wide[:, r, s, :].T
    return y.astype(x.dtype)


def _data_gradient_reference(shape: ConvolutionShape, w: Array, dy: Array) -> Array:
    """Return ``dx`` for the gradient ``dy`` of the output."""
    wide, gradient = w.astype(arithmetic(w.dtype)), dy.astype(arithmetic(dy.dtype))
    padded = padded_images(shape, np.zeros(shape.x, dy.dtype))
    for r, s, window in shape.taps():
        padded[window] += gradient @ wide[:, r, s, :]
    h, width = shape.x[1:3]
    return padded[:, shape.padding : shape.padding + h, shape.padding : shape.padding + width].astype(dy.dtype)


def _weight_gradient_reference(shape: ConvolutionShape, x: Array, dy: Array) -> Array:
    """Return ``dw`` for the gradient ``dy`` of the output."""
    padded, gradient = padded_images(shape, x), dy.astype(arithmetic(dy.dtype))
    pixels = gradient.reshape(-1, shape.w[0]).T
    dw = np.zeros(shape.w, gradient.dtype)
    for r, s, window in shape.taps():
        dw[:, r, s, :] = pixels @ padded[window].reshape(-1, shape.w[3])
    return dw.astype(x.dtype)


def _shape(operator: str, x: tuple[int, ...], w: tuple[int, ...], attributes: Attributes) -> ConvolutionShape:
    require(len(x) == 4 and len(w) == 4, operator, f"input {x} and weights {w} do not have four axes each", _LAYOUT)
    require(x[3] == w[3], operator, f"input {x} has {x[3]} channels, weights {w} have {w[3]}", _LAYOUT)
    stride, padding = attributes["stride"], attributes["padding"]
    whole = isinstance(stride, int | np.integer) and isinstance(padding, int | np.integer)
    require(whole, operator, f"stride {stride!r} and padding {padding!r} are not whole numbers")
    require(stride >= 1 and padding >= 0, operator, f"stride {stride} and padding {padding} are not possible")
    shape = ConvolutionShape((x[0], x[1], x[2], x[3]), (w[0], w[1], w[2], w[3]), int(stride), int(padding))
    require(min(*shape.y, *x, *w) > 0, operator, f"weights {w} do not fit input {x} with padding {padding}", _LAYOUT)
    return shape


def _cost(shape: ConvolutionShape, direction: Direction, dtype: np.dtype[Any]) -> Cost:
    n, p, q, k = shape.y
    _, r, s, c = shape.w
    elements = n * p * q * k + math.prod(shape.x) + math.prod(shape.w)
    products = {
        "forward": Product("convolution", dtype.name, 1, n * p * q, r * s * c, k),
        "data_gradient": Product("data_gradient", dtype.name, 1, math.prod(shape.x[:3]), max(1, r * s * k // shape.stride**2), c),
        "weight_gradient": Product("weight_gradient", dtype.name, 1, k, n * p * q, r * s * c),
    }
    product = products[direction]
    if (r, s, shape.stride) == (1, 1, 1):
        product = replace(product, kind="pointwise")
    elif c <= STEM_CHANNELS and r * s >= _STEM_PIXELS:
        product = replace(product, kind=f"stem_{product.kind}")
    # The weight gradient's sum over all pixels is split over blocks, or too few would run.
    split = max(1, min(16, product.inner // 1024)) if direction == "weight_gradient" else 1
    return Cost(elements * dtype.itemsize, shape.flops, tiles(product.rows, product.columns) * split, 128, product=product)


def _launch(application: Application, part: int, shape: ConvolutionShape, direction: Direction, *, auxiliary: bool = False) -> Launch:
    """Make the launch of one direction; ``application`` names its two arguments and its result."""
    functions = {"forward": _forward_reference, "data_gradient": _data_gradient_reference, "weight_gradient": _weight_gradient_reference}
    dtype = application.write_specs[0].dtype

    def reference(arrays: Sequence[Array]) -> Sequence[Array]:
        return [functions[direction](shape, *arrays)]

    def cuda(bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
        from streamscope.kernels.library.cudnn import convolution_call

        return convolution_call(bench, direction, shape, reads[0], reads[1], writes[0])

    name = "convolution" if direction == "forward" else f"convolution_{direction}"
    cost = _cost(shape, direction, dtype)
    reads, writes, kind = application.reads, application.writes, LaunchKind.KERNEL
    return Launch(application.operation, part, name, kind, reads, writes, cost, reference, cuda, auxiliary, library=True)


def _infer_forward(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
    require_float(specs, "convolution", _LAYOUT)
    return [ArraySpec(_shape("convolution", specs[0].shape, specs[1].shape, attributes).y, specs[0].dtype)]


def _build_forward(application: Application) -> tuple[Launch, ...]:
    x, w = application.read_specs
    return (_launch(application, 0, _shape("convolution", x.shape, w.shape, application.attributes), "forward"),)


def _backward_shape(x: ArraySpec, w: ArraySpec, dy: ArraySpec, attributes: Attributes) -> ConvolutionShape:
    require_float([x, w, dy], "convolution_backward", _LAYOUT)
    shape = _shape("convolution_backward", x.shape, w.shape, attributes)
    problem = f"gradient {dy.shape} does not have the output's shape, {shape.y}"
    require(dy.shape == shape.y, "convolution_backward", problem, _LAYOUT)
    return shape


def _infer_backward(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
    _backward_shape(specs[0], specs[1], specs[2], attributes)
    return [specs[0], specs[1]]


def _build_backward(application: Application) -> tuple[Launch, ...]:
    (x, w, dy), (dx, dw) = application.reads, application.writes
    x_spec, w_spec, dy_spec = application.read_specs
    shape = _backward_shape(x_spec, w_spec, dy_spec, application.attributes)

    def part(reads: tuple[int, int], write: int, spec: ArraySpec) -> Application:
        return Application(application.operation, reads, (write,), (), (spec,), application.attributes)

    # The weight gradient opens an auxiliary scope: with a second stream, both run side by side.
    return (
        _launch(part((x, dy), dw, w_spec), 0, shape, "weight_gradient", auxiliary=True),
        _launch(part((w, dy), dx, x_spec), 1, shape, "data_gradient"),
    )


def _one_direction(direction: Direction) -> Operator:
    """Return the operator of one of the two gradients, where the other is not wanted: of the weights or the input, and the gradient."""
    name = f"convolution_{direction}"

    def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        require_float(specs, name, _LAYOUT)
        return [ArraySpec(attributes["shape"], specs[0].dtype)]

    def build(application: Application) -> tuple[Launch, ...]:
        (other, _), (result,), attributes = application.read_specs, application.write_specs, application.attributes
        x, w = (result, other) if direction == "data_gradient" else (other, result)
        return (_launch(application, 0, _shape(name, x.shape, w.shape, attributes), direction),)

    return Operator(name, infer, build)


_of_input, _of_weights = _one_direction("data_gradient"), _one_direction("weight_gradient")


def _gradient(backward: Backward) -> Sequence[Symbol | None]:
    (x, w), given, dy = backward.read_specs, backward.attributes, backward.dy
    if all(backward.wanted):
        return convolution_backward(backward.operand(0), backward.operand(1), dy, **given)
    if backward.wanted[0]:
        return [_of_input(backward.operand(1), dy, shape=x.shape, **given), None]
    return [None, _of_weights(backward.operand(0), dy, shape=w.shape, **given)]


_forward = Operator("convolution", _infer_forward, _build_forward, gradient=_gradient)
_backward = Operator("convolution_backward", _infer_backward, _build_backward)


@applies_operators
def convolution(x: object, w: object, *, stride: int = 1, padding: int = 0, out: object = None) -> Symbol:
    """Return the convolution ``y[N, P, Q, K]``; half accumulates in float32, float32 may use TF32 on CUDA.

    Parameters
    ----------
    x, w : variable
        Shapes (N, H, W, C) and (K, R, S, C), of one floating dtype.
    stride, padding : int
        In pixels, the same for height and width.
    {out}

    Raises
    ------
    ProgramError
        Called outside a program, or the operands do not fit.

    Examples
    --------
    >>> x, w = np.ones((1, 3, 3, 1)), np.ones((1, 2, 2, 1))
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(ss.ops.convolution), x, w)[0, :, :, 0])
    [[4. 4.]
     [4. 4.]]
    """
    return cast("Symbol", _forward(x, w, out=out, stride=stride, padding=padding))


@applies_operators
def convolution_backward(
    x: object, w: object, dy: object, *, stride: int = 1, padding: int = 0, out: object = None
) -> tuple[Symbol, Symbol]:
    """Return ``(dx, dw)`` for the gradient ``dy`` of a convolution's output.

    One operation of two launches: the weight gradient in an auxiliary-stream scope beside the data gradient.

    Parameters
    ----------
    x, w, dy : variable
        Shapes (N, H, W, C), (K, R, S, C) and (N, P, Q, K), of one floating dtype.
    stride, padding : int
        Those of the convolution.
    out : pair of variables, optional
        Where ``dx`` and ``dw`` go; None for a new variable.

    Raises
    ------
    ProgramError
        Called outside a program, or the operands do not fit.

    Examples
    --------
    >>> x, w, dy = np.ones((1, 3, 3, 1)), np.ones((1, 2, 2, 1)), np.ones((1, 2, 2, 1))
    >>> with ss.Engine(device="simulated") as engine:
    ...     dx, dw = engine.run(ss.program(ss.ops.convolution_backward), x, w, dy)
    >>> print(dx[0, :, :, 0])
    [[1. 2. 1.]
     [2. 4. 2.]
     [1. 2. 1.]]
    """
    return cast("tuple[Symbol, Symbol]", _backward(x, w, dy, out=out, stride=stride, padding=padding))
