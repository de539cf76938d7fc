"""Elements at indices that are known when a program runs: take, embedding, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np

from streamscope.arrays import Array
from streamscope.kernels.expression.promotion import arithmetic
from streamscope.kernels.reduce.reduction_plan import checked_axis
from streamscope.kernels.take import TakenShape, planned_take, planned_take_gradient
from streamscope.ops.application import planned_launch, require, require_float, shape_of_argument, specs_of
from streamscope.program.launch import Launch
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Backward, Operator, applies_operators
from streamscope.program.variable import ArraySpec
from streamscope.program.view import one_piece

_Axis = int | None


def _places(indices: Array, count: int) -> tuple[Array, Array]:
    """Return where indices point to, and which of them point to something."""
    wide = indices.astype(np.int64).ravel()
    places = np.where(wide < 0, wide + count, wide)
    there = (places >= 0) & (places < count)
    return np.where(there, places, 0), there


def _taken(shape: TakenShape, x: Array, indices: Array) -> Array:
    places, there = _places(indices, shape.count)
    rows = x.reshape(shape.outer, shape.count, shape.inner)
    missing = np.full((), np.nan if x.dtype.kind == "f" else 0, x.dtype)
    if shape.count == 0:
        return np.full((shape.outer, shape.places, shape.inner), missing)
    return np.where(there[None, :, None], rows[:, places], missing)


def _taken_gradient(shape: TakenShape, indices: Array, dy: Array) -> Array:
    places, there = _places(indices, shape.count)
    total = np.zeros((shape.count, shape.outer, shape.inner), arithmetic(dy.dtype))
    rows = dy.reshape(shape.outer, shape.places, shape.inner).swapaxes(0, 1)
    np.add.at(total, places[there], rows[there].astype(total.dtype, copy=False))
    return total.swapaxes(0, 1)


def _shape(operator: str, x: Sequence[int], dtype: np.dtype[Any], indices: ArraySpec, along: _Axis) -> TakenShape:
    require(indices.dtype.kind in "iu", operator, f"indices are {indices.dtype.name}", "use whole numbers, for example int32")
    if along is None:
        return TakenShape(1, math.prod(x), 1, indices.size, dtype.name, indices.dtype.name)
    return TakenShape(math.prod(x[:along]), x[along], math.prod(x[along + 1 :]), indices.size, dtype.name, indices.dtype.name)


def _result_shape(x: Sequence[int], indices: Sequence[int], along: _Axis) -> tuple[int, ...]:
    return tuple(indices) if along is None else (*x[:along], *indices, *x[along + 1 :])


def _operator(name: str) -> Operator:
    def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        x, indices = specs
        _shape(name, x.shape, x.dtype, indices, attributes["along"])
        return [ArraySpec(_result_shape(x.shape, indices.shape, attributes["along"]), x.dtype)]

    def build(application: Application) -> tuple[Launch, ...]:
        (x, indices), (result,) = application.read_specs, application.write_specs
        shape = _shape(name, x.shape, x.dtype, indices, application.attributes["along"])
        planned, function = partial(planned_take, shape), partial(_taken, shape)
        # Rows that are taken again come from the cache.
        moved_bytes = min(x.nbytes, result.nbytes) + result.nbytes + indices.nbytes
        return planned_launch(application, name, planned, function, 0, moved_bytes=moved_bytes, exact=True)

    def gradient(backward: Backward) -> Sequence[Symbol | None]:
        x, along = backward.read_specs[0], backward.attributes["along"]
        return [_gradient_operator(f"{name}_gradient")(backward.operand(1), backward.dy, shape=x.shape, along=along), None]

    return Operator(name, infer, build, reads_view=one_piece, gradient=gradient)


@lru_cache(maxsize=4)
def _gradient_operator(name: str) -> Operator:
    def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        (indices, dy), x, along = specs, attributes["shape"], attributes["along"]
        require_float([dy], name)
        _shape(name, x, dy.dtype, indices, along)
        right = _result_shape(x, indices.shape, along)
        require(dy.shape == right, name, f"dy of shape {dy.shape} does not fit x of shape {x}", f"its shape must be {right}")
        return [ArraySpec(x, dy.dtype)]

    def build(application: Application) -> tuple[Launch, ...]:
        (indices, dy), (result,) = application.read_specs, application.write_specs
        shape = _shape(name, result.shape, dy.dtype, indices, application.attributes["along"])
        planned, function = partial(planned_take_gradient, shape), partial(_taken_gradient, shape)
        looked_through = planned(aligned=True).blocks * shape.places
        return planned_launch(application, name, planned, function, dy.size + looked_through)

    return Operator(name, infer, build, reads_view=one_piece)


_take, _take_gradient = _operator("take"), _gradient_operator("take_gradient")
_embedding, _embedding_gradient = _operator("embedding"), _gradient_operator("embedding_gradient")


def _along(operator: str, x: object, axis: _Axis) -> _Axis:
    if axis is None:
        return None
    (spec,) = specs_of(operator, [x])
    return checked_axis(operator, spec.shape, axis)


@applies_operators
def take(x: object, indices: object, axis: int | None = None, *, out: object = None) -> Symbol:
    """Return the elements of x at indices along an axis, as ``np.take`` does; without an axis, of all elements in order.

    Negative indices count from the end. A GPU raises no errors: where an index is out of range, the result is NaN, or 0 of whole
    numbers, and no memory outside of x is read.

    Parameters
    ----------
    x : variable
    indices : variable
        Of whole numbers.
    axis : int, optional
    {out}

    {variables_misfit}

    Examples
    --------
    >>> x, indices = np.array([10.0, 20.0, 30.0]), np.array([2, -1, 0, 7])
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(ss.ops.take), x, indices))
    [30. 30. 10. nan]
    """
    return cast("Symbol", _take(x, indices, out=out, along=_along("take", x, axis)))


@applies_operators
def take_backward(x: object, indices: object, dy: object, axis: int | None = None, *, out: object = None) -> Symbol:
    """Return the gradient of x for the gradient ``dy`` of `take`'s result: for each element, the sum over the places that took it.

    The sum is in the order of the places, and so the same each time. Its time grows with the elements of x along the axis times the
    indices, since each looks through all of them. Indices that are out of range give nothing.

    Parameters
    ----------
    x : variable
        Its values are not read.
    indices, dy : variable
        The indices, and the gradient of the result, of the dtype of x.
    axis : int, optional
        As in `take`.
    {out}

    {variables_misfit}

    Examples
    --------
    >>> x, indices, dy = np.zeros(3), np.array([2, -1, 0, 7]), np.array([1.0, 2.0, 4.0, 8.0])
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(ss.ops.take_backward), x, indices, dy))
    [4. 0. 3.]
    """
    shape = shape_of_argument("take_backward", x, dy)
    return cast("Symbol", _take_gradient(indices, dy, out=out, shape=shape, along=_along("take_backward", x, axis)))


@applies_operators
def embedding(table: object, indices: object, *, out: object = None) -> Symbol:
    """Return the rows of a table at indices: `take` along the first axis. Rows of indices that are out of range are NaN.

    Parameters
    ----------
    table : variable
        Shape (rows, ...).
    indices : variable
        Of whole numbers, of any shape.
    out : variable, optional
        Where the result goes, of the shape of the indices and of a row; by default a new variable.

    {variables_misfit}

    Examples
    --------
    >>> table, tokens = np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([1, 1, 0])
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(ss.ops.embedding), table, tokens))
    [[2. 3.]
     [2. 3.]
     [0. 1.]]
    """
    return cast("Symbol", _embedding(table, indices, out=out, along=_along("embedding", table, 0)))


@applies_operators
def embedding_backward(table: object, indices: object, dy: object, *, out: object = None) -> Symbol:
    """Return the gradient of a table for the gradient ``dy`` of `embedding`'s result; see `take_backward`.

    Parameters
    ----------
    table : variable
        Its values are not read.
    indices, dy : variable
        The indices, and the gradient of the result, of the dtype of the table.
    {out}

    {variables_misfit}

    Examples
    --------
    >>> table, tokens, dy = np.zeros((2, 1)), np.array([1, 1, 0]), np.array([[1.0], [2.0], [4.0]])
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(ss.ops.embedding_backward), table, tokens, dy).ravel())
    [4. 3.]
    """
    shape = shape_of_argument("embedding_backward", table, dy)
    return cast("Symbol", _embedding_gradient(indices, dy, out=out, shape=shape, along=_along("embedding_backward", table, 0)))
