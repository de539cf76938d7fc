"""The commands on traces of any origin: ``streamscope read``, ``convert``, ``diff`` and ``what-if``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamscope.cli.parameters import WrongUsageError, given_path, one_of
from streamscope.cli.terminal import notes, output, print_sentences
from streamscope.errors import EngineError, OutputError, printable
from streamscope.files import suffix_of, writable_file, written_whole
from streamscope.progress import Progress, showing
from streamscope.words import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from streamscope.analysis import Summary
    from streamscope.analysis.diff import TraceDiff
    from streamscope.trace.trace import Trace

ANY_WIDTH = 4000
"""Columns of what is printed where there is no terminal."""
MOST_ROWS = 12
"""Rows of a comparison that a terminal gets."""
_GPU_ARGUMENT = re.compile(r"(?:ss\.read\(path, gpu=\.\.\.\)|gpu=) chooses\b")
"""How notes name the option in Python."""
READABLE = "Parquet of ours, Kineto JSON, an SQLite export of Nsight Systems, rocpd, XPlane, or a format of an installed package."
TraceFile = Annotated[Path, typer.Argument(metavar="FILE", parser=given_path, help=f"A trace: {READABLE}", show_default=False)]
Gpu = Annotated[
    int | None,
    typer.Option("--gpu", metavar="N", min=0, help="Which GPU of a file with several; by default the busiest.", show_default=False),
]
Damaged = Annotated[
    str,
    typer.Option(
        "--damaged",
        metavar="refuse|skip",
        callback=one_of(("refuse", "skip")),
        help="What to do with Kineto JSON that is damaged: skip reads what is whole, and counts the rest.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")]


def read(
    file: TraceFile,
    gpu: Gpu = None,
    communication: Annotated[
        list[str] | None,
        typer.Option(
            "--communication",
            metavar="NAME",
            help="Kernels by name communicate between GPUs, as NCCL's do: '*my_ring*'. May be given again.",
        ),
    ] = None,
    damaged: Damaged = "refuse",
    *,
    as_json: AsJson = False,
) -> None:
    """Show the metrics of a trace that Streamscope or another profiler recorded, and what to know before believing them."""
    from streamscope.analysis import summary

    with _showing() as progress:
        trace = _read(file, gpu, damaged, progress)
        progress("measuring", 1, 1)
        found = summary(trace, communication=communication or ())
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
    with _showing() as progress:
        trace = _read(source, gpu, damaged, progress)
        progress(f"writing {target.name}", 1, 1)
        _writers()[suffix](trace, target)
    output().print(f"wrote {target}", soft_wrap=True, markup=False)


def diff(
    first: Annotated[Path, typer.Argument(metavar="A", parser=given_path, help=f"A trace: {READABLE}", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="B", parser=given_path, help="The trace to compare it with.", show_default=False)],
    gpu: Annotated[
        int | None,
        typer.Option(
            "--gpu",
            metavar="N",
            min=0,
            help="Which GPU of files with several; by default the busiest of A, if B has it.",
            show_default=False,
        ),
    ] = None,
    damaged: Damaged = "refuse",
    *,
    as_json: AsJson = False,
) -> None:
    """Compare two traces: what makes the second one faster or slower, and which kernels changed most."""
    from streamscope.analysis.diff import diff as compared

    with _showing() as progress:
        traces = _read_both((first, second), gpu, damaged, progress)
        progress("comparing", 1, 1)
        found = compared(*traces)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), allow_nan=False))
    else:
        _print_diff(output(), found)


def what_if(
    file: TraceFile,
    engine: Annotated[
        str | None, typer.Option("--engine", metavar="NAME", help="Predict this engine; by default the trace's own.", show_default=False)
    ] = None,
    streams: Annotated[
        int | None, typer.Option("--streams", metavar="N", min=1, max=128, help="Compute streams.", show_default=False)
    ] = None,
    scale: Annotated[
        list[str] | None,
        typer.Option(
            "--scale", metavar="KERNEL=FACTOR", help="Kernels by name take so many times as long: '*nvjet*=0.5'. May be given again."
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="KERNEL", help="Leave out kernels by name, or copy, set, host. May be given again."),
    ] = None,
    fused: Annotated[
        list[str] | None,
        typer.Option("--fused", metavar="A,B", help="Make one kernel of each chain of kernels of these names. May be given again."),
    ] = None,
    measured_us: Annotated[
        float | None,
        typer.Option(
            "--measured-us",
            metavar="T",
            help="Time of all that is in the file without a profiler, in µs, to compare with that.",
            show_default=False,
        ),
    ] = None,
    gpu: Gpu = None,
    damaged: Damaged = "refuse",
    *,
    waits: Annotated[
        bool,
        typer.Option("--waits/--no-waits", help="Keep waits of 30 µs or more that nothing in the trace explains; no: leave them out."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Predict a trace under another engine, with faster kernels, or without some.

    The times are predicted on the simulated device, with the durations, costs and dependencies that the trace has.
    """
    from streamscope.predicting.prediction import predicted_from, supposition_of

    factors = [_factor(text) for text in scale or ()]
    with _showing() as progress:
        trace = _read(file, gpu, damaged, progress)
        progress("predicting", 1, 1)
        try:
            supposed = supposition_of(trace, engine, streams, measured_us, waits=waits)
        except EngineError as error:
            raise WrongUsageError(error.message, hint=error.hint) from None
        for pattern, factor in factors:
            supposed = supposed.scaled(factor, pattern)
        for pattern in without or ():
            supposed = supposed.without(pattern)
        for chain in fused or ():
            supposed = supposed.fused(*chain.split(","))
        found = predicted_from(supposed)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), allow_nan=False))
    else:
        print_sentences(output(), str(found).partition("\n")[0], "bold", whole=True)
        _print_warnings(output(), found.told)


