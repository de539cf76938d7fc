"""``streamscope compare``: one workload under several engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamscope import options
from streamscope.cli.terminal import complain, notes, output
from streamscope.cli.wrong_usage import WrongUsageError, built_workload, given_path, one_of, setting_values

if TYPE_CHECKING:
    from streamscope.comparing.comparison import Comparison

WRONG_RESULTS = 3


def compare(
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="What to run; `streamscope workloads` lists them.", show_default=False)
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the workload; may be repeated.", show_default=False),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            options.DEVICE.flag,
            metavar="|".join(options.DEVICE.choices),
            help=options.DEVICE.help,
            callback=one_of(options.DEVICE.choices),
        ),
    ] = str(options.DEVICE.default),
    engines: Annotated[
        str | None, typer.Option(options.ENGINES.flag, metavar=options.ENGINES.metavar, help=options.ENGINES.help, show_default=False)
    ] = None,
    repeats: Annotated[
        int,
        typer.Option(
            options.REPEATS.flag,
            metavar=options.REPEATS.metavar,
            help=options.REPEATS.help,
            min=options.REPEATS.least,
            max=options.REPEATS.most,
        ),
    ] = int(options.REPEATS.default or 1),
    streams: Annotated[
        int,
        typer.Option(
            options.STREAMS.flag,
            metavar=options.STREAMS.metavar,
            help=options.STREAMS.help,
            min=options.STREAMS.least,
            max=options.STREAMS.most,
        ),
    ] = int(options.STREAMS.default or 1),
    memory_limit: Annotated[
        str | None,
        typer.Option(options.MEMORY_LIMIT.flag, metavar=options.MEMORY_LIMIT.metavar, help=options.MEMORY_LIMIT.help, show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            parser=given_path,
            help="Write comparison.json, report.html and a Parquet trace of each engine there.",
            show_default=False,
        ),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> int:
    """Run a workload under several engines, interleaved, and compare them.

    Exits with 3 if the results of an engine differ from the NumPy reference.
    """
    from streamscope.comparing import compare as module

    (program, inputs), used = built_workload(workload, setting_values(settings or []))
    _check_engines(engines, memory_limit)

    def run() -> Comparison:
        shown = notes().is_terminal  # A progress bar is of no use in a file.
        return module.compare(
            program,
            *inputs,
            engines=engines,
            repeats=repeats,
            streams=streams,
            device=device,
            progress=shown,
            name=workload,
            memory_limit=memory_limit,
            settings=used,
        )

    comparison = run() if out is None else _written(out, run)
    if as_json:
        typer.echo(json.dumps(comparison.to_json(), allow_nan=False))
    else:
        from streamscope.cli.comparison_table import print_comparison

        print_comparison(output(), comparison)
        if comparison.choice is not None:
            output().print(f"Chosen: {comparison.choice.reason}\n")
    if out is not None:
        (notes() if as_json else output()).print(_where(out), soft_wrap=True)
    return _judge(comparison)


def _check_engines(engines: str | None, memory_limit: str | None) -> None:
    """Find what is wrong with the names of engines and the limit before anything runs."""
    from streamscope.comparing.compare import compared_engines
    from streamscope.errors import EngineError

    try:
        compared_engines(engines, memory_limit, options.Option.on_a_line)
    except EngineError as error:
        raise WrongUsageError(error.message, hint=error.hint) from None


def _written(folder: Path, run: Callable[[], Comparison]) -> Comparison:
    """Find the folder writable, run, and fill it: with everything or with nothing. A comparison of ours that was there goes."""
    from streamscope.comparing.comparison import write_files
    from streamscope.comparing.comparison_folder import FILE_NAME, REPORT_NAME, older_files
    from streamscope.files import filled_whole

    with filled_whole(folder, last=FILE_NAME, older=older_files) as unfinished:
        comparison = run()
        write_files(comparison, unfinished)
        comparison.report(unfinished / REPORT_NAME)
    return comparison


def _where(folder: Path) -> str:
    from streamscope.comparing.comparison_folder import FILE_NAME, REPORT_NAME

    return f"Report, for a browser: {folder / REPORT_NAME}\nIn the same folder: {FILE_NAME}, and the trace of each engine as Parquet"


def _judge(comparison: Comparison) -> int:
    wrong = {engine: run for engine, run in comparison.items() if not run.correct}
    for engine, run in wrong.items():
        complain(
            f"the results of {engine} are wrong: off by {run.max_abs_error:.3g} from the NumPy reference, tolerance {run.tolerance:.3g}",
            "do not believe its times; please report this with the files",
        )
    return WRONG_RESULTS if wrong else 0
