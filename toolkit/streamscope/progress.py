"""Progress that is shown where the user is: a bar in a notebook or in a terminal, or a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from streamscope.arguments import shown as in_short
from streamscope.errors import ProgramError
from streamscope.results import screen

Progress = Callable[[str, int, int], None]
"""``progress(what, step, steps)``: what begins, which step of how many that is. What it raises ends the work and reaches who called."""


@contextmanager
def showing(title: str, *, progress: bool | Progress) -> Iterator[Progress]:
    """Give a function that says how far the block is, to the user's function or to a bar that goes away at the end.

    ``title``: what the bar says at first.
    ``progress``: False shows nothing; a callable is given itself.
    """
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool | np.bool_):
        hint = "give True, False, or a function of what is done, the step and the number of steps"
        raise ProgramError(f"progress={in_short(progress)} is neither a truth value nor a function", hint=hint)
    elif not progress:
        yield silent
    else:
        with screen.progress_bar(title) as shown:
            yield shown


def silent(what: str, step: int, steps: int) -> None:
    """Show nothing: a `Progress`."""


class Steps:
    """Says which step of a piece of work begins, and of which phase.

    ``steps``: how many there will be.
    """

    def __init__(self, progress: Progress, steps: int) -> None:
        self._progress = progress
        self._steps = steps
        self._begun = 0
        self._phase = ""
        self._parts = self._part = 0

    def begin(self, phase: str, parts: int = 0) -> None:
        """Begin a phase: one step or, where `part` tells of them, several."""
        self._phase, self._parts, self._part = phase, parts, 0
        if parts:
            self._progress(phase, self._begun, self._steps)
        else:
            self._next(phase)

    def part(self, name: str) -> None:
        """Begin a step of the phase: ``"NumPy reference: relu (12 of 2,000)"``."""
        if self._part < self._parts:
            self._part += 1
            if self._progress is silent:
                return  # The words take longer than many a step of a simulated device.
            self._next(f"{self._phase}: {name} ({self._part:,} of {self._parts:,})")

    def _next(self, what: str) -> None:
        self._begun = min(self._begun + 1, self._steps)
        self._progress(what, self._begun, self._steps)
