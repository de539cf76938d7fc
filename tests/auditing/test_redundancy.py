"""Redundant waits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from tests.auditing.conftest import Model, engine_plans, host_call, launch, plan_of, plans
from tests.auditing.redundant_waits import redundant_waits
from tests.engines.conftest import PROGRAMS

from streamscope.auditing.audit import audit
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.plan import CallHost, HostWait, Issue, Plan, RecordEvent, Replay, WaitEvent
from streamscope.engines.prepared import Prepared
from streamscope.ops import add
from streamscope.tracing import program


@given(plans())
def test_all_redundant_waits_can_be_left_out_together(plan):
    if Model(plan).broken:
        return  # Without a wait another capture could break, or none.
    assert Model(plan, without=set(redundant_waits(plan))).ordered() == Model(plan).ordered()


@given(engine_plans())
def test_our_engines_have_no_redundant_waits(plan):
    assert redundant_waits(plan) == []


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with_state_have_none(name, engine):
    function, inputs = PROGRAMS[name]
    traced = program(function).trace(*inputs)
    assert redundant_waits(ENGINES[engine].plan(traced, SimulatedDevice().estimate_ns)) == []


WRITE, READ = Issue(launch(0, "", "a"), 0), Issue(launch(2, "ab", "c"), 1)
OTHER = Issue(launch(1, "", "b"), 0)
BACK = (RecordEvent(9, 1), WaitEvent(9, 0))


def test_a_wait_that_a_later_one_implies():
    plan = plan_of(WRITE, RecordEvent(0, 0), OTHER, RecordEvent(1, 0), WaitEvent(0, 1), WaitEvent(1, 1), READ, *BACK)
    assert redundant_waits(plan) == [0]
    assert redundant_waits(plan.without_wait(0)) == []


def test_of_two_equal_waits_one_is_redundant():
    plan = plan_of(WRITE, OTHER, RecordEvent(0, 0), WaitEvent(0, 1), WaitEvent(0, 1), READ, *BACK)
    assert len(redundant_waits(plan)) == 1


def test_a_wait_through_a_third_lane_is_implied():
    middle = Issue(launch(1, "a", "b"), 2)
    steps = (WRITE, RecordEvent(0, 0), WaitEvent(0, 2), middle, RecordEvent(1, 2), WaitEvent(0, 1), WaitEvent(1, 1), READ, *BACK)
    assert redundant_waits(plan_of(*steps)) == [1]


def test_what_the_host_waited_for_needs_no_wait_of_a_stream():
    plan = plan_of(WRITE, OTHER, RecordEvent(0, 0), HostWait(0), CallHost(host_call(3, "a", "d")), WaitEvent(0, 1), READ, *BACK)
    assert redundant_waits(plan) == [1]


def test_a_wait_for_an_event_that_nothing_records():
    assert redundant_waits(plan_of(WRITE, WaitEvent(5, 1), Issue(launch(1, "", "b"), 1))) == [0]


def test_a_redundant_join_can_be_left_out_of_a_capture():
    @program
    def chain(x):
        for _ in range(3):
            x = add(x, x)
        return x

    inputs = (np.arange(4.0),)
    traced = chain.trace(*inputs)
    fork, through = (RecordEvent(0, 0), WaitEvent(0, 1)), (RecordEvent(1, 1), WaitEvent(1, 2))
    joins = (RecordEvent(2, 1), WaitEvent(2, 0), RecordEvent(3, 2), WaitEvent(3, 0))
    first, second, third = (Issue(work, lane) for work, lane in zip(traced.launches(), (0, 1, 2), strict=True))
    plan = Plan("made", traced, ("main", "one", "two"), (Replay((first, *fork, second, *through, third, *joins)),), 4)
    assert redundant_waits(plan) == [2]
    plan = plan.without_wait(2)
    assert audit(plan, *inputs).ok
    prepared = Prepared(plan, SimulatedDevice())
    prepared.load(inputs)
    for _ in range(3):
        prepared.run()
    prepared.wait()
    assert prepared.notes == []
    np.testing.assert_array_equal(prepared.outputs()[0], 8 * inputs[0])
