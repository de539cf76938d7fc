"""Charts as still SVG: 4 kB each, where Plotly's script alone would weigh 4.8 MB.

Charts with rows stand in pages, or are documents as charts with panels are, on a card of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from streamscope.arrays import FloatArray
from streamscope_widgets.show import palette
from streamscope_widgets.show.chart import BESIDE, CHARACTER, Bars, Boxes, Cells, Dots, Line, Panel, PlaneChart, RowChart
from streamscope_widgets.show.svg import FONT, document, lane_legend, shape, text, tick_text, ticks, words

WIDTH, ROW, BAR, MARGIN = 660, 38, 22, 14
TOP, LEGEND, BOTTOM, RIGHT = 40, 22, 50, 8
MOST_TICKS = 6

STYLE = """
.chart .beside { paint-order: stroke; stroke-width: 4px; }
.chart { width: 100%; max-width: 820px; height: auto; font-size: 12px; print-color-adjust: exact; }
"""


def row_svg(chart: RowChart) -> str:
    """Return a chart as an ``<svg>`` element for a page with `STYLE`; light or dark as the reader prefers."""
    parts, height = _rows(chart)
    frame = {"class_": "chart", "viewBox": f"0 0 {WIDTH} {height:.0f}", "role": "img", "aria_label": chart.title}
    return shape("svg", shape("style", palette.dark_style(parts, ".chart ")), parts, **frame)


def row_document(chart: RowChart) -> str:
    """Return a chart as an SVG document of its own."""
    parts, height = _rows(chart)
    placed = shape("g", parts, transform=f"translate({MARGIN} {MARGIN})", font_family=FONT, font_size=12)
    halo = shape("style", ".beside{paint-order:stroke;stroke-width:4px}")
    return document(WIDTH + 2 * MARGIN, height + 2 * MARGIN, halo, placed, label=chart.title)


def _rows(chart: RowChart) -> tuple[str, float]:
    """Draw a chart; return its elements and how high they are."""
    picture = _Rows(chart)
    head = _text(0, 15, chart.title, font_size=14, font_weight=600)
    parts = [head, *picture.axis(), *picture.legend(), *picture.rule(), *picture.series(), *picture.notes()]
    return "".join(parts), picture.bottom + BOTTOM


class _Rows:
    """Draws a chart with rows, part by part."""

    def __init__(self, chart: RowChart) -> None:
        self.chart = chart
        self.entries = _legend(chart.legend)
        self.left = max(len(row) for row in chart.rows) * CHARACTER + 14
        self.top = TOP + LEGEND * max((row + 1 for *_, row in self.entries), default=0)
        self.bottom = self.top + ROW * len(chart.rows)
        self.middles = {row: self.top + ROW * (index + 0.5) for index, row in enumerate(chart.rows)}
        self.width = WIDTH - RIGHT - self.left
        self.low, self.high = chart.axis.low, chart.high(self.width)

    def x(self, value: float) -> float:
        return self.left + (value - self.low) / (self.high - self.low) * self.width

    def axis(self) -> Iterator[str]:
        for tick in ticks(self.low, self.high, MOST_TICKS):
            x = self.x(tick)
            yield _line(x, self.top, x, self.bottom, palette.RULE)
            yield _text(x, self.bottom + 16, tick_text(tick), palette.FAINT_INK, text_anchor="middle")
        for row, y in self.middles.items():
            yield _text(self.left - 10, y + 4, row, text_anchor="end")
        yield _text(self.left, self.bottom + 37, self.chart.axis.title, palette.FAINT_INK)

    def legend(self) -> Iterator[str]:
        for name, colour, x, row in self.entries:
            yield _rectangle(x, TOP - 10 + LEGEND * row, 10, 10, colour)
            yield _text(x + 15, TOP - 1 + LEGEND * row, name)

    def rule(self) -> Iterator[str]:
        if self.chart.rule is not None:
            x = self.x(self.chart.rule)
            yield _line(x, self.top, x, self.bottom, palette.FAINT_INK, stroke_dasharray="2 3")

    def series(self) -> Iterator[str]:
        ends = dict.fromkeys(self.chart.rows, 0.0)
        for series in self.chart.series:
            if isinstance(series, Bars):
                yield from self.bars(series, ends)
            elif isinstance(series, Dots):
                yield from self.dots(series)
            else:
                yield from self.boxes(series)

    def bars(self, bars: Bars, ends: dict[str, float]) -> Iterator[str]:
        for (row, y), length, label in zip(self.middles.items(), bars.lengths, bars.labels, strict=True):
            left, right = self.x(ends[row]), self.x(ends[row] + length)
            ends[row] += length
            yield _rectangle(left, y - BAR / 2, right - left, BAR, bars.colour, f"{row}: {length:,.2f} {bars.meaning}")
            if label and bars.outside:
                yield _text(right + BESIDE, y + 4, label)
            elif label:
                yield _text((left + right) / 2, y + 4, label, bars.ink, text_anchor="middle")

    def dots(self, dots: Dots) -> Iterator[str]:
        for y, value, low, high, colour in zip(self.middles.values(), dots.values, dots.lows, dots.highs, dots.colours, strict=True):
            yield _line(self.x(low), y, self.x(high), y, palette.FAINT_INK, stroke_width="1.5")
            for end in (self.x(low), self.x(high)):
                yield _line(end, y - 4, end, y + 4, palette.FAINT_INK, stroke_width="1.5")
            yield shape("circle", cx=self.x(value), cy=y, r="5.5", fill=colour)

    def boxes(self, boxes: Boxes) -> Iterator[str]:
        columns = (boxes.low, boxes.q1, boxes.median, boxes.q3, boxes.high)
        for y, *quantiles in zip(self.middles.values(), *columns, strict=True):
            low, q1, median, q3, high = (self.x(value) for value in quantiles)
            yield _line(low, y, high, y, palette.BUSY, stroke_width="1.5")
            yield _rectangle(q1, y - BAR / 2, max(1.5, q3 - q1), BAR, palette.BOX)
            for x, half in ((low, 5), (q1, 11), (q3, 11), (high, 5)):
                yield _line(x, y - half, x, y + half, palette.BUSY, stroke_width="1.5")
            yield _line(median, y - 11, median, y + 11, palette.BUSY, stroke_width="2.5")

    def notes(self) -> Iterator[str]:
        for note in self.chart.notes:
            yield _text(self.x(note.value) + note.gap, self.middles[note.row] + 4, note.words, class_="beside", stroke=palette.CARD)


def _text(x: float, y: float, content: str, colour: str = palette.INK, **attributes: object) -> str:
    return text(x, y, content, fill=colour, **attributes)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, **attributes: object) -> str:
    return shape("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour, **attributes)


def _rectangle(x: float, y: float, width: float, height: float, colour: str, tip: str = "") -> str:
    content = [shape("title", words(tip))] if tip else []
    return shape("rect", *content, x=x, y=y, width=max(0.0, width), height=height, fill=colour)


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


PLANE_WIDTH, PLANE_HEIGHT, PANEL_WIDTH, PANEL_STEP, PANEL_DROP = 980, 420, 400, 502, 344
"""In px, of a picture of two panels; and how far further ones lie below."""
PANEL_HEIGHT, PANEL_TOP, PANEL_LEFT = 268, 96, 58
MOST_DOTS = 16
"""Points of a line that are marked; of a longer one, none is."""
SMALL_CHARACTER = 6.2
"""About the width of a character in px, at a font size of 11.5."""
PLANE_STYLE = (
    f"text{{font:11.5px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:{palette.INK}}}"
    f".soft{{fill:{palette.FAINT_INK}}}.head{{font-size:15px;font-weight:600}}.name{{font-size:13px;font-weight:600}}.mid{{text-anchor:middle}}"
    f".halo{{paint-order:stroke;stroke:#ffffffc0;stroke-width:4px}}.line{{fill:none;stroke:{palette.INK}}}"
    f".dual{{fill:none;stroke:{palette.BOUNDARY};stroke-width:2;stroke-dasharray:6 4}}"
    # The cells are light in any theme, and so is the halo of what is written on them.
    f"@media screen and (prefers-color-scheme: dark){{text{{fill:{palette.DARK[palette.INK]}}}"
    f".soft{{fill:{palette.DARK[palette.FAINT_INK]}}}text.halo{{fill:{palette.INK}}}}}"
)


def plane_svg(chart: PlaneChart) -> str:
    """Return a chart of panels as an SVG document, about 20 kB for each panel of cells."""
    alone = len(chart.panels) == 1
    planes = [
        _Plane(panel, PANEL_LEFT + PANEL_STEP * (index % 2), PANEL_TOP + PANEL_DROP * (index // 2), PANEL_WIDTH + PANEL_STEP * alone)
        for index, panel in enumerate(chart.panels)
    ]
    panels = [part for plane in planes for part in plane.draw()]
    head = [text(14, 26, chart.title, class_="head"), text(14, 45, chart.below, class_="soft")]
    height = PLANE_HEIGHT + PANEL_DROP * ((len(chart.panels) - 1) // 2)
    legend = lane_legend(chart.legend, 14, 54)[0]
    return document(PLANE_WIDTH, height, shape("style", PLANE_STYLE), *head, *legend, *panels, label=chart.title)


class _Plane:
    """Draws one panel, whose upper left corner is at ``left`` and ``top`` px."""

    def __init__(self, panel: Panel, left: float, top: float, width: float) -> None:
        self.panel, self.left, self.top, self.width = panel, left, top, width
        self.right, self.bottom = left + width, top + PANEL_HEIGHT

    def x(self, value: float) -> float:
        axis = self.panel.x
        return float(self.left + (value - axis.low) / (axis.high - axis.low) * self.width)

    def y(self, value: float) -> float:
        axis = self.panel.y
        return float(self.bottom - (value - axis.low) / (axis.high - axis.low) * PANEL_HEIGHT)

    def draw(self) -> Iterator[str]:
        """Yield the panel's elements, from the back to the front."""
        panel = self.panel
        yield from self.rules() if panel.cells is None else self.cells(panel.cells)
        for line in panel.lines:
            yield from self.line(line)
        for x, y, label in panel.labels:
            yield text(self.x(x), min(self.y(y) + 4, self.bottom - 6), label, class_="name mid halo")
        yield text(self.left, self.top - 12, panel.title, class_="name")
        for place, label in panel.x.ticks:
            yield text(self.x(place), self.bottom + 17, label, class_="soft mid")
        for place, label in panel.y.ticks:
            yield text(self.left - 8, self.y(place) + 4, label, class_="soft", text_anchor="end")
        yield text(self.left + self.width / 2, self.bottom + 38, panel.x.title, class_="mid")
        x, y = self.left - 42, self.top + PANEL_HEIGHT / 2
        yield text(x, y, panel.y.title, class_="mid", transform=f"rotate(-90 {x:.0f} {y:.0f})")

    def rules(self) -> Iterator[str]:
        """Yield a rule at each tick of the values."""
        for place, _ in self.panel.y.ticks:
            yield _line(self.left, self.y(place), self.right, self.y(place), palette.RULE)

    def cells(self, cells: Cells) -> Iterator[str]:
        """Yield each row as stretches of one colour."""
        xs, ys = [self.x(edge) for edge in _edges(cells.x)], [self.y(edge) for edge in _edges(cells.y)]
        for row, codes in enumerate(cells.colour):
            for code, group in groupby(range(len(codes)), key=codes.__getitem__):
                first, *_, last = (*group,) * 2
                yield shape(
                    "rect", x=xs[first], y=ys[row + 1], width=xs[last + 1] - xs[first], height=ys[row] - ys[row + 1] + 0.2,
                    fill=cells.colours[code], shape_rendering="crispEdges",
                )  # fmt: skip

    def line(self, line: Line) -> Iterator[str]:
        points = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(line.x, line.y, strict=True))
        if line.colour:
            yield shape("polyline", points=points, fill="none", stroke=line.colour, stroke_width="1.8")
            for x, y in zip(line.x, line.y, strict=True) if len(line.x) <= MOST_DOTS else ():
                yield shape("circle", cx=self.x(x), cy=self.y(y), r="3", fill=line.colour)
            return
        yield shape("polyline", points=points, class_="dual" if line.dashed else "line")
        x, y = self.x(line.x[line.at]), self.y(line.y[line.at])
        if line.dashed:
            yield text(min(x + 6, self.right - 4 - len(line.words) * SMALL_CHARACTER), y - 8, line.words, class_="halo")
        else:
            yield text(x, y + 13, line.words, class_="mid halo")


def _edges(centres: FloatArray) -> FloatArray:
    """Return the edges of cells around centres; the first and the last cell end at their centres."""
    middles = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([centres[:1], middles, centres[-1:]])
