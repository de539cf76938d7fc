"""What both pictures of an advice share, the Plotly chart and the still one: panels with regions, lines of equal speed-up, and the point.

Positions are logarithms to base 10 of kernel lengths in µs and of numbers of kernels, so both draw on linear axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log10

import numpy as np
import numpy.typing as npt

from streamscope.advising.break_even import LONGEST_US, SHORTEST_US, Regions, branch_regions, chain_regions, graph_pays, second_stream_pays
from streamscope.advising.device_costs import DeviceCosts
from streamscope.advising.forecast import Forecast
from streamscope.advising.sentences import BRANCH, range_words
from streamscope.words import format_us

Array = npt.NDArray[np.float64]

LEVELS = (1.5, 2.0, 3.0, 4.0, 6.0)
"""Speed-ups whose lines are drawn."""
BANDS = (1.5, 2.0, 3.0)
"""Speed-ups from which an engine's region is drawn a shade darker."""
SHADES = {
    "async": ("#e6e9ee",) * 4,
    "dual": ("#fbe3b3", "#f6cf80", "#eeb94b", "#e0a32a"),
    "graph": ("#d6e4fb", "#b3cdf6", "#8ab1ee", "#6396e4"),
    "graph-dual": ("#d3efe4", "#a9dfca", "#7ccbac", "#50b68d"),
}
LENGTH_TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100)
COUNT_TICKS = (1, 2, 4, 8, 16, 32, 100, 300, 1000)


@dataclass(frozen=True)
class Line:
    """A line with words at one of its points.

    Attributes
    ----------
    x, y : float64 arrays
    words : str
    at : int
        Index of the point that the words stand at.
    """

    x: Array
    y: Array
    words: str
    at: int


@dataclass(frozen=True)
class Point:
    """The user's program.

    Attributes
    ----------
    x, y : float
    words : tuple of str
        Lines of text.
    """

    x: float
    y: float
    words: tuple[str, ...]


@dataclass(frozen=True)
class Panel:
    """One of the two pictures beside each other.

    Attributes
    ----------
    title, count_title : str
    regions : Regions
    speedups : tuple of Line
        Lines of equal speed-up.
    dual_from : Line, optional
        To its right a second stream pays where kernels are launched one by one.
    labels : tuple of (float, float, str)
        Names of regions, and where they stand.
    point : Point, optional
    """

    title: str
    count_title: str
    regions: Regions
    speedups: tuple[Line, ...]
    dual_from: Line | None
    labels: tuple[tuple[float, float, str], ...]
    point: Point | None

    @property
    def x(self) -> Array:
        """Columns of the regions."""
        return np.log10(self.regions.lengths_us)

    @property
    def y(self) -> Array:
        """Rows of the regions."""
        return np.log10(self.regions.counts)


def panels(costs: DeviceCosts, forecast: Forecast | None) -> tuple[Panel, Panel]:
    """Return the two panels: kernels that depend on each other, and independent branches."""
    chain, branches = chain_regions(costs), branch_regions(costs)
    left = _panel("Each kernel needs the one before", "number of kernels", chain, _chain_point(forecast))
    right = _panel("Two independent branches that leave each other room", "kernels in each branch", branches, _branch_point(forecast))
    return left, right


def headline(costs: DeviceCosts, forecast: Forecast | None) -> str:
    """Return the finding: for the program if there is one, else for the device."""
    if forecast is None or not forecast.kernels:
        alone = second_stream_pays(costs, BRANCH, in_graph=False)
        return f"A graph pays {range_words(graph_pays(costs))}, a second stream launched one by one {range_words(alone)}"
    engine = min(forecast.makespans_ns, key=lambda name: forecast.makespans_ns[name].median * (1.02 if name.endswith("dual") else 1.0))
    what = f"{forecast.kernels:,} kernels of {format_us(forecast.kernel_ns / 1e3)} µs"
    if engine == "async":
        return f"{forecast.program}, {what}: neither a graph nor a second stream pays"
    return f"{forecast.program}, {what}: {engine} is {_both(forecast, engine)}"


def shade(engine: str, speedup: float) -> str:
    """Return the colour of a region at a speed-up."""
    return SHADES[engine][sum(speedup >= band for band in BANDS)]


def ticks(values: tuple[float, ...], low: float, high: float) -> list[tuple[float, str]]:
    """Return positions and labels of the ticks in a range of positions."""
    return [(log10(value), f"{value:,g}") for value in values if low - 1e-9 <= log10(value) <= high + 1e-9]


def _panel(title: str, count_title: str, regions: Regions, point: Point | None) -> Panel:
    lines = tuple(line for level in LEVELS if (line := _level_line(regions, level)) is not None)
    return Panel(title, count_title, regions, lines, _dual_line(regions), tuple(_labels(regions)), point)


def _chain_point(forecast: Forecast | None) -> Point | None:
    if forecast is None or not forecast.kernels:
        return None
    return _point(forecast, forecast.kernels, "graph", 1000)


def _branch_point(forecast: Forecast | None) -> Point | None:
    if forecast is None or not forecast.per_branch:
        return None
    return _point(forecast, forecast.per_branch, "graph-dual", 32)


def _point(forecast: Forecast, count: float, engine: str, most: int) -> Point:
    """Place the program; outside the picture, at its edge."""
    length_us = min(max(forecast.kernel_ns / 1e3, SHORTEST_US), LONGEST_US)
    return Point(log10(length_us), log10(min(max(count, 1), most)), _point_words(forecast, engine))


def _point_words(forecast: Forecast, engine: str) -> tuple[str, str, str]:
    measured, predicted = forecast.speedups[engine].median, forecast.predicted_speedup(engine)
    return "yours", f"{engine}: {measured:.1f}× as fast", f"predicted {predicted:.1f}×"


def _both(forecast: Forecast, engine: str) -> str:
    return f"{forecast.speedups[engine].median:.1f}× as fast as async (predicted {forecast.predicted_speedup(engine):.1f}×)"


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


def _dual_line(regions: Regions) -> Line | None:
    known = np.isfinite(regions.dual_from_us) & (regions.dual_from_us > 0)
    if known.sum() < 2:
        return None
    x, y = np.log10(regions.dual_from_us[known]), np.log10(regions.counts[known])
    return Line(x, y, "dual pays", int(known.sum()) // 2)


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
