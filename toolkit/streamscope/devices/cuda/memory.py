"""Memory of a CUDA device: CuPy's on the device, page-locked memory on the host; and memory for allocations of users' operators.

Blocks come from CuPy's pool rather than straight from ``cudaMalloc``. A block that Python lets go while a thread captures then goes
back without a call to CUDA, which would break the capture. Memory that lies idle in CuPy's pool is used before new memory is
asked for. Where the user has set another allocator for CuPy, it is ours as well.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from streamscope.errors import DeviceError
from streamscope.interrupts import when_gone
from streamscope.kernels.library.libraries import cuda_errors, libraries
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.program.view import View


@dataclass(frozen=True)
class CudaBlock:
    """Memory without a shape: a CuPy memory pointer (device) or a page-locked one (host)."""

    nbytes: int
    place: MemoryPlace
    memory: Any
    gpu: int = 0
    """The GPU whose memory it is; 0 for the host's."""


@dataclass(frozen=True)
class CudaBuffer:
    """Memory of one variable: a CuPy array (device) or a NumPy array over page-locked memory (host)."""

    spec: ArraySpec
    place: MemoryPlace
    array: Any
    gpu: int = 0
    """The GPU whose memory it is; 0 for the host's."""

    @property
    def pointer(self) -> int:
        """Address of the memory."""
        return int(self.array.data.ptr if self.place is MemoryPlace.DEVICE else self.array.ctypes.data)

    def seen(self, view: View | None) -> CudaBuffer:
        """Return the buffer as a view has it; on the same memory."""
        if view is None:
            return self
        if self.place is MemoryPlace.HOST:
            return replace(self, spec=view.spec, array=view.of(self.array))
        itemsize = view.spec.dtype.itemsize
        strides = tuple(itemsize * stride for stride in view.strides)
        start = self.array.data + view.offset * itemsize
        array = libraries().cupy.ndarray(view.spec.shape, view.spec.dtype, memptr=start, strides=strides)
        return replace(self, spec=view.spec, array=array)


def allocate_block(nbytes: int, place: MemoryPlace, gpu: int = 0) -> CudaBlock:
    """Allocate memory on CuPy's current device, which is GPU ``gpu`` of ours, or page-locked memory on the host."""
    cuda = libraries().cupy.cuda
    with cuda_errors(f"allocating {nbytes:,} bytes of {place.value} memory"):
        memory = cuda.alloc(max(1, nbytes)) if place is MemoryPlace.DEVICE else cuda.alloc_pinned_memory(max(1, nbytes))
    return CudaBlock(nbytes, place, memory, gpu if place is MemoryPlace.DEVICE else 0)


def buffer_on(block: CudaBlock, spec: ArraySpec) -> CudaBuffer:
    """Use a block for an array."""
    if block.nbytes < spec.nbytes:
        raise DeviceError(f"a block of {block.nbytes:,} bytes cannot hold {spec}, which takes {spec.nbytes:,}")
    if block.place is MemoryPlace.DEVICE:
        return CudaBuffer(spec, block.place, libraries().cupy.ndarray(spec.shape, spec.dtype, memptr=block.memory), block.gpu)
    return CudaBuffer(spec, block.place, np.frombuffer(block.memory, spec.dtype, spec.size).reshape(spec.shape))


class TemporaryMemory:
    """Memory for allocations of users' operators through CuPy while they run on one stream.

    A captured operator's temporaries have been freed by the time its graph is replayed, and the graph still writes to them. In CuPy's
    common pool somebody else would get that memory. Here only operators on the same stream can, whose work comes before or
    after the graph; and it is kept as long as the stream is, or an array in it.

    The pool takes its memory from CuPy's, see above.

    ``on``: makes the stream's GPU the current one in a block, the only one whose memory CuPy's pools count and give back.
    """

    def __init__(self, on: AbstractContextManager[Any]) -> None:
        cupy = libraries().cupy
        self._cuda, self._on = cupy.cuda, on
        self._pool = _Pool(cupy.cuda.MemoryPool(cupy.get_default_memory_pool().malloc), on)

    @property
    def nbytes(self) -> int:
        """Bytes that the pool holds: the most that was needed at a time, but for fragments."""
        with self._on:
            return int(self._pool.blocks.total_bytes())

    def malloc(self, nbytes: int) -> Any:
        """Allocate as CuPy's allocators do; the memory keeps the pool, which would else take it along when it goes."""
        pointer = self._pool.blocks.malloc(nbytes)
        owned = self._cuda.UnownedMemory(pointer.ptr, nbytes, _Owner(pointer, self._pool), pointer.device_id)
        return self._cuda.MemoryPointer(owned, 0)


class _Pool:
    """A pool of CuPy's that gives its memory back when nobody needs it any more; CuPy's own does not where it draws from another pool."""

    def __init__(self, blocks: Any, on: AbstractContextManager[Any]) -> None:
        self.blocks = blocks
        when_gone(self, partial(_free, blocks, on))


def _free(blocks: Any, on: AbstractContextManager[Any]) -> None:
    """Give the memory of a pool back to the pool that it came from."""
    with on:
        blocks.free_all_blocks()


class _Owner:
    """Keeps a piece of memory, and its pool for longer."""

    def __init__(self, pointer: Any, pool: _Pool) -> None:
        when_gone(self, [pool, pointer].pop)  # The piece goes before the pool, which then has it back.
