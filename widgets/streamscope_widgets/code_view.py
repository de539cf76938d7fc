"""Times by line, module or range as static HTML: the row that costs most first, with its place in the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamscope.analysis.code import CodeRow, CodeTimes
from streamscope.analysis.memory import MemoryRow, MemoryUse
from streamscope.results.views import View
from streamscope.words import counted, shortened, shortened_inside
from streamscope_widgets.show import palette
from streamscope_widgets.show.html import Column, Html, Row, above, bar, block, fill, folded, lead, small, sortable, table

MOST_ROWS, MORE_ROWS = 15, 75
"""Rows that are seen at once, and those that unfold."""
LONGEST_NAME, LONGEST_TITLE = 80, 160
LONGEST_BAR = 120
"""Pixels."""
MEANINGS = {
    "defined at": "File and line where the function is defined. The profiler does not write the line that ran.",
    "file:line": "The line that launched the work.",
    "kernels": "Kernels that it launched.",
    "GPU, µs": "Sum of the durations of its kernels, copies and sets. The table is in this order.",
    "modules": "How many modules of the class there are.",
    "share": "Of the sum of all durations on the GPU.",
    "with inside, µs": "With the time of all modules that these call. A module inside another one of its class counts once.",
    "exposed, µs": "Time of its communication in which no kernel computes.",
    "idle caused, µs": "Gaps of the GPU that end with its work.",
}


def code_html(found: CodeTimes) -> Html:
    """Return it as HTML of less than 200 kB that needs no script, style sheet or network."""
    return block(above(shortened(found.title, 3 * LONGEST_NAME)), lead(found.answer), code_table(found), *map(small, found.notes))


def code_table(found: CodeTimes | MemoryUse, meanings: Mapping[str, str] = MEANINGS) -> Html:
    """Return the rows as a table, the largest first; below classes of modules the single ones unfold. ``meanings`` of the headings."""
    shown = rows_table(found, meanings)
    if len(found.rows) <= len(found.classes) or not found.classes:
        return shown
    modules = folded(counted(len(found.known), "single module"), rows_table(found.singles, meanings))
    return fill('{}<div class="screen">{}</div>', shown, modules)  # On paper they would be pages.


def rows_table(found: CodeTimes | MemoryUse, meanings: Mapping[str, str]) -> Html:
    """Return the rows as a table in their order, each with a bar of its share; ``meanings`` of the headings."""
    shown: Sequence[CodeRow | MemoryRow] = found.shown_rows[:MORE_ROWS]
    if not shown:
        return Html()
    name, *others = found.heads()
    columns = [Column(name, kind="prose")]
    columns += [Column(head, meanings[head], "code" if head in ("defined at", "file:line") else "number") for head in others]
    columns.append(Column(kind="bar"))
    cells = list(found.table_rows(MORE_ROWS))
    # Behind the rows stand their rest and what is in no row.
    rows = [_row(texts, row) for texts, row in zip(cells, shown, strict=False)]
    last = [Row((*texts, "")) for texts in cells[len(rows) :]]
    if len(rows) <= MOST_ROWS:
        return sortable(table(columns, rows, last=last))
    more = folded(counted(len(rows) - MOST_ROWS, "more row"), table(columns, rows[MOST_ROWS:], last=last))
    return sortable(table(columns, rows[:MOST_ROWS]), more)


def _row(cells: Sequence[str], row: CodeRow | MemoryRow) -> Row:
    name, *others = cells
    drawn = bar(LONGEST_BAR * row.share, palette.KERNELS[0]) if row.share else Html()
    if row.file:
        others[0] = shortened_inside(others[0], LONGEST_NAME)
    return Row((shortened_inside(name, LONGEST_NAME), *others, drawn), title=shortened(row.called, LONGEST_TITLE))


CODE = View(of="code", html=code_html)
