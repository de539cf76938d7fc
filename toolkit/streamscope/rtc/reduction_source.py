"""Source of reduction kernels.

There are two: *rows*, where the innermost axis is reduced, and *columns*, where it is kept. Long reductions of few results are split
among blocks: a first kernel leaves accumulators, laid out as [splits, results], and a second one, of columns, joins them.
No kernel uses atomics, so a result is the same each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from streamscope.rtc.named_source import PLACE_OF_NAME, named_source
from streamscope.rtc.reducers_source import Reducer, reducer_source
from streamscope.rtc.source import KernelSource
from streamscope.rtc.types_source import STORAGE, VECTORS, conversions_source, loaded, stored

THREADS = 256
MOST_ACCUMULATORS = 4
"""Accumulators of a thread in a kernel of rows: enough that additions need not wait for each other, few enough for full occupancy."""

_LEAST = "__device__ inline long long least(long long a, long long b) { return a < b ? a : b; }\n"


class Stage(Enum):
    """What a kernel reads and leaves."""

    WHOLE = "whole"
    """Elements to results."""
    PARTIAL = "partial"
    """Elements to accumulators."""
    FINAL = "final"
    """Accumulators to results."""


@dataclass(frozen=True)
class RowKernel:
    """How a kernel of rows is laid out.

    Attributes
    ----------
    width : int
        Elements that a thread loads at once.
    lanes : int
        Threads that share a row: a power of two up to 32, or `THREADS`.
    kept_axes, outer_axes : int
        Axes of the results, and reduced axes besides the innermost one, after neighbours were merged.
    far : bool
        Indices within a row need 64 bits.
    """

    width: int
    lanes: int
    kept_axes: int
    outer_axes: int
    far: bool = False


@dataclass(frozen=True)
class ColumnKernel:
    """How a kernel of columns is laid out.

    Attributes
    ----------
    width : int
        Columns of a thread, loaded at once.
    across : int
        Threads of a block side by side on columns, a power of two up to 32; the others share their columns.
    kept_axes, reduced_axes : int
        Axes of the results besides the innermost one, and reduced axes, after neighbours were merged.
    far : bool
        Indices within a column need 64 bits.
    """

    width: int
    across: int
    kept_axes: int
    reduced_axes: int
    far: bool = False


def row_source(reducer: Reducer, dtype: str, result: str, kernel: RowKernel, stage: Stage, *, add: bool = False) -> KernelSource:
    """Return a kernel of rows: ``(x, out, rows, run, outer, splits, kept axes..., outer axes...)``, an axis being extent and stride.

    A row is ``outer`` runs of ``run`` neighbouring elements. With ``add`` the result is added to what ``out`` holds.
    """
    width, lanes = kernel.width, kernel.lanes
    held = min(width, MOST_ACCUMULATORS)
    element = loaded(dtype, "{}")
    body = f"""{_offset("kept", kernel.kept_axes)}{_offset("outer", kernel.outer_axes)}
