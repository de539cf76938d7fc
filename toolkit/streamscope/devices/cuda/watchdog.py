"""A watchdog: one thread that does something about whatever takes too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Watchdog:
    """Calls functions that are not called off within a time limit.

    One thread watches all of them, from the first on; it sleeps while there are none. Arming and disarming take well below a microsecond
    each, so that every launch that is timed can be guarded, which a `threading.Timer` for each would delay by a hundred.

    Parameters
    ----------
    limit_s : float
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
        """Call an action off; tell whether it was not called yet. What is not armed has not been called."""
        return self._armed.pop(key, None) is not None

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="streamscope watchdog", daemon=True)
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
