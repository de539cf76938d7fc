"""Reads the traces of all ranks of a job, one file at a time: ``ss.read_ranks``."""

from __future__ import annotations

import glob
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from streamscope.arguments import given_path, shown
from streamscope.errors import TraceError
from streamscope.formats.read import is_trace
from streamscope.progress import Progress, showing
from streamscope.ranks.file_names import ranks_of_names
from streamscope.ranks.job import FILE_NAME, Job, saved_files
from streamscope.ranks.rank import Rank
from streamscope.ranks.staging import RankFile, names, read_files
from streamscope.trace.format import NOTES_SUFFIX
from streamscope.trace.info import TraceInfo
from streamscope.trace.trace import Trace
from streamscope.words import counted, listed

_MOST_FILES = 20_000
"""Files of a folder that are looked at."""
_APART_S = 3600.0
"""Recordings of one run began within so many seconds."""
_HOW_TO_NUMBER = 'name them rank0, rank1 and so on, or say which is which: ss.read_ranks({0: "a.json", 1: "b.json"})'
_ONE_RUN = "give the files of one run: a folder, a pattern such as 'run-1/*.json', or a list"

Paths = str | Path | Iterable[str | Path] | Mapping[int, str | Path]


def read_ranks(
    paths: Paths,
    *,
    hosts: Mapping[int, str] | None = None,
    damaged: Literal["refuse", "skip"] = "refuse",
    executor: Executor | str | None = None,
    work: str | Path | None = None,
    progress: bool | Progress = True,
) -> Job:
    """Read the traces of all ranks of a job, and put them on one clock.

    Files may have any format of `ss.read`. The rank of each is in its metadata, else in its name: ``rank3``, ``worker_3``,
    ``trace_3.json``. A file of several GPUs has a rank for each, and so has a file into which several ranks were merged.

    Parameters
    ----------
    paths : str, Path, iterable or mapping
        A folder, a pattern such as ``"traces/*.json.gz"``, a file, several files, or a mapping of ranks to files. A folder of `Job.save`
        gives the job back.
    hosts : mapping of int to str, optional
        Host of each rank, where files do not name it, as Kineto's do not. Ranks of one host share a clock, within 20 µs.
    damaged : {"refuse", "skip"}
        As in `ss.read`: ``"skip"`` reads the whole events of damaged Kineto files, and a warning says so.
    executor : Executor or "processes", optional
        Who reads the files: any `concurrent.futures.Executor`, Dask's ``client.get_executor()`` for example, or two processes. By default
        this process, or two beside it where files are large and no script would have to be run again for that. If a process dies, its
        file is read once more, alone; one that kills a process twice is left out, and a warning names it.
    work : str or Path, optional
        Folder for what workers leave for this process, a Parquet file for each rank. All workers have to see it. It is a temporary one by
        default, and what was written is removed at the end.
    progress : bool or callable
        Show a progress bar, or call ``progress(what, step, steps)``, with a step for each file.

    Returns
    -------
    Job
        It does not depend on the executor. Ranks that are missing or were cut short are named in its ``warnings``, and so are
        files that may be of two jobs.

    Raises
    ------
    TraceError
        No trace is found, or one cannot be read; a rank is there twice; files are of several runs, or of several engines of a comparison;
        or which rank a file is of cannot be told. A collective that ends on one rank before another one has begun it is an error, too:
        clocks or files do not fit. The executor failed: the error names the files that it had not read.
    OutputError
        Nothing can be written to ``work``, or the disk is full.

    Examples
    --------
    >>> function, inputs = ss.workload("data-parallel").build(gpus=2, layers=2, width=256, rows=64)
    >>> trace = ss.compare(function, *inputs, engines=["dual"], gpus=2, device="simulated", progress=False)["dual"].trace
    >>> files = [trace.of_gpu(gpu).to_parquet(f"rank{gpu}.parquet") for gpu in trace.gpus]
    >>> job = ss.read_ranks(files, progress=False)
    >>> [rank.number for rank in job.ranks], job.warnings
    ([0, 1], ())
    """
    given = _Given.of(paths)
    hosts = _checked_hosts(hosts)
    with showing("reading ranks", progress=progress) as step:
        found, died = read_files(given.files, [given.rank_of(path) for path in given.files], damaged, executor, work, step)
        step("matching collectives", len(given.files), len(given.files))
        lost = names(path.name for path in died)
        if not found:
            raise TraceError(f"no rank is left: processes that read {lost} died", hint="did they take more memory than there is?")
        said = [f"left out, since each process that read {_them(died)} died: {lost}"] if died else []
        _check_one_engine(found)
        numbered = _numbered(found)
        _check_one_run(numbered)
        ranks = [
            Rank(
                number,
                one.path.name,
                one.trace,
                hosts.get(number) or one.trace.info.host or None,
                given.recordings.get(one.path, one.recording),
            )
            for number, one in sorted(numbered.items())
        ]
        unknown = [shown(rank) for rank in hosts if rank not in numbered]
        said += [f"not here: {'rank' if len(unknown) == 1 else 'ranks'} {names(unknown)}, which hosts= names"] if unknown else []
        return Job.of(ranks, [*given.warnings, *said, *_warnings(numbered)])


