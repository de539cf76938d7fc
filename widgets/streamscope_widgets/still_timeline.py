"""A small still picture of the timelines of several engines on one time axis, as SVG.

It is for places where widgets do not run: a reopened or untrusted notebook, an e-mail, a web page. Spans narrower than a pixel are merged
into columns whose strength of colour is the share that they fill, so a stream of short kernels with gaps never looks like a busy one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamscope.analysis import Activity, Occupation
from streamscope.arrays import Array
from streamscope.trace import SpanKind, TimelineGroup, Trace
from streamscope.trace.one_gpu import with_received
from streamscope.words import shortened, time_text, time_unit
from streamscope_widgets.gpu_activity import GpuActivity, activities_of
from streamscope_widgets.notes_view import drawn_notes, room_of
from streamscope_widgets.overlap_columns import LOOKS
from streamscope_widgets.payload import BlockGroup, compare_makespans, nature_of, nature_of_axis, operator_order, stretch_words
from streamscope_widgets.several_gpus import GpuWords, fold, gpu_words, waiting_ns_of
from streamscope_widgets.show import palette
from streamscope_widgets.show.html import Html, block, image, lead, still
from streamscope_widgets.show.svg import FONT, document, lane_axis, lane_legend, shape, small_text, text, tick_text, ticks
from streamscope_widgets.still_counters import (
    COUNTER_ROW,
    MARKER_ROW,
    CounterLine,
    counter_lines,
    drawn_counter,
    drawn_markers,
    height_of,
    memory_lines,
)
from streamscope_widgets.still_lanes import BAR, HOST_COLOURS, LaneBars, lanes_of, multiprocessor_lanes

WIDTH, GUTTER, MARGIN = 980, 116, 14
AREA = WIDTH - GUTTER - MARGIN
"""Width of the drawing area."""
ROW, TOP = 17, 38
FOOT, MOST_LEVELS = 2.5, 6
ABOVE_FOOT = BAR - FOOT
STRENGTHS = 4
GPU_HEADING, MOST_OF_SEVERAL = 20, 3
COLUMNS = (0, 76, 250, 340)
"""Left edges of a GPU's words, in pixels from the gutter."""
BOLD_LETTER = 0.58
"""Width of a bold letter, as a share of the font's size."""
MOST_BYTES = 100_000
COLUMN_WIDTHS = (1.0, 2.0, 4.0, 8.0, 12.0)

HOST_WORDS = {
    SpanKind.LAUNCH: "launch",
    SpanKind.GRAPH_LAUNCH: "graph launch",
    SpanKind.EVENT: "event",
    SpanKind.SYNC: "host waits",
    SpanKind.HOST: "host function",
    SpanKind.COMPILE: "compilation",
    SpanKind.API: "other call",
    SpanKind.RANGE: "range",
}
MOST_NAMES, LONGEST_NAME, LONGEST_LABEL = 5, 24, 40
LETTER = 8.2
ROOM_FOR_MORE, ROOM_FOR_TITLE = 56, 190


def timeline_svg(groups: Sequence[TimelineGroup]) -> str:
    """Draw the timelines from top to bottom as one SVG document of at most about 100 kB, on a card as light or dark as the page."""
    for column in COLUMN_WIDTHS:
        svg = _draw(groups, column)
        if len(svg) <= MOST_BYTES:
            break
    return svg


def timeline_image(groups: Sequence[TimelineGroup], finding: str) -> Html:
    """Return the picture for a notebook, with the finding for who cannot see it."""
    engines = ", ".join(group.label or group.trace.info.engine for group in groups)
    return image(timeline_svg(groups), f"Timelines of {engines} on one time axis. {finding}".strip())


def timeline_still(groups: Sequence[TimelineGroup], finding: str) -> Html:
    """Return the HTML before live timelines: the finding and, until they are drawn, the picture and how to get them."""
    return block(lead(finding) if finding else "", still(timeline_image(groups, finding)))


