"""The orders that a plan keeps, read from its streams, events and graphs; checked before anything is launched.

Plans of captured code and those of other packages' engines are checked; those of our engines for traced programs are right by tests.

Plans are made from what operations read and write. The check of captured code takes neither that nor the planner's own bookkeeping: it
reads the steps as CUDA would, and asks the certificate of the capture, which looks at memory. No check shares a walk with planners.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamscope.engine_entry import ENGINES
from streamscope.engines.happens_before import Item, Visit, Walk, Work, WorkKey, key_of
from streamscope.engines.plan import Plan, Replay
from streamscope.engines.step_walk import StepWalk
from streamscope.errors import RaceError
from streamscope.words import counted

_RACE_RUNS = 2
"""Runs in a row that show all races: an item is ordered with itself in the next run, so runs further apart add none."""
_Front = frozenset[int]
"""Operations behind which a place stands; whoever waits for it comes after them, and after all that they come after."""

_START = -1
"""Stands for the start of a run on lane 0, which comes after the run before it."""
_NOTHING: _Front = frozenset()


def check_orders(plan: Plan) -> None:
    """Refuse a plan that does not keep the order of operations that share memory: of captured code, or of another package's engine."""
    if plan.program.certificate is None:
        if plan.engine not in ENGINES.own and plan.engine in ENGINES:
            _check_guest(plan)
        return
    walk, after, issued = StepWalk(_NOTHING, frozenset.union), dict[int, _Front](), 0
    walk.lanes[0] = frozenset({_START})
    for issue, _ in walk.launches(plan.steps):
        operation = issue.launch.operation
        after[operation] = walk.at(issue.lane)
        walk.lanes[issue.lane] = frozenset({operation})
        issued += 1
    count = len(plan.program.operations)
    if sorted(after) != list(range(count)) or issued != count:
        raise RaceError(
            f"{plan.engine} of {plan.program.name} issues {counted(issued, 'launch', 'launches')} for {counted(count, 'operation')}"
        )
    _check_runs(plan, after, walk.at(0))
    plan.program.certificate.check([sorted(after[number] - {_START}) for number in range(count)], plan.engine)
    for step in plan.steps:
        if isinstance(step, Replay) and step.edges is not None:
            plan.program.certificate.check(step.edges, f"the graph of {plan.engine}")


def _check_guest(plan: Plan) -> None:
    """Refuse a plan that leaves work out or repeats it, issues it against the program's order, or leaves a race."""
    known = {key_of(work): work for operation in plan.program.operations for work in operation.works}
    issued = [visit.item.work for visit in Walk(plan).runs(1)]
    times = Counter(map(key_of, issued))
    why = ""
    if odd := next((work for work in (*known.values(), *issued) if times[key_of(work)] != 1 or key_of(work) not in known), None):
        why = f"issues {odd} {counted(times[key_of(odd)], 'time')}{'' if key_of(odd) in known else ', which is no work of it'}"
    elif moved := _out_of_order(known.values(), [known[key_of(work)] for work in issued]):
        why = f"issues {moved} on the other side of a write of one of its variables than the program"
    elif race := next(iter(races(plan)), None):
        why = f"does not let {race.later.work} wait for {race.earlier.work}{' of the run before' if race.next_run else ''}"
    if why:
        hint = f"ss.audit(..., engine={plan.engine!r}) names each fault, and the wait that mends it"
        raise RaceError(f"the plan that {ENGINES.named(plan.engine)} made of {plan.program.name!r} {why}", hint=hint)


def _out_of_order(known: Iterable[Work], issued: Iterable[Work]) -> Work | None:
    """Return a piece of work that comes between other writes of one of its variables than in the program."""
    expected = _versions(known)
    return next((work for key, (work, found) in _versions(issued).items() if expected[key][1] != found), None)


def _versions(works: Iterable[Work]) -> dict[WorkKey, tuple[Work, list[tuple[int, int]]]]:
    """Return for each piece of work how often each of its variables was written before it."""
    written: Counter[int] = Counter()
    found = {}
    for work in works:
        found[key_of(work)] = work, [(variable, written[variable]) for variable in sorted({*work.reads, *work.writes})]
        written.update(set(work.writes))
    return found


def _check_runs(plan: Plan, after: Mapping[int, _Front], end: _Front) -> None:
    """Check that each operation comes after the start of its run, and that the next run starts when all of them are done."""
    begun: set[int] = {_START}
    for number, before in after.items():  # in the order of issue
        if begun.isdisjoint(before):
            raise RaceError(f"{plan.engine} lets {plan.program.operations[number]} start before the run before it is done")
        begun.add(number)
    pending, ended = [*end], set[int]()
    while pending:
        if (number := pending.pop()) not in ended:
            ended.add(number)
            pending += after.get(number, _NOTHING)
    if left := after.keys() - ended:
        raise RaceError(f"{plan.engine} does not wait for {plan.program.operations[min(left)]} at the end of a run")


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
    besides are not reported.
    """
    touched: dict[int, _Touched] = defaultdict(_Touched)
    found: dict[Race, None] = {}
    for visit in Walk(plan).runs(_RACE_RUNS):
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
