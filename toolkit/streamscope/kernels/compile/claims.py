"""Who compiles what: a key is claimed by one thread of one process at a time.

The locks are those of an *open file description* (Linux, ``fcntl(2)``): they end with the process that holds them, however it ends, so a
crash blocks nobody and nothing piles up.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from streamscope.interrupts import when_gone


class Claims:
    """Claims on keys, told to other processes by locks on single bytes of a file: the byte's position is made of the key.

    Two keys whose positions agree keep each other waiting, no more. Where the file cannot be made or locked, claims count in this process
    only, and another one may compile the same.

    Parameters
    ----------
    path : Path or None
        The file; its content does not matter. Without one, claims count in this process only.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._held: set[str] = set()
        self._mutex = threading.Lock()
        self._file: int | None = None
        self._close: Callable[[], object] = _nothing

    def take(self, key: str) -> bool:
        """Claim a key, a hexadecimal digest; return whether it was free. Never waits."""
        with self._mutex:
            if key in self._held or not self._lock(fcntl.F_WRLCK, key):
                return False
            self._held.add(key)
            return True

    def give_back(self, keys: Iterable[str]) -> None:
        """Free keys; those that this process does not hold are left as they are."""
        with self._mutex:
            for key in self._held.intersection(keys):
                self._held.discard(key)
                self._lock(fcntl.F_UNLCK, key)

    def begin_again(self) -> None:
        """In a forked process, leave to the parent what it holds.

        The open file is shared: its locks would be taken for the child's, and would outlive the parent for as long as the child has it.
        """
        self._mutex = threading.Lock()  # a thread of the parent may have held it
        self._held = set()
        self._close()
        self._file, self._close = None, _nothing

    def _lock(self, kind: int, key: str) -> bool:
        """Lock or unlock the byte of a key; return whether nobody else has it."""
        file = self._opened()
        if file is None:
            return True
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, _position(key), 1, 0))
        except OSError as error:
            # A file system without locks costs a compilation done twice, and nothing else.
            return error.errno not in (errno.EAGAIN, errno.EACCES)
        return True

    def _opened(self) -> int | None:
        if self._file is None and self.path is not None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                self._close = when_gone(self, partial(os.close, self._file)).now
            except OSError:
                return None
        return self._file


def _nothing() -> None:
    """Close nothing: no file is open."""


def _position(key: str) -> int:
    return int(key[:15], 16)  # 60 bits: a file offset has 63
