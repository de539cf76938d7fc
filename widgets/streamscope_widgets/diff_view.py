"""Differences of two traces: the answer, its parts, the largest changes, both timelines on one axis."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamscope.analysis.diff import COUNTER_HEADS
from streamscope.analysis.diff_rows import HEADINGS, DiffRow
from streamscope.results.views import View, sections
from streamscope.trace import TimelineGroup, Trace
from streamscope.trace.counters import note_rows
from streamscope.words import counted, shortened, signed_time_text
from streamscope_widgets.comparison_view import STYLE
from streamscope_widgets.notes_view import notes_section, notes_table
from streamscope_widgets.payload import PairGroup, as_groups
from streamscope_widgets.show import palette
from streamscope_widgets.show.html import Column, Html, Row, a_picture, above, bar, block, fill, folded, joined, lead, small, table, warned
from streamscope_widgets.still_timeline import timeline_image, timeline_svg
from streamscope_widgets.trace_view import timeline_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamscope.analysis.diff import TraceDiff

MOST_ROWS, MORE_ROWS = 10, 100
"""Rows that are seen at once, and those that unfold."""
MOST_WARNINGS = 4
LONGEST_NAME, LONGEST_CELL, LONGEST_KERNEL, LONGEST_TITLE = 80, 48, 200, 400
NOTE_HEADS = ("note", "trace", "at", "lane", "text")
LONGEST_BAR = 120
"""Pixels."""
MEANINGS = (
    "its name, and the operation where both traces are of one program",
    "how often it runs in the first trace, and in the second one",
    "sum of its durations in both",
    "the second trace less the first: negative is faster",
    "how much longer one run takes: the median, with its interval where 0 lies outside it",
)


def diff_html(found: TraceDiff) -> Html:
    """Return a comparison of two traces as HTML of less than 200 kB that needs no script, style sheet or network."""
    longest_us = _longest_us(found)
    return block(
        above(shortened(found.title, 3 * LONGEST_NAME)),
        lead(found.answer),
        _parts(found, longest_us),
        _rows(found, longest_us),
        _counters(found),
        warned(found.warnings, MOST_WARNINGS, LONGEST_TITLE),
        notes_table(_note_rows(found), NOTE_HEADS),
        timeline_image(diff_groups(found), found.answer),
        a_picture("comparison"),
    )


def diff_report(found: TraceDiff, path: Path) -> Path:
    """Write the difference with both live timelines to one self-contained HTML file, and return its path."""
    longest_us = _longest_us(found)
    first = [STYLE + fill('<p class="verdict">{}</p>', found.answer), _parts(found, longest_us)]
    warnings = warned(found.warnings, len(found.warnings), LONGEST_TITLE)
    title = shortened(found.title, 3 * LONGEST_NAME)
    return timeline_page(
        diff_groups(found),
        path,
        title,
        found.answer,
        first,
        [_rows(found, longest_us), _counters(found), warnings, notes_section(_note_rows(found), NOTE_HEADS), *sections(found, "html")],
    )


def diff_groups(found: TraceDiff) -> tuple[TimelineGroup, ...]:
    """Return both traces as groups; where they have no operations in common, their pairs take the place of operations."""
    traces = (found.first, found.second)
    names = [shortened(name, LONGEST_NAME) for name in found.names]
    if found.joined.by == "operation" and traces[0].info.program == traces[1].info.program:
        groups = [TimelineGroup(trace, label=name) for trace, name in zip(traces, names, strict=True)]
    else:
        groups = [PairGroup(_paired(found, side), label=name) for side, name in enumerate(names)]
    if found.change:
        words = f"{found.change.words} than {names[0]}" if found.change.told else f"{found.change.words} (against {names[0]})"
        groups[1] = replace(groups[1], comparison=words)
    return as_groups(groups)


def _paired(found: TraceDiff, side: int) -> Trace:
    trace = (found.first, found.second)[side]
    operation = np.full(len(trace.spans), -1)
    operation[found.pairs[:, side]] = np.arange(len(found.pairs))
    spans = replace(trace.spans, operation=operation, part=np.zeros(len(operation), np.int64))
    info = replace(trace.info, program=found.title)
    return Trace(spans, info, counters=trace.counters, markers=trace.markers, memory=trace.memory, user_notes=trace.user_notes)


def _longest_us(found: TraceDiff) -> float:
    return max(map(abs, [_span_us(found), *_parts_us(found), *_rows_us(found)]))


def _span_us(found: TraceDiff) -> float:
    return found.span_us[1] - found.span_us[0]


def _parts_us(found: TraceDiff) -> list[float]:
    return [part.difference_us for part in found.contributions]


def _rows_us(found: TraceDiff) -> list[float]:
    return [row.difference_us for row in found.changed[:MORE_ROWS]]


def _parts(found: TraceDiff, longest_us: float) -> Html:
    first, second = (Column(f"{shortened(name, LONGEST_CELL)}, µs") for name in found.names)
    columns = [Column("part of the span", kind="text"), first, second, Column("difference, µs", MEANINGS[3]), Column(kind="bar")]
    differences_us = [*_parts_us(found), _span_us(found)]
    span = len(differences_us) - 1
    differences_us += [found.communication.difference_us] if found.communication else []
    cells = zip(found.contribution_rows(), _bars(differences_us, longest_us), strict=True)
    return table(columns, [Row((*texts, drawn), bold=number == span) for number, (texts, drawn) in enumerate(cells)])


def _rows(found: TraceDiff, longest_us: float) -> Html:
    changed = found.changed[:MORE_ROWS]
    if not changed:
        return small("Kernels, copies and sets take as long in both.")
    name, *others = (Column(heading, meaning) for heading, meaning in zip(HEADINGS, MEANINGS, strict=True))
    columns = [replace(name, kind="prose"), *others, Column(kind="bar")]
    bars = _bars(_rows_us(found), longest_us)
    rows = [_row(*parts) for parts in zip(found.table_rows(MORE_ROWS), changed, bars, strict=True)]
    parts = [table(columns, rows[:MOST_ROWS])]
    if len(rows) > MOST_ROWS:
        parts.append(folded(counted(len(rows) - MOST_ROWS, "more row"), table(columns, rows[MOST_ROWS:])))
    if rest := found.changed[MORE_ROWS:]:
        parts.append(small(f"+ {counted(len(rest), 'more row')}, {signed_time_text(1e3 * sum(row.difference_us for row in rest))} in all"))
    return joined(parts)


def _row(cells: tuple[str, ...], row: DiffRow, drawn: Html) -> Row:
    name, *others = cells
    whole = " → ".join(dict.fromkeys(filter(None, (name, *row.symbols))))
    return Row((shortened(name, LONGEST_KERNEL), *others, drawn), title=shortened(whole, LONGEST_TITLE))


def _counters(found: TraceDiff) -> Html:
    """Return the means of counters of both traces side by side; nothing where neither has some."""
    if not found.counters:
        return Html()
    rows = [(shortened(name, LONGEST_NAME), *others) for name, *others in (each.cells() for each in found.counters[:MORE_ROWS])]
    name, *others = (Column(heading) for heading in COUNTER_HEADS)
    return table([replace(name, kind="prose"), *others], [Row(cells) for cells in rows])


def _note_rows(found: TraceDiff) -> list[tuple[str, ...]]:
    """Return your notes on both traces, numbered as in the pictures."""
    named = zip(found.names, (found.first, found.second), strict=True)
    rows = ((shortened(name, LONGEST_NAME), row) for name, trace in named for row in note_rows(trace.user_notes))
    return [(number, name, *others) for name, (number, *others) in rows]


def _bars(differences_us: Sequence[float], longest_us: float) -> list[Html]:
    """Draw differences as bars, in both tables on one scale: green for shorter, red for longer."""
    return [
        bar(LONGEST_BAR * abs(one) / longest_us, palette.FASTER if one < 0 else palette.SLOWER) if one else Html() for one in differences_us
    ]


DIFF = View(
    of="diff",
    html=diff_html,
    pictures={"timeline": lambda found: timeline_svg(diff_groups(found))},
    timeline="streamscope_widgets.timeline:diff_timeline",
    report=diff_report,
)