def _checked_hosts(hosts: Any) -> Mapping[int, str]:
    hosts = {} if hosts is None else hosts
    if not isinstance(hosts, Mapping) or not all(type(rank) is int and isinstance(host, str) for rank, host in hosts.items()):
        raise TraceError(f"hosts={shown(hosts)} does not say which ranks are on which host", hint='for example hosts={0: "a", 1: "a"}')
    return hosts


@dataclass(frozen=True)
class _Given:
    """Files to read, in order, with the ranks that the caller gave them."""

    files: Sequence[Path]
    ranks: Mapping[Path, int]
    warnings: Sequence[str] = ()
    recordings: Mapping[Path, str] = field(default_factory=dict)
    """Of files of a saved job that were cut out of one recording: its name."""

    def rank_of(self, path: Path) -> int | None:
        return self.ranks.get(path)

    @classmethod
    def of(cls, paths: Any) -> _Given:
        """Find the files that a caller means.

        Raises
        ------
        TraceError
            There are none, one is given twice, or the argument is no path.
        """
        if isinstance(paths, Mapping):
            wrong = next((rank for rank in paths if type(rank) is not int or rank < 0), None)
            if wrong is not None:
                raise TraceError(f"{shown(wrong)} is no rank", hint="ranks are whole numbers from 0 on")
            files = _some([given_path(path, error=TraceError) for path in paths.values()], "an empty mapping")
            return cls(files, dict(zip(files, paths, strict=True)))
        if isinstance(paths, str | Path):
            path = given_path(paths, error=TraceError)
            saved = path if path.name == FILE_NAME else path / FILE_NAME
            if saved.is_file():
                return cls._of_saved(saved)
            if path.is_dir():
                return cls._of_folder(path)
            if path.exists() or not glob.has_magic(str(path)):
                return cls([path], {})
            files = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207 — it may be absolute.
            return cls(_some([each for each in files if _may_be_trace(each)], f"no file is called {str(path)!r}"), {})
        if not isinstance(paths, Iterable):
            raise TraceError(f"paths={shown(paths)} is neither a path nor several", hint="give a folder, a pattern or a list of files")
        return cls(_some([given_path(path, error=TraceError) for path in paths], "an empty list of files"), {})

    @classmethod
    def _of_saved(cls, index: Path) -> _Given:
        """Return the files that a ``ranks.json`` names, and name traces beside them."""
        saved = saved_files(index)
        files = [each.path for each in saved]
        there = {*index.parent.iterdir()}
        if gone := [path.name for path in files if path not in there]:
            said = f"{str(index)!r} names {counted(len(gone), 'trace')} that {'is' if len(gone) == 1 else 'are'} not there: {names(gone)}"
            raise TraceError(said, hint=f"copy the whole folder that Job.save wrote, or give the others alone: '{index.parent}/*.parquet'")
        inside = sorted(there - {index, *files})[:_MOST_FILES]
        others = [path.name for path in inside if _may_be_trace(path) and is_trace(path)]
        left_out = [f"left out, since {FILE_NAME} does not name {_them(others)}: {names(others)}"] if others else []
        recordings = {each.path: each.recording for each in saved if each.recording is not None}
        return cls(files, {each.path: each.rank for each in saved}, left_out, recordings)

    @classmethod
    def _of_folder(cls, folder: Path) -> _Given:
        """Return the traces of a folder; of its folders, where it has none itself."""
        inside = sorted(each for each in folder.iterdir() if each.is_file() and _may_be_trace(each))[:_MOST_FILES]
        files = [each for each in inside if is_trace(each)]
        if not files:
            deeper = sorted(Path(place, name) for place, _, names in os.walk(folder) if Path(place) != folder for name in names)
            files = [each for each in deeper[:_MOST_FILES] if is_trace(each)]
            inside = []
        left_out = [each.name for each in inside if each not in files and each.suffix in _LIKE_TRACES]
        said = [f"left out, since no format knows {_them(left_out)}: {names(left_out)}"] if left_out else []
        return cls(_some(files, f"no trace is in the folder {str(folder)!r}"), {}, said)


