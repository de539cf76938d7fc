"""Progress that is shown where the user is: a bar in a notebook or in a terminal, or a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from streamscope import display
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
    else:
        with display.progress_bar(title) as shown:
            yield shown
