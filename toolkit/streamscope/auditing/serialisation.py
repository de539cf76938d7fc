"""False serialisation: orders that a plan keeps and no path of declared dependencies needs, with their estimated cost.

One run is looked at. Each item's direct predecessors are the latest items of each strand that it knows; if any two items are ordered and
need not be, then some direct pair is, so the direct pairs tell all. The estimate compares two lower bounds of the makespan: the
longest path through the declared dependencies alone, and that through the plan's orders too. Both are as if the device had room for all at
once and the host took no time to issue.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from streamscope.auditing.dependencies import Dependencies
from streamscope.auditing.findings import Finding, Kind, Severity
from streamscope.auditing.waits import lane_name
from streamscope.engine_entry import ENGINES
from streamscope.engines.happens_before import Item, Visit, Walk, Work, key_of
from streamscope.engines.plan import Estimate, Plan
from streamscope.order.graph import path_lengths
from streamscope.program.launch import HostCall, Launch, LaunchKind
from streamscope.words import counted, time_text

_EXAMPLES = 3


class Cause(Enum):
    """Causes of an order of two items."""

    LANE = "they share the lane"
    COPIES = "copies of one direction share a stream"
    COLLECTIVES = "collectives share a stream of each GPU"
    HOST_WAITS = "the host waits for the one before it goes on"
    HOST_ORDER = "the host runs its functions one at a time, and issues nothing meanwhile"
    GRAPH = "a graph starts as a whole and is waited for as a whole"
    EVENT = "of an event wait"


_ADVICE = {
    Cause.LANE: "spread independent chains over more streams (engine 'dual' or 'graph-dual'), or leave it where the launches are short.",
    Cause.COPIES: "make fewer and larger copies, or leave it: a GPU makes copies of one direction one after the other.",
    Cause.COLLECTIVES: "leave it, or let one collective do it over all GPUs: side by side, collectives of several groups could wait for"
    " each other for ever.",
    Cause.HOST_WAITS: "use an engine that orders by events ('async'), or let the host wait later.",
    Cause.HOST_ORDER: "call independent host functions later in the program, behind the launches that do not need them;"
    " what they share by capturing it (closures, globals) is not looked at, and needs the order.",
    Cause.GRAPH: "move the host function, or what cannot be captured, so that it does not part independent work.",
    Cause.EVENT: "wait later, or for an earlier event.",
}
_MORE_STREAMS = "allow more streams (streams=...), or leave it where the launches are short."
"""Advice where the engine lays launches on several streams by itself."""


@dataclass(frozen=True)
class Serialised:
    """Two items that a plan orders, the later one directly behind the earlier one, although nothing needs it."""

    earlier: Item
    later: Item
    cause: Cause
    held_ns: float
    """How long the earlier one alone holds the later one back, in ns, by the estimate."""


@dataclass(frozen=True)
class Serialisation:
    """Cost of a plan's order."""

    needed_ns: float
    """Longest path through the declared dependencies alone."""
    planned_ns: float
    """Longest path through the plan's orders too."""
    pairs: list[Serialised]
    without_ns: Mapping[Cause, float]
    """The longest path without the false orders of one cause."""


@dataclass
class _Strand:
    """The items of one strand so far."""

    positions: list[int] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)


def serialisation(plan: Plan, dependencies: Dependencies, estimate: Estimate) -> Serialisation:
    """Find the false orders of a plan and their cost; host functions take their declared time."""
    visits, before = _direct_predecessors(plan)
    numbers = [dependencies.number[key_of(visit.item.work)] for visit in visits]
    place = {number: index for index, number in enumerate(numbers)}
    needs = [[place[n] for n in dependencies.needs[number] if n in place and place[n] < index] for index, number in enumerate(numbers)]
    pairs = [
        (earlier, later)
        for later, others in enumerate(before)
        for earlier in others
        if numbers[earlier] != numbers[later] and not _of_one_communicator(visits[earlier].item.work, visits[later].item.work)
    ]
    # What is issued in the wrong order is another finding's. Collectives of one communicator have to keep an order, whichever it is.
    numbered = {
        (earlier, later): (min(numbers[earlier], numbers[later]), max(numbers[earlier], numbers[later])) for earlier, later in pairs
    }
    needed = dependencies.connected(numbered.values())
    false = [pair for pair in pairs if numbered[pair] not in needed]

    durations = [_duration_ns(visit.item.work, estimate) for visit in visits]

    def makespan_ns(orders: Sequence[Sequence[int]]) -> float:
        return max(path_lengths(durations, [[*a, *b] for a, b in zip(needs, orders, strict=True)]), default=0.0)

    ends_ns = path_lengths(durations, [[*a, *b] for a, b in zip(needs, before, strict=True)])
    found: list[Serialised] = []
    groups: dict[Cause, set[tuple[int, int]]] = defaultdict(set)
    for earlier, later in false:
        others = max((ends_ns[other] for other in (*needs[later], *before[later]) if other != earlier), default=0.0)
        cause = _cause(visits[earlier], visits[later])
        found.append(Serialised(visits[earlier].item, visits[later].item, cause, max(0.0, ends_ns[earlier] - others)))
        groups[cause].add((earlier, later))
    without = {
        cause: makespan_ns([[other for other in others if (other, later) not in left_out] for later, others in enumerate(before)])
        for cause, left_out in groups.items()
    }
    return Serialisation(makespan_ns([[] for _ in visits]), max(ends_ns, default=0.0), found, without)


