"""Source of the reduction kernel for short pieces that no vectors fit: a block brings many of them into shared memory, by whole vectors.

A piece is a short row, or some short rows that are added to each other. Loaded by itself, each row would begin and end with elements loaded
one by one, which takes the most time of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamscope.kernels.named_source import PLACE_OF_NAME, named_source
from streamscope.kernels.reduce.reducers_source import Reducer
from streamscope.kernels.reduce.reduction_source import THREADS, Room, Stage, across_source, prelude, write
from streamscope.kernels.source import KernelSource
from streamscope.kernels.types_source import STORAGE, loaded

ROOM = Room(6, 5)
"""Measured on an H200; where so many blocks have no room at once, the compiler says so in its log, and there are fewer."""
VECTOR_BYTES = 16


@dataclass(frozen=True)
class ShortKernel:
    """How a kernel of short pieces is laid out.

    Attributes
    ----------
    lanes : int
        Threads that share a result in the end, a power of two up to 32.
    single : bool
        A piece is one row, and has one result.
    words : bool
        Rows are taken in words of 4 bytes, but for what is before and after them, which rows of few elements have too much of.
    """

    lanes: int
    single: bool
    words: bool


def elements_of_word(itemsize: int) -> int:
    """Return how many elements of so many bytes come in 4 bytes at once."""
    return max(1, 4 // itemsize)


def short_capacity(itemsize: int) -> int:
    """Return how many elements of so many bytes a block brings into shared memory, at most."""
    return THREADS * ROOM.loads * VECTOR_BYTES // itemsize


def short_lanes(reducer: Reducer, rows: int) -> int:
    """Return how many threads share a row, where a block has so many rows.

    Two to eight threads side by side often meet those of other rows in one bank of shared memory, and it is better that some have no work;
    to look for an index costs more instructions, so that all are needed.
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
    width, columns = VECTOR_BYTES // itemsize, "" if single else ", long long columns, long long reciprocal"
    across = across_source("across", "acc_t", "joined(value, shuffled(value, offset))", "joined", lanes)
    body = f"""{across}
// A block reduces some pieces; {lanes} threads share each result.
extern "C" __global__ void __launch_bounds__({THREADS}, {ROOM.blocks})
{PLACE_OF_NAME}(const {element}* x, {STORAGE[result]}* out, long long pieces, long long of_block, long long size{columns})
{{
    __shared__ vector<{element}, {width}> vectors[{short_capacity(itemsize) // width + 1}];
    {element}* elements = vectors[0].item;
    const int length = size, row = {1 if single else "columns"}, piece = length * row;
    const long long first = blockIdx.x * of_block;
    const int results = least(of_block, pieces - first) * row;
    // The elements have the distance from vectors that they have in memory.
    const int begin = (unsigned long long)(x + first * piece) / sizeof({element}) % {width}, end = begin + results * length;
    const {element}* from = x + first * piece - begin;
    const int first_vector = begin > 0, end_vector = end / {width};
    waiting<{width}, {element}> batch[{ROOM.loads}];
    #pragma unroll
    for (int b = 0; b < {ROOM.loads}; ++b) {{
        const int v = first_vector + threadIdx.x + b * {THREADS};
        if (v < end_vector) batch[b].fetch(from + v * {width});
    }}
    #pragma unroll
    for (int b = 0; b < {ROOM.loads}; ++b) {{
        const int v = first_vector + threadIdx.x + b * {THREADS};
        if (v < end_vector) batch[b].keep(&vectors[v]);
    }}
    if (threadIdx.x < {width}) {{
        const int before = threadIdx.x, after = end_vector * {width} + threadIdx.x;
        if (first_vector && before >= begin && before < end) elements[before] = from[before];
        if (end_vector >= first_vector && after < end) elements[after] = from[after];
    }}
    __syncthreads();
    const int lane = threadIdx.x % {lanes};
    for (int passed = 0; passed < results; passed += {THREADS // lanes}) {{
        const int target = passed + threadIdx.x / {lanes};
        const bool valid = target < results;
        own_t acc = identity();
{_take_row(dtype, lanes, elements_of_word(itemsize) if kernel.words else 1) if single else _take_column(dtype)}\
        const acc_t value = across(acc);
        if (lane == 0 && valid) {{
            {write(Stage.WHOLE, result, "first * row + target", "value", "size", add=add)}
        }}
    }}
}}
"""
    readable = f"{reducer.name}_short_{'rows' if single else 'columns'}_{dtype}"
    return named_source(readable, prelude(reducer, dtype, result, far=False) + body)


def _take_row(dtype: str, lanes: int, of_word: int) -> str:
    """Return statements that take in a thread's elements of the row ``target``, so many at once."""
    start = "const int start = begin + target * length, last = valid ? length : 0;"
    if of_word == 1:
        return f"""\
        {start}
        #pragma unroll 4
        for (int i = lane; i < last; i += {lanes}) acc = absorbed(acc, {loaded(dtype, "elements[start + i]")}, i);
"""
    return f"""\
        {start}
        const int head = least(last, -start & {of_word - 1}), words = (last - head) / {of_word}, after = head + words * {of_word};
        #pragma unroll
        for (int i = 0; i < {of_word - 1}; ++i)
            if (i < head && lane == 0) acc = absorbed(acc, {loaded(dtype, "elements[start + i]")}, i);
        #pragma unroll 2
        for (int word = lane; word < words; word += {lanes}) {{
            const int i = head + word * {of_word};
            const vector<{STORAGE[dtype]}, {of_word}> few = fetched<{of_word}>(elements + start + i);
            #pragma unroll
            for (int k = 0; k < {of_word}; ++k) acc = absorbed(acc, {loaded(dtype, "few.item[k]")}, i + k);
        }}
        #pragma unroll
        for (int i = 0; i < {of_word - 1}; ++i)
            if (after + i < last && lane == {lanes - 1}) acc = absorbed(acc, {loaded(dtype, "elements[start + after + i]")}, after + i);
"""


def _take_column(dtype: str) -> str:
    """Return statements that take in the elements of the column ``target``, counted over all pieces of the block."""
    # Both factors are below 2^16, so that the quotient is exact (Granlund and Montgomery, 1994).
    return f"""\
        const int quotient = (unsigned long long)target * (unsigned)reciprocal >> 32, last = valid ? length : 0;
        const {STORAGE[dtype]}* column = elements + begin + quotient * piece + target - quotient * row;
        #pragma unroll 4
        for (int i = 0; i < last; ++i) acc = absorbed(acc, {loaded(dtype, "column[i * row]")}, i);
"""
