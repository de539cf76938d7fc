"""The kernel of reductions of short pieces that no vectors fit, filled in from ``cuda/reduce_short.cuh``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.form import THREADS, VECTOR_BYTES
from streamscope.kernels.reduce.reducers import Reducer
from streamscope.kernels.reduce.reduction_kernels import Pass, Room, across_source, prelude, write
from streamscope.kernels.source import STORAGE, KernelSource, loaded, named_source

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
