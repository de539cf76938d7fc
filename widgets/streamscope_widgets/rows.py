"""Where spans are drawn: which lanes, and in which row of its lane each span, so that no two of a row lie over each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.trace.spans import HOST_KINDS, SpanKind, SpanTable

MOST_ROWS = 8
"""Largest number of rows of a lane; spans beyond that share the last."""
SLOTS = MOST_ROWS + 1
"""Slots of a lane: its rows, and the band of graph replays, which enclose kernels. As in ``tracks.js``."""
SLACK_NS = 200
"""Spans whose position was worked out may touch their neighbour by the recorder's error: that is no reason to show two kernels of one
stream as running at once."""
MOST_LANES, MOST_HOST_LANES = 100, 40
"""Lanes of the host and of one GPU that are drawn, and how many of the host's where there are many streams; the rest is told in numbers."""
MANY_STREAMS = 32
"""A graph that CUDA places by itself has a lane for each branch, and most may hold a single kernel: from so many on, those are left out."""
MOST_MULTIPROCESSORS, MOST_AT_ONCE = 320, 3
"""Multiprocessors are drawn in thin rows, one for each kernel whose blocks they run at one time."""


@dataclass(frozen=True)
class Places:
    """Where the spans of a table are drawn."""

    lanes: IntArray
    """int64: codes of the lanes that are drawn; of very many those with most spans."""
    left_out: int
    """How many other lanes hold spans."""
    slot: IntArray
    """int64: of each span: place of its lane among ``lanes`` times `SLOTS`, and its row; the largest number where its lane is not drawn."""
    deeper: IntArray
    """int64: for each drawn lane, how many ranges lie over others for want of a row."""

    @property
    def row(self) -> IntArray:
        """Of each span on a drawn lane its row there; the last slot is the band."""
        return self.slot % SLOTS

    def header(self) -> dict[str, Any]:
        """Return the browser's layout of lanes: each one's code, its rows, whether it has a band, and its ranges without a row."""
        count = len(self.lanes) * SLOTS
        filled = np.bincount(self.slot, minlength=count)[:count].reshape(-1, SLOTS) > 0
        rows = MOST_ROWS - np.argmax(filled[:, MOST_ROWS - 1 :: -1], axis=1)
        columns = (self.lanes, np.where(filled[:, :MOST_ROWS].any(axis=1), rows, 0), filled[:, MOST_ROWS], self.deeper)
        return {"drawn": [[int(value) for value in lane] for lane in zip(*columns, strict=True)], "lanes_left_out": self.left_out}


def places_of(spans: SpanTable, *, thin: bool = False) -> Places:
    """Return where spans are drawn.

    ``thin``: they are blocks, and lanes are multiprocessors.
    """
    lanes, left_out = _drawn_lanes(spans, thin=thin)
    place = np.full(len(spans.lanes), -1)
    place[lanes] = np.arange(len(lanes))
    at = place[spans.lane]
    slot = np.where(at < 0, len(lanes), at) * SLOTS
    deeper = np.zeros(len(lanes), np.int64)
    if thin:
        _place_blocks(spans, slot)
    else:
        slot[(at >= 0) & (spans.kind == SpanKind.GRAPH)] += MOST_ROWS
        _place_spans(spans, slot, deeper)
    return Places(lanes, left_out, slot, deeper)


def host_lanes(spans: SpanTable) -> npt.NDArray[np.bool_]:
    """Tell of each lane whether it is a host lane: one with host calls on it."""
    host: npt.NDArray[np.bool_] = np.bincount(spans.lane, spans.is_kind(HOST_KINDS), minlength=len(spans.lanes)) > 0
    return host


