"""Every plan of captured code is checked before it runs: against the vector clocks of the audit, which read plans in their own way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.captured_programs import captured

import streamscope as ss
from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.engine_entry import ENGINES
from streamscope.engines.happens_before import Walk
from streamscope.engines.plan import Issue, Plan, Replay
from streamscope.engines.prepared import Prepared
from streamscope.engines.race_check import check_orders
from streamscope.errors import RaceError
from streamscope.program.launch import LaunchKind

KINDS = st.sampled_from([LaunchKind.KERNEL] * 6 + [LaunchKind.COPY_IN, LaunchKind.COPY_OUT])


@st.composite
def programs(draw):
    count = draw(st.integers(1, 9))
    starts = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=3)
    memories = [
        NodeMemory(tuple(Access(start, start + 1, True, writes, Evidence.SCHEMA) for start, writes in draw(starts))) for _ in range(count)
    ]
    chain = tuple((number - 1,) if number else () for number in range(count))
    forked = [tuple(sorted(draw(st.sets(st.integers(0, number - 1), max_size=2)))) if number else () for number in range(count)]
    return captured(memories, draw(st.sampled_from([chain, tuple(forked)])), draw(st.lists(KINDS, min_size=count, max_size=count)))


def is_right(plan):
    """Tell from vector clocks whether a plan keeps the true order, and each run waits for the run before it."""
    visits = {(one.run, one.item.work.operation): one for one in Walk(plan).runs(2)}
    count = len(plan.program.operations)
    edges = [(earlier, later) for later, before in enumerate(plan.program.certificate.order) for earlier in before]
    within = all(visits[run, later].after(visits[run, earlier]) for run in (0, 1) for earlier, later in edges)
    return within and all(visits[1, later].after(visits[0, earlier]) for earlier in range(count) for later in range(count))


def passes(plan):
    try:
        check_orders(plan)
    except RaceError:
        return False
    return True


@pytest.mark.parametrize("engine", ENGINES)
@given(program=programs(), streams=st.integers(2, 5), data=st.data())
def test_each_plan_passes_and_without_a_wait_passes_only_where_that_is_right(engine, program, streams, data):
    plan = ENGINES[engine].plan(program, lambda launch: 1000.0, streams=streams)
    check_orders(plan)
    assert is_right(plan)
    if plan.waits:
        torn = plan.without_wait(data.draw(st.integers(0, plan.waits - 1)))
        assert is_right(torn) or not passes(torn)


WRITE = NodeMemory((Access(0, 8, True, True, Evidence.SCHEMA),))
CHAIN = ((), (0,), (1,))


def test_what_is_prepared_is_checked_first():
    """The simulated device has nothing to run captured code with; the plan is refused before that matters."""
    program = captured([WRITE] * 3, CHAIN)
    backwards = Plan("mine", program, ("main",), tuple(Issue(program.operations[number].work[0], 0) for number in (0, 2, 1)), 0)
    with pytest.raises(RaceError, match=r"mine of captured does not order 1 of 3 pairs .* node 1, kernel must come before node 2"):
        Prepared(backwards, ss.open_device("simulated"))


def test_a_plan_that_leaves_out_or_repeats_an_operation_is_refused():
    program = captured([WRITE] * 3, CHAIN)
    issues = [Issue(operation.work[0], 0) for operation in program.operations]
    for numbers in ((0, 1), (0, 1, 2, 2)):
        plan = Plan("mine", program, ("main",), tuple(issues[number] for number in numbers), 0)
        with pytest.raises(RaceError, match=f"mine of captured issues {len(numbers)} launches for 3 operations"):
            check_orders(plan)


def test_a_run_that_does_not_wait_for_the_run_before_is_refused():
    apart = [NodeMemory((Access(number, number + 1, True, True, Evidence.SCHEMA),)) for number in range(2)]
    program = captured(apart, ((), ()))
    one, other = (operation.work[0] for operation in program.operations)
    with pytest.raises(RaceError, match="start before the run before it is done"):
        check_orders(Plan("mine", program, ("main", "aux"), (Issue(one, 0), Issue(other, 1)), 0))


def test_the_edges_of_a_graph_are_checked_beside_its_steps():
    program = captured([WRITE] * 3, CHAIN)
    steps = tuple(Issue(operation.work[0], 0) for operation in program.operations)
    check_orders(Plan("mine", program, ("main",), (Replay(steps, CHAIN),), 0))
    with pytest.raises(RaceError, match="the graph of mine of captured does not order 2 of 3 pairs"):
        check_orders(Plan("mine", program, ("main",), (Replay(steps, ((), (0,), ())),), 0))
