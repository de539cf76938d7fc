"""Charts as data. `still_chart` draws them as SVG; `plotly_chart` draws a `RowChart` as a Plotly figure, with the same numbers and colours.

A `RowChart` has categories from top to bottom and values from left to right. A `PlaneChart` has values on both axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamscope.arrays import FloatArray

CHARACTER = 6.7
"""About the width of a character in px, at a font size of 12."""
MOST_WORDS = 0.7
"""Share of a plot that words beside a mark take at most."""
BESIDE = 6
"""Gap between a bar and the label beside it, in px."""


@dataclass(frozen=True)
class Axis:
    """An axis."""

    title: str
    """Title, with the unit."""
    low: float
    high: float
    """Extent."""
    ticks: tuple[tuple[float, str], ...] = ()
    """Positions with their labels; round numbers where there are none."""


@dataclass(frozen=True)
class Bars:
    """A bar in each row, behind those of the series before."""

    name: str
    """For the legend; empty for none."""
    colour: str
    ink: str
    """Of the bars, and of the labels on them."""
    lengths: Sequence[float]
    labels: Sequence[str]
    meaning: str
    """Text behind the value when the pointer rests on a bar: unit and meaning."""
    outside: bool = False
    """Whether labels stand beside the bars."""


@dataclass(frozen=True)
class Dots:
    """A point in each row, with the interval around it and a colour of its own."""

    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    colours: Sequence[str]


@dataclass(frozen=True)
class Boxes:
    """A box in each row from the lower to the upper quartile, the median in it, and whiskers from ``low`` to ``high``."""

    low: Sequence[float]
    q1: Sequence[float]
    median: Sequence[float]
    q3: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Note:
    """Words in a row, ``gap`` px to the right of a value."""

    value: float
    row: str
    words: str
    gap: int


@dataclass(frozen=True)
class RowChart:
    """A chart with categories from top to bottom."""

    title: str
    """The finding."""
    axis: Axis
    rows: tuple[str, ...]
    series: tuple[Bars | Dots | Boxes, ...]
    notes: tuple[Note, ...] = ()
    rule: float | None = None
    """Where a line stands through all rows."""

    def high(self, width: float) -> float:
        """End of the axis in a plot so many px wide, so far right that the words beside marks end inside."""
        low = self.axis.low
        beside = [(note.value, note.gap, note.words) for note in self.notes]
        for series in self.series:
            if isinstance(series, Bars) and series.outside:
                beside += [(length, BESIDE, label) for length, label in zip(series.lengths, series.labels, strict=True)]
        shares = [(value, min((gap + CHARACTER * len(words)) / width, MOST_WORDS)) for value, gap, words in beside]
        return max([self.axis.high, *(low + (value - low) / (1 - share) for value, share in shares)])

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """Names of series with their colours."""
        return tuple((series.name, series.colour) for series in self.series if isinstance(series, Bars) and series.name)


@dataclass(frozen=True)
class Cells:
    """A plane of coloured cells."""

    x: FloatArray
    y: FloatArray
    """float64: middles of the columns and of the rows."""
    colour: npt.NDArray[np.int64]
    """Integer array, rows x columns: index into ``colours``."""
    colours: tuple[str, ...]


@dataclass(frozen=True)
class Line:
    """A line with words at one of its points."""

    x: FloatArray
    y: FloatArray
    """float64."""
    words: str
    at: int
    """Index of the point that the words stand at."""
    dashed: bool = False
    """A boundary, and not a line of equal values."""
    colour: str = ""
    """Of a line of measurements: its points are marked where they are few, and its words stand in the legend."""


@dataclass(frozen=True)
class Panel:
    """One of the pictures that stand beside each other."""

    title: str
    x: Axis
    y: Axis
    cells: Cells | None
    """Without any, rules stand at the ticks."""
    lines: tuple[Line, ...]
    labels: tuple[tuple[float, float, str], ...]
    """Bold words, and where their middle is."""


@dataclass(frozen=True)
class PlaneChart:
    """Panels under one title, two beside each other, with a line of small words below it."""

    title: str
    below: str
    panels: tuple[Panel, ...]

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """Words of coloured lines with their colours, each once."""
        return tuple(dict.fromkeys((line.words, line.colour) for panel in self.panels for line in panel.lines if line.colour))
