"""A progress bar for notebooks that leaves nothing behind: no widget, which a reopened notebook could not show, only an empty output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape


@contextmanager
def notebook_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar while the block runs. It gives the function ``progress(what, step, steps)`` that moves it."""
    from IPython.display import display

    handle = display(_bar("starting", 0, 1), raw=True, display_id=True)  # type: ignore[no-untyped-call]
    try:
        yield lambda what, step, steps: handle.update(_bar(what, step, steps), raw=True)
    finally:
        handle.update({"text/html": "", "text/plain": ""}, raw=True)


def _bar(what: str, step: int, steps: int) -> dict[str, str]:
    bar = f'<progress value="{step}" max="{steps}" style="width:16em;vertical-align:middle"></progress>'
    return {"text/html": f"{bar} {escape(what)}", "text/plain": f"{what} ({step} of {steps})"}
