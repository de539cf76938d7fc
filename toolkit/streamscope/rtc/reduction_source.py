"""Source of reduction kernels.

There are two: *rows*, where the innermost axis is reduced, and *columns*, where it is kept. Long reductions of few results are split
among blocks: a first kernel leaves accumulators, laid out as [splits, results], and a second one, of columns, joins them.
No kernel uses atomics, so a result is the same each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from streamscope.rtc.layout import INDEX32_LIMIT
from streamscope.rtc.named_source import PLACE_OF_NAME, named_source
from streamscope.rtc.reducers_source import FLOATS, Reducer, reducer_source
from streamscope.rtc.source import KernelSource
from streamscope.rtc.types_source import STORAGE, VECTORS, conversions_source, loaded, stored

THREADS = 256
ACCUMULATOR_BYTES = 16
"""Of a thread in a kernel of rows: enough that additions need not wait for each other, few enough for full occupancy."""


@dataclass(frozen=True)
class Room:
    """What the threads of a kernel get of a multiprocessor.

    Attributes
    ----------
    loads : int
        Loads of a thread that are under way at once. The last of all are masked, not looped over: one after the other they take longer.
    blocks : int
        Blocks that a multiprocessor has room for, each thread having the registers that its loads need.
    """

    loads: int
    blocks: int


MOST_WIDTH = 16
ROWS, LOCATED_ROWS = Room(6, 4), Room(4, 4)
COLUMNS, BYTE_COLUMNS, LOCATED_COLUMNS = Room(6, 4), Room(4, 4), Room(6, 3)
"""Measured on an H200; where a kernel looks for an index (`Reducer.located`), a load takes more registers and time, and where each thread
has `MOST_WIDTH` columns, their results take registers."""
INDEX32_COUNT = INDEX32_LIMIT - THREADS * 8
"""Reductions of so many elements count them with 64 bits: counters run over the end, by the loads of a block at most."""

_LEAST = """\
__device__ inline long long least(long long a, long long b) { return a < b ? a : b; }
// What is loaded waits in words: of a vector of bytes, each byte would take a register.
template <int W, typename E> struct waiting
{
    typename words<sizeof(E) * W>::type whole;
    __device__ inline void fetch(const E* from) { whole = *reinterpret_cast<const typename words<sizeof(E) * W>::type*>(from); }
    __device__ inline vector<E, W> values() const { return *reinterpret_cast<const vector<E, W>*>(&whole); }
};
"""


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
        Threads of a block side by side on columns, a power of two up to `THREADS`; the others share their columns.
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


def room_of_rows(reducer: Reducer) -> Room:
    """Return what the threads of a kernel of rows get."""
    return LOCATED_ROWS if reducer.located else ROWS


def room_of_columns(reducer: Reducer, width: int) -> Room:
    """Return what the threads of a kernel of columns, each with ``width`` of them, get."""
    return LOCATED_COLUMNS if reducer.located else BYTE_COLUMNS if width == MOST_WIDTH else COLUMNS


def row_source(reducer: Reducer, dtype: str, result: str, kernel: RowKernel, stage: Stage, *, add: bool = False) -> KernelSource:
    """Return a kernel of rows: ``(x, out, rows, run, outer, splits, kept axes..., outer axes...)``, an axis being extent and stride.

    A row is ``outer`` runs of ``run`` neighbouring elements. With ``add`` the result is added to what ``out`` holds.
    """
    width, lanes = kernel.width, kernel.lanes
    held = 1 if reducer.located else min(width, 4, ACCUMULATOR_BYTES // accumulator_bytes(reducer, dtype))
    room = room_of_rows(reducer)
    element = loaded(dtype, "{}")
    kept, outer = _names("kept", kernel.kept_axes), _names("outer", kernel.outer_axes)
    along = f"outer_offset(place / run{outer}) + place % run" if kernel.outer_axes else "place"
    body = f"""{_offset("kept", kernel.kept_axes)}{_offset("outer", kernel.outer_axes)}
