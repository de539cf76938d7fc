"""Kineto's Chrome JSON, as PyTorch's profiler writes it."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from streamscope.trace.format import Format, ReadOptions
from streamscope.trace.trace import Trace

_START = re.compile(rb'^(?:\xef\xbb\xbf)?\s*(?:\{\s*"schemaVersion"|\{.*"traceEvents"\s*:|\[\s*\{[^{}\[\]]*"ph")', re.DOTALL)


def read_kineto(file: io.BufferedReader[Any], options: ReadOptions) -> Trace:
    """Read a file that is open at its start."""
    from streamscope.formats.kineto.reader import read_events

    return read_events(file, options.program, options.gpu, skip=options.skip_damaged, least_range_ns=options.least_range_ns)


def write_kineto(trace: Trace, path: Path) -> Path:
    """Write a trace to one file of Chrome JSON, whole or not at all, and return its path."""
    from streamscope.formats.kineto.writer import write_events

    return write_events(trace, path)


FORMAT = Format(
    name="kineto",
    label="Kineto JSON",
    suffixes=(".json", ".json.gz"),
    sniff=lambda start, path: _START.match(start) is not None,
    read=read_kineto,
    write=write_kineto,
    recorder="kineto",
    stretches=True,
)
