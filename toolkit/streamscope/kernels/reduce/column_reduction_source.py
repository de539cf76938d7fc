"""Source of the reduction kernel for columns: the innermost axis is kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamscope.kernels.named_source import PLACE_OF_NAME, named_source
from streamscope.kernels.reduce.byte_keys_source import byte_keys_source, is_keyed
from streamscope.kernels.reduce.reducers_source import FACTORS, FLOATS, Reducer
from streamscope.kernels.reduce.reduction_source import (
    BYTES_WIDTH,
    THREADS,
    Room,
    Stage,
    accumulator_bytes,
    axis_names,
    axis_parameters,
    offset_function,
    out_type,
    prelude,
    taken,
    write,
)
from streamscope.kernels.source import KernelSource
from streamscope.kernels.types_source import STORAGE, loaded

ROOMS = {16: Room(8, 2), 8: Room(6, 4), 4: Room(6, 6), 2: Room(8, 6), 1: Room(8, 6)}
"""By the bytes of a load, as measured on an H200: the shorter it is, the more of them must be under way."""
OF_BYTES = Room(4, 4)
"""For `BYTES_WIDTH` columns a thread, whose results take registers, unless eight bytes of a column are multiplied at once."""
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


def room_of_columns(reducer: Reducer, width: int, load_bytes: int) -> Room:
    """Return what the threads of a kernel, each with ``width`` columns that it loads at once, get."""
    return OF_BYTES if width == BYTES_WIDTH and not reducer.multiplies else ROOMS[load_bytes]


def column_source(reducer: Reducer, dtype: str, result: str, kernel: ColumnKernel, stage: Stage, *, add: bool = False) -> KernelSource:
    """Return a kernel of columns: ``(x, out, columns, results, tiles, size, share, count, kept axes..., reduced axes...)``.

    ``size`` elements of each column, up to ``share`` of them in a block, are joined, into the result of ``count`` elements (in the final
    stage more than ``size``). There are ``results`` columns on all kept axes together, ``columns`` on the innermost one; a tile is what
    stands side by side in a block.
    """
    width, across = kernel.width, kernel.across
    parameters = axis_parameters("kept", kernel.kept_axes) + axis_parameters("reduced", kernel.reduced_axes)
    place = "result"
    if kernel.kept_axes:
        place = f"kept_offset(result / columns{axis_names('kept', kernel.kept_axes)}) + result % columns"
    final = stage is Stage.FINAL
    held = "acc_t" if final else STORAGE[dtype]
    keyed = is_keyed(reducer, dtype, width) and not final
    keys = byte_keys_source(reducer, dtype) if keyed else ""
    own, none = ("key_t", "no_key()") if keyed else ("acc_t" if final else "own_t", "identity()")
    load_bytes = width * (accumulator_bytes(reducer, dtype, far=kernel.far) if final else np.dtype(dtype).itemsize)
    room = room_of_columns(reducer, width, load_bytes)
    body = f"""{keys}{offset_function("kept", kernel.kept_axes)}{offset_function("reduced", kernel.reduced_axes)}
// A block reduces a part of {across * width} columns, counted over all kept axes: {THREADS // across} threads share each column.
extern "C" __global__ void __launch_bounds__({THREADS}, {room.blocks})
{PLACE_OF_NAME}(const {held}* x, {out_type(stage, result)}* out, long long columns, long long results, long long tiles, long long size,
    long long share, long long count{parameters})
{{
    const unsigned split = blockIdx.x / (unsigned)tiles;
    const long long tile = blockIdx.x % (unsigned)tiles * {across * width}LL;
    const long long result = tile + threadIdx.x % {across} * {width};
    const {held}* from = x + {place};
    const index_t first = split * share, last = result < results ? least(first + share, size) : 0;
    {own} acc[{width}];
    #pragma unroll
    for (int k = 0; k < {width}; ++k) acc[k] = {none};
    const index_t begin = first + threadIdx.x / {across};
{_columns_of_a_thread(reducer, dtype, kernel, stage, load_bytes)}{_find_nan(reducer, dtype, kernel, stage)}\
{_columns_of_a_block(kernel, write(stage, result, "target", "value", "count", add=add), keyed=keyed)}}}
"""
    return named_source(f"{reducer.name}_columns_{dtype}_x{width}_{stage.value}", prelude(reducer, dtype, result, far=kernel.far) + body)


def _columns_of_a_thread(reducer: Reducer, dtype: str, kernel: ColumnKernel, stage: Stage, load_bytes: int) -> str:
    """Return statements that take in a thread's elements of its columns."""
    width, down, loads = kernel.width, THREADS // kernel.across, room_of_columns(reducer, kernel.width, load_bytes).loads
    held = "acc_t" if stage is Stage.FINAL else STORAGE[dtype]
    multiplied = reducer.product_type(dtype) and stage is not Stage.FINAL
    # Rolled up, the loop compiles in two thirds of the time. Narrow loads are quicker where those of several turns are under way.
    rolled = "" if load_bytes <= 4 else "    #pragma unroll 1\n"
    # Along one axis, pointers step on; else, each place is computed, in three times the instructions.
    stepping = kernel.reduced_axes == 1
    names = axis_names("reduced", kernel.reduced_axes)
    begun = f"    const long long step = {down} * reduced_stride_0;\n    const {held}* at = from + begin * reduced_stride_0;\n"
    fetch = f"batch[b].fetch({'at + b * step' if stepping else f'from + reduced_offset(i + b * {down}{names})'})"
    return f"""\
{begun if stepping else ""}{rolled}\
    for (index_t i = begin; i < last; i += {loads * down}) {{
        waiting<{width}, {held}> batch[{loads}];
        #pragma unroll
        for (int b = 0; b < {loads}; ++b)
            if (i + b * {down} < last) {fetch};
{"            else batch[b].fill(1);" if multiplied else ""}
{f"        at += {loads} * step;" if stepping else ""}
        #pragma unroll
{_take_batch(reducer, dtype, kernel, stage, loads)}\
    }}
"""


