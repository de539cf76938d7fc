"""Every wait of every engine is needed: without it, some legal schedule gives wrong numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.engines.conftest import PROGRAMS, RUNS, Stateful

from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.plan import Issue, Plan
from streamscope.engines.prepared import Prepared
from streamscope.program.launch import Launch
from streamscope.tracing import program

LATE_NS = 1e6
PLANS = {engine: (engine, 2) for engine in ENGINES} | {"dual on three": ("dual", 3), "graph-dual on three": ("graph-dual", 3)}
Delays = Callable[[Launch, str], tuple[float, float]]


def schedules(plan: Plan) -> list[Delays | None]:
    """Return the plain schedule, and one for each launch in which that launch starts late."""

    def late(operation: int, part: int) -> Delays:
        return lambda launch, stream: (LATE_NS if (launch.operation, launch.part) == (operation, part) else 0.0, 1.0)

    launches = [step.launch for step in plan.flat() if isinstance(step, Issue)]
    return [None, *(late(launch.operation, launch.part) for launch in launches)]


def right(plan: Plan, stateful: Stateful, delays: Delays | None) -> bool:
    """Tell whether the results are right, and every graph was captured (a lane that does not fork or join breaks its capture)."""
    prepared = Prepared(plan, SimulatedDevice(delays=delays))
    prepared.load(stateful.inputs)
    for _ in range(RUNS):
        prepared.run()  # One after the other, with nothing between them.
    prepared.wait()
    equal = (np.array_equal(one, other) for one, other in zip(prepared.outputs(), stateful.expected(), strict=True))
    return not prepared.notes and all(equal)


def planned(stateful: Stateful, name: str) -> Plan:
    """Return a plan for kernels that are long enough for every stream to pay."""
    engine, streams = PLANS[name]
    return ENGINES[engine].plan(stateful.program, lambda launch: 1e5, streams)


@pytest.mark.parametrize("name", PLANS)
def test_whatever_is_late_the_results_are_right(stateful, name):
    plan = planned(stateful, name)
    for delays in schedules(plan):
        assert right(plan, stateful, delays)


@pytest.mark.parametrize("name", PLANS)
def test_without_any_one_wait_the_results_are_wrong(stateful, name):
    plan = planned(stateful, name)
    for index in range(plan.waits):
        broken = plan.without_wait(index)
        assert not all(right(broken, stateful, delays) for delays in schedules(plan)), f"nothing shows that wait {index} is gone"


def test_the_programs_exercise_waits_in_every_engine_that_has_streams(stateful):
    waits = {name: planned(stateful, name).waits for name in PLANS}
    assert waits["sync"] == 0
    assert waits["dual"] > 0
    assert waits["graph-dual"] > 0


def test_some_program_exercises_three_streams():
    function, inputs = PROGRAMS["fan"]
    wide = Stateful(program(function).trace(*inputs), inputs)
    assert planned(wide, "dual on three").streams == 3
    assert planned(wide, "graph-dual on three").streams == 3