def _draw(groups: Sequence[TimelineGroup], column: float) -> str:
    start_ns = min(map(_start_ns, groups), default=0.0)
    end_ns = max((float(group.trace.spans.end_ns.max(initial=1)) for group in groups), default=1.0)
    scale = AREA / (end_ns - start_ns)
    names = {name: rank for rank, name in enumerate(operator_order(groups))}
    parts = _parts(groups, start_ns, scale, names)
    activities = [part.found for group_parts in parts for part in group_parts if part.found]
    several = any(part.gpu for group_parts in parts for part in group_parts)
    unit = ABOVE_FOOT / min(MOST_OF_SEVERAL if several else MOST_LEVELS, max([2, *map(_most, activities)]))
    body, y = [], 44.0
    for group, group_parts, comparison in zip(groups, parts, compare_makespans(groups), strict=True):
        body += _heading(group, comparison, y)
        y += 6
        marked, noted = 0.0, y
        y += room_of(group.trace)
        for part in group_parts:
            if part.gpu:
                body += _gpu_heading(part.gpu, y + 14)
                y += GPU_HEADING
            for row, lane in enumerate(part.lanes):
                top = y + row * part.height
                body += [small_text(GUTTER - 8, top + 10, lane.label, "end")] if lane.label else []
                body += _bars(lane, top, column)
            y += len(part.lanes) * part.height
            if part.counted:
                marked = y
                body += _counters(group.trace, start_ns, scale, y, column)
                y += height_of(*counter_lines(group.trace, start_ns, scale, AREA), group.trace)
            if part.found and _most(part.found):
                body.append(small_text(GUTTER - 8, y + 10, "at once", "end"))
                layers = _at_once(part.found, start_ns, scale, unit, column)
                body.append(shape("g", *(bar for layer in layers for bar in _bars(layer, y, column, 0)), class_="at-once"))
                y += ROW
            if part.held:
                body += drawn_counter(part.held, GUTTER, y, AREA, column)
                y += COUNTER_ROW
        if any(part.counted for part in group_parts) and len(group.trace.markers):
            body += drawn_markers(group.trace, start_ns, scale, GUTTER, (marked, y), AREA)
        body += drawn_notes(group.trace, start_ns, scale, GUTTER, (noted, y), AREA)
        y += 24
    axis = _axis(start_ns, end_ns, scale, y - 16, nature_of_axis(groups))
    looks, end = lane_legend(_looks(activities), MARGIN, y + 6)
    if end > WIDTH - ROOM_FOR_TITLE:  # It goes below the title of the axis.
        y += 16
        looks, _ = lane_legend(_looks(activities), MARGIN, y + 6)
    return document(WIDTH, y + 22, *_legend(groups, names), *axis, *looks, *body, font_family=FONT)


def _counters(trace: Trace, start_ns: float, scale: float, y: float, column: float) -> list[str]:
    """Draw the lanes of counters, below the room for the names of markers."""
    lines, left_out = counter_lines(trace, start_ns, scale, AREA)
    y += MARKER_ROW if len(trace.markers) else 0
    drawn = [drawn_counter(line, GUTTER, y + row * COUNTER_ROW, AREA, column) for row, line in enumerate(lines)]
    more = [small_text(GUTTER - 8, y + len(lines) * COUNTER_ROW + 10, f"+ {left_out:,} counters", "end")] if left_out else []
    return [*(part for parts in drawn for part in parts), *more]


@dataclass(frozen=True)
class _Part:
    """Lanes that stand together: those of a group or, with several GPUs, those of the host, or of one GPU."""

    lanes: list[LaneBars]
    height: float = ROW
    found: GpuActivity | None = None
    gpu: GpuWords | None = None
    """Words of its header, if it has one."""
    counted: bool = False
    """Whether counters and markers stand below."""
    held: CounterLine | None = None
    """Memory of the GPU, which stands below."""


