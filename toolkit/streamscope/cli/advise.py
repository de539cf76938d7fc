"""``streamscope advise``: at which kernel length and count a graph or a second stream pays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from streamscope import options
from streamscope.cli.parameters import WORKLOAD, WRONG_SETTING, AsJson, Settings, built, out, shared
from streamscope.cli.terminal import notes, output
from streamscope.files import writable_file
from streamscope.options import setting_values
from streamscope.results.result import report_suffix


def advise(
    workload: Annotated[
        str | None,
        typer.Argument(metavar="WORKLOAD", help=f"What to advise on; without one, the device alone. {WORKLOAD}", show_default=False),
    ] = None,
    settings: Settings = None,
    device: Annotated[str, shared(options.DEVICE)] = str(options.DEVICE.default),
    file: Annotated[Path | None, out("FILE", "Write the advice with its picture there: .html, .pdf or .md.")] = None,
    *,
    as_json: AsJson = False,
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
