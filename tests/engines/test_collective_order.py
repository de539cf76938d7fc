"""Plans whose collectives could wait for each other for ever are refused before anything is launched; others never do."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from tests.combinations import THOROUGH
from tests.engines.hostile_schedules import RUNS, adversary
from tests.engines.random_host_programs import HostProgram, random_host_program

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.collective_order import check_collectives
from streamscope.engines.issuing import repeating_steps
from streamscope.engines.plan import Issue, Plan, RecordEvent, Replay, Synchronize, WaitEvent
from streamscope.engines.prepared import Prepared
from streamscope.errors import DeadlockError

X = np.ones(12, np.float32)


@ss.program
def two(a, b, c, d):
    return *ss.ops.all_reduce([a, b]), *ss.ops.all_reduce([c, d])


@ss.program
def meshed(a, b, c, d):
    """Use two communicators over GPU 0."""
    with ss.gpu(2):
        d = ss.ops.relu(d)
    return *ss.ops.all_reduce([a, b]), *ss.ops.all_gather([c, d])


def parts_of(program):
    """Return the parts of each collective, as steps on the main stream of their GPUs, and those of a program's other launches."""
    groups = [[Issue(launch, launch.gpu) for launch in operation.launches] for operation in program.operations]
    return [group for group in groups if group[0].launch.collective is not None]


def plan_of(program, *steps):
    """Return a plan on three streams of each of three GPUs: lane g + 3 k is stream k of GPU g."""
    lanes = tuple(f"GPU {lane % 3} {('main', 'aux', 'comm')[lane // 3]}" for lane in range(9))
    return Plan("mine", program, lanes, tuple(steps), 20, gpus=tuple(lane % 3 for lane in range(9)))


def on(stream, group):
    return [replace(issue, lane=issue.lane + 3 * stream) for issue in group]


HOST = SimulatedDevice(gpus=4)
TWO = two.trace(X, X, X, X)
FIRST, SECOND = parts_of(TWO)
MESHED = meshed.trace(X, X, X, X)
WAIT_0, WAIT_1 = (RecordEvent(0, 0), WaitEvent(0, 3)), (RecordEvent(1, 1), WaitEvent(1, 4))
BACK = (RecordEvent(2, 3), WaitEvent(2, 0), RecordEvent(3, 4), WaitEvent(3, 1))


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ((FIRST[0], *SECOND, FIRST[1]), "issues 1 of the 2 parts of all_reduce"),
        ((FIRST[0], Synchronize(0), FIRST[1], *SECOND), "issues 1 of the 2 parts"),
        ((*FIRST, SECOND[0]), "issues 1 of the 2 parts"),
        ((FIRST[0], FIRST[0], *SECOND), "issues 1 of the 2 parts"),
        ((*FIRST, FIRST[1], *SECOND), "issues 1 of the 2 parts"),
        ((replace(FIRST[0], lane=1), replace(FIRST[1], lane=0), *SECOND), "for GPU 0 on a stream of GPU 1"),
        ((*FIRST, *on(1, SECOND)), "on streams without an order"),
        ((*FIRST, *WAIT_0, *on(1, SECOND)), "on streams without an order"),
        ((*FIRST, replace(SECOND[0], lane=3), SECOND[1]), "on streams without an order"),
        # In order within a run; the next run's first may overtake this run's second.
        ((*FIRST, *WAIT_0, *WAIT_1, *on(1, SECOND)), "on streams without an order"),
        # A part in a graph, and the other one behind it.
        ((Replay((FIRST[0],)), FIRST[1], *SECOND), "issues 1 of the 2 parts"),
        ((Replay((FIRST[0],)), Replay((FIRST[1],)), *SECOND), "issues 1 of the 2 parts"),
        # One in a graph, which lane 0 launches, and one on a stream that knows nothing of it.
        ((Replay((RecordEvent(0, 0), WaitEvent(0, 1), *FIRST, RecordEvent(1, 1), WaitEvent(1, 0))), *SECOND), "without an order"),
    ],
)
def test_what_could_wait_for_ever_is_refused_by_name(steps, told):
    plan = plan_of(TWO, *steps)
    device = SimulatedDevice(gpus=4)
    with pytest.raises(DeadlockError, match=told):
        Prepared(plan, device)
    assert device.now_ns() == 0


