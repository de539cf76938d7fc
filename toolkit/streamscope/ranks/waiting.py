"""What each collective was on each rank: waiting for the last rank, and transfer; and how much of the waiting nothing hid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamscope.analysis.intervals import Intervals, union
from streamscope.analysis.work import Work, work_of
from streamscope.arrays import Array, BoolArray, FloatArray, IntArray
from streamscope.ranks.clocks import Clocks
from streamscope.ranks.matching import Matched
from streamscope.ranks.rank import Rank
from streamscope.trace.collectives import bus_factor
from streamscope.trace.spans import DEVICE_KINDS


@dataclass(frozen=True)
class Waits:
    """Parts of collectives on the job's clock: equally long columns, one row for each row of `Parts`.

    Attributes
    ----------
    start_ns, end_ns : float arrays
    waiting_ns, transfer_ns : float arrays
        Both together are the duration; 0 where the operation is not whole.
    exposed_ns : float array
        The part of the waiting in which no kernel computed on that rank.
    last : int64 array
        The part of the same operation that began last, as a row; -1 where the operation is not whole, or its ranks are on several clocks.
    late_ns : float array
        How much later the part began than the median of the other ranks' parts, of two in the middle the earlier one: among three ranks, a
        late one does not make the others look early. 0 where the operation is not whole.
    error_ns : float array
        How far off the waiting may be: what the clocks of this rank and of the last one are off by, together.
    """

    start_ns: FloatArray
    end_ns: FloatArray
    waiting_ns: FloatArray
    transfer_ns: FloatArray
    exposed_ns: FloatArray
    last: IntArray
    late_ns: FloatArray
    error_ns: FloatArray

    @property
    def known(self) -> BoolArray:
        """Whether the operation is whole, so that the last rank is known."""
        found: BoolArray = self.last >= 0
        return found


class Coverage:
    """How much of the time before a moment intervals cover."""

    def __init__(self, intervals: Intervals) -> None:
        self._start_ns, self._end_ns = intervals.start_ns, intervals.end_ns
        self._before_ns = np.concatenate([[0], np.cumsum(self._end_ns - self._start_ns)])

    def before(self, times_ns: Array) -> Array:
        """Return the covered time before each of some moments."""
        if not len(self._start_ns):
            return np.zeros(len(times_ns))
        at = np.searchsorted(self._start_ns, times_ns, side="right") - 1
        inside_ns = np.minimum(times_ns, self._end_ns[at]) - self._start_ns[at]
        return np.where(at >= 0, self._before_ns[at] + inside_ns, 0)

    def within(self, start_ns: Array, end_ns: Array) -> Array:
        """Return the covered time of each of some intervals."""
        found: Array = np.maximum(self.before(end_ns) - self.before(start_ns), 0)
        return found


def covered(rank: Rank, work: Sequence[Work] | None = None) -> Coverage:
    """Return when a rank's GPU did work of some kinds; by default, of any."""
    spans = rank.trace.spans
    rows = spans.is_kind(DEVICE_KINDS) if work is None else np.isin(work_of(rank.trace), list(work))
    return Coverage(union(spans.start_ns[rows], spans.end_ns[rows]))


