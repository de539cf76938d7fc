"""The cache of compiled kernels, in memory and on disk. The key holds everything that the machine code depends on."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache, partial
from pathlib import Path

from streamscope.errors import OutputError
from streamscope.files import expanded, user_cache
from streamscope.interrupts import Alive, Finaliser, when_gone
from streamscope.kernels.compile.cubin import FORMAT, Cubin
from streamscope.kernels.compile.cubin_folder import CubinFolder, make_private_cache
from streamscope.kernels.compile.nvrtc import OPTIONS, nvrtc_build
from streamscope.kernels.source import KernelSource

MOST_IN_MEMORY = 4096


class Origin(StrEnum):
    """Where a compiled kernel came from."""

    MEMORY = "memory"
    DISK = "disk"
    COMPILED = "compiled"
    FAILED = "failed"


def kernel_key(source: KernelSource, architecture: str) -> str:
    """Return the key of a kernel: SHA-256 of its name and whole source, the options, NVRTC's build, the architecture, the format."""
    parts = [FORMAT, nvrtc_build(), architecture, OPTIONS, source.name, source.code]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class Claims:
    """Claims: one thread of one process compiles a key at a time.

    Other processes are told by locks on single bytes of a file, whose content does not matter: the byte's position is made of the key. The
    locks are those of an *open file description* (Linux, ``fcntl(2)``): they end with the process that holds them, however it ends, so a
    crash blocks nobody and nothing piles up.

    Two keys whose positions agree keep each other waiting, no more. Where there is no file, or it cannot be made or locked, or others can
    write to its folder, claims count in this process only, and another one may compile the same.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._held: set[str] = set()
        self._mutex = threading.Lock()
        self._file: int | None = None
        self._closing: Finaliser | None = None

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
        """In a forked process, leave the parent its locks.

        The open file is shared: its locks would be taken for the child's, and would outlive the parent for as long as the child has it.
        """
        self._mutex = threading.Lock()  # a thread of the parent may have held it
        self._held = set()
        if self._closing is not None:
            self._closing.now()
        self._file = self._closing = None

    def _lock(self, kind: int, key: str) -> bool:
        """Lock or unlock the byte of a key; return whether nobody else has it."""
        file = self._opened()
        if file is None:
            return True
        try:
            position = int(key[:15], 16)  # 60 bits: a file offset has 63
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, position, 1, 0))
        except OSError as error:
            # A file system without locks costs a compilation done twice, and nothing else.
            return error.errno not in (errno.EAGAIN, errno.EACCES)
        return True

    def _opened(self) -> int | None:
        if self._file is None and self.path is not None:
            try:
                make_private_cache(self.path.parent)
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                self._closing = when_gone(self, partial(os.close, self._file))
            except OSError:
                return None
        return self._file


class KernelCache:
    """Compiled kernels by their keys: in memory, and in a `CubinFolder`.

    No lock is held while anything is compiled: who compiles a kernel has a claim on its key, others look again until it is there.
    """

    def __init__(self, path: Path | None, why_none: str = "") -> None:
        self.folder = CubinFolder(path, why_none=why_none)
        self.claims = Claims(None if path is None else path / "lock")
        self._memory: OrderedDict[str, Cubin] = OrderedDict()
        self._mutex = threading.Lock()
        _ALL[id(self)] = self

    def find(self, key: str) -> tuple[Cubin, Origin] | None:
        """Return a compiled kernel and where it was; None where it is nowhere."""
        with self._mutex:
            if key in self._memory:
                self._memory.move_to_end(key)
                return self._memory[key], Origin.MEMORY
        cubin = self.folder.read(key)
        if cubin is None:
            return None
        self._remember([key], cubin)
        return cubin, Origin.DISK

    def find_or_claim(self, keys: Iterable[str]) -> tuple[dict[str, tuple[Cubin, Origin]], list[str]]:
        """Return which kernels are there, and which the caller has claimed and must `keep` or `give_up`.

        The others are claimed by other threads or processes; look again later. If those give up, they are free.
        """
        found: dict[str, tuple[Cubin, Origin]] = {}
        claimed: list[str] = []
        try:
            for key in keys:
                hit = self.find(key)
                if hit is None and self.claims.take(key):
                    claimed.append(key)
                    hit = self.find(key)  # it may have come in between
                    if hit is not None:
                        self.claims.give_back([claimed.pop()])
                if hit is not None:
                    found[key] = hit
        except BaseException:  # warnings may be errors
            self.claims.give_back(claimed)
            raise
        return found, claimed

    def keep(self, keys: Sequence[str], cubin: Cubin) -> None:
        """Keep kernels that were compiled together, and free their keys."""
        self._remember(keys, cubin)
        try:
            self.folder.write(keys, cubin)
        finally:
            self.claims.give_back(keys)

    def give_up(self, keys: Iterable[str]) -> None:
        """Free keys that are still claimed: their kernels were not compiled."""
        self.claims.give_back(keys)

    def forget(self) -> None:
        """Empty the cache in memory; files stay."""
        with self._mutex:
            self._memory.clear()

    def begin_again(self) -> None:
        """In a forked process, leave the parent its claims, and the locks that its threads may have held."""
        self._mutex = threading.Lock()
        self.claims.begin_again()

    def _remember(self, keys: Iterable[str], cubin: Cubin) -> None:
        with self._mutex:
            for key in keys:
                self._memory[key] = cubin
                self._memory.move_to_end(key)
            while len(self._memory) > MOST_IN_MEMORY:
                self._memory.popitem(last=False)


_ALL = Alive[int, KernelCache]()
"""By address."""


def _after_fork() -> None:
    for cache in _ALL.values():
        cache.begin_again()


os.register_at_fork(after_in_child=_after_fork)


def cache_folder() -> Path:
    """Return where compiled kernels are kept: ``kernels`` in ``STREAMSCOPE_CACHE_DIR`` or else in the user's cache folder (XDG)."""
    ours = os.environ.get("STREAMSCOPE_CACHE_DIR")
    return (expanded(ours) if ours else user_cache() / "streamscope") / "kernels"


def kernel_cache() -> KernelCache:
    """Return this process's cache in `cache_folder`; where there is no such folder, one in memory."""
    try:
        return _cache_in(cache_folder())
    except OutputError as error:
        return _cache_in(None, error.message)


@lru_cache(maxsize=8)
def _cache_in(path: Path | None, why_none: str = "") -> KernelCache:
    return KernelCache(path, why_none=why_none)
