"""What fills the memory as static HTML: the peak, what held it, what would have to go, and the curve under the streams."""

from __future__ import annotations

from collections.abc import Sequence

from streamscope.analysis.memory import MemoryRow, MemoryUse, memory
from streamscope.results.views import View
from streamscope.trace import Trace
from streamscope.words import counted, shortened, shortened_inside
from streamscope_widgets.payload import as_groups
from streamscope_widgets.show import palette
from streamscope_widgets.show.html import Column, Html, Row, above, bar, block, fill, folded, joined, lead, small, table
from streamscope_widgets.still_timeline import timeline_image, timeline_svg

MOST_ROWS, MORE_ROWS = 15, 75
"""Rows that are seen at once, and those that unfold."""
LONGEST_NAME, LONGEST_TITLE = 80, 160
LONGEST_BAR = 120
"""Pixels."""
MEANINGS = {
    "defined at": "File and line where the function is defined. The profiler does not write the line that ran.",
    "file:line": "The line that took the memory.",
    "allocations": "Allocations that were held at the peak.",
    "MiB": "Their bytes together, in MiB of 1,048,576. The table is in this order, and adds up to the peak.",
    "share": "Of the peak.",
}
HEADING = "What held the peak of the memory"


def memory_html(found: MemoryUse) -> Html:
    """Return it as HTML of less than 200 kB that needs no script, style sheet or network."""
    head = above(shortened(found.title, 3 * LONGEST_NAME)), lead(found.answer)
    return block(*head, _table(found), *map(small, found.notes), timeline_image(as_groups([found.trace]), found.answer))


def memory_parts(trace: Trace) -> tuple[Html, ...]:
    """Return what held the peak of a trace: a sentence, the table, and the notes."""
    found = memory(trace)
    return fill("<p>{}</p>", found.answer), _table(found), *map(small, found.notes)


def _table(found: MemoryUse) -> Html:
    """Return what held the peak as a table, the largest row first."""
    if not found.rows:
        return Html()
    name, *others = found.heads()
    columns = [Column(name, kind="prose")]
    columns += [Column(head, MEANINGS[head], "code" if head in ("defined at", "file:line") else "number") for head in others]
    columns.append(Column(kind="bar"))
    cells = list(found.table_rows(MORE_ROWS))
    rows = [_row(texts, row) for texts, row in zip(cells, found.rows[:MORE_ROWS], strict=False)]
    last = [Row((*texts, "")) for texts in cells[len(rows) :]]
    if len(rows) <= MOST_ROWS:
        return table(columns, [*rows, *last])
    more = folded(counted(len(rows) - MOST_ROWS, "more row"), table(columns, [*rows[MOST_ROWS:], *last]))
    return joined([table(columns, rows[:MOST_ROWS]), more])


def _row(cells: Sequence[str], row: MemoryRow) -> Row:
    name, *others = cells
    drawn = bar(LONGEST_BAR * row.share, palette.KERNELS[0])
    if row.file:
        others[0] = shortened_inside(others[0], LONGEST_NAME)
    return Row((shortened_inside(name, LONGEST_NAME), *others, drawn), title=shortened(row.called, LONGEST_TITLE))


MEMORY = View(of="memory", html=memory_html, pictures={"timeline": lambda found: timeline_svg(as_groups([found.trace]))})
