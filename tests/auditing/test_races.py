"""Missing waits: against reachability, against the simulated device's numbers, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.auditing.conftest import Model, engine_plans, launch, plan_of, plans, spread
from tests.auditing.redundant_waits import redundant_waits
from tests.engines.conftest import PROGRAMS
from tests.engines.test_missing_waits import LATE_NS, Stateful, right

from streamscope.auditing.audit import audit
from streamscope.auditing.findings import Kind, Severity
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.plan import CallHost, HostWait, Issue, Plan, RecordEvent, Replay, WaitEvent
from streamscope.engines.race_check import races
from streamscope.ops import add, multiply
from streamscope.tracing import program

ESTIMATE = SimulatedDevice().estimate_ns


def named(plan):
    return {(race.earlier.work.operation, race.later.work.operation, race.next_run) for race in races(plan)}


def errors(plan):
    return {finding.kind for finding in audit(plan, touches=False).findings if finding.severity is Severity.ERROR}


@given(plans())
def test_races_are_those_of_reachability_and_mending_them_mends_all(plan):
    found, all_races = named(plan), Model(plan).races()
    assert found <= {(earlier, later, bool(runs)) for earlier, later, runs in all_races}
    assert bool(found) == bool(all_races)
    assert Model(plan, extra=found).races() == set()


@given(engine_plans())
def test_our_engines_have_no_races(plan):
    assert errors(plan) == set()


@given(engine_plans(), st.data())
def test_a_wait_taken_out_is_a_race_or_breaks_a_capture(plan, data):
    needed = sorted(set(range(plan.waits)) - set(redundant_waits(plan)))
    if not needed:
        return
    index = data.draw(st.sampled_from(needed))
    broken = plan.without_wait(index)
    found = errors(broken)
    assert found
    assert found <= {Kind.MISSING_WAIT, Kind.BROKEN_CAPTURE}
    if Kind.BROKEN_CAPTURE in found:
        assert captured(plan, index)
        return
    sources, target = ends(plan, index)
    (finding,) = audit(broken, touches=False).of(Kind.MISSING_WAIT)
    first, second = finding.operations
    assert first.id in sources
    assert second.id == target
    assert {variable.id for variable in finding.variables} <= {*first.reads, *first.writes} & {*second.reads, *second.writes}
    assert all(variable.id in {*first.writes, *second.writes} for variable in finding.variables)
    assert finding.variables


def captured(plan: Plan, index: int) -> bool:
    """Tell whether a wait is inside a graph."""
    inside = [isinstance(step, Replay) for step in plan.steps for inner in (step.steps if isinstance(step, Replay) else (step,))
              if isinstance(inner, WaitEvent | HostWait)]  # fmt: skip
    return inside[index]


def ends(plan: Plan, index: int) -> tuple[set[int], int]:
    """Return what a wait is behind (an operation, or those of a graph) and the operation before which it is."""
    last: dict[int, set[int]] = {}
    records: dict[int, set[int]] = {}
    waits: list[tuple[int, int | None, int]] = []
    after: list[tuple[int | None, int]] = []
    for step in plan.steps:
        for inner in step.steps if isinstance(step, Replay) else (step,):
            match inner:
                case Issue(launch, lane):
                    last[lane] = {launch.operation}
                    after.append((lane, launch.operation))
                case CallHost(call):
                    after.append((None, call.operation))
                case RecordEvent(event, lane):
                    records[event] = last.get(lane, set())
                case WaitEvent(event, lane):
                    waits.append((event, lane, len(after)))
                case HostWait(event):
                    waits.append((event, None, len(after)))
        if isinstance(step, Replay):
            last[0] = {inner.launch.operation for inner in step.steps if isinstance(inner, Issue)}
    event, lane, place = waits[index]
    return records[event], next(operation for other, operation in [*after[place:], *after[:place]] if other == lane)


@pytest.mark.parametrize("engine", [*ENGINES, "spread"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_audit_calls_a_race_gives_wrong_numbers_on_the_simulated_device(name, engine):
    function, inputs = PROGRAMS[name]
    stateful = Stateful(program(function).trace(*inputs), inputs)
    plan = spread(stateful.program) if engine == "spread" else ENGINES[engine].plan(stateful.program, ESTIMATE)
    assert audit(plan, touches=False).ok
    for index in range(plan.waits):
        broken = plan.without_wait(index)
        found = audit(broken, touches=False)
        assert not found.ok
        if found.of(Kind.BROKEN_CAPTURE):
            assert not right(broken, stateful, None)  # A note of the engine says that the capture broke.
            continue
        for finding in found.of(Kind.MISSING_WAIT):
            late = finding.operations[0].id
            assert not right(broken, stateful, lambda launch, stream, late=late: (LATE_NS if launch.operation == late else 0.0, 1.0))


def test_a_race_names_operations_variable_lines_and_the_wait():
    @program
    def crossed(x, y):
        left = multiply(x, x)
        right = multiply(y, y)
        return add(left, right)

    inputs = np.ones(4, np.float32), np.ones(4, np.float32)
    plan = spread(crossed.trace(*inputs), lambda launch: launch.operation % 2)
    plan = next(broken for broken in map(plan.without_wait, range(plan.waits)) if not any(race.next_run for race in races(broken)))
    found = audit(plan, *inputs)
    (finding,) = found.of("missing wait")
    first, second = finding.operations
    line = crossed.function.__code__.co_firstlineno
    assert not found.ok
    assert (first.name, second.name) == ("multiply", "add")
    assert second.where == f"test_races.py:{line + 4}"
    assert finding.lines == (f"test_races.py:{line + 2 + first.id}", f"test_races.py:{line + 4}")
    assert [variable.name for variable in finding.variables] == [f"multiply_{first.id}"]
    assert "read after write, RAW" in finding.message
    assert f"before {second}, for an event that is recorded on" in finding.advice
    assert f"behind {first}." in finding.advice


def test_write_after_read_from_one_run_to_the_next():
    plan = plan_of(Issue(launch(0, "b", "a"), 0), RecordEvent(0, 0), WaitEvent(0, 1), Issue(launch(1, "a", "c"), 1))
    (finding,) = audit(plan, touches=False).of(Kind.MISSING_WAIT)
    assert [operation.id for operation in finding.operations] == [1, 0]
    assert [variable.name for variable in finding.variables] == ["a"]
    assert "write after read, WAR" in finding.message
    assert "in the run before" in finding.message
    assert finding.advice == "let main wait, before k0 (operation 0, cell:0), for an event that is recorded on aux behind k1 (operation 1, cell:1) of the run before."  # fmt: skip # noqa: E501
    mended = plan_of(WaitEvent(1, 0), *plan.steps, RecordEvent(1, 1))
    assert audit(mended, touches=False).ok


def test_one_wait_that_mends_many_pairs_is_asked_for_once():
    writes = [Issue(launch(number, "", "a"), 0) for number in range(3)]
    reads = [Issue(launch(number, "a", "b"), 1) for number in range(3, 9)]
    found = named(plan_of(*writes, *reads))
    assert {(earlier, later) for earlier, later, next_run in found if not next_run} == {(2, 3)}
    assert {(earlier, later) for earlier, later, next_run in found if next_run} == {(8, 0)}


def test_work_outside_a_graph_waits_for_the_graph():
    graph = Replay((RecordEvent(1, 0), WaitEvent(1, 1), Issue(launch(0, "", "a"), 1), RecordEvent(2, 1), WaitEvent(2, 0)))
    plan = plan_of(graph, Issue(launch(1, "a", ""), 2))
    here, before = (finding.advice for finding in audit(plan, touches=False).of(Kind.MISSING_WAIT))
    assert here.startswith(
        "let copy in wait, before k1 (operation 1, cell:1), for an event that is recorded on main behind the graph of k0"
    )
    assert before.startswith(
        "let main wait, before the graph of k0 (operation 0, cell:0), for an event that is recorded on copy in behind k1"
    )


def test_work_that_is_left_out_doubled_or_turned_round():
    first, second = Issue(launch(0, "", "a"), 0), Issue(launch(1, "a", "b"), 0)
    whole = plan_of(first, second)

    def found(*steps):
        plan = Plan("made", whole.program, whole.lanes, steps, 0)
        return [(finding.kind, [operation.id for operation in finding.operations]) for finding in audit(plan, touches=False).findings]

    assert found(first, second) == []
    assert found(first) == [(Kind.NOT_ISSUED, [1])]
    assert found(first, second, second) == [(Kind.NOT_ISSUED, [1])]
    assert found(second, first) == [(Kind.WRONG_ORDER, [0, 1])]
