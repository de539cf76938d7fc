"""What is known of captured code beside its times: where it was captured, what there is to gain, why its order is right, what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamscope.arguments import Kinds, check_kinds
from streamscope.capturing.keeping import MemoryHeld
from streamscope.errors import TraceError
from streamscope.trace.stored import TEXT, TEXTS
from streamscope.words import listed


@dataclass(frozen=True)
class CaptureOrigin:
    """Where code was captured, and what that holds in memory."""

    device: str
    """Name of the GPU."""
    date: str
    """In ISO format, UTC."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of Streamscope, the framework and the driver; empty in files of older versions."""
    memory: MemoryHeld | None = None
    """None in files of older versions."""
    results: tuple[int, ...] = ()
    """Addresses of what the function returned."""


@dataclass(frozen=True)
class CaptureFacts:
    """What a comparison and its report say of captured code."""

    captured: str
    """Where, when and with what."""
    bound: str
    """How much faster another order can be at most."""
    certificate: str
    """What is certified, in one sentence."""
    evidence: tuple[str, ...] = ()
    """What the certificate rests on, a sentence each."""
    memory: str = ""
    """What the capture holds on the GPU; empty where that is not known."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        texts = {"captured": self.captured, "bound": self.bound, "certificate": self.certificate, "memory": self.memory}
        return {**texts, "evidence": list(self.evidence)}

    @classmethod
    def from_json(cls, stored: Any) -> CaptureFacts:
        """Return what `to_json` returned.

        Raises
        ------
        LookupError, TypeError, ValueError, TraceError
            It is something else.
        """
        captured, bound, certificate, memory = (stored[name] for name in ("captured", "bound", "certificate", "memory"))
        evidence = tuple(stored["evidence"])
        check_kinds("capture", _STORED, captured, bound, certificate, memory, evidence, error=TraceError)
        return cls(captured, bound, certificate, evidence, memory)


_STORED: Kinds = {"captured": TEXT, "bound": TEXT, "certificate": TEXT, "memory": TEXT, "evidence": TEXTS}


def origin_words(origin: CaptureOrigin) -> str:
    """Return where, when and with what code was captured: ``"on an NVIDIA H200, 2026-11-22 20:42 UTC, with torch 2.11"``."""
    day, _, clock = origin.date.partition("T")
    when = f", {day} {clock[:5]} UTC" if clock else f", {day}" if day else ""
    versions = [f"{name} {version}" for name, version in origin.versions.items()]
    return f"on an {origin.device}{when}" + (f", with {listed(versions)}" if versions else "")
