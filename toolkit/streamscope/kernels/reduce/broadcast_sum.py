"""Sums over broadcast axes: the kernel that fits the arrays, over how many blocks it runs, and how their parts are joined.

The kernel is filled in from ``cuda/broadcast_sum.cuh``.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.elementwise.specialization import Shape
from streamscope.kernels.form import THREADS, VECTOR_BYTES
from streamscope.kernels.layout import INDEX32_LIMIT, StridedLayout, broadcast_strides, compact, layout_numbers, placing_source
from streamscope.kernels.reduce.reduction_plan import LEAST_LOADS, MULTIPROCESSORS, in_turn, power_of_two
from streamscope.kernels.signature import RESULT, Parameter, Signature
from streamscope.kernels.source import COMPUTE, STORAGE, VECTORS, KernelSource, conversions_source, loaded, named_source, stored
from streamscope.program.launch import CudaBench, CudaCall
from streamscope.program.view import row_major

_Strides = Sequence[Sequence[int]]

BLOCKS = 4 * MULTIPROCESSORS
"""Of a big GPU at once: four a multiprocessor have enough loads under way, whatever registers the expression takes."""
_MOST_LOADS = 2**14
"""That one thread adds up: each rounding of 2**-24 may go the same way."""
_BYTES_UNDER_WAY, _OF_VECTORS = 32, 64
"""Of the array with the largest elements, that a thread waits for at once; elements one by one take a place in registers each."""

_CUDA = pieces("broadcast_sum")


@dataclass(frozen=True)
class SumForm:
    """Variant of the source, besides the signature."""

    lanes: int
    """Threads of a block that share a result, a power of two; the block has so many fewer results (or vectors of them) than threads."""
    beside: bool
    """Neighbours in memory belong to neighbouring results; else to one result."""
    width: int
    """Elements of a vector that lie beside each other."""
    runs: tuple[bool, ...]
    """For each operand that is an array, whether a vector's elements are its own; else one stands for all of them."""
    loads: int
    """Vectors of each array that a thread loads at once."""
    kept: int
    summed: int
    """Axes of the results, and axes that are summed over, after neighbours were merged."""
    wide: bool
    """Indices need 64 bits."""

    @property
    def step(self) -> int:
        """Values of one result that one load brings."""
        return 1 if self.beside else self.width

    @property
    def results(self) -> int:
        """Results of one thread."""
        return self.width if self.beside else 1

    @property
    def across(self) -> int:
        """Results of one block."""
        return THREADS // self.lanes * self.results


@lru_cache(maxsize=4096)
def _broadcast_sum_source(signature: Signature, form: SumForm) -> KernelSource:
    """Return the kernel.

    Its arguments are the operands in order, the result's pointer, and numbers. The first three have 64 bits: how many results there are,
    how many values each is the sum of, and how many of these one block adds up (a multiple of the form's ``step``). The next has 32: how
    many blocks all results take. Last come the layout of the results, which places all arrays, and that of the summed values, which places
    all arrays but the result. Of results that are computed in parts, the second part of all of them lies behind the first.
    """
    operands = [parameter.argument for parameter in signature.arrays]
    pieces = [
        conversions_source(signature.dtypes),
        VECTORS if form.width > 1 else "",
        fill(_CUDA["inside"], name="kept", code=placing_source([*operands, RESULT], form.kept, wide=form.wide)),
        fill(_CUDA["inside"], name="summed", code=placing_source(operands, form.summed, wide=form.wide) + _loads_struct(signature, form)),
        signature.value_source(),
        _kernel(signature, form),
    ]
    where = "beside" if form.beside else "along"
    title = f"{signature.title}_sum_{where}_{form.lanes}_x{form.width}_{form.kept}d{form.summed}d"
    return named_source(title, "\n".join(piece for piece in pieces if piece))


