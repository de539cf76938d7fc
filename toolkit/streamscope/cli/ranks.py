"""``streamscope ranks``: all ranks of a job on one clock, and who made the others wait."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamscope.cli.parameters import AsJson, WrongUsageError
from streamscope.cli.tables import print_table, print_warnings, show, table
from streamscope.cli.terminal import print_sentences
from streamscope.cli.trace_files import Damaged, reading_progress
from streamscope.words import capitalised, counted

if TYPE_CHECKING:
    from rich.console import Console

    from streamscope.ranks.job import Job

_MOST_ROWS = 32


def ranks(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="A folder, a pattern in quotes, or the files of the ranks.", show_default=False)
    ],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME=RANKS", help="Ranks that share a host, and so its clock: a=0-3. May be given again."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="PATH", help="Also save the job: a folder, or a file .html, .md, .json, .csv.", show_default=False),
    ] = None,
    damaged: Damaged = "refuse",
    *,
    as_json: AsJson = False,
) -> None:
    """Read the traces of all ranks of a job, and show which rank the others wait for, and why."""
    from streamscope.ranks.reading import read_ranks

    hosts = {rank: name for text in host or () for name, numbers in [_shared(text)] for rank in numbers}
    with reading_progress() as progress:
        job = read_ranks(paths[0] if len(paths) == 1 else paths, hosts=hosts, damaged=damaged, progress=progress)  # type: ignore[arg-type]
    if save is not None:
        job.save(save)
    show(job, _print, as_json=as_json)


def _shared(text: str) -> tuple[str, list[int]]:
    """Return a host and its ranks: ``"a=0-3,8"``."""
    name, _, numbers = text.partition("=")
    try:
        ends = [[int(end) for end in part.split("-")] for part in numbers.split(",")]
        found = [rank for low, high in ((each[0], each[-1]) for each in ends if len(each) < 3) for rank in range(low, high + 1)]
    except ValueError:
        found = []
    if not name or not found:
        raise WrongUsageError(f"--host {text!r:.60} names no ranks of a host", hint="for example --host a=0-3 --host b=4-7")
    return name, found


def _print(console: Console, job: Job) -> None:
    """Print the verdict, the ranks, those that are late, the critical path, and the warnings."""
    from streamscope.ranks.job import PATH_HEADS, RANK_HEADS

    print_sentences(console, job.title, "bold", whole=True)
    print_sentences(console, job.verdict, whole=True)
    console.print()
    rows = job.table_rows()
    print_table(console, table(RANK_HEADS, rows[:_MOST_ROWS]))
    if len(rows) > _MOST_ROWS:
        console.print(f"and {counted(len(rows) - _MOST_ROWS, 'more rank')}: --json has them all")
    for late in job.late[1:]:
        print_sentences(console, late.words, whole=True)
    if path := job.path_cells(_MOST_ROWS):
        console.print()
        print_table(console, table(PATH_HEADS, path, title=f"Critical path of {'a step' if len(job.steps) else 'the recording'}"))
    print_warnings(console, [capitalised(warning) for warning in job.warnings])
