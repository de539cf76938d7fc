"""Result of `ss.best`: an engine, the reason in numbers, and how the others fared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from streamscope.analysis.statistics import MedianInterval
from streamscope.analysis.table import INTERVAL, device_words
from streamscope.measuring.elimination import MARGIN
from streamscope.results.result import Result
from streamscope.trace.info import DeviceInfo
from streamscope.words import aligned, format_mib, format_us, time_text, wrapped

if TYPE_CHECKING:
    from streamscope.engines.prepared import Prepared


HEADINGS = ("engine", "", "makespan, µs", INTERVAL, "time / chosen", "device memory, MiB", "why")
_WIDTH = 120
"""Characters in a line of text."""


class Standing(Enum):
    """How a candidate fared."""

    CHOSEN = "chosen"
    SLOWER = "slower"
    NO_FASTER = "no faster"
    UNDECIDED = "cannot be told apart"
    RULED_OUT = "ruled out"


@dataclass(frozen=True)
class Candidate:
    """One engine that was considered.

    Attributes
    ----------
    engine : str
    standing : Standing
    why : str
        Reason of the standing, in a few words.
    makespan_ns : MedianInterval, optional
        Over the rounds that it was in; None if it was ruled out before.
    ratio : MedianInterval, optional
        Its makespan over that of the chosen engine in the same round; None for the chosen one.
    device_bytes : int, optional
        Device memory that it holds; None where it is not known.
    against : str
        The engine that it is slower, or no faster, than; empty where there is none.
    """

    engine: str
    standing: Standing
    why: str
    makespan_ns: MedianInterval | None = None
    ratio: MedianInterval | None = None
    device_bytes: int | None = None
    against: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row of the table, under `HEADINGS`."""
        makespan, ratio = self.makespan_ns, self.ratio
        return (
            self.engine,
            self.standing.value,
            format_us(makespan.median / 1e3) if makespan else "–",
            _interval_text(format_us(makespan.low / 1e3), format_us(makespan.high / 1e3)) or "–" if makespan else "–",
            _ratio_text(ratio) if ratio else "–",
            format_mib(self.device_bytes) if self.device_bytes is not None else "–",
            self.why,
        )


@dataclass(frozen=True, repr=False)
class Choice(Result):
    """The engine that `ss.best` chose.

    Shown in a notebook, it is the reason and the table of candidates.

    Attributes
    ----------
    engine : str
    reason : str
        One paragraph with the measured numbers.
    candidates : tuple of Candidate
        The chosen one first, then the others as they came in, then those that were ruled out.
    program : str
        The program's name.
    device : DeviceInfo
        If it is simulated, so are all times.
    memory_limit : int, optional
        Device memory that an engine was allowed, in bytes.
    prepared : Prepared, optional
        The program prepared for that engine, inputs loaded, graphs captured: ready to run. None in a choice that was
        pickled.

    Examples
    --------
    >>> choice = ss.best(np.tanh, np.ones(64, np.float32), device="simulated", engines="sync,async", progress=False)
    >>> [(candidate.engine, candidate.standing.value) for candidate in choice.candidates]
    [('async', 'chosen'), ('sync', 'slower')]
    """

    view = "choice"
    renamed: ClassVar[Mapping[str, str]] = {"to_json": "to_dict()"}

    engine: str
    reason: str
    candidates: tuple[Candidate, ...]
    program: str
    device: DeviceInfo
    memory_limit: int | None = None
    prepared: Prepared | None = field(default=None, repr=False, compare=False)

    @property
    def headline(self) -> str:
        """For which program and device the engine was chosen."""
        return f"Best engine for {self.program} · {device_words(self.device)}"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "prepared": None}  # It belongs to its device and its process.

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        rows = [row[:-1] for row in self.rows()]
        return "\n".join([self.headline, *wrapped(self.reason, _WIDTH), "", *aligned(rows)])

    def rows(self) -> list[tuple[str, ...]]:
        """Return headings and a row for each candidate; simulated times have no intervals, so that column is left out."""
        rows = [HEADINGS, *(each.cells for each in self.candidates)]
        empty = {at for at, cells in enumerate(zip(*rows[1:], strict=True)) if HEADINGS[at] == INTERVAL and set(cells) == {"–"}}
        return [tuple(cell for at, cell in enumerate(row) if at not in empty) for row in rows]

    def to_dict(self) -> dict[str, Any]:
        """Return the choice as JSON values.

        Examples
        --------
        >>> choice = ss.best(np.tanh, np.ones(64, np.float32), device="simulated", engines="async,graph", progress=False)
        >>> choice.to_dict()["engine"]
        'graph'
        """
        return {
            "engine": self.engine,
            "reason": self.reason,
            "memory_limit": self.memory_limit,
            "candidates": [asdict(one) | {"standing": one.standing.value} for one in self.candidates],
        }


def reason(candidates: Sequence[Candidate], rounds: int, device: DeviceInfo) -> str:
    """Say why the first of some candidates, the chosen one, was chosen, which ran in so many rounds."""
    chosen, *others = candidates
    slower = sorted((one for one in others if one.standing is Standing.SLOWER and one.ratio), key=_ratio)
    sentences = [
        _fastest(chosen, slower[:1], rounds, exact=device.exact),
        _listed("Then: ", [f"{one.engine} ({_ratio(one):.2f}×)" for one in slower[1:]]),
        *(_tie(one, chosen.engine) for one in others if one.standing in (Standing.NO_FASTER, Standing.UNDECIDED)),
        _listed("Ruled out: ", [f"{one.engine} ({one.why})" for one in others if one.standing is Standing.RULED_OUT]),
        "These times are simulated, not measured." if device.simulated else "",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _ratio(candidate: Candidate) -> float:
    return candidate.ratio.median if candidate.ratio else float("inf")


def _fastest(chosen: Candidate, following: Sequence[Candidate], rounds: int, *, exact: bool) -> str:
    makespan_ns = chosen.makespan_ns.median if chosen.makespan_ns else float("nan")
    count = "run once" if exact else f"median of {rounds} rounds" if rounds > 1 else "median of one round"
    head = f"{chosen.engine} takes {time_text(makespan_ns)} ({count})"
    for other in following:
        if other.ratio is not None:
            interval = f"{other.ratio.low:.2f} to {other.ratio.high:.2f}× in {other.ratio.count} paired rounds, {other.ratio.basis}"
            noise = "" if exact else f" ({interval})"
            return f"{head}; {other.engine}, the next, takes {other.ratio.median:.2f}× as long{noise}."
    return f"{head}."


def _tie(candidate: Candidate, chosen: str) -> str:
    if candidate.standing is Standing.UNDECIDED:
        count = candidate.ratio.count if candidate.ratio else 0
        return f"{candidate.engine} cannot be told apart from it in {count} rounds, and {chosen} is simpler."
    told = f"{candidate.engine} is not faster by more than {MARGIN * 100:g} %"
    return f"{told}, and {chosen} is simpler." if candidate.against == chosen else f"{told} than {candidate.against}, which is slower."


def _listed(head: str, parts: Sequence[str]) -> str:
    return f"{head}{', '.join(parts)}." if parts else ""


def _interval_text(low: str, high: str) -> str:
    """Return an interval; empty where its ends read alike, as those of simulated times do."""
    return f"{low} to {high}" if low != high else ""


def _ratio_text(ratio: MedianInterval) -> str:
    interval = _interval_text(f"{ratio.low:.3f}", f"{ratio.high:.3f}")
    return f"{ratio.median:.3f} ({interval})" if interval else f"{ratio.median:.3f}"
