"""Long traces in the timeline, a piece at a time: Python keeps the trace, and the browser draws what it has and asks for the rest.

First comes an overview of the whole run, then, when a view rests, a tile: all rows in a stretch of time, at the level of detail of the
view. Both are payloads as of short traces, whose spans may be marks (`levels.Marks`). For the rest there are queries: `tile_questions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from streamscope.analysis import critical_path
from streamscope.arrays import BoolArray, IntArray
from streamscope.trace.joins import looked_up
from streamscope.trace.spans import SpanKind
from streamscope.trace.trace import TimelineGroup
from streamscope_widgets.columns import ColumnBlock
from streamscope_widgets.gpu_activity import activities_of
from streamscope_widgets.levels import MOST_DIRECT, Marks, Rows, StretchLevels
from streamscope_widgets.overlap_columns import encode_stretches_of_path, waits_of
from streamscope_widgets.payload import BlockGroup, Payload, Shown, codes_of, encode_part, encode_shown
from streamscope_widgets.rows import SLOTS
from streamscope_widgets.several_gpus import joint_columns

MOST_WHOLE = 1_000_000
"""More spans than this are sent in tiles: a browser draws no more at once with ease."""
MOST_EXACT = 20_000
"""So many spans of a tile are sent one by one at any level: the browser merges spans of one pixel itself."""
OVERVIEW_PIXELS = 2048
PARTS = 16
"""Bits of a number that tells an operation's part."""


def needs_tiles(groups: Sequence[TimelineGroup]) -> bool:
    """Tell whether timelines are too long to be sent whole. Blocks of multiprocessors, which are drawn otherwise, always are."""
    return sum(len(group.trace.spans) for group in groups) > MOST_WHOLE and not any(isinstance(group, BlockGroup) for group in groups)


@dataclass
class Part:
    """One trace in rows, and values derived from it at first use."""

    group: TimelineGroup

    @cached_property
    def rows(self) -> Rows:
        """Its spans as they are drawn."""
        return Rows(self.group.trace.spans)

    @cached_property
    def stretches(self) -> tuple[StretchLevels, ...]:
        """The activity of each GPU."""
        return tuple(StretchLevels(found, MOST_DIRECT) for found in activities_of(self.group.trace, self.group.trace.spans))

    @cached_property
    def joint(self) -> dict[str, IntArray]:
        """`joint_columns` of its spans."""
        return joint_columns(self.group.trace)

    @cached_property
    def waits(self) -> tuple[IntArray, IntArray]:
        """Rows of awaited work, and of waiting work, in the order of the latter."""
        return waits_of(self.group.trace.origins, self.group.trace.spans)

    @cached_property
    def first(self) -> BoolArray:
        """Which spans are the first kernel, copy or memory set that their call put on the device."""
        spans = self.group.trace.spans
        rows = np.flatnonzero((spans.kind >= SpanKind.KERNEL) & (spans.kind != SpanKind.GRAPH) & (spans.correlation >= 0))
        found = np.zeros(len(spans), bool)
        found[rows[np.unique(spans.correlation[rows], return_index=True)[1]]] = True
        return found

    @cached_property
    def drawn(self) -> BoolArray:
        """Which spans are on a lane that is drawn."""
        return np.isin(self.group.trace.spans.lane, self.rows.places.lanes)

    @cached_property
    def launched(self) -> IntArray:
        """For each span the row of the device work of its operation, or of its part; -1 for none."""
        spans = self.group.trace.spans
        rows = np.flatnonzero((spans.kind >= SpanKind.KERNEL) & (spans.operation >= 0))
        key = spans.operation.astype(np.int64) << PARTS | spans.part
        keys, first = np.unique(key[rows], return_index=True)
        return looked_up(keys, rows[first], key, -1)

    @cached_property
    def path(self) -> tuple[str, Marks]:
        """The critical path's bounds in words, and its stretches as marks of one row; ``slot`` is a stretch's `Bound`."""
        found = critical_path(self.group.trace)
        each, length_ns = np.arange(len(found.span)), found.end_ns - found.start_ns
        return found.words, Marks(found.span, np.ones_like(each), found.bound, found.start_ns, found.end_ns, length_ns, each, length_ns)

    def shown(self, level: int, start_ns: float, end_ns: float, hits: BoolArray | None = None) -> Shown:
        """Return the message for a stretch of time at a level.

        ``level``, ``start_ns``, ``end_ns``: as of `Rows.marks`.
        ``hits``: which spans of the trace a search finds: crowds say how many they hold, and wear the colour of one.
        """
        spans, rows = self.group.trace.spans, self.rows
        marks, exact = rows.marks(level, start_ns, end_ns, MOST_EXACT)
        chosen, found = marks.longest, np.zeros(len(marks), np.int64)
        if hits is not None:
            before = np.append(0, np.cumsum(hits[rows.span]))
            found = before[marks.first + marks.count] - before[marks.first]
            hidden = (found > 0) & ~hits[rows.span[chosen]]
            chosen = np.where(hidden, np.searchsorted(before, before[marks.first], "right") - 1, chosen)
        order = np.lexsort((rows.span[chosen], marks.start_ns))
        marks, found, span = marks.select(order), found[order], rows.span[chosen[order]]
        crowd = marks.count > 1
        table = spans.select(span)
        none = {name: np.where(crowd, -1, getattr(table, name)) for name in ("operation", "graph_node")}
        zero = {name: np.where(crowd, 0, getattr(table, name)) for name in ("part", "basis", "blocks", "threads", "bytes", "flops")}
        # Of a launch, some of what it put on the device may be in a crowd: then it is not told which came first.
        joined = table.correlation if exact else np.full(len(marks), -1)
        table.__dict__.update(start_ns=marks.start_ns, end_ns=marks.end_ns, correlation=joined, **none, **zero)
        more = {"merged": marks.count, "busy": marks.busy_ns, "row": marks.slot % SLOTS, "span": span, "first": self.first[span]}
        more |= {} if hits is None else {"hits": found}
        more |= {name: np.where(crowd & (name == "collective"), -1, column[span]) for name, column in self.joint.items()}
        stretches = (each.within(level, start_ns, end_ns, MOST_EXACT) for each in self.stretches)
        activities = [(each.found, each.crowd) for each in stretches]
        # Stretches that are merged take as long in sum, so those of the overview tell all of the trace.
        whole = [found for found, _ in activities]
        return Shown(table, activities, whole, more, {"exact": exact}, waits=self._waits_among(span if exact else span[:0]))

    def _waits_among(self, span: IntArray) -> tuple[IntArray, IntArray]:
        """Return the waits between some rows, as places among them."""
        if not len(span):
            return span, span
        earlier, later = self.waits
        order = np.argsort(span)
        within = slice(int(np.searchsorted(later, span.min())), int(np.searchsorted(later, span.max(), "right")))
        places = [np.minimum(np.searchsorted(span, rows[within], sorter=order), len(span) - 1) for rows in (earlier, later)]
        found = [order[place] for place in places]
        both = (span[found[0]] == earlier[within]) & (span[found[1]] == later[within])
        first = np.argsort(found[1][both], kind="stable")
        return found[0][both][first], found[1][both][first]

    def path_within(self, level: int, start_ns: float, end_ns: float, block: ColumnBlock) -> dict[str, Any]:
        """Encode the critical path in a stretch of time; where many of its stretches share a pixel, it follows the longest."""
        words, path = self.path
        first, last = int(np.searchsorted(path.end_ns, start_ns, "right")), int(np.searchsorted(path.start_ns, end_ns))
        path = path.select(slice(first, last))
        if level > 0 and len(path) > MOST_EXACT:
            path = replace(path, slot=np.zeros_like(path.slot)).merged(1 << level)
        whole, lane = self.path[1], self.group.trace.spans.lane
        bound, lanes = whole.slot[path.longest], lane[whole.first[path.longest]]
        return encode_stretches_of_path(words, path.start_ns, path.end_ns, bound, lanes, block)


