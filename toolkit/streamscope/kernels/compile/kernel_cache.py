"""The cache of compiled kernels: in memory, on disk, and told apart by everything that makes the machine code what it is."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from weakref import WeakSet

from streamscope.errors import OutputError
from streamscope.files import expanded, user_cache
from streamscope.kernels.compile.claims import Claims
from streamscope.kernels.compile.cubin import Cubin
from streamscope.kernels.compile.cubin_file import FORMAT
from streamscope.kernels.compile.cubin_folder import LOCK, MOST_BYTES, CubinFolder
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
    """Return the key of a kernel: SHA-256 of its name and whole source, the options, NVRTC's build, the architecture, the format.

    Raises
    ------
    NoDeviceError
        NVRTC is not installed.
    """
    parts = [FORMAT, nvrtc_build(), architecture, OPTIONS, source.name, source.code]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class KernelCache:
    """Compiled kernels by their keys.

    No lock is held while anything is compiled: who compiles a kernel has a claim on its key, others look again until it is there.

    Parameters
    ----------
    path : Path or None
        Folder of the part on disk; None where there can be none.
    most_bytes : int
        Size of that part.
    why_none : str
        Why there can be none.
    """

    def __init__(self, path: Path | None, most_bytes: int = MOST_BYTES, why_none: str = "") -> None:
        self.folder = CubinFolder(path, most_bytes, why_none)
        self.claims = Claims(None if path is None else path / LOCK)
        self._memory: OrderedDict[str, Cubin] = OrderedDict()
        self._mutex = threading.Lock()
        _ALL.add(self)

    def find(self, key: str, name: str = "", architecture: str = "") -> tuple[Cubin, Origin] | None:
        """Return a compiled kernel and where it was; None where it is nowhere.

        With a ``name``, a file without that kernel for the ``architecture`` counts as missing: somebody may have copied it to this place.
        """
        with self._mutex:
            if key in self._memory:
                self._memory.move_to_end(key)
                return self._memory[key], Origin.MEMORY
        cubin = self.folder.read(key)
        if cubin is None:
            return None
        if name and not (cubin.has(name) and cubin.is_for(architecture)):
            self.folder.doubt(key)
            return None
        self._remember([key], cubin)
        return cubin, Origin.DISK

    def find_or_claim(
        self, keys: Iterable[str], names: Mapping[str, str] = MappingProxyType({}), architecture: str = ""
    ) -> tuple[dict[str, tuple[Cubin, Origin]], list[str]]:
        """Return which kernels are there, and which the caller has claimed and must `keep` or `give_up`.

        The others are claimed by other threads or processes; look again later. If those give up, they are free.
        """
        found: dict[str, tuple[Cubin, Origin]] = {}
        claimed: list[str] = []
        try:
            for key in keys:
                hit = self.find(key, names.get(key, ""), architecture)
                if hit is None and self.claims.take(key):
                    claimed.append(key)
                    hit = self.find(key, names.get(key, ""), architecture)  # it may have come in between
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
        """Forget what is in memory; what is on disk stays."""
        with self._mutex:
            self._memory.clear()

    def begin_again(self) -> None:
        """In a forked process, leave to the parent what it has claimed, and the locks that its threads may have held."""
        self._mutex = threading.Lock()
        self.claims.begin_again()
        self.folder.begin_again()

    def _remember(self, keys: Iterable[str], cubin: Cubin) -> None:
        with self._mutex:
            for key in keys:
                self._memory[key] = cubin
                self._memory.move_to_end(key)
            while len(self._memory) > MOST_IN_MEMORY:
                self._memory.popitem(last=False)


_ALL: WeakSet[KernelCache] = WeakSet()


def _after_fork() -> None:
    for cache in list(_ALL):
        cache.begin_again()


os.register_at_fork(after_in_child=_after_fork)


def cache_folder() -> Path:
    """Return where compiled kernels are kept: ``kernels`` in ``STREAMSCOPE_CACHE_DIR`` or else in the user's cache folder (XDG).

    Raises
    ------
    OutputError
        There is no home folder to look in.
    """
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
