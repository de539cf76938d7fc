"""The metrics of a trace as JSON Lines. They are written only: a trace cannot be read from its metrics."""

from __future__ import annotations

from pathlib import Path

from streamscope.files import written_whole
from streamscope.trace import Format, Trace


def write(trace: Trace, path: Path) -> Path:
    """Write the metrics of a trace, one a line, as `ss.analysis.json_lines` returns them."""
    from streamscope.analysis import json_lines

    with written_whole(path) as unfinished:
        unfinished.write_text(json_lines(trace), encoding="utf-8")
    return path


FORMAT = Format(name="jsonl", label="metrics as JSON Lines", suffixes=(".jsonl",), write=write)