def _take_batch(reducer: Reducer, dtype: str, kernel: ColumnKernel, stage: Stage, loads: int) -> str:
    """Return the loop that takes in what was loaded: a load at a time, or some where bytes are multiplied."""
    width, down = kernel.width, THREADS // kernel.across
    step, before = 1, ""
    if stage is Stage.FINAL:
        take = "acc[k] = joined(acc[k], batch[b].values().item[k]);"
    elif is_keyed(reducer, dtype, width):
        before = f"const unsigned below = under(i + b * {down} - first);"
        take = "acc[k] = better_key(acc[k], keyed(batch[b].word(k / 4), k % 4, below));"
    elif reducer.adds_bytes(dtype) and width % 4 == 0:
        take = "acc[k] = __dp4a(own_t(batch[b].word(k / 4)), own_t(1u << k % 4 * 8), acc[k]);"  # one instruction a byte
    elif reducer.product_type(dtype):
        factors = max(few for few in range(1, FACTORS + 1) if loads % few == 0)
        step = factors if loads % (2 * factors) else 2 * factors
        take = f"""{{
                acc_t product = 1;
                #pragma unroll
                for (int few = b; few < b + {step}; few += {factors}) {{
                    product_t own = {taken(dtype, width, load="few")};
                    #pragma unroll
                    for (int f = 1; f < {factors}; ++f) own *= {taken(dtype, width, load="few + f")};
                    product = joined(product, whole(own));
                }}
                acc[k] = joined(acc[k], product);
            }}"""
    else:
        absorbed = "absorbed_number" if reducer.located else "absorbed"
        before = f"const vector<{STORAGE[dtype]}, {width}> loaded = batch[b].values();"
        take = f"acc[k] = {absorbed}(acc[k], {loaded(dtype, 'loaded.item[k]')}, i + b * {down});"
    return f"""\
        for (int b = 0; b < {loads}; b += {step}) {{
            if (i + b * {down} >= last) break;
            {before}
            #pragma unroll
            for (int k = 0; k < {width}; ++k) {take}
        }}
"""


def _columns_of_a_block(kernel: ColumnKernel, write_value: str, *, keyed: bool) -> str:
    """Return statements that join what the threads of a block have of each column, and leave it."""
    width, across = kernel.width, kernel.across
    parts = min(THREADS // across, MOST_PARTS)
    kind, join = ("key_t", "better_key") if keyed else ("acc_t", "joined")
    return f"""\
    __shared__ {kind} shared[{width}][{THREADS + 32 // width}];  // padded: neighbouring columns are in different banks
    #pragma unroll
    for (int k = 0; k < {width}; ++k) shared[k][threadIdx.x] = acc[k];
    __syncthreads();
    for (int distance = {THREADS // 2}; distance >= {across * parts}; distance /= 2) {{
        if (threadIdx.x < distance)
            for (int k = 0; k < {width}; ++k)
                shared[k][threadIdx.x] = {join}(shared[k][threadIdx.x], shared[k][threadIdx.x + distance]);
        __syncthreads();
    }}
    for (int c = threadIdx.x; c < {across * width}; c += {THREADS}) {{
        const long long target = split * results + tile + c;
        if (tile + c >= results) break;
        const {kind}* part = &shared[c % {width}][c / {width}];
        {kind} best = part[0];
        #pragma unroll
        for (int p = 1; p < {parts}; ++p) best = {join}(best, part[p * {across}]);
        const acc_t value = {"found(best, first)" if keyed else "best"};
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
