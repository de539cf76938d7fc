"""Formats of trace files: the form of an entry, and the door that finds entries by name.

Readers and writers are in `streamscope.formats`, a file each, or in another package. This module stands below them, so that a trace can be
written in any format and no import goes up.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamscope.doors import Door
from streamscope.errors import OutputError, described
from streamscope.files import written_whole
from streamscope.trace.file_checks import file_errors, opened

if TYPE_CHECKING:
    from streamscope.trace.trace import Trace


MOST_FILE_BYTES = 1 << 33
"""8 GiB."""
NOTES_SUFFIX = ".notes.json"
"""Behind the name of a file of another tool: the file with your notes on it."""


@dataclass(frozen=True)
class ReadOptions:
    """Options of `ss.read`.

    Attributes
    ----------
    path : Path
        The file, for readers of databases. All others read from the open file, which may be decompressed on the way.
    program : str
        Name for the trace: that of the file, without the endings of formats.
    gpu : int or None
        Which GPU of a file with several; None for all. A reader may return all in any case: `ss.read` leaves the others out.
    skip_damaged : bool
        Read the whole parts of a damaged file, and count the rest in a note. A reader that cannot do so ignores it.
    least_range_ns : int
        Shorter ranges of the host are not asked for. A reader may leave them out, to be quicker.
    """

    path: Path
    program: str
    gpu: int | None = None
    skip_damaged: bool = False
    least_range_ns: int = 0


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format of trace files. `docs/doors.md` adds one, step by step.

    Attributes
    ----------
    name : str
        Name in the door, and of the entry point: ``"kineto"``.
    label : str
        Name for people: ``"Kineto JSON"``.
    suffixes : tuple of str
        Endings of its files, with the dot. A writer is found by them; a reader is not, since names of files say little.
    sniff : callable or None
        ``sniff(start, path) -> bool`` tells whether a file has this format. ``start``: its first 4,096 bytes, decompressed where gzip
        compressed it. ``path``: the file, for formats that are told apart by more than that; None where it is compressed.
    read : callable or None
        ``read(file, options) -> Trace``. ``file``: an `io.BufferedReader` at its start; only a file that gzip compressed cannot seek.
        ``options``: `ReadOptions`. A `TraceError` says why a file is refused; any other exception means that it is damaged.
    write : callable or None
        ``write(trace, path) -> Path`` writes a file, and returns its path. Another package's writer gets a temporary folder's path with
        the same name, so that a failure leaves an older file as it was.
    recorder : str
        Recorder of traces in this format, for `TraceInfo.recorder`. Empty where the file names its recorder.
    stretches : bool
        Whether that recorder watches the calls of the host while they run, and so stretches them. Traces then carry a warning.
    most_bytes : int
        Size of the largest file that is read; 8 GiB by default.

    Examples
    --------
    >>> from streamscope.trace import FORMATS
    >>> FORMATS["kineto"].label, FORMATS["kineto"].suffixes, FORMATS["kineto"].stretches
    ('Kineto JSON', ('.json', '.json.gz'), True)
    """

    name: str
    label: str
    suffixes: tuple[str, ...]
    sniff: Callable[[bytes, Path | None], bool] | None = None
    read: Callable[[io.BufferedReader[Any], ReadOptions], Trace] | None = None
    write: Callable[[Trace, Path], Path] | None = None
    recorder: str = ""
    stretches: bool = False
    most_bytes: int = MOST_FILE_BYTES

    def __post_init__(self) -> None:
        if not isinstance(self.suffixes, tuple):
            raise TypeError(f"suffixes of format {self.name!r} are no tuple of texts")


FORMATS = Door[Format](
    "format",
    {
        "kineto": "streamscope.formats.kineto:FORMAT",
        "perfetto": "streamscope.formats.perfetto:FORMAT",
        "parquet": "streamscope.formats.parquet:FORMAT",
        "nsight": "streamscope.formats.nsight:FORMAT",
        "rocpd": "streamscope.formats.rocpd:FORMAT",
        "xplane": "streamscope.formats.xplane:FORMAT",
        "jsonl": "streamscope.formats.metric_lines:FORMAT",
        "notes": "streamscope.formats.notes_file:FORMAT",
    },
    form=Format,
)


def written(name: str, trace: Trace, path: Path) -> Path:
    """Write a trace in the format of that name, whole or not at all, and return the path."""
    write = FORMATS[name].write
    assert write is not None
    if name in FORMATS.own:  # Ours go by a temporary name themselves.
        return write(trace, path)
    with written_whole(path, named=True) as temporary:
        try:
            write(trace, temporary)
        except Exception as error:
            raise OutputError(f"cannot write {path}: the {FORMATS.named(name)} fails: {described(error)}") from error
    return path


def read_as(name: str, path: Path) -> Trace:
    """Read a file that has to be of the format of that name."""
    found = FORMATS[name]
    assert found.read is not None
    with file_errors(path, hint=f"give a file of {found.label}"), opened(path, found.most_bytes) as file:
        return found.read(file, ReadOptions(path, path.stem))


def writers() -> dict[str, Format]:
    """Return the formats that can be written, by the endings of their files."""
    found: dict[str, Format] = {}
    for each in FORMATS.values():
        for suffix in each.suffixes if each.write else ():
            found.setdefault(suffix, each)
    return found
