"""One clock for all ranks, with an error bar: bounds that are certain, and an estimate within them.

An all-reduce ends on no rank before the last one has begun it. So each operation bounds the offset between two clocks from both sides, or
from one: what is sent arrives after it was sent. Clocks drift, so an offset is a line over time, and the bounds are a linear program in two
numbers for each rank. Its constraints are as many as pairs of ranks in operations. Few of them matter: they are added as they are violated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamscope.arrays import BoolArray, FloatArray, IntArray
from streamscope.errors import TraceError
from streamscope.ranks.matching import BOTH_WAYS, TOGETHER, Matched, slope_of
from streamscope.ranks.rank import Rank
from streamscope.words import time_text

FASTEST_DRIFT = 2e-4
"""Two clocks drift apart by no more, in s per s."""
SAME_HOST_NS = 20_000
"""Ranks of one host read one clock, within this."""
_EXACT_RANKS, _PORTION = 64, 16
"""For so many ranks, bounds are the tightest that there are. Of more, so many at a time are bounded, with the first one of their group."""
_MOST_ENDS = 100_000_000
"""Ranks times operations."""
_ROUNDS = 400
_TOLERANCE_NS = 0.5
_SURE = 4.0
"""A drift is believed that is so many times its error."""
_LAST_LAG, _RECEIVER_LAG, _LONGEST_LAG_NS = 0.08, 0.3, 25_000
"""Usual lags. The last of two ranks to begin a collective ends later, by the first share of the transfer; a receiver that waited for its
message ends later than the sender, by the second share. No lag is longer than the third number."""
_LAGS = np.linspace(0.0, 7.5, 31)
"""Lags that are tried, in usual ones."""
_OFFSETS = np.linspace(-7.5, 7.5, 41)
"""Offsets that are tried, in the longest usual lag, around the middle of the ends."""
_UNUSUAL, _ONE_SIDED, _FAR = 0.1, 0.14, 0.001
"""What an explanation costs, in usual lags: for each by which its lag is another one, if it makes one of two ranks the last one always, and
for each by which its offset is away from the middle of the ends."""
_QUICKEST = 0.75
"""This share of the operations of two ranks counts, those with the shortest transfers: work beside the others makes their ends uneven."""
_MOST_COUNTED = 256
_NEAREST = 0.4
"""Ends that are all to one side scatter around this quantile above or below their middle."""
_LEAST_SIDE, _EVEN = 3, 0.5
"""Messages of both directions tell an offset, if there are so many of each. Ends of collectives are nearer to the truth than a clock that
two ranks share, if each was the last one for such a share of the other one's times."""
_TURNS = 8
"""Who began an operation last depends on the offset, which is estimated so many times at most."""


@dataclass(frozen=True)
class Clocks:
    """How the clocks of ranks differ: equally long columns, one row for each rank.

    The time of the job is ``time + offset + drift * (time - middle)``, for a time on the rank's own clock.

    Attributes
    ----------
    group : int64 array
        Ranks of one group are on one clock. Between groups, nothing is known.
    offset_ns, low_ns, high_ns : float arrays
        Estimate of the offset in the middle of the recording, and the bounds that are certain, against the first rank of the group.
    drift : float array
        How fast the offset grows, in s per s.
    noise_ns : float array
        How the ends of symmetric collectives scatter: 1.48 times the median of their distances from the estimate, or, where one rank is
        always last, from those that are nearest to it.
    assumed_ns : float array
        By how much later a rank is taken to end for being the last one always, which nothing tells; 0 where the ends tell it.
    middle_ns : float array
        The middle of the recording, on the clock of each rank.
    reach_ns : float
        From there to the last collective.
    """

    group: IntArray
    offset_ns: FloatArray
    low_ns: FloatArray
    high_ns: FloatArray
    drift: FloatArray
    noise_ns: FloatArray
    assumed_ns: FloatArray
    middle_ns: FloatArray
    reach_ns: float

    @property
    def error_ns(self) -> FloatArray:
        """Half of the width of the certain interval; infinite where nothing bounds one side."""
        return (self.high_ns - self.low_ns) / 2

    def job_ns(self, rank: IntArray | int, times_ns: Any) -> FloatArray:
        """Return times on the clocks of ranks as times of the job."""
        found: FloatArray = times_ns + self.offset_ns[rank] + self.drift[rank] * (times_ns - self.middle_ns[rank])
        return found


