"""Our Plotly figures as still SVG, for reports: 4 kB each, where Plotly's script alone would weigh 4.8 MB, and in the page's own theme.

It knows what `streamscope_widgets.charts` draws with: horizontal bars, points with error bars, and boxes with given quantiles, over
categories from top to bottom, with annotations beside them. So a chart's numbers, words and colours are decided in one place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from streamscope.errors import TraceError, printable
from streamscope_widgets.show import palette

if TYPE_CHECKING:
    import plotly.graph_objects as go

WIDTH, ROW, BAR = 660, 38, 22
TOP, LEGEND, BOTTOM, RIGHT = 40, 22, 50, 8
CHARACTER = 6.7
"""About the width of a character in px, at a font size of 12."""
MOST_TICKS = 6

THEMED = {
    palette.INK: "var(--ink)",
    palette.FAINT_INK: "var(--soft)",
    palette.RULE: "var(--rule)",
    palette.CARD: "var(--ground)",
    palette.OVERLAPPED: "var(--overlapped)",
    palette.BOX: "var(--box)",
}
"""Colours that the page decides, by its theme."""
ON_BARS = {palette.INK: "#1f2431", "#ffffff": "white"}
"""What is written on a bar, in colours that no theme changes, as none changes the bar."""
STYLE = """
:root { --overlapped: #123a7d; --on-overlapped: #ffffff; --box: #cfe0fb; }
@media (prefers-color-scheme: dark) { :root { --overlapped: #a9c6fb; --on-overlapped: #101622; --box: #1d3561; } }
@media print { :root { --overlapped: #123a7d; --on-overlapped: #ffffff; --box: #cfe0fb; } }
.chart .beside { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; }
.chart { width: 100%; height: auto; font-size: 12px; print-color-adjust: exact; }
"""


def chart_svg(figure: go.Figure) -> str:
    """Return a figure of `streamscope_widgets.charts` as an ``<svg>`` element that follows the page's theme.

    Raises
    ------
    TraceError
        The figure holds something else than bars, points and boxes.
    """
    layout = figure.layout
    rows = list(dict.fromkeys(label for trace in figure.data for label in trace.y))
    entries = _legend([(trace.name, trace.marker.color) for trace in figure.data if trace.name])
    picture = _Picture(rows, layout.xaxis.range, max((row + 1 for *_, row in entries), default=0))
    picture.axis(layout.xaxis.title.text)
    picture.legend(entries)
    for shape in layout.shapes:
        picture.rule(shape.x0)
    for trace in figure.data:
        draw = {"bar": picture.bars, "scatter": picture.points, "box": picture.boxes}.get(trace.type)
        if draw is None:
            raise TraceError(f"a chart of type {trace.type!r} cannot be drawn as SVG")
        draw(trace)
    for note in layout.annotations:
        picture.beside(note.x, note.y, note.text, note.xshift or 0)
    return picture.element(layout.title.text)


@dataclass
class _Picture:
    """Collects the elements of one chart.

    Attributes
    ----------
    rows : list of str
        Categories, from top to bottom.
    extent : sequence of two floats
        What the x axis shows.
    legend_rows : int
    """

    rows: list[str]
    extent: tuple[float, float]
    legend_rows: int
    parts: list[str] = field(default_factory=list)
    _ends: dict[str, float] = field(default_factory=dict)

    @property
    def left(self) -> float:
        return max(len(row) for row in self.rows) * CHARACTER + 14

    @property
    def top(self) -> float:
        return TOP + LEGEND * self.legend_rows

    @property
    def bottom(self) -> float:
        return self.top + ROW * len(self.rows)

    def x(self, value: float) -> float:
        low, high = self.extent
        return self.left + (value - low) / (high - low) * (WIDTH - RIGHT - self.left)

    def middle(self, row: str) -> float:
        return self.top + ROW * (self.rows.index(row) + 0.5)

    def text(self, x: float, y: float, words: str, colour: str = palette.INK, **attributes: object) -> None:
        place = f'x="{x:.1f}" y="{y:.1f}" style="fill:{THEMED.get(colour, colour)}"'
        self.parts.append(f"<text {place}{_written(attributes)}>{escape(printable(words))}</text>")

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str, **attributes: object) -> None:
        place = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" style="stroke:{THEMED.get(colour, colour)}"'
        self.parts.append(f"<line {place}{_written(attributes)}/>")

    def rectangle(self, x: float, y: float, width: float, height: float, colour: str, title: str = "") -> None:
        tip = f"<title>{escape(printable(title))}</title>" if title else ""
        style = f"fill:{THEMED.get(colour, colour)}"
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{height}" style="{style}">{tip}</rect>')

    def axis(self, title: str) -> None:
        for tick in ticks(*self.extent):
            self.line(self.x(tick), self.top, self.x(tick), self.bottom, palette.RULE)
            self.text(self.x(tick), self.bottom + 16, f"{tick:,g}", palette.FAINT_INK, text_anchor="middle")
        for row in self.rows:
            self.text(self.left - 10, self.middle(row) + 4, row, text_anchor="end")
        self.text(self.left, self.bottom + 37, title, palette.FAINT_INK)

    def legend(self, entries: Sequence[tuple[str, str, float, int]]) -> None:
        for name, colour, x, row in entries:
            self.rectangle(x, TOP - 10 + LEGEND * row, 10, 10, colour)
            self.text(x + 15, TOP - 1 + LEGEND * row, name)

    def rule(self, value: float) -> None:
        self.line(self.x(value), self.top, self.x(value), self.bottom, palette.FAINT_INK, stroke_dasharray="2 3")

    def bars(self, trace: Any) -> None:
        colour = trace.marker.color
        ink = "var(--on-overlapped)" if colour == palette.OVERLAPPED else ON_BARS.get(trace.insidetextfont.color, "white")
        for row, length, label in zip(trace.y, trace.x, trace.text, strict=True):
            start = self._ends.get(row, 0.0)
            self._ends[row] = start + length
            left, right = self.x(start), self.x(start + length)
            self.rectangle(left, self.middle(row) - BAR / 2, right - left, BAR, colour, f"{row}: {length:,.2f} {trace.name or ''}".strip())
            if not label:
                continue
            if trace.textposition == "outside":
                self.text(right + 6, self.middle(row) + 4, label)
            else:
                self.text((left + right) / 2, self.middle(row) + 4, label, ink, text_anchor="middle")

    def points(self, trace: Any) -> None:
        error = trace.error_x
        colours = trace.marker.color
        for row, value, more, less, colour in zip(trace.y, trace.x, error.array, error.arrayminus, colours, strict=True):
            y = self.middle(row)
            self.line(self.x(value - less), y, self.x(value + more), y, error.color, stroke_width=1.5)
            for end in (value - less, value + more):
                self.line(self.x(end), y - 4, self.x(end), y + 4, error.color, stroke_width=1.5)
            self.parts.append(f'<circle cx="{self.x(value):.1f}" cy="{y:.1f}" r="5.5" style="fill:{THEMED.get(colour, colour)}"/>')

    def boxes(self, trace: Any) -> None:
        colour = trace.line.color
        columns = (trace.y, trace.lowerfence, trace.q1, trace.median, trace.q3, trace.upperfence)
        for row, low, q1, median, q3, high in zip(*columns, strict=True):
            y = self.middle(row)
            self.line(self.x(low), y, self.x(high), y, colour, stroke_width=1.5)
            self.rectangle(self.x(q1), y - BAR / 2, max(1.5, self.x(q3) - self.x(q1)), BAR, trace.fillcolor)
            for value, half in ((low, 5), (q1, 11), (median, 11), (q3, 11), (high, 5)):
                self.line(self.x(value), y - half, self.x(value), y + half, colour, stroke_width=2.5 if value == median else 1.5)

    def beside(self, value: float, row: str, words: str, shift: float) -> None:
        self.text(self.x(value) + max(shift, 4), self.middle(row) + 4, words, class_="beside")

    def element(self, title: str) -> str:
        words = escape(printable(title))
        head = f'<text x="0" y="15" style="fill:var(--ink)" font-size="14" font-weight="600">{words}</text>'
        frame = f'class="chart" viewBox="0 0 {WIDTH} {self.bottom + BOTTOM:.0f}" role="img" aria-label="{words}"'
        return f"<svg {frame}>{head}{''.join(self.parts)}</svg>"


def _legend(names: Sequence[tuple[str, str]]) -> list[tuple[str, str, float, int]]:
    """Place the entries of a legend: name, colour, x, and the row, since they may not fit into one."""
    entries, x, row = [], 0.0, 0
    for name, colour in names:
        width = 15 + len(name) * CHARACTER + 14
        if x + width > WIDTH and x:
            x, row = 0.0, row + 1
        entries.append((name, colour, x, row))
        x += width
    return entries


def _written(attributes: Mapping[str, object]) -> str:
    return "".join(f' {name.rstrip("_").replace("_", "-")}="{value}"' for name, value in attributes.items())


def ticks(low: float, high: float) -> list[float]:
    """Return at most seven round numbers from ``low`` to ``high``, evenly spaced by 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / MOST_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    return [index * step for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
