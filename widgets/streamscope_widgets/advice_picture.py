"""An advice as a still picture in SVG, for notebooks that are reopened and for pages: about 40 kB, on a light card of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from itertools import groupby

import numpy as np

from streamscope.advising.device_costs import DeviceCosts
from streamscope.advising.forecast import Forecast
from streamscope.errors import printable
from streamscope_widgets.advice_marks import COUNT_TICKS, LENGTH_TICKS, Array, Line, Panel, Point, headline, panels, shade, ticks
from streamscope_widgets.show import palette

WIDTH, HEIGHT = 980, 420
PANEL_WIDTH, PANEL_HEIGHT, TOP, LEFTS = 400, 268, 96, (58, 560)
CHARACTER = 6.2
"""About the width of a character in px, at a font size of 11.5."""
STYLE = (
    f"text{{font:11.5px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:{palette.INK}}}"
    f".soft{{fill:{palette.FAINT_INK}}}.head{{font-size:15px;font-weight:600}}.name{{font-size:13px;font-weight:600}}.mid{{text-anchor:middle}}"
    f".halo{{paint-order:stroke;stroke:#ffffffc0;stroke-width:4px}}.line{{fill:none;stroke:{palette.INK}}}"
    f".dual{{fill:none;stroke:{palette.HOST_FUNCTION};stroke-width:2;stroke-dasharray:6 4}}"
)


def advice_svg(costs: DeviceCosts, forecast: Forecast | None) -> str:
    """Return the picture of an advice as an ``<svg>`` element: what `advice_chart` draws."""
    title, simulated = headline(costs, forecast), costs.device.simulated
    both = [_Picture(panel, left) for panel, left in zip(panels(costs, forecast), LEFTS, strict=True)]
    device = f"{costs.device.name}: {'simulated times, ' if simulated else ''}prediction from fitted costs"
    words = escape(printable(title))
    parts = "".join("".join(picture.draw("kernel length, µs" + (", simulated" if simulated else ""))) for picture in both)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{words}"><style>{STYLE}</style><rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{palette.CARD}"/>'
        f'<text x="14" y="26" class="head">{words}</text><text x="14" y="45" class="soft">{escape(printable(device))}</text>{parts}</svg>'
    )


@dataclass
class _Picture:
    """Collects the elements of one panel, whose left edge is at ``left`` px."""

    panel: Panel
    left: float
    parts: list[str] = field(default_factory=list)

    def x(self, value: float) -> float:
        low, high = self.panel.x[[0, -1]]
        return float(self.left + (value - low) / (high - low) * PANEL_WIDTH)

    def y(self, value: float) -> float:
        low, high = self.panel.y[[0, -1]]
        return float(TOP + PANEL_HEIGHT - (value - low) / (high - low) * PANEL_HEIGHT)

    def draw(self, length_title: str) -> list[str]:
        """Return the panel's elements, from the back to the front."""
        panel, bottom = self.panel, TOP + PANEL_HEIGHT
        self.regions()
        for line in panel.speedups:
            self.line(line, "line")
            self.text(self.x(line.x[line.at]), self.y(line.y[line.at]) + 13, line.words, "mid halo")
        if panel.dual_from is not None:
            self.line(panel.dual_from, "dual")
            self.text(self.x(panel.dual_from.x[0]) + 6, self.y(panel.dual_from.y[0]) - 8, "from here on dual beats async", "halo")
        for x, y, words in panel.labels:
            self.text(self.x(x), self.y(y) + 4, words, "name mid halo")
        self.text(self.left, TOP - 12, panel.title, "name")
        for place, words in ticks(LENGTH_TICKS, float(panel.x[0]), float(panel.x[-1])):
            self.text(self.x(place), bottom + 17, words, "soft mid")
        for place, words in ticks(COUNT_TICKS, float(panel.y[0]), float(panel.y[-1])):
            self.text(self.left - 8, self.y(place) + 4, words, "soft", 'text-anchor="end"')
        self.text(self.left + PANEL_WIDTH / 2, bottom + 38, length_title, "mid")
        middle = (self.left - 42, TOP + PANEL_HEIGHT / 2)
        self.text(*middle, panel.count_title, "mid", f'transform="rotate(-90 {middle[0]:.0f} {middle[1]:.0f})"')
        if panel.point is not None:
            self.point(panel.point)
        return self.parts

    def regions(self) -> None:
        """Draw each row as stretches of one colour."""
        panel = self.panel
        xs, ys = [self.x(edge) for edge in _edges(panel.x)], [self.y(edge) for edge in _edges(panel.y)]
        for row, (winners, speedups) in enumerate(zip(panel.regions.winner, panel.regions.speedup, strict=True)):
            colours = [shade(panel.regions.engines[winner], speedup) for winner, speedup in zip(winners, speedups, strict=True)]
            for colour, columns in groupby(range(len(colours)), key=colours.__getitem__):
                first, *_, last = (*columns,) * 2
                place = f'x="{xs[first]:.1f}" y="{ys[row + 1]:.1f}" width="{xs[last + 1] - xs[first]:.1f}"'
                self.parts.append(
                    f'<rect {place} height="{ys[row] - ys[row + 1] + 0.2:.1f}" fill="{colour}" shape-rendering="crispEdges"/>'
                )

    def line(self, line: Line, style: str) -> None:
        points = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(line.x, line.y, strict=True))
        self.parts.append(f'<polyline points="{points}" class="{style}"/>')

    def text(self, x: float, y: float, words: str, style: str, more: str = "") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" {more}>{escape(printable(words))}</text>')

    def point(self, point: Point) -> None:
        """Draw the point, and a card with its words to the right, on the side of the middle."""
        x, y = self.x(point.x), self.y(point.y)
        width, height = max(map(len, point.words)) * CHARACTER + 14, 16 * len(point.words) + 8
        left = min(x + 26, self.left + PANEL_WIDTH - width)
        top = y + 22 if y < TOP + PANEL_HEIGHT / 2 else y - 22 - height
        corner = (left, top if y < top else top + height)
        self.parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{corner[0]:.1f}" y2="{corner[1]:.1f}" stroke="{palette.INK}"/>')
        card = f'rx="3" fill="{palette.CARD}" stroke="{palette.FAINT_INK}"'
        self.parts.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height}" {card}/>')
        for number, words in enumerate(point.words):
            self.text(left + 7, top + 17 + 16 * number, words, "" if number else "name")
        ring = f'fill="{palette.SLOWER}" stroke="{palette.CARD}" stroke-width="2.5"'
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6.5" {ring}/>')


def _edges(centres: Array) -> Array:
    """Return the edges of cells around centres; the first and the last cell end at their centres."""
    middles = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([centres[:1], middles, centres[-1:]])
