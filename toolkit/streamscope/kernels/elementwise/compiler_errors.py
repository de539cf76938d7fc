"""Which operator of one line a kernel was made of, so that the compiler's errors tell the user's line."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

_MOST_KEPT = 1024
"""Operators that are remembered; the oldest go first."""


@dataclass(frozen=True)
class Written:
    """An operator of one line, as its user wrote it."""

    name: str
    """Name of the operator."""
    line: str
    """The whole line."""
    expressions: tuple[str, ...]
    """As they stand in generated sources: of the result, then of gradients."""
    place: str
    """``file:line`` of the user's code."""


_written: dict[tuple[str, str, tuple[str, ...]], Written] = {}


def note(written: Written) -> None:
    """Keep a user's expression; of equal ones, the place of the last counts."""
    key = (written.name, written.line, written.expressions)
    _written.pop(key, None)
    _written[key] = written
    if len(_written) > _MOST_KEPT:
        with suppress(StopIteration, KeyError, RuntimeError):  # where another thread does the same
            del _written[next(iter(_written))]


def written_for(name: str, code: str) -> Written | None:
    """Return the operator of one line that a kernel was made of; None where none is known.

    The same text may be in several operators. A kernel's name begins with that of its operator; that of a fused one tells how many it has.
    """
    there = [each for each in reversed(_written.values()) if any(text in code for text in each.expressions)]
    named = [each for each in there if name.startswith(f"{each.name}_")]
    return named[0] if named else max(there, key=lambda each: len(each.line), default=None) if name.startswith("fused_") else None