def _drawn_lanes(spans: SpanTable, *, thin: bool) -> tuple[IntArray, int]:
    """Return the lanes that are drawn, and how many others hold spans."""
    sizes, host = np.bincount(spans.lane, minlength=len(spans.lanes)), host_lanes(spans)
    used = np.flatnonzero(sizes)
    if thin:
        return used[:MOST_MULTIPROCESSORS], max(0, len(used) - MOST_MULTIPROCESSORS)
    streams: IntArray = used[~host[used]]

    def fullest(lanes: IntArray, most: int) -> IntArray:
        return lanes[np.lexsort((lanes, -sizes[lanes]))][:most]

    hosts = fullest(used[host[used]], max(MOST_HOST_LANES, MOST_LANES - len(streams)))
    drawn, gpus = hosts, np.array(spans.gpus, np.int64)
    for gpu in np.unique(gpus[streams]):
        own = streams[gpus[streams] == gpu]
        several = own[sizes[own] > 1] if len(own) > MANY_STREAMS else own
        drawn = np.append(drawn, fullest(several if len(several) else own, MOST_LANES - len(hosts)))
    return np.sort(drawn), len(used) - len(drawn)


def _place_spans(spans: SpanTable, slot: IntArray, deeper: IntArray) -> None:
    """Add rows to the slots: a span takes the first row of its lane in which nothing runs when it starts. Count ranges without a row."""
    order = np.argsort(slot.astype(np.int16), kind="stable")
    begins = np.searchsorted(slot[order], np.arange(len(deeper)) * SLOTS)
    ends = np.searchsorted(slot[order], np.arange(len(deeper)) * SLOTS, "right")
    for lane, (first, last) in enumerate(zip(begins, ends, strict=True)):
        rows: IntArray = order[first:last]
        ranges = spans.kind[rows] == SpanKind.RANGE
        if ranges.any():
            # Of ranges that begin at one time the longest first: it holds the others.
            rows = rows[np.lexsort((rows, np.where(ranges, -spans.end_ns[rows], 0), spans.start_ns[rows]))]
        start_ns, end_ns = spans.start_ns[rows] + _slack_ns(spans.basis[rows]), spans.end_ns[rows]
        if not (np.maximum.accumulate(end_ns)[:-1] > start_ns[1:]).any():
            continue
        row, covered = _first_fit(start_ns, end_ns, MOST_ROWS)
        slot[rows] += row
        deeper[lane] = int((covered & (spans.kind[rows] == SpanKind.RANGE)).sum())


def _place_blocks(spans: SpanTable, slot: IntArray) -> None:
    """Add rows to the slots of blocks: those of one operation that run on a multiprocessor without a pause lie over each other."""
    order = np.lexsort((spans.start_ns, spans.operation, slot))
    start_ns, end_ns = spans.start_ns[order] + _slack_ns(spans.basis), spans.end_ns[order]
    same = np.append(False, (np.diff(slot[order]) == 0) & (np.diff(spans.operation[order]) == 0))[: len(order)]
    # The largest end so far of the same operation there: ends by their rank, so that a higher number stands for each next operation.
    sorted_ends, rank = np.unique(end_ns, return_inverse=True)
    reach = np.maximum.accumulate(np.cumsum(~same) * len(sorted_ends) + rank) % max(1, len(sorted_ends))
    begins = np.append(True, ~(same[1:] & (sorted_ends[reach[:-1]] > start_ns[1:])))[: len(order)]
    first = np.flatnonzero(begins)
    if not len(first):
        return
    until_ns = np.maximum.reduceat(end_ns, first)
    row = np.zeros(len(first), np.int64)
    for lane in np.unique(slot):
        runs = np.flatnonzero(slot[order[first]] == lane)
        runs = runs[np.argsort(start_ns[first[runs]], kind="stable")]
        row[runs], _ = _first_fit(start_ns[first[runs]], until_ns[runs], MOST_AT_ONCE)
    slot[order] += row[np.cumsum(begins) - 1]


def _slack_ns(basis: npt.NDArray[Any]) -> int:
    """Return how far spans of one lane may lie over each other and yet share a row."""
    return SLACK_NS if basis.any() else 0


def _first_fit(start_ns: IntArray, end_ns: IntArray, most: int) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Return for spans by start the first of so many rows that is free, the last where none is; and whether none was."""
    row = np.full(len(start_ns), most - 1)
    left = np.arange(len(start_ns))
    for number in range(most - 1):
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
