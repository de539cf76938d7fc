"""``streamscope diff``: two traces compared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamscope.cli.parameters import AsJson, given_path
from streamscope.cli.tables import named_table, print_table, print_warnings, show, table
from streamscope.cli.terminal import print_sentences
from streamscope.cli.trace_files import READABLE, Damaged, read_trace, reading_progress
from streamscope.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from streamscope.analysis.diff import TraceDiff


_MOST_ROWS = 12
"""Rows of a comparison that a terminal gets."""


def diff(
    first: Annotated[Path, typer.Argument(metavar="A", parser=given_path, help=f"A trace: {READABLE}", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="B", parser=given_path, help="The trace to compare it with.", show_default=False)],
    gpu: Annotated[
        int | None,
        typer.Option(
            "--gpu",
            metavar="N",
            min=0,
            help="Which GPU of files with several; by default the one with most work in A, if B has it.",
            show_default=False,
        ),
    ] = None,
    damaged: Damaged = "refuse",
    *,
    as_json: AsJson = False,
) -> None:
    """Compare two traces: why the second one is faster or slower, and which kernels changed most."""
    from streamscope.analysis.diff import diff as compared

    with reading_progress() as progress:
        traces = [read_trace(path, gpu, damaged, progress) for path in (first, second)]
        progress("comparing", 1, 1)
        found = compared(*traces)
    show(found, _print_diff, as_json=as_json)


def _print_diff(console: Console, found: TraceDiff) -> None:
    """Print the answer, the parts of the difference, the largest changes, and the warnings."""
    from streamscope.analysis.diff_rows import HEADINGS

    print_sentences(console, found.title, "bold", whole=True)
    print_sentences(console, found.answer, whole=True)
    console.print()
    print_table(console, table(("part of the span", "first, µs", "second, µs", "difference, µs"), found.contribution_rows()))
    if found.changed:
        console.print()
        print_table(console, named_table(console, HEADINGS, found.table_rows(_MOST_ROWS)))
        if len(found.changed) > _MOST_ROWS:
            console.print(f"and {counted(len(found.changed) - _MOST_ROWS, 'more row')}: --json has them all")
    print_warnings(console, found.warnings)
