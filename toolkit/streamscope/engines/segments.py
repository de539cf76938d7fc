"""Segments: the parts of a program that become CUDA graphs."""

from __future__ import annotations

from itertools import groupby

from streamscope.engines.issuing import LaneOf, captured_steps
from streamscope.engines.lanes import LANES
from streamscope.engines.plan import CallHost, HostWait, Issue, Plan, RecordEvent, Replay, Step
from streamscope.engines.sync_objects import HOST, DependencyTracker, Stamp
from streamscope.program.launch import HostCall
from streamscope.program.operation import Operation, Program


def segments(program: Program) -> list[tuple[bool, tuple[Operation, ...]]]:
    """Split a program into greedy maximal runs of operations that can be captured (True) and that cannot (False)."""
    return [(capturable, tuple(run)) for capturable, run in groupby(program.operations, key=lambda operation: operation.capturable)]


def captured_plan(engine: str, program: Program, lane_of: LaneOf, *, scopes: bool = False) -> Plan:
    """Make a plan whose capturable segments are graphs, launched on the main stream; the rest runs between them as usual.

    All device work is on the main stream, graphs and single launches alike, so only host functions wait, each for the last thing on the
    stream that touched its variables, and nothing waits for them (the host issues in order).
    """
    tracker = DependencyTracker([0])
    steps: list[tuple[Step, Stamp | None]] = []
    waits: dict[int, Stamp] = {}
    events = each = 0
    # Twice, so that the second round knows what the first left behind (see `repeating_steps`).
    for _ in range(2):
        first, steps, waits, events = tracker.tail(0).position, [], {}, 0
        for capturable, operations in segments(program):
            if capturable:
                inner, used = captured_steps(operations, range(len(LANES)), lane_of, events)
                events += used
                reads = {v for operation in operations for v in operation.reads}
                writes = {v for operation in operations for v in operation.writes}
                steps.append((Replay(inner), tracker.issued(0, reads, writes)))
                continue
            for operation in operations:
                _uncaptured(operation, tracker, steps, waits)
        each = tracker.tail(0).position - first
    steps_with_events, used = _with_events(steps, waits, each, events)
    return Plan(engine, program, LANES, steps_with_events, used, scopes)


def _uncaptured(operation: Operation, tracker: DependencyTracker, steps: list[tuple[Step, Stamp | None]], waits: dict[int, Stamp]) -> None:
    if isinstance(operation.work, HostCall):
        call = operation.work
        for needed in tracker.needed(HOST, call.reads, call.writes):
            tracker.waited(HOST, needed)
            waits[len(steps)] = needed
        tracker.issued(HOST, call.reads, call.writes)
        steps.append((CallHost(call), None))
    steps += [(Issue(launch, 0), tracker.issued(0, launch.reads, launch.writes)) for launch in operation.launches]


def _with_events(items: list[tuple[Step, Stamp | None]], waits: dict[int, Stamp], each: int, events: int) -> tuple[tuple[Step, ...], int]:
    """Put in the events that host functions wait for. The host waits for at most one: there is one stream."""
    numbers: dict[int, int] = {}
    for waited in waits.values():
        numbers.setdefault((waited.position - 1) % each, events + len(numbers))
    steps: list[Step] = []
    for index, (step, stamp) in enumerate(items):
        if (wait := waits.get(index)) is not None:
            steps.append(HostWait(numbers[(wait.position - 1) % each]))
        steps.append(step)
        if stamp is not None and (stamp.position - 1) % each in numbers:
            steps.append(RecordEvent(numbers[(stamp.position - 1) % each], 0))
    return tuple(steps), events + len(numbers)
