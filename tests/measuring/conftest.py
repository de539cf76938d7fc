"""How many rounds a choice takes."""

from __future__ import annotations

from streamscope.measuring.elimination import ERROR_RATE, evidence


def rounds_to_tell(engines):
    """Return how many rounds in agreement it takes to drop one of so many engines."""
    tests = 3 * engines * (engines - 1) / 2
    return next(count for count in range(1, 1000) if evidence(count, 0) > tests / ERROR_RATE)