// Every {lanes} threads reduce one part of a row; the loads of a thread are {width} elements wide between the masked ends.
extern "C" __global__ void __launch_bounds__({THREADS})
{PLACE_OF_NAME}(const {STORAGE[dtype]}* x, {
        _out_type(stage, result)
    }* out, long long rows, long long run, long long outer, long long splits{_axes("kept", kernel.kept_axes)}{
        _axes("outer", kernel.outer_axes)
    })
{{
    const int lane = threadIdx.x % {lanes};
    const long long task = (long long)blockIdx.x * {THREADS // lanes} + threadIdx.x / {lanes};
    const bool valid = task < rows * splits;
    const long long row = task % rows, split = task / rows;
    long long first = 0, last = run, first_outer = 0, last_outer = valid ? outer : 0;
    if (splits > 1 && outer == 1) {{
        const long long share = (run + splits * {width} - 1) / (splits * {width}) * {width};
        first = least(split * share, run);
        last = least(first + share, run);
    }} else if (splits > 1) {{
        const long long share = (outer + splits - 1) / splits;
        first_outer = least(split * share, outer);
        last_outer = least(first_outer + share, last_outer);
    }}
    acc_t acc[{held}];
    #pragma unroll
    for (int k = 0; k < {held}; ++k) acc[k] = identity();
    for (long long i = first_outer; i < last_outer; ++i) {{
        const {STORAGE[dtype]}* part = x + kept_offset(row{_names("kept", kernel.kept_axes)}) + outer_offset(i{
        _names("outer", kernel.outer_axes)
    }) + first;
        const long long size = last - first;
        const long long misaligned = (unsigned long long)part / sizeof({STORAGE[dtype]}) % {width};
        const long long head = least(size, ({width} - misaligned) % {width}), vectors = (size - head) / {width};
        for (long long j = lane; j < head; j += {lanes}) acc[0] = absorbed(acc[0], {element.format("part[j]")}, i * run + first + j);
        #pragma unroll {4 if reducer.located and lanes == THREADS else 8}
        for (long long v = lane; v < vectors; v += {lanes}) {{
            const vector<{STORAGE[dtype]}, {width}> loaded = fetched<{width}>(part + head + v * {width});
            #pragma unroll
            for (int k = 0; k < {width}; ++k)
                acc[k % {held}] = absorbed(acc[k % {held}], {element.format("loaded.item[k]")}, i * run + first + head + v * {width} + k);
        }}
        for (long long j = head + vectors * {width} + lane; j < size; j += {lanes})
            acc[0] = absorbed(acc[0], {element.format("part[j]")}, i * run + first + j);
    }}
    acc_t value = acc[0];
    #pragma unroll
    for (int k = 1; k < {held}; ++k) value = joined(value, acc[k]);
{_join_lanes(lanes)}
    if (lane == 0 && valid) {{ {_write(stage, result, "task", "value", "run * outer", add=add)} }}
}}
"""
    return named_source(f"{reducer.name}_rows_{dtype}_x{width}_{stage.value}", _pieces(reducer, dtype, result, far=kernel.far) + body)


def column_source(reducer: Reducer, dtype: str, result: str, kernel: ColumnKernel, stage: Stage, *, add: bool = False) -> KernelSource:
    """Return a kernel of columns: ``(x, out, columns, size, count, splits, kept axes..., reduced axes...)``.

    ``size`` elements of each column are joined, into the result of ``count`` elements (in the final stage more than ``size``).
    """
    width, across = kernel.width, kernel.across
    down = THREADS // across
    fetched = "*reinterpret_cast<const vector<acc_t, 1>*>" if stage is Stage.FINAL else f"fetched<{width}>"
    held = "acc_t" if stage is Stage.FINAL else STORAGE[dtype]
    element = loaded(dtype, "loaded.item[k]")
    next_value = "joined(acc[k], loaded.item[k])" if stage is Stage.FINAL else f"absorbed(acc[k], {element}, i)"
    body = f"""{_offset("kept", kernel.kept_axes)}{_offset("reduced", kernel.reduced_axes)}
// A block reduces a part of {across * width} neighbouring columns: {down} threads share each column.
extern "C" __global__ void __launch_bounds__({THREADS})
{PLACE_OF_NAME}(const {held}* x, {
        _out_type(stage, result)
    }* out, long long columns, long long size, long long count, long long splits, long long kept{_axes("kept", kernel.kept_axes)}{
        _axes("reduced", kernel.reduced_axes)
    })
{{
    __shared__ acc_t shared[{THREADS}][{width}];
    const long long tiles = (columns + {across * width - 1}) / {across * width};
    const long long tile = blockIdx.x % tiles, row = blockIdx.x / tiles % kept, split = blockIdx.x / tiles / kept;
    const long long column = (tile * {across} + threadIdx.x % {across}) * {width};
    const long long share = (size + splits - 1) / splits;
    const long long last = column < columns ? least((split + 1) * share, size) : 0;
    const {held}* from = x + kept_offset(row{_names("kept", kernel.kept_axes)}) + column;
    acc_t acc[{width}];
    #pragma unroll
    for (int k = 0; k < {width}; ++k) acc[k] = identity();
    #pragma unroll 8
    for (long long i = split * share + threadIdx.x / {across}; i < last; i += {down}) {{
        const vector<{held}, {width}> loaded = {fetched}(from + reduced_offset(i{_names("reduced", kernel.reduced_axes)}));
        #pragma unroll
        for (int k = 0; k < {width}; ++k) acc[k] = {next_value};
    }}
    #pragma unroll
    for (int k = 0; k < {width}; ++k) shared[threadIdx.x][k] = acc[k];
    __syncthreads();
    for (int distance = {THREADS // 2}; distance >= {across}; distance /= 2) {{
        if (threadIdx.x < distance)
            for (int k = 0; k < {width}; ++k)
                shared[threadIdx.x][k] = joined(shared[threadIdx.x][k], shared[threadIdx.x + distance][k]);
        __syncthreads();
    }}
    if (threadIdx.x < {across} && column < columns)
        for (int k = 0; k < {width}; ++k) {{
            const long long target = (split * kept + row) * columns + column + k;
            {_write(stage, result, "target", "shared[threadIdx.x][k]", "count", add=add)}
        }}
}}
"""
    return named_source(f"{reducer.name}_columns_{dtype}_x{width}_{stage.value}", _pieces(reducer, dtype, result, far=kernel.far) + body)


def accumulator_bytes(reducer: Reducer, dtype: str, *, far: bool = False) -> int:
    """Return the size of an accumulator in memory."""
    size = {"float": 4, "double": 8, "signed char": 1, "unsigned char": 1, "short": 2, "int": 4, "long long": 8, "bool": 1}
    value = size[reducer.value_type(dtype)]
    if not reducer.located:
        return value
    return 16 if far else 2 * max(4, value)


def _pieces(reducer: Reducer, dtype: str, result: str, *, far: bool) -> str:
    return conversions_source((dtype, result)) + VECTORS + _LEAST + reducer_source(reducer, dtype, far=far)


def _axes(role: str, count: int) -> str:
    return "".join(f", long long {role}_extent_{axis}, long long {role}_stride_{axis}" for axis in range(count))


def _names(role: str, count: int) -> str:
    return "".join(f", {role}_extent_{axis}, {role}_stride_{axis}" for axis in range(count))


def _offset(role: str, count: int) -> str:
    """Return a function from the index of an element, counted over some axes, to its distance from their first element."""
    steps = [
        f"    offset += index % {role}_extent_{axis} * {role}_stride_{axis};\n    index /= {role}_extent_{axis};\n"
        for axis in range(count - 1, 0, -1)
    ]
    last = f"    return offset + index * {role}_stride_0;\n" if count else "    return offset;\n"
    parameters = _axes(role, count)
    return (
        f"__device__ inline long long {role}_offset(long long index{parameters})\n{{\n    long long offset = 0;\n{''.join(steps)}{last}}}\n"
    )


def _join_lanes(lanes: int) -> str:
    """Return statements that join ``value`` over the threads that share a row; its first thread has the result."""
    within = min(lanes, 32)
    warp = f"    for (int offset = {within // 2}; offset > 0; offset /= 2) value = joined(value, shuffled(value, offset));"
    if lanes <= 32:
        return warp
    return f"""{warp}
    __shared__ acc_t shared[{THREADS // 32}];
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int warp = 1; warp < {THREADS // 32}; ++warp) value = joined(value, shared[warp]);"""


def _out_type(stage: Stage, result: str) -> str:
    return "acc_t" if stage is Stage.PARTIAL else STORAGE[result]


def _write(stage: Stage, result: str, index: str, value: str, count: str, *, add: bool) -> str:
    if stage is Stage.PARTIAL:
        return f"out[{index}] = {value};"
    finished = f"finished({value}, {count})"
    whole = f"{loaded(result, f'out[{index}]')} + {finished}" if add else finished
    return stored(result, f"out[{index}]", whole)


def axis_arguments(axes: Sequence[tuple[int, int]]) -> list[int]:
    """Return extents and strides of axes as a kernel takes them."""
    return [number for axis in axes for number in axis]
