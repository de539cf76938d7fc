"""Contributions to the gradients of variables, and their sums: views are turned back, and parts put in their places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, cast

from streamscope.ops.binary import add
from streamscope.ops.joining import concatenate
from streamscope.ops.operators import assign
from streamscope.ops.reductions import sum as sum_of
from streamscope.ops.selection import filled, where
from streamscope.ops.sums import add_n
from streamscope.ops.views import copy, flip, reshape, transpose
from streamscope.program.aliasing import Aliasing
from streamscope.program.symbol import Symbol, SymbolView, symbol_of, view_of
from streamscope.program.tracer import Value
from streamscope.program.variable import ArraySpec
from streamscope.program.view import View

_Key = tuple[int, int]
"""A variable, and how often it had been written: `Value.key`."""


@dataclass(frozen=True)
class _Whole:
    """A gradient of all of a variable."""

    gradient: Symbol
    without: tuple[View, ...] = ()
    """Parts where it is zero, whatever ``gradient`` holds there: the variable was written there afterwards."""


class Contributions:
    """Contributions to the gradients of a program's values, as a backward pass finds them.

    ``spec_of(variable)`` returns shape and dtype of a variable.
    """

    def __init__(self, spec_of: Callable[[int], ArraySpec]) -> None:
        self._spec_of = spec_of
        self._wholes: defaultdict[_Key, list[_Whole]] = defaultdict(list)
        self._parts: defaultdict[_Key, dict[View, list[Symbol]]] = defaultdict(dict)

    def add(self, value: Value, gradient: Symbol) -> None:
        """Add a contribution to the gradient of a value, in its shape."""
        spec = self._spec_of(value.variable)
        view, turned = (None, gradient) if value.view is None else _turned_back(value.view, gradient, spec)
        if view is None:
            self._wholes[value.key].append(_Whole(turned))
        elif view.spec.size:
            self._parts[value.key].setdefault(view, []).append(turned)

    def add_rest(self, before: Value, after: Value) -> None:
        """Add what flows past the write of a part to the variable before: its gradient after the write, without the part."""
        whole = self._summed(after)
        if whole is not None and after.view is not None:
            self._wholes[before.key].append(_Whole(whole.gradient, (*whole.without, after.view)))

    def total(self, value: Value) -> Symbol | None:
        """Return the gradient of a value, as that is seen; None where nothing contributed."""
        whole = self._summed(value)
        if whole is None or value.view is None:
            return None if whole is None else _zeroed(whole)
        if any(not _apart(value.view, part) for part in whole.without):
            return _seen(_zeroed(whole), value.view)
        return _seen(whole.gradient, value.view)

    def _summed(self, value: Value) -> _Whole | None:
        """Return the sum of all contributions to the variable, in whose place it comes."""
        wholes = self._wholes.pop(value.key, [])
        parts = {view: _sum(each) for view, each in self._parts.pop(value.key, {}).items()}
        if len(wholes) > 1:
            wholes = [_Whole(_sum([_zeroed(whole) for whole in wholes]))]
        if parts:
            wholes = [_Whole(_with_parts(wholes[0] if wholes else None, parts, self._spec_of(value.variable)))]
        if not wholes:
            return None
        self._wholes[value.key] = wholes
        return wholes[0]


def _sum(gradients: Sequence[Symbol]) -> Symbol:
    return gradients[0] if len(gradients) == 1 else add_n(*gradients)


def _turned_back(view: View, gradient: Symbol, spec: ArraySpec) -> tuple[View | None, Symbol]:
    """Return the gradient of a variable of which a view is read, None for all of it, or that of a part in which no element repeats."""
    repeated = [axis for axis, (extent, step) in enumerate(zip(view.spec.shape, view.strides, strict=True)) if extent > 1 and not step]
    if repeated:
        gradient = sum_of(gradient, axis=repeated)
    strides = tuple(step for axis, step in enumerate(view.strides) if axis not in repeated)
    if gradient.size < spec.size:
        return View(gradient.spec, strides, view.offset), gradient
    backwards = [axis for axis, step in enumerate(strides) if step < 0]
    order = sorted(range(len(strides)), key=lambda axis: -abs(strides[axis]))
    return None, reshape(transpose(flip(gradient, backwards) if backwards else gradient, order), spec.shape)


def _with_parts(whole: _Whole | None, parts: Mapping[View, Symbol], spec: ArraySpec) -> Symbol:
    """Return the sum of a gradient of a variable and those of its parts."""
    joined = _joined(parts, spec) if whole is None else None
    if joined is not None:
        return joined
    buffer = filled(0, spec.shape, next(iter(parts.values()))) if whole is None else _of_its_own(whole)
    buffer.tracer.filled.add(buffer.id)
    apart = whole is None and _all_apart(list(parts))
    for view, gradient in parts.items():
        part = symbol_of(buffer, view, Aliasing.ARRAY)
        if apart:
            assign(part, gradient)
        else:
            add.update(part, part, gradient)
    return buffer


def _zeroed(whole: _Whole) -> Symbol:
    return _of_its_own(whole) if whole.without else whole.gradient


def _of_its_own(whole: _Whole) -> Symbol:
    """Return a copy of a gradient that is zero where it has to be."""
    buffer = copy(whole.gradient)
    buffer.tracer.filled.add(buffer.id)
    for view in whole.without:
        part = symbol_of(buffer, view, Aliasing.ARRAY)
        where.update(part, False, part, 0)
    return buffer


def _seen(gradient: Symbol, view: View) -> Symbol:
    """Return a view of a gradient, which has the shape of the view's variable."""
    if isinstance(gradient, SymbolView) and not gradient.view.contiguous:
        gradient = gradient.tracer.copied(gradient)  # once for all parts
    lies = view_of(gradient)
    return symbol_of(gradient, View(view.spec, view.strides, view.offset + lies.offset, view.how), Aliasing.ARRAY)


