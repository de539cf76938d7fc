"""Findings on waits that a plan lacks, and on those that its other orders imply.

This checks plans, so it shares no walk over steps with the code that makes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from streamscope.auditing.dependencies import Dependencies, hazards
from streamscope.auditing.findings import Finding, Kind, Severity, named, quoted
from streamscope.engines.happens_before import Item, Visit, Waits, Walk, covers, key_of
from streamscope.engines.plan import CallHost, HostWait, Issue, Plan, RecordEvent, Step, WaitEvent
from streamscope.engines.races import Race, races
from streamscope.program.operation import Operation, Program
from streamscope.words import counted

_HAZARDS = {"RAW": "read after write", "WAR": "write after read", "WAW": "write after write"}
_REDUNDANCY_RUNS = 3
"""The waits of the third run are those of all later ones: it knows two runs before it, and a wait reaches back to the one before only."""


def race_findings(plan: Plan) -> Iterator[Finding]:
    """Yield a finding for each race."""
    for race in races(plan):
        earlier, later = race.earlier, race.later
        first, second = (plan.program.operations[item.work.operation] for item in (earlier, later))
        why = hazards(earlier.work, later.work)
        variables = named(plan.program, why)
        kinds = "; ".join(f"{variable.name!r}: {_HAZARDS[why[variable.id]]}, {why[variable.id]}" for variable in variables)
        then = "in the run before" if race.next_run else "before"
        message = (
            f"{lane_name(plan, later)} runs {second} without waiting for {first}, which {lane_name(plan, earlier)} runs {then} "
            f"and which touches {quoted(variables)} too ({kinds})."
        )
        yield Finding(Kind.MISSING_WAIT, Severity.ERROR, (first, second), variables, message, _mend(plan, race))


def _mend(plan: Plan, race: Race) -> str:
    """Say which wait would order a race."""
    first, second = (plan.program.operations[item.work.operation] for item in (race.earlier, race.later))
    same_graph = race.earlier.graph is not None and race.earlier.graph == race.later.graph and not race.next_run
    source, target = lane_name(plan, race.earlier), lane_name(plan, race.later)
    behind, before = f"behind {first}", f"before {second}"
    if race.earlier.graph is not None and not same_graph:
        source, behind = plan.lanes[0], f"behind the graph of {first}"
    if race.later.graph is not None and not same_graph:
        target, before = plan.lanes[0], f"before the graph of {second}"
    run = " of the run before" if race.next_run else ""
    return f"let {target} wait, {before}, for an event that is recorded on {source} {behind}{run}."


def lane_name(plan: Plan, item: Item) -> str:
    """Name the lane, or the host, of an item."""
    return "the host" if item.lane is None else plan.lanes[item.lane]


def issue_findings(plan: Plan, dependencies: Dependencies) -> Iterator[Finding]:
    """Yield work that is not issued exactly once, and work issued against its dependencies."""
    program = plan.program
    issued = [visit.item for visit in Walk(plan).runs(1) if isinstance(visit, Visit)]
    times = Counter(key_of(item.work) for item in issued)
    for work in dependencies.work:
        if (number := times[key_of(work)]) != 1:
            operation = program.operations[work.operation]
            often = "not at all" if number == 0 else counted(number, "time")
            message = f"{operation} issues its {work.name} {often} in a run."
            variables = named(program, work.writes)
            yield Finding(Kind.NOT_ISSUED, Severity.ERROR, (operation,), variables, message, "issue it once.")
    place = {key_of(item.work): item.index for item in issued}
    for later, needs in zip(dependencies.work, dependencies.needs, strict=True):
        for earlier in (dependencies.work[index] for index in needs):
            places = place.get(key_of(earlier)), place.get(key_of(later))
            if places[0] is not None and places[1] is not None and places[0] > places[1]:
                yield _wrong_order(program, earlier.operation, later.operation, set(hazards(earlier, later)))


def _wrong_order(program: Program, earlier: int, later: int, variables: set[int]) -> Finding:
    first, second = program.operations[earlier], program.operations[later]
    touched = named(program, variables)
    message = f"{second} is issued before {first}, which the program has first and which touches {quoted(touched)} too."
    return Finding(Kind.WRONG_ORDER, Severity.ERROR, (first, second), touched, message, f"issue {first} first.")


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
class _WaitSite:
    """Place of a wait: its lane, the item before it, and the next one on the lane."""

    lane: str
    source: Operation | None
    target: Operation | None


def _wait_places(plan: Plan) -> list[_WaitSite]:
    steps = list(plan.flat())
    recorded = _recorded_behind(plan, steps)
    following: dict[int | None, Operation] = {}
    places: list[_WaitSite] = []
    for step in reversed(steps):
        match step:
            case Issue(launch, lane):
                following[lane] = plan.program.operations[launch.operation]
            case CallHost(call):
                following[None] = plan.program.operations[call.operation]
            case WaitEvent(event, lane):
                places.append(_WaitSite(plan.lanes[lane], recorded.get(event), following.get(lane)))
            case HostWait(event):
                places.append(_WaitSite("the host", recorded.get(event), following.get(None)))
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
