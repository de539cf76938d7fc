"""A choice as plain text and as static HTML: the engine and the reason first, then the candidates."""

from __future__ import annotations

import textwrap
from html import escape

from streamscope.advising.choice import Candidate, Choice
from streamscope.analysis.definitions import format_mib, format_us
from streamscope.analysis.statistics import MedianInterval
from streamscope.analysis.table import device_words

HEADINGS = ("engine", "", "makespan, µs", "low to high", "time / chosen", "device memory, MiB", "why")
SANS = "font-family:system-ui,-apple-system,Segoe UI,Roboto,sans-serif;font-size:13px;line-height:1.45;max-width:1000px"
CELL = "padding:3px 10px;text-align:left;border-bottom:1px solid #80808055"
_WIDTH = 120


def choice_text(choice: Choice) -> str:
    """Return a choice as plain text."""
    rows = [HEADINGS[:-1], *(_cells(candidate)[:-1] for candidate in choice.candidates)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([_headline(choice), *textwrap.wrap(choice.reason, _WIDTH), "", *lines])


def choice_html(choice: Choice) -> str:
    """Return a choice as HTML that needs no script and no style sheet."""
    heads = "".join(f'<th style="{CELL};font-weight:600">{escape(heading)}</th>' for heading in HEADINGS)
    rows = "".join(
        f"<tr>{''.join(f'<td style={_quoted(CELL, candidate, choice)}>{escape(cell)}</td>' for cell in _cells(candidate))}</tr>"
        for candidate in choice.candidates
    )
    return (
        f'<div style="{SANS}"><p style="margin:0 0 2px 0;color:#808080">{escape(_headline(choice))}</p>'
        f'<p style="margin:0 0 10px 0;font-size:15px"><b>{escape(choice.engine)}</b>{escape(choice.reason.removeprefix(choice.engine))}</p>'
        f'<div style="overflow-x:auto"><table style="border-collapse:collapse;font-size:12px">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></div>"
    )


def _quoted(style: str, candidate: Candidate, choice: Choice) -> str:
    return f'"{style}{";font-weight:700" if candidate.engine == choice.engine else ""}"'


def _headline(choice: Choice) -> str:
    return f"Best engine for {choice.program} · {device_words(choice.device)}"


def _cells(candidate: Candidate) -> tuple[str, ...]:
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