class _Rows(NamedTuple):
    """A part of a variable, seen as a matrix: the same columns of all rows."""

    rows: int
    columns: int
    """Of the variable."""
    begin: int
    end: int
    """The columns that the part has."""


def _rows_of(view: View, size: int) -> _Rows | None:
    """Return a part of a variable of ``size`` elements as columns of a matrix, None where it is something else."""
    walked: list[tuple[int, int]] = []
    for extent, step in zip(view.spec.shape, view.strides, strict=True):
        if walked and walked[-1][1] == extent * step:
            walked[-1] = walked[-1][0] * extent, step
        elif extent > 1:
            walked.append((extent, step))
    if not walked or walked[-1][1] != 1:
        walked.append((1, 1))
    *outer, (run, _) = walked
    rows, columns = outer[0] if outer else (1, size)
    fits = len(outer) <= 1 and rows * columns == size and view.offset + run <= columns
    return _Rows(rows, columns, view.offset, view.offset + run) if fits else None


def _joined(parts: Mapping[View, Symbol], spec: ArraySpec) -> Symbol | None:
    """Return the gradients of parts that lie side by side and are all of a variable, as one; None where they do not."""
    found = [(_rows_of(view, spec.size), gradient) for view, gradient in parts.items()]
    if any(rows is None for rows, _ in found):
        return None
    placed = sorted(((cast("_Rows", rows), gradient) for rows, gradient in found), key=lambda each: each[0].begin)
    rows, columns, *_ = placed[0][0]
    edges = [0, *(each.end for each, _ in placed)]
    if any((each.rows, each.columns) != (rows, columns) for each, _ in placed) or edges[-1] != columns:
        return None
    if any(each.begin != end for (each, _), end in zip(placed, edges, strict=False)):
        return None
    return reshape(concatenate([reshape(gradient, (rows, each.end - each.begin)) for each, gradient in placed], axis=1), spec.shape)


def _apart(one: View, other: View) -> bool:
    """Tell whether two views of a variable are known to have no element in common."""
    (first, last), (begin, end) = _bounds(one), _bounds(other)
    return last < begin or end < first


def _all_apart(views: Sequence[View]) -> bool:
    """Tell whether views of a variable are known to have no element in common."""
    bounds = sorted(map(_bounds, views))
    return all(last < begin for (_, last), (begin, _) in pairwise(bounds))


def _bounds(view: View) -> tuple[int, int]:
    """Return the first and the last element of a variable that a view reaches."""
    reach = [step * (extent - 1) for extent, step in zip(view.spec.shape, view.strides, strict=True)]
    return view.offset + sum(min(0, each) for each in reach), view.offset + sum(max(0, each) for each in reach)
