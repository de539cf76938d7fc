"""The replay of a job: hosts, streams and waits as `ss.what_if` has them, and collectives that begin when the last rank has come.

Nothing of a rank is simulated anew. Each call comes as long after the one before as in the recording, each kernel as long after what it
waited for, and takes as long. Only what waits for other ranks is left open: a part of a collective ends as long after the last part has
begun as in the recording. So the unchanged replay is the recording, and a change moves what depends on it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from streamscope.analysis.intervals import union
from streamscope.arrays import BoolArray, FloatArray, IntArray
from streamscope.errors import TraceError
from streamscope.predicting.issued import issued_tasks, own_gap_ns, run_start_ns
from streamscope.predicting.simulating import graph_extents
from streamscope.predicting.tasks import Task
from streamscope.ranks.event_waits import inferred_waits
from streamscope.ranks.job import Job
from streamscope.ranks.matching import TOGETHER
from streamscope.ranks.waiting import Coverage
from streamscope.trace.info import TraceInfo
from streamscope.trace.joins import call_rows
from streamscope.trace.spans import DEVICE_KINDS, HOST_KINDS, SpanKind, SpanTable
from streamscope.trace.trace import Trace

MOST_TASKS = 1_000_000
"""Kernels, copies and sets of all ranks that are replayed: each costs Python some µs."""
_NOISE_NS = 1_000
"""A kernel that seems to end so much after the next one of its stream began ended before: recorders note both that closely, not closer."""
_MOST_REPLAYS, _SETTLED_NS = 4, 1000.0
"""Replays end when no kernel's time changes by more."""


@dataclass(frozen=True)
class RankWork:
    """The work of one rank, to be replayed.

    Attributes
    ----------
    source : int
        Index of the rank whose trace it is.
    trace : Trace
    tasks : tuple of Task
        In the order of their launches.
    kept : int64 array
        Which task of the recording each of them is.
    begin_ns : float
        When the first call of its host began, on the job's clock.
    gap_ns : int
        The device's own delay between two kernels.
    operation : mapping of int to int
        Number of the collective that a row of the trace is a part of, where all its parts are there.
    transfer_ns : mapping of int to float
        How long a part goes on after the last one of its collective began. Parts that ended before that are not in it, and keep their
        time.
    nbytes : mapping of int to int
        Sizes of rows that stand for several collectives.
    slowed : mapping of int to two floats
        Of rows of kernels that collectives slow down: the part of the time beside these that is lost, and how long that was, in ns.
    if_latency : mapping of int to float
        Factors on the predicted transfers of rows whose latency is not known: with these, all of the recorded transfer is latency.
    """

    source: int
    trace: Trace
    tasks: tuple[Task, ...]
    kept: IntArray
    begin_ns: float
    gap_ns: int
    operation: Mapping[int, int]
    transfer_ns: Mapping[int, float]
    nbytes: Mapping[int, int] = field(default_factory=dict)
    slowed: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    if_latency: Mapping[int, float] = field(default_factory=dict)

    @cached_property
    def run_start_ns(self) -> int:
        """When the first call of its host began, on the rank's own clock."""
        return _begin_ns(self.trace)

    @property
    def first_ns(self) -> float:
        """When the first of its spans began, on the job's clock."""
        spans = self.trace.spans
        return self.begin_ns + (float(spans.start_ns.min()) - self.run_start_ns if len(spans) else 0.0)

    def operation_of(self, task: Task) -> int | None:
        """Return the number of the collective that a task is a part of; None of other work."""
        return self.operation.get(task.rows[0]) if task.rows else None


@dataclass(frozen=True)
class RankTimes:
    """Times of the tasks of one rank, on the job's clock, in ns.

    Attributes
    ----------
    start_ns, end_ns : lists of float
        On the device; NaN of stretches of the host.
    free_ns, back_ns : lists of float
        When the host was there for the task, having waited where it had to; and when it went on.
    """

    start_ns: list[float]
    end_ns: list[float]
    free_ns: list[float]
    back_ns: list[float]

    @property
    def last_ns(self) -> float:
        """When its last work on the device ended."""
        return max((time_ns for time_ns in self.end_ns if not math.isnan(time_ns)), default=-math.inf)