@dataclass(frozen=True)
class FittedSum:
    """A sum kernel that fits some arrays, and its other launch arguments."""

    signature: Signature
    form: SumForm
    outer: StridedLayout
    inner: StridedLayout
    """Axes of the results, and of the summed elements."""
    size: int
    count: int
    """Results, and values of each."""
    share: int
    """Values of a result that one block adds up."""

    @property
    def source(self) -> KernelSource:
        """The kernel."""
        return _broadcast_sum_source(self.signature, self.form)

    @property
    def tiles(self) -> int:
        """Blocks that all results take."""
        return -(-self.size // self.form.across)

    @property
    def parts(self) -> int:
        """Parts that each result is computed in."""
        return max(1, -(-self.count // self.share))

    @property
    def blocks(self) -> int:
        """Blocks of the launch; 0 where there are no results."""
        return self.tiles * self.parts


def fitted_sums(signature: Signature, shapes: Sequence[Shape], strides: _Strides, addresses: Sequence[int]) -> tuple[FittedSum, ...]:
    """Return the kernel that computes the results, or the one that computes parts of them and the one that joins these.

    The operands that are arrays come first, of which the first has the shape that all are broadcast to; then the result.
    """
    whole = _fitted(signature, shapes, strides, addresses, most_parts=None)
    if whole.parts == 1:
        return (whole,)
    number = number_of(signature)
    target = shapes[-1]
    in_parts = replace(signature, result=number, accumulate=False)
    first = _fitted(in_parts, shapes, [*strides[:-1], row_major(target)], addresses, most_parts=None)
    joining = Signature(
        f"{signature.name}_parts", (Parameter("x", number, number),), signature.result, "x", number, accumulate=signature.accumulate
    )
    stacked = (first.parts, *target)
    return first, _fitted(joining, (stacked, target), [row_major(stacked), strides[-1]], (0, addresses[-1]), most_parts=1)


@lru_cache(maxsize=4096)
def fresh_sums(signature: Signature, shapes: tuple[Shape, ...]) -> tuple[FittedSum, ...]:
    """Return the kernels for freshly allocated arrays of these shapes: contiguous, and aligned."""
    return fitted_sums(signature, shapes, [row_major(shape) for shape in shapes], [0] * len(shapes))


def number_of(signature: Signature) -> str:
    """Return the dtype in which results are added up."""
    return "float32" if signature.result == "float16" else signature.result


def bind_sum(bench: CudaBench, signature: Signature, arrays: Sequence[Any], scalars: Mapping[str, np.generic]) -> CudaCall:
    """Prepare the launches of a sum: the operands that are arrays, in order, and the result."""
    # Strides of an empty array mean nothing, and are CuPy's own.
    strides = [[step // array.itemsize for step in array.strides] if array.size else row_major(array.shape) for array in arrays]
    sums = fitted_sums(signature, [array.shape for array in arrays], strides, [array.data.ptr for array in arrays])
    first, *rest = sums
    if not rest:
        return _bind(bench, first, arrays, scalars)
    (joining,) = rest
    scratch = bench.stream.workspace(first.parts * first.size * np.dtype(number_of(signature)).itemsize)
    return in_turn([_bind(bench, first, [*arrays[:-1], scratch], scalars), _bind(bench, joining, [scratch, arrays[-1]], {})])


def _bind(bench: CudaBench, kernel: FittedSum, arrays: Sequence[Any], scalars: Mapping[str, np.generic]) -> CudaCall:
    arguments = kernel.signature.arguments(arrays, scalars)
    outer = layout_numbers(kernel.outer, range(len(arrays)))
    inner = layout_numbers(kernel.inner, range(len(arrays) - 1))
    arguments += [arrays[-1], *map(ctypes.c_longlong, (kernel.size, kernel.count, kernel.share)), ctypes.c_uint(max(1, kernel.tiles))]
    arguments += [(ctypes.c_longlong * len(numbers))(*numbers) for numbers in (outer, inner)]
    return bench.kernel(kernel.source, kernel.blocks, THREADS, arguments)


def _fitted(
    signature: Signature, shapes: Sequence[Shape], strides: _Strides, addresses: Sequence[int], *, most_parts: int | None
) -> FittedSum:
    walked = shapes[0]
    target = (1,) * (len(walked) - len(shapes[-1])) + tuple(shapes[-1])
    steps = [broadcast_strides(shape, each, walked) for shape, each in zip(shapes, strides, strict=True)]
    kept = [axis for axis, extent in enumerate(walked) if target[axis] == extent]
    summed = [axis for axis, extent in enumerate(walked) if target[axis] != extent]
    outer, inner = _layout(walked, kept, steps), _layout(walked, summed, steps[:-1])
    size, count = math.prod(target), math.prod(walked[axis] for axis in summed)
    beside = size > 1 and outer.strides[0][-1] == 1
    itemsizes = [np.dtype(parameter.stored).itemsize for parameter in signature.arrays]
    width, runs = _vectors(outer, inner, itemsizes, addresses, beside=beside)
    # Of bytes beside a double that stands for all of them, one vector takes more than that already.
    loads = max(1, (_OF_VECTORS if width > 1 else _BYTES_UNDER_WAY) // (width * max(itemsizes)))
    step = 1 if beside else width
    lanes = min(THREADS, power_of_two(-(-count // (step * loads))))
    if beside:
        lanes = min(lanes, THREADS // min(32, power_of_two(-(-size // width))))
    form = SumForm(lanes, beside, width, runs, loads, outer.rank, inner.rank, math.prod(walked) >= INDEX32_LIMIT)
    of_thread = -(-count // (step * lanes))
    tiles = max(1, -(-size // form.across))
    parts = max(1, min(BLOCKS // tiles, of_thread // LEAST_LOADS), -(-of_thread // _MOST_LOADS))
    parts = min(parts, most_parts or parts)
    share = max(1, -(-count // (parts * step))) * step
    return FittedSum(signature, form, outer, inner, size, count, share)


def _layout(shape: Shape, axes: Sequence[int], strides: _Strides) -> StridedLayout:
    """Return the simplest layout along some axes, in the order in which the first array, which has all of them, lies in memory."""
    extents = [shape[axis] for axis in axes]
    if 0 in extents:
        return StridedLayout((1,), ((0,),) * len(strides))  # nothing is addressed
    first, *others = ([each[axis] for axis in axes] for each in strides)
    layout = compact(extents, [*others, first])
    return StridedLayout(layout.extents, (layout.strides[-1], *layout.strides[:-1]))


def _vectors(
    outer: StridedLayout, inner: StridedLayout, itemsizes: Sequence[int], addresses: Sequence[int], *, beside: bool
) -> tuple[int, tuple[bool, ...]]:
    """Return the vector width along the last axis of the results or of the summed elements, and which arrays have vectors."""
    along, across = (outer, inner) if beside else (inner, outer)
    count = len(itemsizes)
    last = [along.strides[array][-1] for array in range(count)]
    scalar = 1, (False,) * count
    if along.extents[-1] == 1 or not set(last) <= {0, 1} or (beside and along.strides[-1][-1] != 1):
        return scalar
    runs = tuple(step == 1 for step in last)
    width = min((VECTOR_BYTES // itemsize for itemsize, run in zip(itemsizes, runs, strict=True) if run), default=1)
    for array, (itemsize, run) in enumerate(zip(itemsizes, runs, strict=True)):
        others = zip((*along.extents[:-1], *across.extents), (*along.strides[array][:-1], *across.strides[array]), strict=True)
        apart = (along.extents[-1], *(step for extent, step in others if extent > 1))
        while run and (any(step % width for step in apart) or addresses[array] % (width * itemsize)):
            width //= 2
    return (width, runs) if width > 1 else scalar


def _runs(signature: Signature, form: SumForm) -> list[tuple[Parameter, bool]]:
    return list(zip(signature.arrays, form.runs, strict=True))


def _loads_struct(signature: Signature, form: SumForm) -> str:
    fields = [
        f"vector<{STORAGE[p.stored]}, {form.width}> {p.argument};" if run else f"{STORAGE[p.stored]} {p.argument};"
        for p, run in _runs(signature, form)
    ]
    return fill(_CUDA["loads"], fields=" ".join(fields))


def _values(signature: Signature, form: SumForm) -> str:
    """Return the arguments of ``value`` for element ``k`` of load ``j``."""
    runs = {parameter.name: run for parameter, run in _runs(signature, form)}
    each = (p.argument if p.scalar else loaded(p.stored, f"item[j].{p.argument}" + ".item[k]" * runs[p.name]) for p in signature.parameters)
    return ", ".join(each)


def _kernel(signature: Signature, form: SumForm) -> str:
    numbers = ["long long size", "long long count", "long long share", "unsigned tiles", "kept::layout outer", "summed::layout inner"]
    target = f"{RESULT}[from.{RESULT} + blockIdx.x / tiles * size + k]"
    groups = THREADS // form.lanes
    places = {"number": COMPUTE[signature.result], "results": form.results, "threads": THREADS}
    joined = fill(_CUDA["joined"], **places, half=form.lanes // 2, beside=groups if form.beside else 1)
    fetches = [
        fill(_CUDA["fetch_vector" if run else "fetch_element"], array=parameter.argument, width=form.width)
        for parameter, run in _runs(signature, form)
    ]
    return fill(
        _CUDA["kernel"],
        **places,
        parameters=", ".join([*signature.declarations, *numbers]),
        column_of="%" if form.beside else "/",
        row_of="/" if form.beside else "%",
        of_thread=groups if form.beside else form.lanes,
        groups=groups,
        step=form.step,
        loads=form.loads,
        width=form.width,
        apart=form.lanes * form.step,
        of_batch=form.loads * form.lanes * form.step,
        fetches="".join(fetches),
        result="k" if form.beside else "0",
        values=_values(signature, form),
        joined=joined if form.lanes > 1 else "",
        write=stored(signature.result, target, f"{loaded(signature.result, target)} + sum[k]" if signature.accumulate else "sum[k]"),
    )
