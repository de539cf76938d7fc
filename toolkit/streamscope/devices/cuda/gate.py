"""A gate that holds streams on a word of page-locked memory until the host writes to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamscope.devices.cuda.driver import checked, libraries
from streamscope.devices.cuda.streams import CudaStream

_GREATER_OR_EQUAL = 0  # CU_STREAM_WAIT_VALUE_GEQ


class GateWord:
    """The word that all gates of a device share: a gate is open once the word has reached its number."""

    def __init__(self) -> None:
        self.memory: Any = libraries().cupy.cuda.alloc_pinned_memory(4)
        self.word = np.frombuffer(self.memory, np.uint32, 1)
        self.word[0] = 0
        self.last = 0

    def gate(self) -> CudaGate:
        """Make the next gate, closed."""
        self.last += 1
        return CudaGate(self, self.last)


class CudaGate:
    """Holds streams until it is opened. Gates open in the order in which they were made."""

    def __init__(self, shared: GateWord, number: int) -> None:
        self._shared = shared
        self._number = number

    def hold(self, stream: CudaStream) -> None:
        """Let everything put on the stream from now on wait for `open`."""
        cuda = libraries().cuda
        address = self._shared.memory.ptr
        checked(cuda.cuStreamWaitValue32(stream.binding, address, self._number, _GREATER_OR_EQUAL))

    def open(self) -> None:
        """Let the held streams go."""
        self._shared.word[0] = max(self._number, int(self._shared.word[0]))
