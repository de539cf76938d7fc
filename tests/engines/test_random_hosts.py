"""Whatever the program over several GPUs, each engine's results are NumPy's, whatever is late; and no wait may be left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.combinations import THOROUGH
from tests.engines.hostile_schedules import adversary, all_late, expected_of, right, without_wait
from tests.engines.random_host_programs import HostProgram, random_host_program

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.plan import Issue, Plan, RecordEvent, WaitEvent
from streamscope.engines.prepared import Prepared
from streamscope.engines.race_check import races
from streamscope.errors import ProgramError
from streamscope.program.variable import MemoryPlace, spec_of

pytestmark = pytest.mark.slow

PROGRAMS = 400 if THOROUGH else 30
"""Programs of each number of GPUs, each under one engine after the other."""
TORN = 40 if THOROUGH else 5
"""Of these, how many lose each of their waits in turn."""


def planned(seed: int, gpus: int, engine: str):
    made = random_host_program(seed, gpus, 3 + seed % 9)
    return made, ENGINES[engine].plan(made.program, lambda launch: 1e5, 2 + seed % 2)


@pytest.mark.parametrize("gpus", [1, 2, 3, 4])
def test_random_programs_give_numpys_results_under_every_engine(gpus):
    for seed in range(PROGRAMS):
        for engine in ENGINES if seed % 4 == 0 else [[*ENGINES][seed % len(ENGINES)]]:
            made, plan = planned(seed, gpus, engine)
            assert right(plan, made, expected_of(made), adversary(seed)), f"program {seed} on {gpus} GPUs under {engine}"


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
def test_graphs_over_eight_gpus_give_numpys_results(engine):
    for seed in range(3):
        made, plan = planned(seed, 8, engine)
        assert {launch.gpu for launch in made.program.launches()} == {*range(8)}
        assert right(plan, made, expected_of(made), adversary(seed)), f"program {seed} under {engine}"


@pytest.mark.parametrize("engine", ["async", "dual", "graph", "graph-dual"])
@pytest.mark.parametrize("gpus", [2, 3, 4])
def test_each_wait_is_needed(gpus, engine):
    for seed in range(100, 100 + TORN):
        made, plan = planned(seed, gpus, engine)
        expected = expected_of(made)
        assert races(plan) == []
        for index in range(seed % 3, plan.waits, 1 if THOROUGH else 3):
            shown = without_wait(plan, index, made, expected)
            assert shown in ("wrong", "refused"), f"wait {index} of {engine} of program {seed} on {gpus} GPUs is {shown}"


@pytest.mark.parametrize(
    ("seed", "gpus", "length", "other", "engine", "wait", "shown"),
    [
        (5666, 3, 8, False, "dual", 1, "wrong"),  # the next write to the variable hides it
        (4777, 2, 10, False, "async", 2, "wrong"),  # a minimum, which the inputs of the program do not show
        (682, 3, 10, False, "dual", 13, "unread"),  # elements that are overwritten before anybody reads them
        (9613, 2, 4, False, "async", 0, "hidden"),  # 97 times the difference, modulo 97
        (9613, 2, 4, True, "async", 0, "wrong"),
    ],
)
def test_what_hides_that_a_wait_is_gone_is_found_out(seed, gpus, length, other, engine, wait, shown):
    made = random_host_program(seed, gpus, length, other=other)
    plan = ENGINES[engine].plan(made.program, lambda launch: 1e5, 2 + seed % 2)
    assert without_wait(plan, wait, made, expected_of(made)) == shown


def test_a_wait_that_a_collective_implies_is_needless():
    @ss.program
    def step(x, y, z, w):
        with ss.gpu(1):
            z = ss.ops.add(z, 1.0, out=z)
        u, v = ss.ops.all_reduce([x, y])
        ss.ops.to_gpu(z, 0, out=w)
        return ss.ops.subtract(u, w, out=x), ss.ops.add(v, 1.0, out=y), z, w

    inputs = tuple(np.ones((4, 4)))
    program = step.trace(*inputs)
    added, copied = program.operations[0].launches[0], program.operations[2].launches[0]
    last = program.operations[3:]
    parts = [Issue(launch, launch.gpu) for launch in program.operations[1].launches]
    # The sum of GPU 0 is there when GPU 1 has begun its part, and that is behind its addition.
    back = RecordEvent(2, 2), WaitEvent(2, 0), WaitEvent(2, 1), *(Issue(operation.launches[0], gpu) for gpu, operation in enumerate(last))
    steps = Issue(added, 1), RecordEvent(0, 1), *parts, RecordEvent(1, 0), WaitEvent(0, 2), WaitEvent(1, 2), Issue(copied, 2), *back
    plan = Plan("mine", program, ("GPU 0 main", "GPU 1 main", "GPU 1 peer copy"), steps, 3, gpus=(0, 1, 1))
    made = HostProgram(program, inputs, 2)
    assert without_wait(plan, 0, made, expected_of(made)) == "needless"
    assert without_wait(plan.without_wait(0), 0, made, expected_of(made)) == "wrong"
    assert all(right(plan.without_wait(0), made, expected_of(made), delays) for delays in all_late(plan))


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
def test_launches_that_cannot_be_captured_are_on_streams_of_their_gpus(engine):
    for seed in range(12):
        made = random_host_program(seed, 2 + seed % 3, 6)
        kept = [
            operation
            if operation.collective is not None or operation.id % 4 or not operation.launches
            else replace(operation, work=tuple(replace(launch, capturable=False) for launch in operation.launches))
            for operation in made.program.operations
        ]
        made = replace(made, program=replace(made.program, operations=tuple(kept)))
        plan = ENGINES[engine].plan(made.program, lambda launch: 1e5, 2)
        issued = [step for step in plan.flat() if isinstance(step, Issue)]
        assert all(plan.gpu(step.lane) == step.launch.gpu for step in issued)
        assert races(plan) == []
        assert right(plan, made, expected_of(made), adversary(seed))


def test_memory_of_another_gpu_takes_no_inputs_place():
    @ss.program
    def step(x, y):
        with ss.gpu(1):
            y = ss.ops.add(y, 1.0)
        return ss.ops.add(x, 1.0), y

    x = np.ones(4)
    device = SimulatedDevice(gpus=2)
    prepared = Prepared(ENGINES["dual"].plan(step.trace(x, x), lambda launch: 1e5, 2), device)
    prepared.load([x, x])
    with pytest.raises(ProgramError, match="input 'y' lies on GPU 1, the array on GPU 0"):
        prepared.rebind({"y": device.allocate(spec_of(x, "x"), MemoryPlace.DEVICE)})
    other = np.full(4, 3.0)
    prepared.rebind({"y": other})
    prepared.run()
    assert prepared.outputs()[1].tolist() == [4.0] * 4
