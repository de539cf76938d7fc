"""Findings on waits that a plan lacks, and on those that its other orders imply.

This checks plans, so it shares no walk over steps with the code that makes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from streamscope.auditing.dependencies import Dependencies, hazards
from streamscope.auditing.findings import Finding, Kind, Severity, named, quoted
from streamscope.engines.happens_before import Break, Item, Walk, capture_breaks, key_of
from streamscope.engines.plan import Plan, Replay
from streamscope.engines.race_check import Race, races
from streamscope.program.operation import Program
from streamscope.words import counted

_HAZARDS = {"RAW": "read after write", "WAR": "write after read", "WAW": "write after write"}


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
    issued = [visit.item for visit in Walk(plan).runs(1)]
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


def capture_findings(plan: Plan) -> Iterator[Finding]:
    """Yield breaches of a plan's captures."""
    for step in plan.steps:
        if isinstance(step, Replay):
            for found in capture_breaks(step.steps):
                yield _capture_finding(plan, found)


def _capture_finding(plan: Plan, found: Break) -> Finding:
    names = {"lane": plan.lanes[found.lane], "main": plan.lanes[0]}
    operations = () if found.launch is None else (plan.program.operations[found.launch.operation],)
    variables = () if found.launch is None else named(plan.program, found.launch.writes)
    subject = f" at {operations[0]}" if operations else ""
    message = f"The capture would break{subject}: {found.why.format(**names)}. The segment then runs uncaptured."
    return Finding(Kind.BROKEN_CAPTURE, Severity.ERROR, operations, variables, message, f"{found.advice.format(**names)}.")
