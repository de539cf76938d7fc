"""How a reduction runs: which kernels, over how many blocks, and with which scratch memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import index
from typing import Any

from streamscope.errors import ProgramError
from streamscope.kernels.form import THREADS, VECTOR_BYTES
from streamscope.kernels.reduce.reducers import MOST_KEYED, Reducer, accumulator_bytes, is_keyed
from streamscope.kernels.reduce.reduction_kernels import (
    BYTES_WIDTH,
    INDEX32_COUNT,
    ColumnKernel,
    Pass,
    RowKernel,
    ShortKernel,
    column_source,
    elements_of_word,
    room_of_columns,
    room_of_rows,
    row_source,
    short_capacity,
    short_lanes,
    short_source,
)
from streamscope.kernels.source import PlannedKernel
from streamscope.program.launch import CudaBench, CudaCall
from streamscope.program.variable import ArraySpec
from streamscope.program.view import row_major

_SHARED_BYTES = 32 * 1024
"""Of the accumulators of a block of columns, which are in registers before."""
MULTIPROCESSORS = 132
"""Of a big GPU. A reduction of fewer blocks than it has room for is split, into no more: few that come later take as long as all others."""
LEAST_LOADS = 8
"""A thread of a split reduction has at least so many loads, or splitting costs more than it brings."""
_LEAST_BATCHES = 8
"""A thread of an array of many columns has at least so many times as many loads as it can have under way."""
_LOADS_OF_SHORT, _LOADS_OF_SHORT_BYTES = 6, 12
"""Vectors of a short row for each thread. Of bytes, joining more than `_FEW_LANES` threads takes longer than waiting twice."""
_FEW_LANES = 4
_LEAST_PIECES, _LEAST_WORDS = 4, 2
"""Short pieces of a block, so that enough of its threads have work; and words of a row that is taken in words."""
_MOST_COLUMNS = 256
"""Rows of a block that shares each among threads: joining more takes time in which nothing is loaded."""
_LONGEST_OF_WARP = 64
"""Vectors of a row that one thread of a warp takes; of longer rows, a block takes less time at the end of the kernel."""

_RunOfAxes = tuple[int, int]
"""Extent and stride, in elements."""


@dataclass(frozen=True)
class ReductionPlan:
    """The kernels of one reduction: one, or two with accumulators in scratch memory between them."""

    kernels: tuple[PlannedKernel, ...]
    scratch_bytes: int = 0

    @property
    def blocks(self) -> int:
        """Blocks of the first kernel."""
        return self.kernels[0].blocks if self.kernels else 0

    def bind(self, bench: CudaBench, source: Any, target: Any) -> CudaCall:
        """Prepare the kernels on a bench; the result launches them one after the other."""
        scratch = [bench.stream.workspace(self.scratch_bytes)] if self.scratch_bytes else []
        places = [source, *scratch, target]
        return in_turn([kernel.bind(bench, places[at : at + 2]) for at, kernel in enumerate(self.kernels)])


def in_turn(calls: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """Return a launch of several kernels in a row."""
    if len(calls) == 1:
        return calls[0]

    def call() -> None:
        for launch in calls:
            launch()

    return call


def checked_axes(operator: str, shape: Sequence[int], axis: Any) -> tuple[int, ...]:
    """Return the axes that ``axis`` (None, a number, or several) means, counted from 0, in order."""
    given = tuple(axis) if isinstance(axis, list | tuple) else (axis,)
    try:
        named = range(len(shape)) if axis is None else [index(one) for one in given]
    except TypeError:
        named = None
    if named is None or any(isinstance(one, bool) for one in given):
        raise ProgramError(f"{operator}: axis must be a whole number, a tuple of them, or None, not {axis!r}", hint="None is all axes")
    for one in named:
        if not -len(shape) <= one < len(shape):
            raise ProgramError(f"{operator}: axis {one} is outside of shape {tuple(shape)}", hint=f"it has {len(shape)} axes")
    axes = tuple(sorted(one % len(shape) for one in named))
    if len(set(axes)) != len(axes):
        raise ProgramError(f"{operator}: axis={axis!r} names an axis twice")
    return axes


def checked_axis(operator: str, shape: Sequence[int], axis: Any) -> int:
    """Return the one axis that ``axis`` means, counted from 0."""
    axes = checked_axes(operator, shape, axis)
    if axis is None or isinstance(axis, list | tuple):
        raise ProgramError(f"{operator}: axis={axis!r} is not one axis", hint="give a whole number")
    return axes[0]


def reduced_shape(shape: Sequence[int], axes: Sequence[int], *, keepdims: bool) -> tuple[int, ...]:
    """Return the shape that is left when some axes are reduced."""
    if keepdims:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


@lru_cache(maxsize=4096)
def plan_reduction(
    reducer: Reducer,
    x: ArraySpec,
    result: ArraySpec,
    axes: tuple[int, ...],
    *,
    strides: tuple[int, ...] | None = None,
    address: int = 0,
    add: bool = False,
) -> ReductionPlan:
    """Return the kernels that reduce some axes of an array, by default one without gaps (strides are in elements), or add to the result."""
    if result.size == 0:
        return ReductionPlan(())
    merged = _merged(x.shape, strides if strides is not None else row_major(x.shape), axes)
    kept = [(extent, stride) for extent, stride, reduced in merged if not reduced]
    gone = [(extent, stride) for extent, stride, reduced in merged if reduced]
    short = _short(reducer, x, result, merged, add=add)
    if short is not None:
        return short
    if merged and merged[-1][1:] == (1, True):
        return _rows(reducer, x, result, kept, gone, add=add)
    columns = 1
    if merged and merged[-1][1:] == (1, False):
        columns = kept.pop()[0]
    return _columns(reducer, x, result, columns, kept, gone, address=address, add=add)


def _merged(shape: Sequence[int], strides: Sequence[int], axes: Sequence[int]) -> list[tuple[int, int, bool]]:
    """Return extent, stride and whether it is reduced of each axis, neighbours made one where they can be."""
    merged: list[tuple[int, int, bool]] = []
    for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        reduced = axis in axes
        if extent == 1:
            continue
        if merged and merged[-1][2] == reduced and merged[-1][1] == stride * extent:
            merged[-1] = (merged[-1][0] * extent, stride, reduced)
        else:
            merged.append((extent, stride, reduced))
    return merged


def _rows(reducer: Reducer, x: ArraySpec, result: ArraySpec, kept: list[_RunOfAxes], gone: list[_RunOfAxes], *, add: bool) -> ReductionPlan:
    width = VECTOR_BYTES // x.dtype.itemsize
    *outer_axes, (run, _) = gone
    rows, outer = math.prod(extent for extent, _ in kept), math.prod(extent for extent, _ in outer_axes)
    vectors = -(-run // width)
    wave = room_of_rows(reducer, width).blocks * MULTIPROCESSORS
    # A warp to a row needs no barrier; it is enough where rows are many, or short.
    warp = vectors < 64 or (rows * outer * 32 >= wave * THREADS // 2 and vectors <= 32 * _LONGEST_OF_WARP)
    lanes = min(32, power_of_two(-(-vectors // _LOADS_OF_SHORT))) if warp else THREADS
    if warp and width == BYTES_WIDTH and lanes > _FEW_LANES:
        lanes = min(32, max(_FEW_LANES, power_of_two(-(-vectors // _LOADS_OF_SHORT_BYTES))))
    splits = 1
    if lanes == THREADS or outer > 1:
        most = -(-vectors // lanes) * outer // LEAST_LOADS
        splits = max(1, min(wave * (THREADS // lanes) // rows, most))
        splits -= splits % outer if splits > outer else 0  # as many to each run
    kernel = RowKernel(width, lanes, len(kept), len(outer_axes), far=run * outer >= INDEX32_COUNT)
    stage = Pass.WHOLE if splits == 1 else Pass.PARTIAL
    source = partial(row_source, reducer, x.dtype.name, result.dtype.name, kernel, stage, add=add and splits == 1)
    numbers = (rows, run, outer, splits, *_flat(kept), *_flat(outer_axes))
    first = PlannedKernel(source, -(-rows * splits // (THREADS // lanes)), THREADS, numbers)
    return _joined(reducer, x, result, first, splits, run * outer, add=add)


def _short(reducer: Reducer, x: ArraySpec, result: ArraySpec, merged: list[tuple[int, int, bool]], *, add: bool) -> ReductionPlan | None:
    """Return the plan for short pieces without gaps whose rows are not whole vectors; None for other arrays."""
    match merged:
        case [(pieces, apart, False), (size, 1, True)]:
            columns, row = 1, size
        case [(pieces, apart, False), (size, between, True), (columns, 1, False)] if between == columns:
            row = columns
        case _:
            return None
    piece, width = size * columns, VECTOR_BYTES // x.dtype.itemsize
    if piece == 0 or apart != piece or row % width == 0:
        return None
    of_vectors = width // math.gcd(piece, width)  # pieces that are a whole number of vectors
    most = short_capacity(x.dtype.itemsize) // (piece * of_vectors) * of_vectors
    if most < _LEAST_PIECES or (columns > 1 and most * columns < THREADS):
        return None
    of_block = min(most, -(-pieces // (MULTIPROCESSORS * of_vectors)) * of_vectors)
    single = columns == 1
    words = single and size >= _LEAST_WORDS * elements_of_word(x.dtype.itemsize)
    kernel = ShortKernel(short_lanes(reducer, of_block) if single else 1, single=single, words=words)
    source = partial(short_source, reducer, x.dtype.name, result.dtype.name, kernel, add=add)
    numbers = (pieces, of_block, size, *(() if single else (columns, -(-(2**32) // columns))))
    return ReductionPlan((PlannedKernel(source, -(-pieces // of_block), THREADS, numbers),))


def _columns(
    reducer: Reducer,
    x: ArraySpec,
    result: ArraySpec,
    columns: int,
    kept: list[_RunOfAxes],
    gone: list[_RunOfAxes],
    *,
    address: int,
    add: bool,
) -> ReductionPlan:
    size = math.prod(extent for extent, _ in gone)
    far = size >= INDEX32_COUNT
    itemsize = x.dtype.itemsize
    width = min(VECTOR_BYTES // itemsize, _SHARED_BYTES // (THREADS * accumulator_bytes(reducer, x.dtype.name, far=far)))
    while columns % width or address % (width * itemsize) or any(stride % width for _, stride in (*kept, *gone)):
        width //= 2
    vectors = math.prod(extent for extent, _ in kept) * columns // width
    across = min(32, _MOST_COLUMNS // width, power_of_two(vectors))
    room = room_of_columns(reducer, width, width * itemsize)
    wave = room.blocks * MULTIPROCESSORS
    # Of short columns a thread takes some batches of loads, if the blocks that are left suffice, and joins with fewer others.
    while across < THREADS and size < THREADS // across * room.loads * _LEAST_BATCHES and vectors >= 2 * across * wave:
        across *= 2
    tiles = -(-vectors // across)
    splits = max(1, min(wave // tiles, size // (THREADS // across * LEAST_LOADS)))
    if is_keyed(reducer, x.dtype.name, width):
        splits = max(splits, -(-size // MOST_KEYED))
    kernel = ColumnKernel(width, across, len(kept), len(gone), far=far)
    stage = Pass.WHOLE if splits == 1 else Pass.PARTIAL
    source = partial(column_source, reducer, x.dtype.name, result.dtype.name, kernel, stage, add=add and splits == 1)
    numbers = (columns, vectors * width, tiles, size, -(-size // splits), size, *_flat(kept), *_flat(gone))
    first = PlannedKernel(source, tiles * splits, THREADS, numbers)
    return _joined(reducer, x, result, first, splits, size, add=add)


def _joined(
    reducer: Reducer, x: ArraySpec, result: ArraySpec, first: PlannedKernel, splits: int, count: int, *, add: bool
) -> ReductionPlan:
    """Add the kernel that joins the partial results of a split reduction."""
    if splits == 1:
        return ReductionPlan((first,))
    results = result.size
    across = min(32, power_of_two(results))
    far = count >= INDEX32_COUNT
    kernel = ColumnKernel(1, across, 0, 1, far=far)
    source = partial(column_source, reducer, x.dtype.name, result.dtype.name, kernel, Pass.FINAL, add=add)
    tiles = -(-results // across)
    last = PlannedKernel(source, tiles, THREADS, (results, results, tiles, splits, splits, count, splits, results))
    return ReductionPlan((first, last), splits * results * accumulator_bytes(reducer, x.dtype.name, far=far))


def _flat(axes: Sequence[_RunOfAxes]) -> list[int]:
    return [number for axis in axes for number in axis]


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is not below a number, at least 1."""
    return 1 << max(0, number - 1).bit_length()