def _showing() -> AbstractContextManager[Progress]:
    """Show on standard error how far a command is, where that is a terminal."""
    return showing("reading", progress=notes().is_terminal)


def _read(path: Path, gpu: int | None, damaged: str, progress: Progress) -> Trace:
    from streamscope.formats.read import read as read_trace

    return read_trace(path, gpu, damaged=damaged, progress=progress)  # type: ignore[arg-type]


def _read_both(paths: tuple[Path, Path], gpu: int | None, damaged: str, progress: Progress) -> list[Trace]:
    """Read two traces: of one GPU where both files have it, else each of its busiest."""
    traces = [_read(path, gpu, damaged, progress) for path in paths]
    for ours, theirs in ((0, 1), (1, 0)):
        device, other = (traces[at].info.device for at in (ours, theirs))
        if device.gpu is not None and device.gpu != other.gpu and device.gpu in other.gpus:
            traces[theirs] = _read(paths[theirs], device.gpu, damaged, progress)
    return traces


def _factor(text: str) -> tuple[str, float]:
    """Split ``'*nvjet*=0.5'``; a name may have an equals sign in it."""
    from streamscope.predicting.supposition import LARGEST_FACTOR

    pattern, sign, factor = text.rpartition("=")
    try:
        value = float(factor)
    except ValueError:
        sign, value = "", math.nan
    if not sign or not pattern:
        raise typer.BadParameter(f"{text!r} is not KERNEL=FACTOR, such as '*nvjet*=0.5'", param_hint="--scale")
    if not 0 < value <= LARGEST_FACTOR:
        most = f"a factor is above 0, and {LARGEST_FACTOR:,.0f} at most"
        raise typer.BadParameter(f"{text!r} is out of range: {most}; --without leaves kernels out", param_hint="--scale")
    return pattern, value


