"""The kernels of reductions of rows and columns, filled in from ``cuda/reduce*.cuh``.

There are three sorts of kernels: *rows*, where the innermost axis is reduced, *columns*, where it is kept, and *short*, for many pieces of
either kind that fit into shared memory (`short_source`). Long reductions of few results are split among blocks: a first kernel, of rows or
columns, leaves accumulators, laid out as [splits, results], and a second one, of columns, joins them. No kernel uses atomics, so a result
is the same each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np

from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.expression.wrapping import added
from streamscope.kernels.form import THREADS, VECTOR_BYTES
from streamscope.kernels.layout import INDEX32_LIMIT
from streamscope.kernels.reduce.reducers import BYTES, FACTORS, FLOATS, MOST_KEYED, Reducer, accumulator_bytes, is_keyed, reducer_source
from streamscope.kernels.source import STORAGE, KernelSource, loaded, named_source, stored, vector_types

INDEX32_COUNT = INDEX32_LIMIT - THREADS * 8
"""Reductions of so many elements count them with 64 bits: counters run over the end, by the loads of a block at most."""
BYTES_WIDTH = 16
"""Elements of a vector of bytes, which take more instructions than loads: its kernels have `Room` of their own."""
_ACCUMULATOR_BYTES = 16
"""Of a thread that reduces rows: enough that additions need not wait for each other, few enough for full occupancy."""
_MOST_PARTS = 8
"""Of a column, that one thread joins in the end."""

_SHARED, _ROWS, _COLUMNS = map(pieces, ("reduce", "reduce_rows", "reduce_columns"))


@dataclass(frozen=True)
class Room:
    """Share of a multiprocessor for each thread. All were measured on an H200."""

    loads: int
    """Loads of a thread that are under way at once. The last of all are masked, not looped over: one after the other they take longer."""
    blocks: int
    """Blocks that a multiprocessor has room for, each thread having the registers that its loads need."""


_OF_ROWS, _OF_LOCATED_ROWS, _OF_ROWS_OF_BYTES = Room(6, 4), Room(4, 4), Room(8, 4)
"""A load takes more registers and time where a kernel looks for an index (`Reducer.located`)."""
_OF_COLUMNS = {16: Room(8, 2), 8: Room(6, 4), 4: Room(6, 6), 2: Room(8, 6), 1: Room(8, 6)}
"""By the bytes of a load: the shorter it is, the more of them must be under way."""
_OF_COLUMNS_OF_BYTES = Room(4, 4)
"""For `BYTES_WIDTH` columns a thread, whose results take registers, unless eight bytes of a column are multiplied at once."""


class Pass(Enum):
    """Input and output types of a reduction kernel."""

    WHOLE = "whole"
    """Elements to results."""
    PARTIAL = "partial"
    """Elements to accumulators."""
    FINAL = "final"
    """Accumulators to results."""


@dataclass(frozen=True)
class RowKernel:
    """How a kernel of rows is laid out."""

    width: int
    """Elements that a thread loads at once."""
    lanes: int
    """Threads that share a row: a power of two up to 32, or `THREADS`."""
    kept_axes: int
    outer_axes: int
    """Axes of the results, and reduced axes besides the innermost one, after neighbours were merged."""
    far: bool = False
    """Indices within a row need 64 bits."""


@dataclass(frozen=True)
class ColumnKernel:
    """How a kernel of columns is laid out."""

    width: int
    """Columns of a thread, loaded at once."""
    across: int
    """Threads of a block side by side on columns, a power of two up to `THREADS`; the others share their columns."""
    kept_axes: int
    reduced_axes: int
    """Axes of the results besides the innermost one, and reduced axes, after neighbours were merged."""
    far: bool = False
    """Indices within a column need 64 bits."""


def room_of_rows(reducer: Reducer, width: int) -> Room:
    """Return the launch bounds of a kernel of rows that loads ``width`` elements at once."""
    return _OF_ROWS_OF_BYTES if width == BYTES_WIDTH else _OF_LOCATED_ROWS if reducer.located else _OF_ROWS


def room_of_columns(reducer: Reducer, width: int, load_bytes: int) -> Room:
    """Return the launch bounds of a kernel of columns, each thread with ``width`` columns."""
    return _OF_COLUMNS_OF_BYTES if width == BYTES_WIDTH and not reducer.multiplies else _OF_COLUMNS[load_bytes]


def row_source(reducer: Reducer, dtype: str, result: str, kernel: RowKernel, stage: Pass, *, add: bool = False) -> KernelSource:
    """Return a kernel of rows: ``(x, out, rows, run, outer, splits, kept axes..., outer axes...)``, an axis being extent and stride.

    A row is ``outer`` runs of ``run`` neighbouring elements; if there are more ``splits``, as many to each run. With ``add`` the result is
    added to ``out``.
    """
    width, lanes, room, element = kernel.width, kernel.lanes, room_of_rows(reducer, kernel.width), STORAGE[dtype]
    held = 1 if reducer.located else min(width, 4, _ACCUMULATOR_BYTES // accumulator_bytes(reducer, dtype))
    kept, outer = _axis_names("kept", kernel.kept_axes), _axis_names("outer", kernel.outer_axes)
    carried = kernel.outer_axes > 0 and reducer.own_type(dtype) != "acc_t"
    along = f"outer_offset(place / run{outer}) + place % run" if kernel.outer_axes else "place"
    candidate = loaded(dtype, f"x[kept_offset(row{kept}) + {along}]")
    places = {"width": width, "lanes": lanes, "element": element, "held": held}
    body = fill(
        _ROWS["kernel"],
        **places,
        threads=THREADS,
        blocks=room.blocks,
        out=_out_type(stage, result),
        axes=_axis_parameters("kept", kernel.kept_axes) + _axis_parameters("outer", kernel.outer_axes),
        tasks=THREADS // lanes,
        row=_ROWS["whole_row"] if stage is Pass.WHOLE else fill(_ROWS["part_of_row"], width=width),
        kept=kept,
        outer=outer,
        of_batch=room.loads * lanes,
        loads=room.loads,
        absorb=_absorb(reducer, dtype, places),
        edge=loaded(dtype, "at_edge"),
        other_ends=fill(_ROWS["other_ends"], **places, item=loaded(dtype, "part[j]")) if lanes < 2 * (width - 1) else "",
        carry=fill(_ROWS["carry"], held=held) if carried else "",
        locate=fill(_ROWS["locate"], last=width - 1, candidate=candidate) if reducer.located else "",
        write=write(stage, result, "task", "value", "run * outer", add=add),
    )
    code = [
        prelude(reducer, dtype, result, far=kernel.far),
        across_source("across", "acc_t", "joined(value, shuffled(value, offset))", "joined", lanes),
        _offset_function("kept", kernel.kept_axes),
        _offset_function("outer", kernel.outer_axes),
        f"\n{body}",
    ]
    return named_source(f"{reducer.name}_rows_{dtype}_x{width}_{stage.value}", "".join(code))


def _absorb(reducer: Reducer, dtype: str, places: dict[str, object]) -> str:
    """Return statements that take in a vector of a row, or its words where these are bytes that are added or multiplied."""
    width = int(str(places["width"]))
    if reducer.located:
        first, item = _taken(dtype, width, item="0"), _taken(dtype, width)
        return fill(_ROWS["absorb_located"], **places, first=first, item=item, wanted=reducer.wanted)
    if reducer.adds_bytes(dtype):
        return fill(_ROWS["absorb_sum_of_bytes"], **places, words=width // 4)
    if reducer.product_type(dtype):
        return fill(_ROWS["absorb_product_of_bytes"], **places, words=width // FACTORS, factors=FACTORS)
    return fill(_ROWS["absorb"], **places, item=loaded(dtype, "loaded.item[k]"))


def column_source(reducer: Reducer, dtype: str, result: str, kernel: ColumnKernel, stage: Pass, *, add: bool = False) -> KernelSource:
    """Return a kernel of columns: ``(x, out, columns, results, tiles, size, share, count, kept axes..., reduced axes...)``.

    ``size`` elements of each column, up to ``share`` of them in a block, are joined, into the result of ``count`` elements (in the final
    pass more than ``size``). There are ``results`` columns on all kept axes together, ``columns`` on the innermost one; a tile is what
    stands side by side in a block.
    """
    width, across, down, final = kernel.width, kernel.across, THREADS // kernel.across, stage is Pass.FINAL
    held = "acc_t" if final else STORAGE[dtype]
    load_bytes = width * (accumulator_bytes(reducer, dtype, far=kernel.far) if final else np.dtype(dtype).itemsize)
    room = room_of_columns(reducer, width, load_bytes)
    keyed = is_keyed(reducer, dtype, width) and not final
    part, join = ("key_t", "better_key") if keyed else ("acc_t", "joined")
    kept, reduced = _axis_names("kept", kernel.kept_axes), _axis_names("reduced", kernel.reduced_axes)
    parts, stepping = min(down, _MOST_PARTS), kernel.reduced_axes == 1
    places = {"width": width, "down": down, "held": held, "loads": room.loads}
    body = fill(
        _COLUMNS["kernel"],
        **places,
        **_take(reducer, dtype, kernel, stage, room.loads),
        across=across,
        of_block=across * width,
        threads=THREADS,
        blocks=room.blocks,
        out=_out_type(stage, result),
        axes=_axis_parameters("kept", kernel.kept_axes) + _axis_parameters("reduced", kernel.reduced_axes),
        place=f"kept_offset(result / columns{kept}) + result % columns" if kernel.kept_axes else "result",
        own="key_t" if keyed else "acc_t" if final else "own_t",
        none="no_key()" if keyed else "identity()",
        begin_stepping=fill(_COLUMNS["begin_stepping"], **places) if stepping else "",
        rolled=_COLUMNS["rolled"] if load_bytes > 4 else "",
        of_batch=room.loads * down,
        load="at + b * step" if stepping else f"from + reduced_offset(i + b * {down}{reduced})",
        else_one=_COLUMNS["else_one"] if reducer.product_type(dtype) and not final else "\n",
        step=fill(_COLUMNS["step"], **places) if stepping else "\n",
        part=part,
        join=join,
        padded=THREADS + 32 // width,
        half=THREADS // 2,
        left=across * parts,
        parts=parts,
        best="found(best, first)" if keyed else "best",
        write=write(stage, result, "target", "value", "count", add=add),
    )
    code = [
        prelude(reducer, dtype, result, far=kernel.far),
        _byte_keys(reducer, dtype) if keyed else "",
        _offset_function("kept", kernel.kept_axes),
        _offset_function("reduced", kernel.reduced_axes),
        f"\n{body}",
    ]
    return named_source(f"{reducer.name}_columns_{dtype}_x{width}_{stage.value}", "".join(code))


def _take(reducer: Reducer, dtype: str, kernel: ColumnKernel, stage: Pass, loads: int) -> dict[str, object]:
    """Return the code that joins loaded elements: a load at a time, or several where bytes are multiplied."""
    places = {"width": kernel.width, "down": THREADS // kernel.across, "element": STORAGE[dtype]}
    at_once, find_nan = 1, ""
    if stage is Pass.FINAL:
        take = "\n" + fill(_COLUMNS["take_accumulators"], **places)
    elif is_keyed(reducer, dtype, kernel.width):
        take = fill(_COLUMNS["take_keys"], **places)
    elif reducer.adds_bytes(dtype) and kernel.width % 4 == 0:
        take = "\n" + fill(_COLUMNS["take_sum_of_bytes"], **places)
    elif reducer.product_type(dtype):
        factors = max(few for few in range(1, FACTORS + 1) if loads % few == 0)
        at_once = factors if loads % (2 * factors) else 2 * factors
        first, other = _taken(dtype, kernel.width, load="few"), _taken(dtype, kernel.width, load="few + f")
        take = "\n" + fill(_COLUMNS["take_product_of_bytes"], **places, at_once=at_once, factors=factors, first=first, other=other)
    else:
        item, absorbed = loaded(dtype, "loaded.item[k]"), "absorbed_number" if reducer.located else "absorbed"
        take = fill(_COLUMNS["take"], **places, absorbed=absorbed, item=item)
        if reducer.located and dtype in FLOATS:
            find_nan = fill(_COLUMNS["find_nan"], **places, reduced=_axis_names("reduced", kernel.reduced_axes), item=item)
    return {"take": take, "at_once": at_once, "find_nan": find_nan}


def _byte_keys(reducer: Reducer, dtype: str) -> str:
    """Return ``key_t``, ``no_key``, ``under`` (the bits below the byte in a key), ``better_key``, ``keyed`` and ``found``."""
    signed, largest, most = dtype == "int8", reducer.wanted == "larger", f"{MOST_KEYED:#x}"
    none = ("-0x7fffffff - 1" if signed else "0u") if largest else ("0x7fffffff" if signed else "0xffffffffu")
    kind, turned, beyond = "int" if signed else "unsigned", f"{most}u - " if largest else "", ">" if largest else "<"
    return fill(_COLUMNS["byte_keys"], type=kind, none=none, turned=turned, beyond=beyond, most=most)


@lru_cache(maxsize=1024)
def across_source(name: str, kind: str, shuffled: str, join: str, lanes: int) -> str:
    """Return a function, to be called once, that joins a value of each thread that shares a row; all of them get the result."""
    places = {"type": kind, "lanes": lanes, "warps": max(THREADS, lanes) // 32, "warps_of_row": lanes // 32, "join": join}
    across_warps = fill(_SHARED["across_warps"], **places) if lanes > 32 else ""
    return fill(_SHARED["across"], type=kind, name=name, half=min(lanes, 32) // 2, shuffled=shuffled, across_warps=across_warps)


@lru_cache(maxsize=1024)
def prelude(reducer: Reducer, dtype: str, result: str, *, far: bool) -> str:
    """Return the prologue of a kernel: types, and the functions that join elements."""
    return vector_types(dtype, result) + _SHARED["waiting"] + reducer_source(reducer, dtype, far=far)


def _axis_parameters(role: str, count: int) -> str:
    """Return the parameters of a function that say extent and stride of each axis."""
    return "".join(f", long long {role}_extent_{axis}, long long {role}_stride_{axis}" for axis in range(count))


def _axis_names(role: str, count: int) -> str:
    """Return the arguments for them."""
    return "".join(f", {role}_extent_{axis}, {role}_stride_{axis}" for axis in range(count))


@lru_cache(maxsize=1024)
def _offset_function(role: str, count: int) -> str:
    """Return a function from the index of an element, counted over some axes, to its distance from their first element."""
    steps = "".join(fill(_SHARED["offset_step"], axes=role, axis=axis) for axis in range(count - 1, 0, -1))
    innermost = f" + index * {role}_stride_0" if count else ""
    return fill(_SHARED["offset"], axes=role, parameters=_axis_parameters(role, count), steps=steps, innermost=innermost)


def _out_type(stage: Pass, result: str) -> str:
    """Return the C++ type of a kernel's output."""
    return "acc_t" if stage is Pass.PARTIAL else STORAGE[result]


