"""A small still picture of the timelines of several engines on one time axis, as SVG.

It is for places where widgets do not run: a reopened or untrusted notebook, an e-mail, a web page. Spans narrower than a pixel are merged
into columns whose strength of colour is the share that they fill, so a stream of short kernels with gaps never looks like a busy one.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from streamscope.errors import printable
from streamscope.trace import SpanKind, SpanTable, Trace
from streamscope.trace.spans import DEVICE_KINDS
from streamscope_widgets import palette

Array = npt.NDArray[Any]

WIDTH, GUTTER, MARGIN = 980, 116, 14
ROW, BAR = 17, 12
STRENGTHS = 4
MOST_STREAMS = 6
MOST_BYTES = 100_000
COLUMN_WIDTHS = (1.0, 2.0, 4.0, 8.0)
FONT = "font-family=\"system-ui,-apple-system,'Segoe UI',Roboto,sans-serif\""

HOST_COLOURS = {
    SpanKind.LAUNCH: palette.HOST_CALL,
    SpanKind.GRAPH_LAUNCH: palette.HOST_CALL,
    SpanKind.EVENT: palette.EVENT_CALL,
    SpanKind.SYNC: palette.SYNC,
    SpanKind.HOST: palette.HOST_FUNCTION,
    SpanKind.COMPILE: palette.HOST_FUNCTION,
}
LEGEND = (
    ("launch call", palette.HOST_CALL, (SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH)),
    ("event call", palette.EVENT_CALL, (SpanKind.EVENT,)),
    ("host waits", palette.SYNC, (SpanKind.SYNC,)),
    ("host function", palette.HOST_FUNCTION, (SpanKind.HOST, SpanKind.COMPILE)),
)
MOST_NAMES = 5


class Group(Protocol):
    """What is drawn for one engine."""

    @property
    def trace(self) -> Trace:
        """One recorded run."""

    @property
    def makespan_ns(self) -> float | None:
        """Median makespan of the runs that were not recorded; None if unknown."""


@dataclass(frozen=True)
class Lane:
    """One row of the picture: bars in order, with a colour each.

    Attributes
    ----------
    label : str
    left, right : float64 arrays
        Pixels from the left edge of the drawing area.
    colour : int64 array
        Index into ``colours``.
    colours : tuple of str
    """

    label: str
    left: Array
    right: Array
    colour: Array
    colours: tuple[str, ...]


def timeline_svg(groups: Sequence[Group]) -> str:
    """Draw the timelines as one SVG document of at most about 100 kB.

    Parameters
    ----------
    groups : sequence of Group
        One for each engine, drawn from top to bottom.

    Returns
    -------
    str
        SVG on a white card, so that it reads the same in light and dark surroundings.
    """
    for column in COLUMN_WIDTHS:
        svg = _draw(groups, column)
        if len(svg) <= MOST_BYTES:
            break
    return svg


def data_uri(svg: str) -> str:
    """Return a data URI of an SVG document, for the ``src`` of an image."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode("ascii")


def _draw(groups: Sequence[Group], column: float) -> str:
    # Clocks are joined by calibration, so what runs first may seem to start before 0.
    start_ns = min((float(group.trace.spans.start_ns.min(initial=0)) for group in groups), default=0.0)
    end_ns = max((float(group.trace.spans.end_ns.max(initial=1)) for group in groups), default=1.0)
    scale = (WIDTH - GUTTER - MARGIN) / (end_ns - start_ns)
    names = _device_names(groups)
    body, y = [], 44.0
    for group in groups:
        lanes = _lanes(group.trace.spans, start_ns, scale, names)
        body.append(_heading(group, y))
        for row, lane in enumerate(lanes):
            top = y + 6 + row * ROW
            body.append(_text(GUTTER - 8, top + 10, lane.label, 10.5, palette.FAINT_INK, "end"))
            body.append(_bars(lane, top, column))
        y += 6 + len(lanes) * ROW + 24
    simulated = any(group.trace.info.device.simulated for group in groups)
    height = y + 22
    axis = _axis(start_ns, end_ns, scale, 24, y - 16, simulated=simulated)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" {FONT}>'
    card = f'<rect width="100%" height="100%" rx="6" fill="{palette.CARD}"/>'
    return "".join([head, card, _legend(groups, names), axis, *body, "</svg>"])


