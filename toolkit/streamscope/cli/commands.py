"""The short commands: ``streamscope advise``, ``export``, ``workloads``, ``doctor`` and ``calibrate``."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamscope import options
from streamscope.cli.parameters import WORKLOAD, WRONG_SETTING, Settings, built, given_path, out, shared
from streamscope.cli.terminal import notes, output
from streamscope.errors import NoDeviceError
from streamscope.files import suffix_of, writable_file
from streamscope.options import setting_values
from streamscope.results.result import PICTURES, REPORTS, report_suffix

if TYPE_CHECKING:
    from rich.console import Console

    from streamscope.cli.checks import Diagnosis

SIGNS = {"ok": ("✓", "green"), "lacking": ("✗", "red"), "unneeded": ("–", "dim")}


def advise(
    workload: Annotated[
        str | None,
        typer.Argument(metavar="WORKLOAD", help=f"What to advise on; without one, the device alone. {WORKLOAD}", show_default=False),
    ] = None,
    settings: Settings = None,
    device: Annotated[str, shared(options.DEVICE)] = str(options.DEVICE.default),
    file: Annotated[Path | None, out("FILE", "Write the advice with its picture there: .html, .pdf or .md.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of words.")] = False,
) -> None:
    """Find out at which kernel length and count a graph or a second stream pays.

    Predicts with the cost model of this device, which `calibrate` measures; with a workload, predicts that too.
    """
    from streamscope.advising import advice
    from streamscope.advising.sentences import WIDTH, advice_text

    values = setting_values(settings, WRONG_SETTING)
    if workload is None and values:
        raise typer.BadParameter("a setting needs a workload", param_hint="--set")
    program, inputs, _ = (None, (), {}) if workload is None else built(workload, values)
    if file is not None:
        report_suffix(writable_file(file))
    found = advice.advise(program, *inputs, device=device, progress=notes().is_terminal)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), allow_nan=False))
    else:
        console = output()
        console.print(advice_text(found.costs, found.forecast, min(WIDTH, console.width)), soft_wrap=True)
    if file is not None:
        (notes() if as_json else output()).print(f"With a picture, for a browser: {found.report(file)}", soft_wrap=True)


def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", parser=given_path, help="What `streamscope compare --out DIR` wrote.", show_default=False)
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            parser=given_path,
            help="Each ends with .html, .pdf or .md (report), .json (numbers), .svg or .png (picture), .csv or .parquet (spans).",
            show_default=False,
        ),
    ],
    of: Annotated[str, typer.Option("--of", metavar="PICTURE", help="timeline, makespans, speedups, overlaps or launches.")] = "timeline",
) -> None:
    """Write a saved comparison as a document, a picture or a table of spans."""
    from streamscope.comparing.comparison import load_comparison

    for file in files:
        suffix_of(file, *REPORTS, ".json", *PICTURES, ".csv", ".parquet")
        writable_file(file)
    comparison = load_comparison(folder)
    for file in files:
        if file.suffix.lower() in PICTURES:
            comparison.picture(file, of)
        else:
            comparison.save(file)
        output().print(f"wrote {file}", soft_wrap=True)


def workloads() -> None:
    """List the workloads with their settings."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from streamscope.workloads import WORKLOADS

    console = output()
    for workload in WORKLOADS.values():
        console.print(Text(workload.name, style="bold"))
        console.print(Padding(workload.description, (0, 2)))
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 4))
        table.add_column(style="cyan", no_wrap=True)
        table.add_column()
        table.add_column(style="dim", no_wrap=True)
        for name, setting in workload.settings.items():
            table.add_row(f"{name}={setting.default}", setting.meaning, f"{setting.least:,} to {setting.most:,}")
        console.print(table)
        console.print()
    console.print("For example: streamscope compare elementwise-chain --set length=50", soft_wrap=True)


def doctor(*, as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False) -> int:
    """Say what this machine has, and what to do about what it lacks.

    Exits with 1 if Streamscope cannot run here at all.
    """
    from streamscope.cli.checks import diagnose

    diagnosis = diagnose()
    if as_json:
        typer.echo(json.dumps(diagnosis.to_dict()))
    else:
        _print(output(), diagnosis)
    return 0 if diagnosis.can_run else 1


def _print(console: Console, diagnosis: Diagnosis) -> None:
    from rich.table import Table
    from rich.text import Text

    for topic, checks in groupby(diagnosis.checks, key=lambda check: check.topic):
        console.print(Text(topic, style="bold"))
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, min_width=max(len(check.name) for check in diagnosis.checks))
        table.add_column()
        for check in checks:
            sign, style = SIGNS[check.state]
            table.add_row(Text(f"  {sign}", style=style), check.name, Text(check.found, style="" if check.state != "unneeded" else "dim"))
            if check.todo:
                table.add_row("", "", Text(f"→ {check.todo}", style="yellow" if check.state == "lacking" else "dim"))
        console.print(table)
        console.print()
    console.print(Text(_conclusion(diagnosis), style="bold"))


def _conclusion(diagnosis: Diagnosis) -> str:
    if not diagnosis.can_run:
        return "Streamscope cannot run here yet."
    return "Streamscope runs here" + (
        ", on the GPU." if diagnosis.device == "cuda" else ", on the simulated device: all times are simulated."
    )


def calibrate(*, file: Annotated[Path | None, out("FILE", "Where to write it; by default, where later runs look.")] = None) -> None:
    """Measure what calls, kernels, copies and graphs cost on this GPU, and keep it.

    The event recorder takes the duration of its reference kernel from it, and the simulated device all of its times. It needs CUPTI.
    """
    from streamscope.calibrating.measure_costs import measure_cost_model
    from streamscope.devices.cuda import CudaDevice
    from streamscope.devices.measured_models import save_model

    if file is not None:
        writable_file(file)
    said = notes()
    try:
        device = CudaDevice()
    except NoDeviceError as error:
        raise NoDeviceError(error.message, hint="costs are measured on a GPU; `streamscope doctor` says what is missing here") from None
    model = measure_cost_model(device, lambda what: said.print(f"measuring {what}"))
    path = save_model(model, file)
    output().print(f"{model.provenance.device}: {model.memory_gb_s:g} GB/s, launch {model.launch_ns:g} ns, wrote {path}", soft_wrap=True)