// Every {lanes} threads reduce one part of a row; the loads of a thread are {width} elements wide between the masked ends.
extern "C" __global__ void __launch_bounds__({THREADS}, {room.blocks})
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
        const {STORAGE[dtype]}* part = x + kept_offset(row{kept}) + outer_offset(i{outer}) + first;
        const int misaligned = (unsigned long long)part / sizeof({STORAGE[dtype]}) % {width};
        const index_t size = last - first, before = i * run + first;
        const index_t head = least(size, ({width} - misaligned) % {width}), vectors = (size - head) / {width};
        for (index_t j = lane; j < head; j += {lanes}) acc[0] = absorbed(acc[0], {element.format("part[j]")}, before + j);
        for (index_t v = lane; v < vectors; v += {room.loads * lanes}) {{
            waiting<{width}, {STORAGE[dtype]}> batch[{room.loads}];
            #pragma unroll
            for (int b = 0; b < {room.loads}; ++b)
                if (v + b * {lanes} < vectors) batch[b].fetch(part + head + (v + b * {lanes}) * {width});
            #pragma unroll
            for (int b = 0; b < {room.loads}; ++b) {{
                if (v + b * {lanes} >= vectors) break;
                const index_t index = before + head + (v + b * {lanes}) * {width};
                const vector<{STORAGE[dtype]}, {width}> loaded = batch[b].values();
                {_absorb_vector(reducer, dtype, width, held)}
            }}
        }}
        for (index_t j = head + vectors * {width} + lane; j < size; j += {lanes})
            acc[0] = absorbed(acc[0], {element.format("part[j]")}, before + j);
    }}
    acc_t value = acc[0];
    #pragma unroll
    for (int k = 1; k < {held}; ++k) value = joined(value, acc[k]);
{_join_lanes(lanes)}
    if (lane == 0 && valid) {{
{_locate(reducer, dtype, f"x[kept_offset(row{kept}) + {along}]", "run * outer", width)}\
        {_write(stage, result, "task", "value", "run * outer", add=add)}
    }}
}}
"""
    return named_source(f"{reducer.name}_rows_{dtype}_x{width}_{stage.value}", _pieces(reducer, dtype, result, far=kernel.far) + body)


def column_source(reducer: Reducer, dtype: str, result: str, kernel: ColumnKernel, stage: Stage, *, add: bool = False) -> KernelSource:
    """Return a kernel of columns: ``(x, out, columns, size, count, splits, kept axes..., reduced axes...)``.

    ``size`` elements of each column are joined, into the result of ``count`` elements (in the final stage more than ``size``).
    """
    width, across = kernel.width, kernel.across
    down, room = THREADS // across, room_of_columns(reducer, width)
    parts = min(down, 8)  # of a column, that one thread joins in the end
    kept, reduced = _names("kept", kernel.kept_axes), _names("reduced", kernel.reduced_axes)
    place = f"kept_offset(result / columns{kept}) + result % columns" if kernel.kept_axes else "result"
    final = stage is Stage.FINAL
    held = "acc_t" if final else STORAGE[dtype]
    absorbed = "absorbed_number" if reducer.located else "absorbed"
    element = loaded(dtype, "loaded.item[k]")
    next_value = "joined(acc[k], loaded.item[k])" if final else f"{absorbed}(acc[k], {element}, i + b * {down})"
    body = f"""{_offset("kept", kernel.kept_axes)}{_offset("reduced", kernel.reduced_axes)}
