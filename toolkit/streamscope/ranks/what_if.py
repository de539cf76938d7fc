"""What-if over ranks: a job with a repaired rank, faster links, merged collectives, without overlap, or with other kernels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from streamscope.arguments import given_path, shown, size_in_bytes
from streamscope.errors import OutputError, TraceError
from streamscope.predicting.prediction import predicted_device
from streamscope.predicting.scenario import checked_factor, is_factor, picked_words, scaled, without
from streamscope.program.launch import LaunchKind
from streamscope.ranks.clocks import Clocks
from streamscope.ranks.host_pace import pace_ranges, paced, usual_paces
from streamscope.ranks.job import Job
from streamscope.ranks.matching import matched
from streamscope.ranks.replay import RankTimes, RankWork, replayed, retimed_trace, waits_are_told, works_of
from streamscope.ranks.steps import is_step
from streamscope.ranks.work_changes import (
    alone,
    buckets,
    faster_links,
    in_place_of,
    merged,
    named,
    one_at_a_time,
    slowed_by_collectives,
    with_latency,
    without_ranges,
    without_waits,
)
from streamscope.results import views
from streamscope.results.result import Result
from streamscope.results.widgets import Timeline
from streamscope.trace.file_checks import plain
from streamscope.trace.spans import SpanKind
from streamscope.trace.trace import Trace
from streamscope.words import aligned, capitalised, counted, format_us, listed, percent, time_text

_MOST_ROWS, _MOST_SHOWN, _MOST_NAMED = 16, 3, 3
_WORST_REPLAY = 0.02
"""From this error of the replay on, a prediction is warned of."""
_INFERRED = (
    "event waits of {} are not in the files: those are taken that all steps and ranks agree on, so work may wait longer than predicted "
    "where transfers become longer"
)
_ONE_SIZE = "the latency of {} is not known, since all have one size: "
_WHOLE = "{} larger than {} stay whole: files do not tell when their pieces were ready"
_HOSTS = (
    "bound by hosts, in part: for the same calls they take longer on some ranks, in some steps and in some recordings than in others, and "
    "less without a recorder. With quick and with slow ones, the change makes it {}"
)
_EQUAL_RUNS = 0.05
"""Runs of one job differ by as much where GPUs decide. Where the pace of hosts changes a prediction by more, it is told."""
_BESIDE = "{} ran beside others, and none alike ran alone, so alone they may be shorter"
_EVENTS = "hosts still make the calls by which streams wait for each other: where hosts decide, it may be shorter without them"


@dataclass(frozen=True)
class _Recording:
    """A job as recorded, ready for a replay."""

    job: Job

    @cached_property
    def works(self) -> tuple[RankWork, ...]:
        """Work of each rank."""
        return tuple(slowed_by_collectives(works_of(self.job)))

    @cached_property
    def times(self) -> list[RankTimes]:
        """Its replay without a change."""
        return replayed(self.works, self.job)

    @cached_property
    def replay(self) -> Job:
        """The replay as a job."""
        return self.retimed(self.works, self.times, ())

    def retimed(self, works: Sequence[RankWork], times: Sequence[RankTimes], notes: tuple[str, ...]) -> Job:
        """Return the job with the times of a replay: one clock, whose errors are those of the recording."""
        zero_ns = self.zero_ns(works)
        ranks = []
        for rank, work, after in zip(self.job.ranks, works, times, strict=True):
            info = replace(
                rank.trace.info, device=predicted_device(rank.trace.info.device), recorder="prediction", ledger={}, memory={}, zero_ns=0,
                notes=(*notes, *rank.trace.info.notes),
            )  # fmt: skip
            trace = retimed_trace(work, self.times[work.source], after, info, zero_ns)
            ranks.append(replace(rank, trace=trace))
        return Job(tuple(ranks), matched(ranks, 0), _one_clock(self.job.clocks), 0, self.job.warnings)

    def zero_ns(self, works: Sequence[RankWork]) -> float:
        """Return the zero of predicted traces on the job's clock: nothing begins before, neither recorded nor predicted."""
        return min(work.first_ns for work in (*self.works, *works) if len(work.trace.spans))

    @cached_property
    def latency_ns(self) -> dict[tuple[int, int], float]:
        """Transfer of no bytes, by kind and communicator: where a line through the shortest and the longest ones has it."""
        parts, waits = self.job.matched.parts, self.job.waits
        rows = np.flatnonzero(waits.known & parts.kernel & (parts.nbytes > 0))
        found = {}
        for key in np.unique(np.stack([parts.kind[rows], parts.communicator[rows]], axis=1), axis=0).tolist():
            own = rows[(parts.kind[rows] == key[0]) & (parts.communicator[rows] == key[1])]
            sizes = np.unique(parts.nbytes[own])
            low_ns, high_ns = (float(np.median(waits.transfer_ns[own[parts.nbytes[own] == size]])) for size in (sizes[0], sizes[-1]))
            if len(sizes) > 1:
                slope = max(0.0, high_ns - low_ns) / float(sizes[-1] - sizes[0])
                found[key[0], key[1]] = float(np.clip(low_ns - slope * float(sizes[0]), 0.0, low_ns))
        return found

    @cached_property
    def key_of(self) -> dict[int, tuple[int, int]]:
        """Kind and communicator of each collective, as numbers of `Parts.texts`."""
        parts = self.job.matched.parts
        columns = (self.job.matched.operation.tolist(), parts.kind.tolist(), parts.communicator.tolist())
        return {operation: (kind, communicator) for operation, kind, communicator in zip(*columns, strict=True) if operation >= 0}

    def latencies_of(self, work: RankWork) -> dict[int, float]:
        """Return the latency of each row that is a part of a collective, where it is known."""
        keys = {row: self.key_of[operation] for row, operation in work.operation.items()}
        return {row: self.latency_ns[key] for row, key in keys.items() if key in self.latency_ns}

    @cached_property
    def pace_ranges(self) -> list[tuple[float, float]]:
        """Factors on the host's time of each rank, for a quick and for a slow host."""
        return pace_ranges(self.job)

    @cached_property
    def paces(self) -> list[float]:
        """Pace of each rank's host."""
        return usual_paces(self.job)

    def of_one_size(self) -> list[str]:
        """Name the kinds of collectives whose latency is not known."""
        texts = self.job.matched.parts.texts
        return sorted({texts[kind] or "collectives" for kind, _ in {*self.key_of.values()} - {*self.latency_ns}})


