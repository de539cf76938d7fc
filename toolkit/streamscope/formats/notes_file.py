"""Your notes on a file of another tool, beside it: ``step.json.notes.json`` has those on ``step.json``.

JSON with a digest: ``{"schema", "notes_on", "clocks", "notes", "digest"}``. ``notes_on`` has the size of the trace's file and the SHA-256
of its first and last bytes, so that no note attaches to another file. ``clocks`` has, for each GPU, when its first work starts and its
last ends: a trace of one GPU may have another zero than that of all.
"""

from __future__ import annotations

import errno
import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from streamscope.errors import OutputError, TraceError, described, printable
from streamscope.files import written_whole
from streamscope.formats.pages import MAGIC
from streamscope.trace.counters import Note
from streamscope.trace.file_checks import MOST_JSON_BYTES, opened, read_content, with_digest
from streamscope.trace.format import MOST_FILE_BYTES, NOTES_SUFFIX, Format
from streamscope.trace.spans import DEVICE_KINDS
from streamscope.trace.trace import Trace
from streamscope.words import counted, lane_prefix

_ENDS_BYTES = 1 << 16
"""Of a file's start and of its end."""


def with_notes_beside(trace: Trace, path: Path) -> Trace:
    """Return the trace of a file with the notes beside it, which replace its own. If they do not fit, a note of the recorder says why."""
    beside = path.with_name(path.name + NOTES_SUFFIX)
    try:
        if not beside.is_file():
            return trace
        notes, left_out = _notes_on(trace, read_content(beside), _identity(path))
        found = replace(trace, user_notes=notes)
    except (TraceError, OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            return trace  # No such file can be there.
        known = error.message if isinstance(error, TraceError) else described(error) if isinstance(error, OSError) else None
        why = known or "the file is damaged, or not ours: move it away"
        return _said(trace, f"without your notes in {printable(beside.name)}: {why}")
    return _said(found, f"left out: {counted(left_out, 'note')} of yours on lanes that are not in this trace") if left_out else found


def _notes_on(trace: Trace, content: dict[str, Any], identity: dict[str, Any]) -> tuple[tuple[Note, ...], int]:
    """Return the stored notes on the clock and the lanes of a trace, and how many are on none of its lanes."""
    if content["notes_on"] != identity:
        raise TraceError("they are on another file of this name, or it was changed since")
    clocks = _clocks(trace)
    moved = {ours - theirs for gpu in clocks for ours, theirs in zip(clocks[gpu], content["clocks"][gpu], strict=True)}
    if len(moved) > 1:
        raise TraceError("they are on other times than this version of Streamscope reads")
    by_ns, notes = max(moved, default=0), []
    for stored in content["notes"]:
        note = Note(**stored)
        lane = note.lane if note.lane in trace.spans.lanes else note.lane.removeprefix(lane_prefix(trace.info.device.gpu))
        if lane and lane not in trace.spans.lanes:
            continue
        start_ns, end_ns = (None if time_ns is None else time_ns + by_ns for time_ns in (note.start_ns, note.end_ns))
        notes.append(Note(note.text, start_ns, end_ns, lane))
    return tuple(notes), len(content["notes"]) - len(notes)


def holds_notes(path: Path) -> bool:
    """Tell whether the file of a trace is Parquet, which holds its notes itself."""
    with opened(path, MOST_FILE_BYTES) as file:
        return file.read(len(MAGIC)) == MAGIC


def _write_notes(trace: Trace, path: Path) -> Path:
    """Write the notes of a trace beside its file; the ending says which one that is."""
    source = path.with_name(path.name.removesuffix(NOTES_SUFFIX))
    try:
        identity = _identity(source)
        ours = holds_notes(source)
    except OSError as error:
        raise OutputError(f"cannot keep notes on {source}: {error.strerror or error}", hint="name the file that was read") from error
    if ours:
        raise OutputError(f"cannot write {path}: Parquet holds its notes itself", hint="trace.to_parquet(path) writes them")
    if len(trace.info.device.gpus) > len(trace.gpus):
        raise OutputError(
            f"cannot write {path}: this trace is not of all GPUs of the file", hint="add notes to ss.read(path), without gpu="
        )
    _check_replaced(path, identity)
    content = with_digest({"notes_on": identity, "clocks": _clocks(trace), "notes": [asdict(note) for note in trace.user_notes]})
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return path


def _check_replaced(path: Path, identity: dict[str, Any]) -> None:
    """Refuse to replace notes on another file, and files that hold none."""
    try:
        fits = read_content(path)["notes_on"] == identity
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise OutputError(f"cannot write {path}: the one there is not ours: {error}", hint="move it away") from error
    if not fits:
        raise OutputError(f"cannot write {path}: it has notes on another file of this name, or it was changed since", hint="move it away")


def _identity(path: Path) -> dict[str, Any]:
    """Return the size of a file, and a digest of its first and last bytes."""
    with opened(path, MOST_FILE_BYTES) as file:
        digest, size = hashlib.sha256(file.read(_ENDS_BYTES)), path.stat().st_size
        file.seek(max(0, size - _ENDS_BYTES))
        digest.update(file.read(_ENDS_BYTES))
    return {"bytes": size, "sha256_of_ends": digest.hexdigest()}


def _clocks(trace: Trace) -> dict[str, list[int]]:
    """Return first start and last end of the work on each GPU."""
    spans, found = trace.spans, {}
    work = spans.is_kind(DEVICE_KINDS)
    for gpu in trace.gpus:
        rows = work & (spans.gpu == gpu)
        if rows.any():
            found[str(gpu)] = [int(spans.start_ns[rows].min()), int(spans.end_ns[rows].max())]
    return found


def _said(trace: Trace, what: str) -> Trace:
    return replace(trace, info=replace(trace.info, notes=(*trace.info.notes, what)))


FORMAT = Format(
    name="notes",
    label="notes beside the file of a trace",
    suffixes=(),  # Nothing is saved as notes by its ending: `Trace.save_notes` writes them.
    write=_write_notes,
    most_bytes=MOST_JSON_BYTES,
)
