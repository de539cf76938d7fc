"""``streamscope convert``: a trace in another format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamscope.cli.parameters import given_path
from streamscope.cli.terminal import output
from streamscope.cli.trace_files import READABLE, Damaged, Gpu, read_trace, reading_progress
from streamscope.errors import OutputError
from streamscope.files import suffix_of, writable_file, written_whole

if TYPE_CHECKING:
    from streamscope.trace.trace import Trace


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", parser=given_path, help=f"A trace: {READABLE}", show_default=False)],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            parser=given_path,
            help="Ends with .json or .json.gz (Kineto), .pftrace or .perfetto-trace (Perfetto), .parquet, .csv (the spans), "
            ".html, .pdf or .md (a report), or .jsonl (the metrics).",
            show_default=False,
        ),
    ],
    gpu: Gpu = None,
    damaged: Damaged = "refuse",
) -> None:
    """Write a trace in another format; the ending of OUT says which."""
    suffix = suffix_of(target, *_writers())
    if target.exists() and source.exists() and target.samefile(source):
        raise OutputError(f"cannot write {target}: it is the file that is read", hint="choose another name")
    writable_file(target)
    with reading_progress() as progress:
        trace = read_trace(source, gpu, damaged, progress)
        progress(f"writing {target.name}", 1, 1)
        _writers()[suffix](trace, target)
    output().print(f"wrote {target}", soft_wrap=True, markup=False)


def _writers() -> Mapping[str, Callable[[Trace, Path], object]]:
    """Return the writer of each format, by suffix."""
    from streamscope.analysis import json_lines
    from streamscope.trace import Trace
    from streamscope.trace.format import writers, written

    return {
        **{suffix: partial(written, each.name) for suffix, each in writers().items()},
        ".csv": Trace.to_csv,
        **dict.fromkeys((".html", ".pdf", ".md"), Trace.report),
        ".jsonl": lambda trace, path: _write_text(json_lines(trace), path),
    }


def _write_text(text: str, path: Path) -> None:
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
