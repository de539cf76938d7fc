"""The gain of a parallelised function over the captured order, with its evidence."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from streamscope.analysis.statistics import MedianInterval
from streamscope.analysis.table import device_words
from streamscope.capturing.captured import UpperBound
from streamscope.capturing.certificate import Certificate
from streamscope.capturing.memory import MemoryHeld
from streamscope.engine_entry import GRAPH, STREAM, engine_with
from streamscope.measuring.choice import Choice, Standing
from streamscope.parallelising.proving import Proof
from streamscope.trace.file_checks import plain
from streamscope.trace.info import DeviceInfo
from streamscope.words import aligned, binary_size, capitalised, counted, format_us, time_text

CAPTURED, PARALLEL = engine_with(GRAPH), engine_with(GRAPH, STREAM)
"""Engines: the captured order, and the one that memory asks for."""

_FARED = {
    Standing.SLOWER: "is slower",
    Standing.NO_FASTER: "is no faster",
    Standing.UNDECIDED: "cannot be told apart from that",
}


@dataclass(frozen=True, repr=False)
class Gain:
    """Measurements when a function was parallelised.

    Attributes
    ----------
    name : str
    device : DeviceInfo
    nodes : int
        Kernels, copies and sets of a run.
    choice : Choice
        The rounds in which both orders took turns, in ns, with what was ruled out and why.
    plain_us : float
        Median time of a plain call of the function, in µs, with the framework's own work on the host.
    copied_bytes : int
        What a call copies at most: arguments into the capture's memory, and results out of it.
    memory : MemoryHeld
        Device memory of the capture, beside what a plain call uses.
    certificate : Certificate
        For each pair of nodes that touch the same memory, what orders them.
    bound : UpperBound, optional
        How fast the order that memory asks for can be at best.
    proof : Proof, optional
        The runs on other inputs, and what they showed; None where there were none.
    order : str
        How the chosen order is spread, in words.
    note : str
        What to know of the function's state; empty where it is as if it had never been called.
    """

    name: str
    device: DeviceInfo
    nodes: int
    choice: Choice
    plain_us: float
    copied_bytes: int
    memory: MemoryHeld
    certificate: Certificate
    bound: UpperBound | None = None
    proof: Proof | None = None
    order: str = ""
    note: str = ""

    @property
    def engine(self) -> str:
        """``"graph"``: it runs as it was captured. ``"graph-dual"``: as its memory asks."""
        return self.choice.engine

    @property
    def parallel(self) -> bool:
        """Whether it runs in another order than the captured one."""
        return self.engine != CAPTURED

    @property
    def before_ns(self) -> MedianInterval:
        """One run in the captured order, in ns."""
        return self._makespan_ns(CAPTURED)

    @property
    def after_ns(self) -> MedianInterval:
        """One run as it is, in ns; the same as before where nothing is gained."""
        return self._makespan_ns(self.engine)

    @property
    def speedup(self) -> MedianInterval | None:
        """How many times as fast as the captured order, from runs in turns; None where it is that order."""
        return next((one.ratio for one in self.choice.candidates if self.parallel and one.engine == CAPTURED), None)

    @property
    def headline(self) -> str:
        """The gain, in one sentence."""
        speedup, after = self.speedup, time_text(self.after_ns.median)
        if self.proof is not None and not self.proof.holds:
            return (
                f"{self.name} runs in the order in which it was captured, {after} a run, since the other was not proven: {self.proof.text}."
            )
        if speedup is None:
            others = [
                f"{one.engine} {_FARED.get(one.standing, 'was ruled out: ' + one.why)}"
                for one in self.choice.candidates
                if one.engine != CAPTURED
            ]
            why = f" ({'; '.join(others)})" if others else ""
            return f"Nothing to gain: {self.name} runs in the order in which it was captured, {after} a run{why}."
        return (
            f"{self.name} takes {after} a run, and {time_text(self.before_ns.median)} in the order in which it was captured: "
            f"{speedup.median:.2f}× as fast ({speedup.low:.2f} to {speedup.high:.2f})."
        )

    @property
    def facts(self) -> list[str]:
        """The evidence, a sentence each."""
        proven = self.proof is not None and self.parallel
        return [
            *([f"The order was {self.order}."] if self.order and self.parallel else []),
            *([f"{capitalised(self.proof.text)}."] if self.proof is not None and proven else []),
            f"{counted(self.nodes, 'node')}; {self.certificate.headline}.",
            *([] if self.bound is None else [f"By the durations of the nodes: {self.bound}."]),
            f"{capitalised(str(self.memory))}.",
            *([f"A call copies up to {binary_size(self.copied_bytes)} besides."] if self.copied_bytes else []),
            *([self.note] if self.note else []),
        ]

    @property
    def text(self) -> str:
        """The verdict in a few sentences: headline and evidence."""
        return " ".join([self.headline, *self.facts])

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the rows of the table: order, time in µs, comparison with the captured order."""
        before = self.before_ns.median
        rows = [
            ("plain call", format_us(self.plain_us), f"{before / self.plain_us / 1e3:.2f}×"),
            ("captured order", format_us(before / 1e3), "1.00×"),
        ]
        if self.speedup is not None:
            rows.append(("chosen order", format_us(self.after_ns.median / 1e3), f"{self.speedup.median:.2f}×"))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return the gain as JSON values; times in ns, in µs where the name says so."""
        content = {
            "name": self.name,
            "device": {"kind": self.device.kind, "name": self.device.name},
            "engine": self.engine,
            "headline": self.headline,
            "facts": self.facts,
            "plain_us": self.plain_us,
            "before_ns": asdict(self.before_ns),
            "after_ns": asdict(self.after_ns),
            "speedup": None if self.speedup is None else asdict(self.speedup),
            "choice": self.choice.to_dict(),
            "certificate": self.certificate.to_dict(),
            "proof": None if self.proof is None else self.proof.to_dict(),
        }
        found: dict[str, Any] = plain(content)
        return found

    def __str__(self) -> str:
        heading = f"{self.name} · {device_words(self.device)}"
        return "\n".join([heading, self.headline, "", *aligned([("", "µs a run", "speed-up"), *self.rows()]), "", *self.facts])

    def _makespan_ns(self, engine: str) -> MedianInterval:
        found = next(one.makespan_ns for one in self.choice.candidates if one.engine == engine)
        assert found is not None
        return found
