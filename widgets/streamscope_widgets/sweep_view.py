"""Sweeps as static HTML: the finding, the makespans as lines over the grid's first setting, and the table of points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import ceil, floor, log10

import numpy as np

from streamscope.analysis.traits import reference_engine
from streamscope.comparing.swept import Point, Sweep, setting_text
from streamscope.errors import TraceError
from streamscope.results.views import View
from streamscope.words import counted, shortened, time_unit
from streamscope_widgets.show import palette
from streamscope_widgets.show.chart import Axis, Line, Panel, PlaneChart
from streamscope_widgets.show.html import Column, Html, Row, above, block, folded, image, joined, lead, small, table
from streamscope_widgets.show.still_chart import plane_svg
from streamscope_widgets.show.svg import tick_text

MOST_CELLS, SHOWN_AT_ONCE = 720, 0.4
"""Cells of the table, and the share of them that does not unfold below."""
MOST_NOTES = 12
MOST_PANELS = 6
MOST_MARKS = 2400
"""Points of all lines of a chart: of more, only every second is drawn, or fewer."""
MOST_TICKS = 8
LOG_FROM = 8
"""An axis of settings is logarithmic where the largest is so many times the smallest."""
LONGEST_TITLE, LONGEST_NOTE = 110, 400
COLOURS = (*(hue for hue in palette.HUES if hue != "#f0e442"), *palette.KERNELS[len(palette.HUES) :])
"""Of engines. Yellow is hard to see on white as a line."""

_Value = Callable[[Point, str], float | None]


def makespans(sweep: Sweep) -> PlaneChart:
    """Describe the chart of makespans: a line for each engine over the first setting, a panel for each choice of the other settings.

    Raises
    ------
    TraceError
        No engine has a time.
    """
    times_us = [point.makespan_us(engine) or 0.0 for point, engine in product(sweep.points, sweep.engines)]
    unit_ns, unit = time_unit(1e3 * max(times_us, default=0.0))
    return _chart(sweep, f"makespan, {unit}", lambda point, engine: 1e3 / unit_ns * (point.makespan_us(engine) or 0.0) or None)


def speedups(sweep: Sweep) -> PlaneChart:
    """Describe the chart of speed-ups against the plainest engine, as `makespans` does.

    Raises
    ------
    TraceError
        No engine has a time.
    """
    base = reference_engine(sweep.engines or ("",))

    def value(point: Point, engine: str) -> float | None:
        own, other = point.makespan_us(engine), point.makespan_us(base)
        return other / own if own and other else None

    return _chart(sweep, f"speed-up against {base}, ×", value)


def _chart(sweep: Sweep, title: str, value: _Value) -> PlaneChart:
    first, *others = sweep.settings
    found = {
        (point.label, engine): number
        for point, engine in product(sweep.points, sweep.engines)
        if (number := value(point, engine)) is not None
    }
    if not found:
        raise TraceError("no engine has a time at any point, so there is nothing to draw", hint="see why points failed: print the sweep")
    simulated = any(point.device is not None and point.device.simulated for point in sweep.points)
    y = _log_axis(f"{title}{', simulated' if simulated else ''}", list(found.values()))
    x, places = _setting_axis(first, [point.settings.get(first) for point in sweep.points])
    timed, groups = {label for label, _ in found}, dict[str, list[Point]]()
    for point in (point for point in sweep.points if point.label in timed):
        groups.setdefault(Point({name: each for name, each in point.settings.items() if name in others}).label, []).append(point)
    drawn = list(groups.items())[:MOST_PANELS]
    every = ceil(sum(len(points) for _, points in drawn) * len(sweep.engines) / MOST_MARKS)
    panels = []
    for label, points in drawn:
        lines = [_line(engine, _marks(engine, points, places, first, found)[::every], sweep) for engine in sweep.engines]
        panels.append(Panel(label, x, y, None, tuple(line for line in lines if len(line.x)), ()))
    left_out = len(groups) - len(drawn)
    choices = f"; not shown: {counted(left_out, 'more choice')} of {', '.join(others)}" if left_out else ""
    thinned = f"; one point in {every} is drawn" if every > 1 else ""
    return PlaneChart(shortened(sweep.headline, LONGEST_TITLE), f"{shortened(sweep.title, LONGEST_TITLE)}{choices}{thinned}", tuple(panels))


def _marks(
    engine: str, points: Sequence[Point], places: Mapping[str, float], first: str, found: Mapping[tuple[str, str], float]
) -> list[tuple[float, float]]:
    """Return the points of an engine's line, from left to right."""
    return sorted(
        (places[setting_text(point.settings.get(first))], log10(found[point.label, engine]))
        for point in points
        if (point.label, engine) in found
    )