class Tiles:
    """Long timelines, of which a browser draws a part at a time.

    ``groups``: from `streamscope_widgets.payload.as_groups`.
    """

    def __init__(self, groups: Sequence[TimelineGroup]) -> None:
        self.groups = tuple(groups)
        self.parts = [Part(group) for group in groups]
        self.found: tuple[Any, list[BoolArray]] | None = None
        """The last search, and the spans that it found in each group."""
        self.codes = codes_of(groups)
        for group in groups:
            self.codes.of(group.trace.spans)  # So that names have the same numbers in all tiles.

    def overview(self) -> Payload:
        """Return the whole runs at the level of detail of a screen, and the facts with which the browser asks for more."""
        extent_ns = max((int(group.trace.spans.end_ns.max(initial=0)) for group in self.groups), default=0)
        level = max(0, (extent_ns // OVERVIEW_PIXELS).bit_length() - 1)
        shown = []
        for part in self.parts:
            spans, found = part.group.trace.spans, part.shown(level, -np.inf, np.inf)
            remark = "" if found.header["exact"] else f"{len(spans):,} spans: what shares a pixel is one mark, zoom in for its spans"
            header = {
                "tiled": True, **part.rows.places.header(), "left_out": remark,
                "kind_counts": np.bincount(spans.kind, minlength=1).tolist(),
            }  # fmt: skip
            shown.append(replace(found, header={**found.header, **header, "level": level}))
        block = ColumnBlock()
        return Payload(encode_shown(self.groups, shown, self.codes, block), block.to_bytes())

    def tile(self, windows: Sequence[Sequence[int] | None], hits: Sequence[BoolArray] | None = None, *, paths: bool = False) -> Payload:
        """Return the rows of each group in a stretch of its time.

        ``windows``: ``[level, reach, index]`` of each group, for the stretch from ``index * 2**reach`` to ``(index + 2) * 2**reach`` ns; or
            None where nothing is wanted.
        ``hits``: as of `Part.shown`.
        ``paths``: with the critical path.
        """
        block = ColumnBlock()
        headers: list[dict[str, Any] | None] = []
        for number, (part, window) in enumerate(zip(self.parts, windows, strict=True)):
            if window is None:
                headers.append(None)
                continue
            level, reach, index = (int(value) for value in window)
            start_ns, end_ns = index * 2.0**reach, (index + 2) * 2.0**reach
            shown = part.shown(min(level, reach), start_ns, end_ns, None if hits is None else hits[number])
            path = part.path_within(level, start_ns, end_ns, block) if paths else None
            headers.append({**encode_part(part.group, shown, self.codes, block), **shown.header, "path": path})
        return Payload({"groups": headers}, block.to_bytes())
