"""``streamscope compare``: one workload under several engines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamscope import options
from streamscope.commands.terminal import complain, notes, output

if TYPE_CHECKING:
    from streamscope.comparison import Comparison

WRONG_RESULTS = 3


def _one_of(choices: Sequence[str]) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in choices:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(choices)}")
        return value

    return check


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
            callback=_one_of(options.DEVICE.choices),
        ),
    ] = str(options.DEVICE.default),
    engines: Annotated[
        str | None, typer.Option(options.ENGINES.flag, metavar=options.ENGINES.metavar, help=options.ENGINES.help, show_default=False)
    ] = None,
    repeats: Annotated[
        int, typer.Option(options.REPEATS.flag, metavar=options.REPEATS.metavar, help=options.REPEATS.help, min=options.REPEATS.least)
    ] = int(options.REPEATS.default or 1),
    streams: Annotated[
        int, typer.Option(options.STREAMS.flag, metavar=options.STREAMS.metavar, help=options.STREAMS.help, min=options.STREAMS.least)
    ] = int(options.STREAMS.default or 1),
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Write comparison.json, report.html and a Parquet trace of each engine there.", show_default=False
        ),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> int:
    """Run a workload under several engines, interleaved, and compare them.

    Exits with 3 if the results of an engine differ from the NumPy reference.
    """
    from streamscope import comparing as module
    from streamscope.workloads import workload as find

    chosen = find(workload)
    program, inputs = chosen.build(**_values(settings or []))

    def run() -> Comparison:
        shown = notes().is_terminal  # A progress bar is of no use in a file.
        return module.compare(
            program, *inputs, engines=engines, repeats=repeats, streams=streams, device=device, progress=shown, name=chosen.name
        )

    comparison = run() if out is None else _written(out, run)
    if as_json:
        typer.echo(json.dumps(comparison.to_json(), allow_nan=False))
    else:
        from streamscope.commands.comparison_table import print_comparison

        print_comparison(output(), comparison)
    if out is not None:
        (notes() if as_json else output()).print(_where(out, comparison), soft_wrap=True)
    return _judge(comparison)


def _values(settings: Sequence[str]) -> dict[str, str]:
    """Split ``name=value`` pairs."""
    values = {}
    for setting in settings:
        name, sign, value = setting.partition("=")
        if not sign or not name.strip():
            raise typer.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint="--set")
        values[name.strip()] = value.strip()
    return values


def _written(folder: Path, run: Callable[[], Comparison]) -> Comparison:
    """Find the folder writable, run, and fill it: with everything or with nothing."""
    from streamscope.files import filled_whole

    with filled_whole(folder) as unfinished:
        comparison = run()
        comparison.save(unfinished)
        comparison.report(unfinished / "report.html")
    return comparison


def _where(folder: Path, comparison: Comparison) -> str:
    traces = ", ".join(f"{engine}.parquet" for engine in comparison)
    return f"Report, for a browser: {folder / 'report.html'}\nIn the same folder: comparison.json, {traces}"


def _judge(comparison: Comparison) -> int:
    wrong = {engine: run for engine, run in comparison.items() if not run.correct}
    for engine, run in wrong.items():
        complain(
            f"the results of {engine} are wrong: off by {run.max_abs_error:.3g} from the NumPy reference, tolerance {run.tolerance:.3g}",
            "do not believe its times; please report this with the files",
        )
    return WRONG_RESULTS if wrong else 0
