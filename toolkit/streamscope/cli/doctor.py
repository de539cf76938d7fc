"""``streamscope doctor``: checks of this machine."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from streamscope.cli.parameters import AsJson
from streamscope.cli.tables import show

if TYPE_CHECKING:
    from rich.console import Console

    from streamscope.cli.checks import Diagnosis


_SIGNS = {"ok": ("✓", "green"), "lacking": ("✗", "red"), "unneeded": ("–", "dim")}


def doctor(*, as_json: AsJson = False) -> int:
    """Check this machine, and say how to get missing parts.

    Exits with 1 if Streamscope cannot run here at all.
    """
    from streamscope.cli.checks import diagnose

    diagnosis = diagnose()
    show(diagnosis, _print, as_json=as_json)
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
            sign, style = _SIGNS[check.state]
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
