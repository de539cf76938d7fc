"""The spans of a long trace at every level of detail: rows of spans that do not overlap, and marks that stand for crowds of short ones.

A *mark* is one span, or neighbours of one row that are shorter than a pixel and start in the same one. No span is in two marks, and none in
no mark, so what a row's marks say in sum is what its spans do. The timeline draws marks as it draws spans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.trace.spans import HOST_KINDS, SpanKind, SpanTable

IntArray = npt.NDArray[np.integer[Any]]

MOST_ROWS = 8
"""Rows of a lane; what overlaps more spans than that shares the last. As in ``tracks.js``."""
SLOTS = MOST_ROWS + 1
"""Slots of a lane: its rows, and the band of graph replays, which enclose kernels."""
SLACK_NS = 200
"""Spans whose position was worked out may touch their neighbour by the recorder's error."""
MOST_LANES, MOST_HOST_LANES, MANY_STREAMS = 100, 40, 32
"""As in ``tracks.js``: lanes that are drawn, how many of the host's where there are many streams, and from how many streams on those of a
single kernel are left out."""
MOST_PIXELS = 16_384
"""Pixels of the widest stretch that is asked for."""
MOST_DIRECT = 400_000
"""So many spans are merged whenever they are asked for; what reaches over more is merged for the whole trace, once."""


