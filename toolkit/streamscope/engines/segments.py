"""Segments: the parts of a program that become CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from streamscope.engines.issuing import captured_steps
from streamscope.engines.lanes import Lanes, StreamOf, lanes_in_use
from streamscope.engines.plan import CallHost, HostWait, Issue, Plan, RecordEvent, Replay, Step
from streamscope.engines.sync_objects import HOST, DependencyTracker, Stamp
from streamscope.program.launch import HostCall
from streamscope.program.operation import Operation, Program


def segments(program: Program) -> list[tuple[bool, tuple[Operation, ...]]]:
    """Split a program into greedy maximal runs of operations that are captured (True) and that are not (False).

    Those are not that cannot be, and a run that launches nothing, as operations on empty arrays do.
    """
    runs = [(capturable, tuple(run)) for capturable, run in groupby(program.operations, key=lambda operation: operation.capturable)]
    return [(capturable and any(operation.launches for operation in run), run) for capturable, run in runs]


def captured_plan(engine: str, program: Program, order: Sequence[Operation], stream_of: StreamOf, *, scopes: bool = False) -> Plan:
    """Make a plan whose capturable segments are graphs, launched on the main stream; the rest runs between them as usual.

    Segments are those of the program; inside one, operations are captured in the given order. All device work is on the main stream,
    graphs and single launches alike, so only host functions wait, each for the last thing on the stream that touched its variables, and
    nothing waits for them (the host issues in order).
    """
    lanes = lanes_in_use([operation for operation in order if operation.capturable], stream_of)
    parts, captured_events = _captured(segments(program), order, lanes)
    tracker = DependencyTracker([0])
    steps: list[tuple[Step, Stamp | None]] = []
    waits: dict[int, Stamp] = {}
    each = 0
    # Twice, so that the second round knows what the first left behind (see `repeating_steps`).
    for _ in range(2):
        first, steps, waits = tracker.tail(0).position, [], {}
        for operations, replay in parts:
            if replay is None:
                for operation in operations:
                    _uncaptured(operation, tracker, steps, waits)
                continue
            # Of launches: for an operation that launches nothing, nobody has to wait.
            launches = [launch for operation in operations for launch in operation.launches]
            reads = {v for launch in launches for v in launch.reads}
            writes = {v for launch in launches for v in launch.writes}
            steps.append((replay, tracker.issued(0, reads, writes)))
        each = tracker.tail(0).position - first
    steps_with_events, events = _with_events(steps, waits, each, captured_events)
    return Plan(engine, program, lanes.names, steps_with_events, events, scopes)


def _captured(
    parts: Sequence[tuple[bool, tuple[Operation, ...]]], order: Sequence[Operation], lanes: Lanes
) -> tuple[list[tuple[tuple[Operation, ...], Replay | None]], int]:
    """Return the parts of a program with the replay of each that can be captured, and the number of events in the replays."""
    position = {operation.id: index for index, operation in enumerate(order)}
    events = 0
    captured: list[tuple[tuple[Operation, ...], Replay | None]] = []
    for capturable, operations in parts:
        replay = None
        if capturable:
            ordered = sorted(operations, key=lambda operation: position[operation.id])
            steps, used = captured_steps(ordered, range(len(lanes.names)), lanes.of, events)
            replay, events = Replay(steps), events + used
        captured.append((operations, replay))
    return captured, events


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
