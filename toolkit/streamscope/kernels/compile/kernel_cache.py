"""The cache of compiled kernels: in memory, on disk, and told apart by everything that makes the machine code what it is."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from streamscope.errors import OutputError
from streamscope.files import expanded, user_cache
from streamscope.kernels.compile.cubin import FORMAT, Cubin
from streamscope.kernels.compile.cubin_folder import MOST_BYTES, CubinFolder
from streamscope.kernels.compile.nvrtc import OPTIONS, nvrtc_build
from streamscope.kernels.source import KernelSource

MOST_IN_MEMORY = 4096
"""The oldest go first."""


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


class KernelCache:
    """Compiled kernels by their keys: in memory, and in a folder; see `CubinFolder`.

    Nothing is locked while anything is compiled. Two that need the same kernel at the same time both compile it, and either's code will do.
    """

    def __init__(self, path: Path | None, most_bytes: int = MOST_BYTES, why_none: str = "") -> None:
        self.folder = CubinFolder(path, most_bytes, why_none)
        self._memory: dict[str, Cubin] = {}

    def find(self, key: str, name: str = "", architecture: str = "") -> tuple[Cubin, Origin] | None:
        """Return a compiled kernel and where it was; None where it is nowhere.

        With a ``name``, a file without that kernel for the ``architecture`` counts as missing: somebody may have copied it to this place.
        """
        if (known := self._memory.get(key)) is not None:
            return known, Origin.MEMORY
        cubin = self.folder.read(key)
        if cubin is None:
            return None
        if name and not (cubin.has(name) and cubin.is_for(architecture)):
            self.folder.doubt(key)
            return None
        self._remember([key], cubin)
        return cubin, Origin.DISK

    def keep(self, keys: Sequence[str], cubin: Cubin) -> None:
        """Keep kernels that were compiled together."""
        self._remember(keys, cubin)
        self.folder.write(keys, cubin)

    def forget(self) -> None:
        """Forget what is in memory; what is on disk stays."""
        self._memory.clear()

    def _remember(self, keys: Sequence[str], cubin: Cubin) -> None:
        self._memory.update(dict.fromkeys(keys, cubin))
        with suppress(StopIteration, RuntimeError):  # where another thread does the same
            while len(self._memory) > MOST_IN_MEMORY:
                self._memory.pop(next(iter(self._memory)), None)


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
