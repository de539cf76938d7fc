"""``streamscope advise``: at which kernel length and count a graph or a second stream pays."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from streamscope import options
from streamscope.cli.parameters import AsJson, out, shared
from streamscope.cli.tables import print_json
from streamscope.cli.terminal import notes, output
from streamscope.files import writable_file
from streamscope.results.result import report_suffix


def advise(
    device: Annotated[str, shared(options.DEVICE)] = str(options.DEVICE.default),
    file: Annotated[Path | None, out("FILE", "Write the advice with its picture there: .html, .pdf or .md.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Find out at which kernel length and count a graph or a second stream pays.

    Predicts with the cost model of this device, which `calibrate` measures.
    """
    from streamscope.advising import advice
    from streamscope.advising.sentences import WIDTH, advice_text

    if file is not None:
        report_suffix(writable_file(file))
    found = advice.advise(device=device)
    if as_json:
        print_json(found.to_dict())
    else:
        console = output()
        console.print(advice_text(found.costs, min(WIDTH, console.width)), soft_wrap=True)
    if file is not None:
        (notes() if as_json else output()).print(f"With a picture, for a browser: {found.report(file)}", soft_wrap=True)