@dataclass(frozen=True)
class _Bounds:
    """Constraints ``before_ns + offset(before) <= after_ns + offset(after)``, operation by operation: all begins before all ends."""

    operation: IntArray
    """Of the rows below; begins and ends apart."""
    begin_rank: IntArray
    begin_ns: FloatArray
    end_operation: IntArray
    end_rank: IntArray
    end_ns: FloatArray


def clocks_of(ranks: Sequence[Rank], matched: Matched) -> Clocks:
    """Put ranks on one clock.

    Raises
    ------
    TraceError
        No offset of clocks fits all operations: one is matched wrongly, a clock was set, or the files are of several runs.
    """
    bounds, ties = _bounds(matched), _ties(ranks)
    group, root = _groups(len(ranks), matched, ties)
    simulated = all(rank.trace.info.device.simulated for rank in ranks)
    found = _estimated([rank.clock for rank in ranks], matched, group, root, simulated=simulated)
    limits = _Limits(bounds, ties, group, matched, [rank.number for rank in ranks])
    low_ns, high_ns = limits.offsets(found)
    bounded = np.isfinite(low_ns) & np.isfinite(high_ns)
    middle = np.where(bounded, (np.where(bounded, low_ns, 0.0) + np.where(bounded, high_ns, 0.0)) / 2, found.offset_ns)
    offset_ns = np.clip(np.where(np.isfinite(found.noise_ns), found.offset_ns, middle), low_ns, high_ns)
    return replace(found, offset_ns=offset_ns, low_ns=low_ns, high_ns=high_ns)


def _bounds(matched: Matched) -> _Bounds:
    """Return who began before who ended: all parts of symmetric kinds; of a send and its receive, the send before the receive's end."""
    parts, operation = matched.parts, matched.operation
    used = (operation >= 0) & parts.kernel
    symmetric = used & parts.is_kind(TOGETHER)
    send, receive = (used & parts.is_kind(frozenset({kind})) for kind in ("send", "recv"))
    both = used & parts.is_kind(BOTH_WAYS)  # Which direction is not known, nor whether both have data.
    begins, ends = symmetric | send, (symmetric | receive) & ~both
    rows, others = np.flatnonzero(begins), np.flatnonzero(ends)
    return _Bounds(
        operation[rows], parts.rank[rows], parts.start_ns[rows].astype(np.float64),
        operation[others], parts.rank[others], parts.end_ns[others].astype(np.float64),
    )  # fmt: skip


def _ties(ranks: Sequence[Rank]) -> list[tuple[int, int]]:
    """Return pairs of ranks that share a clock: each with the first rank on it."""
    first: dict[str, int] = {}
    found = []
    for at, rank in enumerate(ranks):
        if rank.clock is not None and (one := first.setdefault(rank.clock, at)) != at:
            found.append((one, at))
    return found