def works_of(job: Job) -> tuple[RankWork, ...]:
    """Return the work of all ranks as it was recorded.

    Raises
    ------
    TraceError
        There is too much, or no collective joins the ranks.
    """
    count = sum(len(rank.work) for rank in job.ranks)
    if count > MOST_TASKS:
        raise TraceError(
            f"{count:,} kernels, copies and sets are more than the {MOST_TASKS:,} that are predicted",
            hint="record fewer steps",
        )
    if not count:
        raise TraceError("the traces have no kernels, so there is nothing to predict", hint="record a run that uses the GPUs")
    parts, waits = job.matched.parts, job.waits
    met = waits.known & parts.kernel
    waiting = met & (parts.is_kind(TOGETHER) | (waits.start_ns[waits.last] <= waits.end_ns))
    untold = [at for at, rank in enumerate(job.ranks) if not waits_are_told(rank.trace)]
    inferred = dict(zip(untold, inferred_waits([job.ranks[at].trace for at in untold]), strict=True))
    found = []
    for at, rank in enumerate(job.ranks):
        own, joined = np.flatnonzero(met & (parts.rank == at)), np.flatnonzero(waiting & (parts.rank == at))
        operation = dict(zip(parts.span[own].tolist(), job.matched.operation[own].tolist(), strict=True))
        transfer_ns = dict(zip(parts.span[joined].tolist(), waits.transfer_ns[joined].tolist(), strict=True))
        spans = rank.trace.spans
        tasks = tuple(issued_tasks(_with_waits(rank.trace, inferred.get(at)))) if len(rank.work) else ()
        begin_ns = float(job.clocks.job_ns(at, np.float64(_begin_ns(rank.trace) + rank.zero_ns - job.base_ns)))
        found.append(
            RankWork(at, rank.trace, tasks, np.arange(len(tasks)), begin_ns, own_gap_ns(spans) if tasks else 0, operation, transfer_ns)
        )
    return tuple(found)


def _begin_ns(trace: Trace) -> int:
    """Return when the first call or work of a trace began; of one without work, its first span."""
    spans = trace.spans
    working = spans.is_kind(DEVICE_KINDS).any()
    return run_start_ns(spans) if working else int(spans.start_ns.min(initial=0))


def waits_are_told(trace: Trace) -> bool:
    """Tell whether a trace has all event waits, or needs none."""
    spans = trace.spans
    return trace.origins.complete or len(np.unique(spans.stream_lanes[spans.lane[spans.is_kind(DEVICE_KINDS)]])) < 2


def _with_waits(trace: Trace, inferred: tuple[IntArray, IntArray] | None) -> Trace:
    """Return a trace whose event waits are told by rows of its spans: those of the file, and those inferred where it does not tell them."""
    spans, origins = _without_noise(trace.spans), trace.origins
    earlier, later = origins.wait_rows(spans)
    if inferred is not None:
        earlier, later = (np.concatenate(each) for each in zip((earlier, later), inferred, strict=True))
    if inferred is not None or origins.complete:
        spans = replace(spans, graph_node=np.full(len(spans), -1))  # Edges of graphs are among the waits.
    waits = np.unique(np.stack([earlier, later], axis=1), axis=0)
    return replace(trace, spans=spans, origins=replace(origins, row_waits=waits, waits=origins.waits[:0], complete=True))


def _without_noise(spans: SpanTable) -> SpanTable:
    """Return spans of which none overlaps the next one of its stream by the noise of timestamps."""
    rows = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    stream = spans.stream_lanes[spans.lane[rows]]
    order = np.lexsort((spans.start_ns[rows], stream))
    earlier, later = rows[order[:-1]], rows[order[1:]]
    over_ns = spans.end_ns[earlier] - spans.start_ns[later]
    noisy = (np.diff(stream[order]) == 0) & (over_ns > 0) & (over_ns <= _NOISE_NS) & (spans.start_ns[earlier] < spans.start_ns[later])
    end_ns = spans.end_ns.copy()
    end_ns[earlier[noisy]] = spans.start_ns[later[noisy]]
    return replace(spans, end_ns=end_ns)


class _Meetings:
    """Collectives: how many parts are still to begin, and when the last one did."""

    def __init__(self, works: Sequence[RankWork]) -> None:
        self.missing = Counter(
            operation for work in works for task in work.tasks if (operation := work.operation_of(task)) is not None
        )  # fmt: skip
        self.last_ns: dict[int, float] = defaultdict(lambda: -math.inf)

    def begin(self, operation: int, start_ns: float) -> None:
        """Let one part begin."""
        self.missing[operation] -= 1
        self.last_ns[operation] = max(self.last_ns[operation], start_ns)


def replayed(works: Sequence[RankWork], job: Job) -> list[RankTimes]:
    """Return the times of all tasks.

    Each rank goes on until it needs the end of a collective to which another rank has not come. Kernels that run beside collectives for
    longer or shorter than recorded change their times, which is known only behind a replay. So there are several.

    Raises
    ------
    TraceError
        Ranks wait for each other in a ring: with this change, the job would never end.
    """
    more_ns = [[0.0] * len(work.tasks) for work in works]
    for _ in range(_MOST_REPLAYS):
        times = _replayed(works, more_ns, job)
        before_ns, more_ns = more_ns, [_slowed_ns(work, its) for work, its in zip(works, times, strict=True)]
        if all(abs(one - other) <= _SETTLED_NS for each in zip(before_ns, more_ns, strict=True) for one, other in zip(*each, strict=True)):
            break
    return times


