"""Who compiles what right now, so that nobody compiles what somebody else is at.

Among the threads of a process a set says so; among processes, locks on single bytes of one file, at places that the keys' hashes give. The
locks are those of an *open file description* (Linux, ``fcntl(2)``): they end with the process that holds them, however that ends, so
a crash blocks nobody and nothing piles up.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Claims:
    """Claims to keys, among all that use the same lock file.

    Parameters
    ----------
    path : Path or None
        The lock file, made when first needed; None, or one that cannot be opened: among this process's threads only.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._taken: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def claimed(self, keys: Iterable[str]) -> Iterator[set[str]]:
        """Claim those keys that nobody has claimed, without waiting, until the end of the block.

        Parameters
        ----------
        keys : iterable of str
            Hexadecimal digests.
        """
        mine: set[str] = set()
        file = None
        try:
            with self._lock:
                mine.update(key for key in keys if key not in self._taken)
                self._taken |= mine
            file = self._open()
            others = set() if file is None else {key for key in mine if not _lock_byte(file, key)}
            yield mine - others
        finally:
            if file is not None:
                os.close(file)  # which ends its locks
            with self._lock:
                self._taken -= mine

    def _open(self) -> int | None:
        if self._path is None:
            return None
        with suppress(OSError):
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        return None


def _lock_byte(file: int, key: str) -> bool:
    """Try to lock the byte that stands for a key; tell whether nobody else has it."""
    place = int(key[:15], 16)  # 60 bits: a file offset has 63
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0))
    except OSError as error:
        # A file system without locks costs a compilation done twice, and nothing else.
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True