def _groups(count: int, matched: Matched, ties: Sequence[tuple[int, int]]) -> tuple[IntArray, IntArray]:
    """Return the group of each rank, and the first rank of each rank's group. Operations and hosts join them."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows = np.flatnonzero((matched.operation >= 0) & _ends_together(matched))
    operation, rank = matched.operation[rows], matched.parts.rank[rows]
    pairs = np.array(ties, np.int64).reshape(-1, 2)
    one, other = np.concatenate([rank, pairs[:, 0]]), np.concatenate([operation + count, pairs[:, 1]])
    nodes = count + len(matched)
    _, label = connected_components(coo_array((np.ones(len(one)), (one, other)), (nodes, nodes)), directed=False)
    _, root, group = np.unique(label[:count], return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(root))
    return order[group.reshape(-1)], root[group.reshape(-1)]


def _ends_together(matched: Matched) -> BoolArray:
    """Tell which parts bound or estimate an offset."""
    parts = matched.parts
    found: BoolArray = parts.kernel & (parts.is_kind(TOGETHER) | parts.is_kind(frozenset({"send", "recv"})))
    return found


def _estimated(clock: Sequence[str | None], matched: Matched, group: IntArray, root: IntArray, *, simulated: bool) -> Clocks:
    """Estimate offsets and drifts by the ends of collectives, each rank against one that is known, from the first of its group on.

    Ends of symmetric kinds come first. A send may end before its receive, so these count where nothing else joins two ranks.
    """
    count = len(clock)
    found = Clocks(
        group,
        np.zeros(count),
        np.full(count, -np.inf),
        np.full(count, np.inf),
        np.zeros(count),
        np.full(count, np.inf),
        np.zeros(count),
        np.zeros(count),
        1.0,
    )
    if not len(matched):
        return found
    if count * len(matched) > _MOST_ENDS:
        raise TraceError(f"the job has {len(matched):,} collectives on {count:,} ranks, more than are put on one clock")
    parts, rows = matched.parts, np.flatnonzero((matched.operation >= 0) & _ends_together(matched))
    symmetric = parts.is_kind(TOGETHER)[rows]
    reach_ns = 1.0
    for one in np.unique(group).tolist():
        members = np.flatnonzero(group == one)
        own = parts.end_ns[rows[parts.rank[rows] == members[0]]].astype(np.float64)
        if len(own):
            found.middle_ns[members] = (own.min() + own.max()) / 2
            reach_ns = max(reach_ns, (own.max() - own.min()) / 2)
    reached = dict.fromkeys(np.unique(root).tolist())
    for rank in reached:
        found.noise_ns[rank] = 0.0
    for chosen in (rows[symmetric], rows):
        _reach(found, clock, _Operations.of(matched, chosen, count, simulated=simulated), reached)
    return replace(found, reach_ns=reach_ns)


def _reach(found: Clocks, clock: Sequence[str | None], operations: _Operations, reached: dict[int, None]) -> None:
    """Estimate the clocks of all ranks that have met one of those reached, then of those that have met them, and so on."""
    waiting = [rank for rank in range(len(clock)) if rank not in reached]
    line = list(reached)
    for reference in line:  # It grows meanwhile.
        known_begin_ns, known_end_ns = (found.job_ns(reference, each[reference]) for each in (operations.begin_ns, operations.end_ns))
        for rank in [each for each in waiting if found.group[each] == found.group[reference]]:
            apart_ns = known_end_ns - operations.end_ns[rank]
            met = np.flatnonzero(~np.isnan(apart_ns))
            if not len(met):
                continue
            found.middle_ns[rank] -= np.median(apart_ns[met])  # The job's middle, on its own clock.
            one_clock = clock[rank] is not None and clock[rank] == clock[reference]
            meetings = _Meetings(
                operations.end_ns[rank, met] - found.middle_ns[rank],
                apart_ns[met],
                operations.begin_ns[rank, met] - known_begin_ns[met],
                operations.transfer_ns[met],
                operations.waited(reference, rank)[met],
                np.where(operations.receiver[met] < 0, 0, np.where(operations.receiver[met] == rank, 1, -1)),
                operations.simulated,
                found.offset_ns[reference] if one_clock else None,
            )
            found.offset_ns[rank], found.drift[rank], found.noise_ns[rank], found.assumed_ns[rank] = meetings.line()
            reached[rank] = None
            line.append(rank)
            waiting.remove(rank)


@dataclass(frozen=True)
class _Operations:
    """Begins and ends of operations on the own clocks of ranks: arrays (ranks, operations), NaN where a rank takes no part.

    Attributes
    ----------
    transfer_ns : (operations,) float array
        How long the shortest part took, which is that of the last rank to begin.
    receiver : (operations,) int64 array
        Who receives a message; -1 in other operations.
    simulated : bool
        Whether they are those of a simulated host, which end on all ranks at once.
    """

    begin_ns: FloatArray
    end_ns: FloatArray
    transfer_ns: FloatArray
    receiver: IntArray
    simulated: bool

    @classmethod
    def of(cls, matched: Matched, chosen: IntArray, count: int, *, simulated: bool) -> _Operations:
        """Return the operations that some parts belong to."""
        parts, operation = matched.parts, matched.operation[chosen]
        begin_ns, end_ns = np.full((2, count, len(matched)), np.nan)
        begin_ns[parts.rank[chosen], operation], end_ns[parts.rank[chosen], operation] = parts.start_ns[chosen], parts.end_ns[chosen]
        transfer_ns = np.full(len(matched), np.inf)
        np.minimum.at(transfer_ns, operation, (parts.end_ns - parts.start_ns)[chosen])
        receives = parts.is_kind(frozenset({"recv"}))[chosen]
        receiver = np.full(len(matched), -1)
        receiver[operation[receives]] = parts.rank[chosen[receives]]
        return cls(begin_ns, end_ns, transfer_ns, receiver, simulated)

    def waited(self, one: int, other: int) -> BoolArray:
        """Tell in which operations two ranks both waited, since a third one began last."""
        both_ns = np.fmin(self.end_ns[one] - self.begin_ns[one], self.end_ns[other] - self.begin_ns[other])
        found: BoolArray = both_ns > self.transfer_ns
        return found


@dataclass(frozen=True)
class _Meetings:
    """Operations of a rank with another one whose clock is known: equally long columns.

    Attributes
    ----------
    end_ns : float array
        On the rank's own clock.
    apart_ns : float array
        End on the other rank, less that.
    behind_ns : float array
        How much later the rank began, by its own clock.
    transfer_ns : float array
        How long the shortest part of any rank took.
    waited : bool array
        Whether both waited for a third rank, which began last.
    receives : int64 array
        1 where the rank receives a message, -1 where it sends one, else 0.
    simulated : bool
        Whether the operations are those of a simulated host, which end on all ranks at once.
    shared_ns : float, optional
        The offset if both read one clock, as ranks of one host do.
    """

    end_ns: FloatArray
    apart_ns: FloatArray
    behind_ns: FloatArray
    transfer_ns: FloatArray
    waited: BoolArray
    receives: IntArray
    simulated: bool
    shared_ns: float | None

    def line(self) -> tuple[float, float, float, float]:
        """Return offset at time 0, slope, scatter of the ends, and the lag that is assumed; no slope, where it is not clearly one."""
        order = np.argsort(self.end_ns)
        slope = slope_of(self.end_ns[order], self.apart_ns[order])
        rest_ns = self.apart_ns - slope * self.end_ns
        offset_ns = float(np.median(rest_ns))
        spread_ns = float(self.end_ns.std()) * np.sqrt(len(self.end_ns))
        if abs(slope) * spread_ns < _SURE * 1.25 * max(_scatter_ns(rest_ns, offset_ns), 1.0):
            slope, rest_ns = 0.0, self.apart_ns
        behind_ns = self.behind_ns + slope * self.end_ns
        fit = self._by_messages if self.receives.any() else self._by_collectives
        offset_ns, lag_ns, both_sides = fit(rest_ns, behind_ns)
        if self.shared_ns is not None and not both_sides and abs(offset_ns - self.shared_ns) <= 2 * SAME_HOST_NS:
            offset_ns, lag_ns = self.shared_ns, np.zeros(1)
        assumed_ns, nearest_ns = 0.0 if both_sides else float(np.median(lag_ns)), offset_ns
        if assumed_ns and not self.receives.any():  # All ends are to one side of the offset.
            nearest_ns = float(np.quantile(rest_ns, 0.5 + _NEAREST * np.sign(assumed_ns)))
        return offset_ns, slope, _scatter_ns(rest_ns, nearest_ns), abs(assumed_ns)

    def _by_messages(self, apart_ns: FloatArray, behind_ns: FloatArray) -> tuple[float, FloatArray, bool]:
        """Return the offset, by how much later the rank ends in each message, and whether messages of both directions tell it.

        A receiver that waited for its message ends later than the sender, and by as much in the other direction. If it waited in one
        direction only, the usual lag is taken off.
        """
        usual_ns = self._usual_lags_ns(_RECEIVER_LAG)
        offset_ns, lag_ns, both_sides = float(np.median(apart_ns)), np.zeros(1), False
        for _ in range(_TURNS):
            before_ns = offset_ns
            waited = (behind_ns + offset_ns) * self.receives <= 0
            received, sent = (self._quickest(np.flatnonzero(waited & (self.receives == sign)), 0.5) for sign in (1, -1))
            both_sides = min(len(received), len(sent)) >= _LEAST_SIDE
            if both_sides:
                offset_ns, lag_ns = float(np.median(apart_ns[received]) + np.median(apart_ns[sent])) / 2, np.zeros(1)
            elif len(rows := max(received, sent, key=len)) >= _LEAST_SIDE:
                lag_ns = self.receives * usual_ns
                offset_ns = float(np.median((apart_ns + lag_ns)[rows]))
            if abs(before_ns - offset_ns) < _TOLERANCE_NS:
                break
        return offset_ns, lag_ns, both_sides

    def _by_collectives(self, apart_ns: FloatArray, behind_ns: FloatArray) -> tuple[float, FloatArray, bool]:
        """Return the offset, by how much later the rank ends in each collective, and whether each of the two was the last one at times."""
        rows = self._quickest(np.arange(len(apart_ns)), _QUICKEST)
        if len(rows) > _MOST_COUNTED:  # Not each n-th: what repeats could fall between.
            rows = np.random.default_rng(0).choice(rows, _MOST_COUNTED, replace=False)
        ends = _Ends(apart_ns, behind_ns, np.maximum(self._usual_lags_ns(_LAST_LAG), 1.0), self.waited, 0.0 if self.simulated else 1.0)
        offset_ns, lag = ends.some(rows).explained()
        both_sides = bool(ends.some(rows).evenness(np.array(offset_ns)) >= _EVEN)
        return offset_ns, ends.lags_ns(np.array(offset_ns), np.array([lag]))[0], both_sides

    def _usual_lags_ns(self, share: float) -> FloatArray:
        found: FloatArray = np.minimum(share * self.transfer_ns, _LONGEST_LAG_NS)
        return found

    def _quickest(self, rows: IntArray, share: float) -> IntArray:
        """Return that share of some operations whose transfers are the shortest."""
        found: IntArray = rows[self.transfer_ns[rows] <= np.quantile(self.transfer_ns[rows], share)] if len(rows) else rows
        return found


@dataclass(frozen=True)
class _Ends:
    """Ends of a rank's collectives with another one, and what explains them: an offset of its clock, and a lag of whoever began last.

    What the others have sent already lies in the buffers of the last one. So it ends later: by what it began later, or by the lag if that
    is less. Where it is always the same rank, a lag and an offset explain the same ends, and the lag is taken to be the usual one.
    """

    apart_ns: FloatArray
    behind_ns: FloatArray
    usual_ns: FloatArray
    waited: BoolArray
    usual: float
    """The lag that costs nothing, in ``usual_ns``."""

    def some(self, rows: IntArray) -> _Ends:
        """Return some of them."""
        columns = (self.apart_ns[rows], self.behind_ns[rows], self.usual_ns[rows], self.waited[rows])
        return _Ends(*columns, self.usual)

    def explained(self) -> tuple[float, float]:
        """Return the offset and the lag that leave the least unexplained, at the least cost."""
        offsets_ns = float(np.median(self.apart_ns)) + _OFFSETS * float(self.usual_ns.max())
        found_ns = offsets_ns[self._cost_ns(offsets_ns[:, None]).argmin(axis=0)]  # One for each lag.
        for _ in range(_TURNS):
            found_ns = np.median(self.apart_ns + self.lags_ns(found_ns, _LAGS), axis=-1)
        best = int(self._cost_ns(found_ns).argmin())
        return float(found_ns[best]), float(_LAGS[best])

    def lags_ns(self, offset_ns: FloatArray, lags: FloatArray) -> FloatArray:
        """Return by how much the rank ends later in each collective, less than 0 where the other one does: (…, lags, collectives)."""
        most_ns = lags[:, None] * self.usual_ns
        found: FloatArray = np.where(self.waited, 0.0, np.clip(self.behind_ns + offset_ns[..., None], -most_ns, most_ns))
        return found

    def evenness(self, offset_ns: FloatArray) -> FloatArray:
        """Return how often the one of the two ranks was the last one that was less often, as a share of the other one's times."""
        last, first = ((~self.waited & (sign * (self.behind_ns + offset_ns[..., None]) > 0)).sum(axis=-1) for sign in (1, -1))
        found: FloatArray = np.minimum(last, first) / np.maximum(1, np.maximum(last, first))
        return found

    def _cost_ns(self, offset_ns: FloatArray) -> FloatArray:
        left_ns = np.abs(self.apart_ns + self.lags_ns(offset_ns, _LAGS) - offset_ns[..., None]).mean(axis=-1)
        usual_ns, away_ns = float(np.median(self.usual_ns)), np.abs(offset_ns - np.median(self.apart_ns))
        found: FloatArray = (
            left_ns + _FAR * away_ns + usual_ns * (_UNUSUAL * np.abs(_LAGS - self.usual) + _ONE_SIDED * (1.0 - self.evenness(offset_ns)))
        )
        return found


