"""The traces of a job's files: read in this process, or by workers, which leave one Parquet a rank behind for it."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from streamscope.arguments import given_path, shown
from streamscope.errors import OutputError, StreamscopeError, TraceError, described
from streamscope.files import writable_folder
from streamscope.formats.read import read_long
from streamscope.progress import Progress, silent
from streamscope.ranks.rank import SHORT_RANGE_NS, needed, without_work
from streamscope.trace.activities import NoWorkError
from streamscope.trace.foreign import MIXED
from streamscope.trace.format import read_as
from streamscope.trace.info import DeviceInfo, TraceInfo
from streamscope.trace.trace import Trace
from streamscope.words import counted
from streamscope.workers import PROCESSES, Dead, NotLoadedError, UndoneError, in_processes, on_executor

_LEAST_BYTES = 64 << 20
"""Smaller jobs are read before processes have started."""
_COMPRESSED = 10
"""Kineto's JSON is so many times as long as its ``.gz``."""
_LARGEST_KEPT = 31 << 20
"""Bytes: glibc adapts to arrays of less than 32 MiB."""
_MOST_NAMED = 8


@dataclass(frozen=True)
class RankFile:
    """One rank of a file as it was read: its trace, and the rank that the caller or the file names.

    Ranks of one ``recording`` share a clock.
    """

    path: Path
    trace: Trace
    rank: int | None
    note: str = ""
    recording: str | None = None


@dataclass(frozen=True)
class Task:
    """A file to be read, by this process or another; ``rank`` is what the caller says, ``folder`` where its traces are left."""

    path: Path
    rank: int | None
    damaged: Literal["refuse", "skip"]
    folder: Path
    number: int


@dataclass(frozen=True)
class Staged:
    """One rank of a file, left as Parquet."""

    path: Path
    file: Path
    rank: int | None
    note: str
    recording: str | None

    def read(self) -> RankFile:
        """Read the trace back."""
        return RankFile(self.path, read_as("parquet", self.file), self.rank, self.note, self.recording)


def read_files(
    paths: Sequence[Path],
    ranks: Sequence[int | None],
    damaged: Literal["refuse", "skip"],
    executor: Executor | str | None,
    work: str | Path | None,
    progress: Progress,
) -> tuple[list[RankFile], list[Path]]:
    """Read the ranks of files, in their order; also return the files whose reader died twice.

    Raises
    ------
    TraceError
        A file cannot be read: of several, the first. The executor is none, or it failed.
    OutputError
        Nothing can be written to ``work``.
    """
    _keep_freed_memory()
    if not isinstance(executor, Executor | None) and executor != PROCESSES:
        raise TraceError(f"executor={shown(executor)} is not one", hint=f'give a concurrent.futures.Executor, or "{PROCESSES}"')
    if executor is None and not _worth_processes(paths):
        found = list[RankFile]()
        for number, path in enumerate(paths):
            progress(f"reading {path.name}", number, len(paths))
            found += read_file(path, ranks[number], damaged)
        return found, []
    with _stage(work) as folder, ThreadPoolExecutor(1) as beside:
        beside.submit(import_module, "scipy.optimize")  # It takes long, clocks need it, and this process waits now.
        tasks = [Task(path.absolute(), rank, damaged, folder, number) for number, (path, rank) in enumerate(zip(paths, ranks, strict=True))]
        staged = _staged(tasks, executor, progress)
        left_out = [path for path, each in zip(paths, staged, strict=True) if each is None]
        return [one for each in staged for one in each or ()], left_out


def _keep_freed_memory() -> None:
    """Let arrays take the memory of earlier ones: glibc gives less of it back to the system once an array of this size was freed.

    To fetch it anew, page by page, takes a tenth of the time of reading, and a third of that of all that a job tells.
    """
    np.empty(_LARGEST_KEPT, np.uint8)


def read_file(path: Path, rank: int | None, damaged: Literal["refuse", "skip"]) -> list[RankFile]:
    """Read the rank of a file, or its ranks: one for each GPU."""
    try:
        trace = read_long(path, damaged=damaged, progress=silent, least_range_ns=SHORT_RANGE_NS)
    except TraceError as error:
        cause = error.__cause__
        if not isinstance(cause, NoWorkError):
            raise
        job: dict[str, Any] = cause.job
        info = TraceInfo("none", path.name, DeviceInfo("cuda", "no GPU"), "none", notes=(cause.message,), created="", **job)
        return [RankFile(path, without_work(info), info.rank if rank is None else rank)]
    if any(MIXED in note for note in trace.info.notes):
        raise TraceError(
            f"{str(path)!r} holds several ranks that cannot be told apart: work of several processes is on one GPU",
            hint="give the files of the ranks as they were before they were merged",
        )
    trace = needed(trace)
    rank = trace.info.rank if rank is None else rank
    if len(trace.gpus) < 2:
        return [RankFile(path, trace, rank)]
    if rank is not None:
        from streamscope.analysis.gpus import busiest_gpu  # Processes that read start sooner without all of the analysis.

        gpu = busiest_gpu(trace)
        return [RankFile(path, trace.of_gpu(gpu), rank, f"only GPU {gpu} of {len(trace.gpus)}, which has most work")]
    # Into a file of Kineto, ranks of several hosts may have been merged. All other recorders have one clock.
    recording = None if trace.info.recorder == "kineto" else path.name
    return [RankFile(path, trace.of_gpu(gpu), None, recording=recording) for gpu in trace.gpus]


