"""Advice, choices of engines and audits as static HTML.

Positions in an advice's charts are logarithms to base 10 of kernel lengths in µs and of numbers of kernels.
"""

from __future__ import annotations

from math import log10
from pathlib import Path

import numpy as np

from streamscope.advising.advice import Advice
from streamscope.advising.break_even import (
    BOTH,
    CAPTURED,
    PLAIN,
    STREAMS,
    DeviceCosts,
    Regions,
    branch_regions,
    chain_regions,
    graph_pays,
    second_stream_pays,
)
from streamscope.advising.sentences import (
    BRANCH,
    basis,
    device_sentences,
    range_words,
)
from streamscope.analysis.table import device_words
from streamscope.auditing.audit import SHOWN, Audit
from streamscope.auditing.findings import Finding, Severity
from streamscope.measuring.choice import Choice
from streamscope.results.views import View
from streamscope_widgets.report import still_page
from streamscope_widgets.show.chart import Axis, Cells, Line, Panel, PlaneChart
from streamscope_widgets.show.html import Column, Html, Row, above, block, fill, image, lead, table
from streamscope_widgets.show.still_chart import plane_svg

LEVELS = (1.5, 2.0, 3.0, 4.0, 6.0)
"""Speed-ups whose lines are drawn."""
BANDS = (1.5, 2.0, 3.0)
"""Speed-ups from which an engine's region is drawn a shade darker."""
SHADES = {
    PLAIN: ("#e6e9ee",) * 4,
    STREAMS: ("#fbe3b3", "#f6cf80", "#eeb94b", "#e0a32a"),
    CAPTURED: ("#d6e4fb", "#b3cdf6", "#8ab1ee", "#6396e4"),
    BOTH: ("#d3efe4", "#a9dfca", "#7ccbac", "#50b68d"),
}
LENGTH_TITLE = "kernel length, µs"
LENGTH_TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100)
COUNT_TICKS = (1, 2, 4, 8, 16, 32, 100, 300, 1000)


def regions_chart(costs: DeviceCosts) -> PlaneChart:
    """Describe the two panels: kernels that depend on each other, and independent branches."""
    title = LENGTH_TITLE + _simulated(costs)
    alike = "Each kernel needs the one before", "Two independent branches that leave each other room"
    left = _panel(alike[0], title, "number of kernels", chain_regions(costs))
    right = _panel(alike[1], title, "kernels in each branch", branch_regions(costs))
    return PlaneChart(headline(costs), _below(costs), (left, right))


def headline(costs: DeviceCosts) -> str:
    """Return the finding."""
    alone = second_stream_pays(costs, BRANCH, in_graph=False)
    return f"A graph pays {range_words(graph_pays(costs))}, a second stream launched one by one {range_words(alone)}"


def _simulated(costs: DeviceCosts) -> str:
    return ", simulated" if costs.device.simulated else ""


def _below(costs: DeviceCosts) -> str:
    return f"{costs.device.name}: {'simulated times, ' if costs.device.simulated else ''}predicted with its cost model"


def _panel(title: str, length_title: str, count_title: str, regions: Regions) -> Panel:
    x, y = np.log10(regions.lengths_us), np.log10(regions.counts)
    levels = tuple(line for level in LEVELS if (line := _level_line(regions, level)) is not None)
    return Panel(
        title=title,
        x=_axis(length_title, LENGTH_TICKS, float(x[0]), float(x[-1])),
        y=_axis(count_title, COUNT_TICKS, float(y[0]), float(y[-1])),
        cells=_cells(regions),
        lines=(*levels, *_dual_line(regions)),
        labels=tuple(_labels(regions)),
    )


def _axis(title: str, values: tuple[float, ...], low: float, high: float) -> Axis:
    ticks = tuple((log10(value), f"{value:,g}") for value in values if low - 1e-9 <= log10(value) <= high + 1e-9)
    return Axis(title, low, high, ticks)


def _cells(regions: Regions) -> Cells:
    """Colour each cell by its winner and, in four shades, by the speed-up."""
    return Cells(
        x=np.log10(regions.lengths_us),
        y=np.log10(regions.counts),
        colour=regions.winner * len(SHADES[PLAIN]) + np.digitize(regions.speedup, BANDS),
        colours=tuple(colour for engine in regions.engines for colour in SHADES[engine]),
    )


