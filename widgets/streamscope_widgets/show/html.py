"""HTML by templates that escape their values, and the few blocks of static results.

An untrusted notebook keeps inline styles, ``title=``, and pictures with a data URI. The blocks rest on nothing else.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from streamscope.words import capitalised, counted, shortened
from streamscope_widgets.show.svg import data_uri, words

SANS = "font-family:system-ui,-apple-system,Segoe UI,Roboto,sans-serif"
CODE = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
LINE = "border-bottom:1px solid #888888"
"""Under the heads of a table."""
_CELLS = {
    "number": "text-align:right;padding:3px 10px;white-space:nowrap",
    "text": "text-align:left;padding:3px 10px;white-space:nowrap",
    "code": f"text-align:left;padding:3px 10px;white-space:nowrap;{CODE}",
    "prose": "text-align:left;padding:3px 10px;min-width:14em;white-space:normal;overflow-wrap:anywhere",
    "bar": "padding:3px 10px",
}


_LONG_WORD = re.compile(r"[^\s&]{30,}")
_JOINT = re.compile(r"(?<=[_:,.])(?=\w)")
"""Between the parts of a name."""


class Html(str):
    """Text that is HTML or SVG already, so that a template takes it as it is."""

    __slots__ = ()


class _Filler(string.Formatter):
    """Formats as `str.format` does; escapes anything but `Html`, and joins lists of it."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Html):
            return value
        if isinstance(value, list | tuple):
            return "".join(self.format_field(part, format_spec) for part in value)
        return words(format(value, format_spec))


_FILLER = _Filler()


def fill(template: str, /, *values: Any, **named: Any) -> Html:
    """Fill a template like `str.format`, with every value escaped, quotes too; `Html`, also in lists, goes in as it is."""
    return Html(_FILLER.vformat(template, values, named))


def joined(parts: Iterable[str], between: str = "") -> Html:
    """Join parts; those that are not `Html` are escaped."""
    return Html(between.join(_FILLER.format_field(part, "") for part in parts))


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    heading: str = ""
    meaning: str = ""
    """Shown when the pointer rests on the heading."""
    kind: Literal["number", "text", "code", "prose", "bar"] = "number"
    """Numbers stand on the right; only prose is wrapped, long names of kernels in it too."""


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    cells: Sequence[str]
    """As many as there are columns; `Html` is not escaped."""
    bold: bool | Collection[int] = False
    """Whether all cells are bold, or which."""
    title: str = ""
    """Shown when the pointer rests on the first cell."""
    style: str = ""
    """Added to the style of each cell."""


def table(columns: Sequence[Column], rows: Iterable[Row], *, last: Sequence[Row] = (), style: str = "") -> Html:
    """Return a table with its looks inline, for notebooks. The ``last`` rows, as a sum, stay there where the others are sorted."""
    heads = [_head(column, fill(' style="{}"{}', _head_style(column), _title(column.meaning))) for column in columns]
    foot = fill("<tfoot>{}</tfoot>", [_row(columns, row) for row in last]) if last else Html()
    return fill(
        '<div style="overflow-x:auto">'
        '<table style="border-collapse:collapse;margin:0 0 6px 0;font-size:12px;font-variant-numeric:tabular-nums{}">'
        "<thead><tr>{}</tr></thead><tbody>{}</tbody>{}</table></div>",
        style, heads, [_row(columns, row) for row in rows], foot,
    )  # fmt: skip


def sortable(*tables: Html) -> Html:
    """Return tables with the same columns as one that a page with scripts sorts (sorting.js); what unfolds is its end."""
    return fill('<div class="ss-sortable">{}</div>', tables)


def _head(column: Column, attributes: Html) -> Html:
    """Return the heading of a column; a column without one has a cell there, since a heading that says nothing is read aloud."""
    return fill("<th{}>{}</th>" if column.heading else "<td{}></td>", attributes, column.heading)


def _head_style(column: Column) -> str:
    looks = f"{_CELLS['text' if column.kind == 'code' else column.kind]};{LINE};vertical-align:bottom;font-weight:600"
    return f"{looks};white-space:normal" if column.kind == "number" else looks


def _row(columns: Sequence[Column], row: Row) -> Html:
    bold = row.bold if isinstance(row.bold, Collection) else range(len(columns) if row.bold else 0)
    cells = []
    for number, (column, cell) in enumerate(zip(columns, row.cells, strict=True)):
        style = ";".join(filter(None, (_CELLS[column.kind], row.style, "font-weight:700" if number in bold else "")))
        shown = _breakable(cell) if column.kind == "prose" and not isinstance(cell, Html) else cell
        cells.append(fill('<td style="{}"{}>{}</td>', style, _title("" if number else row.title), shown))
    return fill("<tr>{}</tr>", cells)


def _breakable(text: str) -> Html:
    """Return text whose long words, as names of kernels, are broken behind their parts rather than anywhere."""
    return Html(_LONG_WORD.sub(lambda word: _JOINT.sub("<wbr>", word[0]), words(text)))


