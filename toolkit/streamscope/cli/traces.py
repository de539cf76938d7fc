"""The commands on traces of any origin: ``streamscope read`` and ``convert``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamscope.cli.parameters import given_path
from streamscope.cli.terminal import output
from streamscope.files import suffix_of, writable_file, written_whole

if TYPE_CHECKING:
    from rich.console import Console

    from streamscope.analysis import Summary
    from streamscope.trace.trace import Trace

READABLE = "Parquet of ours, Kineto JSON (.json, .json.gz), an SQLite export of Nsight Systems, or rocpd (.db)."
TraceFile = Annotated[Path, typer.Argument(metavar="FILE", parser=given_path, help=f"A trace: {READABLE}", show_default=False)]
Gpu = Annotated[
    int | None,
    typer.Option("--gpu", metavar="N", min=0, help="Which GPU of a file with several; by default the busiest.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")]


def read(file: TraceFile, gpu: Gpu = None, *, as_json: AsJson = False) -> None:
    """Show the metrics of a trace that Streamscope or another profiler recorded, and what to know before believing them."""
    from streamscope.analysis import summary
    from streamscope.trace.read import read as read_trace

    found = summary(read_trace(file, gpu))
    if as_json:
        typer.echo(json.dumps(found.to_dict(), allow_nan=False))
    else:
        _print(output(), found)


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", parser=given_path, help=f"A trace: {READABLE}", show_default=False)],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            parser=given_path,
            help="Ends with .json or .json.gz (Kineto), .pftrace (Perfetto), .parquet, .csv (the spans), .md or .jsonl (the metrics).",
            show_default=False,
        ),
    ],
    gpu: Gpu = None,
) -> None:
    """Write a trace in another format; the ending of OUT says which."""
    from streamscope.trace.read import read as read_trace

    suffix = suffix_of(target, *_writers())
    writable_file(target)
    _writers()[suffix](read_trace(source, gpu), target)
    output().print(f"wrote {target}", soft_wrap=True, markup=False)


def _writers() -> Mapping[str, Callable[[Trace, Path], object]]:
    """Return what writes each format, by the ending of its files."""
    from streamscope.analysis import json_lines, summary
    from streamscope.trace import Trace

    return {
        ".json": Trace.to_kineto,
        ".json.gz": Trace.to_kineto,
        ".pftrace": Trace.to_perfetto,
        ".perfetto-trace": Trace.to_perfetto,
        ".parquet": Trace.to_parquet,
        ".csv": Trace.to_csv,
        ".md": lambda trace, path: _write_text(summary(trace).to_markdown(), path),
        ".jsonl": lambda trace, path: _write_text(json_lines(trace), path),
    }


def _write_text(text: str, path: Path) -> None:
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _print(console: Console, found: Summary) -> None:
    """Print the numbers, the streams and the warnings, which are numbered."""
    from rich.table import Table
    from rich.text import Text

    from streamscope.analysis.summary import STREAM_HEADS
    from streamscope.errors import printable

    console.print(Text(printable(found.title), style="bold"))
    numbers = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for label, value, _ in found.rows():
        numbers.add_row(label, value)
    console.print(numbers)
    if found.streams:
        streams = Table(box=None, padding=(0, 2, 0, 0), title="Times in µs", title_justify="left", title_style="dim")
        name, *heads = STREAM_HEADS
        streams.add_column(name, no_wrap=True)
        for head in heads:
            streams.add_column(head.removesuffix(", µs"), justify="right")
        for cells in found.stream_rows():
            streams.add_row(*(Text(printable(cell)) for cell in cells))
        console.print()
        console.print(streams)
    if found.warnings:
        console.print()
        for number, warning in enumerate(found.warnings, 1):
            console.print(Text(printable(f"[{number}] {warning}"), style="yellow"), soft_wrap=True)
