"""What commands print to: results to standard output, everything else to standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console


def output() -> Console:
    """Return the console for what was asked for."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def notes() -> Console:
    """Return the console for what accompanies it."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def complain(message: str, hint: str | None = None) -> None:
    """Say on standard error what went wrong and what to do about it."""
    typer.echo(f"error: {message}", err=True)
    if hint:
        typer.echo(f"hint: {hint}", err=True)