def write(stage: Pass, result: str, index: str, value: str, count: str, *, add: bool) -> str:
    """Return the statement that leaves the accumulator ``value`` of ``count`` elements, finished or not."""
    if stage is Pass.PARTIAL:
        return f"out[{index}] = {value};"
    finished = f"finished({value}, {count})"
    return stored(result, f"out[{index}]", added(result, loaded(result, f"out[{index}]"), finished) if add else finished)


def _taken(dtype: str, width: int, *, load: str = "b", item: str = "k") -> str:
    """Return the C++ expression for an element of a load that is under way, ``batch[load]``: of bytes, in 32 bits."""
    if dtype in BYTES and width % 4 == 0:
        return f"byte_of(batch[{load}].word({item} / 4), {item} % 4)"
    return loaded(dtype, f"batch[{load}].values().item[{item}]")


_SHORT = pieces("reduce_short")

_OF_SHORT = Room(6, 5)
"""Where so many blocks have no room at once, the compiler says so in its log, and there are fewer."""


@dataclass(frozen=True)
class ShortKernel:
    """How a kernel of short pieces is laid out."""

    lanes: int
    """Threads that share a result in the end, a power of two up to 32."""
    single: bool
    """A piece is one row, and has one result."""
    words: bool
    """Smallest row that is read in words of 4 bytes: in shorter ones, the bytes before and after the words weigh too much."""


