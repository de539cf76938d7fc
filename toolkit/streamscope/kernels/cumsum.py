"""Kernels of cumulative sums: the choice for a shape, and the values for ``cuda/cumsum.cuh``."""

from __future__ import annotations

from functools import lru_cache, partial

from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.form import THREADS
from streamscope.kernels.reduce.reduction_plan import MULTIPROCESSORS
from streamscope.kernels.source import STORAGE, KernelSource, PlannedKernel, conversions_source, loaded, named_source, stored

_CUDA = pieces("cumsum")

_ITEMS = 8
"""Elements of a tile that a thread adds up by itself."""
_MANY_LINES = 16 * 1024
"""So many threads, one a line, have enough loads under way."""
_BLOCKS = 4 * MULTIPROCESSORS
_LEAST_TILES = 4
"""Tiles of a part: the sum of all before it takes about as long as a tile."""
_TILE_STAGES = 3
"""Barriers of a tile: read its elements, join the threads' sums, write the results."""

_SECTORS, _SECTORS_APART = 0.5, 2.0
"""Where a thread's elements follow each other, half find their sectors in the cache. Where they lie apart, none does, and a sector of which
a part is written is read before."""


def planned_cumsum(outer: int, count: int, inner: int, dtype: str, result: str, *, reverse: bool) -> tuple[PlannedKernel, ...]:
    """Return the kernel ``(x, out, ...)``, or two: ``(x, totals, ...)`` and ``(x, totals, out, ...)``."""
    lines, tile = outer * inner, THREADS * _ITEMS
    source = partial(_source, dtype=dtype, result=result, reverse=reverse)
    if inner > 1 and lines >= _MANY_LINES:
        blocks = -(-lines // THREADS)
        return (PlannedKernel(partial(source, "lines"), blocks, THREADS, (lines, count, inner), stages=max(1, count // 2)),)
    tiles = max(1, -(-count // tile))
    parts = max(1, min(tiles // _LEAST_TILES, _BLOCKS // max(1, lines)))
    of_part = -(-tiles // parts) * tile
    parts = max(1, -(-count // of_part))
    numbers, stages = (parts, of_part, count, inner), _TILE_STAGES * -(-min(of_part, count) // tile)
    sectors = _SECTORS_APART if inner > 1 else _SECTORS
    last = PlannedKernel(
        partial(source, "scan" if parts == 1 else "scan_of_parts"), lines * parts, THREADS, numbers, stages=stages, sectors=sectors
    )
    return (last,) if parts == 1 else (PlannedKernel(partial(source, "totals"), last.blocks, THREADS, numbers), last)


@lru_cache(maxsize=256)
def _source(kind: str, *, dtype: str, result: str, reverse: bool) -> KernelSource:
    # Whole numbers wrap, which C++ defines for unsigned ones.
    number = "unsigned long long" if result == "int64" else "float" if result == "float16" else STORAGE[result]
    written = "to = (long long)sum;" if result == "int64" else stored(result, "to", "sum")
    places = {"threads": THREADS, "element": STORAGE[dtype], "result": STORAGE[result]}
    arithmetic = fill(_CUDA["arithmetic"], **places, sum=number, loaded=f"sum_t({loaded(dtype, 'value')})", stored=written)
    in_parts = kind == "scan_of_parts"
    kernel = fill(
        _CUDA["scan" if in_parts else kind],
        **places,
        step="(count - 1 - i)" if reverse else "i",
        items=_ITEMS,
        totals=", const sum_t* totals" if in_parts else "",
        carry=fill(_CUDA["carry"], threads=THREADS) if in_parts else "",
    )
    across = "" if kind == "lines" else fill(_CUDA["across"], threads=THREADS)
    return named_source(f"cumsum_{kind}{'_reverse' * reverse}_{dtype}", f"{conversions_source((dtype,))}{arithmetic}{across}\n{kernel}")
