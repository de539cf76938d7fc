"""Cubins on disk: content-addressed, shared by processes, bounded in size, and never in the way."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from streamscope.errors import CacheWarning, OutputError
from streamscope.interrupts import Alive
from streamscope.kernels.compile.cubin import CHECKSUM_END, HEADER_BYTES, Cubin, checksum_of, header_of, packed, unpacked

MOST_BYTES = 512 * 2**20
MOST_FILE_BYTES = 64 * 2**20
"""Far more than one translation unit takes; a larger file is not read."""
KEPT_SHARE = 0.8
"""What is left of the most when cubins are evicted, so that it does not happen at every write."""
STALE_S = 3600
"""Age from which a file that is not whole is nobody's any more."""
SUFFIX, PARTIAL, LOCK = ".cubin", ".partial", "lock"
WHERE_ELSE = "set STREAMSCOPE_CACHE_DIR to a folder that can be written to"
_OURS = re.compile(r"[0-9a-f]{64}\.cubin")
_OURS_UNFINISHED = re.compile(r"\.[0-9a-f]{64}\.cubin\.[0-9a-f]{16}\.partial")


@dataclass
class CubinFile:
    """One cubin on disk, under the keys of all its kernels."""

    paths: list[Path] = field(default_factory=list)
    """One for each key; they are hard links to one file."""
    bytes: int = 0
    used_s: float = 0.0
    """When it was written or read last, in seconds since 1970."""

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

    A file that is truncated, changed or too large counts as missing, and so does whatever is not a file. The next write replaces it, unless
    it is a folder. Where nothing can be read or written, everything is missing. The first of these things is told by a `CacheWarning`. What
    others have put there stays. Beyond ``most_bytes``, the least recently used cubins are removed. Where ``path`` is None, for the reason
    ``why_none``, nothing is kept.

    The machine code in it is loaded as it is, so who can write to the folder can run code on your GPU, with your data. It is made for you
    alone; one that everybody can write to, or that a user other than you and root owns, is not used.
    """

    def __init__(self, path: Path | None, most_bytes: int = MOST_BYTES, why_none: str = "") -> None:
        self.path = path
        self.most_bytes = most_bytes
        self.why_none = why_none
        self._unwarned = [True]
        self._known = Alive[bytes, Cubin]()

    def read(self, key: str) -> Cubin | None:
        """Return the cubin that a key stands for; None where there is none, or a broken one."""
        if self.path is None:
            return None
        try:
            _check_private(self.path)
            # A program may have thousands, and to make a `Path` takes as long as to read.
            cubin = self._read(f"{self.path}{os.sep}{key}{SUFFIX}")
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot read {self.path}: {error}")
            return None
        if cubin is None:
            self.doubt(key)
        return cubin

    def doubt(self, key: str) -> None:
        """Tell the user, once, that a file does not hold what its name stands for."""
        if self.path is not None:
            self._warn(f"cannot use {_file_of(self.path, key)}: it does not hold the kernel that it should", "that is compiled again")

    def write(self, keys: Sequence[str], cubin: Cubin) -> None:
        """Keep a cubin under the keys of its kernels, and evict what is too much."""
        if self.path is None:
            self._warn(f"cannot keep anything on disk: {self.why_none}")
            return
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_private(self.path)
            paths = [path for path in (_file_of(self.path, key) for key in keys) if self._can_be_file(path)]
            if paths:
                _write(paths, packed(cubin))
            self._evict()
        except OSError as error:
            self._warn(f"cannot write {self.path}: {error}")

    def files(self) -> list[CubinFile]:
        """Return the cubins that are there, the least recently used first."""
        found: dict[int, CubinFile] = {}
        for path, status in self._scan(_OURS):
            file = found.setdefault(status.st_ino, CubinFile(bytes=status.st_size, used_s=status.st_mtime))
            file.paths.append(path)
        return sorted(found.values(), key=lambda file: file.used_s)

    def clear(self) -> int:
        """Remove all cubins; return how many bytes that frees."""
        files = self.files()
        try:
            if self.path is not None:
                with suppress(FileNotFoundError):
                    os.scandir(self.path).close()  # Where this fails, `files` finds nothing.
            for file in files:
                _remove(file)
            self._remove_stale()
        except OSError as error:
            raise OutputError(f"cannot clear {self.path}: {error.strerror or error}", hint="check whose folder it is") from error
        self._known.clear()
        return sum(file.bytes for file in files)

    def others(self) -> int:
        """Return how much is there that is none of ours, which nothing here removes."""
        return sum(not _is_ours(entry) for entry in self._entries())

    def problem(self) -> str:
        """Return why nothing can be kept here; empty where it can. It is tried, but nothing is made."""
        if self.path is None:
            return self.why_none
        place = next(each for each in (self.path, *self.path.parents) if os.path.lexists(each))
        try:
            if place == self.path:
                os.scandir(place).close()
                _check_private(place)
            with tempfile.TemporaryFile(dir=place):
                return ""
        except NotADirectoryError:
            return f"{place} is not a folder"
        except OSError as error:
            return f"cannot write to {place}: {error.strerror or error}"

    def _read(self, path: str) -> Cubin | None:
        """Return what a file holds, and note that it was used; None where that is not a whole cubin, which is not read to its end."""
        # Not `trace.stored.opened`, which follows links and raises errors: here a link is a miss, as is whatever else is not a file.
        try:
            # Without O_NONBLOCK, a FIFO would wait for somebody to write to it.
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, a socket
                return None
            raise
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_FILE_BYTES:
                return None
            start = os.read(file, CHECKSUM_END)
            checksum = checksum_of(start)
            if checksum is None:
                return None
            # A cubin of several kernels is read and checked for the first of them only.
            cubin = self._known.get(checksum) or unpacked(start + os.read(file, status.st_size))
            if cubin is not None:
                self._known[checksum] = cubin
                with suppress(OSError):
                    os.utime(file)
        finally:
            os.close(file)
        return cubin

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            return [] if self.path is None else list(os.scandir(self.path))
        except OSError:
            return []

    def _scan(self, named: re.Pattern[str]) -> Iterator[tuple[Path, os.stat_result]]:
        for entry in self._entries():
            if named.fullmatch(entry.name):
                with suppress(FileNotFoundError):  # another process may evict, too
                    if entry.is_file(follow_symlinks=False):
                        yield Path(entry.path), entry.stat(follow_symlinks=False)

    def _can_be_file(self, path: Path) -> bool:
        """Tell whether a file can get a name. A folder that has it may hold anything, and stays."""
        taken = path.is_dir() and not path.is_symlink()
        if taken:
            self._warn(f"cannot write {path}: {os.strerror(errno.EISDIR)}")
        return not taken

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
        for path, status in self._scan(_OURS_UNFINISHED):
            if time.time() - status.st_mtime > STALE_S:
                path.unlink(missing_ok=True)

    def _warn(self, what: str, then: str = f"kernels are compiled without it ({WHERE_ELSE})") -> None:
        with suppress(IndexError):  # Of several threads, one gets what there is to pop.
            self._unwarned.pop()
            warnings.warn(f"the kernel cache {what}; {then}", CacheWarning, stacklevel=3)


def _file_of(folder: Path, key: str) -> Path:
    return folder / f"{key}{SUFFIX}"


def _check_private(folder: Path) -> None:
    """Refuse a folder to which everybody, or an owner other than you and root, can write: their machine code would run as yours."""
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise PermissionError(errno.EACCES, f"user {status.st_uid} owns it, not you, and what is in it is run")
    if status.st_mode & stat.S_IWOTH:
        raise PermissionError(errno.EACCES, "everybody can write to it, and what is in it is run (chmod o-w)")


def _is_ours(entry: os.DirEntry[str]) -> bool:
    named = _OURS.fullmatch(entry.name) or _OURS_UNFINISHED.fullmatch(entry.name) or entry.name == LOCK
    return bool(named) and entry.is_file(follow_symlinks=False)


def _write(paths: Sequence[Path], content: bytes) -> None:
    """Write one file under several names."""
    if len(content) > MOST_FILE_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    first, *others = paths
    # Not `written_whole`: the file gets its other names before the first, and flushes nothing.
    with _partial(first) as temporary:
        with temporary.open("xb") as file:
            file.write(content)
        for other in others:
            _link(temporary, other)
        temporary.replace(first)


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
