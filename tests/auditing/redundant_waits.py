"""Waits of a plan that all its other orders imply."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamscope.engines.happens_before import Waits, Walk, covers
from streamscope.engines.plan import Plan

_REDUNDANCY_RUNS = 3
"""The waits of the third run are those of all later ones: it knows two runs before it, and a wait reaches back to the one before only."""


def redundant_waits(plan: Plan) -> list[int]:
    """Return the indices, as `Plan.without_wait` counts, of waits that can all be left out together without losing any order."""
    verdicts: dict[int, bool] = {}
    for group in Walk(plan).runs(_REDUNDANCY_RUNS):
        if isinstance(group, Waits):
            verdicts.update(_verdicts(group))
    # What waits for an event that is never recorded does not wait.
    return [index for index in range(plan.waits) if verdicts.get(index, True)]


def _verdicts(group: Waits) -> Iterator[tuple[int, bool]]:
    kept = dict(group.waited)
    for index, clock in group.waited:
        known = np.maximum.reduce([group.base, *(waited for other, waited in kept.items() if other != index)])
        redundant = covers(known, clock)
        if redundant:
            del kept[index]
        yield index, redundant
