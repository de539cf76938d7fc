"""``streamscope ranks``: all ranks of a job on one clock, and who made the others wait."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamscope.arguments import size_in_bytes
from streamscope.cli.parameters import AsJson, ExecutorName, Scale, Without, WrongUsageError, executor_of, given_path, kernel_factor
from streamscope.cli.tables import fitted_table, print_table, print_warnings, show
from streamscope.cli.terminal import notes, output, print_sentences
from streamscope.cli.trace_files import Damaged, reading_progress
from streamscope.errors import TraceError
from streamscope.files import suffix_of, writable_file
from streamscope.words import capitalised, counted

if TYPE_CHECKING:
    from rich.console import Console

    from streamscope.ranks.job import Job
    from streamscope.ranks.what_if import JobPrediction

_MOST_ROWS = 32
_SLOWEST_LINK, _FASTEST_LINK = 1e-6, 1e6


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
        typer.Option(
            "--save",
            metavar="PATH",
            parser=given_path,
            help="Also save the job: a folder, or a file .html, .md, .json, .csv.",
            show_default=False,
        ),
    ] = None,
    damaged: Damaged = "refuse",
    executor: ExecutorName = None,
    work: Annotated[
        Path | None,
        typer.Option(
            "--work", metavar="DIR", parser=given_path, help="Folder between the readers, which all of them see.", show_default=False
        ),
    ] = None,
    like: Annotated[
        list[str] | None,
        typer.Option("--like", metavar="RANK=RANK", help="What if the first rank did what the second one does: 2=1. May be given again."),
    ] = None,
    scale: Scale = None,
    without: Without = None,
    link: Annotated[
        float | None, typer.Option("--link", metavar="FACTOR", help="What if links were so many times as fast.", show_default=False)
    ] = None,
    bucket: Annotated[
        list[str] | None,
        typer.Option("--bucket", metavar="KIND=SIZE", help="What if collectives were merged: all_reduce='25 MB'. May be given again."),
    ] = None,
    *,
    what_if: Annotated[bool, typer.Option("--what-if", help="Predict, with the changes that are given; without any, the replay.")] = False,
    serial: Annotated[bool, typer.Option("--serial", help="What if each rank ran one thing at a time.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read the traces of all ranks of a job, and show which rank the others wait for, and why; or predict it with changes."""
    from streamscope.ranks.reading import read_ranks

    hosts = _hosts(host or ())
    changes = _Changes.of(like or (), scale or (), without or (), link, bucket or (), serial=serial)
    with executor_of(executor) as readers, reading_progress() as progress:
        job = read_ranks(
            paths[0] if len(paths) == 1 else paths,
            hosts=hosts, damaged=damaged, progress=progress, executor=readers, work=work,  # type: ignore[arg-type]
        )  # fmt: skip
        predicted: JobPrediction | None = None
        if what_if or changes != _Changes():
            progress("predicting", 1, 1)
            predicted = changes.predicted(job)
    result = job if predicted is None else predicted
    if save is not None:
        _save(result, save)
    if predicted is None:
        show(job, _print, as_json=as_json)
    else:
        show(predicted, _print_prediction, as_json=as_json)
    if save is not None:
        (notes() if as_json else output()).print(f"wrote {save}", soft_wrap=True)


def _save(result: Job | JobPrediction, path: Path) -> None:
    """Write a result, and make the folders that are missing, unless the ending of a file is wrong."""
    if path.suffix and not os.path.isdir(path):  # noqa: PTH112 — that of pathlib raises where a name is too long
        suffix_of(path, *result.writers())
        writable_file(path)
    result.save(path)


