"""Memory, counters and markers in the still picture.

The memory of each GPU, whose peak is marked, and each counter is a stepped line with its range; each marker is a thin line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamscope.analysis.memory import memories
from streamscope.arrays import Array
from streamscope.trace import Trace
from streamscope.words import binary_size, shortened, time_text
from streamscope_widgets.show import palette
from streamscope_widgets.show.svg import shape, small_text, words

COUNTER_ROW, LINE = 28, 20
"""Height of a counter's lane, and of its line in it, in pixels."""
MARKER_ROW = 14
MOST_COUNTERS, MOST_MARKERS = 6, 100
"""Lanes of counters, those with most values, and lines of markers, in one picture of a trace."""
LONGEST_LABEL, LONGEST_NAME = 17, 40
LETTER = 6
SHORTEST_NAME = 3
"""Letters of a marker's name for which there is room at least, or it is left to the tooltip."""


@dataclass(frozen=True)
class CounterLine:
    """The line of one counter: places in pixels from the left edge of the drawing area, and values.

    ``low`` and ``high``: the range of these values; of all of the counter's, where it has none in the picture.
    """

    label: str
    left: Array
    value: Array
    low: float
    high: float
    peak: tuple[float, str, str] | None = None
    """Place of the highest value, the value in words, and words on it."""


def memory_lines(trace: Trace, zero_ns: float, scale: float, width: float) -> dict[int, CounterLine]:
    """Return the line of the memory of each GPU, in MiB, from nothing to its peak; memory that does not change has none."""
    lines = {}
    for found in memories(trace):
        time_ns, held = found.curve()
        if found.gpu < 0 or (held == held[0]).all():
            continue
        left = (time_ns - zero_ns) * scale
        first, behind = max(0, int(np.searchsorted(left, 0, side="right")) - 1), int(np.searchsorted(left, width, side="right"))
        at, mib = (found.peak.at_ns - zero_ns) * scale, held / 2**20
        size = binary_size(found.peak.bytes)
        peak = (at, size, f"peak: {size} at {time_text(found.peak.at_ns)}") if 0 <= at <= width else None
        lines[found.gpu] = CounterLine("memory, MiB", np.maximum(left[first:behind], 0), mib[first:behind], 0.0, float(mib.max()), peak)
    return lines


def counter_lines(trace: Trace, zero_ns: float, scale: float, width: float) -> tuple[list[CounterLine], int]:
    """Return the lines of the counters with most values, in the order of the trace, and how many counters are left out.

    A value holds until the next one, so of those before the picture's beginning the last one counts there.
    """
    found = trace.counters
    sizes = np.bincount(found.series, minlength=len(found.described))
    chosen = np.sort(np.argsort(-sizes, kind="stable")[:MOST_COUNTERS])
    lines = []
    for number in chosen.tolist():
        rows = found.rows_of(number)
        value, left = found.value[rows], (found.time_ns[rows] - zero_ns) * scale
        first = max(0, int(np.searchsorted(left, 0, side="right")) - 1)
        inside = slice(first, int(np.searchsorted(left, width, side="right")))
        shown = value[inside] if len(value[inside]) else value
        low, high = float(shown.min()), float(shown.max())
        lines.append(CounterLine(found.described[number].label, np.maximum(left[inside], 0), value[inside], low, high))
    return lines, len(sizes) - len(chosen)


def drawn_counter(line: CounterLine, gutter: float, top: float, width: float, column: float) -> list[str]:
    """Draw a counter's name, its range, and its steps; of values that share a column of pixels, from the least to the largest."""
    name = shape("g", shape("title", words(line.label)), small_text(gutter - 8, top + 10, shortened(line.label, LONGEST_LABEL), "end"))
    value_range = f"{line.low:.4g}" if line.low == line.high else f"{line.low:.4g} … {line.high:.4g}"
    parts = [name, small_text(gutter - 8, top + 22, value_range.replace("-", "−"), "end")]
    if not len(line.value):
        return parts
    largest = max(abs(line.low), abs(line.high)) or 1.0
    low, high = line.low / largest, line.high / largest  # Their difference is a number, also of the largest and the least doubles.
    share = (line.value / largest - low) / (high - low) if high > low else np.full(len(line.value), 0.5)
    height = top + 2 + LINE * (1 - share)
    at = (line.left / column).astype(np.int64)
    opens = np.flatnonzero(np.diff(at, prepend=-1))
    closes = np.append(opens[1:], len(at)) - 1
    least, most = np.minimum.reduceat(height, opens), np.maximum.reduceat(height, opens)
    steps = list[str]()
    for number, (x, first, low, high, last) in enumerate(
        zip(line.left[opens].tolist(), height[opens].tolist(), least.tolist(), most.tolist(), height[closes].tolist(), strict=True)
    ):
        steps.append(f"H{gutter + x:.1f}" if number else f"M{gutter + x:.1f} {first:.1f}")
        steps += [f"V{y:.1f}" for y in dict.fromkeys((first, low, high, last))]
    steps.append(f"H{gutter + width:.1f}")
    parts.append(shape("path", d="".join(steps), fill="none", stroke=palette.OVERLAPPED, stroke_width=1.2))
    if line.peak is not None:
        place, size, said = line.peak
        y = top + 2 + LINE * (1 - float(line.value.max()) / line.high)
        parts.append(shape("circle", shape("title", words(said)), cx=gutter + place, cy=y, r=2.5, fill=palette.SLOWER, class_="peak"))
        behind = place + 8 + LETTER * len(size) < width
        parts.append(small_text(gutter + place + (5 if behind else -5), y + 8, size, "start" if behind else "end", palette.INK))
    return parts


def drawn_markers(trace: Trace, zero_ns: float, scale: float, gutter: float, rows: tuple[float, float], width: float) -> list[str]:
    """Draw a line for each marker through all rows, and its name at the top of it where there is room; the tooltip has all of it."""
    top, bottom = rows
    left = (trace.markers.time_ns - zero_ns) * scale
    inside = np.flatnonzero((left >= 0) & (left <= width))
    places, names = left[inside[:MOST_MARKERS]].tolist(), trace.markers.names
    label = f"markers, {MOST_MARKERS} of {len(inside):,}" if len(inside) > MOST_MARKERS else "markers"
    parts = [small_text(gutter - 8, top + 10, label, "end")]
    for place, after, row in zip(places, [*places[1:], width], inside.tolist(), strict=False):
        x = round(gutter + place, 1)
        title = shape("title", words(names[row]))
        parts.append(shape("path", title, d=f"M{x} {top:g}V{bottom:g}", stroke=palette.BOUNDARY, stroke_width=1, class_="marker"))
        room = int((after - place - 6) / LETTER)
        if room >= SHORTEST_NAME:
            parts.append(small_text(x + 3, top + 10, shortened(names[row], min(room, LONGEST_NAME))))
    return parts


def height_of(lines: Sequence[CounterLine], left_out: int, trace: Trace) -> float:
    """Return how high the lanes of counters and markers are together."""
    return len(lines) * COUNTER_ROW + MARKER_ROW * (bool(left_out) + bool(len(trace.markers)))