@pytest.mark.parametrize(
    "steps",
    [
        (*FIRST, *SECOND),
        (*SECOND, *FIRST),
        (*FIRST, *WAIT_0, *WAIT_1, *on(1, SECOND), *BACK),
        (Replay((RecordEvent(0, 0), WaitEvent(0, 1), *FIRST, *SECOND, RecordEvent(1, 1), WaitEvent(1, 0))),),
    ],
)
def test_what_is_in_one_order_on_all_gpus_passes(steps):
    check_collectives(plan_of(TWO, *steps), HOST)


def test_two_communicators_need_room_for_both():
    first, second = parts_of(MESHED)
    plan = plan_of(MESHED, *first, *on(1, second))
    held = [HOST.channels(group[0].launch.collective) for group in (first, second)]

    class Small(SimulatedDevice):
        room = sum(held)

    check_collectives(plan, Small(gpus=3))
    Small.room -= 1
    with pytest.raises(DeadlockError, match=f"at the same time, which hold {sum(held)} multiprocessors of a GPU that has {sum(held) - 1}"):
        check_collectives(plan, Small(gpus=3))


def test_a_stream_holds_room_for_one_collective_at_a_time():
    @ss.program
    def three(a, b, c, d):
        with ss.gpu(2):
            d = ss.ops.relu(d)
        results = ss.ops.all_reduce([a, d])
        for _ in range(3):
            b, c = ss.ops.all_reduce([b, c])
        return *results, b, c

    program = three.trace(X, X, X, X)
    first, *others = parts_of(program)
    plan = plan_of(program, *first, *(issue for group in others for issue in on(1, group)))

    class Small(SimulatedDevice):
        room = 2 * HOST.channels(first[0].launch.collective)

    check_collectives(plan, Small(gpus=3))


def spread(made: HostProgram, chance: random.Random) -> Plan:
    """Put each launch on one of a few streams of its GPU, with the waits that its variables ask for; drop some of them, now and then."""
    lanes, numbers = 3, {}
    for launch in made.program.launches():
        stream = chance.choice((1, 1, 1, 2)) if launch.collective is not None else chance.choice((0, 0, 2))
        numbers[launch.operation, launch.part] = launch.gpu * lanes + stream
    names = tuple(f"GPU {gpu} {role}" for gpu in range(made.gpus) for role in ("main", "comm", "aux"))
    steps, events = repeating_steps(made.program.operations, len(names), lambda launch: numbers[launch.operation, launch.part])
    plan = Plan("mine", made.program, names, tuple(steps), events, gpus=tuple(lane // lanes for lane in range(len(names))))
    for _ in range(chance.choice((0, 0, 1, 3))):
        if plan.waits:
            plan = plan.without_wait(chance.randrange(plan.waits))
    return plan


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [2, 3, 4])
def test_what_passes_never_waits_for_ever(gpus):
    """However late its launches are: the simulated device says where the host would wait for ever."""
    passed = 0
    for seed in range(400 if THOROUGH else 40):
        chance = random.Random(seed)
        made = random_host_program(seed, gpus, 4 + seed % 6)
        plan = spread(made, chance)
        try:
            prepared = Prepared(plan, SimulatedDevice(gpus=gpus, delays=adversary(seed)))
        except DeadlockError:
            continue
        prepared.load(made.inputs)
        for _ in range(RUNS):
            prepared.run()
        prepared.wait()
        passed += 1
    assert passed > 10


@pytest.mark.parametrize("engine", ENGINES)
def test_plans_of_our_engines_are_never_refused(engine):
    for seed in range(40):
        gpus = 2 + seed % 3
        check_collectives(ENGINES[engine].plan(random_host_program(seed, gpus, 8).program, lambda launch: 1e5, 2), HOST)
