"""The order of collectives in a plan, checked before anything is launched: one that could wait for ever is refused by name.

A part of a collective holds multiprocessors from its start, and ends when all parts have begun. So two collectives wait for each other for
ever if one GPU begins with the first and another one with the second, unless there is room for both. NCCL demands one order of the
collectives of a communicator on all its GPUs; those of several communicators need room for all channels that can be held at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from streamscope.devices.protocol import Device
from streamscope.engines.plan import CallHost, HostWait, Issue, Plan, RecordEvent, Replay, Step, Synchronize, WaitEvent
from streamscope.errors import DeadlockError, DeviceError
from streamscope.program.collective import Collective
from streamscope.program.operation import Program
from streamscope.words import counted

_Run = tuple[int, int]
"""The operation of a collective, and the run of the plan that it is of."""
_Front = frozenset[_Run]
"""Collectives that are done once a place is reached."""
_NOTHING: _Front = frozenset()


def check_gpus(program: Program, device: Device) -> None:
    """Refuse a program that needs more GPUs than a device has."""
    count = getattr(device, "gpus", 1)
    if program.gpus > count:
        raise DeviceError(
            f"{program.name!r} needs {counted(program.gpus, 'GPU')}, and {device.info.name} is a device of {count}",
            hint=f"give it gpus={program.gpus}; device='simulated' has up to 8",
        )


def check_collectives(plan: Plan, device: Device) -> None:
    """Refuse a plan whose collectives could wait for each other for ever.

    Raises
    ------
    DeadlockError
        Parts of a collective are not issued together, two collectives of one communicator are in no order on a GPU, or those that may run
        side by side hold more multiprocessors than there are.
    """
    if plan.program.gpus == 1:
        return
    lanes: dict[int, set[int]] = {}
    for parts in _collectives(plan):
        for issue in parts:
            lanes.setdefault(issue.launch.gpu, set()).add(issue.lane)
    if all(len(each) == 1 for each in lanes.values()):
        return  # They are in the order of their issue, on every GPU.
    order = _Order(plan)
    beside = [pair for pair in combinations(order.before, 2) if order.unordered(*pair)]
    for first, second in beside:
        if order.collective(first).gpus == order.collective(second).gpus:
            raise DeadlockError(
                f"{plan.engine} puts {order.named(first)} and {order.named(second)} on streams without an order, and one GPU may begin "
                "with the one that another GPU has second",
                hint="put collectives of the same GPUs on one stream of each",
            )
    for group in _groups(beside):
        held = sum(device.channels(order.collective(each)) for each in group)
        if held > device.room:
            raise DeadlockError(
                f"{plan.engine} may run {' and '.join(map(order.named, group))} at the same time, which hold {held} multiprocessors of a "
                f"GPU that has {device.room}",
                hint="let one of them wait for the other",
            )


def _groups(beside: Sequence[tuple[_Run, _Run]]) -> Iterator[list[_Run]]:
    """Yield each collective with all later ones that may run beside it: they hold no less than those that do so all at once."""
    around: dict[_Run, list[_Run]] = {}
    for first, second in beside:
        around.setdefault(first, [first]).append(second)
    yield from around.values()


def _collectives(plan: Plan) -> Iterator[list[Issue]]:
    """Yield the parts of each collective, once it is sure that they are issued together, each once, and on streams of their GPUs."""
    parts: list[Issue] = []
    for step in plan.flat():
        launch = step.launch if isinstance(step, Issue) else None
        if parts and (launch is None or launch.operation != parts[0].launch.operation):
            raise _left_alone(plan, parts)
        if isinstance(step, Issue) and step.launch.collective is not None:
            parts.append(step)
            if step.launch.gpu != plan.gpu(step.lane):
                raise DeadlockError(
                    f"{plan.engine} puts the part of {step.launch} for GPU {step.launch.gpu} on a stream of GPU {plan.gpu(step.lane)}",
                    hint="put each part on a stream of its GPU",
                )
            if len(parts) == len(step.launch.collective.gpus):
                if {part.launch.part for part in parts} != set(range(len(parts))):
                    raise _left_alone(plan, parts)
                yield parts
                parts = []
    if parts:
        raise _left_alone(plan, parts)


def _left_alone(plan: Plan, parts: Sequence[Issue]) -> DeadlockError:
    launch = parts[0].launch
    there = len({part.launch.part for part in parts})
    count = len(launch.collective.gpus) if launch.collective is not None else there
    return DeadlockError(
        f"{plan.engine} issues {there} of the {count} parts of {launch} together, which would wait for the others for ever",
        hint="issue the parts of a collective one behind the other, each once",
    )


class _Order:
    """What comes after what, as streams, events and the host have it, for collectives alone.

    It reads the steps as CUDA would, and takes nothing from planners, so that no fault is shared. Two runs are read, since the next run's
    collectives may stand beside those of the run before. No part ends before all have begun, so a collective knows all that its parts know.
    """

    def __init__(self, plan: Plan) -> None:
        self.program = plan.program
        self.before: dict[_Run, dict[int, _Front]] = {}
        """Of each collective, by GPU: the collectives that are done there before its part begins."""
        self._lanes: dict[int, _Front] = {}
        self._events: dict[int, _Front] = {}
        self._host: _Front = _NOTHING
        self._parts: list[Issue] = []
        for self._run in range(2):
            for step in plan.steps:
                self._read(step)

    def collective(self, run: _Run) -> Collective:
        """Return a collective."""
        found = self.program.operations[run[0]].collective
        assert found is not None
        return found

    def named(self, run: _Run) -> str:
        """Name a collective for errors."""
        return str(self.program.operations[run[0]])

    def unordered(self, earlier: _Run, later: _Run) -> bool:
        """Tell whether two collectives share GPUs on one of which nothing says that the earlier comes first."""
        before = self.before[later]
        return any(earlier not in before[gpu] for gpu in self.before[earlier] if gpu in before)

    def _read(self, step: Step) -> None:
        match step:
            case Issue(launch):
                if launch.collective is not None:
                    self._parts.append(step)
                    if len(self._parts) == len(launch.collective.gpus):
                        self._meet()
            case RecordEvent(event, lane):
                self._events[event] = self._at(lane)
            case WaitEvent(event, lane):
                self._lanes[lane] = self._at(lane) | self._events.get(event, _NOTHING)
            case HostWait(event):
                self._host |= self._events.get(event, _NOTHING)
            case Synchronize(lane):
                self._host |= self._at(lane)
            case Replay(steps):
                outside, self._lanes = self._lanes, {0: self._at(0)}
                for inner in steps:
                    self._read(inner)
                self._lanes = {**outside, 0: self._at(0)}
            case CallHost():
                pass

    def _meet(self) -> None:
        parts, self._parts = self._parts, []
        number = parts[0].launch.operation, self._run
        self.before[number] = {part.launch.gpu: self._at(part.lane) for part in parts}
        known = frozenset({number}).union(*(self._at(part.lane) for part in parts))
        self._lanes.update((part.lane, known) for part in parts)

    def _at(self, lane: int) -> _Front:
        return self._lanes.get(lane, _NOTHING) | self._host
