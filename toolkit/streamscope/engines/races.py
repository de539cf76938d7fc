"""Races of a plan: work that conflicts and is not ordered, within a run and from one run to the next.

This checks plans, so it shares no walk over steps with the code that makes them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from streamscope.engines.happens_before import Item, Visit, Walk
from streamscope.engines.plan import Plan

_RACE_RUNS = 2
"""Runs in a row that show all races: an item is ordered with itself in the next run, so runs further apart add none."""


@dataclass(frozen=True)
class Race:
    """Two items that conflict and are not ordered."""

    earlier: Item
    later: Item
    """In the order of issue."""
    next_run: bool
    """The later one belongs to the run after the earlier one's."""


@dataclass
class _Touched:
    """The latest reader and the latest writer of a variable on each strand."""

    readers: dict[int, Visit] = field(default_factory=dict)
    writers: dict[int, Visit] = field(default_factory=dict)


def races(plan: Plan) -> list[Race]:
    """Return the fewest races that explain all the others.

    Each is taken as mended (a wait from the later item for the earlier one) before the plan is read on, so conflicts that it would order
    besides is not reported.
    """
    touched: dict[int, _Touched] = defaultdict(_Touched)
    found: dict[Race, None] = {}
    for visit in Walk(plan).runs(_RACE_RUNS):
        if not isinstance(visit, Visit):
            continue
        for other in _latest_conflicts(visit, touched):
            # The latest first: to wait for it may be to wait for those before it.
            if not visit.after(other):
                found[Race(other.item, visit.item, other.run != visit.run)] = None
                visit.learn(other)
        for variable in visit.item.work.reads:
            touched[variable].readers[visit.strand] = visit
        for variable in visit.item.work.writes:
            touched[variable].writers[visit.strand] = visit
    return list(found)


def _latest_conflicts(visit: Visit, touched: dict[int, _Touched]) -> list[Visit]:
    """Return, for each strand, the latest item that conflicts with a visit, the latest issued first.

    The earlier ones of a strand come before it.
    """
    latest: dict[int, Visit] = {}
    writes = set(visit.item.work.writes)
    for variable in {*visit.item.work.reads, *writes}:
        others = list(touched[variable].writers.values())
        if variable in writes:
            others += touched[variable].readers.values()
        for other in others:
            if other.strand not in latest or latest[other.strand].position < other.position:
                latest[other.strand] = other
    return sorted(latest.values(), key=lambda other: (other.run, other.item.index), reverse=True)
