"""A progress bar for notebooks that leaves nothing behind: no widget, which a reopened notebook could not show, only an empty output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape


@contextmanager
def notebook_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar while the block runs. It gives the function ``progress(what, step, steps)`` that moves it."""
    from IPython.display import HTML, display

    handle = display(HTML(_bar("starting", 0, 1)), display_id=True)  # type: ignore[no-untyped-call]

    def show(what: str, step: int, steps: int) -> None:
        handle.update(HTML(_bar(what, step, steps)))  # type: ignore[no-untyped-call]

    try:
        yield show
    finally:
        handle.update(HTML(""))  # type: ignore[no-untyped-call]


def _bar(what: str, step: int, steps: int) -> str:
    return f'<progress value="{step}" max="{steps}" style="width:16em;vertical-align:middle"></progress> {escape(what)}'