def _device_names(groups: Sequence[Group]) -> dict[str, int]:
    """Names of kernels and copies, numbered by the time they take on the device in all groups: the same colours as in the live timeline."""
    taken: dict[str, int] = {}
    for group in groups:
        kernels = group.trace.spans.of_kind(DEVICE_KINDS)
        totals = np.bincount(kernels.name, kernels.duration_ns, len(kernels.names))
        for code in np.unique(kernels.name):
            taken[kernels.names[code]] = taken.get(kernels.names[code], 0) + int(totals[code])
    return {name: rank for rank, name in enumerate(sorted(taken, key=lambda name: -taken[name]))}


def _lanes(spans: SpanTable, zero_ns: float, scale: float, names: dict[str, int]) -> list[Lane]:
    """Make lanes that hold anything: the host's first, then at most six streams and a line that says how many were left out."""
    spans = spans.select(spans.kind != SpanKind.GRAPH)
    colours = (*HOST_COLOURS.values(), *palette.KERNELS)
    of_kind = np.zeros(max(SpanKind) + 1, np.int64)
    of_kind[list(HOST_COLOURS)] = np.arange(len(HOST_COLOURS))
    of_name = np.array([len(HOST_COLOURS) + names.get(name, 0) % len(palette.KERNELS) for name in spans.names] or [0])
    on_device = np.isin(spans.kind, list(DEVICE_KINDS))
    colour = np.where(on_device, of_name[spans.name], of_kind[spans.kind])
    lanes, streams = [], 0
    for code in np.unique(spans.lane):
        mask = spans.lane == code
        is_stream = bool((spans.kind[mask] >= SpanKind.KERNEL).any())
        streams += is_stream
        if is_stream and streams > MOST_STREAMS:
            continue
        left, right = ((times_ns[mask] - zero_ns) * scale for times_ns in (spans.start_ns, spans.end_ns))
        lanes.append(Lane(spans.lanes[code], left, right, colour[mask], colours))
    if streams > MOST_STREAMS:
        lanes.append(Lane(f"+ {streams - MOST_STREAMS} streams", *(np.zeros(0),) * 3, colours))
    return lanes


def _bars(lane: Lane, top: float, column: float) -> str:
    """Draw wide bars one by one, and narrow ones as columns whose opacity is the share that is filled."""
    wide = lane.right - lane.left >= 1.5 * column
    paths: dict[tuple[int, int], list[str]] = {}
    for left, right, colour in zip(lane.left[wide], lane.right[wide], lane.colour[wide], strict=True):
        # A hairline between neighbours, taken from the bar, keeps back-to-back kernels apart.
        paths.setdefault((int(colour), STRENGTHS), []).append(_rectangle(left, right - min(0.5, (right - left) / 4), top))
    for left, right, colour, strength in _columns(lane, ~wide, column):
        paths.setdefault((colour, strength), []).append(_rectangle(left, right, top))
    return "".join(
        f'<path fill="{lane.colours[colour]}"{_opacity(strength)} d="{"".join(parts)}"/>'
        for (colour, strength), parts in sorted(paths.items())
    )


