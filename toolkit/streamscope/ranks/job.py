"""A job: the traces of its ranks on one clock, and what they tell together."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.analysis.intervals import union
from streamscope.analysis.work import work_split
from streamscope.arguments import given_path, shown
from streamscope.arrays import FloatArray
from streamscope.errors import OutputError, TraceError
from streamscope.files import filled_whole
from streamscope.ranks.clocks import Clocks, clocks_of
from streamscope.ranks.critical_path import JobPath, path_of
from streamscope.ranks.imbalance import imbalance_of
from streamscope.ranks.late import PACES, Late, late_ranks
from streamscope.ranks.matching import BOTH_WAYS, Matched, matched
from streamscope.ranks.merged import merged_trace
from streamscope.ranks.rank import Rank
from streamscope.ranks.steps import JobSteps, steps_of
from streamscope.ranks.two_jobs import FAR_S, TIME_OF_DAY_NS, named, of_two_jobs
from streamscope.ranks.waiting import Waits, bus_bandwidths, waits_of
from streamscope.results import views
from streamscope.results.result import Result, save_table
from streamscope.results.widgets import Timeline
from streamscope.trace.file_checks import file_errors, is_count, named_values, plain, read_content, with_digest
from streamscope.trace.spans import SpanKind
from streamscope.trace.trace import Trace
from streamscope.words import aligned, counted, format_us, listed, percent, shortened_inside, time_text

if TYPE_CHECKING:
    import pandas as pd

    from streamscope.ranks.what_if import JobPrediction

FILE_NAME = "ranks.json"
_CUT_SHORT = 0.1
"""A recording that ends before the others by this part of their length is called cut short."""
_MOST_ROWS = 16
_SMALL = 0.01
_LONGEST_NAME = 60
PATH_HEADS = ("rank", "bound", "where", "under", "µs", "share")
RANK_HEADS = ("rank", "GPU", "offset, µs", "± µs", "busy, µs", "waiting, µs", "transfer, µs", "exposed, µs")


@dataclass(frozen=True)
class RankTimes:
    """Times of one rank, in µs.

    Attributes
    ----------
    busy_us : float
        Union of its kernels.
    waiting_us, transfer_us : float
        Sums over its collectives whose parts are all there: until the last rank began, and from then on.
    exposed_us : float
        Time with communication and no other kernel, waiting included.
    """

    busy_us: float
    waiting_us: float
    transfer_us: float
    exposed_us: float


@dataclass(frozen=True, repr=False)
class Job(Result):
    """The ranks of a job on one clock, as `ss.read_ranks` reads them.

    Attributes
    ----------
    ranks : tuple of Rank
        In the order of their numbers.
    matched : Matched
        Which parts of collectives are one operation.
    clocks : Clocks
        How the clocks of the ranks differ, and how sure that is.
    base_ns : int
        Zero of the times in ``matched`` and ``clocks``, on the clocks of the recorders.
    warnings : tuple of str
        Ranks that are missing or cut short, collectives that were left out, clocks that nothing joins.

    Examples
    --------
    >>> function, inputs = ss.workload("data-parallel").build(gpus=2, layers=2, width=256, rows=64)
    >>> runs = ss.compare(function, *inputs, engines=["graph-dual"], gpus=2, device="simulated", progress=False)
    >>> job = ss.read_ranks(runs["graph-dual"].trace.to_parquet("step.parquet"), progress=False)
    >>> len(job.ranks), job.to_dict()["collectives"]
    (2, {'matched': 2, 'unmatched': 0, 'by': {'sequence': 2}})
    """

    view = "ranks"

    ranks: tuple[Rank, ...]
    matched: Matched
    clocks: Clocks
    base_ns: int = 0
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, ranks: Sequence[Rank], warnings: Sequence[str] = ()) -> Job:
        """Match the collectives of ranks, and put their clocks together.

        Raises
        ------
        TraceError
            No offset of clocks fits the times.
        """
        base_ns = min((rank.zero_ns for rank in ranks if len(rank.trace.spans)), default=0)
        found = matched(ranks, base_ns)
        job = cls(tuple(ranks), found, clocks_of(ranks, found), base_ns)
        two = of_two_jobs(ranks, found)
        warnings = [two, *warnings] if two else warnings
        return replace(
            job,
            warnings=(
                *warnings,
                *job._apart("" if two else " (hosts= names shared hosts)"),
                *job._far_off(),
                *job._cut_short(),
                *job._both_ways(),
                *found.left_out,
            ),
        )

    @property
    def simulated(self) -> bool:
        """Whether its times come from a model."""
        return any(rank.trace.info.device.simulated for rank in self.ranks)

    @cached_property
    def waits(self) -> Waits:
        """Waiting and transfer of each part of a collective."""
        return waits_of(self.ranks, self.matched, self.clocks)

    @cached_property
    def steps(self) -> JobSteps:
        """Steps of the job; none where nothing tells them."""
        return steps_of(self.ranks, self.matched, self.clocks, self.waits, self.base_ns)

    @property
    def late(self) -> tuple[Late, ...]:
        """Ranks that make collectives late, and why; worst first."""
        return tuple(each for each in self._late_and_paced if each.cause not in PACES)

    @cached_property
    def _late_and_paced(self) -> tuple[Late, ...]:
        """Late ranks, with those that are late by their hosts' pace alone."""
        return late_ranks(self.ranks, self.matched, self.clocks, self.waits, self.steps, self.length_ns)

    @property
    def length_ns(self) -> float:
        """From the first work on any rank to the end of the last one, in ns."""
        begin_ns, end_ns = self._extents_ns
        return float(end_ns.max() - begin_ns.min()) if len(begin_ns) else 0.0

    @cached_property
    def path(self) -> JobPath:
        """Critical path through all ranks, over the whole recording."""
        return path_of(self.ranks, self.matched, self.clocks, self.waits, self.base_ns)

    @cached_property
    def times(self) -> tuple[RankTimes, ...]:
        """Busy, waiting, transfer and exposed communication of each rank."""
        found = []
        for at, rank in enumerate(self.ranks):
            spans, own = rank.trace.spans, self.matched.parts.rank == at
            kernels = spans.kind == SpanKind.KERNEL
            busy_ns = union(spans.start_ns[kernels], spans.end_ns[kernels]).length_ns
            exposed_ns = work_split(rank.trace).exposed_communication_ns if kernels.any() else 0
            waiting_ns, transfer_ns = (float(column[own].sum()) for column in (self.waits.waiting_ns, self.waits.transfer_ns))
            found.append(RankTimes(busy_ns / 1e3, waiting_ns / 1e3, transfer_ns / 1e3, exposed_ns / 1e3))
        return tuple(found)

    @cached_property
    def _extents_ns(self) -> tuple[FloatArray, FloatArray]:
        """When the first and the last work of each rank begins and ends, on the job's clock; of ranks that have work."""
        begins, ends = list[float](), list[float]()
        for at, rank in enumerate(self.ranks):
            work, shift_ns = rank.work, float(rank.zero_ns - self.base_ns)
            if len(work):
                spans = rank.trace.spans
                begins.append(float(self.clocks.job_ns(at, spans.start_ns[work].min() + shift_ns)))
                ends.append(float(self.clocks.job_ns(at, spans.end_ns[work].max() + shift_ns)))
        return np.array(begins), np.array(ends)

    def _apart(self, hint: str) -> list[str]:
        """Name the groups of ranks whose clocks nothing joins."""
        groups: dict[int, list[int]] = {}
        for rank, group in zip(self.ranks, self.clocks.group.tolist(), strict=True):
            if len(rank.trace.spans):
                groups.setdefault(group, []).append(rank.number)
        if len(groups) < 2:
            return []
        told = [named(each) for each in groups.values()]
        more = f" and {counted(len(told) - _MOST_ROWS, 'more group')}" if len(told) > _MOST_ROWS else ""
        return [f"nothing joins the clocks of {listed(told[:_MOST_ROWS])}{more}: their times are not compared{hint}"]

    def _far_off(self) -> list[str]:
        """Name ranks whose clocks are further off than those of hosts: of another run, perhaps, whose collectives happen to fit."""
        off_ns = np.where([rank.zero_ns > TIME_OF_DAY_NS for rank in self.ranks], self.clocks.offset_ns, np.nan)
        found = [
            f"the clock of rank {self.ranks[at].number} is {time_text(abs(off_ns[at] - off_ns[first]))} off: is its file of another run?"
            for first in np.unique(self.clocks.group, return_index=True)[1].tolist()
            for at in np.flatnonzero(
                (self.clocks.group == self.clocks.group[first]) & (np.abs(off_ns - off_ns[first]) > FAR_S * 1e9)
            ).tolist()
        ]
        return found[:_MOST_ROWS]

    def _cut_short(self) -> list[str]:
        """Name ranks whose recording ends early."""
        working = [at for at, rank in enumerate(self.ranks) if len(rank.work)]
        joined = [place for place, at in enumerate(working) if self.clocks.group[at] == self.clocks.group[working[0]]] if working else []
        begin_ns, end_ns = (each[joined] for each in self._extents_ns)
        if len(joined) < 2:
            return []
        length_ns, usual_ns = float(np.median(end_ns - begin_ns)), float(np.median(end_ns))
        early = [
            (self.ranks[working[place]].number, usual_ns - end_ns[number])
            for number, place in enumerate(joined)
            if usual_ns - end_ns[number] > _CUT_SHORT * length_ns and self.ranks[working[place]].recording is None
        ]
        return [
            f"rank {rank} ends {time_text(early_ns)} before the others: is its file cut short?" for rank, early_ns in early[:_MOST_ROWS]
        ]

    def _both_ways(self) -> list[str]:
        """Tell how many messages do not say which way they went."""
        rows = self.matched.parts.is_kind(BOTH_WAYS) & (self.matched.operation >= 0)
        count = len(np.unique(self.matched.operation[rows]))
        told = f"{counted(count, 'message')} without a direction: they join no clocks, and no rank is called late in them"
        return [told] if count else []

    @property
    def typical_step(self) -> int | None:
        """Which step has the median length, of two in the middle the shorter one; None where no steps are known."""
        order = np.argsort(self.steps.length_ns, kind="stable")
        return int(order[(len(order) - 1) // 2]) if len(order) else None

    @property
    def step_us(self) -> dict[str, float | None]:
        """``median``, of the `typical_step`, and ``p95`` of the lengths of steps, in µs; None where no steps are known."""
        typical, lengths_us = self.typical_step, self.steps.length_ns / 1e3
        if typical is None:
            return {"median": None, "p95": None}
        return {"median": float(lengths_us[typical]), "p95": float(np.percentile(lengths_us, 95))}

    def path_of_step(self, step: int | None = None) -> list[dict[str, Any]]:
        """Return the critical path through all ranks within one step, the longest part first; it adds up to the step.

        A part has its ``rank``, its ``kind`` (kernels, host, launches, gaps), ``where`` (a name), ``under`` (a module or range), ``us`` and
        ``share``.

        Parameters
        ----------
        step : int, optional
            By default the one of median length; the whole recording, where no steps are known.

        Raises
        ------
        TraceError
            The job has no such step.
        """
        if step is not None and step not in range(len(self.steps)):
            last = f", 0 to {len(self.steps) - 1:,}" if len(self.steps) else ""
            raise TraceError(f"the job has no step {shown(step)}", hint=f"it has {counted(len(self.steps), 'step')}{last}")
        step = self.typical_step if step is None else step
        path = self.path
        if step is None:
            return path.rows(self.ranks)
        begin_ns, end_ns = float(self.steps.begin_ns[step]), float(self.steps.end_ns[step])
        rows = path.within(begin_ns, end_ns).rows(self.ranks)
        rest_us = (round(end_ns) - round(begin_ns)) / 1e3 - sum(row["us"] for row in rows)
        whole_us = max(1e-3, (round(end_ns) - round(begin_ns)) / 1e3)
        rows = [row | {"share": row["us"] / whole_us} for row in rows]
        unexplained = {"rank": None, "kind": "unexplained", "where": "", "under": "", "us": rest_us, "share": rest_us / whole_us}
        return [*rows, unexplained] if rest_us > 5e-4 else rows

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict, offsets, times, collectives, late ranks, critical path and steps as JSON values; unknown ones are None.

        ``offset_us`` is how far a rank's clock is ahead of the first rank's, in the middle of the recording, and ``offset_error_us`` half
        the width of the interval that is certain. ``matched`` counts each collective once. ``critical_path`` is that of a step of median
        length.
        """
        by = Counter(how for how, whole in zip(self.matched.by, self.matched.whole.tolist(), strict=True) if whole)
        found: dict[str, Any] = plain(
            {
                "verdict": self.verdict,
                "ranks": [self._rank_values(at) for at in range(len(self.ranks))],
                "collectives": {"matched": int(self.matched.whole.sum()), "unmatched": self.matched.unmatched, "by": dict(by)},
                "late": [each.to_dict() for each in self.late],
                "critical_path": self.path_of_step(),
                "step_us": self.step_us,
                "warnings": list(self.warnings),
            }
        )
        return found

    def _rank_values(self, at: int) -> dict[str, Any]:
        rank, times, clocks = self.ranks[at], self.times[at], self.clocks
        joined = clocks.group[at] == clocks.group[0]
        error_us = float(clocks.error_ns[at]) / 1e3
        return {
            "rank": rank.number,
            "host": rank.host,
            "gpu": rank.gpu,
            "offset_us": 0.0 - float(clocks.offset_ns[at]) / 1e3 if joined else None,
            "offset_error_us": error_us if joined and np.isfinite(error_us) else None,
            "drift_ppm": 0.0 - float(clocks.drift[at]) * 1e6 if joined else None,
            "busy_us": times.busy_us,
            "waiting_us": times.waiting_us,
            "transfer_us": times.transfer_us,
            "exposed_us": times.exposed_us,
        }

    def to_pandas(self) -> pd.DataFrame:
        """Return the collectives as a DataFrame: a row for each rank that takes part, with its waiting and transfer in µs.

        ``operation`` is -1, and the times are NaN, of what was not matched. ``bus_gbs`` is the bus bandwidth of the operation in GB/s.
        """
        import pandas as pd

        parts, waits = self.matched.parts, self.waits
        numbers = np.array([rank.number for rank in self.ranks], np.int64)
        known = waits.known
        speeds = np.append(bus_bandwidths(self.matched, waits), np.nan)

        def us(column: FloatArray) -> FloatArray:
            return np.where(known, column / 1e3, np.nan)

        return pd.DataFrame(
            {
                "operation": self.matched.operation,
                "rank": numbers[parts.rank],
                "kind": [parts.texts[code] for code in parts.kind.tolist()],
                "communicator": [parts.texts[code] for code in parts.communicator.tolist()],
                "sequence": parts.sequence,
                "bytes": parts.nbytes,
                "start_us": waits.start_ns / 1e3,
                "end_us": waits.end_ns / 1e3,
                "waiting_us": us(waits.waiting_ns),
                "exposed_waiting_us": us(waits.exposed_ns),
                "transfer_us": us(waits.transfer_ns),
                "error_us": us(waits.error_ns),
                "last_rank": np.where(known, numbers[parts.rank[waits.last]], -1),
                "bus_gbs": speeds[self.matched.operation],
            }
        )

    def trace(self, ranks: Sequence[int] | None = None) -> Trace:
        """Return all ranks as one trace on one clock: rank 3 is GPU 3, and parts that were matched are one collective.

        Its `Trace.timeline` shows who waited for whom; `Trace.to_perfetto` and `Trace.to_kineto` write one file of all ranks.

        Parameters
        ----------
        ranks : sequence of int, optional
            Some of them, where all together are too many for a timeline. By default all.

        Raises
        ------
        TraceError
            There is no such rank, none of them has work of a GPU, or there are more spans than a trace keeps.

        Examples
        --------
        >>> function, inputs = ss.workload("data-parallel").build(gpus=2, layers=2, width=256, rows=64)
        >>> runs = ss.compare(function, *inputs, engines=["graph-dual"], gpus=2, device="simulated", progress=False)
        >>> job = ss.read_ranks(runs["graph-dual"].trace.to_parquet("step.parquet"), progress=False)
        >>> job.trace().gpus
        (0, 1)
        """
        return merged_trace(self, ranks)

    def timeline(self, ranks: Sequence[int] | None = None) -> Timeline:
        """Return the live timeline of ranks on one axis, above it a map of all ranks and steps; `trace` has the parameters and the errors.

        By default of all ranks, if they are eight at most; else of those that are late, and those that wait most. A cell of the map leads
        to the collective that makes it, and shows its ranks.
        """
        return views.timeline(self, ranks)

    def waiting_by_step(self) -> FloatArray:
        """Return how long each rank waits in collectives in each step, in µs: an array of ranks by steps.

        Where no steps are known, the whole recording is one.
        """
        steps = self.steps.at(self.waits.start_ns) if len(self.steps) else np.zeros(len(self.waits.start_ns), np.int64)
        found = np.zeros((len(self.ranks), max(1, len(self.steps))))
        inside = steps >= 0
        np.add.at(found, (self.matched.parts.rank[inside], steps[inside]), self.waits.waiting_ns[inside] / 1e3)
        return found

    def imbalance(self, most: int = 20) -> list[dict[str, Any]]:
        """Return the kernels whose time differs most between ranks; `imbalance_of` describes it."""
        return imbalance_of(self.ranks)[:most]

    def what_if(self, rank: int | None = None) -> JobPrediction:
        """Predict the job with changes: a repaired rank, faster links, merged collectives, no overlap, other kernels.

        All ranks are replayed together. The prediction without changes is the replay of the recording.

        Parameters
        ----------
        rank : int, optional
            The rank that `JobPrediction.like`, ``kernel`` and ``without`` change; by default all.

        Raises
        ------
        TraceError
            The job has no such rank, or more than a million kernels, copies and sets.

        Examples
        --------
        >>> function, inputs = ss.workload("data-parallel").build(gpus=2, layers=2, width=256, rows=64)
        >>> runs = ss.compare(function, *inputs, engines=["graph-dual"], gpus=2, device="simulated", progress=False)
        >>> job = ss.read_ranks(runs["graph-dual"].trace.to_parquet("step.parquet"), progress=False)
        >>> round(job.what_if().speedup, 2), job.what_if().link(scale=2).speedup > 1
        (1.0, True)
        """
        from streamscope.ranks.what_if import what_if_job

        return what_if_job(self, rank)

    @property
    def title(self) -> str:
        """What it is, in a line."""
        gpus = Counter(re.sub(r"^GPU \d+$", "GPU", rank.gpu) for rank in self.ranks)  # Files without names have numbers.
        marked = ": all times are simulated" if self.simulated else ""
        return f"{counted(len(self.ranks), 'rank')} · {listed([f'{count:,} × {name}' for name, count in gpus.most_common(3)])}{marked}"

    @property
    def verdict(self) -> str:
        """The finding in words: who made collectives late, and why."""
        if self.late:
            first = self.late[0]
            told = first.words
            typical = self.typical_step
            if typical is not None and first.share_of_step:
                step_ns = float(self.steps.length_ns[typical])
                told += (
                    f" Without that, a step takes about {time_text(step_ns * (1 - first.share_of_step))} instead of {time_text(step_ns)}."
                )
            return told
        if self._late_and_paced:
            first = self._late_and_paced[0]
            return f"No rank is late by what it does{', but by the pace of its host' * (first.cause == 'pace')}. {first.words}"
        if not self.matched.whole.any():
            return "No collective is in the traces of several ranks, so nothing tells who waited for whom."
        if self.matched.parts.is_kind(BOTH_WAYS)[self.matched.operation >= 0].all():
            return "Messages do not say which way they went, so nothing tells who waited for whom."
        return "No rank makes the others wait: what they wait is within the usual scatter."

    @property
    def further(self) -> tuple[str, ...]:
        """Sentences on more ranks, behind the verdict: those that are late, then those whose hosts are slow."""
        paced = [each for each in self._late_and_paced if each.cause in PACES]
        return tuple(each.words for each in (*self.late, *paced)[1:])

    def table_rows(self) -> list[tuple[str, ...]]:
        """Return the table of ranks as texts, under `RANK_HEADS`. Views show some rows of many: there, late ranks come first."""
        rows = []
        late = {each.rank for each in self.late} if len(self.ranks) > _MOST_ROWS else ()
        for at, rank in sorted(enumerate(self.ranks), key=lambda one: one[1].number not in late):
            values = self._rank_values(at)
            offset, error = values["offset_us"], values["offset_error_us"]
            clock = ("?" if offset is None else format_us(offset), "?" if error is None else format_us(error))
            times = (format_us(values[name]) for name in ("busy_us", "waiting_us", "transfer_us", "exposed_us"))
            rows.append((str(rank.number), rank.gpu, *clock, *times))
        return rows

    def path_cells(self, most: int) -> list[tuple[str, ...]]:
        """Return the parts of the typical step's critical path that are 1 % of it at least, as texts under `PATH_HEADS`."""
        rows = [row for row in self.path_of_step() if row["share"] >= _SMALL][:most]
        return [
            (
                "" if row["rank"] is None else str(row["rank"]), row["kind"], shortened_inside(row["where"], _LONGEST_NAME),
                shortened_inside(row["under"], _LONGEST_NAME), format_us(row["us"]), percent(row["share"]),
            )
            for row in rows
        ]  # fmt: skip

    def save(self, path: str | Path) -> Path:
        """Write the job to one file or, where the path has no suffix, into a folder; return the path.

        The folder gets ``ranks.json`` and a Parquet trace for each rank, and `ss.read_ranks` reads it.

        Parameters
        ----------
        path : str or Path
            A folder, or a file whose suffix says the form: ``.html``, ``.pdf``, ``.md``, ``.json`` (`to_dict`), ``.csv`` or ``.parquet``
            (`to_pandas`); or ``.pftrace`` or ``.json.gz``: all ranks as one trace, for Perfetto.

        Raises
        ------
        OutputError
            The file or folder cannot be written, or its suffix is another.
        """
        target = given_path(path, error=OutputError)
        if target.suffix and not target.is_dir():
            return super().save(target)
        with filled_whole(target, last=FILE_NAME, older=_older_files) as unfinished:
            files: dict[str, dict[str, Any]] = {}
            for rank in self.ranks:
                name = f"rank{rank.number}.parquet"
                info = replace(rank.trace.info, rank=rank.number, host=rank.host or "")
                replace(rank.trace, info=info).to_parquet(unfinished / name)
                files[name] = {"rank": rank.number, "recording": rank.recording}
            content = with_digest(self.to_dict() | {"files": files})
            (unfinished / FILE_NAME).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return target

    def writers(self) -> dict[str, Callable[[Path], Path]]:
        """Return the functions that write the job, each by the suffix of its files."""
        tables = dict.fromkeys((".csv", ".parquet"), lambda path: save_table(self.to_pandas(), path))
        return super().writers() | tables | dict.fromkeys((".pftrace", ".perfetto-trace", ".json.gz"), lambda path: self.trace().save(path))

    def __str__(self) -> str:
        rows = [RANK_HEADS, *self.table_rows()[:_MOST_ROWS]]
        more = [f"and {counted(len(self.ranks) - _MOST_ROWS, 'more rank')}"] if len(self.ranks) > _MOST_ROWS else []
        return "\n".join([self.title, self.verdict, "", *aligned(rows, numbers=True), *more, *self.warnings])

    __repr__ = __str__


def _older_files(folder: Path) -> set[str]:
    """Return the names of the files of a job in a folder, which go when another one takes its place."""
    path = folder / FILE_NAME
    if not path.exists():
        return set()
    try:
        return {each.path.name for each in saved_files(path)}
    except TraceError as error:
        raise OutputError(f"{path} exists and is no job of ours: it stays", hint="choose another folder, or move the file away") from error


@dataclass(frozen=True)
class SavedFile:
    """The file of a rank in the folder of a job."""

    path: Path
    rank: int
    recording: str | None


def saved_files(path: Path) -> list[SavedFile]:
    """Return the files of the ranks that a ``ranks.json`` names.

    Raises
    ------
    TraceError
        It is damaged, or of another program.
    """
    with file_errors(path, hint="read the folder of Job.save", what=FILE_NAME):
        found = []
        for name, values in named_values(read_content(path)["files"]).items():
            rank, recording = (named_values(values)[key] for key in ("rank", "recording"))
            if Path(name).name != name or not is_count(rank) or not (recording is None or isinstance(recording, str)):
                raise ValueError(f"{shown(name)} is not the file of a rank")
            found.append(SavedFile(path.parent / name, rank, recording))
        if not found:
            raise ValueError("it names no files")
        return found
