"""A gate that holds streams on a word of page-locked memory until the host writes to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamscope.devices.cuda.streams import CudaStream
from streamscope.devices.cuda.watchdog import Watchdog
from streamscope.errors import DeviceError
from streamscope.kernels.library.libraries import checked, libraries

_GREATER_OR_EQUAL = 0  # CU_STREAM_WAIT_VALUE_GEQ

WATCHDOG_S = 5.0
"""A gate opens by itself after so long: whoever waits for a stream that it holds would wait for ever, and could not be interrupted."""
_watchdog = Watchdog(WATCHDOG_S)


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
        self._holds = False
        self._late = False

    def hold(self, stream: CudaStream) -> None:
        """Let everything put on the stream from now on wait for `open`."""
        if not self._holds:
            self._holds = True
            _watchdog.arm(self, self._give_up)
        cuda = libraries().cuda
        address = self._shared.memory.ptr
        checked(cuda.cuStreamWaitValue32(stream.binding, address, self._number, _GREATER_OR_EQUAL))

    def open(self) -> None:
        """Let the held streams go.

        Raises
        ------
        DeviceError
            It has opened by itself, because it held them for too long.
        """
        self._let_go()
        _watchdog.disarm(self)
        late, self._late = self._late, False
        if late:
            raise DeviceError(
                f"a gate opened by itself after {WATCHDOG_S:g} s: something waited for a stream that it held",
                hint="what is put on a held stream must not synchronise",
            )

    def _let_go(self) -> None:
        self._shared.word[0] = max(self._number, int(self._shared.word[0]))

    def _give_up(self) -> None:
        self._late = True
        self._let_go()