def _slowed_ns(work: RankWork, times: RankTimes) -> list[float]:
    """Return how much longer than recorded each task takes, since collectives run beside it for longer."""
    found = [0.0] * len(work.tasks)
    if work.slowed:
        parts = [position for position, task in enumerate(work.tasks) if work.operation_of(task) is not None]
        start_ns, end_ns = (np.rint(np.nan_to_num(each)).astype(np.int64) for each in (times.start_ns, times.end_ns))  # NaN of the host.
        meanwhile = Coverage(union(start_ns[parts], end_ns[parts]))
        known = [position for position, task in enumerate(work.tasks) if task.rows and task.rows[0] in work.slowed]
        beside_ns = meanwhile.within(start_ns[known], end_ns[known])
        for position, now_ns in zip(known, beside_ns.tolist(), strict=True):
            task = work.tasks[position]
            share, recorded_ns = work.slowed[task.rows[0]]
            found[position] = share * (now_ns - recorded_ns * task.factor)
    return found


def _replayed(works: Sequence[RankWork], more_ns: Sequence[Sequence[float]], job: Job) -> list[RankTimes]:
    """Replay once, with so much more time for each task on the device."""
    meetings = _Meetings(works)
    times = [RankTimes([], [], [], []) for _ in works]
    runs = [_run(work, its, more, meetings) for work, its, more in zip(works, times, more_ns, strict=True)]
    ready, blocked = deque(range(len(works))), defaultdict[int, list[int]](list)
    while ready or blocked:
        if not ready:
            ready.extend(at for operation in [*blocked] if not meetings.missing[operation] for at in blocked.pop(operation))
        if not ready:
            operation, ranks = min(blocked.items())
            raise TraceError(
                f"with this change the job never ends: rank {job.ranks[ranks[0]].number} waits for {job.matched.describe(operation)}, "
                "to which another rank does not come before it has waited for this one",
                hint="ranks launch collectives in other orders; change less",
            )
        at = ready.popleft()
        operation = next(runs[at], -1)
        if operation >= 0:
            blocked[operation].append(at)
    for work, its in zip(works, times, strict=True):
        for position, task in enumerate(work.tasks):
            if not math.isnan(its.start_ns[position]):
                _end(work, its, meetings, position, task)
    return times


def _run(work: RankWork, times: RankTimes, more_ns: Sequence[float], meetings: _Meetings) -> Iterator[int]:
    """Carry out the tasks of a rank in the order of their launches; yield the collective that it has to wait for."""
    start_ns, end_ns, gap_ns = times.start_ns, times.end_ns, work.gap_ns
    host_ns = work.begin_ns
    for task, longer_ns in zip(work.tasks, more_ns, strict=True):
        ended_ns = -math.inf
        for earlier in task.after:
            if math.isnan(end_ns[earlier]) and not math.isnan(start_ns[earlier]):
                operation = work.operation[work.tasks[earlier].rows[0]]
                while meetings.missing[operation]:
                    yield operation
                _end(work, times, meetings, earlier, work.tasks[earlier])
            ended_ns = max(ended_ns, end_ns[earlier])  # A stretch of the host has no end, and NaN is not larger.
        if task.on_host:
            host_ns = max(host_ns, ended_ns)
            times.free_ns.append(host_ns)
            host_ns += task.call_ns
            start_ns.append(math.nan)
            end_ns.append(math.nan)
        else:
            times.free_ns.append(host_ns)
            host_ns += task.call_ns
            begin_ns = max(host_ns - task.tail_ns, ended_ns + gap_ns) + task.gap_ns
            start_ns.append(begin_ns)
            row = task.rows[0]
            if (part_of := work.operation.get(row)) is not None:
                meetings.begin(part_of, begin_ns)
            end_ns.append(math.nan if row in work.transfer_ns else begin_ns + max(0.0, task.alone_ns + longer_ns))
        times.back_ns.append(host_ns)


def _end(work: RankWork, times: RankTimes, meetings: _Meetings, position: int, task: Task) -> None:
    """Set the end of a part of a collective whose parts have all begun."""
    row = task.rows[0]
    if row in work.transfer_ns:
        last_ns = meetings.last_ns[work.operation[row]]
        times.end_ns[position] = max(times.start_ns[position], last_ns) + work.transfer_ns[row] * task.factor


