"""``streamscope advise``: whether a graph or a second stream pays, on this device and for a workload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from streamscope import options
from streamscope.cli.terminal import notes, output
from streamscope.cli.wrong_usage import built_workload, given_path, one_of, setting_values


def advise(
    workload: Annotated[
        str | None,
        typer.Argument(metavar="WORKLOAD", help="What to advise on; without one, the device alone is measured.", show_default=False),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the workload; may be repeated.", show_default=False),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            options.DEVICE.flag, metavar="|".join(options.DEVICE.choices), help=options.DEVICE.help, callback=one_of(options.DEVICE.choices)
        ),
    ] = str(options.DEVICE.default),
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", parser=given_path, help="Write the advice with its picture there, as HTML.", show_default=False
        ),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of words.")] = False,
) -> None:
    """Find out at which kernel length and count a graph or a second stream pays.

    Fits what launches, graphs and streams cost on this device to small measured programs; with a workload, predicts and measures it too.
    """
    from streamscope.advising import advice
    from streamscope.files import writable_file

    values = setting_values(settings or [])
    if workload is None and values:
        raise typer.BadParameter("a setting needs a workload", param_hint="--set")
    made = None if workload is None else built_workload(workload, values)[0]
    if out is not None:
        writable_file(out)
    program, inputs = (None, ()) if made is None else made
    found = advice.advise(program, *inputs, device=device, progress=notes().is_terminal)
    if as_json:
        typer.echo(json.dumps(found.to_json(), allow_nan=False))
    else:
        output().print(str(found), soft_wrap=True)
    if out is not None:
        (notes() if as_json else output()).print(f"With a picture, for a browser: {found.save_html(out)}", soft_wrap=True)
