"""Captures under way, and objects that may be destroyed only outside them."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from streamscope.kernels.library.libraries import checked, libraries


class Captures:
    """Captures under way, gates that hold streams, and objects that wait to be destroyed until there are none.

    A capture is its thread's own. While it goes on, CUDA forbids that thread to destroy instantiated graphs, and any thread to wait for the
    whole device. Libraries wait so when they destroy their handles, and the driver when it unloads machine code. Such a wait breaks the
    capture, and behind a closed gate it has no end. Python's garbage collector does not know that.
    """

    def __init__(self) -> None:
        self._thread = threading.local()
        self._everywhere: set[object] = set()
        self._waiting: deque[Callable[[], object]] = deque()

    @property
    def active(self) -> bool:
        """Whether the calling thread captures."""
        return bool(self._own())

    def begun(self, stream: int) -> None:
        """Note that the calling thread captures a stream."""
        self._own().add(stream)
        self.forbid(stream)

    def ended(self, stream: int) -> None:
        """Note that a capture is over, and destroy the objects that waited for that."""
        self._own().discard(stream)
        self.allow(stream)

    def forbid(self, key: object) -> None:
        """Let nothing be destroyed until the key is allowed: in no thread."""
        self._everywhere.add(key)

    def allow(self, key: object) -> None:
        """Destroy the objects that waited for a key, if no other key is held."""
        self._everywhere.discard(key)
        self._destroy_waiting()

    def destroy(self, destroy: Callable[[], object]) -> None:
        """Call a function that destroys something: now, or after the captures that go on. At the end of the process, nothing is."""
        if sys.is_finalizing():
            return
        self._waiting.append(destroy)
        self._destroy_waiting()

    def _destroy_waiting(self) -> None:
        # Another thread may take from the queue at the same time, or the collector put something there.
        with suppress(IndexError):
            while not self._everywhere:
                self._waiting.popleft()()

    def _own(self) -> set[int]:
        streams: set[int] | None = getattr(self._thread, "streams", None)
        if streams is None:
            streams = self._thread.streams = set()
        return streams


CAPTURES = Captures()
"""Of the process: a capture belongs to a thread, whichever device object began it."""


@contextmanager
def relaxed_captures() -> Iterator[None]:
    """Let the calling thread make calls that CUDA forbids during a capture, though they do not break it."""
    cuda = libraries().cuda
    before = checked(cuda.cuThreadExchangeStreamCaptureMode(cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    try:
        yield
    finally:
        checked(cuda.cuThreadExchangeStreamCaptureMode(before))
