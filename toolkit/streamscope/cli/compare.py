"""``streamscope compare``: one workload under several engines; in a terminal, their metrics, which fit 80 columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamscope import options
from streamscope.cli.parameters import WORKLOAD, WRONG_GPUS, WRONG_SETTING, AsJson, Settings, WrongUsageError, built, out, shared
from streamscope.cli.tables import show
from streamscope.cli.terminal import complain, notes, output, print_sentences
from streamscope.options import gpus_of, setting_values

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from streamscope.analysis.table import MetricsTable
    from streamscope.comparing.comparison import Comparison

_WRONG_RESULTS = 3

_BEST, _MUTED = "bold green", "dim"


def compare(
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD",
            help=f"What to run: {WORKLOAD}",
            show_default=False,
        ),
    ],
    settings: Settings = None,
    engines: Annotated[str | None, shared(options.ENGINES)] = None,
    device: Annotated[str, shared(options.DEVICE)] = str(options.DEVICE.default),
    gpus: Annotated[str | None, shared(options.GPUS)] = None,
    streams: Annotated[int | None, shared(options.STREAMS)] = None,
    repeats: Annotated[int, shared(options.REPEATS)] = int(options.REPEATS.default or 1),
    recorder: Annotated[str, shared(options.RECORDER)] = str(options.RECORDER.default),
    name: Annotated[str | None, shared(options.NAME)] = None,
    folder: Annotated[Path | None, out("DIR", "Write comparison.json, report.html and a Parquet trace of each engine there.")] = None,
    *,
    ledger: Annotated[bool, shared(options.LEDGER)] = False,
    fuse: Annotated[bool, shared(options.FUSE)] = False,
    as_json: AsJson = False,
) -> int:
    """Run a workload under several engines, interleaved, and compare them.

    Exits with 3 if the results of an engine differ from the NumPy reference.
    """
    from streamscope.comparing import compare as module
    from streamscope.program.foreign import ForeignProgram
    from streamscope.tracing import program as fused

    on_gpus = gpus_of(gpus, WRONG_GPUS)
    program, inputs, used = built(workload, setting_values(settings, WRONG_SETTING), on_gpus)
    _check_engines(engines)

    def run() -> Comparison:
        shown = notes().is_terminal  # A progress bar is of no use in a file.
        return module.compare(
            fused(program, fuse=True) if fuse else program,
            *inputs,
            engines=engines,
            device=device,
            gpus=on_gpus,
            streams=streams,
            repeats=repeats,
            progress=shown,
            recorder=recorder,
            ledger=ledger,
            name=name or (program.name if isinstance(program, ForeignProgram) else workload),
            settings=used,
        )

    comparison = run() if folder is None else write_folder(folder, run)
    show(comparison, _print, as_json=as_json)
    if folder is not None:
        (notes() if as_json else output()).print(_where(folder), soft_wrap=True)
    return _judge(comparison)


def _check_engines(engines: str | None) -> None:
    """Check the names of engines before anything runs."""
    from streamscope.engines import engine_names
    from streamscope.errors import EngineError

    try:
        engine_names(engines)
    except EngineError as error:
        raise WrongUsageError(error.message, hint=error.hint) from None


def write_folder(folder: Path, run: Callable[[], Comparison]) -> Comparison:
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
    return _WRONG_RESULTS if wrong else 0


def _print(console: Console, comparison: Comparison) -> None:
    """Print a comparison: title, verdict, metrics, notes."""
    from rich.text import Text

    from streamscope.analysis.table import device_words, metrics_table

    simulated = comparison.device.simulated
    table = metrics_table(comparison.metrics, comparison.assessment.wrong)
    console.print(Text.assemble((comparison.title, "bold"), " · ", (device_words(comparison.device), "yellow" if simulated else "")))
    console.print()
    print_sentences(console, comparison.verdict)
    console.print()
    if table.caption:
        print_sentences(console, table.caption)
    console.print(_metrics(table))
    for number, note in enumerate(table.notes, 1):
        print_sentences(console, f"[{number}] {note}", _MUTED)
    console.print()


def _metrics(table: MetricsTable) -> Table:
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    grid.add_column(no_wrap=True)
    for engine in table.cells:
        grid.add_column(table.names[engine], justify="right", style=_style(table, engine), header_style=_style(table, engine) or "bold")
    for row, heading in enumerate(table.headings):
        grid.add_row(heading, *(cells[row] for cells in table.cells.values()))
    return grid


def _style(table: MetricsTable, engine: str) -> str:
    return _BEST if engine in table.best else ""
