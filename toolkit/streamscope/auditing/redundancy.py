"""Redundant waits: event waits that the other orders of a plan imply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from streamscope.auditing.findings import Finding, Kind, Severity
from streamscope.auditing.order import Waits, Walk, covers
from streamscope.engines.plan import CallHost, HostWait, Issue, Plan, RecordEvent, Step, WaitEvent
from streamscope.program.operation import Operation

RUNS = 3
"""The waits of the third run are those of all later ones: it knows two runs before it, and a wait reaches back to the one before only."""


def redundant_waits(plan: Plan) -> list[int]:
    """Return the indices, as `Plan.without_wait` counts, of waits that can all be left out together without losing any order."""
    verdicts: dict[int, bool] = {}
    for group in Walk(plan).runs(RUNS):
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


def redundancy_findings(plan: Plan) -> Iterator[Finding]:
    """Yield a finding for each redundant wait."""
    places = _wait_places(plan)
    for index in redundant_waits(plan):
        place = places[index]
        operations = tuple(operation for operation in (place.source, place.target) if operation is not None)
        behind = f" behind {place.source}" if place.source is not None else ""
        before = f", before {place.target}," if place.target is not None else ""
        message = f"The wait of {place.lane} for an event{behind}{before} orders nothing that other orders do not imply."
        yield Finding(Kind.REDUNDANT_WAIT, Severity.WARNING, operations, (), message, f"take it out: it is wait {index} of the plan.")


@dataclass(frozen=True)
class _Place:
    """Where a wait stands: whose it is, what it is behind, and what comes next on its lane."""

    lane: str
    source: Operation | None
    target: Operation | None


def _wait_places(plan: Plan) -> list[_Place]:
    steps = list(plan.flat())
    recorded = _recorded_behind(plan, steps)
    following: dict[int | None, Operation] = {}
    places: list[_Place] = []
    for step in reversed(steps):
        match step:
            case Issue(launch, lane):
                following[lane] = plan.program.operations[launch.operation]
            case CallHost(call):
                following[None] = plan.program.operations[call.operation]
            case WaitEvent(event, lane):
                places.append(_Place(plan.lanes[lane], recorded.get(event), following.get(lane)))
            case HostWait(event):
                places.append(_Place("the host", recorded.get(event), following.get(None)))
    return places[::-1]


def _recorded_behind(plan: Plan, steps: list[Step]) -> Mapping[int, Operation]:
    """Return, for each event, the operation on its lane that it is recorded behind."""
    last: dict[int, Operation] = {}
    behind: dict[int, Operation] = {}
    for step in steps:
        if isinstance(step, Issue):
            last[step.lane] = plan.program.operations[step.launch.operation]
        elif isinstance(step, RecordEvent) and step.lane in last:
            behind[step.event] = last[step.lane]
    return behind
