"""Where stamped kernels write: memory for the stamps of their blocks, of each launch its own."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamscope.devices.cuda.memory import CudaBuffer
from streamscope.kernels.source import STAMP_WORDS, KernelSource, stamped
from streamscope.program.variable import ArraySpec, MemoryPlace

if TYPE_CHECKING:
    from streamscope.devices.cuda.device import CudaDevice

MOST_BLOCKS = 1 << 20
"""Blocks of a kernel that is stamped; one with more writes no stamps. Their stamps take 24 MiB."""
_CHUNK_BLOCKS = 1 << 13


@dataclass(frozen=True)
class Slots:
    """Where one kernel's blocks write."""

    symbol: str
    """The kernel's name without stamps."""
    owner: tuple[int, int]
    """Operation and part of the launch that it belongs to."""
    blocks: int
    threads: int
    """Of the grid, and of each block."""
    chunk: int
    first: int
    """Which piece of memory, and which row of it is its first block's."""


class StampMemory:
    """The stamps of all kernels that are bound for it (see `CudaDevice.stamping`)."""

    def __init__(self, device: CudaDevice) -> None:
        self.slots: list[Slots] = []
        """Of each kernel, in the order in which they were bound. A kernel that is launched again writes to the same place."""
        self.too_large: set[tuple[int, int]] = set()
        """Owners of kernels of more than `MOST_BLOCKS` blocks, which have no slots."""
        self._device = device
        self._chunks: list[CudaBuffer] = []
        self._used = 0

    def stamping(
        self, source: KernelSource, owner: tuple[int, int], blocks: int, threads: int, arguments: Sequence[Any]
    ) -> tuple[KernelSource, Sequence[Any]]:
        """Return the stamped form of a kernel and its arguments, with slots of its own; a kernel of too many blocks as it is."""
        if blocks > MOST_BLOCKS:
            self.too_large.add(owner)
            return source, arguments
        if not self._chunks or self._used + blocks > self._chunks[-1].spec.shape[0]:
            spec = ArraySpec((max(_CHUNK_BLOCKS, blocks), STAMP_WORDS), np.dtype(np.int64))
            # Never moved or grown: bound kernels have the addresses of their rows.
            self._chunks.append(self._device.allocate(spec, MemoryPlace.DEVICE))
            self._used = 0
        slots = Slots(source.name, owner, blocks, threads, len(self._chunks) - 1, self._used)
        self.slots.append(slots)
        self._used += blocks
        address = self._chunks[-1].pointer + 8 * STAMP_WORDS * slots.first
        return stamped(source), [*arguments, ctypes.c_void_p(address)]

    def clear(self) -> None:
        """Forget all stamps; the device must be idle."""
        for chunk in self._chunks:
            self._device.write(chunk, np.zeros(chunk.spec.shape, np.int64))

    def read(self) -> list[npt.NDArray[np.int64]]:
        """Return the stamps of each of ``slots``: rows of start and end on the device's timer, in ns, and multiprocessor; zeros: not run.

        The device must be idle.
        """
        chunks = [self._device.read(chunk) for chunk in self._chunks]
        return [chunks[slots.chunk][slots.first : slots.first + slots.blocks] for slots in self.slots]