def waits_of(ranks: Sequence[Rank], matched: Matched, clocks: Clocks) -> Waits:
    """Divide each part of a collective into waiting and transfer, where all of its ranks are on one clock.

    Formula: waiting = start of the last rank's part - start of the part, no longer than the part; transfer = duration - waiting. Unit: ns.
    Exposed waiting = the length of the waiting in which no kernel but collectives runs on that rank.
    """
    parts, count = matched.parts, len(matched.parts)
    start_ns, end_ns = (clocks.job_ns(parts.rank, times_ns.astype(np.float64)) for times_ns in (parts.start_ns, parts.end_ns))
    rows = (
        np.flatnonzero((matched.operation >= 0) & _comparable(matched, clocks)[matched.operation])
        if len(matched)
        else np.zeros(0, np.int64)
    )
    last, late_ns, waiting_ns = np.full(count, -1), np.zeros(count), np.zeros(count)
    order = rows[np.lexsort((start_ns[rows], matched.operation[rows]))]
    operation = matched.operation[order]
    begins = np.flatnonzero(np.diff(operation, prepend=-1))
    ends = np.append(begins[1:], len(order)) - 1
    group = np.repeat(np.arange(len(begins)), ends - begins + 1)
    last[order] = order[ends][group] if len(order) else last[order]
    waiting_ns[order] = np.clip(start_ns[last[order]] - start_ns[order], 0, end_ns[order] - start_ns[order])
    late_ns[order] = start_ns[order] - _median_of_others(start_ns[order], begins, ends)
    known = last >= 0
    exposed_ns = waiting_ns.copy()
    for at, rank in enumerate(ranks):
        own = np.flatnonzero(known & (parts.rank == at) & (waiting_ns > 0))
        if len(own):
            begin_ns = rank.trace.spans.start_ns[parts.span[own]].astype(np.float64)
            exposed_ns[own] -= covered(rank, [Work.COMPUTE]).within(begin_ns, begin_ns + waiting_ns[own])
    off_ns = clocks.error_ns[parts.rank]
    error_ns = np.where(known, np.where(parts.rank == parts.rank[last], 0.0, off_ns + off_ns[last]), np.inf)
    transfer_ns = np.where(known, end_ns - start_ns - waiting_ns, 0)
    return Waits(start_ns, end_ns, waiting_ns, transfer_ns, np.maximum(exposed_ns, 0) * known, last, late_ns, error_ns)


def _comparable(matched: Matched, clocks: Clocks) -> BoolArray:
    """Tell which operations are whole, and of ranks on one clock."""
    rows = np.flatnonzero(matched.operation >= 0)
    group, operation = clocks.group[matched.parts.rank[rows]], matched.operation[rows]
    low, high = np.full(len(matched), len(clocks.group)), np.full(len(matched), -1)
    np.minimum.at(low, operation, group)
    np.maximum.at(high, operation, group)
    found: BoolArray = matched.whole & (low == high)
    return found


def _median_of_others(start_ns: FloatArray, begins: IntArray, ends: IntArray) -> FloatArray:
    """Return for each start the lower median of the others of its operation; starts are in order within it."""
    if not len(start_ns):
        return start_ns
    size = ends - begins + 1
    group = np.repeat(np.arange(len(begins)), size)
    place, begin, others = np.arange(len(start_ns)) - begins[group], begins[group], size[group] - 1
    which = (others - 1) // 2
    found: FloatArray = start_ns[begin + which + (which >= place)]
    return found


def bus_bandwidths(matched: Matched, waits: Waits) -> FloatArray:
    """Return of each operation how fast it moved data over the links of a rank, by NCCL's definitions; NaN where that is not known.

    Formula: size * factor / (last end - start of the last part). Unit: GB/s (10^9 bytes). `bus_factor` has the factors.
    """
    parts, count = matched.parts, len(matched)
    found = np.full(count, np.nan)
    rows = np.flatnonzero(waits.known)
    if not len(rows):
        return found
    operation = matched.operation[rows]
    end_ns, nbytes = np.full(count, -np.inf), np.zeros(count)
    np.maximum.at(end_ns, operation, waits.end_ns[rows])
    np.maximum.at(nbytes, operation, parts.nbytes[rows])
    there = np.bincount(operation, minlength=count)
    ranks = np.zeros(count, np.int64)
    np.maximum.at(ranks, operation, np.maximum(parts.size[rows], there[operation]))
    used, first = np.unique(operation, return_index=True)
    factor = np.array(
        [bus_factor(parts.texts[parts.kind[rows[at]]], int(ranks[one])) for one, at in zip(used.tolist(), first.tolist(), strict=True)]
    )
    time_ns = end_ns[used] - waits.start_ns[waits.last[rows[first]]]
    moved = nbytes[used] * factor
    found[used] = np.where((moved > 0) & (time_ns > 0), moved / np.where(time_ns > 0, time_ns, 1), np.nan)
    return found
