"""Whatever the program, the results are those of serial execution, under every engine; and without a wait they are not."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.combinations import THOROUGH
from tests.counting import calls_of
from tests.engines.hostile_schedules import adversary
from tests.engines.random_programs import DEVICE_VARIABLES, HOST_VARIABLES, RandomProgram, random_program

from streamscope.devices import open_device
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.happens_before import capture_breaks
from streamscope.engines.plan import Plan, Replay
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.engines.race_check import races
from streamscope.program.reference import run_reference

pytestmark = pytest.mark.slow

CONFIGURATIONS = [*((name, 2) for name in ENGINES), ("dual", 4), ("graph-dual", 4)]
MOST_WAITS = 25 if THOROUGH else 5
"""How many waits of a plan are tried, of hundreds."""
MANY = 10_000 if THOROUGH else 4000
LARGE = CONFIGURATIONS[:-1] if THOROUGH else [("graph-dual", 2)]
"""Who runs so many operations: what grows with their number is the plan on several streams, and the graphs of it; this has both."""
SEEDS = range(8) if THOROUGH else range(4)
"""A configuration takes every second of them, its neighbour the others."""
LATE_NS = 1e8
"""Later than everything that does not wait for it."""


def late(work):
    """Return delays that let one launch start very late, so that what should wait for it does not."""
    return lambda launch, stream: (LATE_NS if (launch.operation, launch.part) == (work.operation, getattr(work, "part", 0)) else 0.0, 1.0)


@cache
def hundreds(seed: int):
    """Three hundred operations, with what each of three runs should compute."""
    made = random_program(100 + seed, 300, host_share=(0.0, 0.02, 0.1, 0.3)[seed % 4])
    return made, states(made, 3)


def states(made: RandomProgram, runs: int) -> list[list[np.ndarray]]:
    """Return the outputs after each of several serial runs."""
    found, state = [], list(made.inputs)
    for _ in range(runs):
        state = run_reference(made.program, state)
        found.append(state)
    return found


def equal(outputs, expected) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(outputs, expected, strict=True))


@pytest.fixture(scope="module")
def thousands():
    """Four thousand operations over a hundred variables, or ten thousand, with the right results of two runs."""
    made = random_program(1, MANY)
    assert len(made.program.operations) == MANY
    assert len(made.program.variables) == DEVICE_VARIABLES + HOST_VARIABLES == 100
    return made, states(made, 2)[-1]


@pytest.mark.parametrize(("name", "streams"), LARGE)
def test_thousands_of_operations(thousands, name, streams):
    made, expected = thousands
    prepared = prepare_traced(made.program, name, SimulatedDevice(delays=adversary(streams)), streams=streams)
    prepared.load(made.inputs)
    prepared.run()
    prepared.run()
    assert equal(prepared.outputs(), expected)


@pytest.mark.parametrize(
    ("name", "streams", "seed"),
    [(*one, seed) for number, one in enumerate(CONFIGURATIONS) for seed in SEEDS if THOROUGH or (number + seed) % 2 == 0],
)
def test_hundreds_of_operations(name, streams, seed):
    made, expected_states = hundreds(seed)
    prepared = prepare_traced(made.program, name, SimulatedDevice(delays=adversary(seed)), streams=streams)
    prepared.load(made.inputs)
    for expected in expected_states:
        prepared.run()
        assert equal(prepared.outputs(), expected)


@pytest.mark.parametrize(("name", "streams"), [("async", 2), ("graph", 2), ("dual", 4), ("graph-dual", 4)])
def test_preparing_takes_time_in_proportion_to_the_operations(name, streams):
    def calls(operations: int) -> int:
        return calls_of(ENGINES[name].plan, random_program(2, operations).program, lambda launch: 1e5, streams)

    assert calls(600) < 6 * calls(150)


class Walked(tuple):
    """Operations that count how often somebody goes through all of them."""

    __slots__ = ()
    walks = 0

    def __iter__(self):
        Walked.walks += 1
        return super().__iter__()


@pytest.mark.parametrize(("name", "streams"), CONFIGURATIONS)
def test_all_operations_are_gone_through_as_often_in_a_program_of_many_segments(monkeypatch, name, streams):
    def walks(operations: int) -> int:
        program = random_program(2, operations).program
        monkeypatch.setattr(Walked, "walks", 0)
        ENGINES[name].plan(replace(program, operations=Walked(program.operations)), lambda launch: 1e5, streams)
        return Walked.walks

    assert 0 < walks(250) == walks(1000)


@pytest.mark.parametrize(("name", "streams"), [("async", 2), ("dual", 2), ("dual", 4), ("graph", 2), ("graph-dual", 2), ("graph-dual", 4)])
def test_a_wait_taken_away_is_caught(name, streams):
    """The audit finds it, and the results are wrong in a schedule in which what was not waited for is late; every time."""
    made = random_program(5, 300)
    expected = states(made, 3)[-1]
    plan = ENGINES[name].plan(made.program, lambda launch: 1e5, streams)
    assert audited(plan) == (False, [])
    assert right(plan, made, expected)
    for index in random.Random(0).sample(range(plan.waits), min(MOST_WAITS, plan.waits)):
        broken = plan.without_wait(index)
        breaks, found = audited(broken)
        assert breaks or found, f"the audit does not find that wait {index} of {plan.waits} is gone"
        schedules = [*([None] if breaks else []), *(late(race.earlier.work) for race in found)]
        assert not all(right(broken, made, expected, delays) for delays in schedules), f"nothing shows that wait {index} is gone"


def audited(plan: Plan):
    """Tell whether a capture would break (which shows: the segment runs uncaptured), and return the races."""
    return any(capture_breaks(step.steps) for step in plan.steps if isinstance(step, Replay)), races(plan)


def right(plan: Plan, made: RandomProgram, expected, delays=None) -> bool:
    """Tell whether three runs in a row give the right results, with every graph captured."""
    prepared = Prepared(plan, SimulatedDevice(delays=delays))
    prepared.load(made.inputs)
    for _ in range(3):
        prepared.run()
    return equal(prepared.outputs(), expected) and not prepared.notes


@pytest.mark.gpu
def test_two_hundred_programs_on_a_gpu():
    device = open_device("cuda")
    for seed in range(200):
        made = random_program(seed, 10_000 if seed == 0 else 200 + 10 * (seed % 50), host_share=(0.0, 0.02, 0.1)[seed % 3])
        expected = states(made, 2)[-1]
        for name, streams in CONFIGURATIONS if seed % 10 == 0 else random.Random(seed).sample(CONFIGURATIONS, 3):
            prepared = prepare_traced(made.program, name, device, streams=streams)
            prepared.load(made.inputs)
            prepared.run()
            prepared.run()
            assert equal(prepared.outputs(), expected), f"program {seed} under {name} on {streams} streams"
            assert prepared.notes == []