def page_table(columns: Sequence[Column], rows: Iterable[Row]) -> Html:
    """Return a table that takes its looks from the page's style sheet; bold rows have the class ``best``."""
    heads = [_head(column, _title(column.meaning)) for column in columns]
    body = [fill("<tr{}>{}</tr>", _class("best" if row.bold else ""), [fill("<td>{}</td>", cell) for cell in row.cells]) for row in rows]
    head = fill("<thead><tr>{}</tr></thead>", heads) if any(column.heading for column in columns) else ""
    return fill("<table>{}<tbody>{}</tbody></table>", head, body)


def _title(text: str) -> Html:
    return fill(' title="{}"', text) if text else Html()


def _class(name: str) -> Html:
    return fill(' class="{}"', name) if name else Html()


def block(*parts: str) -> Html:
    """Return the frame of a result in a notebook."""
    return fill('<div style="{};font-size:13px;line-height:1.45;max-width:1000px">{}</div>', SANS, parts)


def above(line: str) -> Html:
    """Return the faint line above a result: its subject."""
    return fill('<p style="margin:0 0 2px 0;color:#808080">{}</p>', line)


def lead(sentence: str) -> Html:
    """Return the sentence that a result is."""
    return fill('<p style="margin:0 0 10px 0;font-size:15px">{}</p>', sentence)


def small(text: str) -> Html:
    """Return a small paragraph; nothing where there is no text."""
    return fill('<p style="margin:0 0 6px 0;font-size:12px">{}</p>', text) if text else Html()


def folded(summary: str, *parts: str) -> Html:
    """Return content that unfolds under a line."""
    return fill('<details style="margin:0 0 10px 0;font-size:12px"><summary>{}</summary>{}</details>', summary, parts)


def warned(warnings: Sequence[str], most: int, longest: int) -> Html:
    """Return warnings, each in its line and shortened to ``longest`` letters; of many, those after the first ``most`` unfold."""
    said = [fill("⚠ {}", shortened(capitalised(warning), longest)) for warning in warnings]
    first, more = small(lines(said[:most])), said[most:]
    return joined([first, folded(counted(len(more), "more warning"), lines(more))]) if more else first


def a_picture(of: str) -> Html:
    """Say how to have the live timelines of a trace, a comparison and the like."""
    return small(f"This is a picture. timeline() on the {of} gives one to zoom and search.")


def lines(texts: Iterable[str]) -> Html:
    """Return texts below each other."""
    return joined(texts, "<br>")


THEME_OF_VS_CODE = (
    "<style>[data-vscode-theme-kind] .ss-picture{color-scheme:dark}[data-vscode-theme-kind$=light] .ss-picture{color-scheme:light}</style>"
)
"""A picture is dark in dark surroundings, for which a browser asks the page. VS Code's page does not say: it names the theme."""


def image(svg: str, alt: str) -> Html:
    """Return an SVG document as a picture that untrusted notebooks keep."""
    picture = '{}<img class="ss-picture" style="max-width:100%;height:auto" alt="{}" src="{}">'
    return fill(picture, Html(THEME_OF_VS_CODE), alt, Html(data_uri(svg)))


def bar(length: float, colour: str) -> Html:
    """Return a bar of ``length`` px for the cell of a table."""
    width = max(1, round(length))
    return fill('<div style="width:{}px;height:9px;border-radius:2px;background:{}"></div>', width, colour)


EMPTY = {"text/html": "", "text/plain": ""}
"""An output that shows nothing."""

_STILL_STYLE = """<style>
:is(.jp-OutputArea-child, .output_container):has(+ :is(.jp-OutputArea-child, .output_container) .ss-timeline canvas) .ss-still,
.jp-OutputArea-child:has(+ .jp-OutputArea-child .ss-x-says[role="alert"]) .ss-still,
.jp-OutputArea-child:has(.ss-still) + .jp-OutputArea-child:not(:has(> .jp-OutputArea-output > *)),
.jp-OutputArea-child:has(.ss-still) + .jp-OutputArea-child .ss-message { display: none; }
</style>"""
"""A drawn timeline hides the picture in the output before it, in JupyterLab and in VS Code. So does an error that an explorer tells. Below
a picture, a widget that has no model (an error message without any element) and one that waits for its kernel are hidden."""


def still(*parts: str, pictured: bool = True) -> Html:
    """Return a cell's stand-in until the live timeline in its next output is drawn, and where it never is."""
    advice = small("This is a picture. Run the cell for timelines to zoom and search.") if pictured else Html()
    return fill('{}<div class="ss-still">{}{}</div>', Html(_STILL_STYLE), parts, advice)


@contextmanager
def notebook_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar while the block runs, and give ``progress(what, step, steps)`` that moves it.

    The bar leaves nothing behind: no widget, which a reopened notebook could not show, only an empty output.
    """
    from IPython.display import display

    handle = display(_progress("starting", 0, 1), raw=True, display_id=True)  # type: ignore[no-untyped-call]
    try:
        yield lambda what, step, steps: handle.update(_progress(what, step, steps), raw=True)
    finally:
        handle.update(EMPTY, raw=True)


def _progress(what: str, step: int, steps: int) -> dict[str, str]:
    shown = fill('<progress value="{}" max="{}" style="width:16em;vertical-align:middle"></progress> {}', step, steps, what)
    return {"text/html": str(shown), "text/plain": f"{what} ({step} of {steps})"}
