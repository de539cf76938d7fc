"""The orders that a plan of captured code keeps, read from its streams, events and graphs; checked before anything is launched.

Plans are made from what operations read and write. This check takes neither that nor the planner's own bookkeeping, and shares
no walk over steps with planners: it reads the steps as CUDA would, and asks the certificate of the capture, which looks at memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streamscope.engines.plan import HostWait, Issue, Plan, RecordEvent, Replay, Step, Synchronize, WaitEvent
from streamscope.errors import RaceError
from streamscope.words import counted

_Front = frozenset[int]
"""Operations behind which a place stands; whoever waits for it comes after them, and after all that they come after."""

_START = -1
"""Stands for the start of a run on lane 0, which comes after the run before it."""
_NOTHING: _Front = frozenset()


def check_orders(plan: Plan) -> None:
    """Refuse a plan of captured code that does not keep the order of operations that share memory; other programs' plans pass."""
    if plan.program.certificate is None:
        return
    reading = _Reading()
    for step in plan.steps:
        reading.read(step)
    after = reading.after
    count = len(plan.program.operations)
    if sorted(after) != list(range(count)) or reading.issued != count:
        raise RaceError(
            f"{plan.engine} of {plan.program.name} issues {counted(reading.issued, 'launch', 'launches')} for {counted(count, 'operation')}"
        )
    _check_runs(plan, reading)
    plan.program.certificate.check([sorted(after[number] - {_START}) for number in range(count)], plan.engine)
    for step in plan.steps:
        if isinstance(step, Replay) and step.edges is not None:
            plan.program.certificate.check(step.edges, f"the graph of {plan.engine}")


@dataclass
class _Reading:
    """State while the steps of a plan are read: for each operation those that it waits for, and the clock of each lane."""

    after: dict[int, _Front] = field(default_factory=dict)
    issued: int = 0
    lanes: dict[int, _Front] = field(default_factory=lambda: {0: frozenset({_START})})
    events: dict[int, _Front] = field(default_factory=dict)
    host: _Front = _NOTHING

    def read(self, step: Step) -> None:
        match step:
            case Issue(launch, lane):
                # The host issues it, so it also comes after all that the host has waited for.
                self.after[launch.operation] = self._at(lane) | self.host
                self.lanes[lane] = frozenset({launch.operation})
                self.issued += 1
            case RecordEvent(event, lane):
                self.events[event] = self._at(lane)
            case WaitEvent(event, lane):
                self.lanes[lane] = self._at(lane) | self.events.get(event, _NOTHING)
            case HostWait(event):
                self.host |= self.events.get(event, _NOTHING)
            case Synchronize(lane):
                self.host |= self._at(lane)
            case Replay(steps):
                # Inside, nothing is known but what comes before the graph on lane 0; behind it, what lane 0 was joined with.
                outside, self.lanes = self.lanes, {0: self._at(0) | self.host}
                for inner in steps:
                    self.read(inner)
                self.lanes = {**outside, 0: self._at(0)}

    def _at(self, lane: int) -> _Front:
        return self.lanes.get(lane, _NOTHING)


def _check_runs(plan: Plan, reading: _Reading) -> None:
    """Check that each operation comes after the start of its run, and that the next run starts when all of them are done."""
    begun: set[int] = {_START}
    for number, before in reading.after.items():  # in the order of issue
        if begun.isdisjoint(before):
            raise RaceError(f"{plan.engine} lets {plan.program.operations[number]} start before the run before it is done")
        begun.add(number)
    pending, ended = [*reading.lanes[0], *reading.host], set[int]()
    while pending:
        if (number := pending.pop()) not in ended:
            ended.add(number)
            pending += reading.after.get(number, _NOTHING)
    if left := reading.after.keys() - ended:
        raise RaceError(f"{plan.engine} does not wait for {plan.program.operations[min(left)]} at the end of a run")
