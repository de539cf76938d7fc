"""Rows of the still timeline: bars in order, with a colour each, for threads, streams and multiprocessors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamscope.arrays import Array, IntArray
from streamscope.trace import SpanKind, SpanTable
from streamscope.trace.spans import DEVICE_KINDS, HOST_KINDS
from streamscope.words import shortened
from streamscope_widgets.rows import MOST_MULTIPROCESSORS, places_of
from streamscope_widgets.show import palette

BAR = 12
MOST_STREAMS = 6
MOST_THREADS, MOST_DEPTH = 4, 3
"""Lanes of the host, and rows in one of them, for ranges in ranges."""
THIN_ROWS = (4, 3, 2)
"""Height of a multiprocessor's rows, where it has one, two or three."""
THIN_LABELLED = 8
LONGEST_LANE = 17
HOST_COLOURS = {kind: palette.HOST[kind.name.lower()] for kind in sorted(HOST_KINDS)}


@dataclass(frozen=True)
class LaneBars:
    """One row of the picture: bars in order, with a colour each."""

    label: str
    left: Array
    right: Array
    """float64: pixels from the left edge of the drawing area."""
    colour: Array
    """int64: index into ``colours``."""
    colours: tuple[str, ...]
    faint: Array | None = None
    """bool: bars of time in which a collective waits for other GPUs."""
    drop: float = 0
    height: float = BAR
    """How far below the top of the row the bars begin, and how tall they are, in pixels."""


def lanes_of(
    spans: SpanTable, zero_ns: float, scale: float, names: dict[str, int], waiting_ns: IntArray | None = None, gpu: str = ""
) -> list[LaneBars]:
    """Make lanes that hold anything, the host's first; of many those with most spans, and a line that counts the others.

    ``waiting_ns``: for how long each span waits for other GPUs, at its start.
    ``gpu``: a name that labels leave out.
    """
    drawn = spans.kind != SpanKind.GRAPH
    waiting_ns = (np.zeros(len(spans), np.int64) if waiting_ns is None else waiting_ns)[drawn]
    spans = spans if drawn.all() else spans.select(drawn)
    colours = (*HOST_COLOURS.values(), *palette.KERNELS)
    of_kind = np.zeros(max(SpanKind) + 1, np.int64)
    of_kind[list(HOST_COLOURS)] = np.arange(len(HOST_COLOURS))
    of_name = np.array([len(HOST_COLOURS) + names.get(name, 0) % len(palette.KERNELS) for name in spans.names] or [0])
    on_device = spans.is_kind(DEVICE_KINDS)
    colour = np.where(on_device, of_name[spans.name], of_kind[spans.kind])
    sizes = np.bincount(spans.lane, minlength=len(spans.lanes))
    on_stream = np.bincount(spans.lane, spans.kind >= SpanKind.KERNEL, minlength=len(spans.lanes)) > 0
    lanes = []
    for chosen, most, what in ((~on_stream, MOST_THREADS, "lanes"), (on_stream, MOST_STREAMS, "streams")):
        used = np.flatnonzero(chosen & (sizes > 0))
        for code in np.sort(used[np.argsort(-sizes[used], kind="stable")[:most]]):
            rows = np.flatnonzero(spans.lane == code)
            depth = _depth(spans, rows)
            for level in range(int(depth.max()) + 1):
                row = rows[depth == level]
                waits = row[waiting_ns[row] > 0]
                start_ns = np.append(spans.start_ns[row] + waiting_ns[row], spans.start_ns[waits])
                end_ns = np.append(spans.end_ns[row], spans.start_ns[waits] + waiting_ns[waits])
                left, right = (np.maximum((times_ns - zero_ns) * scale, 0) for times_ns in (start_ns, end_ns))
                label = "" if level else shortened(_lane_label(spans.lanes, code).removeprefix(f"{gpu} "), LONGEST_LANE)
                lanes.append(LaneBars(label, left, right, colour[np.append(row, waits)], colours, np.arange(len(left)) >= len(row)))
        if len(used) > most:
            lanes.append(LaneBars(f"+ {len(used) - most:,} {what}", *(np.zeros(0),) * 3, colours))
    return lanes


def multiprocessor_lanes(spans: SpanTable, zero_ns: float, scale: float, names: dict[str, int]) -> tuple[list[LaneBars], int]:
    """Make thin rows for each multiprocessor, as many as the one that runs most kernels at one time needs, and tell their height in pixels.

    Some of them have the multiprocessor's name.
    """
    of_name = np.array([names.get(name, 0) % len(palette.KERNELS) for name in spans.names] or [0])
    left, right = ((times_ns - zero_ns) * scale for times_ns in (spans.start_ns, spans.end_ns))
    row = places_of(spans, thin=True).row
    most = int(row.max(initial=0)) + 1
    slot = spans.lane.astype(np.int64) * most + row
    order = np.argsort(slot, kind="stable")
    count = min(len(spans.lanes), MOST_MULTIPROCESSORS) * most
    each = np.split(order, np.searchsorted(slot[order], np.arange(1, count + 1)))
    height, lanes = THIN_ROWS[most - 1], []
    for number, rows in enumerate(each[:count]):
        code, below = divmod(number, most)
        label = spans.lanes[code] if code % THIN_LABELLED == 0 and not below else ""
        bar = height - 1 if below == most - 1 else height
        lanes.append(LaneBars(label, left[rows], right[rows], of_name[spans.name[rows]], palette.KERNELS, None, 0, bar))
    return lanes, height


def _lane_label(lanes: Sequence[str], code: int) -> str:
    """Return a lane's name; of the ranges below their thread's lane only the new part."""
    return "ranges" if code and lanes[code] == f"{lanes[code - 1]} ranges" else lanes[code]


def _depth(spans: SpanTable, rows: Array) -> Array:
    """Tell in which row of its lane each span is drawn: ranges below those that hold them, as deep as there is room; all others in one."""
    if not (spans.kind[rows] == SpanKind.RANGE).any():
        return np.zeros(len(rows), np.int64)
    order = np.lexsort((-spans.end_ns[rows], spans.start_ns[rows]))
    ended = np.searchsorted(np.sort(spans.end_ns[rows]), spans.start_ns[rows][order], side="right")
    depth = np.empty(len(rows), np.int64)
    depth[order] = np.clip(np.arange(len(rows)) - ended, 0, None)
    return np.where(depth < MOST_DEPTH, depth, -1)
