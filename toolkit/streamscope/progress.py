"""Progress that is shown where the user is: a bar in a notebook or in a terminal, or a function of the user's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from streamscope.arguments import shown as in_short
from streamscope.errors import ProgramError

Progress = Callable[[str, int, int], None]
"""``progress(what, step, steps)``"""


@contextmanager
def showing(title: str, *, progress: bool | Progress) -> Iterator[Progress]:
    """Give a function that says how far the block is, to the user's function or to a bar that goes away at the end.

    Parameters
    ----------
    title : str
        What the bar says at first.
    progress : bool or callable
        False shows nothing; a callable is given itself.

    Raises
    ------
    ProgramError
        ``progress`` is something else.
    """
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool | np.bool_):
        hint = "give True, False, or a function of what is done, the step and the number of steps"
        raise ProgramError(f"progress={in_short(progress)} is neither a truth value nor a function", hint=hint)
    elif not progress:
        yield lambda what, step, steps: None
    elif _in_notebook():
        from streamscope_widgets.progress import notebook_progress

        with notebook_progress() as shown:
            yield shown
    else:
        from rich.progress import Progress as Bar

        from streamscope.cli.terminal import notes

        with Bar(console=notes(), transient=True) as bar:
            task = bar.add_task(title, total=None)
            yield lambda what, step, steps: bar.update(task, completed=step, total=steps, description=what)


def _in_notebook() -> bool:
    """Tell whether a Jupyter kernel runs this; Rich's bar would leave a widget there that a reopened notebook cannot show."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
