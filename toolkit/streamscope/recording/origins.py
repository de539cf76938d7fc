"""What a trace says of the operations that ran, read from a program and an engine's plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from streamscope.engines.plan import CallHost, HostWait, Issue, Plan, RecordEvent, Step, WaitEvent
from streamscope.program.operation import LONGEST_SOURCE, Operation, Program
from streamscope.trace.origins import MOST_OPERATIONS, MOST_WAITS, Origins
from streamscope.words import shortened

Place = tuple[int, int]
"""An operation and which of its launches."""


def origins_of(plan: Plan) -> Origins:
    """Return where the operations of a plan's program come from, and its event waits."""
    waits = sorted(set(_waits(plan.flat())))
    complete = len(waits) <= MOST_WAITS
    table = np.array(waits if complete else [], np.int64).reshape(-1, 4)
    if len(plan.program.operations) > MOST_OPERATIONS:
        return Origins(waits=table, complete=complete)
    texts: dict[str, int] = {"": -1}
    label, line, arguments = (
        np.array([texts.setdefault(text, len(texts) - 1) for text in column], np.int64)
        for column in (
            [operation.label for operation in plan.program.operations],
            [_line(operation) for operation in plan.program.operations],
            [_arguments(operation, plan.program) for operation in plan.program.operations],
        )
    )
    return Origins(tuple(texts)[1:], label, line, arguments, table, complete)


def _line(operation: Operation) -> str:
    """Return the user's line with its text: ``model.py:12: h = x @ w``."""
    return f"{operation.where}: {shortened(operation.source, LONGEST_SOURCE)}" if operation.source else operation.where


def _arguments(operation: Operation, program: Program) -> str:
    """Return shapes and dtypes: ``float32[64, 256], float32[256, 256] → float32[64, 256]``."""
    written = [program.variables[variable].spec for variable in operation.writes]
    reads, writes = (", ".join(map(str, specs)) for specs in (program.read_specs(operation), written))
    return shortened(f"{reads} → {writes}", 2 * LONGEST_SOURCE)


def _waits(steps: Iterable[Step]) -> Iterator[tuple[int, int, int, int]]:
    """Yield each wait of a launch, or of a host function, for a launch on another lane."""
    last: dict[int, Place] = {}
    recorded: dict[int, list[tuple[int, Place]]] = {}
    waiting: dict[int, list[tuple[int, Place]]] = {}
    host: list[Place] = []
    for step in steps:
        match step:
            case Issue(launch, lane):
                place = (launch.operation, launch.part)
                yield from ((*earlier, *place) for other, earlier in waiting.pop(lane, []) if other != lane)
                last[lane] = place
            case RecordEvent(event, lane):
                # What the lane waits for and has not begun after, what waits for this event waits for, too.
                recorded[event] = [*waiting.get(lane, []), *([(lane, last[lane])] if lane in last else [])]
            case WaitEvent(event, lane):
                waiting.setdefault(lane, []).extend(recorded.get(event, []))
            case HostWait(event):
                host += [place for _, place in recorded.get(event, [])]
            case CallHost(call):
                yield from ((*earlier, call.operation, 0) for earlier in host)
                host = []
            case _:
                continue
