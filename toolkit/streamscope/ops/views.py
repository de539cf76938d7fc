"""Views of variables: transposes, reshapes, slices. They launch nothing: operations read the variable's memory as it is seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import index as whole_number
from operator import itemgetter
from typing import Any, TypeVar, cast

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from streamscope.arguments import shown
from streamscope.arrays import Array
from streamscope.errors import ProgramError
from streamscope.kernels.copying import CopyCall, copy_blocks, tiled_view
from streamscope.kernels.form import THREADS
from streamscope.ops.application import require, specs_of
from streamscope.program.aliasing import Aliasing, SharingRule, of_element_or_view, of_number_or_view, of_repeated, of_view
from streamscope.program.launch import Cost, Launch
from streamscope.program.symbol import Symbol, symbol_of, view_of
from streamscope.program.tracer import Application, Attributes, Backward, Operator, applies_operators
from streamscope.program.user_line import user_line
from streamscope.program.variable import ArraySpec
from streamscope.program.view import View, any_view

_TRANSPOSE_STAGES = 2
"""Of a tile: it is written to shared memory, and read there across."""
_Axes = int | Sequence[int] | None
_Made = TypeVar("_Made")


def _infer_copy(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
    return [ArraySpec(attributes.get("shape", specs[0].shape), specs[0].dtype)]


def _build_copy(application: Application) -> tuple[Launch, ...]:
    (source,), (target,) = application.read_specs, application.write_specs
    view = application.views[0]
    turned = tiled_view(view) if view is not None else None
    blocks, stages = (copy_blocks(source), 0) if turned is None else (turned.blocks, _TRANSPOSE_STAGES)
    cost = Cost(application.nbytes, 0, max(1, blocks), THREADS, stages)

    def reference(arrays: Sequence[Array]) -> Sequence[Array]:
        return [np.array(arrays[0], order="C").reshape(target.shape)]

    return application.kernel("copy", cost, reference, CopyCall(source.shape), exact=True)


def _copy_gradient(backward: Backward) -> Sequence[Symbol | None]:
    return [reshape(backward.dy, backward.read_specs[0].shape)]


COPY = Operator("copy", _infer_copy, _build_copy, reads_view=any_view, gradient=_copy_gradient)


@applies_operators
def copy(x: object, *, out: object = None) -> Symbol:
    """Return a copy, whose elements follow each other in memory of its own.

    Parameters
    ----------
    x : variable
        Also a view of one.
    out : variable, optional
        Where the copy goes, of the same shape and dtype; by default a new variable.

    Raises
    ------
    ProgramError
        Called outside a program, or ``out`` does not fit.

    Examples
    --------
    >>> print(ss.program(lambda x: ss.ops.copy(x.T)).trace(np.ones((2, 3))))
    <lambda>: 1 operation, 2 variables
         0  %1:float64[3, 2] = copy(%0.T:float64[3, 2])    # ...
    """
    result = cast("Symbol", COPY(x, out=out))
    if out is None:
        result.sharing = Aliasing.ARRAY  # also of a number
    return result


@applies_operators
def transpose(x: object, axes: Sequence[int] | None = None) -> Symbol:
    """Return a view with the axes in another order; nothing is launched.

    Parameters
    ----------
    x : variable
    axes : sequence of int, optional
        Which axis of ``x`` comes where; by default in reverse.

    Raises
    ------
    ProgramError
        ``x`` is not a variable, or ``axes`` does not name each of its axes once.

    Examples
    --------
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(lambda x: ss.ops.transpose(x) + 1), np.array([[1.0, 2.0], [3.0, 4.0]])))
    [[2. 4.]
     [3. 5.]]
    """
    how = ".T" if axes is None else f".transpose({_listed(axes)})"
    hint = "name each axis once, for example (0, 2, 1)"
    return viewed("transpose", x, lambda array: np.transpose(array, axes), how, hint, sharing=of_number_or_view)


@applies_operators
def swapaxes(x: object, axis1: int, axis2: int) -> Symbol:
    """Return a view with two axes swapped; nothing is launched.

    Parameters
    ----------
    x : variable
    axis1, axis2 : int

    Raises
    ------
    ProgramError
        ``x`` is not a variable, or has no such axes.

    Examples
    --------
    >>> print(ss.program(lambda x: ss.ops.exp(ss.ops.swapaxes(x, 0, 2))).trace(np.ones((2, 3, 4))))
    <lambda>: 1 operation, 2 variables
         0  %1:float64[4, 3, 2] = exp(%0.swapaxes(0, 2):float64[4, 3, 2])    # ...
    """
    return viewed("swapaxes", x, lambda array: np.swapaxes(array, axis1, axis2), f".swapaxes({axis1}, {axis2})")


@applies_operators
def moveaxis(x: object, source: _Axes, destination: _Axes) -> Symbol:
    """Return a view with some axes at other places; the others stay in order, and nothing is launched.

    Parameters
    ----------
    x : variable
    source, destination : int or sequence of int

    Raises
    ------
    ProgramError
        ``x`` is not a variable, or has no such axes.

    Examples
    --------
    >>> print(ss.program(lambda x: ss.ops.exp(ss.ops.moveaxis(x, 0, -1))).trace(np.ones((2, 3, 4))))
    <lambda>: 1 operation, 2 variables
         0  %1:float64[3, 4, 2] = exp(%0.moveaxis(0, -1):float64[3, 4, 2])    # ...
    """
    function: Any = np.moveaxis
    how = f".moveaxis({_listed(source)}, {_listed(destination)})"
    return viewed("moveaxis", x, lambda array: function(array, source, destination), how, sharing=of_number_or_view)


@applies_operators
def flip(x: object, axis: _Axes = None) -> Symbol:
    """Return a view with the elements in reverse along some axes; nothing is launched.

    Parameters
    ----------
    x : variable
    axis : int or sequence of int, optional
        All axes by default.

    Raises
    ------
    ProgramError
        ``x`` is not a variable, or has no such axis.

    Examples
    --------
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(lambda x: x - ss.ops.flip(x)), np.array([1.0, 2.0, 4.0])))
    [-3.  0.  3.]
    """
    function: Any = np.flip
    how = f".flip({'' if axis is None else _listed(axis)})"
    return viewed("flip", x, lambda array: function(array, axis) if array.ndim else array, how, sharing=of_element_or_view)


@applies_operators
def expand_dims(x: object, axis: _Axes) -> Symbol:
    """Return a view with further axes of extent 1; nothing is launched. ``x[:, None]`` is the same.

    Parameters
    ----------
    x : variable
    axis : int or sequence of int
        Where they are in the result.

    Raises
    ------
    ProgramError
        ``x`` is not a variable, or the result would have no such axis.

    Examples
    --------
    >>> print(ss.program(lambda x: ss.ops.exp(ss.ops.expand_dims(x, 1))).trace(np.ones(3)))
    <lambda>: 1 operation, 2 variables
         0  %1:float64[3, 1] = exp(%0.expand_dims(1):float64[3, 1])    # ...
    """
    function: Any = np.expand_dims
    return viewed("expand_dims", x, lambda array: function(array, axis), f".expand_dims({_listed(axis)})")


@applies_operators
def squeeze(x: object, axis: _Axes = None) -> Symbol:
    """Return a view without axes of extent 1; nothing is launched.

    Parameters
    ----------
    x : variable
    axis : int or sequence of int, optional
        Which of them; all by default.

    Raises
    ------
    ProgramError
        ``x`` is not a variable, or an axis has more entries than one.

    Examples
    --------
    >>> print(ss.program(lambda x: ss.ops.exp(ss.ops.squeeze(x))).trace(np.ones((1, 3, 1))))
    <lambda>: 1 operation, 2 variables
         0  %1:float64[3] = exp(%0.squeeze():float64[3])    # ...
    """
    given: Any = tuple(axis) if isinstance(axis, list) else axis
    how = f".squeeze({'' if axis is None else _listed(axis)})"
    return viewed("squeeze", x, lambda array: np.squeeze(array, given), how, sharing=of_number_or_view)


@applies_operators
def broadcast_to(x: object, shape: int | Sequence[int]) -> Symbol:
    """Return a view in which elements repeat, as they do where operands broadcast; nothing is launched.

    Parameters
    ----------
    x : variable
    shape : int or sequence of int

    Raises
    ------
    ProgramError
        ``x`` is not a variable, or does not broadcast to this shape.

    Examples
    --------
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(lambda x: ss.ops.broadcast_to(x, (2, 3)) * 2), np.array([1.0, 2.0, 3.0])))
    [[2. 4. 6.]
     [2. 4. 6.]]
    """
    hint, how = "from the right, extents must be equal or 1", f".broadcast_to({_listed(shape)})"
    return viewed("broadcast_to", x, lambda array: np.broadcast_to(array, cast("Any", shape)), how, hint, sharing=of_repeated)


@applies_operators
def reshape(x: object, shape: int | Sequence[int]) -> Symbol:
    """Return the elements, in the same order, in another shape: a view where they can be seen like that, else a copy.

    Elements that follow each other in memory have any shape at no cost. After a transpose, or a slice, a reshape may take a copy, which is
    an operation ``copy``; so it is in NumPy.

    Parameters
    ----------
    x : variable
    shape : int or sequence of int
        One extent may be -1: as many as are left.

    Raises
    ------
    ProgramError
        ``x`` is not a variable, or does not have so many elements.

    Examples
    --------
    >>> @ss.program
    ... def reshaped(x):
    ...     return ss.ops.exp(ss.ops.reshape(x, (3, 2))), ss.ops.exp(x.T.reshape(-1))
    >>> print(reshaped.trace(np.ones((2, 3))))
    reshaped: 3 operations, 4 variables
         0  %1:float64[3, 2] = exp(%0.reshape(3, 2):float64[3, 2])    # ...
         1  %2:float64[6] = copy(%0.T:float64[3, 2])    # ...
         2  %3:float64[6] = exp(%2:float64[6])    # ...
    """
    (spec,) = specs_of("reshape", [x])
    symbol = cast("Symbol", x)
    wanted = _shape(symbol, shape)
    if _without_ones(wanted) != _without_ones(spec.shape):
        symbol.tracer.reshapes = True
    try:
        view = view_of(symbol).through(lambda array: np.reshape(array, wanted, copy=False), f".reshape({_listed(wanted)})")
    except ValueError:  # It takes a copy.
        return cast("Symbol", COPY(symbol, shape=wanted))
    return symbol_of(symbol, view, of_number_or_view(symbol.sharing, wanted)) if wanted != spec.shape else symbol


@applies_operators
def ravel(x: object) -> Symbol:
    """Return the elements along one axis: a view where they follow each other in memory, else a copy; see `reshape`.

    Parameters
    ----------
    x : variable

    Raises
    ------
    ProgramError
        ``x`` is not a variable.

    Examples
    --------
    >>> print(ss.program(lambda x: ss.ops.exp(ss.ops.ravel(x))).trace(np.ones((2, 3))))
    <lambda>: 1 operation, 2 variables
         0  %1:float64[6] = exp(%0.reshape(6):float64[6])    # ...
    """
    (spec,) = specs_of("ravel", [x])
    symbol = cast("Symbol", x)
    symbol.tracer.reshapes = True
    # A vector in other steps could be seen as it is, but NumPy's ravel copies whatever has gaps.
    return reshape(symbol, -1) if view_of(symbol).contiguous or not spec.size else _flattened(symbol)


@applies_operators
def split(x: object, sections: int | Sequence[int], axis: int = 0) -> tuple[Symbol, ...]:
    """Return the parts of a variable along an axis: views, and nothing is launched.

    Parameters
    ----------
    x : variable
    sections : int or sequence of int
        The number of parts, which are equal; or where each part but the first begins.
    axis : int

    Raises
    ------
    ProgramError
        ``x`` is not a variable, has no such axis, or cannot be split into so many equal parts.

    Examples
    --------
    >>> @ss.program
    ... def gated(x):
    ...     values, gates = ss.ops.split(x, 2, axis=1)
    ...     return values * ss.ops.sigmoid(gates)
    >>> print(gated.trace(np.ones((4, 6))))
    gated: 2 operations, 3 variables
         0  %1:float64[4, 3] = sigmoid(%0.split(2, axis=1)[1]:float64[4, 3])    # ...
         1  %2:float64[4, 3] = multiply(%0.split(2, axis=1)[0]:float64[4, 3], %1:float64[4, 3])    # ...
    """
    specs_of("split", [x])
    symbol = cast("Symbol", x)
    hint = "give a number that divides the axis, or where the parts begin: [2, 5]"
    along = _made("split", symbol, lambda view: normalize_axis_index(axis, len(view.spec.shape)))
    edges = _edges(sections, symbol.shape[along])
    require(bool(edges), "split", f"{symbol.name!r}, which is {symbol.spec}, has no parts {shown(sections)} at {user_line()}", hint)
    how = f".split({_listed(sections)}{f', axis={along}' if along else ''})"
    keys = [(slice(None),) * along + (slice(begin, end),) for begin, end in pairwise(edges)]
    return tuple(viewed("split", x, itemgetter(key), f"{how}[{number}]") for number, key in enumerate(keys))


def _edges(sections: Any, extent: int) -> list[int]:
    """Return where the parts of an axis begin, and where the last one ends; nothing where it has no such parts."""
    try:
        if isinstance(sections, Sequence | np.ndarray):
            return [0, *map(whole_number, sections), extent]
        count = whole_number(sections)
    except TypeError:
        return []
    return [extent * number // count for number in range(count + 1)] if count > 0 and extent % count == 0 else []


def matrix_transposed(x: Symbol) -> Symbol:
    """Return ``x.mT``."""
    hint = "use .T for a vector" if len(x.shape) < 2 else None
    require(len(x.shape) >= 2, ".mT", f"{x.name!r} of shape {x.shape} is not a matrix", hint)
    return viewed(".mT", x, lambda array: np.swapaxes(array, -1, -2), ".T" if len(x.shape) == 2 else ".mT")


def _copied(x: Symbol) -> Symbol:
    """Return ``x.copy()``: of a number a number, where ``np.copy`` makes an array."""
    result = copy(x)
    result.sharing = Aliasing.NUMBER if x.sharing is Aliasing.NUMBER else Aliasing.ARRAY
    return result


def _flattened(x: Symbol) -> Symbol:
    """Return ``x.flatten()``: a copy, always."""
    return cast("Symbol", COPY(x, shape=(x.spec.size,)))


def _made(operator: str, x: Symbol, make: Callable[[View], _Made], hint: str | None = None) -> _Made:
    """Return a changed view of a variable; where NumPy refuses, raise an error with the variable and the line."""
    try:
        return make(view_of(x))
    except ProgramError:
        raise
    except (ArithmeticError, IndexError, ValueError, TypeError) as error:
        raise ProgramError(f"{operator} of {x.name!r}, which is {x.spec}, at {user_line()}: {error}", hint=hint) from None


def viewed(
    operator: str,
    x: object,
    function: Callable[[Array], Array],
    how: str,
    hint: str | None = None,
    *,
    sharing: SharingRule = of_view,
) -> Symbol:
    """Return the view of a variable that a function of arrays makes.

    ``how``: its text in printed programs.
    ``sharing``: NumPy's rule for such a view.
    """
    specs_of(operator, [x])
    symbol = cast("Symbol", x)
    view = _made(operator, symbol, lambda view: view.through(function, how), hint)
    return symbol_of(symbol, view, sharing(symbol.sharing, view.spec.shape))


def _without_ones(shape: Sequence[int]) -> list[int]:
    """Return the extents that say how elements lie."""
    return [extent for extent in shape if extent != 1]


def _shape(x: Symbol, shape: object) -> tuple[int, ...]:
    """Return a shape that a user gave for the elements of a variable, with an extent in the place of -1."""
    given = shape if isinstance(shape, tuple | list) else (shape,)
    try:
        extents = [whole_number(cast("int", extent)) for extent in given]
        good = extents.count(-1) <= 1 and all(extent >= -1 for extent in extents)
    except TypeError:
        extents, good = [], False
    hint = "give whole numbers, one of which may be -1: as many as are left"
    require(good, "reshape", f"shape={shown(shape)} at {user_line()} is not a shape", hint)
    known = int(np.prod([extent for extent in extents if extent != -1], dtype=object))
    fits = known > 0 and x.spec.size % known == 0 if -1 in extents else known == x.spec.size
    problem = f"{x.name!r}, which is {x.spec}, has {x.spec.size:,} elements and cannot have the shape {tuple(extents)} at {user_line()}"
    require(fits, "reshape", problem, "the extents' product must be the number of elements; one may be -1")
    return tuple(x.spec.size // known if extent == -1 else extent for extent in extents)


def _listed(numbers: object) -> str:
    return ", ".join(map(str, numbers)) if isinstance(numbers, Sequence) else str(numbers)


OF_SYMBOLS: dict[str, Callable[..., Any]] = {
    "mT": matrix_transposed,
    "flatten": _flattened,
    "copy": _copied,
    **{function.__name__: function for function in (transpose, swapaxes, squeeze, reshape, ravel)},
}
"""Implementations of the attributes and methods of a program's variables."""
VIEW_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.transpose: transpose,
    np.matrix_transpose: matrix_transposed,
    np.swapaxes: swapaxes,
    np.moveaxis: moveaxis,
    np.flip: flip,
    np.expand_dims: expand_dims,
    np.squeeze: squeeze,
    np.broadcast_to: broadcast_to,
    np.reshape: reshape,
    np.ravel: ravel,
    np.split: lambda ary, indices_or_sections, axis=0: split(ary, indices_or_sections, axis),
    np.copy: copy,
}
"""Our operators for NumPy's functions; but for the first, the arguments have the same names."""
