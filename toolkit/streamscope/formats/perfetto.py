"""Perfetto's own protobuf: written for its UI and its trace processor, and not read."""

from __future__ import annotations

from pathlib import Path

from streamscope.errors import OutputError
from streamscope.files import suffix_of
from streamscope.trace.format import Format
from streamscope.trace.trace import Trace

_SUFFIXES = (".pftrace", ".perfetto-trace")


def _write_perfetto(trace: Trace, path: Path) -> Path:
    """Write a trace to one file of Perfetto's protobuf, whole or not at all, and return its path."""
    suffix_of(path, *_SUFFIXES)
    try:
        import perfetto.protos  # noqa: F401
    except ModuleNotFoundError as error:
        raise OutputError(f"cannot write {path}: {error}", hint='pip install "perfetto>=0.56"') from error
    from streamscope.formats.perfetto_packets import write_packets

    return write_packets(trace, path)


FORMAT = Format(name="perfetto", label="Perfetto's protobuf", suffixes=_SUFFIXES, write=_write_perfetto)