@dataclass(frozen=True)
class Marks:
    """Crowds and single spans, as equally long columns, row by row and in each row by start.

    Attributes
    ----------
    first, count : int64 arrays
        Which positions of ``Rows.span`` are in the mark.
    slot : int64 array
        Place of the lane among those drawn, times `SLOTS`, and the row in it; the last one is the band.
    start_ns, end_ns : int64 arrays
        From the first start to the last end.
    busy_ns : int64 array
        Of that, the time with any span of the row that no earlier mark covers.
    longest : int64 array
        Position of the longest span: the mark wears its colour.
    longest_ns : int64 array
        Its duration.
    """

    first: IntArray
    count: IntArray
    slot: IntArray
    start_ns: IntArray
    end_ns: IntArray
    busy_ns: IntArray
    longest: IntArray
    longest_ns: IntArray

    def __len__(self) -> int:
        return len(self.first)

    def select(self, chosen: npt.NDArray[Any] | slice) -> Marks:
        """Return the marks that a mask, an index array or a slice picks."""
        return Marks(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def merged(self, pitch_ns: int) -> Marks:
        """Return the marks of a level whose pixels are ``pitch_ns`` long, a multiple of those that these marks were made for."""
        if not len(self):
            return self
        short, pixel = self.longest_ns < pitch_ns, self.start_ns // pitch_ns
        joins = short[1:] & short[:-1] & (pixel[1:] == pixel[:-1]) & (self.slot[1:] == self.slot[:-1])
        starts = np.append(True, ~joins)
        first = np.flatnonzero(starts)
        if len(first) == len(self):
            return self
        crowd = np.cumsum(starts) - 1
        longest_ns = np.maximum.reduceat(self.longest_ns, first)
        candidates = np.flatnonzero(self.longest_ns == longest_ns[crowd])[::-1]
        longest = np.empty(len(first), np.int64)
        longest[crowd[candidates]] = self.longest[candidates]  # The first of those that are equally long is written last.
        return Marks(
            self.first[first], np.add.reduceat(self.count, first), self.slot[first], self.start_ns[first],
            np.maximum.reduceat(self.end_ns, first), np.add.reduceat(self.busy_ns, first), longest, longest_ns,
        )  # fmt: skip


class Rows:
    """The spans of a trace in the rows in which they are drawn, and their marks at every level.

    Parameters
    ----------
    spans : SpanTable

    Attributes
    ----------
    lanes : int64 array
        Codes of the lanes that are drawn; of very many those with most spans.
    left_out : int
        How many other lanes hold spans.
    deeper : int64 array
        For each drawn lane, how many ranges lie over others for want of a row.
    span : int32 array
        Rows of the table: those on drawn lanes, slot by slot and in each slot by start.
    offsets : int64 array
        Where each slot begins in ``span``; one more at the end.
    """

    def __init__(self, spans: SpanTable) -> None:
        self.spans = spans
        self.lanes, self.left_out = _drawn_lanes(spans)
        slot, self.deeper = _slots(spans, self.lanes)
        count = len(self.lanes) * SLOTS
        self.span = np.argsort(slot.astype(np.int16), kind="stable").astype(np.int32)[: int((slot < count).sum())]
        self.offsets = np.append(0, np.cumsum(np.bincount(slot, minlength=count)[:count]))
        self.start_ns, self.end_ns = spans.start_ns[self.span], spans.end_ns[self.span]
        self.reach_ns = self.end_ns
        """The largest end so far in the slot; it ascends, so it can be searched."""
        if any((np.diff(self.end_ns[self._slice(at)]) < 0).any() for at in range(count)):
            self.reach_ns = np.concatenate([np.maximum.accumulate(self.end_ns[self._slice(at)]) for at in range(count)])
        self._levels: dict[int, tuple[Marks, IntArray]] = {}

    def _slice(self, slot: int) -> slice:
        return slice(int(self.offsets[slot]), int(self.offsets[slot + 1]))

    @cached_property
    def _used(self) -> list[int]:
        return [int(slot) for slot in np.flatnonzero(np.diff(self.offsets))]

    def window(self, start_ns: float, end_ns: float) -> list[tuple[int, int, int]]:
        """Return for each slot the positions of the spans that reach into a stretch of time, as (slot, first, last + 1).

        Among them may be some that end before it, where spans of a slot overlap.
        """
        found = []
        for slot in self._used:
            within = self._slice(slot)
            first = within.start + int(np.searchsorted(self.reach_ns[within], start_ns))
            last = within.start + int(np.searchsorted(self.start_ns[within], end_ns))
            if first < last:
                found.append((slot, first, last))
        return found

    def marks(self, level: int, start_ns: float, end_ns: float, most_exact: int = 0) -> tuple[Marks, bool]:
        """Return the marks that reach into a stretch of time, and whether each of them is one span.

        Parameters
        ----------
        level : int
            Pixels are 2**level ns long; at level 0 and below nothing is merged.
        start_ns, end_ns : float
            Multiples of the pixel; or infinite.
        most_exact : int
            So many spans are not merged at any level.
        """
        window = self.window(start_ns, end_ns)
        total = sum(last - first for _, first, last in window)
        exact = level <= 0 or total <= most_exact
        if exact or total <= MOST_DIRECT:
            parts = [self._single(slot, first, last) for slot, first, last in window]
            found = _joined(parts)
            found = found if exact else found.merged(1 << level)
        else:
            whole, offsets = self._level(level)
            # A row's marks end in the order in which they begin, but for those of the last row.
            pieces = [(int(offsets[slot]), int(offsets[slot + 1])) for slot in self._used]
            reach = [np.maximum.accumulate(whole.end_ns[first:last]) for first, last in pieces]
            chosen = [
                np.arange(first + np.searchsorted(ends, start_ns), first + np.searchsorted(whole.start_ns[first:last], end_ns))
                for (first, last), ends in zip(pieces, reach, strict=True)
            ]
            found = whole.select(np.concatenate(chosen))
        return found.select(found.end_ns >= start_ns), exact

    def _level(self, level: int) -> tuple[Marks, IntArray]:
        """Return all marks of a level, and where those of each slot begin; made of the nearest finer level, and kept."""
        if level not in self._levels:
            if level > self._finest:
                self._level(self._finest)  # Coarser levels are made of it, quickly.
            finer = max((known for known in self._levels if known < level), default=None)
            slots = (self._single(slot, self._slice(slot).start, self._slice(slot).stop) for slot in self._used)
            made = _joined([one.merged(1 << level) for one in slots]) if finer is None else self._levels[finer][0].merged(1 << level)
            offsets = np.append(0, np.cumsum(np.bincount(made.slot, minlength=len(self.offsets) - 1)))
            self._levels[level] = (made, offsets)
        return self._levels[level]

    @cached_property
    def _finest(self) -> int:
        """The finest level that is likely to be made for the whole trace: that of a view of so many spans."""
        length_ns = int(self.spans.end_ns.max(initial=0)) - int(self.spans.start_ns.min(initial=0))
        pitch_ns = length_ns * MOST_DIRECT / max(1, len(self.spans)) / MOST_PIXELS
        return max(1, math.floor(math.log2(max(2.0, pitch_ns))))

    def _single(self, slot: int, first: int, last: int) -> Marks:
        """Return a mark for each of the spans of one slot that lie at positions from ``first`` up to ``last``."""
        position = np.arange(first, last)
        start_ns, end_ns = self.start_ns[first:last], self.end_ns[first:last]
        before = self.reach_ns[max(first - 1, 0) : last - 1]
        if first == self.offsets[slot]:
            before = np.append(start_ns[:1], before[-(last - first - 1) :] if last - first > 1 else before[:0])
        busy_ns = np.maximum(0, end_ns - np.maximum(start_ns, before))
        one, here = np.ones(len(position), np.int64), np.full(len(position), slot)
        return Marks(position, one, here, start_ns, end_ns, busy_ns, position, end_ns - start_ns)


def _joined(parts: list[Marks]) -> Marks:
    if not parts:
        return Marks(*(np.zeros(0, np.int64) for _ in Marks.__dataclass_fields__))
    return Marks(*(np.concatenate([getattr(part, name) for part in parts]) for name in Marks.__dataclass_fields__))


def host_lanes(spans: SpanTable) -> npt.NDArray[np.bool_]:
    """Tell of each lane whether it is a host lane: one with host calls on it."""
    host: npt.NDArray[np.bool_] = np.bincount(spans.lane, spans.is_kind(HOST_KINDS), minlength=len(spans.lanes)) > 0
    return host


def _drawn_lanes(spans: SpanTable) -> tuple[IntArray, int]:
    """Return the lanes that are drawn, and how many others hold spans; the same as ``firstLanes`` in ``tracks.js``."""
    sizes, host = np.bincount(spans.lane, minlength=len(spans.lanes)), host_lanes(spans)
    used = np.flatnonzero(sizes)
    streams: IntArray = used[~host[used]]

    def fullest(lanes: IntArray, most: int) -> IntArray:
        return lanes[np.lexsort((lanes, -sizes[lanes]))][:most]

    hosts = fullest(used[host[used]], max(MOST_HOST_LANES, MOST_LANES - len(streams)))
    several = streams[sizes[streams] > 1] if len(streams) > MANY_STREAMS else streams
    drawn = np.sort(np.append(hosts, fullest(several if len(several) else streams, MOST_LANES - len(hosts))))
    return drawn, len(used) - len(drawn)


def _slots(spans: SpanTable, lanes: IntArray) -> tuple[IntArray, IntArray]:
    """Return the slot of each span, the largest one for lanes that are not drawn; and for each lane how many ranges have no row.

    A span takes the first row of its lane in which nothing runs when it starts.
    """
    none = len(lanes) * SLOTS
    place = np.full(len(spans.lanes) + 1, -1)
    place[lanes] = np.arange(len(lanes))
    at = place[spans.lane]
    slot = np.where(at < 0, none, at * SLOTS)
    slot[(at >= 0) & (spans.kind == SpanKind.GRAPH)] += MOST_ROWS
    deeper = np.zeros(len(lanes), np.int64)
    for lane in range(len(lanes)):
        rows: IntArray = np.flatnonzero(slot == lane * SLOTS)
        ranges = spans.kind[rows] == SpanKind.RANGE
        if ranges.any():
            # Of ranges that begin at one time the longest first: it holds the others.
            rows = rows[np.lexsort((rows, np.where(ranges, -spans.end_ns[rows], 0), spans.start_ns[rows]))]
        start_ns, end_ns = spans.start_ns[rows] + (SLACK_NS if spans.basis[rows].any() else 0), spans.end_ns[rows]
        if not (np.maximum.accumulate(end_ns)[:-1] > start_ns[1:]).any():
            continue
        row, covered = _first_fit(start_ns, end_ns)
        slot[rows] += row
        deeper[lane] = int((covered & (spans.kind[rows] == SpanKind.RANGE)).sum())
    return slot, deeper


def _first_fit(start_ns: IntArray, end_ns: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Return for spans by start the first of `MOST_ROWS` rows that is free, the last where none is; and whether none was."""
    row = np.full(len(start_ns), MOST_ROWS - 1)
    left = np.arange(len(start_ns))
    for number in range(MOST_ROWS - 1):
        taken = _chain(start_ns[left], end_ns[left])
        row[left[taken]] = number
        left = left[~taken]
        if not len(left):
            break
    covered = np.zeros(len(start_ns), bool)
    covered[left[1:]] = np.maximum.accumulate(end_ns[left])[:-1] > start_ns[left[1:]]
    return row, covered


def _chain(start_ns: IntArray, end_ns: IntArray) -> npt.NDArray[np.bool_]:
    """Tell which spans a row takes: the first, the next one that starts when it is over, and so on."""
    count = len(start_ns)
    taken = np.zeros(count + 1, bool)
    taken[0] = True
    after = np.append(np.maximum(np.searchsorted(start_ns, end_ns), np.arange(count) + 1), count)
    # The spans that are 2, 4, 8, … further on in the chain, doubled until its end.
    while not taken[count]:
        taken[after[np.flatnonzero(taken)]] = True
        after = after[after]
    return taken[:count]
