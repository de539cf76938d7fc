"""Finds the format of a file by its content, and reads it: ``ss.read``."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from streamscope.arguments import given_path, shown, whole_number
from streamscope.errors import TraceError, printable
from streamscope.formats import compressed
from streamscope.formats.compressed import Decompressed
from streamscope.formats.notes_file import with_notes_beside
from streamscope.formats.unsupported import check_start, hint_of
from streamscope.progress import Progress, showing
from streamscope.trace.activities import ON_DEVICE, no_work_of
from streamscope.trace.file_checks import check_ordinary, file_errors
from streamscope.trace.format import FORMATS, MOST_FILE_BYTES, Format, ReadOptions
from streamscope.trace.trace import Trace
from streamscope.words import counted, listed

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LARGE_FILE_BYTES = 8 << 20
"""A smaller file is read before a bar would be seen."""
_DAMAGED = ("refuse", "skip")
"""Values of ``damaged``: refuse the file, or skip damaged events."""
_MOST_LOOKED_AT = 200
"""Files of a folder."""
_START_BYTES = 1 << 12
"""Length of a file's start, decompressed, by which its format is recognised."""
_BUFFER_BYTES = 1 << 20
"""Progress is told as often."""


def read(
    path: str | Path, gpu: int | None = None, *, damaged: Literal["refuse", "skip"] = "refuse", progress: bool | Progress = True
) -> Trace:
    """Read a trace that Streamscope or another profiler recorded.

    The content says the format, not the name: Kineto JSON (PyTorch's profiler), an SQLite export of Nsight Systems, rocprofv3's rocpd,
    JAX's XPlane, Parquet of `Trace.to_parquet`, or a format that another package added. The file may be compressed with gzip.

    Parameters
    ----------
    path : str or Path
    gpu : int, optional
        Which GPU, where the file has several; a note counts the rest. By default all are read: `Trace.gpus` lists them, and a note says so.
    damaged : {"refuse", "skip"}
        Treatment of Kineto JSON that is damaged or ends too early. ``"skip"`` reads the events that are whole, and a note counts the
        others. Databases and Parquet are whole or refused.
    progress : bool or callable
        Show a progress bar while a file of more than 8 MiB is read, or call ``progress(what, done, whole)`` with bytes of any file. Of a
        database, only the start is told.

    Returns
    -------
    Trace
        ``info.notes`` list oddities, skipped events and unknown facts. Its zero is the first call of the CUDA or HIP runtime.
        ``user_notes`` are those that `Trace.save_notes` wrote beside the file.

    Raises
    ------
    TraceError
        The file is missing, damaged, of another format, or holds no work of a GPU, or of that GPU; or ``gpu`` is not a whole number.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)
    >>> trace = ss.read(runs["async"].trace.to_parquet("step.parquet"))
    >>> trace.info.engine, len(trace.spans) == len(runs["async"].trace.spans)
    ('async', True)
    """
    return read_long(path, gpu, damaged=damaged, progress=progress, least_range_ns=0)


def read_long(
    path: str | Path, gpu: int | None = None, *, damaged: Literal["refuse", "skip"], progress: bool | Progress, least_range_ns: int
) -> Trace:
    """Read a trace as `read` does, perhaps without shorter ranges of the host: of operators, a file may have more than of all else."""
    path = given_path(path, error=TraceError)
    if gpu is not None:
        gpu = whole_number("gpu", gpu, error=TraceError)
    if damaged not in _DAMAGED:
        raise TraceError(f"damaged={shown(damaged)} is unknown", hint=f"one of {listed(list(map(repr, _DAMAGED)))}")
    hint = partial(hint_of, path)
    with showing(f"reading {path.name}", progress=progress if callable(progress) or not progress else _is_large(path)) as shown_progress:
        with file_errors(path, hint=hint):
            _check_is_no_folder(path)
            check_ordinary(path, MOST_FILE_BYTES)
        return _read(path, gpu, shown_progress, hint, skip=damaged == "skip", least_range_ns=least_range_ns)


def _is_large(path: Path) -> bool:
    try:
        return path.stat().st_size > LARGE_FILE_BYTES
    except OSError:
        return False  # What is wrong is told where it is opened.


def _read(path: Path, gpu: int | None, progress: Progress, hint: Callable[[], str], *, skip: bool, least_range_ns: int) -> Trace:
    """Find the format of an ordinary file, and read it."""
    with file_errors(path, hint=hint):
        opened_file = io.FileIO(path)
    with opened_file:
        raw = _WatchedFile(opened_file, path, progress)
        file = io.BufferedReader(raw, _BUFFER_BYTES)
        with file_errors(path, hint=hint, passing=raw.stopped):
            start, is_compressed = _start_of(file)
            found = _format_of(start, None if is_compressed else path) or _json_format(path, start)
            check_ordinary(path, found.most_bytes)
        inner = Decompressed(file, skip=skip) if is_compressed else None
        options = ReadOptions(path, _program_of(path, found.suffixes), gpu, skip_damaged=skip, least_range_ns=least_range_ns)
        assert found.read is not None
        with file_errors(path, hint=hint, what=found.label, passing=raw.stopped):
            whole: io.BufferedReader[Any] = io.BufferedReader(inner, _BUFFER_BYTES) if inner else file
            trace = found.read(whole, options)
            if not isinstance(trace, Trace):
                raise TypeError(f"its reader returned {shown(trace)}, not a Trace")
            trace = trace if gpu is None else _of_wanted_gpu(trace, gpu)
    told = _told_by(trace, found, [f"the compressed data are damaged or truncated: {inner.damage}"] if inner and inner.damage else [])
    return told if found.name == "parquet" else with_notes_beside(told, path)


