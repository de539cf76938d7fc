"""False serialisation, with durations worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from tests.auditing.conftest import Estimating, Model, engine_plans, host_call, launch, plan_of, programs

import streamscope as ss
from streamscope.auditing.audit import audit
from streamscope.auditing.dependencies import Dependencies
from streamscope.auditing.findings import Kind, Severity
from streamscope.auditing.serialisation import Cause, serialisation
from streamscope.engines.plan import CallHost, HostWait, Issue, RecordEvent, Replay, Synchronize, WaitEvent

DURATIONS_NS = [1000.0, 4000.0, 2000.0, 500.0]


def estimate(work):
    return DURATIONS_NS[work.operation]


def found(*steps):
    plan = plan_of(*steps)
    result = serialisation(plan, Dependencies.of(plan.program), estimate)
    pairs = [(pair.earlier.work.operation, pair.later.work.operation, pair.cause, pair.held_ns) for pair in result.pairs]
    return pairs, result.needed_ns, result.planned_ns


def test_two_chains_on_one_lane():
    first, second = launch(0, "", "a"), launch(1, "", "b")
    third, fourth = launch(2, "a", "c"), launch(3, "b", "d")
    # Alone: 1 + 2 and 4 + 0.5 µs. On one lane: 1 + 4 + 2 + 0.5.
    expected = [(0, 1, Cause.LANE, 1000.0), (1, 2, Cause.LANE, 4000.0), (2, 3, Cause.LANE, 2000.0)]
    assert found(*(Issue(work, 0) for work in (first, second, third, fourth))) == (expected, 4500.0, 7500.0)


def test_a_chain_has_none():
    chain = [launch(0, "", "a"), launch(1, "a", "b"), launch(2, "b", "c")]
    assert found(*(Issue(work, 0) for work in chain)) == ([], 7000.0, 7000.0)


def test_what_a_path_of_dependencies_orders_is_needed():
    # The third needs the first through the second, on another lane.
    steps = [Issue(launch(0, "", "a"), 0), RecordEvent(0, 0), WaitEvent(0, 1), Issue(launch(1, "a", "b"), 1), RecordEvent(1, 1)]
    assert found(*steps, WaitEvent(1, 0), Issue(launch(2, "b", "c"), 0)) == ([], 7000.0, 7000.0)


@pytest.mark.parametrize(
    ("steps", "cause"),
    [
        ([Issue(launch(0, "", "a"), 0), Synchronize(0), Issue(launch(1, "", "b"), 1)], Cause.HOST_WAITS),
        ([Issue(launch(0, "", "a"), 0), RecordEvent(0, 0), HostWait(0), Issue(launch(1, "", "b"), 1)], Cause.HOST_WAITS),
        ([Issue(launch(0, "", "a"), 0), RecordEvent(0, 0), WaitEvent(0, 1), Issue(launch(1, "", "b"), 1)], Cause.EVENT),
        ([CallHost(host_call(0, "", "a")), Issue(launch(1, "", "b"), 1)], Cause.HOST_ORDER),
        ([Replay((Issue(launch(0, "", "a"), 0),)), Issue(launch(1, "", "b"), 0)], Cause.GRAPH),
        ([Issue(launch(0, "", "a"), 0), Replay((Issue(launch(1, "", "b"), 0),))], Cause.GRAPH),
        ([Replay((Issue(launch(0, "", "a"), 0), Issue(launch(1, "", "b"), 0)))], Cause.LANE),
    ],
)
def test_causes(steps, cause):
    assert found(*steps) == ([(0, 1, cause, 1000.0)], 4000.0, 5000.0)


def test_the_finding_says_what_it_costs_and_where():
    steps = [Issue(launch(0, "", "a"), 0), Issue(launch(1, "", "b"), 0)]
    result = audit(plan_of(*steps), device=Estimating(estimate))
    (finding,) = result.of(Kind.FALSE_SERIALISATION)
    assert (result.needed_ns, result.planned_ns) == (4000.0, 5000.0)
    assert finding.cost_ns == 1000.0
    assert finding.severity is Severity.WARNING
    assert finding.lines == ("cell:0", "cell:1")
    assert "k1 (operation 1, cell:1) behind k0 (operation 0, cell:0), which holds it back by 1.00 µs" in finding.message
    assert "1.00 µs of the 5.00 µs" in finding.message
    assert result.ok


def test_an_order_that_costs_nothing_is_a_note():
    # The short one waits for another short one, beside a long one.
    steps = [Issue(launch(1, "", "a"), 0), Issue(launch(0, "", "b"), 1), Issue(launch(3, "", "c"), 1)]
    plan = plan_of(*steps, Issue(launch(2, "", "d"), 2))
    (finding,) = audit(plan, device=Estimating(estimate), touches=False).of(Kind.FALSE_SERIALISATION)
    assert finding.severity is Severity.NOTE
    assert finding.cost_ns == 0.0
    assert "cost nothing" in finding.message


def reduced(groups, engine):
    """Return the finding of all-reduces over groups of GPUs that share nothing else, if there is one."""

    @ss.program
    def step(*arrays):
        parts = []
        for gpu, array in enumerate(arrays):
            with ss.gpu(gpu):
                parts.append([ss.ops.relu(array) for _ in groups])
        return tuple(ss.ops.all_reduce([parts[gpu][number] for gpu in group])[0] for number, group in enumerate(groups))

    arrays = np.ones((3, 256, 256), np.float32)
    audited = ss.audit(step, *arrays, device="simulated", engine=engine, touches=False, progress=False)
    return [one for one in audited.of(Kind.FALSE_SERIALISATION) if "all_reduce" in one.message]


@pytest.mark.parametrize("engine", ["dual", "graph-dual"])
def test_collectives_share_a_stream_under_each_engine(engine):
    """Groups of GPUs in a ring: other streams would let collectives wait for each other."""
    (found,) = reduced([(0, 1), (1, 2), (2, 0)], engine)
    assert "because collectives share a stream of each GPU" in found.message
    assert found.advice.startswith("leave it, or let one collective do it over all GPUs")
    assert reduced([(0, 1), (0, 1)], engine) == []  # Of one communicator they have to keep one order.


@pytest.mark.parametrize(("engine", "said"), [("async", "engine 'dual' or 'graph-dual'"), ("graph-dual", "allow more streams")])
def test_the_advice_is_not_the_engine_that_is_audited(engine, said):
    """Three chains on two streams, or on one."""
    wide = ss.program(lambda x: tuple(ss.ops.relu(x @ x) for _ in range(3)))
    audited = ss.audit(wide, np.ones((256, 256), np.float32), engine=engine, streams=2, device="simulated", touches=False, progress=False)
    (found,) = audited.of(Kind.FALSE_SERIALISATION)
    assert said in found.advice


def test_copies_of_a_saved_capture_share_a_stream():
    loaded = ss.load_captured(Path(__file__).parents[1] / "data/rank_captures/fsdp2.rank0.captured.json")
    (found,) = ss.audit(loaded, engine="graph-dual", progress=False).of(Kind.FALSE_SERIALISATION)
    assert "on copy in, because copies of one direction share a stream" in found.message
    assert found.advice.startswith("make fewer and larger copies, or leave it")


def test_thousands_of_orders_are_one_finding():
    @ss.program
    def wide(x):
        return tuple(ss.ops.relu(x) for _ in range(2000))

    for engine in ("sync", "async"):
        (finding,) = audit(wide, np.ones(4, np.float32), engine=engine, touches=False).findings
        assert finding.message.startswith("1,999 orders that no variable needs on main")
        assert len(finding.operations) <= 6


@given(engine_plans())
def test_there_is_a_finding_exactly_if_something_is_ordered_that_needs_no_order(plan):
    dependencies = Dependencies.of(plan.program)
    numbers = {work.operation: index for index, work in enumerate(dependencies.work)}
    pairs = {(one, other) for (one, _), (other, _) in Model(plan, runs=1).ordered()}
    indices = {(numbers[one], numbers[other]) for one, other in pairs}
    result = serialisation(plan, dependencies, lambda work: 1000.0)
    assert bool(result.pairs) == (dependencies.connected(indices) != indices)
    assert result.needed_ns <= result.planned_ns


@settings(max_examples=60)
@given(programs(most=30))
def test_paths_of_dependencies_are_those_of_a_plain_search(traced):
    dependencies = Dependencies.of(traced)
    count = len(dependencies.work)
    before = []
    for needs in dependencies.needs:
        before.append(set(needs).union(*(before[needed] for needed in needs)))
    expected = {(earlier, later) for later in range(count) for earlier in before[later]}
    assert dependencies.connected((one, other) for one in range(count) for other in range(count) if one != other) == expected


def test_paths_over_several_blocks(monkeypatch):
    monkeypatch.setattr("streamscope.auditing.dependencies._BLOCK", 3)
    work = [launch(number, "a", "a") for number in range(10)]
    dependencies = Dependencies.of(plan_of(*(Issue(one, 0) for one in work)).program)
    pairs = {(one, other) for one in range(10) for other in range(10)}
    assert dependencies.connected(pairs) == {(one, other) for one, other in pairs if one < other}