def elements_of_word(itemsize: int) -> int:
    """Return how many elements of so many bytes come in 4 bytes at once."""
    return max(1, 4 // itemsize)


def short_capacity(itemsize: int) -> int:
    """Return how many elements of so many bytes a block brings into shared memory, at most."""
    return THREADS * _OF_SHORT.loads * VECTOR_BYTES // itemsize


def short_lanes(reducer: Reducer, rows: int) -> int:
    """Return how many threads share a row, where a block has so many rows.

    Two to eight threads side by side often meet those of other rows in one bank of shared memory, and it is better that some have no work.
    To look for an index costs more instructions, so all are needed.
    """
    lanes = min(32, 1 << max(1, THREADS // rows).bit_length() - 1)
    if reducer.located or lanes == 1:
        return lanes
    return 1 if rows >= THREADS // 4 else max(16, lanes)


def short_source(reducer: Reducer, dtype: str, result: str, kernel: ShortKernel, *, add: bool = False) -> KernelSource:
    """Return a kernel of short pieces without gaps: ``(x, out, pieces, pieces of a block, size, columns, reciprocal)``.

    Each piece is ``size`` rows of ``columns`` elements, of which come as many results; or, the last two arguments left out, it is one row
    of ``size`` elements. The reciprocal is 2^32 over the columns, rounded up. The pieces of a block are at most `short_capacity` elements,
    and a whole number of vectors, so that those of all blocks begin at the same distance from a vector.
    """
    itemsize, lanes, element, single = np.dtype(dtype).itemsize, kernel.lanes, STORAGE[dtype], kernel.single
    width, of_word = VECTOR_BYTES // itemsize, elements_of_word(itemsize) if kernel.words else 1
    if not single:
        take = fill(_SHORT["take_column"], element=element, item=loaded(dtype, "column[i * row]"))
    elif of_word == 1:
        take = fill(_SHORT["take_row"], lanes=lanes, item=loaded(dtype, "elements[start + i]"))
    else:
        take = fill(
            _SHORT["take_words_of_row"],
            lanes=lanes,
            last_lane=lanes - 1,
            element=element,
            of_word=of_word,
            last_of_word=of_word - 1,
            item_before=loaded(dtype, "elements[start + i]"),
            item=loaded(dtype, "few.item[k]"),
            item_after=loaded(dtype, "elements[start + after + i]"),
        )
    body = fill(
        _SHORT["kernel"],
        lanes=lanes,
        threads=THREADS,
        blocks=_OF_SHORT.blocks,
        element=element,
        out=STORAGE[result],
        columns="" if single else ", long long columns, long long reciprocal",
        width=width,
        most_vectors=short_capacity(itemsize) // width + 1,
        row=1 if single else "columns",
        loads=_OF_SHORT.loads,
        at_once=THREADS // lanes,
        take=take,
        write=write(Pass.WHOLE, result, "first * row + target", "value", "size", add=add),
    )
    across = across_source("across", "acc_t", "joined(value, shuffled(value, offset))", "joined", lanes)
    readable = f"{reducer.name}_short_{'rows' if single else 'columns'}_{dtype}"
    return named_source(readable, f"{prelude(reducer, dtype, result, far=False)}{across}\n{body}")
