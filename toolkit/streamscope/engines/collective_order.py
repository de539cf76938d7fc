"""The order of collectives in a plan, checked before anything is launched: one that could wait for ever is refused by name.

A part of a collective holds multiprocessors from its start, and ends when all parts have begun. So two collectives wait for each other for
ever if one GPU begins with the first and another one with the second, unless there is room for both. NCCL demands one order of the
collectives of a communicator on all its GPUs; those of several communicators need room for all channels that can be held at a time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamscope.devices.protocol import Device
from streamscope.engines.plan import Issue, Plan, Replay, Step
from streamscope.engines.step_walk import OUTSIDE, StepWalk
from streamscope.errors import DeadlockError, DeviceError
from streamscope.program.collective import Collective
from streamscope.program.operation import Program
from streamscope.words import counted

_Strand = tuple[int, int]
"""A lane, and the graph that it is in, as `StepWalk` has it. Parts on one strand are in order."""
_Clock = Mapping[_Strand, int]
"""Of each strand, how many of its parts have begun and, on the same GPU, are done."""
_NOTHING: _Clock = {}


def check_gpus(program: Program, device: Device) -> None:
    """Refuse a program that needs more GPUs than a device has."""
    count = getattr(device, "gpus", 1)
    if program.gpus > count:
        raise DeviceError(
            f"{program.name!r} needs {counted(program.gpus, 'GPU')}, and {device.info.name} has {count}",
            hint=f"write device={device.info.kind!r}, gpus={program.gpus}; ss.open_device takes both, too",
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
    strands: dict[int, set[_Strand]] = defaultdict(set)
    for graph, steps in _sequences(plan):
        for parts in _collectives(plan, steps):
            for issue in parts:
                strands[issue.launch.gpu].add((issue.lane, graph))
    if all(len(each) == 1 for each in strands.values()):
        return  # They are in the order of their issue, on every GPU.
    for part, beside in _unordered(plan):
        collective = part.collective
        for others in beside:
            for other in others:
                if other.collective.communicator == collective.communicator:
                    raise DeadlockError(
                        f"{plan.engine} puts {other} and {part} on streams without an order, and one GPU may begin with the one that "
                        "another GPU has second",
                        hint="put collectives of the same GPUs on one stream of each",
                    )
        together = [part, *(max(others, key=lambda other: device.channels(other.collective)) for others in beside)]
        held = sum(device.channels(each.collective) for each in together)
        if held > device.room:
            raise DeadlockError(
                f"{plan.engine} may run {' and '.join(map(str, together))} at the same time, which hold {held} multiprocessors of a "
                f"GPU that has {device.room}",
                hint="let one of them wait for the other",
            )


@dataclass(frozen=True, eq=False)
class _Part:
    """A part of a collective, in one of the runs that are read."""

    issue: Issue
    name: str
    strand: _Strand
    before: _Clock
    """What is known when it begins."""

    @property
    def collective(self) -> Collective:
        found = self.issue.launch.collective
        assert found is not None
        return found

    def __str__(self) -> str:
        return self.name


def _unordered(plan: Plan) -> Iterator[tuple[_Part, list[list[_Part]]]]:
    """Yield each part with those issued before it that may still be under way on its GPU, strand by strand, where there are any."""
    on_strand: dict[_Strand, list[_Part]] = defaultdict(list)
    on_gpu: dict[int, dict[_Strand, None]] = defaultdict(dict)
    for part in _parts(plan):
        gpu = part.issue.launch.gpu
        beside = [on_strand[strand][part.before.get(strand, 0) :] for strand in on_gpu[gpu] if strand != part.strand]
        if found := [others for others in beside if others]:
            yield part, found
        on_strand[part.strand].append(part)
        on_gpu[gpu][part.strand] = None


def _sequences(plan: Plan) -> Iterator[tuple[int, tuple[Step, ...]]]:
    """Yield the plan's own steps, and those of each graph behind the graph's place."""
    yield OUTSIDE, plan.steps
    for graph, step in enumerate(plan.steps):
        if isinstance(step, Replay):
            yield graph, step.steps


def _collectives(plan: Plan, steps: Sequence[Step]) -> Iterator[list[Issue]]:
    """Yield the parts of each collective, once it is sure that they are issued together, each once, and on streams of their GPUs."""
    parts: list[Issue] = []
    for step in steps:
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


def _parts(plan: Plan) -> Iterator[_Part]:
    """Yield the parts of all collectives in the order of their issue, run after run.

    Two runs are read, since the next run's collectives may stand beside those of the run before. The steps of a graph are read as captured:
    where that fails, and they are issued one by one, they keep the same orders and more.
    """
    walk, counts, parts = StepWalk(_NOTHING, _joined), Counter[_Strand](), list[_Part]()
    for _ in range(2):
        for step, graph in walk.launches(plan.steps):
            launch = step.launch
            if launch.collective is None:
                continue
            parts.append(_Part(step, str(plan.program.operations[launch.operation]), (step.lane, graph), walk.at(step.lane)))
            yield parts[-1]
            if len(parts) == len(launch.collective.gpus):
                walk.lanes.update(_met(launch.collective, parts, counts))
                parts.clear()


def _met(collective: Collective, parts: Sequence[_Part], counts: Counter[_Strand]) -> dict[int, _Clock]:
    """Return what is known behind each part, by lane: that those have begun that it awaits, and what they knew."""
    numbered = {each.issue.launch.part: each for each in parts}
    counts.update(each.strand for each in parts)
    known = {}
    for number, each in numbered.items():
        awaited = [numbered[other] for other in collective.awaits(number)]
        begun = {other.strand: counts[other.strand] for other in awaited}
        known[each.issue.lane] = _joined(begun, *(other.before for other in awaited))
    return known


def _joined(*clocks: _Clock) -> _Clock:
    """Return what is known by one of several clocks."""
    known: dict[_Strand, int] = {}
    for clock in clocks:
        for strand, count in clock.items():
            known[strand] = max(count, known.get(strand, 0))
    return known
