"""Source of the reduction kernel for columns: the innermost axis is kept."""

from __future__ import annotations

from dataclasses import dataclass

from streamscope.rtc.named_source import PLACE_OF_NAME, named_source
from streamscope.rtc.reducers_source import FLOATS, Reducer
from streamscope.rtc.reduction_source import (
    BYTES_WIDTH,
    THREADS,
    Room,
    Stage,
    axis_names,
    axis_parameters,
    offset_function,
    out_type,
    prelude,
    write,
)
from streamscope.rtc.source import KernelSource
from streamscope.rtc.types_source import STORAGE, loaded

ANY, LOCATED, BYTES, SINGLE = Room(6, 4), Room(6, 3), Room(6, 3), Room(4, 6)
"""Measured on an H200; where a kernel looks for an index (`Reducer.located`), or has the results of many bytes, these take registers."""
MOST_PARTS = 8
"""Of a column, that one thread joins in the end."""


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


def room_of_columns(reducer: Reducer, width: int) -> Room:
    """Return what the threads of a kernel, each with ``width`` columns, get."""
    if width == 1:
        return SINGLE
    return BYTES if width == BYTES_WIDTH else LOCATED if reducer.located else ANY


def column_source(reducer: Reducer, dtype: str, result: str, kernel: ColumnKernel, stage: Stage, *, add: bool = False) -> KernelSource:
    """Return a kernel of columns: ``(x, out, columns, size, count, splits, kept, kept axes..., reduced axes...)``.

    ``size`` elements of each column are joined, into the result of ``count`` elements (in the final stage more than ``size``); there are
    ``kept`` times ``columns`` columns.
    """
    width, across = kernel.width, kernel.across
    parameters = axis_parameters("kept", kernel.kept_axes) + axis_parameters("reduced", kernel.reduced_axes)
    place = "result"
    if kernel.kept_axes:
        place = f"kept_offset(result / columns{axis_names('kept', kernel.kept_axes)}) + result % columns"
    final = stage is Stage.FINAL
    stored = "acc_t" if final else STORAGE[dtype]
    body = f"""{offset_function("kept", kernel.kept_axes)}{offset_function("reduced", kernel.reduced_axes)}
// A block reduces a part of {across * width} columns, counted over all kept axes: {THREADS // across} threads share each column.
extern "C" __global__ void __launch_bounds__({THREADS}, {room_of_columns(reducer, width).blocks})
{PLACE_OF_NAME}(const {stored}* x, {
        out_type(stage, result)
    }* out, long long columns, long long size, long long count, long long splits, long long kept{parameters})
{{
    const long long results = kept * columns, tiles = (results + {across * width - 1}) / {across * width};
    const long long tile = blockIdx.x % tiles * {across * width}, split = blockIdx.x / tiles;
    const long long result = tile + threadIdx.x % {across} * {width};
    const {stored}* from = x + {place};
    const long long share = (size + splits - 1) / splits;
    const index_t last = result < results ? least((split + 1) * share, size) : 0;
    {"acc_t" if final else "own_t"} acc[{width}];
    #pragma unroll
    for (int k = 0; k < {width}; ++k) acc[k] = identity();
    const index_t begin = split * share + threadIdx.x / {across};
{_columns_of_a_thread(reducer, dtype, kernel, stage)}{_find_nan(reducer, dtype, kernel, stage)}\
{_columns_of_a_block(kernel, write(stage, result, "target", "value", "count", add=add))}}}
"""
    return named_source(f"{reducer.name}_columns_{dtype}_x{width}_{stage.value}", prelude(reducer, dtype, result, far=kernel.far) + body)


def _columns_of_a_thread(reducer: Reducer, dtype: str, kernel: ColumnKernel, stage: Stage) -> str:
    """Return statements that take in a thread's elements of its columns."""
    width, down, loads = kernel.width, THREADS // kernel.across, room_of_columns(reducer, kernel.width).loads
    held = "acc_t" if stage is Stage.FINAL else STORAGE[dtype]
    absorbed = "absorbed_number" if reducer.located else "absorbed"
    element = loaded(dtype, "loaded.item[k]")
    next_value = "joined(acc[k], loaded.item[k])" if stage is Stage.FINAL else f"{absorbed}(acc[k], {element}, i + b * {down})"
    return f"""\
    for (index_t i = begin; i < last; i += {loads * down}) {{
        waiting<{width}, {held}> batch[{loads}];
        #pragma unroll
        for (int b = 0; b < {loads}; ++b)
            if (i + b * {down} < last) batch[b].fetch(from + reduced_offset(i + b * {down}{axis_names("reduced", kernel.reduced_axes)}));
        #pragma unroll
        for (int b = 0; b < {loads}; ++b) {{
            if (i + b * {down} >= last) break;
            const vector<{held}, {width}> loaded = batch[b].values();
            #pragma unroll
            for (int k = 0; k < {width}; ++k) acc[k] = {next_value};
        }}
    }}
"""


def _columns_of_a_block(kernel: ColumnKernel, write_value: str) -> str:
    """Return statements that join what the threads of a block have of each column, and leave it."""
    width, across = kernel.width, kernel.across
    parts = min(THREADS // across, MOST_PARTS)
    return f"""\
    __shared__ acc_t shared[{width}][{THREADS + 32 // width}];  // padded: neighbouring columns are in different banks
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
        {write_value}
    }}
"""


def _find_nan(reducer: Reducer, dtype: str, kernel: ColumnKernel, stage: Stage) -> str:
    """Return statements that look for the first NaN of a thread's columns where one was met: its index is not kept on the way."""
    if not reducer.located or stage is Stage.FINAL or dtype not in FLOATS:
        return ""
    width, element = kernel.width, loaded(dtype, "loaded.item[k]")
    reduced = axis_names("reduced", kernel.reduced_axes)
    return f"""\
    bool nan = false;
    #pragma unroll
    for (int k = 0; k < {width}; ++k) {{
        nan = nan || acc[k].value != acc[k].value;
        if (acc[k].value != acc[k].value) acc[k].index = last;
    }}
    #pragma unroll 4
    for (index_t i = begin; nan && i < last; i += {THREADS // kernel.across}) {{
        const vector<{STORAGE[dtype]}, {width}> loaded = fetched<{width}>(from + reduced_offset(i{reduced}));
        #pragma unroll
        for (int k = 0; k < {width}; ++k)
            if ({element} != {element} && i < acc[k].index) acc[k].index = i;
    }}
"""
