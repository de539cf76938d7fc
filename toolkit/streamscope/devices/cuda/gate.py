"""Gates: they hold streams on a word of page-locked memory until the host writes to it, or a watchdog does."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from streamscope.devices.cuda.captures import CAPTURES
from streamscope.devices.cuda.streams import CudaStream
from streamscope.errors import DeviceError
from streamscope.interrupts import when_gone
from streamscope.kernels.library.libraries import checked, libraries

WATCHDOG = "streamscope watchdog"
"""Name of its thread."""
_GREATER_OR_EQUAL = 0  # CU_STREAM_WAIT_VALUE_GEQ


class Watchdog:
    """Calls functions that are not called off within a time limit.

    One thread watches all of them, from the first on; it sleeps while there are none. Arming and disarming take well below a microsecond
    each, so that every launch that is timed can be guarded, which a `threading.Timer` for each would delay by a hundred.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._armed: dict[object, tuple[float, Callable[[], None]]] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def arm(self, key: object, action: Callable[[], None]) -> None:
        """Call ``action`` on the watchdog's thread after the time limit, unless ``key`` is disarmed before; arming anew begins anew."""
        self._armed[key] = (time.monotonic() + self.limit_s, action)
        self._wake.set()
        if self._thread is None or not self._thread.is_alive():  # not started yet, or in a forked process
            self._start()

    def disarm(self, key: object) -> bool:
        """Call an action off; tell whether it was not called yet. One that is not armed has not been called."""
        return self._armed.pop(key, None) is not None

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name=WATCHDOG, daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        while True:
            self._wake.wait()
            while self._armed:
                self._call_late()
                time.sleep(self.limit_s / 20)
            self._wake.clear()
            if self._armed:  # armed in between
                self._wake.set()

    def _call_late(self) -> None:
        now = time.monotonic()
        late = [key for key, (due, _) in self._armed.copy().items() if due <= now]
        for key in late:
            # Whoever takes it out has it: a key that is disarmed meanwhile is not called.
            _, action = self._armed.pop(key, (0.0, None))
            if action is not None:
                action()


_WATCHDOG_S = 5.0
"""A gate opens by itself after so long: whoever waits for a stream that it holds would wait for ever, and could not be interrupted."""
_watchdog = Watchdog(_WATCHDOG_S)


class GateWord:
    """The word that all gates of a device object share: a gate is open once the word has reached its number."""

    def __init__(self) -> None:
        self.memory: Any = libraries().cupy.cuda.alloc_pinned_memory(4)
        self.word = np.frombuffer(self.memory, np.uint32, 1)
        self.word[0] = 0
        self.last = 0

    def gate(self) -> CudaGate:
        """Make the next gate, closed."""
        self.last += 1
        return CudaGate(self, self.last)


_idle: deque[GateWord] = deque()


def gate_word(device: object) -> GateWord:
    """Return a word for a device object; the next one gets it when that has gone.

    Its memory is never freed, nor set back: a stream that has not got past an open gate yet would wait for ever.
    """
    try:
        word = _idle.pop()
    except IndexError:
        word = GateWord()
    when_gone(device, partial(_idle.append, word))
    return word


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
            # Both before the stream is held: a destructor that waits for the device behind a closed gate never returns.
            CAPTURES.forbid(self)
            _watchdog.arm(self, self._give_up)
        cuda = libraries().cuda
        address = self._shared.memory.ptr
        checked(cuda.cuStreamWaitValue32(stream.binding, address, self._number, _GREATER_OR_EQUAL))

    def open(self) -> None:
        """Let the held streams go."""
        self._let_go()
        # After the gate is open: this destroys what has waited, and that may wait for the device.
        CAPTURES.allow(self)
        _watchdog.disarm(self)
        # After disarming: until then the watchdog may still open the gate.
        late, self._late = self._late, False
        if late:
            raise DeviceError(
                f"a gate opened by itself after {_WATCHDOG_S:g} s: a call waited for the stream behind it",
                hint="work queued behind a gate must not synchronise",
            )

    def _let_go(self) -> None:
        # Never back: an earlier gate that opens late must not close later ones.
        self._shared.word[0] = max(self._number, int(self._shared.word[0]))

    def _give_up(self) -> None:
        self._late = True
        self._let_go()