@dataclass(frozen=True)
class _Changes:
    """Changes of a job, as options give them."""

    like: Sequence[tuple[int, int]] = ()
    scale: Sequence[tuple[str, float]] = ()
    without: Sequence[str] = ()
    link: float | None = None
    bucket: Sequence[tuple[str, str]] = ()
    serial: bool = False

    @classmethod
    def of(
        cls, like: Sequence[str], scale: Sequence[str], without: Sequence[str], link: float | None, bucket: Sequence[str], *, serial: bool
    ) -> _Changes:
        """Check the options, before a job is read."""
        if link is not None and not _SLOWEST_LINK <= link <= _FASTEST_LINK:
            raise WrongUsageError(f"--link: links cannot be {link:g} times as fast", hint="give a number above 0, 2 for twice as fast")
        return cls(tuple(map(_alike, like)), tuple(map(kernel_factor, scale)), tuple(without), link, tuple(map(_bucket, bucket)), serial)

    def predicted(self, job: Job) -> JobPrediction:
        """Return the prediction of a job with these changes."""
        found = job.what_if()
        for late, other in self.like:
            with _wrong_name():
                chosen = found.what_if(other).what_if(late)
            found = chosen.like(other).what_if()
        for pattern, factor in self.scale:
            found = found.kernel(pattern).scale(factor)
        found = found.without(*self.without) if self.without else found
        for kind, size in self.bucket:
            with _wrong_name() if len(job.matched) else nullcontext():
                collectives = found.collective(kind)
            found = collectives.bucket(size)
        found = found if self.link is None else found.link(self.link)
        return found.serial() if self.serial else found


@contextmanager
def _wrong_name() -> Iterator[None]:
    """Take the error that a job has no such rank or kind of collectives for wrong use."""
    try:
        yield
    except TraceError as error:
        raise WrongUsageError(error.message, hint=error.hint) from None


def _bucket(text: str) -> tuple[str, str]:
    """Return a kind of collectives and a size: ``"all_reduce=25 MB"``."""
    kind, sign, size = text.partition("=")
    if not sign or not kind:
        raise WrongUsageError(f"--bucket {text!r:.60} names no kind and size", hint="for example --bucket 'all_reduce=25 MB'")
    size_in_bytes("a bucket", size, error=WrongUsageError)
    return kind, size


def _alike(text: str) -> tuple[int, int]:
    """Return two ranks: ``"2=1"``."""
    late, _, other = text.partition("=")
    if not (late.isdecimal() and other.isdecimal()):
        raise WrongUsageError(f"--like {text!r:.60} does not name two ranks", hint="for example --like 2=1")
    if int(late) == int(other):
        raise WrongUsageError(f"--like {text!r:.60}: the rank is to be like itself", hint="choose another rank that does the same")
    return int(late), int(other)


def _print_prediction(console: Console, found: JobPrediction) -> None:
    """Print the verdict, the ranks as recorded and as predicted, and the notes."""
    print_sentences(console, found.title, "bold", whole=True)
    print_sentences(console, found.verdict, whole=True)
    console.print()
    rows = found.table_rows()
    print_table(console, fitted_table(console, found.heads, rows[:_MOST_ROWS], [found.heads.index("GPU")]))
    if len(rows) > _MOST_ROWS:
        console.print(f"and {counted(len(rows) - _MOST_ROWS, 'more rank')}: --json has them all")
    print_warnings(console, [capitalised(note) for note in found.notes])


def _hosts(texts: Sequence[str]) -> dict[int, str]:
    """Return the host of each rank that options name."""
    found: dict[int, str] = {}
    for name, numbers in map(_shared, texts):
        for rank in numbers:
            if found.setdefault(rank, name) != name:
                raise WrongUsageError(f"--host has rank {rank} on {found[rank]!r:.60} and on {name!r:.60}", hint="a rank has one host")
    return found


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
    print_table(console, fitted_table(console, RANK_HEADS, rows[:_MOST_ROWS], [RANK_HEADS.index("GPU")]))
    if len(rows) > _MOST_ROWS:
        console.print(f"and {counted(len(rows) - _MOST_ROWS, 'more rank')}: --json has them all")
    for sentence in job.further:
        print_sentences(console, sentence, whole=True)
    if path := job.path_cells(_MOST_ROWS):
        console.print()
        names = [PATH_HEADS.index(head) for head in ("where", "under")]
        title = f"Critical path of {'a step' if len(job.steps) else 'the recording'}"
        print_table(console, fitted_table(console, PATH_HEADS, path, names, title))
    print_warnings(console, [capitalised(warning) for warning in job.warnings])
