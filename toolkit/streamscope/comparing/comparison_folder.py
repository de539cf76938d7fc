"""The folder of a saved comparison: ``comparison.json``, and for each engine its trace as ``ENGINE-HASH.parquet``.

``comparison.json`` holds the SHA-256 of each trace under ``traces``, and a digest of itself. The hash in a name is the beginning of that
checksum, so two traces never share a name. New traces are written beside the old ones, and the folder changes when ``comparison.json`` is
renamed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamscope.errors import OutputError, TraceError
from streamscope.files import destination
from streamscope.formats.parquet import decoded_trace, trace_bytes
from streamscope.trace.file_checks import read_content
from streamscope.trace.info import DeviceInfo
from streamscope.trace.trace import Trace
from streamscope.words import a_kind

FILE_NAME = "comparison.json"
TRACES = "traces"
_OURS = {"workload", "device", "engines", "makespans_ns", "verdict", TRACES}
"""A ``comparison.json`` with these keys is one of ours."""

REPORT_NAME = "report.html"
REPORT_MARK = b'<meta name="generator" content="Streamscope">'
"""A ``report.html`` with this among its first 1,000 bytes is one of ours."""

_LONGEST_ENGINE = 100


def _check_engine(engine: object) -> str:
    """Return the name of an engine that can be a part of a file's name."""
    if (
        not isinstance(engine, str)
        or not engine.isprintable()
        or not 0 < len(engine.encode()) <= _LONGEST_ENGINE
        or re.search(r"[/\\]", engine)
    ):
        raise ValueError(f"{engine!a:.80} cannot be the name of an engine")
    return engine


def trace_name(engine: object, checksum: object) -> str:
    """Return the name of an engine's trace."""
    if not isinstance(checksum, str) or not re.fullmatch("[0-9a-f]{64}", checksum):
        raise ValueError(f"{checksum!a:.80} is not a SHA-256")
    return f"{_check_engine(engine)}-{checksum[:12]}.parquet"


def _checksum_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_trace(trace: Trace, engine: str, folder: Path) -> str:
    """Write a trace under the name that its content gives it, and return its SHA-256."""
    try:
        _check_engine(engine)
    except ValueError as error:
        raise OutputError(f"cannot save this comparison: {error}", hint="rename the engine") from None
    path = trace.to_parquet(folder / "trace.parquet")
    checksum = _checksum_of(path)
    path.rename(folder / trace_name(engine, checksum))
    return checksum


def older_traces(folder: Path) -> set[str]:
    """Return the names of the traces of the comparison in a folder, which go when another one takes its place.

    Only files that the comparison names, with their checksums, count.
    """
    path = folder / FILE_NAME
    destination(path)
    try:
        traces = _traces_in(read_content(path))
    except FileNotFoundError:
        return set()
    except (ValueError, TypeError, RecursionError) as error:
        raise _not_ours(path, f", or not as it was written: {error}") from error
    return {name for name, checksum in traces.items() if (folder / name).is_file() and _checksum_of(folder / name) == checksum}


def older_files(folder: Path) -> set[str]:
    """Return `older_traces`, for a folder that is to get a report too."""
    path = folder / REPORT_NAME
    destination(path)
    with suppress(FileNotFoundError), path.open("rb") as file:
        if REPORT_MARK not in file.read(1000):
            raise _not_ours(path)
    return older_traces(folder)


def _not_ours(path: Path, reason: str = "") -> OutputError:
    return OutputError(f"cannot write {path}: the one there is not ours{reason}", hint="move it away, or choose another folder")


def _traces_in(content: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the names of traces and their checksums that a ``comparison.json`` holds, if it is ours."""
    if missing := _OURS - content.keys():
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    traces = content[TRACES]
    if not isinstance(traces, Mapping):
        raise TypeError(f"its {TRACES} are {a_kind(traces)}")
    return {trace_name(engine, checksum): checksum for engine, checksum in traces.items()}


def read_trace(comparison: Path, engine: str, checksum: str, device: DeviceInfo) -> Trace:
    """Read the trace of an engine that a ``comparison.json`` names."""
    path = comparison.with_name(trace_name(engine, checksum))
    if not path.exists():
        raise TraceError(f"{comparison} names a trace that is not there: {path.name}", hint="copy the whole folder that save() wrote")
    data = trace_bytes(path)
    if checksum != hashlib.sha256(data).hexdigest():
        raise TraceError(f"{path} is not the trace that {comparison.name} was saved with", hint="was it changed, or copied over another?")
    trace = decoded_trace(path, data)
    info = trace.info
    if info.engine != engine:
        raise TraceError(f"{path} is the trace of {info.engine!r}, not of {engine!r}", hint="was it renamed, or copied over another?")
    if (info.device.kind, info.device.name) != (device.kind, device.name):
        raise TraceError(
            f"{path} was recorded on {info.device.name} ({info.device.kind}), and {comparison.name} says {device.name} ({device.kind})",
            hint="was one of them changed, or copied from elsewhere?",
        )
    return trace
