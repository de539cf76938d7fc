"""Joining variables along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, cast

import numpy as np

from streamscope.arguments import shown
from streamscope.arrays import Array
from streamscope.errors import ProgramError
from streamscope.kernels.form import THREADS
from streamscope.kernels.joining import MOST_PARTS, ConcatenateCall, Rows, joined, rows_of
from streamscope.kernels.reduce.reduction_plan import checked_axis
from streamscope.ops.application import require, specs_of
from streamscope.ops.selection import astype
from streamscope.ops.views import expand_dims, ravel, split
from streamscope.program.launch import Cost, Launch
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Backward, Operator, applies_operators, current_tracer
from streamscope.program.variable import ArraySpec
from streamscope.program.view import View

_HINT = "but for the axis along which they are joined, shapes must be equal"


@lru_cache(maxsize=64)
def _joining(axis: int) -> Operator:
    """Return the operator that joins arrays along an axis."""

    def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        first = specs[0].shape
        others = [(*spec.shape[:axis], *spec.shape[axis + 1 :]) for spec in specs]
        shapes = " and ".join(dict.fromkeys(str(spec.shape) for spec in specs))
        require(all(each == others[0] for each in others), "concatenate", f"shapes {shapes} do not fit along axis {axis}", _HINT)
        total = sum(spec.shape[axis] for spec in specs)
        return [ArraySpec((*first[:axis], total, *first[axis + 1 :]), specs[0].dtype)]

    def build(application: Application) -> tuple[Launch, ...]:
        (out,) = application.write_specs
        shapes = [spec.shape for spec in application.read_specs if spec.size]
        rows = [Rows(math.prod(shape[:axis]), *[math.prod(shape[axis:])] * 2) for shape in shapes]
        fresh = joined(rows, out.dtype.itemsize, []) if rows else None
        cost = Cost(application.nbytes, 0, fresh.blocks if fresh is not None else 1, THREADS)

        def reference(arrays: Sequence[Array]) -> Sequence[Array]:
            return [np.concatenate(arrays, axis)]

        return application.kernel("concatenate", cost, reference, ConcatenateCall(axis), exact=True)

    def reads_view(view: View) -> bool:
        return not view.spec.size or rows_of(view.spec.shape, view.strides, axis) is not None

    def gradient(backward: Backward) -> Sequence[Symbol | None]:
        ends = accumulate(spec.shape[axis] for spec in backward.read_specs[:-1])
        return split(backward.dy, list(ends), axis)

    return Operator("concatenate", infer, build, reads_view=reads_view, gradient=gradient)


@applies_operators
def concatenate(arrays: Sequence[object], axis: int | None = 0, *, out: object = None) -> Symbol:
    """Return variables joined along an axis: one kernel, which copies all of them.

    Parameters
    ----------
    arrays : sequence of variable
        Of shapes that are equal but for the axis; dtypes promote as NumPy's do.
    axis : int, optional
        None: the elements of all, one after the other.
    {out}

    Raises
    ------
    ProgramError
        Called outside a program, there is nothing to join, or shapes do not fit.

    Examples
    --------
    >>> with ss.Engine(device="simulated") as engine:
    ...     joined = engine.run(ss.program(lambda a, b: ss.ops.concatenate([a, -b])), np.array([1.0, 2.0]), np.array([3.0]))
    >>> print(joined)
    [ 1.  2. -3.]
    """
    given = _listed("concatenate", arrays)
    if axis is None:
        given, axis = [ravel(array) for array in given], 0
    require(all(array.shape for array in given), "concatenate", "a variable without axes cannot be joined", "use ss.ops.stack")
    ranks = {len(array.shape) for array in given}
    shapes = " and ".join(dict.fromkeys(str(array.shape) for array in given))
    require(len(ranks) == 1, "concatenate", f"shapes {shapes} differ in the number of axes", _HINT)
    return _joined(given, checked_axis("concatenate", given[0].shape, axis), out)


@applies_operators
def stack(arrays: Sequence[object], axis: int = 0, *, out: object = None) -> Symbol:
    """Return variables of one shape along a new axis: one kernel, which copies all of them.

    Parameters
    ----------
    arrays : sequence of variable
        Dtypes promote as NumPy's do.
    axis : int
        Where it is in the result.
    {out}

    Raises
    ------
    ProgramError
        Called outside a program, there is nothing to stack, or shapes differ.

    Examples
    --------
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(lambda a, b: ss.ops.stack([a, b], axis=1)), np.array([1.0, 2.0]), np.array([3.0, 4.0])))
    [[1. 3.]
     [2. 4.]]
    """
    given = _listed("stack", arrays)
    shapes = " and ".join(dict.fromkeys(str(array.shape) for array in given))
    require(len({array.shape for array in given}) == 1, "stack", f"shapes {shapes} differ", "stack arrays of one shape")
    place = checked_axis("stack", (*given[0].shape, 1), axis)
    return _joined([expand_dims(array, place) for array in given], place, out)


def _listed(operator: str, arrays: object) -> list[Symbol]:
    """Return the variables that are to be joined."""
    current_tracer(operator)
    problem = f"it takes a list of variables, not {shown(arrays)}"
    require(isinstance(arrays, list | tuple), operator, problem, "give a list: [a, b]")
    given = list(cast("Sequence[Any]", arrays))
    require(bool(given), operator, "there is nothing to join", "give at least one variable")
    specs_of(operator, given)
    return given


def _joined(arrays: Sequence[Symbol], axis: int, out: object) -> Symbol:
    """Join variables of any dtypes, and of any number: more than a kernel takes, in several rounds."""
    try:
        dtype = np.result_type(*(array.dtype for array in arrays))
        parts = [array if array.dtype == dtype else astype(array, dtype) for array in arrays]
    except TypeError as error:
        raise ProgramError(f"concatenate: {error}") from None
    while len(parts) > MOST_PARTS:
        of_one = math.ceil(len(parts) / math.ceil(len(parts) / MOST_PARTS))
        groups = [parts[first : first + of_one] for first in range(0, len(parts), of_one)]
        parts = [_joining(axis)(*group) if len(group) > 1 else group[0] for group in groups]
    return cast("Symbol", _joining(axis)(*parts, out=out))