def _line(engine: str, marks: Sequence[tuple[float, float]], sweep: Sweep) -> Line:
    xs, ys = np.array(marks, dtype=np.float64).reshape(-1, 2).T
    return Line(xs, ys, engine, 0, colour=COLOURS[sweep.engines.index(engine) % len(COLOURS)])


def _log_axis(title: str, values: Sequence[float]) -> Axis:
    """Return a logarithmic axis with a little room, with ticks at 1, 2 and 5 times powers of ten; at powers alone where these are many."""
    low, high = log10(min(values)), log10(max(values))
    room = max(0.05 * (high - low), 0.05)
    low, high = low - room, high + room
    powers = range(floor(low) - 1, ceil(high) + 1)
    for steps in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        ticks = [step * 10.0**power for power in powers for step in steps if low <= log10(step * 10.0**power) <= high]
        if len(ticks) <= MOST_TICKS:
            break
    return Axis(title, low, high, tuple((log10(tick), tick_text(tick)) for tick in ticks))


def _setting_axis(name: str, values: Sequence[object]) -> tuple[Axis, dict[str, float]]:
    """Return an axis of a setting, and the place of each value on it, by its text; values that are no numbers stand side by side."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(values):
        scale = log10 if min(numbers) > 0 and max(numbers) >= LOG_FROM * min(numbers) else float
        places = {setting_text(value): float(scale(value)) for value in sorted(numbers)}  # 1 and 1.0 are two texts.
    else:
        places = {text: float(place) for place, text in enumerate(dict.fromkeys(map(setting_text, values)))}
    low, high = min(places.values()), max(places.values())
    room = 0.04 * (high - low) or 1.0
    labels = [tick_text(float(text)) if len(numbers) == len(values) else shortened(text, 16) for text in places]
    every = ceil(len(places) / MOST_TICKS)
    ticks = list(zip(places.values(), labels, strict=True))[::every]
    return Axis(name, low - room, high + room, tuple(ticks)), places


def sweep_html(sweep: Sweep) -> Html:
    """Return a sweep as HTML of less than 200 kB."""
    most = max(1, MOST_CELLS // len(sweep.headings))
    first = ceil(most * SHOWN_AT_ONCE)
    shown, more = sweep.points[:first], sweep.points[first:most]
    left_out = len(sweep.points) - len(shown) - len(more)
    summary = counted(len(more), "more point") + (f"; another {left_out:,} are not listed: to_pandas() has them" if left_out else "")
    timed = any(point.makespan_us(engine) for point, engine in product(sweep.points, sweep.engines))
    picture = image(plane_svg(makespans(sweep)), sweep.headline) if timed else ""
    notes = [small(shortened(f"[{number}] {note}", LONGEST_NOTE)) for number, note in enumerate(sweep.notes[:MOST_NOTES], 1)]
    return block(
        above(sweep.title),
        lead(sweep.headline),
        picture,
        _table(sweep, shown),
        folded(summary, _table(sweep, more)) if more else "",
        joined(notes),
    )


def _table(sweep: Sweep, points: Sequence[Point]) -> Html:
    """Return points as a table, the fastest engines in bold; the interval of a measured time is shown beside the pointer."""
    settings = len(sweep.settings)
    columns = [
        *(Column(name, kind="text") for name in sweep.settings),
        *(
            Column(heading, "Median makespan of the repeats without recording.")
            for heading in sweep.headings[settings : settings + len(sweep.engines)]
        ),
        *(Column(heading, kind="text") for heading in sweep.headings[settings + len(sweep.engines) :]),
    ]
    rows = [
        Row(
            [shortened(cell, 60) for cell in cells],
            bold=[settings + n for n, engine in enumerate(sweep.engines) if engine in point.fastest],
        )
        for point, cells in zip(points, sweep.rows(points), strict=True)
    ]
    return table(columns, rows)


SWEEP = View(
    of="sweep",
    html=sweep_html,
    pictures={"makespans": lambda sweep: plane_svg(makespans(sweep)), "speedups": lambda sweep: plane_svg(speedups(sweep))},
)
