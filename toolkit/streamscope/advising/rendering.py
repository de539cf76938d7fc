"""A choice as plain text: the engine and the reason first, then the candidates."""

from __future__ import annotations

import textwrap

from streamscope.advising.choice import Candidate, Choice
from streamscope.analysis.statistics import MedianInterval
from streamscope.analysis.table import device_words
from streamscope.words import format_mib, format_us

HEADINGS = ("engine", "", "makespan, µs", "low to high", "time / chosen", "device memory, MiB", "why")
_WIDTH = 120


def choice_text(choice: Choice) -> str:
    """Return a choice as plain text."""
    rows = [HEADINGS[:-1], *(choice_cells(candidate)[:-1] for candidate in choice.candidates)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([choice_headline(choice), *textwrap.wrap(choice.reason, _WIDTH), "", *lines])


def choice_headline(choice: Choice) -> str:
    """Return what was chosen for."""
    return f"Best engine for {choice.program} · {device_words(choice.device)}"


def choice_cells(candidate: Candidate) -> tuple[str, ...]:
    """Return what a table says of a candidate, under `HEADINGS`."""
    makespan, ratio = candidate.makespan_ns, candidate.ratio
    return (
        candidate.engine,
        candidate.standing.value,
        format_us(makespan.median / 1e3) if makespan else "–",
        f"{format_us(makespan.low / 1e3)} to {format_us(makespan.high / 1e3)}" if makespan else "–",
        _ratio(ratio) if ratio else "–",
        format_mib(candidate.device_bytes) if candidate.device_bytes is not None else "–",
        candidate.why,
    )


def _ratio(ratio: MedianInterval) -> str:
    return f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
