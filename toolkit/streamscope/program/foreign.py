"""Foreign programs: code that was captured rather than written for Streamscope, as every package above `capturing` knows it.

`capturing` makes them. Engines, measuring and the verbs need no more than is here, so none of them imports `capturing`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from streamscope.arguments import Kinds, check_kinds
from streamscope.arrays import Array
from streamscope.errors import TraceError
from streamscope.program.operation import Program
from streamscope.trace.file_checks import TEXT, TEXTS


@dataclass(frozen=True)
class CaptureInfo:
    """Captured code in words, for a comparison and its report."""

    captured: str
    """Where, when and with which versions it was captured."""
    bound: str
    """How much faster another order can be at most."""
    certificate: str
    """The claim, in one sentence."""
    evidence: tuple[str, ...] = ()
    """The evidence, a sentence each."""
    memory: str = ""
    """Memory of the capture on the GPU; empty where unknown."""
    notes: tuple[str, ...] = ()
    """What to know of it besides, a sentence each: whether it does what a plain call does."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        texts = {"captured": self.captured, "bound": self.bound, "certificate": self.certificate, "memory": self.memory}
        return {**texts, "evidence": list(self.evidence), "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, stored: Any) -> CaptureInfo:
        """Read the values of `to_dict`.

        Raises
        ------
        LookupError, TypeError, ValueError, TraceError
            It is something else.
        """
        captured, bound, certificate, memory = (stored[name] for name in ("captured", "bound", "certificate", "memory"))
        # Comparisons of older versions have no notes.
        evidence, notes = tuple(stored["evidence"]), tuple(stored.get("notes", ()))
        check_kinds("capture", _STORED, captured, bound, certificate, memory, evidence, notes, error=TraceError)
        return cls(captured, bound, certificate, evidence, memory, notes)


_STORED: Kinds = {"captured": TEXT, "bound": TEXT, "certificate": TEXT, "memory": TEXT, "evidence": TEXTS, "notes": TEXTS}


class ForeignProgram:
    """A program of other code's launches, read from a file or live in this process."""

    # No ABC: an engine asks for this class in each run, and with ABCMeta `isinstance` takes three times as long.
    name: str

    @abstractmethod
    def trace(self) -> Program:
        """Return the program; it takes no arguments, since the capture holds its own memory."""

    @property
    @abstractmethod
    def facts(self) -> CaptureInfo:
        """Facts for a comparison and its report."""

    @property
    @abstractmethod
    def capture_us(self) -> float | None:
        """Time of a replay in the order of the capture, in µs; None where it was not measured."""


class ForeignFunction(ForeignProgram):
    """A foreign program that lives in this process: it has the memory of its capture, and its results can be checked."""

    @abstractmethod
    def expected(self) -> Sequence[Array]:
        """Return the results of a plain call of the function, on the host."""

    @abstractmethod
    def allowed(self) -> Sequence[Array]:
        """Return how far results may be from `expected`, as absolute differences."""

    @abstractmethod
    def outputs(self) -> list[Array]:
        """Return the captured results of the last run, on the host."""

    @abstractmethod
    def clear_outputs(self) -> None:
        """Overwrite the results, so that a run that writes nothing shows, and restore the function's state."""

    @abstractmethod
    def keeping(self) -> AbstractContextManager[None]:
        """Run a block, and restore the function's state afterwards as it was before the block."""
