"""Source of the reduction kernel for rows: the innermost axis is reduced."""

from __future__ import annotations

from dataclasses import dataclass

from streamscope.kernels.named_source import PLACE_OF_NAME, named_source
from streamscope.kernels.reduce.reducers_source import FACTORS, Reducer
from streamscope.kernels.reduce.reduction_source import (
    BYTES_WIDTH,
    THREADS,
    Room,
    Stage,
    accumulator_bytes,
    across_source,
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

ACCUMULATOR_BYTES = 16
"""Of a thread: enough that additions need not wait for each other, few enough for full occupancy."""
ANY, LOCATED, OF_BYTES = Room(6, 4), Room(4, 4), Room(8, 4)
"""Measured on an H200; a load takes more registers and time where a kernel looks for an index (`Reducer.located`)."""


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


def room_of_rows(reducer: Reducer, width: int) -> Room:
    """Return what the threads of a kernel, loading ``width`` elements at once, get."""
    return OF_BYTES if width == BYTES_WIDTH else LOCATED if reducer.located else ANY


def row_source(reducer: Reducer, dtype: str, result: str, kernel: RowKernel, stage: Stage, *, add: bool = False) -> KernelSource:
    """Return a kernel of rows: ``(x, out, rows, run, outer, splits, kept axes..., outer axes...)``, an axis being extent and stride.

    A row is ``outer`` runs of ``run`` neighbouring elements; if there are more ``splits``, as many to each run. With ``add`` the result is
    added to what ``out`` holds.
    """
    width, lanes = kernel.width, kernel.lanes
    held = 1 if reducer.located else min(width, 4, ACCUMULATOR_BYTES // accumulator_bytes(reducer, dtype))
    kept, outer = axis_names("kept", kernel.kept_axes), axis_names("outer", kernel.outer_axes)
    parameters = axis_parameters("kept", kernel.kept_axes) + axis_parameters("outer", kernel.outer_axes)
    along = f"outer_offset(place / run{outer}) + place % run" if kernel.outer_axes else "place"
    join = f"#pragma unroll\n{{}}for (int k = 0; k < {held}; ++k) value = joined(value, acc[k]);\n"
    # In 32 bits a thread may add the bytes of one run, but not those of many.
    carried = kernel.outer_axes > 0 and reducer.own_type(dtype) != "acc_t"
    carry = f"        {join.format('        ')}        for (int k = 0; k < {held}; ++k) acc[k] = 0;\n" if carried else ""
    across = across_source("across", "acc_t", "joined(value, shuffled(value, offset))", "joined", lanes)
    body = f"""{across}{offset_function("kept", kernel.kept_axes)}{offset_function("outer", kernel.outer_axes)}
// Every {lanes} threads reduce one part of a row; the loads of a thread are {width} elements wide between the masked ends.
extern "C" __global__ void __launch_bounds__({THREADS}, {room_of_rows(reducer, width).blocks})
{PLACE_OF_NAME}(const {STORAGE[dtype]}* x, {out_type(stage, result)}* out, long long rows, long long run, long long outer, long long splits{
        parameters
    })
{{
    const int lane = threadIdx.x % {lanes};
    const long long task = (long long)blockIdx.x * {THREADS // lanes} + threadIdx.x / {lanes};
    const bool valid = task < rows * splits;
{_share(width, stage)}
    acc_t value = identity();
    own_t acc[{held}];
    #pragma unroll
    for (int k = 0; k < {held}; ++k) acc[k] = identity();
    for (long long i = first_outer; valid && i < last_outer; ++i) {{
        const {STORAGE[dtype]}* part = x + kept_offset(row{kept}) + outer_offset(i{outer}) + first;
{_run(reducer, dtype, kernel, held)}{carry}    }}
    {join.format("    ")}    value = across(value);
    if (lane == 0 && valid) {{
{_locate(reducer, dtype, f"x[kept_offset(row{kept}) + {along}]", "run * outer", width)}\
        {write(stage, result, "task", "value", "run * outer", add=add)}
    }}
}}
"""
    return named_source(f"{reducer.name}_rows_{dtype}_x{width}_{stage.value}", prelude(reducer, dtype, result, far=kernel.far) + body)


def _share(width: int, stage: Stage) -> str:
    """Return statements that say which row is a task's, and which part of it: all, some of its runs, or a part of one."""
    whole = "    long long first = 0, last = run, first_outer = 0, last_outer = outer;\n"
    if stage is Stage.WHOLE:
        return f"    const long long row = task;\n{whole}"
    # Few rows are split, so 32 bits suffice, whose divisions compile in a fraction of the time.
    return f"""\
    const unsigned row = (unsigned)task % (unsigned)rows, split = (unsigned)task / (unsigned)rows;
{whole}\
    if (splits > outer) {{
        const unsigned parts = (unsigned)splits / (unsigned)outer;
        const long long share = (run + parts * {width} - 1) / (parts * {width}) * {width};
        first = least(split % parts * share, run);
        last = least(first + share, run);
        first_outer = split / parts;
        last_outer = first_outer + 1;
    }} else {{
        const long long share = (outer + splits - 1) / splits;
        first_outer = least(split * share, outer);
        last_outer = least(first_outer + share, outer);
    }}
"""


def _run(reducer: Reducer, dtype: str, kernel: RowKernel, held: int) -> str:
    """Return statements that take in the run that begins at ``part``: vectors from the first aligned place on, and what is around them."""
    width, lanes, loads = kernel.width, kernel.lanes, room_of_rows(reducer, kernel.width).loads
    edge, others = loaded(dtype, "at_edge"), loaded(dtype, "part[j]")
    more = f"""\
        for (index_t e = lane + {lanes}; e < ends; e += {lanes}) {{
            const index_t j = e < head ? e : e + vectors * {width};
            acc[0] = joined(acc[0], absorbed(identity(), {others}, before + j));
        }}
"""
    return f"""\
        const int misaligned = (unsigned long long)part / sizeof({STORAGE[dtype]}) % {width};
        const index_t size = last - first, before = i * run + first;
        const index_t head = least(size, ({width} - misaligned) % {width}), vectors = (size - head) / {width};
        // The elements around the vectors are under way with them.
        const index_t ends = size - vectors * {width}, edge = lane < head ? lane : lane + vectors * {width};
        {STORAGE[dtype]} at_edge;
        if (lane < ends) at_edge = part[edge];
        for (index_t v = lane; v < vectors; v += {loads * lanes}) {{
            waiting<{width}, {STORAGE[dtype]}> batch[{loads}];
            #pragma unroll
            for (int b = 0; b < {loads}; ++b)
                if (v + b * {lanes} < vectors) batch[b].fetch(part + head + (v + b * {lanes}) * {width});
            #pragma unroll
            for (int b = 0; b < {loads}; ++b) {{
                if (v + b * {lanes} >= vectors) break;
                {_absorb_vector(reducer, dtype, kernel, held)}
            }}
        }}
        if (lane < ends) acc[0] = joined(acc[0], absorbed(identity(), {edge}, before + edge));
{more if lanes < 2 * (width - 1) else ""}"""


def _absorb_vector(reducer: Reducer, dtype: str, kernel: RowKernel, held: int) -> str:
    """Return statements that take in a vector of a row, or its words where these are bytes that are added or multiplied."""
    width = kernel.width
    index = f"const index_t index = before + head + (v + b * {kernel.lanes}) * {width};"
    if reducer.located:
        return f"""{index}
                value_t best = {taken(dtype, width, item="0")};
                #pragma unroll
                for (int k = 1; k < {width}; ++k) best = {reducer.wanted}(best, {taken(dtype, width)});
                acc[0] = absorbed(acc[0], best, index);"""
    if reducer.adds_bytes(dtype):
        added = f"__dp4a(own_t(batch[b].word(w)), own_t(0x01010101), acc[w % {held}])"
        return f"""#pragma unroll
                for (int w = 0; w < {width // 4}; ++w) acc[w % {held}] = {added};"""
    if reducer.product_type(dtype):
        return f"""#pragma unroll
                for (int w = 0; w < {width // FACTORS}; ++w) {{
                    product_t product = byte_of(batch[b].word(w), 0);
                    #pragma unroll
                    for (int f = 1; f < {FACTORS}; ++f) product *= byte_of(batch[b].word(w), f);
                    acc[w % {held}] = joined(acc[w % {held}], whole(product));
                }}"""
    return f"""{index}
                const vector<{STORAGE[dtype]}, {width}> loaded = batch[b].values();
                #pragma unroll
                for (int k = 0; k < {width}; ++k)
                    acc[k % {held}] = absorbed(acc[k % {held}], {loaded(dtype, "loaded.item[k]")}, index + k);"""


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
