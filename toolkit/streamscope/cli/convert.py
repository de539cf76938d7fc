"""``streamscope convert``: a trace in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamscope.cli.parameters import GUEST_ENDINGS, given_path
from streamscope.cli.terminal import output
from streamscope.cli.trace_files import READABLE, Damaged, Gpu, read_trace, reading_progress
from streamscope.errors import OutputError
from streamscope.files import suffix_of, writable_file
from streamscope.results.result import REPORTS


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", parser=given_path, help=f"A trace: {READABLE}", show_default=False)],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            parser=given_path,
            help="Ends with .json or .json.gz (Kineto), .pftrace or .perfetto-trace (Perfetto), .parquet, .csv (the spans), "
            ".html, .pdf or .md (a report), or .jsonl (the metrics)" + GUEST_ENDINGS + ".",
            show_default=False,
        ),
    ],
    gpu: Gpu = None,
    damaged: Damaged = "refuse",
) -> None:
    """Write a trace in another format; the ending of OUT says which."""
    suffix_of(target, *endings())
    if target.exists() and source.exists() and target.samefile(source):
        raise OutputError(f"cannot write {target}: it is the file that is read", hint="choose another name")
    writable_file(target)
    with reading_progress() as progress:
        trace = read_trace(source, gpu, damaged, progress)
        progress(f"writing {target.name}", 1, 1)
        trace.save(target)
    output().print(f"wrote {target}", soft_wrap=True, markup=False)


def endings() -> tuple[str, ...]:
    """Return the endings of OUT: those of `Trace.save`, without pictures."""
    from streamscope.trace.format import writers

    return (*writers(), ".csv", *REPORTS)