def stage(task: Task) -> list[Staged] | StreamscopeError:
    """Read a file and leave its traces as Parquet. An error is a result: which of several is told does not depend on who is first.

    Workers find this function by its name, so it stands at the top of the module.
    """
    _keep_freed_memory()
    try:
        found = read_file(task.path, task.rank, task.damaged)
        files = [task.folder / f"{task.number}-{place}.parquet" for place in range(len(found))]
        return [
            Staged(one.path, one.trace.to_parquet(file), one.rank, one.note, one.recording) for one, file in zip(found, files, strict=True)
        ]
    except StreamscopeError as error:
        return error


def _staged(tasks: Sequence[Task], executor: Executor | str | None, progress: Progress) -> list[list[RankFile] | None]:
    """Return the ranks of each file as workers have read them; None where the worker died twice. Each is read back while others work."""
    done: dict[int, list[RankFile] | None] = {}
    failed: dict[int, StreamscopeError] = {}
    progress("reading", 0, len(tasks))
    with closing(_by_workers(tasks, executor)) as results:
        for step, (number, result) in enumerate(results, 1):
            if isinstance(result, StreamscopeError):
                failed[number] = result
            else:
                done[number] = None if isinstance(result, Dead) else [one.read() for one in result]
            if failed and all(each in done for each in range(min(failed))):
                raise failed[min(failed)]
            progress(f"read {tasks[number].path.name}", step, len(tasks))
    return [done[number] for number in range(len(tasks))]


def _by_workers(
    tasks: Sequence[Task], executor: Executor | str | None
) -> Generator[tuple[int, list[Staged] | StreamscopeError | Dead], None, None]:
    if isinstance(executor, Executor):
        try:
            yield from on_executor(executor, stage, tasks)
        except UndoneError as error:
            raise TraceError(
                f"the executor failed ({described(error.reason)}) before it had read {counted(len(error.left), 'file')}: "
                f"{names(tasks[number].path.name for number in error.left)}"
            ) from error.reason
        return
    try:
        yield from in_processes(stage, tasks)
    except NotLoadedError as error:
        hint = "call ss.read_ranks under if __name__ == '__main__':; or leave executor= out"
        raise TraceError(f"the files {error}", hint=hint) from error


@contextmanager
def _stage(work: str | Path | None) -> Iterator[Path]:
    """Give a new folder for what workers leave, and remove it at the end: nothing of another job is ever in it."""
    inside = None if work is None else writable_folder(given_path(work, error=OutputError)).absolute()
    try:
        folder = tempfile.TemporaryDirectory(prefix="streamscope-ranks-", dir=inside, ignore_cleanup_errors=True)
    except OSError as error:
        raise OutputError(f"cannot write to {inside or tempfile.gettempdir()}: {error.strerror}", hint="give a folder as work=") from error
    with folder as name:
        yield Path(name)


def _worth_processes(paths: Sequence[Path]) -> bool:
    """Tell whether processes read files sooner. They run a script again that calls this outside of its ``__main__`` block: not unasked."""
    if len(paths) < 2 or _runs_again(sys.modules.get("__main__")):
        return False
    try:
        return sum(path.stat().st_size * (_COMPRESSED if path.suffix == ".gz" else 1) for path in paths) >= _LEAST_BYTES
    except OSError:
        return False  # What is wrong is told where it is opened.


def _runs_again(main: Any) -> bool:
    """Tell whether processes would run the main module: a script, but no notebook, prompt or command line of ours."""
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return not str(spec.name).endswith("__main__")
    is_command = str(getattr(getattr(main, "main", None), "__module__", "")).startswith("streamscope.")
    return hasattr(main, "__file__") and not is_command


def names(some: Iterable[str], most: int = _MOST_NAMED) -> str:
    """Return names in words, and how many more there are."""
    found = list(some)
    return ", ".join(found[:most]) + (f" and {len(found) - most:,} more" if len(found) > most else "")