def _writers() -> Mapping[str, Callable[[Trace, Path], object]]:
    """Return what writes each format, by the ending of its files."""
    from streamscope.analysis import json_lines
    from streamscope.trace import Trace
    from streamscope.trace.format import writers

    return {
        **{suffix: each.write for suffix, each in writers().items() if each.write},
        ".csv": Trace.to_csv,
        **dict.fromkeys((".html", ".pdf", ".md"), Trace.report),
        ".jsonl": lambda trace, path: _write_text(json_lines(trace), path),
    }


def _write_text(text: str, path: Path) -> None:
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _print(console: Console, found: Summary) -> None:
    """Print the numbers, the streams and the warnings."""
    from streamscope.analysis.summary import KERNEL_HEADS, STREAM_HEADS

    print_sentences(console, found.title, "bold", whole=True)
    _print_table(console, _table(None, ((label, value) for label, value, _ in found.rows())))
    if found.streams:
        console.print()
        _print_table(console, _table([head.removesuffix(", µs") for head in STREAM_HEADS], found.stream_rows(), title="Times in µs"))
    if found.kernels:
        console.print()
        _print_table(console, _named_table(console, KERNEL_HEADS, (kernel.cells() for kernel in found.kernels)))
        if found.more_kernels:
            console.print(found.more_kernels)
    _print_warnings(console, found.warnings)


def _print_diff(console: Console, found: TraceDiff) -> None:
    """Print the answer, what the difference is made of, what changed most, and the warnings."""
    from streamscope.analysis.diff_rows import HEADINGS

    print_sentences(console, found.title, "bold", whole=True)
    print_sentences(console, found.answer, whole=True)
    console.print()
    _print_table(console, _table(("part of the span", "first, µs", "second, µs", "difference, µs"), found.contribution_rows()))
    if found.changed:
        console.print()
        _print_table(console, _named_table(console, HEADINGS, found.table_rows(MOST_ROWS)))
        if len(found.changed) > MOST_ROWS:
            console.print(f"and {counted(len(found.changed) - MOST_ROWS, 'more row')}: --json has them all")
    _print_warnings(console, found.warnings)


def _print_warnings(console: Console, warnings: Sequence[str]) -> None:
    """Print what to know before believing the numbers, numbered."""
    for number, warning in enumerate(warnings, 1):
        if number == 1:
            console.print()
        print_sentences(console, f"[{number}] {_GPU_ARGUMENT.sub('--gpu chooses', warning)}", "yellow", whole=True)


def _print_table(console: Console, table: Table) -> None:
    """Print a table; names are whole where no terminal says how much room there is."""
    if console.is_terminal:
        console.print(table)
        return
    console.width = ANY_WIDTH
    with console.capture() as printed:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))


def _named_table(console: Console, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table of kernels. In a terminal, what one computes gets a line of its own, since kernels of PyTorch share a few long names.

    Elsewhere names are whole and stand last: the longest would move all numbers to the right.
    """
    if console.is_terminal:
        return _table(heads, ((re.sub(r"^(\w{12,}) (?=\w)", "\\1\n  ", name), *cells) for name, *cells in rows))
    return _table((*heads[1:], heads[0]), ((*cells, name) for name, *cells in rows), names=-1)


def _table(heads: Sequence[str] | None, rows: Iterable[Sequence[str]], title: str | None = None, names: int = 0) -> Table:
    """Return a table: the column of names to the left, the others, if they have heads, to the right.

    Names that a terminal has no room for are cut, numbers never.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=heads is not None, padding=(0, 2, 0, 0), title=title, title_justify="left", title_style="dim")
    texts = [[Text(printable(cell)) for cell in row] for row in rows]
    for number, head in enumerate(heads or ()):
        named = number == names % len(heads or ())
        longest = max(len(word) for text in (head, *(row[number].plain for row in texts)) for word in text.split(" "))
        table.add_column(head, justify="left" if named else "right", min_width=None if named else longest)
    for row in texts:
        row[names].no_wrap, row[names].overflow = True, "ellipsis"
        table.add_row(*row)
    return table