def _one_clock(clocks: Clocks) -> Clocks:
    none, error_ns = np.zeros(len(clocks.group)), clocks.error_ns
    return replace(clocks, offset_ns=none, low_ns=-error_ns, high_ns=error_ns, drift=none, assumed_ns=none, middle_ns=none)


@dataclass(frozen=True, repr=False)
class JobPrediction(Result):
    """A job as it would be with changes, as `Job.what_if` predicts it: change it further, and compare it with the recording.

    All ranks are replayed: their calls, streams and waits as `ss.what_if` has them, and collectives whose transfer begins when the last
    rank has come. Predicted times are labelled as simulated.

    Attributes
    ----------
    works : tuple of RankWork
        Work of each rank, with all changes.
    changes, remarks : tuples of str
        Changes in words, and what to know of them; `notes` has all that is to be known.
    rank : int, optional
        The rank that `like`, `kernel` and `without` change; None is all.

    Examples
    --------
    >>> function, inputs = ss.workload("data-parallel").build(gpus=2, layers=2, width=256, rows=64)
    >>> runs = ss.compare(function, *inputs, engines=["graph-dual"], gpus=2, device="simulated", progress=False)
    >>> job = ss.read_ranks(runs["graph-dual"].trace.to_parquet("step.parquet"), progress=False)
    >>> prediction = job.what_if().serial()
    >>> prediction.changes, prediction.speedup < 1
    (('nothing hides',), True)
    >>> len(prediction.job.ranks), prediction.job.simulated
    (2, True)
    """

    view = "job-prediction"
    heads: ClassVar = ("rank", "GPU", "waiting, µs", "predicted waiting, µs", "exposed, µs", "predicted exposed, µs")

    recording: _Recording = field(repr=False, compare=False)
    works: tuple[RankWork, ...] = field(repr=False)
    changes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    rank: int | None = None

    @property
    def recorded(self) -> Job:
        """The job that it was made from."""
        return self.recording.job

    @property
    def unchanged(self) -> Job:
        """The replay without any change: as far as it is from the recording, a prediction may be off."""
        return self.recording.replay

    @cached_property
    def job(self) -> Job:
        """The predicted job, with a trace for each rank: read, saved and shown like a recorded one.

        Raises
        ------
        TraceError
            With these changes, ranks would wait for each other for ever.
        """
        if not self.changes:
            return self.unchanged
        notes = tuple(f"changed: {change}" for change in self.changes)
        return self.recording.retimed(self.works, self._times, ("predicted by a replay of all ranks", *notes))

    @cached_property
    def _times(self) -> list[RankTimes]:
        return replayed(self.works, self.recorded)

    @property
    def error_bar(self) -> tuple[float, float]:
        """How much shorter and longer it may be than predicted, as shares of the prediction, beside a run of the recorded job.

        Equal runs differ by some 5 %, also where GPUs decide. Hosts that do the same differ between ranks and steps, and by more while a
        profiler records them. Their pace is the time of launches over the usual time of the same calls. Quick and slow are the 5th and
        95th percentile of all steps of all ranks, and 15 % beyond, since another recording has other hosts. Waits of the GPU that nothing
        in the files explains stay in the prediction; the bar has the job without them, too. Where the latency of transfers that change is
        not known, the bar reaches from "none of the transfer is latency" to "all is".

        Examples
        --------
        >>> function, inputs = ss.workload("data-parallel").build(gpus=2, layers=2, width=256, rows=64)
        >>> runs = ss.compare(function, *inputs, engines=["graph-dual"], gpus=2, device="simulated", progress=False)
        >>> job = ss.read_ranks(runs["graph-dual"].trace.to_parquet("step.parquet"), progress=False)
        >>> job.what_if().serial().error_bar
        (-0.05, 0.05)
        """
        low, high = self._range
        return low - _EQUAL_RUNS * (1 + low), high + _EQUAL_RUNS * (1 + high)

    @cached_property
    def _range(self) -> tuple[float, float]:
        """How much shorter and longer it would be with quick and with slow hosts, and by what is not known of latencies."""
        if not any(work.if_latency for work in self.works):
            return self._host_range
        return self._between_works(*([with_latency(work, longer=at > 0) for work in works] for at, works in enumerate(self._hosts)))

    @cached_property
    def _host_range(self) -> tuple[float, float]:
        """How much shorter and longer it would be with quick and with slow hosts."""
        return self._between_works(*self._hosts)

    @property
    def _hosts(self) -> tuple[list[RankWork], list[RankWork]]:
        """The works with quick and with slow hosts."""
        quick, slow = zip(*self.recording.pace_ranges, strict=True)
        hosts = [[paced(work, factors[work.source]) for work in self.works] for factors in (quick, slow)]
        return hosts[0] if self.recorded.simulated else [without_waits(work) for work in hosts[0]], hosts[1]

    def _between_works(self, shorter: Sequence[RankWork], longer: Sequence[RankWork]) -> tuple[float, float]:
        """Return how much shorter and longer than predicted works take, as shares."""
        whole_ns = _length_ns(self.works, self._times)
        low, high = (_length_ns(works, replayed(works, self.recorded)) / whole_ns - 1 for works in (shorter, longer))
        return min(0.0, low), max(0.0, high)

    @property
    def speedup(self) -> float:
        """How many times as fast as the replay without changes: by the median of steps where both have as many, else by the whole."""
        before_ns, after_ns = (self._time_ns(job) for job in (self.unchanged, self.job))
        return before_ns / after_ns if after_ns else math.inf

    @cached_property
    def _by_steps(self) -> bool:
        counts = {len(job.steps) for job in (self.recorded, self.unchanged, self.job)}
        return len(counts) == 1 and counts != {0}

    def _time_ns(self, job: Job) -> float:
        """Return the time of a job that is compared."""
        typical = job.typical_step if self._by_steps else None
        return job.length_ns if typical is None else float(job.steps.length_ns[typical])

    @property
    def replay_error(self) -> float:
        """How far the replay without changes is from the recording, as a share of its length."""
        recorded_ns = self.recorded.length_ns
        return abs(self.unchanged.length_ns / recorded_ns - 1) if recorded_ns else 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before you believe the prediction."""
        untold = [rank.number for rank in self.recorded.ranks if not waits_are_told(rank.trace)]
        ranks = f"{'ranks' if len(untold) > 1 else 'rank'} {listed([str(number) for number in untold[:_MOST_ROWS]])}"
        more = f" and {len(untold) - _MOST_ROWS:,} more" if len(untold) > _MOST_ROWS else ""
        error = self.replay_error
        replay = f"the replay without a change takes {time_text(self.unchanged.length_ns)} of {time_text(self.recorded.length_ns)}"
        off = f": that is {percent(error)} off, so what it predicts may be as far off" if error > _WORST_REPLAY else ""
        hosts = [_HOSTS.format(self._between)] if self._hosts_decide else []
        alone = [] if self.recorded.matched.whole.any() else ["no collective joins the ranks, so each is replayed alone"]
        return (replay + off, *hosts, *alone, *([_INFERRED.format(ranks + more)] if untold else []), *self.remarks)

    @property
    def _hosts_decide(self) -> bool:
        """Whether hosts matter: their times with a recorder tell nothing of a run without one."""
        return max(map(abs, self._host_range)) > _EQUAL_RUNS and bool(self.changes)

    @property
    def _between(self) -> str:
        """The range of the speed-up in words."""
        slow, fast = (_times(self.speedup / (1 + end)) for end in self.error_bar[::-1])
        number, unit = slow.split(" ", 1)
        return f"{number if fast.endswith(unit) else slow} to {fast}"

    def timeline(self, *ranks: int) -> Timeline:
        """Return live timelines of ranks, each as recorded and as predicted, on one axis, as a notebook widget.

        Parameters
        ----------
        *ranks : int
            By default changed ones, behind each the one that it is like, and then those whose waiting changes most: three in all.

        Raises
        ------
        TraceError
            The job has no such rank.
        OutputError
            The front end was not built.

        Examples
        --------
        >>> function, inputs = ss.workload("data-parallel").build(gpus=2, layers=2, width=256, rows=64)
        >>> runs = ss.compare(function, *inputs, engines=["graph-dual"], gpus=2, device="simulated", progress=False)
        >>> job = ss.read_ranks(runs["graph-dual"].trace.to_parquet("step.parquet"), progress=False)
        >>> job.what_if().serial().timeline(0).engines
        ['rank 0', 'rank 0, predicted']
        """
        for rank in ranks:
            self._index(rank)
        return views.timeline(self, ranks)

    def shown(self, ranks: Sequence[int] = ()) -> list[tuple[int, Trace, Trace]]:
        """Return ranks with their traces as recorded and as predicted, from one zero.

        By default changed ranks, behind each the one that it is like, and then those whose waiting changes most: three in all.
        """
        before, after = self.recorded, self.job
        changes_us = [abs(one.waiting_us - other.waiting_us) for one, other in zip(before.times, after.times, strict=True)]
        first = [at for at in dict.fromkeys(self._changed_ranks) if len(after.ranks[at].work)][:_MOST_SHOWN]
        others = [at for at in np.argsort(changes_us, kind="stable")[::-1].tolist() if at not in first and len(after.ranks[at].work)]
        most = [*first, *sorted(others[: _MOST_SHOWN - len(first)])]
        found = []
        for at in map(self._index, ranks) if ranks else most:
            trace, work = before.ranks[at].trace, self.recording.works[at]
            spans, shift_ns = trace.spans, round(work.begin_ns - work.run_start_ns - self.recording.zero_ns(self.works))
            moved = replace(spans, start_ns=spans.start_ns + shift_ns, end_ns=spans.end_ns + shift_ns)
            found.append((before.ranks[at].number, replace(trace, spans=moved), after.ranks[at].trace))
        return found

    @property
    def _changed_ranks(self) -> list[int]:
        """Indices of the chosen rank, and of those that are like others, with these others behind them."""
        chosen = [] if self.rank is None else [self._index(self.rank)]
        alike = [at for pair in enumerate(work.source for work in self.works) if pair[0] != pair[1] for at in pair]
        return [*(at for one in chosen for at in (one, self.works[one].source)), *alike]

    def what_if(self, rank: int | None = None) -> JobPrediction:
        """Choose the rank that the next changes are for, and keep the changes; None is all ranks.

        Raises
        ------
        TraceError
            The job has no such rank.
        """
        if rank is not None:
            self._index(rank)
        return replace(self, rank=rank)

    def like(self, rank: int) -> JobPrediction:
        """Repair the chosen rank: its kernels and its host do what those of another rank do, at the same times.

        So kernels that the other rank does not have are gone, and those that it has besides are there. Transfers stay: a slow link is no
        property of one rank's work. Its host keeps the pace of its launches: that is chance, and the next run has it, too.

        Parameters
        ----------
        rank : int
            The rank that shows how it should be.

        Raises
        ------
        TraceError
            No rank was chosen by `what_if`, it is this one, the job has no such rank, or the two take part in different collectives.

        Examples
        --------
        >>> function, inputs = ss.workload("data-parallel").build(gpus=2, layers=2, width=256, rows=64)
        >>> runs = ss.compare(function, *inputs, engines=["graph-dual"], gpus=2, device="simulated", progress=False)
        >>> job = ss.read_ranks(runs["graph-dual"].trace.to_parquet("step.parquet"), progress=False)
        >>> job.what_if(rank=1).like(rank=0).changes
        ('rank 1 like rank 0',)
        """
        if self.rank is None:
            raise TraceError("which rank is to be repaired was not said", hint="for example job.what_if(rank=2).like(rank=1)")
        late, other = self._index(self.rank), self._index(rank)
        if late == other:
            raise TraceError(f"rank {rank} is to be like itself", hint="choose another rank that does the same")
        works = list(self.works)
        paces = self.recording.paces
        works[late] = paced(in_place_of(works[late], works[other], (self.rank, rank)), paces[late] / paces[works[other].source])
        return self._changed(works, f"rank {self.rank} like rank {rank}")

    def link(self, scale: float) -> JobPrediction:
        """Make the links between ranks so many times as fast: transfers of collectives become shorter, but for their latency.

        The latency of a kind of collective is what a line through its shortest and its longest transfers has at no bytes. Where all have
        one size it is not known, and taken to be nothing; a note says so, and the error bar reaches to where all of a transfer is latency.

        Parameters
        ----------
        scale : float
            2 is twice as fast.

        Raises
        ------
        TraceError
            The scale is not a number above 0, or the job has no matched collectives.

        Examples
        --------
        >>> function, inputs = ss.workload("data-parallel").build(gpus=2, layers=2, width=256, rows=64)
        >>> runs = ss.compare(function, *inputs, engines=["graph-dual"], gpus=2, device="simulated", progress=False)
        >>> job = ss.read_ranks(runs["graph-dual"].trace.to_parquet("step.parquet"), progress=False)
        >>> job.what_if().link(scale=0.5).speedup < 1
        True
        """
        if not is_factor(scale) or not 1e-6 <= scale <= 1e6:
            raise TraceError(f"links cannot be {scale!r:.40} times as fast", hint="give a number above 0, 2 for twice as fast")
        if not self.recording.key_of:
            raise TraceError("no collective was matched, so no transfer is known", hint="job.warnings says what was left out, and why")
        works = [faster_links(work, float(scale), self.recording.latencies_of(work)) for work in self.works]
        unknown = self.recording.of_one_size()
        said = [_ONE_SIZE.format(listed(unknown)) + "all of their transfer becomes shorter or longer"] if unknown else []
        return self._changed(works, f"links × {scale:g}", *said)

    def collective(self, kind: str) -> Collectives:
        """Choose the collectives of a kind, to merge them.

        Parameters
        ----------
        kind : str
            ``"all_reduce"``, ``"all_gather"``, ``"reduce_scatter"`` and so on.

        Raises
        ------
        TraceError
            No matched collective is of this kind.
        """
        texts = self.recorded.matched.parts.texts
        known = sorted({texts[code] for code, _ in self.recording.key_of.values() if texts[code]})
        if kind not in known:
            raise TraceError(
                f"no matched collective is of the kind {shown(kind)}", hint=f"there are {listed(known)}" if known else "none was matched"
            )
        return Collectives(self, kind)

    def serial(self) -> JobPrediction:
        """Let nothing hide: each rank runs one thing at a time, kernels, copies and collectives, in the order of their launches.

        What ran beside other work takes as long as the same kernel or transfer alone, in the median of all ranks. Where none ran alone, it
        keeps its time, and a note counts them.

        Examples
        --------
        >>> function, inputs = ss.workload("data-parallel").build(gpus=2, layers=2, width=256, rows=64)
        >>> runs = ss.compare(function, *inputs, engines=["graph-dual"], gpus=2, device="simulated", progress=False)
        >>> job = ss.read_ranks(runs["graph-dual"].trace.to_parquet("step.parquet"), progress=False)
        >>> serial = job.what_if().serial()
        >>> serial.job.times[0].exposed_us > job.times[0].exposed_us
        True
        """
        works, unknown = alone(self.works)
        said = [_BESIDE.format(counted(unknown, "kernel or transfer", "kernels or transfers"))] if unknown else []
        said += [_EVENTS] if any((rank.trace.spans.kind == SpanKind.EVENT).any() for rank in self.recorded.ranks) else []
        return self._changed(map(one_at_a_time, works), "nothing hides", *said)

    def kernel(self, *patterns: str) -> JobKernels:
        """Choose kernels, copies or host functions by name, on all ranks or on the one that `what_if` chose.

        Parameters
        ----------
        *patterns : str
            As those of `Prediction.kernel`; also a kind of collectives, such as ``"all_reduce"``, whose transfer is meant.

        Raises
        ------
        TraceError
            Nothing is called like that.

        Examples
        --------
        >>> function, inputs = ss.workload("data-parallel").build(gpus=2, layers=2, width=256, rows=64)
        >>> runs = ss.compare(function, *inputs, engines=["graph-dual"], gpus=2, device="simulated", progress=False)
        >>> job = ss.read_ranks(runs["graph-dual"].trace.to_parquet("step.parquet"), progress=False)
        >>> job.what_if().kernel("matmul").scale(0.5).speedup > 1
        True
        """
        return JobKernels(self, patterns, tuple(self._picked(patterns)))

    def without(self, *patterns: str) -> JobPrediction:
        """Leave out kernels, copies, host functions or collectives, chosen as by `kernel`, with the host's time for them.

        Where a name is that of ranges in which nothing was launched, such as the loading of a batch, the host does not spend their time.

        Raises
        ------
        TraceError
            Nothing is called like that, or nothing else is left.

        Examples
        --------
        >>> function, inputs = ss.workload("data-parallel").build(gpus=2, layers=2, width=256, rows=64)
        >>> runs = ss.compare(function, *inputs, engines=["graph-dual"], gpus=2, device="simulated", progress=False)
        >>> job = ss.read_ranks(runs["graph-dual"].trace.to_parquet("step.parquet"), progress=False)
        >>> job.what_if().without("all_reduce").job.matched.whole.any()
        np.False_
        """
        hosts = self._without_ranges(patterns)
        if hosts is not None:
            return hosts
        picked = self._picked(patterns)
        if not any(not one for each in picked for one in each):
            raise TraceError(f"nothing is left without {', '.join(patterns)!r}", hint="leave out less")
        works = [
            replace(work, tasks=tuple(without(work.tasks, each)), kept=work.kept[~np.array(each, bool)]) if any(each) else work
            for work, each in zip(self.works, picked, strict=True)
        ]
        return self._changed(works, f"without {self._words(picked, patterns)}")

    def _without_ranges(self, patterns: Sequence[str]) -> JobPrediction | None:
        """Leave out the first pattern that names no work but ranges of hosts, then the others; None where there is none."""
        for at, pattern in enumerate(patterns):
            try:
                self._picked([pattern])
            except TraceError:
                times = self.recording.times
                found = {rank: without_ranges(self.works[rank], times[self.works[rank].source], pattern) for rank in self._ranks}
                if any(found.values()):
                    works = [found.get(rank) or work for rank, work in enumerate(self.works)]
                    changed = self._changed(works, f"without {pattern}{self._on}")
                    others = (*patterns[:at], *patterns[at + 1 :])
                    return changed.without(*others) if others else changed
        return None

    @property
    def _ranks(self) -> Sequence[int]:
        """Indices of the ranks that are changed."""
        return range(len(self.works)) if self.rank is None else [self._index(self.rank)]

    @property
    def _on(self) -> str:
        return "" if self.rank is None else f" on rank {self.rank}"

    def _picked(self, patterns: Sequence[str]) -> list[list[bool]]:
        """Tell of each task of each rank whether a pattern names it; each pattern names some on some rank."""
        if not patterns:
            raise TraceError("a name of kernels is missing", hint='for example "relu*"')
        found = [[False] * len(work.tasks) for work in self.works]
        for pattern in patterns:
            wrong: list[TraceError] = []
            for at in self._ranks:
                try:
                    picked = named(self.works[at], pattern)
                except TraceError as error:
                    wrong.append(error)
                else:
                    found[at] = [one or other for one, other in zip(found[at], picked, strict=True)]
            if len(wrong) == len(self._ranks):
                raise TraceError(wrong[0].message, hint=f"{wrong[0].hint}{self._longest_ranges()}")
        return found

    def _longest_ranges(self) -> str:
        """Return in words the ranges of hosts that take longest, on any rank: their names choose work, too."""
        takes_ns = Counter[str]()
        for spans in (self.works[at].trace.spans for at in self._ranks):
            rows = np.flatnonzero(spans.kind == SpanKind.RANGE)
            code, place = np.unique(spans.name[rows], return_inverse=True)
            total_ns = np.bincount(place, weights=spans.duration_ns[rows]).astype(np.int64)
            takes_ns.update(dict(zip((spans.names[one] for one in code.tolist()), total_ns.tolist(), strict=True)))
        found = [repr(name) for name, _ in takes_ns.most_common() if not is_step(name)][:_MOST_NAMED]
        return f"; the longest {'ranges are' if len(found) > 1 else 'range is'} {', '.join(found)}" if found else ""

    def _words(self, picked: Sequence[Sequence[bool]], patterns: Sequence[str]) -> str:
        """Name what was chosen: ``"7 copies"`` for a kind, and ``"augment (112 kernels)"`` for a name."""
        tasks = [task for work in self.works for task in work.tasks]
        chosen = [one for each in picked for one in each]
        its = [task for task, one in zip(tasks, chosen, strict=True) if one]
        if patterns == ("host",) and all(task.place[0] < 0 for task in its):  # Not a function of a program of ours.
            return f"the host's work behind {counted(len(its), 'wait')}{self._on}"
        if patterns in (("kernel",), ("copy",), ("set",), ("host",), ("*",)):
            return picked_words(tasks, chosen, patterns) + self._on
        kernels = all(task.rows and task.kind is LaunchKind.KERNEL for task in its)
        count = counted(len(its), "kernel" if kernels else "operation")
        return f"{', '.join(patterns)} ({count}){self._on}"

    def _index(self, number: int) -> int:
        for at, rank in enumerate(self.recorded.ranks):
            if rank.number == number and type(number) is int:
                return at
        known = [str(rank.number) for rank in self.recorded.ranks]
        more = f" and {len(known) - _MOST_ROWS:,} more" if len(known) > _MOST_ROWS else ""
        raise TraceError(f"the job has no rank {shown(number)}", hint=f"it has {', '.join(known[:_MOST_ROWS])}{more}")

    def _changed(self, works: Iterable[RankWork], change: str, *notes: str) -> JobPrediction:
        remarks = (*self.remarks, *(note for note in notes if note not in self.remarks))
        return replace(self, works=tuple(works), changes=(*self.changes, change), remarks=remarks)

    def save(self, path: str | Path) -> Path:
        """Write the prediction to one file or, where the path has no suffix, the predicted job into a folder; return the path.

        Raises
        ------
        OutputError
            The file or folder cannot be written, or its suffix is another than those of `Result.save`.
        """
        target = given_path(path, error=OutputError)
        return super().save(target) if target.suffix and not target.is_dir() else self.job.save(target)

    def to_dict(self) -> dict[str, Any]:
        """Return both jobs beside each other as JSON values: steps, and busy, waiting, transfer and exposed time of each rank in µs."""
        jobs = {"recorded": self.recorded, "replay": self.unchanged, "predicted": self.job}
        each = zip(self.recorded.ranks, self.recorded.times, self.job.times, strict=True)
        found: dict[str, Any] = plain(
            {
                "changes": list(self.changes),
                "length_us": {name: job.length_ns / 1e3 for name, job in jobs.items()},
                "step_us": {name: job.step_us for name, job in jobs.items()},
                "error_bar": self.error_bar,
                "speedup": None if math.isinf(self.speedup) else self.speedup,
                "ranks": [{"rank": rank.number, "recorded": vars(one), "predicted": vars(other)} for rank, one, other in each],
                "notes": list(self.notes),
            }
        )
        return found

    @property
    def title(self) -> str:
        """The job and the changes, in a line."""
        return f"{self.recorded.title}; predicted{': ' + ', '.join(self.changes) if self.changes else ' without a change'}"

    @property
    def verdict(self) -> str:
        """The finding in words."""
        recorded, unchanged, predicted = (time_text(self._time_ns(job)) for job in (self.recorded, self.unchanged, self.job))
        what = "a step" if self._by_steps else "the job"
        if not self.changes:
            return f"{capitalised(what)} takes {recorded} as recorded, and {unchanged} in the replay."
        before = recorded if recorded == unchanged else f"{recorded} as recorded, and {unchanged} in the replay"
        last_us = [each["p95"] for each in (self.job.step_us, self.recorded.step_us)]
        slowest = " instead of ".join(time_text(us * 1e3) for us in last_us if us is not None)
        p95 = f" (p95: {slowest})" if self._by_steps else ""
        between = f". Depending on hosts, that may be {self._between}." if self._hosts_decide else f" (error bar: {self._between})."
        change = f"so the change makes it {_times(self.speedup)}{between}"
        return f"Predicted, not measured: {what} takes {predicted} instead of {before}{p95}, {change}"

    def table_rows(self) -> list[tuple[str, ...]]:
        """Return the table of ranks as texts, under ``heads``."""
        each = zip(self.recorded.ranks, self.recorded.times, self.job.times, strict=True)
        return [
            (str(rank.number), rank.gpu, *map(format_us, (one.waiting_us, other.waiting_us, one.exposed_us, other.exposed_us)))
            for rank, one, other in each
        ]

    def __str__(self) -> str:
        rows = self.table_rows()
        more = [f"and {counted(len(rows) - _MOST_ROWS, 'more rank')}"] if len(rows) > _MOST_ROWS else []
        return "\n".join([self.title, self.verdict, "", *aligned([self.heads, *rows[:_MOST_ROWS]], numbers=True), *more, *self.notes])

    __repr__ = __str__


def _times(speedup: float) -> str:
    return f"{1 / speedup:,.2f} times as slow" if round(speedup, 2) < 1 else f"{speedup:,.2f} times as fast"


def _length_ns(works: Sequence[RankWork], times: Sequence[RankTimes]) -> float:
    """Return the time from the first span of all ranks to the end of the last work."""
    return max(each.last_ns for each in times) - min(work.first_ns for work in works if len(work.trace.spans))


@dataclass(frozen=True)
class JobKernels:
    """Kernels of ranks that were chosen by name; ``picked`` says of each task of each rank whether it is one of them."""

    prediction: JobPrediction
    patterns: tuple[str, ...]
    picked: tuple[Sequence[bool], ...]

    def __len__(self) -> int:
        return sum(map(sum, self.picked))

    def __repr__(self) -> str:
        return f"<JobKernels {', '.join(self.patterns)!r}: {len(self):,}>"

    def scale(self, factor: float) -> JobPrediction:
        """Predict with these taking ``factor`` times as long; of collectives, their transfers.

        Raises
        ------
        TraceError
            The factor is not a number above 0, or makes kernels more than a million times as long.
        """
        prediction, number = self.prediction, checked_factor(factor)
        works = [
            replace(work, tasks=tuple(scaled(work.tasks, each, number))) for work, each in zip(prediction.works, self.picked, strict=True)
        ]
        return prediction._changed(works, f"{prediction._words(self.picked, self.patterns)} × {number:g}")  # noqa: SLF001


@dataclass(frozen=True)
class Collectives:
    """Collectives of one kind of a job."""

    prediction: JobPrediction
    kind: str

    def __repr__(self) -> str:
        return f"<Collectives {self.kind!r}>"

    def bucket(self, size: str | int) -> JobPrediction:
        """Predict with these merged into buckets: as many that follow each other in a communicator as have this size together.

        A bucket begins when its last part is ready on each rank, and takes as long as its parts without the latency of all but one. Parts
        for which something waits before the last one is launched stay apart. None is split: files do not tell when its pieces were ready.

        Parameters
        ----------
        size : str or int
            ``"25 MB"``, ``"32 MiB"``, or bytes.

        Raises
        ------
        TraceError
            The size is not one, or none can be merged.
        """
        limit = size_in_bytes("a bucket", size, error=TraceError)
        prediction, recording = self.prediction, self.prediction.recording
        texts, key_of = recording.job.matched.parts.texts, recording.key_of
        merged_into, reasons = dict[int, int](), dict[str, None]()
        for key in sorted({key for key in key_of.values() if texts[key[0]] == self.kind}):
            found, apart = buckets(prediction.works, {one for one, its in key_of.items() if its == key}, limit)
            merged_into |= found
            reasons |= dict.fromkeys(apart)
        if not any(one != last for one, last in merged_into.items()):
            raise TraceError(
                f"no {self.kind} can be merged into buckets of {shown(size)}",
                hint=f"{'; or '.join(reasons)}; none can be split, since files do not tell when its pieces were ready",
            )
        works = [merged(work, merged_into, recording.latencies_of(work)) for work in prediction.works]
        count = len(set(merged_into.values()))
        matched = recording.job.matched
        larger = np.unique(matched.operation[(matched.parts.nbytes > limit) & np.isin(matched.operation, [*merged_into])])
        said = [_WHOLE.format(counted(len(larger), self.kind, self.kind), shown(size))] if len(larger) else []
        if self.kind in recording.of_one_size():
            said.append(_ONE_SIZE.format(self.kind) + "a bucket takes as long as all its parts")
        return prediction._changed(works, f"{len(merged_into):,} {self.kind} in {counted(count, 'bucket')}", *said)  # noqa: SLF001


def what_if_job(job: Job, rank: int | None = None) -> JobPrediction:
    """Return the prediction of a job without changes; `Job.what_if` describes it."""
    recording = _Recording(job)
    return JobPrediction(recording, recording.works).what_if(rank)
