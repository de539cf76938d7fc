"""What commands print to: results to standard output, everything else to standard error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamscope.errors import printable, readable

if TYPE_CHECKING:
    from rich.console import Console


def output() -> Console:
    """Return the console for what was asked for."""
    return _console(stderr=False)


def notes() -> Console:
    """Return the console for what accompanies it."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    """Return a console that sends no control characters to the terminal but its own: names of files and engines may have some."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Screen(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else printable(text), style, control)

    return Screen(stderr=stderr, highlight=False, markup=False, emoji=False)


def complain(message: str, hint: str | None = None) -> None:
    """Say on standard error what went wrong and what to do about it."""
    import typer  # late: a progress bar needs the rest of this file, and no command line

    typer.echo(f"error: {readable(message)}", err=True)
    if hint:
        typer.echo(f"hint: {readable(hint)}", err=True)
