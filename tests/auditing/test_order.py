"""Happens-before by vector clocks against reachability in a graph of all steps."""

from __future__ import annotations

from hypothesis import given
from tests.auditing.conftest import Model, host_call, launch, plan_of, plans

from streamscope.engines.happens_before import Walk
from streamscope.engines.plan import CallHost, HostWait, Issue, RecordEvent, Replay, Synchronize, WaitEvent

RUNS = 3


def ordered(plan):
    """Return the ordered pairs of (operation, run), as the walk sees them."""
    visits = list(Walk(plan).runs(RUNS))
    name = {id(visit): (visit.item.work.operation, visit.run) for visit in visits}
    return {(name[id(one)], name[id(other)]) for one in visits for other in visits if one is not other and other.after(one)}


@given(plans())
def test_the_walk_orders_what_reachability_orders(plan):
    assert ordered(plan) == Model(plan, RUNS).ordered()


def test_a_wait_takes_the_latest_record_at_the_time_of_the_call():
    plan = plan_of(
        Issue(launch(0), 0),
        RecordEvent(0, 0),
        Issue(launch(1), 0),
        WaitEvent(0, 1),
        RecordEvent(0, 0),
        Issue(launch(2), 1),
    )
    found = ordered(plan)
    assert ((0, 0), (2, 0)) in found
    assert ((1, 0), (2, 0)) not in found


def test_a_wait_before_the_record_is_for_the_run_before():
    plan = plan_of(WaitEvent(0, 1), Issue(launch(0), 1), Issue(launch(1), 0), RecordEvent(0, 0))
    found = ordered(plan)
    assert ((1, 0), (0, 0)) not in found
    assert ((1, 0), (0, 1)) in found


def test_what_the_host_has_waited_for_is_done_for_all_that_it_issues_later():
    plan = plan_of(Issue(launch(0), 0), Issue(launch(1), 1), Synchronize(0), CallHost(host_call(2)), Issue(launch(3), 2))
    found = ordered(plan)
    assert {((0, 0), (2, 0)), ((0, 0), (3, 0)), ((2, 0), (3, 0))} <= found
    assert ((1, 0), (3, 0)) not in found


def test_a_host_wait_is_for_an_event_and_not_for_its_lane():
    plan = plan_of(Issue(launch(0), 0), RecordEvent(0, 0), Issue(launch(1), 0), HostWait(0), CallHost(host_call(2)))
    found = ordered(plan)
    assert ((0, 0), (2, 0)) in found
    assert ((1, 0), (2, 0)) not in found


def test_a_graph_is_one_item_of_lane_0_and_parallel_inside():
    graph = Replay((RecordEvent(1, 0), Issue(launch(1), 0), WaitEvent(1, 1), Issue(launch(2), 1), RecordEvent(2, 1), WaitEvent(2, 0)))
    plan = plan_of(Issue(launch(0), 0), Issue(launch(4), 1), graph, Issue(launch(3), 0))
    found = ordered(plan)
    assert {((0, 0), (1, 0)), ((0, 0), (2, 0)), ((1, 0), (3, 0)), ((2, 0), (3, 0)), ((2, 0), (1, 1))} <= found
    assert not {((1, 0), (2, 0)), ((2, 0), (1, 0))} & found
    # Lane 1 outside the graph and lane 1 inside are not one lane.
    assert not {((4, 0), (2, 0)), ((2, 0), (4, 1))} & found
