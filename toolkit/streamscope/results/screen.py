"""The screen beside results: progress bars and consoles."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from streamscope.errors import printable
from streamscope.results.widgets import load

if TYPE_CHECKING:
    from rich.console import Console

BETWEEN_DRAWINGS_S = 0.1
"""To draw a bar takes a millisecond, and there may be 200,000 steps."""


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar where the user is, in a notebook or in a terminal; give the function ``progress(what, step, steps)`` that moves it.

    It is drawn for each new phase, the text before a colon, and else at most every `BETWEEN_DRAWINGS_S`.
    """
    bar: AbstractContextManager[Callable[[str, int, int], None]] = (
        load("show.html:notebook_progress")() if _in_notebook() else _terminal_progress(title)
    )
    with bar as draw:
        drawn, drawn_s = "", 0.0

        def moved(what: str, step: int, steps: int) -> None:
            nonlocal drawn, drawn_s
            phase, now_s = what.partition(":")[0], monotonic()
            if phase != drawn or now_s - drawn_s >= BETWEEN_DRAWINGS_S:
                drawn, drawn_s = phase, now_s
                draw(what, step, steps)

        yield moved


def console(*, stderr: bool) -> Console:
    """Return a console that sends no control characters to the terminal but its own: names of files and engines may have some."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Screen(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else printable(text), style, control)

    return Screen(stderr=stderr, highlight=False, markup=False, emoji=False)


@contextmanager
def _terminal_progress(title: str) -> Iterator[Callable[[str, int, int], None]]:
    # In a file, a bar would leave an empty line.
    if not sys.stderr.isatty():
        yield lambda what, step, steps: None
        return
    from rich.markup import escape  # Names of files and engines may look like markup.
    from rich.progress import Progress

    # No thread of its own draws it: that would run while times are measured.
    with Progress(console=console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(escape(title), total=None)
        yield lambda what, step, steps: bar.update(task, completed=step, total=steps, description=escape(what), refresh=True)


def _in_notebook() -> bool:
    """Tell whether a Jupyter kernel runs this; Rich's bar would leave a widget there that a reopened notebook cannot show."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
