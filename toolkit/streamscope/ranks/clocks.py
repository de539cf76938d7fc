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
from streamscope.ranks.ends import SAME_HOST_NS, Meetings
from streamscope.ranks.matching import BOTH_WAYS, TOGETHER, Matched
from streamscope.ranks.rank import Rank
from streamscope.words import time_text

FASTEST_DRIFT = 2e-4
"""Two clocks drift apart by no more, in s per s."""
_EXACT_RANKS, _PORTION = 64, 16
"""For so many ranks, bounds are the tightest that there are. Of more, so many at a time are bounded, with the first one of their group."""
_MOST_ENDS = 100_000_000
"""Ranks times operations."""
_ROUNDS = 400
_TOLERANCE_NS = 0.5


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
            meetings = Meetings(
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