def _scatter_ns(values_ns: FloatArray, around_ns: float) -> float:
    return 1.4826 * float(np.median(np.abs(values_ns - around_ns)))


class _Limits:
    """The linear program of all ranks: two unknowns each, what an estimate is off by in the middle, and at the reach of the recording."""

    def __init__(self, bounds: _Bounds, ties: Sequence[tuple[int, int]], group: IntArray, matched: Matched, numbers: Sequence[int]) -> None:
        self.bounds, self.ties, self.matched, self.numbers = bounds, ties, matched, numbers
        self._group = group

    def offsets(self, found: Clocks) -> tuple[FloatArray, FloatArray]:
        """Return the lowest and highest offset of each rank in the middle of the recording."""
        count = len(self._group)
        low_ns, high_ns = np.full(count, -np.inf), np.full(count, np.inf)
        for one in np.unique(self._group).tolist():
            members = np.flatnonzero(self._group == one)
            low_ns[members[0]] = high_ns[members[0]] = 0.0
            if len(members) == 1:
                continue
            for some in _portions(members):
                program = _Program(self, found, some)
                at = some[1:]
                low_ns[at], high_ns[at] = program.solved()
        return low_ns, high_ns


def _portions(members: IntArray) -> Iterator[IntArray]:
    """Yield all members of a group together where they are few; else some at a time, always with the first."""
    step = (len(members) if len(members) <= _EXACT_RANKS else _PORTION) - 1
    for begin in range(1, len(members), step):
        yield np.concatenate([members[:1], members[begin : begin + step]])


