"""Runs of prepared programs whose calls are watched: each has its host time. Other runs know nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns

from streamscope.devices.protocol import Call
from streamscope.engines.binding import BoundStep, do_nothing, name_launch
from streamscope.engines.host_totals import EVENT, GRAPH, HOST_FUNCTION, OPERATION, WAIT, CallLayout, HostSums, Key
from streamscope.engines.plan import CallHost, Issue, RecordEvent, Replay, Step, WaitEvent
from streamscope.program.operation import Program


@dataclass(frozen=True, eq=False)
class WatchedSteps:
    """The steps of a run one by one; those of a graph that is not captured yet, too."""

    of: Sequence[Call]
    """The calls that they were made for: others need others."""
    steps: tuple[BoundStep, ...]
    layout: CallLayout

    @classmethod
    def made(cls, calls: Sequence[Call], bound: Sequence[BoundStep], program: Program) -> WatchedSteps:
        """Take a plan's steps apart."""
        steps = tuple(
            each for one in bound for each in (one.inner if isinstance(one.step, Replay) and one.graph is None else (one,))
        )  # fmt: skip
        # All launches of an operation have one slot.
        names: dict[object, int] = {}
        keys: list[Key | None] = []
        slots = []
        for number, each in enumerate(steps):
            owner = ("operation", each.step.launch.operation) if isinstance(each.step, Issue) else number
            if owner not in names:
                names[owner] = len(keys)
                keys.append(None if each.call is do_nothing and not isinstance(each.step, Issue) else _key(each.step, program))
            slots.append(names[owner])
        return cls(calls, steps, CallLayout(tuple(slots), tuple(keys)))

    def run(self, sums: HostSums) -> None:
        """Carry out the steps, and count those that return."""
        stamps = [perf_counter_ns()]
        stamp = stamps.append
        bound: BoundStep | None = None
        try:
            for bound in self.steps:
                bound.call()
                stamp(perf_counter_ns())
        except BaseException as error:
            if bound is not None:
                name_launch(error, (bound,), bound.call)
            raise
        finally:
            if sums.counting:
                sums.add_run(self.layout, stamps)


def _key(step: Step, program: Program) -> Key:
    match step:
        case Issue(launch):
            return OPERATION, program.operations[launch.operation].name
        case CallHost(call):
            return HOST_FUNCTION, call.name
        case Replay():
            return GRAPH, program.name
        case RecordEvent() | WaitEvent():
            return EVENT, "events between streams"
        case _:
            return WAIT, "waits of the host"