def _direct_predecessors(plan: Plan) -> tuple[list[Visit], list[list[int]]]:
    """Return the items of one run with, for each, the indices of those that it comes directly behind."""
    strands: dict[int, _Strand] = defaultdict(_Strand)
    visits: list[Visit] = []
    before: list[list[int]] = []
    for visit in Walk(plan).runs(1):
        latest: list[Visit] = []
        for number, strand in strands.items():
            if (known := bisect_right(strand.positions, visit.knows[number])) > 0:
                latest.append(strand.visits[known - 1])
        direct = [one for one in latest if not any(other is not one and other.end[one.strand] >= one.position for other in latest)]
        before.append([one.item.index for one in direct])
        visits.append(visit)
        strands[visit.strand].positions.append(visit.position)
        strands[visit.strand].visits.append(visit)
    return visits, before


def _cause(earlier: Visit, later: Visit) -> Cause:
    if isinstance(earlier.item.work, HostCall):
        return Cause.HOST_ORDER
    if isinstance(later.item.work, HostCall) or later.host[earlier.strand] >= earlier.position:
        return Cause.HOST_WAITS
    if earlier.strand == later.strand and (earlier.region is None or earlier.region is later.region):
        return _cause_on_lane(earlier.item.work, later.item.work)
    return Cause.EVENT if earlier.region is later.region else Cause.GRAPH


def _cause_on_lane(earlier: Work, later: Work) -> Cause:
    """Return why two launches share a lane: some do under every engine."""
    kinds = {work.kind for work in (earlier, later) if isinstance(work, Launch)}
    if kinds == {LaunchKind.COLLECTIVE}:
        return Cause.COLLECTIVES
    return Cause.LANE if kinds & {LaunchKind.KERNEL, LaunchKind.COLLECTIVE} else Cause.COPIES


def _of_one_communicator(earlier: Work, later: Work) -> bool:
    one, other = (work.collective if isinstance(work, Launch) else None for work in (earlier, later))
    return one is not None and other is not None and one.communicator == other.communicator


def _duration_ns(work: Work, estimate: Estimate) -> float:
    return work.duration_ns if isinstance(work, HostCall) else estimate(work)


def serialisation_findings(plan: Plan, result: Serialisation) -> Iterator[Finding]:
    """Yield one finding for each cause, with the examples that hold back the most; a long plan would give thousands."""
    groups: dict[Cause, list[Serialised]] = defaultdict(list)
    for pair in result.pairs:
        groups[pair.cause].append(pair)
    for cause, pairs in groups.items():
        cost_ns = max(0.0, result.planned_ns - result.without_ns[cause])
        worst = sorted(pairs, key=lambda pair: -pair.held_ns)[:_EXAMPLES]
        lanes = " and ".join(dict.fromkeys(lane_name(plan, pair.later) for pair in pairs))
        examples = "; ".join(_example(plan, pair) for pair in worst)
        total = f"{time_text(cost_ns)} of the {time_text(result.planned_ns)} that the plan takes at least"
        message = (
            f"{counted(len(pairs), 'order')} that no variable needs on {lanes}, because {cause.value}"
            f"{', for example' if len(pairs) > len(worst) else ''}: {examples}. "
            + (f"Without, {total} could be saved (estimated)." if cost_ns > 0 else "By the estimate they cost nothing.")
        )
        operations = {
            item.work.operation: plan.program.operations[item.work.operation] for one in worst for item in (one.earlier, one.later)
        }
        severity = Severity.of_cost(cost_ns, result.planned_ns)
        several = plan.engine in ENGINES and ENGINES[plan.engine].takes_streams
        advice = _MORE_STREAMS if cause is Cause.LANE and several else _ADVICE[cause]
        yield Finding(Kind.FALSE_SERIALISATION, severity, tuple(operations.values()), (), message, advice, cost_ns)


def _example(plan: Plan, pair: Serialised) -> str:
    earlier, later = (plan.program.operations[item.work.operation] for item in (pair.earlier, pair.later))
    held = f", which holds it back by {time_text(pair.held_ns)}" if pair.held_ns >= 50 else ""
    return f"{later} behind {earlier}{held}"
