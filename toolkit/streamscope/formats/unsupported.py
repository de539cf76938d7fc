"""Profiler files that Streamscope does not read: their names, and how to convert each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from streamscope.errors import TraceError
from streamscope.trace.format import FORMATS
from streamscope.words import listed

_PERFETTO = "files for Perfetto are written, not read: keep the trace as Parquet or Kineto JSON, too"
_NSIGHT = "`nsys export --type sqlite FILE` makes what can be read of it"
_ENDINGS = {".nsys-rep": _NSIGHT, ".qdrep": _NSIGHT, ".pftrace": _PERFETTO, ".perfetto-trace": _PERFETTO}
_NAMES = {"-": "standard input is not read: name a file", "comparison.json": "ss.load_comparison reads the folder that it is in"}


class _Other(NamedTuple):
    """JSON of other tools, which begins like this."""

    start: re.Pattern[bytes]
    what: str
    hint: str


_FIRST = rb"^\s*\{\s*"
_JSON = (
    _Other(
        re.compile(_FIRST + rb'"rocprofiler-sdk-tool"\s*:'),
        "this is rocprofv3's JSON, which is not read",
        "write `--output-format rocpd`: `rocprofv3 --sys-trace --output-format rocpd -- python step.py`",
    ),
    _Other(
        re.compile(_FIRST + rb'(?="schema"\s*:\s*")(?=.*"(?:nodes|start_ts)"\s*:)(?!.*"traceEvents")', re.DOTALL),
        "this is an execution trace of PyTorch (ExecutionTraceObserver), which holds operators and no times of a GPU",
        "record with torch.profiler, and write profiler.export_chrome_trace(path)",
    ),
    _Other(
        re.compile(_FIRST + rb'"(?:schema"\s*:\s*\d+\s*,\s*")?captured"\s*:'),
        "it is captured code, not a trace",
        "`streamscope compare` and ss.compare make traces of it; ss.load_captured(path) opens it in Python",
    ),
    _Other(
        re.compile(_FIRST + rb'"schema"\s*:\s*\d+\s*,\s*"notes_on"\s*:'),
        "it holds your notes on a trace, not a trace",
        "read the file beside it whose name has no .notes.json",
    ),
    _Other(
        re.compile(rb'^\{"name": ".{0,200}"value": '),
        "it holds metrics, not a trace",
        "keep the trace itself too, as Parquet or Kineto JSON",
    ),
)
_COMPARISON = re.compile(_FIRST + rb'"schema"\s*:\s*\d+\s*,\s*"workload"\s*:')


def hint_of(path: Path) -> str:
    """Return how to convert a file that is not read, by its suffix; of one that is not there, which name may be meant."""
    if near := _named_alike(path):
        return f"did you mean {near}?"
    return _NAMES.get(path.name) or next(
        (hint for ending, hint in _ENDINGS.items() if path.name.endswith(ending)), f"these can be read: {readable()}"
    )


def _named_alike(path: Path) -> str | None:
    """Return the shortest name in a folder that begins and ends like that of a missing file: those of a comparison end with a digest."""
    start, _, ending = path.name.partition(".")
    try:
        if not start or path.exists():
            return None
        alike = [
            each.name for each in path.parent.glob("*") if each.name.startswith(start) and each.name.endswith(ending) and each.is_file()
        ]
    except OSError:  # The folder cannot be looked into.
        return None
    return min(alike, key=lambda name: (len(name), name), default=None)


def readable() -> str:
    """Return the formats that are read, in words."""
    return listed([each.label for each in FORMATS.values() if each.read])


def check_start(path: Path, start: bytes) -> None:
    """Refuse a file that is something else, by its first bytes.

    Raises
    ------
    TraceError
        It names the file's kind.
    """
    if not start:
        raise TraceError("it is empty")
    if start.startswith(b"SQLite format 3\0"):
        raise TraceError("it is an SQLite database, but neither of Nsight Systems nor of rocprofv3")
    if _COMPARISON.search(start):
        raise TraceError("it is a comparison, of several traces", hint=f"ss.load_comparison({str(path.parent)!r}) opens it")
    for other in _JSON:
        if other.start.search(start):
            raise TraceError(other.what, hint=other.hint)
    if not start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):
        raise TraceError("its format is unknown")
