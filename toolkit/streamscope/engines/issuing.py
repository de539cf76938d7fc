"""Issuing: from operations on lanes to the steps of a plan, with the fewest events; in streams, and in captures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from streamscope.engines.plan import (
    CallHost,
    HostWait,
    Issue,
    Plan,
    RecordEvent,
    Replay,
    Step,
    StreamOf,
    WaitEvent,
    dependencies,
    lanes_in_use,
)
from streamscope.errors import EngineError
from streamscope.order.clocks import Stamp
from streamscope.order.graph import without_implied
from streamscope.order.hazards import HOST, HazardTracker
from streamscope.program.captured_graph import Edges
from streamscope.program.launch import HostCall, Launch
from streamscope.program.operation import Operation, Program

_LaneOf = Callable[[Launch], int]
_MOST_ROUNDS = 8


class _Work(NamedTuple):
    """One step that does something, its lane, and the variables that it uses."""

    step: Issue | CallHost | Replay
    lane: int
    reads: Collection[int]
    writes: Collection[int]


class _Issued(NamedTuple):
    """A step behind the waits that it needs; None where there is nothing but waits."""

    step: Step | None
    lane: int
    waits: list[Stamp]
    stamp: Stamp | None


def repeating_steps(operations: Sequence[Operation], lanes: int, lane_of: _LaneOf, *, runs_apart: bool = False) -> tuple[list[Step], int]:
    """Return the steps of a run that may follow another of the same program without a synchronisation, and the number of events.

    ``operations``: in the order of their issue.
    ``lanes``: number of lanes.
    ``lane_of``: the lane of a launch.
    ``runs_apart``: as in a capture, every lane comes after what lane 0 holds already, and lane 0 after all of them.
    """
    if runs_apart:
        return captured_steps(operations, lanes, lane_of, 0)
    return _repeating(_work(operations, lane_of), lanes, 0)


def captured_steps(
    operations: Sequence[Operation],
    lanes: int,
    lane_of: _LaneOf,
    first_event: int,
    tokens: Mapping[int, frozenset[int]] = MappingProxyType({}),
) -> tuple[list[Step], int]:
    """Return the steps of a capture that begins and ends on lane 0, and the number of events used, numbered from ``first_event``.

    Every other lane forks from lane 0 before its first item and is joined to it at the end, as a capture demands. ``tokens`` are variables
    that operations read besides.
    """
    tracker = HazardTracker(lanes)
    # No step, only a stamp: the event behind it is the one that the other lanes fork from.
    issued = [_Issued(None, 0, [], tracker.start)]
    work = _work(operations, lane_of)
    meeting = _collectives_in(work)
    for step, lane, reads, writes in work:
        read = {*reads, *tokens.get(step.launch.operation, ())} if tokens and isinstance(step, Issue) else reads
        issued.append(_Issued(step, lane, *tracker.issue(lane, read, writes, (tracker.start,))))
        if meeting:
            _meet(tracker, issued)
    # The join: CUDA ends no capture while a stream holds work that its origin has not waited for.
    waits, _ = tracker.issue(0, (), (), tracker.last)
    issued.append(_Issued(None, 0, waits, None))
    return _with_events(issued, lambda stamp: (stamp.lane, stamp.position), first_event)


def segments(program: Program) -> list[tuple[bool, tuple[Operation, ...]]]:
    """Split a program into greedy maximal runs of operations that are captured (True) and that are not (False).

    Those are not that cannot be, and a run that launches nothing, as operations on empty arrays do.
    """
    runs = [(capturable, tuple(run)) for capturable, run in groupby(program.operations, key=lambda operation: operation.capturable)]
    return [(capturable and any(operation.launches for operation in run), run) for capturable, run in runs]


def captured_plan(
    engine: str,
    program: Program,
    order: Sequence[Operation],
    stream_of: StreamOf,
    *,
    scopes: bool = False,
    edges: Edges | None = None,
    communication: bool = False,
) -> Plan:
    """Make a plan whose capturable segments are graphs, launched on the main stream; the rest runs between them as usual.

    Segments are those of the program; inside one, operations are captured in the given order. All device work is on the main stream,
    graphs and single launches alike, so only host functions wait, each for the last thing on the stream that touched its variables, and
    nothing waits for them (the host issues in order). With several GPUs, single launches are on the main streams of their GPUs.

    ``communication``: collectives are on a stream of their own on each GPU.

    Captured code, which is one segment, gets the order that ``edges`` ask for on top; by default, its graph has the edges of its steps.
    """
    several = program.gpus > 1
    captured = [operation for operation in order if several or operation.capturable]
    lanes = lanes_in_use(captured, stream_of, communication=communication)
    position = {operation.id: index for index, operation in enumerate(order)}
    tokens = _tokens(program, edges)
    work: list[_Work] = []
    events = 0
    for capturable, operations in segments(program):
        if not capturable:
            work += _work(operations, lambda launch: lanes.gpus.index(launch.gpu) if lanes.gpus else 0)
            continue
        ordered = sorted(operations, key=lambda operation: position[operation.id])
        inner, used = captured_steps(ordered, len(lanes.names), lanes.of, events, tokens)
        events += used
        # Of launches: for an operation that launches nothing, nobody has to wait.
        launches = [launch for operation in operations for launch in operation.launches]
        reads = {variable for launch in launches for variable in launch.reads}
        replay = Replay(tuple(inner), (edges or edges_of(inner, len(program.operations))) if program.captured else None)
        work.append(_Work(replay, 0, reads, {variable for launch in launches for variable in launch.writes}))
    steps, used = _repeating(work, len(lanes.names) if several else 1, events)
    return Plan(engine, program, lanes.names, tuple(steps), events + used, scopes, gpus=lanes.gpus)


def _tokens(program: Program, edges: Edges | None) -> dict[int, frozenset[int]]:
    """Return for each operation the variables that its predecessors write."""
    written = [frozenset(operation.writes) for operation in program.operations]
    return {number: frozenset().union(*(written[one] for one in earlier)) for number, earlier in enumerate(edges or ())}


def edges_of(steps: Sequence[Step], operations: int) -> Edges:
    """Return the transitive reduction of the orders that the steps of a capture keep."""
    before = dependencies(steps)
    position = {index: number for number, index in enumerate(before)}
    issued = [step.launch.operation for step in steps if isinstance(step, Issue)]
    edges: list[set[int]] = [set() for _ in range(operations)]
    for number, earlier in enumerate(without_implied([sorted({position[one] for one in ones}) for ones in before.values()])):
        edges[issued[number]].update(issued[one] for one in earlier)
    return tuple(tuple(sorted(earlier - {number})) for number, earlier in enumerate(edges))


def _work(operations: Sequence[Operation], lane_of: _LaneOf) -> list[_Work]:
    work: list[_Work] = []
    for operation in operations:
        if isinstance(call := operation.work, HostCall):
            work.append(_Work(CallHost(call), HOST, call.reads, call.writes))
        for launch in operation.launches:
            lane = lane_of(launch)
            work.append(_Work(Issue(launch, lane), lane, launch.reads, launch.writes))
    return work


def _repeating(work: Sequence[_Work], lanes: int, first_event: int) -> tuple[list[Step], int]:
    """Return steps that may follow themselves, and the number of events.

    The work is issued several times in a row, until two rounds have the same waits; the last round's steps are the plan. A wait for an item
    of the round before takes the event of the same item of this round. Its latest record, at the time of the call, is that of the round
    before. In the first run there is none, and so nothing to wait for.
    """
    tracker = HazardTracker(lanes)
    items = Counter(lane for _, lane, _, _ in work)
    meeting = _collectives_in(work)
    rounds: list[tuple[list[Step], int]] = []
    for _ in range(_MOST_ROUNDS):
        issued = _round(tracker, work, meeting=meeting)
        rounds.append(_with_events(issued, lambda stamp: (stamp.lane, (stamp.position - 1) % items[stamp.lane]), first_event))
        if len(rounds) > 1 and rounds[-1] == rounds[-2]:
            return rounds[-1]
    raise EngineError(f"the waits of {len(work)} operations on {lanes} lanes do not settle", hint="please report this program")


def _collectives_in(work: Sequence[_Work]) -> bool:
    return any(isinstance(one.step, Issue) and one.step.launch.collective is not None for one in work)


def _round(tracker: HazardTracker, work: Sequence[_Work], *, meeting: bool) -> list[_Issued]:
    """Issue all work once; ``meeting``: there are collectives in it."""
    if not meeting:
        return [_Issued(step, lane, *tracker.issue(lane, reads, writes)) for step, lane, reads, writes in work]
    issued: list[_Issued] = []
    for step, lane, reads, writes in work:
        issued.append(_Issued(step, lane, *tracker.issue(lane, reads, writes)))
        _meet(tracker, issued)
    return issued


def _meet(tracker: HazardTracker, issued: Sequence[_Issued]) -> None:
    """Note what the parts of a collective know of each other, where the last of them was issued just now."""
    step = issued[-1].step
    collective = step.launch.collective if isinstance(step, Issue) else None
    if collective is not None and isinstance(step, Issue) and step.launch.part == len(collective.gpus) - 1:
        stamps = [one.stamp for one in issued[-len(collective.gpus) :] if one.stamp is not None]
        tracker.meet(stamps, collective.awaits)


def _with_events(issued: Sequence[_Issued], key: Callable[[Stamp], tuple[int, int]], first_event: int) -> tuple[list[Step], int]:
    """Return the steps with an event recorded after each item that something waits for, and the number of events; ``key`` names them."""
    events: dict[tuple[int, int], int] = {}
    for item in issued:
        for wait in item.waits:
            events.setdefault(key(wait), first_event + len(events))
    steps: list[Step] = []
    held: list[Step] = []  # Behind the parts of a collective, which stay together: steps that are due once all of them are issued.
    for step, lane, waits, stamp in issued:
        due: list[Step] = []
        if waits:
            numbers = [events[key(wait)] for wait in waits]
            due = [HostWait(event) if lane == HOST else WaitEvent(event, lane) for event in numbers]
        recorded = None
        if stamp is not None and events and (event := events.get(key(stamp))) is not None:
            recorded = RecordEvent(event, stamp.lane)
        if isinstance(step, Issue) and (collective := step.launch.collective) is not None:
            # Waits go before the first part. No part waits for another one, so their events are recorded before.
            parts = step.launch.part
            steps[len(steps) - parts : len(steps) - parts] = due
            steps.append(step)
            if recorded is not None:
                held.append(recorded)
            if parts == len(collective.gpus) - 1:
                steps += held
                held = []
            continue
        steps += due
        if step is not None:
            steps.append(step)
        if recorded is not None:
            steps.append(recorded)
    return steps, len(events)
