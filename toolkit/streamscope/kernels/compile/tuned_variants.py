"""Which variant of a kernel tuning has found the fastest, by device, kernel and size: kept on disk, beside the compiled kernels."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from streamscope.errors import CacheWarning, OutputError
from streamscope.files import writable_folder, written_whole
from streamscope.kernels.compile.kernel_cache import cache_folder
from streamscope.kernels.compile.nvrtc import OPTIONS, nvrtc_version
from streamscope.kernels.form import Variant
from streamscope.kernels.source import KernelSource

FORMAT = 1


class TunedVariants:
    """Choices of tuning on one device. A file that is broken or cannot be read counts as no choice; without a folder, none is kept."""

    def __init__(self, device: str, folder: Path | None) -> None:
        self.device = device
        self.folder = folder
        self._known: dict[tuple[KernelSource, int], Variant | None] = {}

    def of(self, source: KernelSource, size: int) -> Variant | None:
        """Return the variant chosen in place of a kernel for so many elements, or None."""
        key = source, size
        if key not in self._known:
            self._known[key] = None if self.folder is None else _read(self.folder / self._name(source, size))
        return self._known[key]

    def keep(self, source: KernelSource, size: int, choice: Variant, medians_ns: Mapping[Variant, float]) -> None:
        """Keep a choice, with the times that it rests on; where it cannot be written, it lasts as long as the process."""
        self._known[source, size] = choice
        if self.folder is None:  # The cache of kernels, which are compiled before, has said so.
            return
        content = {
            "kernel": source.name,
            "size": size,
            "choice": asdict(choice),
            "medians_ns": [{**asdict(variant), "median_ns": median} for variant, median in medians_ns.items()],
            "device": self.device,
            "nvrtc": nvrtc_version(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            writable_folder(self.folder, private=True)  # The compiled kernels' folder is beside it.
            with written_whole(self.folder / self._name(source, size)) as temporary:
                temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        except OutputError as error:
            warnings.warn(f"the choice of a kernel cannot be kept: {error}", CacheWarning, stacklevel=3)

    def _name(self, source: KernelSource, size: int) -> str:
        # NVRTC's version, not its build: what was the fastest of another build's code is at worst a little slower, and never wrong.
        parts = [FORMAT, self.device, nvrtc_version(), OPTIONS, source.name, source.code, size]
        return f"{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}.json"


def tuned_variants(device: str) -> TunedVariants:
    """Return this process's choices for a device: all objects for it share them."""
    try:
        return _in_folder(device, cache_folder().parent / "choices")
    except OutputError:  # There is no home folder.
        return _in_folder(device, None)


@lru_cache(maxsize=8)
def _in_folder(device: str, folder: Path | None) -> TunedVariants:
    return TunedVariants(device, folder)


def _read(path: Path) -> Variant | None:
    try:
        choice = json.loads(path.read_text(encoding="utf-8"))["choice"]
        vector_bytes, items = choice["vector_bytes"], choice["items"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    whole = isinstance(vector_bytes, int) and (items is None or isinstance(items, int))
    return Variant(vector_bytes, items) if whole and vector_bytes in (1, 2, 4, 8, 16) and items in (None, 1, 2, 4, 8) else None
