"""The GPU, the versions and the date that a file names, checked, as a `TraceInfo` has them: the same for all readers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from streamscope.errors import printable
from streamscope.trace.info import DeviceInfo
from streamscope.words import listed

_LONGEST_NAME = 200
"""Characters of a GPU's name."""
_MOST_NAMED = 8
"""GPUs that the name of a host lists."""
_LONGEST_VERSION = 100
"""Characters of a version, and of its library's name."""
_EARLIEST_NS = 10**18
"""In 2001. An earlier time counts from something else than 1970."""


def device_info(kind: Literal["cuda", "hip"], name: Any, gpu: int, **details: Any) -> DeviceInfo:
    """Return a GPU by its name, or by its number where there is none. Of the details, whole numbers from 0 on are kept."""
    known = {key: value for key, value in details.items() if type(value) is int and 0 <= value < 2**63}
    return DeviceInfo(kind, printable(name)[:_LONGEST_NAME] if isinstance(name, str) and name else f"GPU {gpu}", known)


def host_info(gpus: Mapping[int, DeviceInfo]) -> DeviceInfo:
    """Return GPUs by their numbers as one device, with the details that they have in common: ``"2 × NVIDIA H100"``."""
    first, *others = gpus.values()
    if not others:
        return first
    names = {str(number): gpu.name for number, gpu in gpus.items()}
    shared: dict[str, Any] = {key: value for key, value in first.details.items() if all(gpu.details.get(key) == value for gpu in others)}
    if len(set(names.values())) == 1:
        return DeviceInfo(first.kind, f"{len(gpus)} × {first.name}", shared)
    return DeviceInfo(first.kind, listed(list(names.values())[:_MOST_NAMED]), {**shared, "names": names})


def versions_of(given: Mapping[Any, Any]) -> dict[str, str]:
    """Return versions by library, as texts; those that are neither texts nor numbers are left out."""
    kept = ((printable(str(name)), value) for name, value in given.items() if isinstance(value, str | int | float))
    return {name[:_LONGEST_VERSION]: printable(str(value))[:_LONGEST_VERSION] for name, value in kept}


def created_at(unix_ns: Any) -> str:
    """Return a time in ns since 1970 in UTC; empty where it is none."""
    if type(unix_ns) is not int or not _EARLIEST_NS <= unix_ns < 2**62:
        return ""
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).isoformat(timespec="seconds")