def _columns(lane: Lane, narrow: Array, column: float) -> list[tuple[float, float, int, int]]:
    """Merge narrow bars into (left, right, colour, strength), one a column of pixels, neighbours alike joined."""
    if not narrow.any():
        return []
    at = (lane.left[narrow] / column).astype(np.int64)
    length = np.maximum(lane.right[narrow] - lane.left[narrow], 1e-9)  # a span of no length still has a colour
    count, kinds = int(at.max()) + 1, len(lane.colours)
    filled = np.bincount(at * kinds + lane.colour[narrow], weights=length, minlength=count * kinds).reshape(count, kinds)
    any_bar = np.bincount(at, minlength=count) > 0
    share = np.clip(filled.sum(axis=1) / column, 0, 1)
    strength = np.where(any_bar, np.maximum(1, np.ceil(share * STRENGTHS)), 0).astype(np.int64)
    look = filled.argmax(axis=1) * (STRENGTHS + 1) + strength
    look[strength == 0] = -1
    first = np.flatnonzero(np.diff(look, prepend=-2))
    last = np.append(first[1:], count)
    return [
        (float(a * column), float(b * column), int(look[a] // (STRENGTHS + 1)), int(look[a] % (STRENGTHS + 1)))
        for a, b in zip(first, last, strict=True)
        if look[a] >= 0
    ]


def _rectangle(left: float, right: float, top: float) -> str:
    return f"M{GUTTER + left:.1f} {top:.0f}h{right - left:.1f}v{BAR}h-{right - left:.1f}z"


def _opacity(strength: int) -> str:
    return "" if strength == STRENGTHS else f' opacity="{0.15 + 0.85 * strength / STRENGTHS:.2f}"'


def _heading(group: Group, y: float) -> str:
    info = group.trace.info
    simulated = ", simulated" if info.device.simulated else ""
    name = _text(MARGIN, y, info.engine, 12.5, palette.INK, "start", bold=True)
    if group.makespan_ns is None:
        return name
    return name + _text(GUTTER, y, f"{_duration(group.makespan_ns)} without recording{simulated}", 10.5, palette.FAINT_INK, "start")


def _duration(time_ns: float) -> str:
    return f"{time_ns / 1e6:,.2f} ms" if time_ns >= 1e7 else f"{time_ns / 1e3:,.1f} µs"


def _axis(start_ns: float, end_ns: float, scale: float, top: float, bottom: float, *, simulated: bool) -> str:
    """Draw ticks at round times, under all lanes."""
    length_ns = end_ns - start_ns
    unit_ns, unit = (1e6, "ms") if length_ns >= 1e7 else (1e3, "µs") if length_ns >= 1e3 else (1.0, "ns")
    step = _round_step(length_ns / unit_ns / 8)
    parts = []
    for tick in range(math.ceil(start_ns / unit_ns / step), int(end_ns / unit_ns / step) + 1):
        x = GUTTER + (tick * step * unit_ns - start_ns) * scale
        parts.append(f'<path stroke="{palette.RULE}" d="M{x:.1f} {top + 14:.0f}V{bottom:.0f}"/>')
        parts.append(_text(x, bottom + 14, f"{tick * step:g}", 10.5, palette.FAINT_INK, "middle"))
    title = f"{'simulated ' if simulated else ''}time of the recorded run, {unit}"
    return "".join(parts) + _text(WIDTH - MARGIN, bottom + 30, title, 10.5, palette.INK, "end")


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is at least ``least``."""
    power = 10.0 ** np.floor(np.log10(least))
    return float(next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999))


def _legend(groups: Sequence[Group], names: dict[str, int]) -> str:
    present = {int(kind) for group in groups for kind in np.unique(group.trace.spans.kind)}
    entries = [(label, colour) for label, colour, kinds in LEGEND if present.intersection(kinds)]
    entries += [(name, palette.KERNELS[number % len(palette.KERNELS)]) for name, number in list(names.items())[:MOST_NAMES]]
    parts, x = [], float(MARGIN)
    for label, colour in entries:
        short = label if len(label) <= 24 else label[:23] + "…"
        parts.append(f'<rect x="{x:.0f}" y="9" width="10" height="10" rx="2" fill="{colour}"/>')
        parts.append(_text(x + 14, 18, short, 10.5, palette.FAINT_INK, "start"))
        x += 14 + 6.0 * len(short) + 16
    if len(names) > MOST_NAMES:
        parts.append(_text(x, 18, f"+ {len(names) - MOST_NAMES} more", 10.5, palette.FAINT_INK, "start"))
    return "".join(parts)


def _text(x: float, y: float, text: str, size: float, colour: str, anchor: str, *, bold: bool = False) -> str:
    weight, words = ' font-weight="600"' if bold else "", escape(printable(text))
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight}>{words}</text>'
