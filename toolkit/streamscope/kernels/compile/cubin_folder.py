"""Cubins on disk: content-addressed, shared by processes, bounded in size, and never in the way."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import stat
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from streamscope.errors import CacheWarning, OutputError
from streamscope.files import clear_unfinished, make_private, unfinished_file, unfinished_name
from streamscope.interrupts import Alive
from streamscope.kernels.compile.cubin import CHECKSUM_END, Cubin, checksum_of, packed, unpacked

_MOST_BYTES = 512 * 2**20
MOST_FILE_BYTES = 64 * 2**20
"""Far more than one translation unit takes; a larger file is not read."""
_KEPT_SHARE = 0.8
"""Share of the limit that eviction leaves, so that it does not happen at every write."""
_SUFFIX = ".cubin"
WHERE_ELSE = "set STREAMSCOPE_CACHE_DIR to a folder that can be written to"
_COMPILED_AGAIN = "that is compiled again"
_OURS = re.compile(r"[0-9a-f]{64}\.cubin")


@dataclass
class CubinFile:
    """One cubin on disk, under the keys of all its kernels."""

    paths: list[Path] = field(default_factory=list)
    """One for each key; they are hard links to one file."""
    bytes: int = 0
    used_s: float = 0.0
    """When it was written or read last, in seconds since 1970."""


class CubinFolder:
    """A folder with a file for each key. Kernels that were compiled together are hard links to one file.

    A file that is truncated, changed or too large counts as missing, and so does whatever is not a file. The next write replaces it, unless
    it is a folder. Where nothing can be read or written, everything is missing. The first of these things is told by a `CacheWarning`. What
    others have put there stays. Beyond ``most_bytes``, the least recently used cubins are removed. Where ``path`` is None, for the reason
    ``why_none``, nothing is kept.

    The machine code in it is loaded as it is, so who can write to the folder can run code on your GPU, with your data. It is made for you
    alone. A folder or file that its group or everybody can write to, or that a user other than you and root owns, is not used.
    """

    def __init__(self, path: Path | None, most_bytes: int = _MOST_BYTES, why_none: str = "") -> None:
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
            cubin = self._read(f"{self.path}{os.sep}{key}{_SUFFIX}")
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot read {self.path}: {error.strerror or error}")
            return None
        if cubin is None:
            self._warn(f"cannot use {_file_of(self.path, key)}: it does not hold the kernel that it should", _COMPILED_AGAIN)
        return cubin

    def write(self, keys: Sequence[str], cubin: Cubin) -> None:
        """Keep a cubin under the keys of its kernels, and evict the oldest above the limit."""
        if self.path is None:
            self._warn(f"cannot keep anything on disk: {self.why_none}")
            return
        try:
            make_private_cache(self.path)
            _write([_file_of(self.path, key) for key in keys], packed(cubin))
            self._evict()
        except OSError as error:
            self._warn(f"cannot write {self.path}: {error.strerror or error}")

    def files(self) -> list[CubinFile]:
        """Return the cubins that are there, the least recently used first."""
        found: dict[int, CubinFile] = {}
        for path, status in self._scan():
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
            if self.path is not None:
                clear_unfinished(self.path)
        except OSError as error:
            raise OutputError(f"cannot clear {self.path}: {error.strerror or error}", hint="check whose folder it is") from error
        self._known.clear()
        return sum(file.bytes for file in files)

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
        """Return a file's cubin, and note that it was used; None where it is not whole, which is not read to its end."""
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
            if why := _why_not_private(status):  # The folder may have been open to others when the file came.
                self._warn(f"cannot use {path}: {why}", _COMPILED_AGAIN)
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

    def _scan(self) -> Iterator[tuple[Path, os.stat_result]]:
        try:
            entries = [] if self.path is None else list(os.scandir(self.path))
        except OSError:
            return
        for entry in entries:
            if _OURS.fullmatch(entry.name):
                with suppress(FileNotFoundError):  # another process may evict, too
                    if entry.is_file(follow_symlinks=False):
                        yield Path(entry.path), entry.stat(follow_symlinks=False)

    def _evict(self) -> None:
        files = self.files()
        total = sum(file.bytes for file in files)
        if total <= self.most_bytes:
            return
        for file in files:
            if total <= self.most_bytes * _KEPT_SHARE:
                break
            _remove(file)
            total -= file.bytes

    def _warn(self, what: str, then: str = f"kernels are compiled without it ({WHERE_ELSE})") -> None:
        with suppress(IndexError):  # Of several threads, one gets what there is to pop.
            self._unwarned.pop()
            warnings.warn(f"the kernel cache {what}; {then}", CacheWarning, stacklevel=3)


def _file_of(folder: Path, key: str) -> Path:
    return folder / f"{key}{_SUFFIX}"


def make_private_cache(folder: Path) -> None:
    """Make a folder for machine code; refuse one that is there and that others can write to: their code would run as yours."""
    make_private(folder)
    _check_private(folder)


def _check_private(folder: Path) -> None:
    if why := _why_not_private(folder.stat()):
        todo = "remove it, or have it removed" if "owns" in why else f"chmod go-w {shlex.quote(str(folder))}"
        raise PermissionError(errno.EACCES, f"{why}, and the machine code in it is run as it is ({todo})")


def _why_not_private(status: os.stat_result) -> str:
    """Name other users who may change a file or folder; empty where only you and root may."""
    if status.st_uid not in (os.geteuid(), 0):
        return f"user {status.st_uid} owns it, not you"
    if status.st_mode & stat.S_IWOTH:
        return "everybody can write to it"
    return "its group can write to it" if status.st_mode & stat.S_IWGRP else ""


def _write(paths: Sequence[Path], content: bytes) -> None:
    """Write one file under several names."""
    if len(content) > MOST_FILE_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    first, *others = paths
    # Not `written_whole`: the file gets its other names before the first, and a link in the place of one is replaced.
    with unfinished_file(first.parent) as temporary:
        temporary.chmod(0o600)
        temporary.write_bytes(content)
        for other in others:
            _link(temporary, other)
        temporary.replace(first)


def _link(source: Path, target: Path) -> None:
    """Give a file another name, which replaces the one that there may be."""
    # Random: a name that a killed process has left may be another cubin's link.
    name = unfinished_name(target.parent)
    try:
        os.link(source, name)
    except OSError:  # a file system without hard links, or too many of them
        with unfinished_file(target.parent) as copied:
            shutil.copy(source, copied)
            copied.replace(target)
        return
    try:
        name.replace(target)
    finally:
        with suppress(OSError):
            name.unlink(missing_ok=True)


def _remove(file: CubinFile) -> None:
    for path in file.paths:
        path.unlink(missing_ok=True)
