"""Who compiled when, as a small still picture: a row for each thread, a bar for each stage, a colour for each sort of stage."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from html import escape

from streamscope.errors import printable
from streamscope.kernels.compile.compilation_log import CompileStage, StageTime, lane_order
from streamscope_widgets import palette
from streamscope_widgets.static_timeline import FONT

WIDTH, GUTTER, MARGIN, TOP = 980, 84, 14, 34
ROW, BAR = 17, 12
MOST_BARS = 500
"""The longest ones are drawn; the others are too short to be seen beside so many."""
MOST_ROWS = 32

COLOURS = {
    CompileStage.GENERATE: palette.KERNELS[2],
    CompileStage.LOOK_UP: palette.KERNELS[4],
    CompileStage.COMPILE: palette.KERNELS[0],
    CompileStage.STORE: palette.KERNELS[1],
    CompileStage.WAIT: palette.SYNC,
    CompileStage.LOAD: palette.KERNELS[3],
}


def workers_svg(stages: Sequence[StageTime], axis_ns: int = 0) -> str:
    """Return the picture as an SVG document on a white card; empty where there is nothing to draw.

    Time in which no thread was at a stage is left out, so that batches that lie minutes apart can be seen side by side.

    Parameters
    ----------
    stages : sequence of StageTime
    axis_ns : int
        Length of the time axis, where that is more than the stages take: so that two pictures have the same.
    """
    clock = BusyClock(stages)
    if not clock.total_ns:
        return ""
    length_ns = max(axis_ns, clock.total_ns)
    every = lane_order(stages)
    lanes, left_out = every[:MOST_ROWS], len(every) - MOST_ROWS
    rows = {lane: number for number, lane in enumerate(lanes)}
    scale = (WIDTH - GUTTER - MARGIN) / length_ns
    longest = sorted((stage for stage in stages if stage.lane in rows), key=lambda stage: stage.start_ns - stage.end_ns)[:MOST_BARS]
    bars = "".join(_bar(stage, clock, scale, TOP + rows[stage.lane] * ROW) for stage in longest)
    bottom = TOP + len(lanes) * ROW
    labels = "".join(_text(GUTTER - 8, TOP + number * ROW + 10, lane, "end") for lane, number in rows.items())
    present = [stage for stage in CompileStage if any(each.stage is stage for each in stages)]
    if left_out > 0:
        labels += _text(GUTTER, bottom + 32, f"{left_out} more threads are not shown", "start")
    body = f'<rect width="100%" height="100%" rx="6" fill="{palette.CARD}"/>{_legend(present)}{_axis(length_ns, scale, bottom)}'
    size = f'viewBox="0 0 {WIDTH} {bottom + 44}" width="{WIDTH}" height="{bottom + 44}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {FONT}>{body}{labels}{bars}</svg>'


class BusyClock:
    """A clock that stands still while no thread is at a stage.

    Parameters
    ----------
    stages : sequence of StageTime
    """

    def __init__(self, stages: Sequence[StageTime]) -> None:
        self._starts: list[int] = []
        self._before: list[int] = []
        """Busy time before each start."""
        self.total_ns = 0
        until: int | None = None
        for start, end in sorted((stage.start_ns, stage.end_ns) for stage in stages):
            if until is None or start > until:
                self._starts.append(start)
                self._before.append(self.total_ns)
                until = start
            self.total_ns += max(0, end - until)
            until = max(until, end)

    def at(self, time_ns: int) -> int:
        """Return the busy time, in ns, before a time that lies in a stage."""
        number = bisect_right(self._starts, time_ns) - 1
        return self._before[number] + time_ns - self._starts[number]


def _bar(stage: StageTime, clock: BusyClock, scale: float, top: float) -> str:
    left = GUTTER + clock.at(stage.start_ns) * scale
    width = max(0.5, (stage.end_ns - stage.start_ns) * scale)
    return f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{BAR}" fill="{COLOURS[stage.stage]}"/>'


def _axis(total_ns: int, scale: float, bottom: float) -> str:
    step = _round_step(total_ns / 1e6 / 8)
    parts = []
    for tick in range(int(total_ns / 1e6 / step) + 1):
        x = GUTTER + tick * step * 1e6 * scale
        parts.append(f'<path stroke="{palette.RULE}" d="M{x:.1f} {TOP - 4}V{bottom}"/>')
        parts.append(_text(x, bottom + 14, f"{tick * step:g}", "middle"))
    return "".join(parts) + _text(WIDTH - MARGIN, bottom + 32, "time in which something was done, ms", "end")


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is not below ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999)


def _legend(stages: Sequence[CompileStage]) -> str:
    parts, x = [], float(MARGIN)
    for stage in stages:
        parts.append(f'<rect x="{x:.0f}" y="9" width="10" height="10" rx="2" fill="{COLOURS[stage]}"/>{_text(x + 14, 18, stage, "start")}')
        x += 14 + 6.0 * len(stage) + 16
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    words = escape(printable(text))
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="10.5" fill="{palette.FAINT_INK}" text-anchor="{anchor}">{words}</text>'
