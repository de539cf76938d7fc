"""A latch: what one thread waits for and another lets come, once."""

from __future__ import annotations

from threading import Lock


class Latch:
    """Is set once; one thread at a time waits for that.

    A `threading.Event` is written in Python: when Ctrl-C comes in its `wait`, and once more while that cleans up, its own lock stays taken,
    and whoever sets it hangs. Here nothing is to be cleaned up.

    Attributes
    ----------
    is_set : bool
    """

    __slots__ = ("_lock", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._lock = Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Let the waiting thread go on, and all that wait later."""
        if not self.is_set:
            self.is_set = True
            self._lock.release()

    def wait(self) -> None:
        """Block until `set` was called; Ctrl-C ends it early."""
        if not self.is_set:
            self._lock.acquire()

    def comes_within(self, timeout_s: float) -> bool:
        """Block until `set` was called, at most so many seconds; return whether it was."""
        return self.is_set or self._lock.acquire(timeout=timeout_s)
