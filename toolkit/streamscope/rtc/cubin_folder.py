"""Cubins on disk: content-addressed, shared by processes, bounded in size, and never in the way."""

from __future__ import annotations

import os
import shutil
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from weakref import WeakValueDictionary

from streamscope.errors import CacheWarning, OutputError
from streamscope.rtc.cubin import Cubin
from streamscope.rtc.cubin_file import CHECKSUM_END, checksum_of, header_of, packed, unpacked

MOST_BYTES = 512 * 2**20
KEPT_SHARE = 0.8
"""What is left of the most when cubins are evicted, so that it does not happen at every write."""
STALE_S = 3600
"""Age from which a file that is not whole is nobody's any more."""
HEADER_BYTES = 4096
SUFFIX, PARTIAL = ".cubin", ".partial"


@dataclass
class CubinFile:
    """One cubin on disk, under the keys of all its kernels.

    Attributes
    ----------
    paths : list of Path
        One for each key; they are hard links to one file.
    bytes : int
    used_s : float
        When it was written or read last, in seconds since 1970.
    """

    paths: list[Path] = field(default_factory=list)
    bytes: int = 0
    used_s: float = 0.0

    def header(self) -> dict[str, object]:
        """Return what the file says about its cubin; empty where it is broken or gone."""
        try:
            with self.paths[0].open("rb") as file:
                start = file.read(HEADER_BYTES)
        except OSError:
            return {}
        return dict(header_of(start)) if checksum_of(start) else {}


class CubinFolder:
    """A folder with a file for each key. Kernels that were compiled together are hard links to one file.

    A file that is truncated or changed counts as missing, and the next write replaces it. Where the folder cannot be read or written, one
    `CacheWarning` says so, and everything is missing.

    Parameters
    ----------
    path : Path
    most_bytes : int
        The least recently used cubins are removed beyond this size.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self.most_bytes = most_bytes
        self._warned = False
        self._mutex = threading.Lock()
        self._known: WeakValueDictionary[bytes, Cubin] = WeakValueDictionary()

    def read(self, key: str) -> Cubin | None:
        """Return the cubin that a key stands for; None where there is none, or a broken one."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                start = file.read(CHECKSUM_END)
                checksum = checksum_of(start)
                # A cubin of several kernels is read and checked for the first of them only.
                cubin = self._known.get(checksum or b"") or unpacked(start + file.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("read", error)
            return None
        if cubin is not None and checksum is not None:
            self._known[checksum] = cubin
            with suppress(OSError):
                os.utime(path)
        return cubin

    def write(self, keys: Sequence[str], cubin: Cubin) -> None:
        """Keep a cubin under the keys of its kernels, and evict what is too much."""
        first, *others = map(self._path, keys)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # Not `written_whole`, which sets the process's umask for a moment: workers write side by side.
            with _partial(first) as temporary:
                with temporary.open("xb") as file:
                    file.write(packed(cubin))
                for other in others:
                    _link(temporary, other)
                temporary.replace(first)
            self._evict()
        except OSError as error:
            self._warn("write", error)

    def files(self) -> list[CubinFile]:
        """Return the cubins that are there, the least recently used first."""
        found: dict[int, CubinFile] = {}
        for path, stat in self._scan(SUFFIX):
            file = found.setdefault(stat.st_ino, CubinFile(bytes=stat.st_size, used_s=stat.st_mtime))
            file.paths.append(path)
        return sorted(found.values(), key=lambda file: file.used_s)

    def clear(self) -> int:
        """Remove all cubins; return how many bytes that frees.

        Raises
        ------
        OutputError
            They cannot be removed.
        """
        files = self.files()
        try:
            for file in files:
                _remove(file)
            self._remove_stale()
        except OSError as error:
            raise OutputError(f"cannot clear {self.path}: {error.strerror or error}", hint="check whose folder it is") from error
        self._known.clear()
        return sum(file.bytes for file in files)

    def _path(self, key: str) -> Path:
        return self.path / f"{key}{SUFFIX}"

    def _scan(self, suffix: str) -> Iterator[tuple[Path, os.stat_result]]:
        try:
            entries = list(os.scandir(self.path))
        except OSError:
            return
        for entry in entries:
            if entry.name.endswith(suffix):
                with suppress(FileNotFoundError):  # another process may evict, too
                    yield Path(entry.path), entry.stat()

    def _evict(self) -> None:
        self._remove_stale()
        files = self.files()
        total = sum(file.bytes for file in files)
        if total <= self.most_bytes:
            return
        for file in files:
            if total <= self.most_bytes * KEPT_SHARE:
                break
            _remove(file)
            total -= file.bytes

    def _remove_stale(self) -> None:
        """Remove what processes have left that ended in the middle of writing."""
        for path, stat in self._scan(PARTIAL):
            if time.time() - stat.st_mtime > STALE_S:
                path.unlink(missing_ok=True)

    def _warn(self, what: str, error: Exception) -> None:
        with self._mutex:
            first, self._warned = not self._warned, True
        if first:
            warnings.warn(
                f"the kernel cache cannot {what} {self.path}: {error}; kernels are compiled without it"
                " (set STREAMSCOPE_CACHE_DIR to a folder that can be written to)",
                CacheWarning,
                stacklevel=2,
            )


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """Give a name beside a path for a file that is not whole yet, and remove what is left of it."""
    # Random, not of process and thread: in containers these come again, and a name that a crash has left may be another cubin's link.
    name = path.with_name(f".{path.name}.{token_hex(8)}{PARTIAL}")
    try:
        yield name
    finally:
        with suppress(OSError):
            name.unlink(missing_ok=True)


def _link(source: Path, target: Path) -> None:
    """Give a file another name, which replaces the one that there may be."""
    with _partial(target) as name:
        try:
            os.link(source, name)
        except OSError:
            shutil.copyfile(source, name)  # a file system without hard links, or too many of them
        name.replace(target)


def _remove(file: CubinFile) -> None:
    for path in file.paths:
        path.unlink(missing_ok=True)
