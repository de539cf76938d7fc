"""The critical path through all ranks: where a collective waited, it goes to the rank that began last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.analysis.critical_path import BOUND_WORDS, Bound, Predecessors, followed, predecessors, stretches
from streamscope.arrays import BoolArray, IntArray
from streamscope.ranks.clocks import Clocks
from streamscope.ranks.matching import Matched
from streamscope.ranks.places import places_of
from streamscope.ranks.rank import Rank
from streamscope.ranks.steps import is_step
from streamscope.ranks.waiting import Waits
from streamscope.trace.spans import DEVICE_KINDS, SpanKind, SpanTable

RIGHT_BEHIND_NS = 20_000
"""Work that begins so soon after other work waited for it, where it was launched earlier by more."""


@dataclass(frozen=True)
class JobPath:
    """Stretches that follow each other, as equally long columns, on the job's clock.

    Attributes
    ----------
    start_ns, end_ns : int64 arrays
        ``end_ns[i] == start_ns[i + 1]``; none is empty.
    bound : int64 array
        `Bound` of each.
    rank, span : int64 arrays
        Index into the ranks of the job, and row in the trace of that rank.
    """

    start_ns: IntArray
    end_ns: IntArray
    bound: IntArray
    rank: IntArray
    span: IntArray

    @property
    def length_ns(self) -> int:
        """From the start of its first stretch to the end of its last, in ns."""
        return int((self.end_ns - self.start_ns).sum())

    def within(self, begin_ns: float, end_ns: float) -> JobPath:
        """Return the part of the path between two moments."""
        begin, end = round(begin_ns), round(end_ns)
        start_ns, stop_ns = np.clip(self.start_ns, begin, end), np.clip(self.end_ns, begin, end)
        kept = stop_ns > start_ns
        return JobPath(start_ns[kept], stop_ns[kept], self.bound[kept], self.rank[kept], self.span[kept])

    def rows(self, ranks: Sequence[Rank]) -> list[dict[str, Any]]:
        """Return the path by rank, kind, name and module or range, the longest first, as JSON values; all together are its length."""
        spent: dict[tuple[int, str, str, str], int] = {}
        places = {rank: places_of(ranks[rank].trace) for rank in np.unique(self.rank).tolist()}
        columns = (self.rank.tolist(), self.bound.tolist(), self.span.tolist(), (self.end_ns - self.start_ns).tolist())
        for rank, bound, span, time_ns in zip(*columns, strict=True):
            spans = ranks[rank].trace.spans
            code, texts = places[rank]
            under = texts[code[span]] if code[span] >= 0 else ""
            key = ranks[rank].number, BOUND_WORDS[Bound(bound)], spans.names[spans.name[span]], under
            spent[key] = spent.get(key, 0) + time_ns
        whole_ns = max(1, self.length_ns)
        return [
            {"rank": rank, "kind": kind, "where": where, "under": under, "us": time_ns / 1e3, "share": time_ns / whole_ns}
            for (rank, kind, where, under), time_ns in sorted(spent.items(), key=lambda item: (-item[1], item[0]))
        ]


def path_of(ranks: Sequence[Rank], matched: Matched, clocks: Clocks, waits: Waits, base_ns: int) -> JobPath:
    """Return the path that bounds the job, from the last end of the first group of ranks back to where nothing explains a start.

    Formula: within a rank as `critical_path` has it. From a part of a collective that waited for other ranks, it goes to the part that
    began last, on its rank. Time of the host before a call is that of a range, where one ended there and takes most of it. Where a trace
    does not tell event waits, work that begins within 20 µs after other work of its GPU waited for that.
    """
    kinds, begins, ends, kept_rows, owners = (list[IntArray]() for _ in range(5))
    columns: list[list[IntArray]] = [[], [], [], []]
    row_of_span, first_span, base = list[IntArray](), [0], 0
    for at, rank in enumerate(ranks):
        spans, kept, before = predecessors(rank.trace)
        if not rank.trace.origins.complete:
            _infer_waits(spans, before)

        def on_job(times_ns: IntArray, at: int = at, rank: Rank = rank) -> IntArray:
            return np.rint(clocks.job_ns(at, times_ns + float(rank.zero_ns - base_ns))).astype(np.int64)

        kinds.append(spans.kind)
        begins.append(on_job(spans.start_ns))
        ends.append(on_job(spans.end_ns))
        kept_rows.append(kept)
        owners.append(np.full(len(kept), at))
        row = np.where(before.row >= 0, before.row + base, -1)
        for column, values in zip(columns, (row, on_job(before.leave_ns), on_job(before.arrive_ns), before.bound), strict=True):
            column.append(values)
        place = np.full(len(rank.trace.spans), -1)
        place[kept[::-1]] = np.arange(len(kept))[::-1] + base
        row_of_span.append(place)
        first_span.append(first_span[-1] + len(place))
        base += len(kept)
    kind, begin_ns, end_ns, span, owner = (np.concatenate(each) for each in (kinds, begins, ends, kept_rows, owners))
    joined = Predecessors(*(np.concatenate(each) for each in columns))
    parts_at = np.concatenate([*row_of_span, np.zeros(0, np.int64)])[np.array(first_span)[matched.parts.rank] + matched.parts.span]
    _follow_collectives(joined, end_ns, parts_at, waits)
    work = np.flatnonzero((kind != SpanKind.GRAPH) & (clocks.group[owner] == clocks.group[0])) if len(owner) else np.zeros(0, np.int64)
    if not len(work):
        none = np.zeros(0, np.int64)
        return JobPath(none, none, none, none, none)
    last = int(work[end_ns[work].argmax()])
    path = stretches(kind, end_ns, joined, followed(joined.row, last), complete=False)
    of_rank, row = owner[path.span], span[path.span]
    ended_ns = path.end_ns - begin_ns[path.span]
    for at in np.unique(of_rank).tolist():
        own = np.flatnonzero((of_rank == at) & (path.bound == Bound.HOST) & (ended_ns <= 0))
        stop_ns = ranks[at].trace.spans.start_ns[row[own]] + ended_ns[own]
        row[own] = _ranges_between(ranks[at].trace.spans, stop_ns - (path.end_ns - path.start_ns)[own], stop_ns, row[own])
    return JobPath(path.start_ns, path.end_ns, path.bound, of_rank, row)


def _ranges_between(spans: SpanTable, begin_ns: IntArray, end_ns: IntArray, calls: IntArray) -> IntArray:
    """Return what hosts did in stretches before calls: the range that ended there and takes most of the stretch, else the call."""
    ranges = np.flatnonzero(spans.kind == SpanKind.RANGE)
    steps = [code for code in np.unique(spans.name[ranges]).tolist() if is_step(spans.names[code])]
    ranges = ranges[~np.isin(spans.name[ranges], steps)]
    ranges = ranges[np.argsort(spans.end_ns[ranges], kind="stable")]
    low, high = (np.searchsorted(spans.end_ns[ranges], times_ns, side="right") for times_ns in (begin_ns, end_ns))
    stretch = np.repeat(np.arange(len(calls)), high - low)  # Stretches follow each other, so a range ends in one of them.
    within = ranges[np.arange(len(stretch)) + np.repeat(low - np.cumsum(high - low) + (high - low), high - low)]
    inside_ns = spans.end_ns[within] - np.maximum(spans.start_ns[within], begin_ns[stretch])
    order = np.argsort(inside_ns, kind="stable")
    order = order[2 * inside_ns[order] >= (end_ns - begin_ns)[stretch[order]]]
    found = calls.copy()
    found[stretch[order]] = within[order]
    return found


def _infer_waits(spans: SpanTable, before: Predecessors) -> None:
    """Lead the path from work that begins right behind other work of the same GPU to that, where nothing else explains the time."""
    rows, others, right_behind = last_ended(spans, before)
    rows, others = rows[right_behind], others[right_behind]
    before.row[rows], before.arrive_ns[rows], before.bound[rows] = others, spans.end_ns[others], int(Bound.GAP)


def last_ended(spans: SpanTable, before: Predecessors) -> tuple[IntArray, IntArray, BoolArray]:
    """Return work whose start only other work of its GPU can explain, the one that ended last before it began, and whether right behind.

    Streams wait for each other by events, which PyTorch's profiler does not tell: a collective begins when its gradients are there.
    """
    device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    if not len(device):
        return device, device, np.zeros(0, bool)
    by_end = device[np.argsort(spans.end_ns[device], kind="stable")]
    start_ns = spans.start_ns[device]
    at = np.searchsorted(spans.end_ns[by_end], start_ns, side="right") - 1
    other = by_end[at]
    end_ns = spans.end_ns[other]
    unexplained = (before.row[device] < 0) | (end_ns - before.arrive_ns[device] > RIGHT_BEHIND_NS)
    chosen = (at >= 0) & (other != device) & unexplained
    return device[chosen], other[chosen], (start_ns - end_ns <= RIGHT_BEHIND_NS)[chosen]


def _follow_collectives(joined: Predecessors, end_ns: IntArray, parts_at: IntArray, waits: Waits) -> None:
    """Lead the path from parts that waited, which stand at some rows, to the part that began last."""
    held = np.flatnonzero(waits.known & (waits.waiting_ns > 0))
    by = waits.last[held]
    rows, others = parts_at[held], parts_at[by]
    began_ns = np.minimum(np.rint(waits.start_ns[by]).astype(np.int64), end_ns[rows])
    joined.row[rows], joined.bound[rows] = others, int(Bound.GAP)
    joined.leave_ns[rows] = joined.arrive_ns[rows] = began_ns
