"""Arrays joined along an axis by one kernel. It copies the longest words that source and target allow, whatever the dtype."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

from streamscope.errors import DeviceError
from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.form import THREADS, VECTOR_BYTES
from streamscope.kernels.layout import INDEX32_LIMIT, divisor, one_stride
from streamscope.kernels.source import VECTORS, KernelSource, named_source
from streamscope.program.launch import CudaBench, CudaCall
from streamscope.program.view import row_major

_CUDA = pieces("concatenate")

MOST_PARTS = 32
"""Arrays of one kernel; it compares with where each of them begins."""


@dataclass(frozen=True)
class Rows:
    """One array as a matrix whose rows are parts of the result's rows."""

    count: int
    width: int
    apart: int
    """Its rows, the elements of each, and the elements from one row to the next."""


def rows_of(shape: Sequence[int], strides: Sequence[int], axis: int) -> Rows | None:
    """Return an array as the matrix that joining along an axis takes it for; None where its rows have gaps, or lie at several distances."""
    apart = one_stride(shape[:axis], strides[:axis])
    if tuple(strides[axis:]) != row_major(shape[axis:]) or apart is None or apart < 0:
        return None
    return Rows(math.prod(shape[:axis]), math.prod(shape[axis:]), apart)


@dataclass(frozen=True)
class Joined:
    """The kernel that joins some matrices."""

    parts: tuple[Rows, ...]
    """In words."""
    bytes: int
    """Of a word."""

    @property
    def size(self) -> int:
        """Words of the result."""
        return sum(part.count * part.width for part in self.parts)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return -(-self.size // THREADS)

    @property
    def numbers(self) -> list[int]:
        """The fields of the struct ``parts``, in order."""
        widths = [part.width for part in self.parts]
        columns = sum(widths)
        magic, shift = divisor(columns) if columns < INDEX32_LIMIT else (0, 0)
        return [columns, magic, shift, *accumulate(widths[:-1], initial=0), *(part.apart for part in self.parts)]

    @cached_property
    def source(self) -> KernelSource:
        """The kernel's source."""
        row = "one" if self.parts[0].count == 1 else "32" if self.size < INDEX32_LIMIT else "64"
        return _source(len(self.parts), self.bytes, row)


def joined(parts: Sequence[Rows], itemsize: int, addresses: Sequence[int]) -> Joined:
    """Return the kernel for matrices with elements, which it copies as the longest words that fit where they, and the result, begin."""
    apart = [part.apart for part in parts if part.count > 1]
    together = math.gcd(VECTOR_BYTES, *addresses, *(itemsize * number for number in (*(part.width for part in parts), *apart)))
    elements = together // itemsize
    return Joined(tuple(Rows(part.count, part.width // elements, part.apart // elements) for part in parts), together)


@dataclass(frozen=True)
class ConcatenateCall:
    """Prepares the launch of a concatenation: a `Launch.cuda`."""

    axis: int
    """Along which the arrays are joined."""

    def __call__(self, bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
        """Prepare the launch; arrays without elements have no part in it."""
        (out,), arrays = writes, [array for array in reads if array.size]
        kernel = joined([self._rows(array) for array in arrays], out.itemsize, [array.data.ptr for array in (*arrays, out)])
        numbers = (ctypes.c_longlong * len(kernel.numbers))(*kernel.numbers)
        return bench.kernel(kernel.source, kernel.blocks, THREADS, [*arrays, out, ctypes.c_longlong(kernel.size), numbers])

    def _rows(self, array: Any) -> Rows:
        rows = rows_of(array.shape, [step // array.itemsize for step in array.strides], self.axis)
        if rows is None:
            raise DeviceError(
                f"an array of shape {array.shape} with strides {array.strides} cannot be joined as it lies", hint="copy it first"
            )
        return rows


@lru_cache(maxsize=1024)
def _source(count: int, nbytes: int, row: str) -> KernelSource:
    code = fill(
        _CUDA["concatenate"],
        bytes=nbytes,
        count=count,
        threads=THREADS,
        parameters=", ".join(f"const word_t* in_{part}" for part in range(count)),
        row=_CUDA[f"row_of_{row}"],
        choices="".join(fill(_CUDA["choice"], part=part) for part in range(1, count)),
    )
    return named_source(f"concatenate_{count}_x{nbytes}{'' if row == '32' else f'_{row}'}", f"{VECTORS}\n{code}")