def _of_wanted_gpu(trace: Trace, gpu: int) -> Trace:
    """Return one GPU's trace, whether or not the reader kept the others: Parquet's does, and that of another package may."""
    if gpu not in trace.gpus:
        raise no_work_of(gpu, trace.gpus)
    found = trace.of_gpu(gpu)
    if found is trace:
        return trace
    left_out = counted(len(trace.spans.of_kind(ON_DEVICE)) - len(found.spans.of_kind(ON_DEVICE)), "device span")
    others = ", ".join(f"GPU {one}" for one in trace.gpus if one != gpu)
    note = f"only GPU {gpu}; left out: {left_out} of {others} (gpu= chooses another)"
    return replace(found, info=replace(found.info, notes=(*found.info.notes, note)))


def _start_of(file: BinaryIO | io.BufferedIOBase) -> tuple[bytes, bool]:
    """Return the first bytes of a file, decompressed where it is compressed, and whether it is. Go back to its start."""
    start = file.read(_START_BYTES)
    file.seek(0)
    if not start.startswith(compressed.MAGIC):
        return start, False
    inside = Decompressed(file, skip=True).read(_START_BYTES) or b""
    file.seek(0)
    return inside, True


def _format_of(start: bytes, path: Path | None) -> Format | None:
    """Return the first format that knows a file by its start.

    A format that cannot look into the file does not keep others from it. Of another package's, a warning says so. If none knows the file,
    the first failure of ours is the answer.
    """
    failure: Exception | None = None
    for name, each in FORMATS.items():
        try:
            if each.read and each.sniff and each.sniff(start, path):
                return each
        except Exception as error:  # noqa: BLE001 — a guest's code may fail in any way.
            if name in FORMATS.own:
                failure = failure or error
            else:
                FORMATS.warn(name, error)
    if failure:
        raise failure
    return None


def _json_format(path: Path, start: bytes) -> Format:
    """Return Kineto for JSON that no format knows: its reader names the missing part. Refuse all else, and JSON of other tools."""
    check_start(path, start)
    return FORMATS["kineto"]


def _told_by(trace: Trace, found: Format, notes: list[str]) -> Trace:
    """Return a trace that names the recorder of its format, and says whether that recorder stretched the run."""
    info = trace.info
    if info.recorder == "spans" and found.recorder:  # Its reader called `Trace.from_spans`.
        info = replace(info, engine=found.recorder, recorder=found.recorder)
    if info.recorder == found.recorder:
        info = replace(info, stretched=found.stretches)
    return replace(trace, info=replace(info, notes=(*notes, *info.notes)))


def _check_is_no_folder(path: Path) -> None:
    """List the readable traces of a folder: TensorBoard's, for one, holds those of PyTorch's and JAX's profilers."""
    if (path / "comparison.json").is_file():
        inside = next(iter(sorted(path.glob("*.parquet"))), None)
        said = "ss.load_comparison reads it" + (f"; {str(inside)!r} is the trace of one engine" if inside else "")
        raise TraceError(f"{str(path)!r} is the folder of a comparison, of several traces", hint=said)
    if path.is_dir():
        # TensorBoard's folders, the newest first; else folders of jobs.
        deeper = sorted(path.glob("plugins/profile/*/*"), reverse=True) or sorted(path.glob("*/*"))
        traces = list(filter(is_trace, [*sorted(path.iterdir()), *deeper][:_MOST_LOOKED_AT]))
        hint = f"name a file: {str(traces[0])!r} is in it" if traces else None
        if traces and sum(each.parent == traces[0].parent for each in traces) > 1:
            hint = f"{hint}; of a job of several ranks, streamscope ranks or ss.read_ranks reads {str(traces[0].parent)!r}"
        raise TraceError(f"{str(path)!r} is a folder", hint=hint)


def is_trace(path: Path) -> bool:
    """Tell by the first bytes whether a file is likely a trace, for errors that say so; a file that cannot be opened is none."""
    try:
        check_ordinary(path, MOST_FILE_BYTES)
        with path.open("rb") as file:
            start, is_compressed = _start_of(file)
        return _format_of(start, None if is_compressed else path) is not None
    except Exception:  # noqa: BLE001 — as in `_format_of`.
        return False


def _program_of(path: Path, suffixes: tuple[str, ...]) -> str:
    """Return a trace's default name: its file's name without the suffixes of its format."""
    name = path.name
    for ending in (".gz", *suffixes, ".pt.trace"):
        name = name.removesuffix(ending)
    return printable(name or path.name)[:200]


class _WatchedFile(io.RawIOBase):
    """A file that says how far it has been read. To close it, as `io.TextIOWrapper` does, leaves the file open for whoever opened it."""

    def __init__(self, file: io.FileIO, path: Path, progress: Progress) -> None:
        self._file, self._progress = file, progress
        self._what, self._size = f"reading {path.name}", path.stat().st_size
        self.name = path
        self.stopped: list[BaseException] = []
        """Exceptions of the caller's progress: they are raised again, and do not make the file damaged."""
        self.fileno, self.tell, self.seek = file.fileno, file.tell, file.seek  # type: ignore[method-assign]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        count = self._file.readinto(buffer)
        self._tell()
        return count

    def readall(self) -> bytes:
        data = self._file.readall()
        self._tell()
        return data

    def _tell(self) -> None:
        try:
            self._progress(self._what, self._file.tell(), self._size)
        except BaseException as error:
            self.stopped.append(error)
            raise
