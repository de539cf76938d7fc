"""The ranks of a job as static HTML: the verdict, a heat map of waiting by rank and step, tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from streamscope.arrays import BoolArray, IntArray
from streamscope.errors import TraceError
from streamscope.ranks.job import PATH_HEADS, RANK_HEADS, Job
from streamscope.results.views import View
from streamscope.words import counted, format_us, shortened
from streamscope_widgets.job_timeline import awaited_by_step
from streamscope_widgets.show.html import Column, Html, Row, above, block, folded, image, lead, small, table, warned
from streamscope_widgets.show.svg import document, shape, small_text

MOST_ROWS, MORE_ROWS = 16, 240
_MOST_DRAWN = 64
"""Ranks and steps that the heat map has a row or column for; of more, neighbours share one, and the longest waiting counts. Late ranks
have rows of their own: they are those that do not wait."""
_LONGEST = 80
_LEVELS = 8
_WAITS, _AWAITED = "#b2182b", "#2166ac"
_LABEL = 10.0
"""Height of a row that has room for its name, in pixels."""
_LEFT, _TOP, _WIDTH = 64, 22, 720
_MEANINGS = {
    "offset, µs": "How far the clock of this rank is ahead of the first one's, in the middle of the recording.",
    "± µs": "Half the width of the interval that is certain.",
    "busy, µs": "Time with at least one kernel.",
    "waiting, µs": "In collectives, until the last rank began.",
    "transfer, µs": "In collectives, from then on.",
    "exposed, µs": "Time with communication and no other kernel.",
}


def ranks_html(job: Job) -> Html:
    """Return it as HTML of less than 200 kB that needs no script, style sheet or network."""
    parts = [above(job.title), lead(shortened(job.verdict, 1000))]
    if job.waits.waiting_ns.any():
        parts.append(image(waiting_svg(job), "Heat map: waiting in collectives, by rank and step"))
    return block(*parts, *ranks_tables(job), warned(job.warnings, 5, 300))


def ranks_tables(job: Job) -> list[Html]:
    """Return the tables of ranks and of the critical path, and between them what is said of late ranks."""
    columns = [Column(head, _MEANINGS.get(head, ""), "text" if head == "GPU" else "number") for head in RANK_HEADS]
    rows = [Row(tuple(shortened(cell, _LONGEST) for cell in cells)) for cells in job.table_rows()[:MORE_ROWS]]
    parts = [table(columns, rows[:MOST_ROWS])]
    if len(rows) > MOST_ROWS:
        of = f" of {len(job.ranks):,}" if len(job.ranks) > MORE_ROWS else ""
        parts.append(folded(counted(len(rows) - MOST_ROWS, "more rank") + of, table(columns, rows[MOST_ROWS:])))
    parts += [small(shortened(each, 1000)) for each in job.further]
    if path := job.path_cells(MOST_ROWS):
        heads = [Column(head, kind="number" if head in ("rank", "µs", "share") else "code") for head in PATH_HEADS]
        parts.append(folded("Critical path through all ranks", table(heads, [Row(cells) for cells in path])))
    return parts


def waiting_svg(job: Job, most_us: float | None = None, title: str = "") -> str:
    """Return a heat map by rank and step as an SVG document: red where a rank waits, blue where others wait longer for it.

    ``most_us``: time of the darkest cell, by default the longest of both.

    Raises
    ------
    TraceError
        Nothing waits.
    """
    waiting_us = job.waiting_by_step()
    if not waiting_us.any():
        raise TraceError("there is nothing to draw: no rank waits in a collective")
    numbers = [rank.number for rank in job.ranks]
    late = [numbers.index(each.rank) for each in job.late]
    rows = _starts(len(numbers), late)
    drawn, awaited = (
        np.maximum.reduceat(np.maximum.reduceat(each, rows, axis=0), _starts(each.shape[1]), axis=1)
        for each in (waiting_us, awaited_by_step(job))
    )
    most = longest_us(job) if most_us is None else most_us
    count, steps = drawn.shape
    height, width = round(max(4.0, min(18.0, 480 / count)), 1), _WIDTH / steps
    said = f"by rank and step, red: waits in collectives, blue: others wait for it; dark: {format_us(most)} µs"
    parts = [small_text(_LEFT, 14, f"{title}: {said}" if title else said)]
    apart = math.ceil(_LABEL / height)
    named = [at for at in range(count) if rows[at] in late]
    named += [at for at in range(0, count, apart) if all(abs(at - each) >= apart for each in named)]
    parts += [small_text(_LEFT - 6, _TOP + (at + 0.5) * height + 3.5, f"rank {numbers[rows[at]]}", "end") for at in named]
    level = np.ceil(np.minimum(np.maximum(drawn, awaited) / most, 1) * _LEVELS - 0.1).astype(int)
    for colour, chosen in ((_WAITS, drawn >= awaited), (_AWAITED, drawn < awaited)):
        for one in range(1, _LEVELS + 1):
            cells = _cells(chosen & (level == one), width, height)
            if cells:
                parts.append(shape("path", d=cells, fill=colour, fill_opacity=f"{one / _LEVELS:.2f}", shape_rendering="crispEdges"))
    bottom = _TOP + count * height
    parts += [shape("rect", x=_LEFT, y=_TOP, width=_WIDTH, height=count * height, fill="none", stroke="#808080")]
    parts.append(small_text(_LEFT, bottom + 14, "step 0"))
    parts.append(small_text(_LEFT + _WIDTH, bottom + 14, f"step {waiting_us.shape[1] - 1:,}", "end"))
    return document(_LEFT + _WIDTH + 12, bottom + 22, *parts, label="Waiting in collectives by rank and step")


def longest_us(job: Job) -> float:
    """Return how long a rank waits in a step, or the others for it, at most."""
    return max(float(each.max(initial=0)) for each in (job.waiting_by_step(), awaited_by_step(job)))


def _cells(chosen: BoolArray, width: float, height: float) -> str:
    """Return the path of the cells of a grid that a mask chooses; neighbours in a row are one box."""
    edges = np.diff(np.pad(chosen.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    (row, begin), (_, end) = np.nonzero(edges == 1), np.nonzero(edges == -1)
    return "".join(
        f"M{_LEFT + low * width:.4g} {_TOP + at * height:.4g}h{(high - low) * width:.4g}v{height:.3g}h-{(high - low) * width:.4g}z"
        for at, low, high in zip(row.tolist(), begin.tolist(), end.tolist(), strict=True)
    )


def _starts(length: int, alone: Sequence[int] = ()) -> IntArray:
    """Return where the rows or columns begin that neighbours share: at most so many, and one more for each side of those that are alone."""
    count = min(length, _MOST_DRAWN)
    places = np.arange(count) * length // count
    found: IntArray = np.unique([*places.tolist(), *alone, *(at + 1 for at in alone if at + 1 < length)])
    return found


RANKS = View(of="ranks", html=ranks_html, pictures={"waiting": waiting_svg}, timeline="streamscope_widgets.timeline:job_timeline")
