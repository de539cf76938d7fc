"""Finds what a file holds by its content, and reads it: ``ss.read``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import BinaryIO, Literal, cast

from streamscope.arguments import given_path, shown, whole_number
from streamscope.errors import TraceError, printable
from streamscope.formats import compressed
from streamscope.formats.compressed import Decompressed
from streamscope.formats.pages import MAGIC
from streamscope.formats.unread import check_start, hint_of
from streamscope.progress import Progress, showing
from streamscope.trace.stored import opened, told
from streamscope.trace.trace import Trace
from streamscope.words import listed

MOST_FILE_BYTES = 1 << 33
"""8 GiB."""
LARGE_FILE_BYTES = 8 << 20
"""A smaller file is read before a bar would be seen."""
DAMAGED = ("refuse", "skip")
"""What may be done with a file that is damaged."""
MOST_LOOKED_AT = 200
"""Files of a folder."""
_SQLITE = b"SQLite format 3\0"
_LOOKED_AT = 1 << 12
"""Bytes at the start of a file that say what it is."""


def read(
    path: str | Path, gpu: int | None = None, *, damaged: Literal["refuse", "skip"] = "refuse", progress: bool | Progress = True
) -> Trace:
    """Read a trace that Streamscope or another profiler recorded.

    What the file holds is found by its content: Kineto JSON (PyTorch's profiler, also compressed with gzip), an SQLite export of Nsight
    Systems, rocprofv3's rocpd, or Parquet of `Trace.to_parquet`.

    Parameters
    ----------
    path : str or Path
    gpu : int, optional
        Which GPU, where the file has several: a trace is of one. By default it is the one with the most work, and a note counts the rest.
    damaged : {"refuse", "skip"}
        What to do with Kineto JSON that is damaged or ends too early. ``"skip"`` reads the events that are whole, and a note counts the
        others. Databases and Parquet are whole or refused.
    progress : bool or callable
        Show a progress bar while a file of more than 8 MiB is read, or call ``progress(what, done, whole)`` with bytes of any file. Of a
        database or Parquet, only the start is told.

    Returns
    -------
    Trace
        ``info.notes`` say what was odd, left out, or is unknown. Its zero is the first call of the CUDA or HIP runtime.

    Raises
    ------
    TraceError
        The file is missing, damaged, of another format, or holds no work of a GPU; or ``gpu`` is not a whole number.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)
    >>> trace = ss.read(runs["async"].trace.to_parquet("step.parquet"))
    >>> trace.info.engine, len(trace.spans) == len(runs["async"].trace.spans)
    ('async', True)
    """
    path = given_path(path, error=TraceError)
    if gpu is not None:
        gpu = whole_number("gpu", gpu, error=TraceError)
    if damaged not in DAMAGED:
        raise TraceError(f"damaged={shown(damaged)} is not known", hint=f"one of {listed(list(map(repr, DAMAGED)))}")
    with showing(f"reading {path.name}", progress=progress if callable(progress) or not progress else _is_large(path)) as said:
        return _read(path, gpu, said, skip=damaged == "skip")


def _is_large(path: Path) -> bool:
    try:
        return path.stat().st_size > LARGE_FILE_BYTES
    except OSError:
        return False  # What is wrong is told where it is opened.


def _read(path: Path, gpu: int | None, progress: Progress, *, skip: bool) -> Trace:
    hint = hint_of(path)
    with told(path, hint=hint):
        _check_is_no_folder(path, hint)
    with told(path, hint=hint), opened(path, MOST_FILE_BYTES) as opened_file:
        file = cast("BinaryIO", _Watched(opened_file, path, progress))
        start = file.read(_LOOKED_AT)
        file.seek(0)
        if start.startswith(MAGIC):
            from streamscope.formats.parquet import decoded_trace, trace_bytes

            return decoded_trace(path, trace_bytes(path))
        if start.startswith(_SQLITE):
            return _database(path, gpu)
        from streamscope.formats.kineto import read_kineto

        if not start.startswith(compressed.MAGIC):
            check_start(path, start)
            return read_kineto(file, program_of(path), gpu, skip=skip)
        if begin := Decompressed(file, skip=True).read(_LOOKED_AT):
            check_start(path, begin)
        file.seek(0)
        return read_kineto(Decompressed(file, skip=skip), program_of(path), gpu, skip=skip)


def _check_is_no_folder(path: Path, hint: str) -> None:
    """Say what of a folder can be read: TensorBoard's, for one, holds traces of PyTorch's profiler."""
    if (path / "comparison.json").is_file():
        raise TraceError(f"{str(path)!r} is the folder of a comparison, of several traces", hint="ss.load_comparison reads it")
    if path.is_dir():
        inside = next(filter(is_trace, sorted(path.iterdir())[:MOST_LOOKED_AT]), None)
        raise TraceError(f"{str(path)!r} is a folder", hint=f"name a file: {str(inside)!r} is in it" if inside else hint)


def is_trace(path: Path) -> bool:
    """Tell by the first bytes whether a file is likely a trace, for errors that say so; a file that cannot be opened is none."""
    try:
        with opened(path, MOST_FILE_BYTES) as file:
            start = file.read(_LOOKED_AT)
            if start.startswith(compressed.MAGIC):
                file.seek(0)
                start = Decompressed(file, skip=True).read(_LOOKED_AT)
    except (OSError, ValueError):
        return False
    return start.startswith((_SQLITE, MAGIC)) or re.match(rb'\s*\{\s*"(schemaVersion|traceEvents)"', start) is not None


def _database(path: Path, gpu: int | None) -> Trace:
    """Read the tables of Nsight Systems or of rocprofv3."""
    from streamscope.formats.database import opened_tables
    from streamscope.formats.nsight import is_nsight, read_nsight
    from streamscope.formats.rocpd import is_rocpd, read_rocpd

    with opened_tables(path) as tables:
        if is_nsight(tables):
            return read_nsight(tables, program_of(path), gpu)
        if is_rocpd(tables):
            return read_rocpd(tables, program_of(path), gpu)
    raise TraceError("it is an SQLite database, but neither of Nsight Systems nor of rocprofv3")


def program_of(path: Path) -> str:
    """Return what a trace is called by default: its file's name without the endings of formats."""
    name = path.name
    for ending in (".gz", ".json", ".pt.trace", ".sqlite", ".db"):
        name = name.removesuffix(ending)
    return printable(name or path.name)[:200]


class _Watched:
    """A file that says how far it has been read."""

    def __init__(self, file: BinaryIO, path: Path, progress: Progress) -> None:
        self._file, self._what, self._size, self._progress = file, f"reading {path.name}", path.stat().st_size, progress
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        found = self._file.read(size)
        self._progress(self._what, self._file.tell(), self._size)
        return found
