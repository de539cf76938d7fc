"""Worker threads: they run host operations, in the order of their priorities."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from heapq import heappop, heappush
from queue import SimpleQueue

Task = Callable[[], object]


class Workers:
    """A pool of threads, started as they are needed.

    The threads know the pool and not the engine, and none of them keeps a finished task. So an engine that nobody holds is collected, which
    stops them; and they are daemons, so that an engine that is never closed does not hold up the interpreter's exit.

    Parameters
    ----------
    name : str
        What the threads are called.
    most : int
        How many threads there may be.
    prepare : callable
        Called once on each thread, before anything else.
    """

    def __init__(self, name: str, most: int, prepare: Task) -> None:
        self.threads: list[threading.Thread] = []
        self._name = name
        self._most = most
        self._prepare = prepare
        self._lock = threading.Lock()
        self._tasks: list[tuple[int, int, Task]] = []
        # One token a task, and None to stop. Putting a token takes no lock, so that a finaliser may do it in the middle of anything.
        self._tokens: SimpleQueue[bool | None] = SimpleQueue()
        self._busy = 0

    def put(self, priority: int, sequence: int, task: Task) -> None:
        """Queue a task; the highest priority runs first, then the lowest sequence number. It must not raise."""
        with self._lock:
            heappush(self._tasks, (-priority, sequence, task))
            self._busy += 1
            if self._busy > len(self.threads) and len(self.threads) < self._most:
                self._start()
        self._tokens.put(True)

    def stop(self) -> None:
        """Let each thread end when all that was put is done. Takes no lock and does not wait."""
        for _ in self.threads:
            self._tokens.put(None)

    def join(self) -> None:
        """Stop, and wait until the threads have ended."""
        self.stop()
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join()
        self.threads = []

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name} {len(self.threads) + 1}", daemon=True)
        self.threads.append(thread)
        thread.start()

    def _work(self) -> None:
        with contextlib.suppress(Exception):  # Tasks on a device that cannot be used say so themselves.
            self._prepare()
        while self._tokens.get() is not None:
            self._run_next()

    def _run_next(self) -> None:
        """Run one task, in a frame of its own, which does not outlive it."""
        with self._lock:
            _, _, task = heappop(self._tasks)
        try:
            task()
        finally:
            with self._lock:
                self._busy -= 1
