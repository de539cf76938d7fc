"""Origin of captured code: the GPU, the date, the versions, and the memory that the capture holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamscope.capturing.keeping import MemoryHeld
from streamscope.words import listed


@dataclass(frozen=True)
class CaptureOrigin:
    """Place and memory of a capture."""

    device: str
    """Name of the GPU."""
    date: str
    """In ISO format, UTC."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of Streamscope, the framework and the driver; empty in files of older versions."""
    memory: MemoryHeld | None = None
    """None in files of older versions."""
    results: tuple[int, ...] = ()
    """Addresses of the function's results."""


def origin_words(origin: CaptureOrigin) -> str:
    """Place, time and versions of a capture: ``"on an NVIDIA H200, 2026-11-22 20:42 UTC, with torch 2.11"``."""
    day, _, clock = origin.date.partition("T")
    when = f", {day} {clock[:5]} UTC" if clock else f", {day}" if day else ""
    versions = [f"{name} {version}" for name, version in origin.versions.items()]
    return f"on an {origin.device}{when}" + (f", with {listed(versions)}" if versions else "")