def _parts(groups: Sequence[TimelineGroup], start_ns: float, scale: float, names: dict[str, int]) -> list[list[_Part]]:
    """Return the parts of each group."""
    activities = [() if isinstance(group, BlockGroup) else activities_of(group.trace, group.trace.spans) for group in groups]
    wide = [gpu_words(group.trace, own) if len(own) > 1 else () for group, own in zip(groups, activities, strict=True)]
    placed, found = (start_ns, scale, names), []
    lanes = [[_lanes_of_gpu(group, each, *placed) for each in words] for group, words in zip(groups, wide, strict=True)]
    words = fold(wide, sum(len(each) for group_lanes in lanes for each in group_lanes))
    memories = _memories(groups, start_ns, scale)
    for group, gpus, group_lanes, own, held in zip(groups, words, lanes, activities, memories, strict=True):
        spans, only = group.trace.spans, held.get(next(iter(group.trace.gpus), 0))
        counted = bool(len(group.trace.counters) or len(group.trace.markers))
        if isinstance(group, BlockGroup):
            found.append([_Part(*multiprocessor_lanes(spans, *placed))])
        elif gpus:
            host = _Part(lanes_of(spans.select(spans.gpu < 0), *placed), counted=counted)
            each = zip(group_lanes, own, gpus, strict=True)
            found.append(
                [host, *(_Part([] if gpu.folded else lane, ROW, activity, gpu, held=held.get(gpu.gpu)) for lane, activity, gpu in each)]
            )
        elif counted:
            sides = (lanes_of(spans.select(chosen), *placed) for chosen in (spans.gpu < 0, spans.gpu >= 0))
            found.append([_Part(next(sides), counted=True), _Part(next(sides), ROW, next(iter(own), None), held=only)])
        else:
            found.append([_Part(lanes_of(spans, *placed), ROW, next(iter(own), None), held=only)])
    return found


def _memories(groups: Sequence[TimelineGroup], start_ns: float, scale: float) -> list[dict[int, CounterLine]]:
    """Return the memory of each group by GPU, all on one scale."""
    found = [{} if isinstance(group, BlockGroup) else memory_lines(group.trace, start_ns, scale, AREA) for group in groups]
    high = max((line.high for lines in found for line in lines.values()), default=0.0)
    return [{gpu: replace(line, high=high) for gpu, line in lines.items()} for lines in found]


def _lanes_of_gpu(group: TimelineGroup, words: GpuWords, start_ns: float, scale: float, names: dict[str, int]) -> list[LaneBars]:
    spans = with_received(group.trace.spans, group.trace.peers, words.gpu)
    rows = spans.gpu == words.gpu
    return lanes_of(spans.select(rows), start_ns, scale, names, waiting_ns_of(group.trace)[rows], words.name)


def _gpu_heading(gpu: GpuWords, y: float) -> list[str]:
    """Return the header of a GPU: its metrics, and whether it is the slowest one."""
    line = text(MARGIN, y, gpu.name, font_size=11, fill=palette.INK, text_anchor="start", font_weight=600)
    said = [small_text(GUTTER + left, y, words) for left, words in zip(COLUMNS, gpu.words, strict=False)]
    if gpu.slowest:
        left = GUTTER + COLUMNS[len(gpu.words)]
        fits = (WIDTH - MARGIN - left) / (BOLD_LETTER * len(gpu.slowest))  # A long reason is set smaller, so that its end is seen.
        size = min(11, round(fits, 1))
        said.append(text(left, y, gpu.slowest, font_size=size, fill=palette.SLOWER, text_anchor="start", font_weight=600))
    return [line, *said]


def _start_ns(group: TimelineGroup) -> float:
    """Return a picture's start: the first call, or an earlier span, since clocks are joined by calibration.

    Ranges that began long before are cut off there.
    """
    spans = group.trace.spans
    return float(spans.start_ns[spans.kind != SpanKind.RANGE].min(initial=0))


def _most(found: Activity) -> int:
    """Return how many streams run at once, at most; 0 where nothing runs."""
    return int((found.kernels + found.copies).max(initial=0))