// A block reduces a part of {across * width} columns, counted over all kept axes: {down} threads share each column.
extern "C" __global__ void __launch_bounds__({THREADS}, {room.blocks})
{PLACE_OF_NAME}(const {held}* x, {
        _out_type(stage, result)
    }* out, long long columns, long long size, long long count, long long splits, long long kept{_axes("kept", kernel.kept_axes)}{
        _axes("reduced", kernel.reduced_axes)
    })
{{
    __shared__ acc_t shared[{width}][{THREADS + 32 // width}];  // padded: neighbouring columns are in different banks
    const long long results = kept * columns, tiles = (results + {across * width - 1}) / {across * width};
    const long long tile = blockIdx.x % tiles * {across * width}, split = blockIdx.x / tiles;
    const long long result = tile + threadIdx.x % {across} * {width};
    const {held}* from = x + {place};
    const long long share = (size + splits - 1) / splits;
    const index_t last = result < results ? least((split + 1) * share, size) : 0;
    acc_t acc[{width}];
    #pragma unroll
    for (int k = 0; k < {width}; ++k) acc[k] = identity();
    const index_t begin = split * share + threadIdx.x / {across};
    for (index_t i = begin; i < last; i += {room.loads * down}) {{
        waiting<{width}, {held}> batch[{room.loads}];
        #pragma unroll
        for (int b = 0; b < {room.loads}; ++b)
            if (i + b * {down} < last) batch[b].fetch(from + reduced_offset(i + b * {down}{reduced}));
        #pragma unroll
        for (int b = 0; b < {room.loads}; ++b) {{
            if (i + b * {down} >= last) break;
            const vector<{held}, {width}> loaded = batch[b].values();
            #pragma unroll
            for (int k = 0; k < {width}; ++k) acc[k] = {next_value};
        }}
    }}
{_find_nan(reducer, dtype, kernel, stage)}\
    #pragma unroll
    for (int k = 0; k < {width}; ++k) shared[k][threadIdx.x] = acc[k];
    __syncthreads();
    for (int distance = {THREADS // 2}; distance >= {across * parts}; distance /= 2) {{
        if (threadIdx.x < distance)
            for (int k = 0; k < {width}; ++k)
                shared[k][threadIdx.x] = joined(shared[k][threadIdx.x], shared[k][threadIdx.x + distance]);
        __syncthreads();
    }}
    for (int c = threadIdx.x; c < {across * width}; c += {THREADS}) {{
        const long long target = split * results + tile + c;
        if (tile + c >= results) break;
        const acc_t* part = &shared[c % {width}][c / {width}];
        acc_t value = part[0];
        #pragma unroll
        for (int p = 1; p < {parts}; ++p) value = joined(value, part[p * {across}]);
        {_write(stage, result, "target", "value", "count", add=add)}
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


def _absorb_vector(reducer: Reducer, dtype: str, width: int, held: int) -> str:
    """Return statements that take in a vector of a row, whose first element is at ``index``."""
    element = loaded(dtype, "loaded.item[k]")
    if reducer.located:
        return f"""value_t best = {element.replace("[k]", "[0]")};
                #pragma unroll
                for (int k = 1; k < {width}; ++k) best = {reducer.wanted}(best, {element});
                acc[0] = absorbed(acc[0], best, index);"""
    return f"""#pragma unroll
                for (int k = 0; k < {width}; ++k) acc[k % {held}] = absorbed(acc[k % {held}], {element}, index + k);"""


def _find_nan(reducer: Reducer, dtype: str, kernel: ColumnKernel, stage: Stage) -> str:
    """Return statements that look for the first NaN of a thread's columns where one was met: its index is not kept on the way."""
    if not reducer.located or stage is Stage.FINAL or dtype not in FLOATS:
        return ""
    width, element = kernel.width, loaded(dtype, "loaded.item[k]")
    return f"""\
    bool nan = false;
    #pragma unroll
    for (int k = 0; k < {width}; ++k) {{
        nan = nan || acc[k].value != acc[k].value;
        if (acc[k].value != acc[k].value) acc[k].index = last;
    }}
    #pragma unroll 4
    for (index_t i = begin; nan && i < last; i += {THREADS // kernel.across}) {{
        const vector<{STORAGE[dtype]}, {width}> loaded = fetched<{width}>(from + reduced_offset(i{_names("reduced", kernel.reduced_axes)}));
        #pragma unroll
        for (int k = 0; k < {width}; ++k)
            if ({element} != {element} && i < acc[k].index) acc[k].index = i;
    }}
"""


def _locate(reducer: Reducer, dtype: str, candidate: str, size: str, group: int) -> str:
    """Return statements that move the index of a located ``value`` from the first of its group to the element itself.

    ``candidate`` is the element at ``place``. All are loaded, the last one first, since loads that wait for each other take longer.
    """
    if not reducer.located:
        return ""
    return f"""\
        const index_t group = value.index;
        #pragma unroll
        for (int step = {group - 1}; step >= 0; --step) {{
            const index_t place = group + step;
            if (group >= 0 && place < {size} && alike({loaded(dtype, candidate)}, value.value)) value.index = place;
        }}
"""


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
