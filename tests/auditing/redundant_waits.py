"""Waits of a plan that all its other orders imply."""

from __future__ import annotations

import numpy as np

from streamscope.engines.happens_before import Walk
from streamscope.engines.plan import Plan

_REDUNDANCY_RUNS = 3
"""The waits of the third run are those of all later ones: it knows two runs before it, and a wait reaches back to the one before only."""


def redundant_waits(plan: Plan) -> list[int]:
    """Return the indices, as `Plan.without_wait` counts, of waits that can all be left out together without losing any order."""
    walk = _WithVerdicts(plan)
    for _ in walk.runs(_REDUNDANCY_RUNS):
        pass
    # A wait for an event that is never recorded does not wait.
    return [index for index in range(plan.waits) if walk.verdicts.get(index, True)]


class _WithVerdicts(Walk):
    """Reads a plan, and tells of each wait in the latest run whether it is redundant."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.verdicts: dict[int, bool] = {}
        self._waits = 0
        self._index: dict[int, list[int]] = {}

    def _wait(self, event, strand, events):
        if event in events:
            self._index.setdefault(strand, []).append(self._waits % self.plan.waits)
        self._waits += 1
        super()._wait(event, strand, events)

    def _settle(self, strand):
        kept = dict(zip(self._index.pop(strand, []), self._pending.get(strand, []), strict=True))
        for index, clock in tuple(kept.items()):
            others = (waited for other, waited in kept.items() if other != index)
            self.verdicts[index] = bool((np.maximum.reduce([self._clocks[strand], *others]) >= clock).all())
            if self.verdicts[index]:
                del kept[index]
        super()._settle(strand)
