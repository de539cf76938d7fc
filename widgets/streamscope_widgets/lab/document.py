"""A file as JupyterLab shows it: its name, what was found, and the timelines, as one block of bytes.

The server runs it as a program of its own, ``python -m streamscope_widgets.lab.document PATH NAME [STAMP]``, which writes them: so a large
file neither holds up the server nor leaves anything in its memory.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streamscope.analysis.summary import summary
from streamscope.analysis.table import device_words
from streamscope.comparing.comparison import load_comparison
from streamscope.comparing.comparison_folder import FILE_NAME
from streamscope.errors import StreamscopeError
from streamscope.trace import TimelineGroup
from streamscope.trace.read import read
from streamscope.words import capitalised, shortened
from streamscope_widgets.payload import as_groups, bundle_source, encode, encode_paths
from streamscope_widgets.trace_view import finding_of, trace_title

MOST_SPANS = 1_000_000
"""More than a browser draws at once with ease; the end of longer traces is left out, and their headings say so."""
MOST_WARNINGS, LONGEST_WARNING = 20, 500
ALIGNED = 8
"""Bytes: columns of numbers must begin at a multiple of it."""


def document(path: Path, name: str) -> bytes:
    """Read a trace or a comparison.

    Parameters
    ----------
    path : Path
        A trace in any format that `streamscope.read` knows, or the ``comparison.json`` in the folder of a comparison.
    name : str
        What the reader calls it.

    Returns
    -------
    bytes
        The length of the header in 4 bytes, 4 empty bytes, the header as JSON (``title``, ``finding``, ``warnings``,
        ``header``, ``stamp``, which tells versions of the file apart, and ``bundle``, which tells bundles apart), the block of columns.

    Raises
    ------
    TraceError
        It is broken, or not ours.
    OutputError
        The front end was not built.
    """
    stamp = _stamp(path)  # Before it is read: what is written meanwhile is another version.
    title, finding, warnings, groups = _read(path, name)
    payload = encode(groups, _kept(groups))
    digest = hashlib.sha256(bundle_source().encode()).hexdigest()[:8]
    told = {"title": title, "finding": finding, "warnings": warnings, "stamp": stamp}
    return _packed({**told, "header": payload.header, "bundle": digest}, payload.block)


def paths_of(path: Path, name: str, stamp: str) -> bytes:
    """Return the critical paths of a document, which are sent when somebody asks for them; they are packed as `document` is.

    The header has ``changed`` instead where the file is not the one that has this stamp: its rows are other ones.

    Raises
    ------
    TraceError
        It is broken, or not ours.
    """
    if _stamp(path) == stamp:
        *_, groups = _read(path, name)
        payload = encode_paths(groups, _kept(groups))
        if _stamp(path) == stamp:
            return _packed({"header": payload.header}, payload.block)
    return _packed({"changed": True}, b"")


def answer(path: Path, name: str, stamp: str = "") -> bytes:
    """Return what the server sends: a document, with a stamp its critical paths, or why there is none."""
    try:
        return paths_of(path, name, stamp) if stamp else document(path, name)
    except StreamscopeError as error:
        # Where the server's files lie is the server's matter.
        return refusal(str(error).replace(f"{path.parent}/", ""))


def _stamp(path: Path) -> str:
    """Return when a file was written and how long it is; empty where there is none."""
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{found.st_mtime_ns}-{found.st_size}"


def refusal(message: str) -> bytes:
    """Return what is sent in place of a document that cannot be: ``refused`` says why."""
    return _packed({"refused": message}, b"")


def _packed(content: Mapping[str, Any], block: bytes) -> bytes:
    header = json.dumps(content, allow_nan=False).encode()
    header += b" " * (-len(header) % ALIGNED)
    return len(header).to_bytes(4, "little") + bytes(4) + header + block


def _read(path: Path, name: str) -> tuple[str, str, list[str], tuple[TimelineGroup, ...]]:
    """Return a title, what was found, what to know before believing it, and the timelines."""
    if path.name == FILE_NAME:
        comparison = load_comparison(path.parent)
        return f"{comparison.program} · {device_words(comparison.device)}", comparison.verdict, [], as_groups(comparison.groups())
    trace = read(path)
    found = summary(trace)
    warnings = [shortened(capitalised(warning), LONGEST_WARNING) for warning in found.warnings[:MOST_WARNINGS]]
    return f"{trace_title(trace)} · {name}", finding_of(trace, found), warnings, as_groups([trace])


def _kept(groups: Sequence[TimelineGroup]) -> list[int]:
    """Return how many spans of each trace are sent: the same share of each."""
    counts = [len(group.trace.spans) for group in groups]
    share = min(1.0, MOST_SPANS / max(sum(counts), 1))
    return [int(count * share) for count in counts]


if __name__ == "__main__":
    sys.stdout.buffer.write(answer(Path(sys.argv[1]), *sys.argv[2:]))
