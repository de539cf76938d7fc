"""Copies of strided views into contiguous memory. Bits are copied, whatever the dtype."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.elementwise.specialization import bind, specialized_fresh
from streamscope.kernels.form import THREADS
from streamscope.kernels.layout import StridedLayout, compact
from streamscope.kernels.signature import Parameter, Signature
from streamscope.kernels.source import VECTORS, KernelSource, named_source
from streamscope.program.launch import CudaBench, CudaCall
from streamscope.program.variable import ArraySpec
from streamscope.program.view import View, row_major

_CUDA = pieces("transpose")

_WORDS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
"""Dtype of the whole numbers that elements of so many bytes are copied as."""
_EDGE = 32
"""Of a tile, in elements: neighbours that a warp reads, or writes, together."""
_LEAST = 16
"""Along shorter axes, most of a tile would be empty."""
_MOST_BLOCKS = 2**31 - 1


@dataclass(frozen=True)
class Tiled:
    """A transpose by tiles."""

    layout: StridedLayout
    """Of the source, and of the target."""
    source_axis: int
    """Along which elements follow each other where they are read; where they are written, that is the last one."""

    @property
    def others(self) -> list[int]:
        """The axes that tiles do not have."""
        return [axis for axis in range(self.layout.rank - 1) if axis != self.source_axis]

    @property
    def tiles(self) -> tuple[int, int]:
        """How many tiles there are along both axes."""
        extents = self.layout.extents
        return -(-extents[self.source_axis] // _EDGE), -(-extents[-1] // _EDGE)

    @property
    def blocks(self) -> int:
        """Blocks of the grid: one a tile."""
        return math.prod(self.tiles) * math.prod(self.layout.extents[axis] for axis in self.others)

    @property
    def numbers(self) -> list[int]:
        """The fields of the struct ``layout``, in order."""
        extents, (read, written) = self.layout.extents, self.layout.strides
        both = [extents[self.source_axis], extents[-1], read[-1], written[self.source_axis], *self.tiles]
        return [*both, *(numbers[axis] for numbers in (extents, read, written) for axis in self.others)]


def tiled(layout: StridedLayout) -> Tiled | None:
    """Return how a copy goes by tiles, if it is a transpose: read along one axis, written along another."""
    read, written = layout.strides
    if layout.rank < 2 or read[-1] in (0, 1) or 1 not in read or written[-1] != 1 or layout.size == 0:
        return None
    found = Tiled(layout, read.index(1))
    long = min(layout.extents[found.source_axis], layout.extents[-1]) >= _LEAST
    return found if long and found.blocks <= _MOST_BLOCKS else None


def tiled_view(view: View) -> Tiled | None:
    """Return how a view is copied to memory without gaps, if that is a transpose."""
    return tiled(compact(view.spec.shape, [view.strides, row_major(view.spec.shape)]))


@lru_cache(maxsize=256)
def _transpose_source(nbytes: int, others: int) -> KernelSource:
    code = fill(
        _CUDA["transpose"],
        bytes=nbytes,
        others=f", extent[{others}], read[{others}], written[{others}]" if others else "",
        threads=THREADS,
        edge=_EDGE,
        step=THREADS // _EDGE,
        outer=fill(_CUDA["outer"], last=others - 1) if others else "",
    )
    return named_source(f"transpose_x{nbytes}{f'_{others + 2}d' if others else ''}", f"{VECTORS}\n{code}")


@cache
def _copy_signature(itemsize: int) -> Signature:
    word = _WORDS[itemsize]
    return Signature("copy", (Parameter("x", word, word),), word, "x", word)


def copy_blocks(spec: ArraySpec) -> int:
    """Return the number of blocks that copy contiguous memory."""
    return specialized_fresh(_copy_signature(spec.dtype.itemsize), (spec.shape, spec.shape)).blocks


@dataclass(frozen=True)
class CopyCall:
    """Prepares the launch of a copy: a `Launch.cuda`."""

    shape: tuple[int, ...]
    """Shape of the source; the result may have another one, with the elements in the same order."""

    def __call__(self, bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
        """Prepare the launch."""
        source, out = reads[0], writes[0]  # What a part of a variable leaves as it is is not read.
        target = out.reshape(self.shape)
        strides = [[step // array.itemsize for step in array.strides] for array in (source, target)]
        turned = tiled(compact(self.shape, strides))
        if turned is None:
            return bind(bench, _copy_signature(source.itemsize), [source, target], {})
        kernel = _transpose_source(source.itemsize, len(turned.others))
        numbers = (ctypes.c_longlong * len(turned.numbers))(*turned.numbers)
        return bench.kernel(kernel, turned.blocks, THREADS, [source, target, numbers])
