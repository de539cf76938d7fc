"""Hostile schedules for plans: launches that begin late or last long, at random or each in turn; and what shows that a wait is gone."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.engines.random_host_programs import HostProgram

from streamscope.devices.simulated import SimulatedDevice
from streamscope.devices.simulated.core import Delays
from streamscope.engines.happens_before import capture_breaks
from streamscope.engines.plan import Plan, Replay
from streamscope.engines.prepared import Prepared
from streamscope.engines.race_check import Race, races
from streamscope.errors import DeadlockError
from streamscope.program.launch import HostCall, Launch
from streamscope.program.operation import Operation, Program
from streamscope.program.reference import run_reference

RUNS = 3
"""Runs in a row: the first is warm, the second captures."""
OTHERS = 8
"""Other inputs, where those of a program show nothing."""
LATE_NS, LONG = 1e8, 1e6
"""Later, and longer, than everything that does not wait for it."""


def adversary(seed: int) -> Delays:
    """Return delays that let launches start late and last long at random, so that a missing order shows."""
    chance = random.Random(seed)
    return lambda launch, stream: (chance.choice([0, 0, 0, 20_000, 200_000]), chance.choice([1, 1, 30]))


def late(operation: int, part: int, other: tuple[int, int] | None = None) -> Delays:
    """Return delays that let one launch start very late, and another one behind all the rest."""

    def delays(launch: Launch, stream: str) -> tuple[float, float]:
        key = launch.operation, launch.part
        return (LATE_NS if key == (operation, part) else LATE_NS / 10 if key == other else 0.0), 1.0

    return delays


def later_still(operation: int, part: int, other: int) -> Delays:
    """Return delays that let one launch start very late, and those of another operation later still."""
    return lambda launch, stream: (
        10 * LATE_NS if launch.operation == other else LATE_NS if (launch.operation, launch.part) == (operation, part) else 0.0,
        1.0,
    )


def long(operation: int, parts: Sequence[int]) -> Delays:
    """Return delays that let some launches of an operation last very long."""
    return lambda launch, stream: (0.0, LONG if launch.operation == operation and launch.part in parts else 1.0)


def expected_of(made: HostProgram) -> list[Any]:
    """Return the state after `RUNS` serial runs."""
    state: Sequence[Any] = made.inputs
    for _ in range(RUNS):
        state = run_reference(made.program, state)
    return list(state)


def right(plan: Plan, made: HostProgram, expected: Sequence[Any], delays: Delays | None) -> bool:
    """Tell whether runs in a row give the right results, to the bit, with every graph captured."""
    prepared = Prepared(plan, SimulatedDevice(gpus=made.gpus, delays=delays))
    prepared.load(made.inputs)
    for _ in range(RUNS):
        prepared.run()
    outputs = prepared.outputs()
    return not prepared.notes and all(map(same, outputs, expected))


def same(one: Any, other: Any) -> bool:
    """Tell whether two arrays are equal; NaN is NaN."""
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def against(race: Race, program: Program) -> Iterator[Delays]:
    """Yield schedules that show a race: its earlier launch is late, or long; of a collective, beside another long part."""
    work, then = race.earlier.work, race.later.work
    part = getattr(work, "part", 0)
    yield late(work.operation, part)
    yield late(work.operation, part, (then.operation, getattr(then, "part", 0)))
    # The next write to the variable may hide the race before the earlier launch comes. So that write is later still.
    shared = {*work.reads, *work.writes} & {*then.writes}
    in_turn = [*program.operations[then.operation + 1 :], *program.operations[: then.operation]]
    for operation in [each for each in in_turn if shared & {*each.writes}][:1]:
        yield later_still(work.operation, part, operation.id)
    if isinstance(work, Launch) and work.collective is not None:
        yield long(work.operation, [part])
        for other in range(len(work.collective.gpus)):
            yield long(work.operation, [part, other])


def without_wait(plan: Plan, index: int, made: HostProgram, expected: Sequence[Any]) -> str:
    """Take a wait out of a plan, and return how that shows.

    ``"wrong"``: a schedule gives other results, or a capture breaks; ``"refused"``: collectives could wait for each other for ever;
    ``"needless"``: all work is ordered without it, which the vector clocks of the audit prove, or it waits for a sender whose receiver is
    done, and so has read all; ``"unread"``: no result depends on what it orders; ``"hidden"``: none of these.
    """
    broken = plan.without_wait(index)
    breaks = any(capture_breaks(step.steps) for step in broken.steps if isinstance(step, Replay))
    found = races(broken)
    if not breaks and not found:
        return "needless"
    schedules = [*([None] if breaks else []), *(delays for race in found for delays in against(race, made.program))]
    try:
        if not all(right(broken, made, expected, delays) for delays in schedules):
            return "wrong"
        # A minimum over GPUs is seldom the operand of the one that came too early.
        for other in others(made):
            if not all(right(broken, other, expected_of(other), delays) for delays in schedules):
                return "wrong"
    except DeadlockError:
        return "refused"
    if all(_is_sender(race.earlier.work) for race in found):
        return "needless"
    return "unread" if is_unread(found, made) else "hidden"


def others(made: HostProgram) -> Iterator[HostProgram]:
    """Yield the program with other inputs."""
    for seed in range(OTHERS):
        chance = np.random.default_rng(seed)
        yield replace(made, inputs=tuple(chance.integers(0, 97, one.shape).astype(one.dtype) for one in made.inputs))


def is_unread(found: Sequence[Race], made: HostProgram) -> bool:
    """Tell whether results are the same whatever the values are that some races leave open, by NumPy, one operation after the other.

    What an operation may read too early is garbage for it. What it may read too late is garbage where the later value differs, and may be
    any mixture of the two. Of two writes that are not ordered, garbage stays.
    """
    early, late, lost = (defaultdict[int, set[tuple[int, int, bool]]](set) for _ in range(3))
    for race in found:
        before, after = race.earlier.work, race.later.work
        for shared, place in (
            ({*before.writes} & {*after.reads}, early[after.operation]),
            ({*before.reads} & {*after.writes}, late[before.operation]),
            ({*before.writes} & {*after.writes}, lost[after.operation]),
        ):
            place.update((variable, after.operation, race.next_run) for variable in shared)
    program, right = made.program, dict(zip(made.program.inputs, made.inputs, strict=True))
    runs = [[right := right | _written(program, operation, right) for operation in program.operations] for _ in range(RUNS)]
    torn = dict(zip(program.inputs, made.inputs, strict=True))
    for run in range(RUNS):
        for operation in program.operations:
            number = operation.id
            # No run comes before the first one. After the last one, the host has waited.
            unsure = {one: _garbage(torn[one]) for one, _, next_run in early[number] if run >= next_run}
            for one, then, next_run in late[number]:
                if run + next_run < RUNS:
                    unsure[one] = np.where(torn[one] != runs[run + next_run][then][one], _garbage(torn[one]), torn[one])
            torn |= _written(program, operation, torn | unsure)
            torn |= {one: _garbage(torn[one]) for one, _, next_run in lost[number] if run >= next_run}
    return all(same(torn[variable], runs[-1][-1][variable]) for variable in program.outputs)


def _written(program: Program, operation: Operation, memory: Mapping[int, Any]) -> dict[int, Any]:
    """Return the results of an operation by NumPy, by variable."""
    reads, writes = tuple(dict.fromkeys(operation.reads)), tuple(dict.fromkeys(operation.writes))
    alone = replace(program, operations=(operation,), inputs=reads, outputs=writes)
    return dict(zip(writes, run_reference(alone, [memory[variable] for variable in reads]), strict=True))


def _garbage(values: Any) -> Any:
    return np.full_like(values, np.nan) if values.dtype.kind == "f" else ~values


def _is_sender(work: Launch | HostCall) -> bool:
    return isinstance(work, Launch) and work.name == "send" and not work.writes


def all_late(plan: Plan) -> Iterator[Delays]:
    """Yield a schedule for each launch in which it is late."""
    for work in plan.program.launches():
        assert not isinstance(work, HostCall)
        yield late(work.operation, work.part)