class _Program:
    """The linear program of one group of ranks. Unknowns are corrections to the estimate, in µs: offsets, then drifts times the reach."""

    def __init__(self, limits: _Limits, found: Clocks, members: IntArray) -> None:
        bounds = limits.bounds
        self._limits, self._found, self._members = limits, found, members
        place = np.full(len(found.group), -1)
        place[members] = np.arange(len(members))
        begins, ends = place[bounds.begin_rank] >= 0, place[bounds.end_rank] >= 0
        both = np.intersect1d(bounds.operation[begins], bounds.end_operation[ends])
        begins &= np.isin(bounds.operation, both)
        ends &= np.isin(bounds.end_operation, both)
        order, end_order = (np.argsort(each, kind="stable") for each in (bounds.operation[begins], bounds.end_operation[ends]))
        self._operation = both
        self._begin_at, self._end_at = (
            np.searchsorted(each, both) for each in (bounds.operation[begins][order], bounds.end_operation[ends][end_order])
        )
        self._begin_rank, self._end_rank = place[bounds.begin_rank[begins][order]], place[bounds.end_rank[ends][end_order]]
        own_ns, own_end_ns = bounds.begin_ns[begins][order], bounds.end_ns[ends][end_order]
        self._begin_us = found.job_ns(members[self._begin_rank], own_ns) / 1e3
        self._end_us = found.job_ns(members[self._end_rank], own_end_ns) / 1e3
        self._begin_x, self._end_x = (
            (times_ns - found.middle_ns[members[rank]]) / found.reach_ns
            for times_ns, rank in ((own_ns, self._begin_rank), (own_end_ns, self._end_rank))
        )
        self._rows: list[FloatArray] = []
        self._most: list[float] = []
        self._named: list[int] = []
        self._taken = set[tuple[int, int]]()
        self._tie(place)

    def _tie(self, place: IntArray) -> None:
        """Ranks of one host read one clock: at the begin and at the end of the recording, their offsets are nearly equal."""
        for one, other in self._limits.ties:
            if place[one] < 0 or place[other] < 0:
                continue
            base_us = (self._found.offset_ns[one] - self._found.offset_ns[other]) / 1e3
            drift_us = (self._found.drift[one] - self._found.drift[other]) * self._found.reach_ns / 1e3
            for x in (-1.0, 1.0):
                for sign in (-1.0, 1.0):
                    row = self._row(int(place[one]), x, int(place[other]), x) * sign
                    self._add(row, SAME_HOST_NS / 1e3 - sign * (base_us + x * drift_us), -1)

    def _row(self, begin: int, begin_x: float, end: int, end_x: float) -> FloatArray:
        row = np.zeros(2 * len(self._members))
        row[begin] += 1.0
        row[len(self._members) + begin] += begin_x
        row[end] -= 1.0
        row[len(self._members) + end] -= end_x
        return row

    def _add(self, row: FloatArray, most: float, operation: int) -> None:
        self._rows.append(row)
        self._most.append(most)
        self._named.append(operation)

    def _violated(self, unknowns: FloatArray) -> bool:
        """Add of each operation the constraint that is violated most; tell whether there is any."""
        if not len(self._operation):
            return False
        offset, slope = np.split(unknowns, 2)
        begin_us = self._begin_us + offset[self._begin_rank] + slope[self._begin_rank] * self._begin_x
        end_us = self._end_us + offset[self._end_rank] + slope[self._end_rank] * self._end_x
        last, first = _argmax(begin_us, self._begin_at), _argmax(-end_us, self._end_at)
        excess = begin_us[last] - end_us[first]
        worst = np.flatnonzero(excess > _TOLERANCE_NS / 1e3)
        added = False
        for at in worst[np.argsort(-excess[worst])][: 4 * len(self._members) + 16].tolist():
            begin, end = int(last[at]), int(first[at])
            if (begin, end) in self._taken:
                continue
            self._taken.add((begin, end))
            added = True
            one, other = int(self._begin_rank[begin]), int(self._end_rank[end])
            row = self._row(one, float(self._begin_x[begin]), other, float(self._end_x[end]))
            self._add(row, float(self._end_us[end] - self._begin_us[begin]), int(self._operation[at]))
        return added

    def solved(self) -> tuple[FloatArray, FloatArray]:
        """Return the lowest and the highest offset of all members but the first, in ns."""
        count = len(self._members)
        widest = 1e12  # µs: no bound.
        estimate = self._found.offset_ns[self._members[1:]]
        self._optimum(np.zeros(2 * count), widest)  # Whether any clocks fit.
        low, high = np.full(count - 1, -np.inf), np.full(count - 1, np.inf)
        for at in range(1, count):
            goal = np.zeros(2 * count)
            for sign, into in ((1.0, low), (-1.0, high)):
                goal[at] = sign
                found = self._optimum(goal, widest)[at]
                if abs(found) < 0.99 * widest:
                    into[at - 1] = found
        return low * 1e3 + estimate, high * 1e3 + estimate

    def _optimum(self, goal: FloatArray, widest: float) -> FloatArray:
        """Minimise over the constraints that are known, and add those that the result violates, until there are none."""
        from scipy.optimize import linprog

        count = len(self._members)
        steepest = FASTEST_DRIFT * self._found.reach_ns / 1e3
        drift = self._found.drift[self._members] * self._found.reach_ns / 1e3
        box = [
            (0.0, 0.0),
            *[(-widest, widest)] * (count - 1),
            (0.0, 0.0),
            *[(-steepest - each, steepest - each) for each in drift[1:].tolist()],
        ]
        for _ in range(_ROUNDS):
            rows: dict[str, Any] = {"A_ub": np.array(self._rows), "b_ub": np.array(self._most)} if self._rows else {}
            answer = linprog(goal, bounds=box, method="highs-ds", options={"presolve": False}, **rows)
            if answer.status == 2:
                raise self._empty()
            if answer.x is None:  # The solver gave up: nothing is certain.
                return np.full(2 * count, widest)
            unknowns: FloatArray = np.clip(answer.x, [each[0] for each in box], [each[1] for each in box])
            if not self._violated(unknowns):
                break
        return unknowns

    def _empty(self) -> TraceError:
        """Say which operation no clocks fit: the last one without which those before do; or which ranks cannot share a host."""
        matched = self._limits.matched
        named = [each for each in self._named if each >= 0]
        rows = np.flatnonzero(np.isin(matched.operation, named))
        excess = [(self._excess_us(each), each) for each in dict.fromkeys(named)]
        worst_us, worst = max(excess, default=(0.0, int(matched.operation[rows[0]]) if len(rows) else 0))
        if worst_us <= 0 and self._limits.ties:
            offset_ns, numbers = self._found.offset_ns, self._limits.numbers
            one, other = max(self._limits.ties, key=lambda pair: abs(offset_ns[pair[0]] - offset_ns[pair[1]]))
            return TraceError(
                f"no clocks fit the times of the ranks: rank {numbers[one]} and rank {numbers[other]} are said to share a host, and their "
                f"clocks are {time_text(abs(offset_ns[one] - offset_ns[other]))} apart",
                hint="leave them out of hosts= (--host); within one host, clocks differ by 20 µs at most",
            )
        return TraceError(
            f"no clocks fit the times of the ranks: {matched.describe(worst)} ends on one rank {time_text(worst_us * 1e3)} before another "
            "begins it",
            hint="the files may be of several runs, a clock may have been set meanwhile, or ranks that are said to share a host do not",
        )

    def _excess_us(self, operation: int) -> float:
        at = int(np.searchsorted(self._operation, operation))
        begin = slice(self._begin_at[at], self._begin_at[at + 1] if at + 1 < len(self._begin_at) else None)
        end = slice(self._end_at[at], self._end_at[at + 1] if at + 1 < len(self._end_at) else None)
        return float(self._begin_us[begin].max() - self._end_us[end].min())


def _argmax(values: FloatArray, starts: IntArray) -> IntArray:
    """Return the place of the largest value of each stretch."""
    largest = np.maximum.reduceat(values, starts)
    group = np.zeros(len(values), np.int64)
    group[starts[1:]] = 1
    at = np.flatnonzero(values == largest[np.cumsum(group)])
    _, first = np.unique(np.cumsum(group)[at], return_index=True)
    return at[first]
