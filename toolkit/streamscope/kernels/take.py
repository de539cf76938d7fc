"""Kernels of elements at indices, and of their gradient: the values for ``cuda/take.cuh``."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.form import THREADS, VECTOR_BYTES
from streamscope.kernels.layout import INDEX32_LIMIT
from streamscope.kernels.source import COMPUTE, STORAGE, KernelSource, PlannedKernel, loaded, named_source, stored, vector_types

_CUDA = pieces("take")

_NAN = {
    "float16": "__int_as_float(0x7fc00000)",
    "float32": "__int_as_float(0x7fc00000)",
    "float64": "__longlong_as_double(0x7ff8000000000000LL)",
}


@dataclass(frozen=True)
class TakenShape:
    """Extents of ``x[outer, count, inner]`` and of ``indices[places]``, and their dtypes."""

    outer: int
    count: int
    inner: int
    places: int
    dtype: str
    index: str

    def vector(self, *, aligned: bool) -> int:
        """Return how many elements a thread takes."""
        most = VECTOR_BYTES // np.dtype(self.dtype).itemsize
        return most if aligned and self.inner % most == 0 else 1

    @property
    def wide(self) -> bool:
        """Whether indices of elements need 64 bits."""
        return self.outer * self.inner * max(self.count, self.places) >= INDEX32_LIMIT - THREADS

    @property
    def number(self) -> type[c_int | c_longlong]:
        """C type of extents."""
        return c_longlong if self.wide else c_int


def planned_take(shape: TakenShape, *, aligned: bool) -> PlannedKernel:
    """Return the kernel ``(x, indices, out, ...)``."""
    vector = shape.vector(aligned=aligned)
    size = shape.outer * shape.places * shape.inner // vector
    source = partial(_source, "forward", shape.dtype, shape.index, vector, wide=shape.wide)
    return PlannedKernel(source, -(-size // THREADS), THREADS, (size, shape.count, shape.places, shape.inner // vector), shape.number)


def planned_take_gradient(shape: TakenShape, *, aligned: bool) -> PlannedKernel:
    """Return the kernel ``(indices, dy, out, ...)``."""
    vector = shape.vector(aligned=aligned)
    inner = shape.inner // vector
    parts = -(-inner // THREADS)
    source = partial(_source, "backward", shape.dtype, shape.index, vector, wide=shape.wide)
    return PlannedKernel(source, shape.outer * shape.count * parts, THREADS, (parts, shape.count, shape.places, inner), shape.number)


@lru_cache(maxsize=256)
def _source(kind: str, dtype: str, index: str, vector: int, *, wide: bool) -> KernelSource:
    places = fill(_CUDA["places"], real=COMPUTE[dtype], index="long long" if wide else "int", number=STORAGE[index])
    common = {"threads": THREADS, "element": STORAGE[dtype], "number": STORAGE[index], "vector": vector}
    if kind == "forward":
        kernel = fill(_CUDA[kind], **common, missing=stored(dtype, "result.item[k]", _NAN.get(dtype, "0")))
    else:
        value, write = loaded(dtype, "values.item[k]"), stored(dtype, "result.item[k]", "total[k]")
        kernel = fill(_CUDA[kind], **common, value=value, write=write)
    title = f"take{'_gradient' * (kind == 'backward')}_{dtype}_{index}_x{vector}{'_wide' * wide}"
    return named_source(title, f"{vector_types(dtype)}{places}\n{kernel}")