def retimed_trace(work: RankWork, before: RankTimes, after: RankTimes, info: TraceInfo, zero_ns: float) -> Trace:
    """Return the trace of a rank with the times of a replay, since ``zero_ns`` on the job's clock.

    Spans of the host move with the calls around them. What was left out is not in it, nor are calls that launched nothing else.

    Parameters
    ----------
    work : RankWork
    before, after : RankTimes
        Of the recording, for the rank whose trace it is; and with the changes.
    info : TraceInfo
    zero_ns : float
    """
    trace, spans = work.trace, work.trace.spans
    shift_ns = work.begin_ns - work.run_start_ns
    start_ns, end_ns = (np.asarray(times_ns, np.float64) + shift_ns for times_ns in (spans.start_ns, spans.end_ns))
    host = spans.is_kind(HOST_KINDS)
    moved = _HostTimes.of(work, before, after)
    start_ns[host], end_ns[host] = moved.at(start_ns[host]), moved.at(end_ns[host])
    on_device = [(task.rows[0], position) for position, task in enumerate(work.tasks) if task.rows]
    rows, positions = (np.array(column, np.int64) for column in zip(*on_device, strict=True)) if on_device else (np.zeros(0, np.int64),) * 2
    start_ns[rows], end_ns[rows] = (np.array(times_ns, np.float64)[positions] for times_ns in (after.start_ns, after.end_ns))
    starts, ends = (np.rint(times_ns - zero_ns).astype(np.int64) for times_ns in (start_ns, end_ns))
    left = _left(spans, rows)
    graphs = np.flatnonzero(spans.kind == SpanKind.GRAPH)
    starts[graphs], ends[graphs] = graph_extents(spans, starts, ends, left)
    order = np.argsort(starts, kind="stable")
    order = order[left[order]]
    return _rearranged(work, trace, order, starts[order], np.maximum(ends, starts)[order], info)


def _left(spans: SpanTable, rows: IntArray) -> BoolArray:
    """Tell of each span whether it stays: work in ``rows``, and all of the host but calls that launched only other work."""
    left: BoolArray = ~spans.is_kind(DEVICE_KINDS)
    left[rows] = True
    gone = np.flatnonzero(~left)
    of_gone = call_rows(spans, gone)
    unused = np.setdiff1d(of_gone[of_gone >= 0], call_rows(spans, rows))
    left[unused] = False
    return left


def _rearranged(work: RankWork, trace: Trace, order: IntArray, start_ns: IntArray, end_ns: IntArray, info: TraceInfo) -> Trace:
    """Return a trace of some rows with new times, and all that is told of them."""
    new_row = np.full(len(trace.spans), -1, np.int64)
    new_row[order] = np.arange(len(order))
    waits = trace.origins.row_waits
    waits = new_row[waits[(waits < len(new_row)).all(axis=1)]]
    nbytes = trace.collectives.nbytes.copy()
    for row, size in work.nbytes.items():
        nbytes[trace.collectives.span == row] = size
    return Trace(
        replace(trace.spans.select(order), start_ns=start_ns, end_ns=end_ns),
        info,
        replace(trace.origins, row_waits=waits[(waits >= 0).all(axis=1)]),
        collectives=replace(trace.collectives, nbytes=nbytes).at(new_row),
        peers=trace.peers.at(new_row),
        sites=trace.sites.at(new_row),
    )


@dataclass(frozen=True)
class _HostTimes:
    """Moments of a host before and after a change; between them, time is stretched evenly, and around them it is shifted."""

    old_ns: FloatArray
    new_ns: FloatArray

    @classmethod
    def of(cls, work: RankWork, before: RankTimes, after: RankTimes) -> _HostTimes:
        """Take the moments when it was there for each task and when it went on, and the end of all work of the device."""
        kept = work.kept

        def moments(times: RankTimes, chosen: IntArray) -> FloatArray:
            both = np.stack([np.array(each, np.float64)[chosen] for each in (times.free_ns, times.back_ns)], axis=1).reshape(-1)
            last_ns = max(times.last_ns, float(both.max(initial=-math.inf)))
            return np.concatenate([[work.begin_ns], both, [last_ns]])

        if not len(kept):
            return cls(np.zeros(1), np.zeros(1))
        return cls(moments(before, kept), moments(after, np.arange(len(kept))))

    def at(self, times_ns: FloatArray) -> FloatArray:
        """Return the new times of moments of the host."""
        inside: FloatArray = np.interp(times_ns, self.old_ns, self.new_ns)
        around: FloatArray = np.minimum(times_ns - self.old_ns[0], 0) + np.maximum(times_ns - self.old_ns[-1], 0)
        return inside + around