_LIKE_TRACES = frozenset({".json", ".gz", ".parquet", ".sqlite", ".db", ".pb"})


def _may_be_trace(path: Path) -> bool:
    """Tell by the name alone; a reader's notes lie beside the file that they are on."""
    return not path.is_dir() and not path.name.endswith(NOTES_SUFFIX)


def _them(some: Sequence[object]) -> str:
    return "it" if len(some) == 1 else "them"


def _some(files: list[Path], why: str) -> list[Path]:
    if not files:
        raise TraceError(f"there are no ranks to read: {why}", hint="give a folder, a pattern or a list of files")
    path, times = Counter(path.resolve() for path in files).most_common(1)[0]
    if times > 1:
        raise TraceError(f"{path.name!r} is given {times} times", hint="each rank has a recording of its own")
    return files


def _numbered(found: Sequence[RankFile]) -> dict[int, RankFile]:
    """Return the file of each rank: by its metadata, else by the names of files, else by the order of the GPUs of one file."""
    unknown = [one for one in found if one.rank is None]
    called = [str(one.path) for one in unknown]
    several = max(Counter(called).values(), default=0) > 1
    if not unknown:
        numbers: list[int] | None = []
    elif several:
        numbers = list(range(len(unknown))) if len(unknown) == len(found) else None
    else:
        numbers = ranks_of_names(called)
        numbers = [0] if numbers is None and len(found) == 1 else numbers
    if numbers is None:
        raise TraceError(f"which rank is which cannot be told: {names([one.path.name for one in unknown])}", hint=_HOW_TO_NUMBER)
    given = dict(zip(map(id, unknown), numbers, strict=True))
    ranks: dict[int, list[RankFile]] = {}
    for one in found:
        ranks.setdefault(given[id(one)] if one.rank is None else one.rank, []).append(one)
    twice = {rank: files for rank, files in ranks.items() if len(files) > 1}
    if twice:
        rank, files = min(twice.items())
        more = f", and {counted(len(twice) - 1, 'more rank')} also" if len(twice) > 1 else ""
        raise TraceError(f"rank {rank} is there {len(files)} times: {names(_told_apart(files))}{more}", hint=_ONE_RUN)
    return {rank: files[0] for rank, files in ranks.items()}


def _check_one_engine(found: Sequence[RankFile]) -> None:
    """Refuse runs of several engines, as `compare` leaves them in its folder. Traces of other programs have no engine."""
    files: dict[str, str] = {}
    for one in found:
        info = one.trace.info
        if len(one.trace.spans) and info.engine not in (info.recorder, "recorded"):
            files.setdefault(info.engine, str(one.path))
    if len(files) > 1:
        raise TraceError(
            f"these are runs of several engines of one comparison: {names(files)}",
            hint=f"give the files of one of them, for example {next(iter(files.values()))!r}",
        )


def _told_apart(files: Sequence[RankFile]) -> list[str]:
    """Return the names of files, with their folders where the names alone are the same."""
    called = [one.path.name for one in files]
    return called if len(set(called)) == len(called) else ["/".join(one.path.parts[-2:]) for one in files]