def _at_once(found: GpuActivity, zero_ns: float, scale: float, unit: float, column: float) -> Iterator[LaneBars]:
    """Yield the shapes of the lane "at once": as in the live timeline, idle time by cause at the foot, above it a step a stream.

    Streams that compute stand below those that communicate, and these below those that copy.
    """
    left, right = ((times_ns - zero_ns) * scale for times_ns in (found.start_ns, found.end_ns))
    idle = np.flatnonzero(found.occupation != Occupation.RUNNING)
    # Idle time of one cause is one line; what runs meanwhile is drawn over it.
    cause = found.occupation[idle] - 1
    opens = np.flatnonzero(np.diff(cause, prepend=-1))
    closes = np.append(opens[1:], len(idle)) - 1 if len(idle) else opens
    colours = tuple(LOOKS[occupation.name.lower()][1] for occupation in Occupation if occupation)
    yield LaneBars("at once", left[idle[opens]], right[idle[closes]], cause[opens], colours, None, BAR - FOOT, FOOT)
    streams = _streams_in_columns(found, left, right, column)
    steps = (streams[0] * (MOST_LEVELS + 1) + streams[1]) * (MOST_LEVELS + 1) + streams[2]
    for step in np.flatnonzero(np.bincount(steps)[1:]) + 1:
        rows = np.flatnonzero(steps == step)
        both, copies = divmod(int(step), MOST_LEVELS + 1)
        kernels, communication = divmod(both, MOST_LEVELS + 1)
        tops = [min(levels * unit, ABOVE_FOOT) for levels in np.cumsum([0, kernels, communication, copies])]
        looks = ("kernels" if kernels > 1 else "kernel", "hidden" if kernels else "exposed", "copy")
        for look, start, end in zip(looks, tops[:-1], tops[1:], strict=True):
            if end > start:
                foot = 0 if start else FOOT
                none = np.zeros(len(rows), np.int64)
                yield LaneBars("at once", left[rows], right[rows], none, (LOOKS[look][1],), None, ABOVE_FOOT - end, end - start + foot)


def _streams_in_columns(found: GpuActivity, left: Array, right: Array, column: float) -> Array:
    """Return how many streams compute, communicate and copy: in narrow stretches, the mean of those that run in one column of pixels."""
    streams: Array = np.stack([found.kernels - found.collectives, found.collectives + found.peers, found.copies - found.peers])
    narrow = np.flatnonzero((right - left < 1.5 * column) & streams.any(axis=0))
    if len(narrow):
        at, length = (left[narrow] / column).astype(np.int64), np.maximum(right[narrow] - left[narrow], 1e-9)
        whole = np.bincount(at, length)[at]
        means = np.stack([np.bincount(at, length * row)[at] / whole for row in streams[:, narrow]])
        streams[:, narrow] = np.maximum(np.round(means), means == means.max(axis=0))
    return np.minimum(streams, MOST_LEVELS)


def _looks(activities: Sequence[GpuActivity]) -> list[tuple[str, str]]:
    """Return the legend of the lanes "at once": words and colours."""
    found = {Occupation(code).name.lower() for one in activities for code in np.flatnonzero(np.bincount(one.occupation)).tolist()}
    for one in activities:
        compute, communicates = one.kernels - one.collectives, one.collectives + one.peers > 0
        present = {
            "kernel": compute == 1, "kernels": compute > 1, "hidden": communicates & (compute > 0),
            "exposed": communicates & (compute == 0), "copy": one.copies > one.peers,
        }  # fmt: skip
        found |= {name for name, times in present.items() if times.any()}
    return [look for name, look in LOOKS.items() if name in found] if any(map(_most, activities)) else []


def _bars(lane: LaneBars, top: float, column: float, hairline: float = 0.5) -> list[str]:
    """Draw wide bars one by one, and narrow ones as columns whose opacity is the share that is filled.

    They are strokes, which SVG says shortest. A hairline, taken from the bar, keeps back-to-back kernels apart.
    """
    middle = top + lane.drop + lane.height / 2
    return [
        shape("path", stroke=lane.colours[colour], stroke_width=lane.height, opacity=_opacity(strength), d=_stroke(bars, middle, hairline))
        for (colour, strength), bars in _by_look(lane, column)
    ]


