"""Worker threads, and the latches that threads wait for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock

from streamscope.errors import EngineError

_Task = Callable[[], object]


class Latch:
    """Is set once; one thread at a time waits for that.

    A `threading.Event` is written in Python: when Ctrl-C comes in its `wait`, and once more while that cleans up, its own lock stays taken,
    and whoever sets it hangs. Here nothing is to be cleaned up.
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


class Workers:
    """A pool of threads, started as they are needed.

    The threads know the pool and not the engine, and none of them keeps a finished task. So an engine that nobody holds is collected, which
    stops them; and they are daemons, so that an engine that is never closed does not hold up the interpreter's exit.
    """

    def __init__(self, name: str, most: int, prepare: _Task) -> None:
        self.threads: list[threading.Thread] = []
        self._name = name
        """Name of the threads."""
        self.most = most
        """How many threads there may be; an attribute, too."""
        self._prepare = prepare
        """Called once on each thread, before anything else."""
        self._lock = threading.Lock()
        # None says: see whether to end. Putting it takes no lock, so that a finaliser may do it in the middle of anything.
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._busy = 0
        self._started = 0
        self._stopping = False
        self._last: _Task | None = None

    def put(self, task: _Task) -> None:
        """Queue a task; it must not raise."""
        with self._lock:
            self._busy += 1
            if self._busy > len(self.threads) and len(self.threads) < self.most:
                try:
                    self._start()
                except RuntimeError as error:
                    if not self.threads:
                        self._busy -= 1
                        raise EngineError(f"cannot start a thread for a host operation: {error}", hint="end other threads") from error
        self._tasks.put(task)

    def stop(self, last: _Task | None = None) -> None:
        """Let the threads end as soon as nothing is queued and nothing runs. Takes no lock and does not wait.

        ``last``: function that the last thread calls before it ends.
        """
        self._last = last
        self._stopping = True
        self._tasks.put(None)

    def join(self) -> None:
        """Stop, and wait until the threads have ended."""
        self.stop()
        with self._lock:
            threads = list(self.threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name} {self._started + 1}", daemon=True)
        thread.start()
        self._started += 1
        self.threads.append(thread)

    def _work(self) -> None:
        with contextlib.suppress(Exception):  # Tasks on a device that cannot be used say so themselves.
            self._prepare()
        while not self._served(self._tasks.get()):
            pass

    def _served(self, task: _Task | None) -> bool:
        """Run a task, in a frame that does not outlive it; tell whether the calling thread is to end."""
        if task is None:
            return self._ends()
        try:
            task()
        finally:
            with self._lock:
                self._busy -= 1
                done = self._stopping and not self._busy
            if done:
                self._tasks.put(None)
        return False

    def _ends(self) -> bool:
        """Tell whether the calling thread is to end; then the next one looks, too."""
        with self._lock:
            if not self._stopping or self._busy:
                return False
            # Under the lock: of threads that end together, exactly one finds that it is the last.
            self.threads.remove(threading.current_thread())
            last = not self.threads
        if last and self._last is not None:
            self._last()
        if not last:
            self._tasks.put(None)
        return True


def two_pools(most: int, most_of_priority: int, prepare: _Task) -> tuple[Workers, Workers]:
    """Return the pools for ordinary host operations and for those of priority."""
    return Workers("streamscope worker", most, prepare), Workers("streamscope priority worker", most_of_priority, prepare)
