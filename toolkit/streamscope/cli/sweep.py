"""``streamscope sweep``: engines compared over a grid of a workload's settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamscope import options
from streamscope.cli.main import FAILED
from streamscope.cli.parameters import (
    WORKLOAD,
    WRONG_GPUS,
    WRONG_SETTING,
    AsJson,
    ExecutorName,
    WrongUsageError,
    executor_of,
    given_path,
    is_captured,
    out,
    shared,
)
from streamscope.cli.tables import print_table, show, table
from streamscope.cli.terminal import complain, notes, output, print_sentences
from streamscope.options import gpus_of, setting_values

if TYPE_CHECKING:
    from rich.console import Console

    from streamscope.comparing.swept import Sweep

_WRONG_RESULTS = 3


def sweep(
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help=f"What to run: {WORKLOAD}", show_default=False)],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE,…",
            help="Values of a setting, or of streams, recorder, repeats, gpus or device; may be repeated, and all then meet all.",
        ),
    ] = None,
    engines: Annotated[str | None, shared(options.ENGINES)] = None,
    device: Annotated[str, shared(options.DEVICE)] = str(options.DEVICE.default),
    gpus: Annotated[str | None, shared(options.GPUS)] = None,
    streams: Annotated[int | None, shared(options.STREAMS)] = None,
    repeats: Annotated[int, shared(options.REPEATS)] = int(options.REPEATS.default or 1),
    recorder: Annotated[str, shared(options.RECORDER)] = str(options.RECORDER.default),
    name: Annotated[str | None, shared(options.NAME)] = None,
    path: Annotated[
        Path | None,
        typer.Option(
            "--path",
            metavar="FILE.jsonl",
            parser=given_path,
            help="Keep points that are done there, and do not do them again.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[Path | None, out("FILE", "Write the sweep there: .html, .pdf, .md, .json, .csv, .parquet, .svg or .png.")] = None,
    executor: ExecutorName = None,
    *,
    as_json: AsJson = False,
) -> int:
    """Compare engines at each point of a grid of settings.

    A point that fails is a row that says why. Exits with 3 if the results of an engine are wrong somewhere, else with 1 if a point failed.
    """
    from streamscope.comparing import sweep as module
    from streamscope.comparing.swept import Sweep
    from streamscope.errors import WorkloadError
    from streamscope.files import suffix_of, writable_file

    grid = {setting: _values(text) for setting, text in setting_values(settings, WRONG_SETTING).items()}
    on_gpus = gpus_of(gpus, WRONG_GPUS)
    if not grid:
        example = f"gpus={gpus}" if isinstance(on_gpus, list) else "size=1024,4096"  # To --gpus, 2,4 are two GPUs of a host.
        raise WrongUsageError("there is no setting to sweep over", hint=f"for example --set {example}; at one point, use compare")
    if file is not None:
        suffix_of(writable_file(file), *Sweep("", ()).writers())
    try:
        with executor_of(executor) as workers:
            found = module.sweep(
                _program(workload),
                grid,
                engines=engines,
                device=device,
                gpus=on_gpus,
                streams=streams,
                repeats=repeats,
                recorder=recorder,
                name=name,
                progress=notes().is_terminal,
                executor=workers,
                path=path,
            )
    except WorkloadError as error:
        raise WrongUsageError(error.message, hint=error.hint) from None
    show(found, _print, as_json=as_json)
    if file is not None:
        (notes() if as_json else output()).print(f"Written: {found.save(file)}", soft_wrap=True)
    return _judge(found)


def _program(name: str) -> Any:
    if not is_captured(name):
        return name
    from streamscope.capturing.saved import load_captured

    return load_captured(name)


def _values(text: str) -> list[int | str]:
    return [int(value) if value.isdecimal() else value for value in map(str.strip, text.split(","))]


def _print(console: Console, found: Sweep) -> None:
    """Print a sweep: title, finding, a row for each point, and why points failed."""
    print_sentences(console, found.title, "bold", whole=True)
    print_sentences(console, found.headline, whole=True)
    console.print()
    print_table(console, table(found.headings, found.rows(), names=-1))
    for number, note in enumerate(found.notes, 1):
        print_sentences(console, f"[{number}] {note}", "yellow", whole=True)


def _judge(found: Sweep) -> int:
    if found.failed:
        complain(f"{len(found.failed):,} of {len(found.points):,} points failed", "the notes say why; --path keeps the others")
    wrong = sorted({engine for point in found.points for engine in point.wrong})
    if wrong:
        complain(f"results are wrong under {', '.join(wrong)}", "do not believe their times; please report this")
    return _WRONG_RESULTS if wrong else FAILED if found.failed else 0