def _level_line(regions: Regions, level: float) -> Line | None:
    """Return where, from short kernels to long ones, the speed-up first falls below a level: a point for each count that has one."""
    x, y = np.log10(regions.lengths_us), np.log10(regions.counts)
    found = []
    for row, speedup in enumerate(regions.speedup):
        falls = np.flatnonzero((speedup[:-1] >= level) & (speedup[1:] < level))
        if len(falls) and abs(speedup[falls[0]] - speedup[falls[0] + 1]) < 0.3 * level:
            left = falls[0]
            share = (speedup[left] - level) / (speedup[left] - speedup[left + 1])
            found.append((x[left] + share * (x[left + 1] - x[left]), y[row]))
    if len(found) < 2:
        return None
    points = np.array(found)
    return Line(points[:, 0], points[:, 1], f"{level:g}×", len(found) - 1)


def _dual_line(regions: Regions) -> list[Line]:
    """Return the line to whose right a second stream pays where kernels are launched one by one."""
    known = np.isfinite(regions.dual_from_us) & (regions.dual_from_us > 0)
    if known.sum() < 2:
        return []
    x, y = np.log10(regions.dual_from_us[known]), np.log10(regions.counts[known])
    return [Line(x, y, "from here on dual beats async", 0, dashed=True)]


def _labels(regions: Regions) -> list[tuple[float, float, str]]:
    """Place each engine's name in the middle of its widest row, if there is room."""
    x, y = np.log10(regions.lengths_us), np.log10(regions.counts)
    placed = []
    for index, engine in enumerate(regions.engines):
        rows, columns = np.nonzero(regions.winner == index)
        if len(rows) * 25 < regions.winner.size:
            continue
        row = int(np.median(rows))
        placed.append((float(x[columns[rows == row]].mean()), float(y[row]), engine))
    return placed


RULED = "border-bottom:1px solid #80808055"
MOST_LINES = 8
"""Source lines that are told of one finding."""
# Readable on white and on black alike.
COLOURS = {Severity.ERROR: "#d64545", Severity.WARNING: "#b7791f", Severity.NOTE: "#808080"}


def advice_html(advice: Advice) -> Html:
    """Return an advice as HTML: the verdict and the picture."""
    costs, words = advice.costs, device_sentences(advice.costs)
    return block(
        above(device_words(costs.device)),
        lead(words),
        image(plane_svg(regions_chart(costs)), words),
        fill("<p>{}</p>", basis(costs)),
    )


def advice_page(advice: Advice, path: Path) -> Path:
    """Write an advice to one HTML file that needs no network and has no scripts, and return its path."""
    return still_page(path, title=f"What pays · {device_words(advice.costs.device)}", body=advice_html(advice))


def choice_html(choice: Choice) -> Html:
    """Return a choice as HTML: the engine and the reason first, then the candidates."""
    headings, *cells = choice.rows()
    columns = [*(Column(heading, kind="text") for heading in headings[:-1]), Column(headings[-1], kind="prose")]
    rows = [Row(each, bold=each[0] == choice.engine, style=RULED) for each in cells]
    reason = fill("<b>{}</b>{}", choice.engine, choice.reason.removeprefix(choice.engine))
    return block(above(choice.headline), lead(reason), table(columns, rows))


def audit_html(audit: Audit) -> Html:
    """Return an audit as HTML that takes its colours from the page: the checks made, then the findings, the worst first."""
    more = len(audit.findings) - SHOWN
    return block(
        fill('<p style="margin:0 0 2px 0;font-size:15px">{}</p>', audit.headline),
        fill('<p style="margin:0 0 10px 0;color:#808080">{}</p>', audit.circumstances),
        fill('<ul style="list-style:none;margin:0;padding:0">{}</ul>', [_finding(finding) for finding in audit.findings[:SHOWN]]),
        fill("<p>… and {:,} more in <code>.findings</code></p>", more) if more > 0 else "",
        *(fill('<p style="margin:0;color:#808080;font-size:12px">{}</p>', told) for told in (audit.compared, audit.not_seen) if told),
    )


def _finding(finding: Finding) -> Html:
    lines = [fill("<div>{}</div>", source) for source in finding.sources[:MOST_LINES]]
    return fill(
        '<li style="margin:0 0 8px 0;padding:0 0 0 10px;border-left:3px solid {colour}">'
        '<div><span style="color:{colour};font-weight:600">{severity}</span> · <b>{kind}</b>: {message}</div>'
        "<div>→ {advice}</div>{lines}</li>",
        colour=COLOURS[finding.severity],
        severity=finding.severity.value,
        kind=finding.kind.value,
        message=finding.message,
        advice=finding.advice,
        lines=fill('<div style="color:#808080;font-size:12px">{}</div>', lines) if lines else "",
    )


ADVICE = View(
    of="advice",
    html=advice_html,
    report=advice_page,
    pictures={"regions": lambda advice: plane_svg(regions_chart(advice.costs))},
)
AUDIT = View(of="audit", html=audit_html)
CHOICE = View(of="choice", html=choice_html)