def _check_one_run(numbered: Mapping[int, RankFile]) -> None:
    """Refuse files of several runs: of jobs of several sizes, recorded at other times, simulated and measured, or one recording twice."""
    sizes = {one.trace.info.world_size for one in numbered.values()} - {None}
    if len(sizes) > 1:
        told = [
            names([one.path.name for one in numbered.values() if one.trace.info.world_size == size], 2) for size in sorted(sizes, key=str)
        ]
        raise TraceError(
            f"the files are of several runs: of jobs of {listed([str(size) for size in sorted(sizes, key=str)])} ranks ({'; '.join(told)})",
            hint=_ONE_RUN,
        )
    size = next(iter(sizes), None)
    if size is not None and max(numbered) >= size:
        raise TraceError(
            f"{numbered[max(numbered)].path.name!r} is rank {max(numbered)}, and the job has {counted(size, 'rank')}", hint=_ONE_RUN
        )
    working = {rank: one for rank, one in numbered.items() if len(one.trace.spans)}
    kinds = {one.trace.info.device.simulated for one in working.values()}
    if len(kinds) > 1:
        raise TraceError("some of the ranks are simulated and some are measured", hint=_ONE_RUN)
    begun = sorted((at, rank) for rank, one in working.items() if (at := _created_s(one.trace.info)) is not None)
    for (before_s, before), (after_s, after) in pairwise(begun):
        if after_s - before_s > _APART_S + _length_s(numbered[before].trace):
            first, second = (numbered[rank].path.name for rank in (before, after))
            hours = f"{(after_s - before_s) / 3600:,.1f} hours"
            raise TraceError(f"the files are of several runs: {second!r} was recorded {hours} after {first!r}", hint=_ONE_RUN)
    _check_different(working)


def _created_s(info: TraceInfo) -> float | None:
    try:
        return datetime.fromisoformat(info.created).timestamp()
    except (ValueError, OverflowError):
        return None


def _length_s(trace: Trace) -> float:
    return float(trace.spans.end_ns.max(initial=0)) / 1e9


def _check_different(numbered: Mapping[int, RankFile]) -> None:
    """Refuse one recording under two names: no two ranks run alike to the nanosecond. Those of a model may, but in files that differ."""
    known: dict[tuple[int, ...] | bytes, int] = {}
    for rank, one in numbered.items():
        spans = one.trace.spans
        key: tuple[int, ...] | bytes = (len(spans), int(spans.start_ns.sum()), int(spans.end_ns.sum()))
        if one.trace.info.device.simulated:
            with one.path.open("rb") as file:
                key = hashlib.file_digest(file, "sha256").digest()
        first = numbered[known.setdefault(key, rank)]
        before = first.trace.spans
        if len(spans) < 2 or first.path == one.path:
            continue
        if np.array_equal(before.start_ns, spans.start_ns) and np.array_equal(before.end_ns, spans.end_ns):
            both = names(_told_apart([first, one]))
            raise TraceError(f"ranks {known[key]} and {rank} are one recording under two names: {both}", hint=_ONE_RUN)


def _warnings(numbered: Mapping[int, RankFile]) -> list[str]:
    """Name ranks that are missing, given another number than their file has, without work, or damaged."""
    size = next((one.trace.info.world_size for one in numbered.values() if one.trace.info.world_size is not None), None)
    missing = sorted(set(range(size if size is not None else max(numbered) + 1)) - set(numbered))
    said = []
    if missing:
        them = "ranks" if len(missing) > 1 else "rank"
        said.append(f"missing: {them} {names([str(rank) for rank in missing])}; time in which others wait for it counts as transfer")
    for rank, one in sorted(numbered.items()):
        own = one.trace.info.rank
        if own is not None and own != rank:
            said.append(f"{one.path.name} is given as rank {rank}, and says that it is rank {own}")
        if not len(one.trace.spans):
            said.append(f"rank {rank} has no work of a GPU ({one.path.name})")
        damage = [note for note in one.trace.info.notes if any(word in note for word in _DAMAGE)]
        if damage or one.trace.info.ledger.get("lost_records"):
            said.append(f"rank {rank} is not whole ({one.path.name}): {'; '.join(damage) or 'its recorder lost records'}")
        said += [f"rank {rank}: {one.note}"] if one.note else []
    return said


_DAMAGE = ("damaged", "the file ends at", "without an end")
