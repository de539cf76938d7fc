"""Runs of prepared programs whose calls are watched: each has its host time, or an NVTX range. Other runs know nothing of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns

from streamscope.devices.protocol import Call
from streamscope.engines.binding import BoundStep, do_nothing, name_launch
from streamscope.engines.host_totals import EVENT, GRAPH, HOST_FUNCTION, OPERATION, WAIT, CallLayout, HostSums, Key
from streamscope.engines.nvtx_ranges import Opened
from streamscope.engines.plan import CallHost, Issue, RecordEvent, Replay, Step, WaitEvent
from streamscope.program.operation import Program


@dataclass(frozen=True, eq=False)
class WatchedSteps:
    """The steps of a run one by one; those of a graph that is not captured yet, too."""

    of: Sequence[Call]
    """The calls that they were made for: others need others."""
    steps: tuple[BoundStep, ...]
    layout: CallLayout
    name: str
    """The program's."""
    ranges: tuple[tuple[tuple[str, ...], str] | None, ...]
    """Of each step its labels, from outside to inside, and the name of its range."""

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
        ranges = tuple(None if each.call is do_nothing else _range(each.step, program) for each in steps)
        return cls(calls, steps, CallLayout(tuple(slots), tuple(keys)), program.name, ranges)

    def run(self, sums: HostSums, opened: Opened | None) -> None:
        """Carry out the steps, in ranges if some are ``opened``, and count those that return."""
        stamps = [perf_counter_ns()]
        stamp = stamps.append
        bound: BoundStep | None = None
        try:
            if opened is None:
                for bound in self.steps:
                    bound.call()
                    stamp(perf_counter_ns())
            else:
                opened.push(self.name)
                for bound, named in zip(self.steps, self.ranges, strict=True):
                    if named is None:
                        bound.call()
                    else:
                        labels, name = named
                        opened.label(labels)
                        opened.push(name)
                        bound.call()
                        opened.pop()
                    stamp(perf_counter_ns())
        except BaseException as error:
            if bound is not None:
                name_launch(error, (bound,), bound.call)
            raise
        finally:
            if opened is not None:
                opened.close()
            if sums.counting:
                sums.add_run(self.layout, stamps)


def _range(step: Step, program: Program) -> tuple[tuple[str, ...], str] | None:
    """Return labels and name of a step's range; events and waits have none, and stand in the label of the operation before."""
    match step:
        case Issue(launch):
            operation = program.operations[launch.operation]
        case CallHost(call):
            operation = program.operations[call.operation]
        case Replay():
            return (), f"graph of {program.name}"
        case _:
            return None
    return tuple(operation.label.split("/")) if operation.label else (), operation.name


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