def _by_look(lane: LaneBars, column: float) -> list[tuple[tuple[int, int], list[tuple[float, float, bool]]]]:
    """Return colour and strength, with left and right edge of each stretch, and whether it is wide enough for a bar of its own."""
    wide = lane.right - lane.left >= 1.5 * column
    strengths = np.full(len(lane.left), STRENGTHS) if lane.faint is None else np.where(lane.faint, 1, STRENGTHS)
    looks: dict[tuple[int, int], list[tuple[float, float, bool]]] = {}
    for left, right, colour, level in zip(lane.left[wide], lane.right[wide], lane.colour[wide], strengths[wide], strict=True):
        looks.setdefault((int(colour), int(level)), []).append((left, right, True))
    for left, right, colour, strength in _columns(lane, ~wide, column):
        looks.setdefault((colour, strength), []).append((left, right, False))
    return sorted(looks.items())


def _columns(lane: LaneBars, narrow: Array, column: float) -> list[tuple[float, float, int, int]]:
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


def _stroke(bars: Sequence[tuple[float, float, bool]], middle: float, hairline: float) -> str:
    """Return moves and lines, each from where the last one ended, in tenths of a pixel."""
    at, parts = round(10 * GUTTER), [f"M{GUTTER} {middle:g}"]
    for left, right, wide in bars:
        cut = min(hairline, (right - left) / 4) if wide else 0
        start, end = round(10 * (GUTTER + left)), round(10 * (GUTTER + right - cut))
        parts.append(f"m{(start - at) / 10:g} 0h{(end - start) / 10:g}")
        at = end
    return "".join(parts)


def _opacity(strength: int) -> str | None:
    return None if strength == STRENGTHS else f"{0.15 + 0.85 * strength / STRENGTHS:.2f}"


def _heading(group: TimelineGroup, comparison: str, y: float) -> list[str]:
    info = group.trace.info
    label = shortened(group.label or info.engine, LONGEST_LABEL)
    parts = [text(MARGIN, y, label, font_size=12.5, fill=palette.INK, text_anchor="start", font_weight=600)]
    told = [group.note] if isinstance(group, BlockGroup) and group.note else []
    told += (
        []
        if group.makespan_ns is None
        else [time_text(group.makespan_ns) + ("" if nature_of(info) == "predicted" else " without recording")]
    )
    if info.device.simulated and (told or nature_of(info) == "predicted"):
        told[:1] = [", ".join([*told[:1], nature_of(info)])]
    told += [words for words in (comparison, stretch_words(group)) if words]
    # The label is written in letters of at most this width, in most fonts.
    left = max(GUTTER, MARGIN + LETTER * len(label) + 8)
    return [*parts, small_text(left, y, "; ".join(told))] if told else parts


def _axis(start_ns: float, end_ns: float, scale: float, bottom: float, nature: str) -> list[str]:
    """Draw ticks at round times, under all lanes."""
    unit_ns, unit = time_unit(max(-start_ns, end_ns))
    times = ticks(start_ns / unit_ns, end_ns / unit_ns, 8)
    title = f"{nature} time of the {'run' if nature == 'predicted' else 'recorded run'}, {unit}".lstrip()
    places = [(GUTTER + (time * unit_ns - start_ns) * scale, tick_text(time)) for time in times]
    return [*lane_axis(places, TOP, bottom), small_text(WIDTH - MARGIN, bottom + 30, title, "end", palette.INK)]


def _short_name(name: str) -> str:
    """Shorten a name in its middle: names of kernels often begin alike."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}…{name[-8:]}"


def _legend(groups: Sequence[TimelineGroup], names: dict[str, int]) -> list[str]:
    present = {int(kind) for group in groups for kind in np.flatnonzero(np.bincount(group.trace.spans.kind))}
    entries = [(label, HOST_COLOURS[kind]) for kind, label in HOST_WORDS.items() if kind in present]
    hosts = len(entries)
    entries += [(name, palette.KERNELS[number % len(palette.KERNELS)]) for name, number in list(names.items())[:MOST_NAMES]]
    told = [(_short_name(label), colour) for label, colour in entries]
    parts, end = lane_legend(told, MARGIN)
    while end > WIDTH - ROOM_FOR_MORE and len(told) > hosts:
        told.pop()
        parts, end = lane_legend(told, MARGIN)
    left_out = len(names) - (len(told) - hosts)
    return [*parts, small_text(end, 18, f"+ {left_out} more")] if left_out else parts
