"""Any number of streams: results, lanes, chains, waits, and predictions that a schedule with more streams must beat."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.conftest import PROGRAMS, RUNS

from streamscope.capturing.saved import load_captured
from streamscope.comparing.compare import compare
from streamscope.comparing.comparison import load_comparison
from streamscope.devices.cost_model import CostModel
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.makespan_estimate import Chip, makespan_ns
from streamscope.engines.plan import CallHost, Issue, Plan
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.errors import EngineError
from streamscope.measuring.simulation import without_data
from streamscope.ops import add, multiply, relu
from streamscope.ops.convolutions import convolution_backward
from streamscope.ops.host import host_function
from streamscope.order.graph import DependencyGraph, dependencies, without_implied
from streamscope.program.operation import Program
from streamscope.program.reference import run_reference
from streamscope.trace.spans import SpanKind
from streamscope.tracing import program
from streamscope.workloads import WORKLOADS

MODEL = CostModel.load()
RECORDED = Path(__file__).parents[2] / "notebooks" / "recorded" / "captured"
STREAMED = ("dual", "graph-dual")


def long(launch) -> float:
    """Estimate each launch as long enough for any stream to pay."""
    return 1e5


def traced(name: str, **values: int) -> tuple[Program, tuple[np.ndarray, ...]]:
    function, inputs = WORKLOADS[name].build(**values)
    return function.trace(*inputs), inputs


def lane_names(plan: Plan) -> dict[int, str]:
    """Return the lane of each operation with a single launch."""
    return {step.launch.operation: plan.lanes[step.lane] for step in plan.flat() if isinstance(step, Issue)}


@dataclass(frozen=True)
class RandomProgram:
    """A program with a duration for each launch, whose outputs are its inputs' new values and more."""

    program: Program
    inputs: list[np.ndarray]
    durations_ns: list[float]

    def estimate(self, launch) -> float:
        return self.durations_ns[launch.operation]


@st.composite
def random_programs(draw):
    """Return programs of up to 30 operations, in place and not, over a pool of variables: wide, deep and anything between."""
    width = draw(st.integers(1, 6))
    choice = st.integers(0, draw(st.sampled_from([1, 3, 40])))
    steps = draw(st.lists(st.tuples(st.sampled_from([add, multiply, relu]), choice, choice, st.booleans()), min_size=1, max_size=30))

    def random_program(*variables):
        known = list(variables)
        for operator, first, second, in_place in steps:
            a, b = known[-1 - first % len(known)], known[-1 - second % len(known)]
            made = operator(*((a,) if operator is relu else (a, b)), out=b if in_place else None)
            known.append(made)
        return tuple(dict.fromkeys(known))

    inputs = [np.array([value, -value / 2], np.float32) for value in np.linspace(0.3, 1.0, width)]
    made = program(random_program).trace(*inputs)
    durations = draw(st.lists(st.sampled_from([900.0, 1e4, 1e5]), min_size=len(steps), max_size=len(steps)))
    return RandomProgram(made, inputs, durations)


@given(random_programs(), st.sampled_from(STREAMED), st.integers(1, 5), st.randoms(use_true_random=False))
def test_random_programs_equal_serial_execution_on_any_number_of_streams(made, engine, streams, random):
    plan = ENGINES[engine].plan(made.program, made.estimate, streams)
    assert plan.streams <= streams
    delays = {launch.operation: random.choice([0.0, 0.0, 1e4, 1e5]) for launch in made.program.launches()}
    prepared = Prepared(plan, SimulatedDevice(delays=lambda launch, stream: (delays[launch.operation], 1.0)))
    prepared.load(made.inputs)
    state = list(made.inputs)
    for _ in range(RUNS):
        outputs = run_reference(made.program, state)
        changed = dict(zip(made.program.outputs, outputs, strict=True))
        state = [changed[variable] for variable in made.program.inputs]
        prepared.run()
    prepared.wait()
    assert prepared.notes == []
    for one, other in zip(prepared.outputs(), outputs, strict=True):
        np.testing.assert_array_equal(one, other)


def conflicts(operations, first: int, second: int) -> bool:
    one, other = operations[first], operations[second]
    return not (set(one.writes).isdisjoint({*other.reads, *other.writes}) and set(one.reads).isdisjoint(other.writes))


def reduced_by_brute_force(operations) -> list[list[int]]:
    """Return the transitive reduction of all pairs that conflict."""
    below: list[set[int]] = []
    direct = []
    for position in range(len(operations)):
        earlier = {other for other in range(position) if conflicts(operations, other, position)}
        direct.append(sorted(earlier - {far for other in earlier for far in below[other]}))
        below.append(earlier | {far for other in earlier for far in below[other]})
    return direct


@given(random_programs())
def test_dependencies_are_the_reduction_of_all_conflicts(made):
    operations = made.program.operations
    assert without_implied(dependencies(operations)) == reduced_by_brute_force(operations)


@given(random_programs(), st.sampled_from(STREAMED), st.integers(1, 5))
def test_a_chain_stays_on_its_stream(made, engine, streams):
    before = reduced_by_brute_force(made.program.operations)
    followers = [earlier for later in before for earlier in later]
    lane = lane_names(ENGINES[engine].plan(made.program, made.estimate, streams))
    for position, earlier in enumerate(before):
        if len(earlier) == 1 and followers.count(earlier[0]) == 1:
            assert lane[position] == lane[earlier[0]]


@pytest.mark.parametrize("streams", [2, 3, 4])
@pytest.mark.parametrize("engine", STREAMED)
def test_each_of_more_branches_than_streams_stays_on_one(engine, streams):
    made, _ = traced("branches", branches=5, length=6, size=64)
    lane = lane_names(ENGINES[engine].plan(made, long, streams))
    branches = [[lane[5 * step + branch] for step in range(6)] for branch in range(5)]
    assert all(len(set(branch)) == 1 for branch in branches)
    assert len({branch[0] for branch in branches}) == streams


@given(random_programs(), st.sampled_from(STREAMED), st.integers(1, 5))
def test_what_conflicts_is_issued_in_program_order(made, engine, streams):
    issued = [
        step.launch.operation for step in ENGINES[engine].plan(made.program, made.estimate, streams).flat() if isinstance(step, Issue)
    ]
    operations = made.program.operations
    assert sorted(issued) == [operation.id for operation in operations]
    for index, later in enumerate(issued):
        assert not any(later < earlier and conflicts(operations, later, earlier) for earlier in issued[:index])


@pytest.mark.parametrize(("streamed", "plain"), [("dual", "async"), ("graph-dual", "graph")])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_stream_makes_the_plan_of_the_engine_without_auxiliary_streams(name, streamed, plain):
    function, inputs = PROGRAMS[name]
    made = program(function).trace(*inputs)
    one, other = ENGINES[streamed].plan(made, long, 1), ENGINES[plain].plan(made, long)
    assert (one.lanes, one.steps, one.events, one.scopes) == (other.lanes, other.steps, other.events, other.scopes)


@pytest.mark.parametrize("streams", [0, -1, 129, 2.5, "two"])
def test_a_number_of_streams_that_is_none_is_refused(streams):
    made, inputs = traced("elementwise-chain", length=2, size=8)
    for engine in STREAMED:
        with pytest.raises(EngineError, match="1 to 128"):
            ENGINES[engine].plan(made, long, streams)
    with pytest.raises(EngineError, match="1 to 128"):
        prepare_traced(made, "async", SimulatedDevice(), streams=streams)
    with pytest.raises(EngineError, match="1 to 128"):
        compare(WORKLOADS["elementwise-chain"].build(length=2, size=8)[0], *inputs, streams=streams, device="simulated", progress=False)


@pytest.mark.parametrize(
    ("streams", "names"),
    [
        (1, ("main",)),
        (2, ("main", "aux")),
        (3, ("main", "aux 1", "aux 2")),
        (4, ("main", "aux 1", "aux 2", "aux 3")),
        (128, ("main", "aux 1", "aux 2", "aux 3")),
    ],
)
@pytest.mark.parametrize("engine", STREAMED)
def test_four_branches_use_up_to_four_streams(engine, streams, names):
    made, _ = traced("branches", branches=4, length=8, size=64)
    plan = ENGINES[engine].plan(made, long, streams)
    assert (plan.lanes, plan.streams) == (names, len(names))


def test_two_branches_in_a_graph_need_a_fork_and_a_join():
    made, _ = traced("branches", branches=2, length=5, size=64)
    assert ENGINES["graph-dual"].plan(made, long, 2).counts == {"streams": 2, "events": 2, "waits": 2}


@pytest.mark.parametrize("engine", STREAMED)
def test_independent_operations_are_spread_over_the_streams_that_were_asked_for_whether_it_pays_or_not(engine):
    made, _ = traced("branches", branches=4, length=8, size=64)
    assert ENGINES[engine].plan(made, SimulatedDevice().estimate_ns, 4).streams == 4
    assert ENGINES[engine].plan(made, SimulatedDevice().estimate_ns, 2).streams == 2


@pytest.mark.parametrize("engine", STREAMED)
def test_where_nobody_asks_for_streams_two_are_used_and_of_captured_code_as_many_as_are_fastest(engine):
    made, _ = traced("branches", branches=4, length=8, size=64)
    assert ENGINES[engine].plan(made, long).steps == ENGINES[engine].plan(made, long, 2).steps
    code, device = load_captured(RECORDED / "mixture_of_experts.captured.json").program, SimulatedDevice()

    def streams_and_ns(streams):
        prepared = prepare_traced(code, engine, device, streams=streams)
        prepared.capture()
        start_ns = device.now_ns()
        prepared.run()
        prepared.wait()
        return prepared.plan, device.now_ns() - start_ns

    found = {streams: streams_and_ns(streams) for streams in (None, 2, 12)}
    assert 2 <= found[None][0].streams <= 12
    assert found[None][1] <= 1.01 * min(found[2][1], found[12][1])
    assert found[2][0].streams == 2 or found[2][0].order == "fewest edges"  # Its branches are on no streams.


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("workload", "lanes"), [("elementwise-chain", ["main"]), ("pipeline", ["main", "copy in", "copy out"])])
def test_a_lane_that_carries_nothing_makes_no_stream(engine, workload, lanes, monkeypatch):
    made, _ = traced(workload, size=64, **({"chunks": 1} if workload == "pipeline" else {}))
    device, streams = SimulatedDevice(), []
    monkeypatch.setattr(device, "stream", lambda name: streams.append(name) or SimulatedDevice.stream(device, name))
    prepared = prepare_traced(made, engine, device, streams=4)
    issued = {prepared.plan.lanes[step.lane] for step in prepared.plan.flat() if isinstance(step, Issue)}
    assert sorted(streams) == sorted({"main"} | issued)
    if engine in ("async", *STREAMED):
        assert sorted(streams) == sorted(lanes)


@pytest.mark.parametrize("streams", [2, 3, 5])
@pytest.mark.parametrize("engine", STREAMED)
def test_auxiliary_scopes_are_on_an_auxiliary_stream_always(engine, streams):
    @program
    def two(x, w, dy):
        dx, dw = convolution_backward(x, w, dy, padding=1)
        return (*convolution_backward(x, w, dx, padding=1), dw)

    image = np.ones((1, 4, 4, 2), np.float16)
    made = two.trace(image, np.ones((2, 3, 3, 2), np.float16), image)
    for estimate in (SimulatedDevice().estimate_ns, long):
        plan = ENGINES[engine].plan(made, estimate, streams)
        for step in plan.flat():
            if isinstance(step, Issue):
                assert plan.lanes[step.lane].startswith("aux") == step.launch.auxiliary


@pytest.mark.parametrize("engine", STREAMED)
def test_host_functions_stay_in_program_order(engine):
    function, inputs = PROGRAMS["chunks"]
    plan = ENGINES[engine].plan(program(function).trace(*inputs), long, 3)
    calls = [step.call.operation for step in plan.steps if isinstance(step, CallHost)]
    assert calls == sorted(calls)
    assert len(calls) == 2


def test_the_longest_path_is_issued_first():
    """Ranks by hand: x (3 operations of 10) 30, 20, 10; y (2 of 25) 50, 25; so y, x, y, x, x."""

    @program
    def two_paths(x, y):
        for _ in range(3):
            x = relu(x)
        for _ in range(2):
            y = relu(y)
        return x, y

    made = two_paths.trace(np.ones(4, np.float32), np.ones(4, np.float32))
    graph = DependencyGraph(made.operations, [10.0, 10.0, 10.0, 25.0, 25.0])
    assert graph.upward_ranks_ns() == [30.0, 20.0, 10.0, 50.0, 25.0]
    assert graph.by_rank() == [3, 0, 4, 1, 2]


def test_issue_by_rank_lets_a_second_branch_begin_at_once():
    """Written branch after branch, the second would not begin before the host has issued all of the first."""

    @program
    def branch_after_branch(x, y):
        for _ in range(40):
            x = relu(x)
        for _ in range(40):
            y = relu(y)
        return x, y

    made = branch_after_branch.trace(np.ones(4, np.float32), np.ones(4, np.float32))
    plan = ENGINES["dual"].plan(made, lambda launch: 1e4, 2)
    issued = [step.lane for step in plan.steps if isinstance(step, Issue)]
    assert set(issued[:2]) == {0, 1}
    assert plan.waits == 0


def test_a_chip_gives_a_later_kernel_what_the_earlier_ones_leave():
    chip = Chip()
    assert chip.run(0.0, 100.0, 0.6) == 100.0
    # On the 0.4 that are left it runs at two thirds of its speed until 100, and then has a third of its time to go.
    assert chip.run(0.0, 100.0, 0.6) == pytest.approx(100 + 100 / 3)
    # Nothing is left until 100; from there 0.4 until 133.3, which is 26.7 of the 50 alone at 0.5; the rest at full speed.
    assert chip.run(0.0, 50.0, 0.5) == pytest.approx(100 + 100 / 3 + 50 - 0.8 * 100 / 3)
    assert chip.run(500.0, 7.0, 1.0) == 507.0


@given(
    st.lists(st.tuples(st.floats(0, 1e7), st.floats(1, 1e5), st.floats(0.01, 1)), min_size=1, max_size=12),
    st.sampled_from([1.0, 1 / 3, 1e-3]),
)
def test_a_chip_is_free_when_all_kernels_have_ended(kernels, unit):
    chip = Chip()
    ends = [chip.run(start * unit, alone * unit, share) for start, alone, share in kernels]
    last = max(ends)
    assert chip.run(last + 1, 100.0, 1.0) == pytest.approx(last + 101)
    assert chip.taken[-1] == pytest.approx(0, abs=1e-6)


def simulated_ns(plan: Plan) -> int:
    device = SimulatedDevice()
    prepared = Prepared(without_data(plan), device)
    for _ in range(3):
        prepared.run()
        prepared.wait()
    start = device.now_ns()
    prepared.run()
    prepared.wait()
    return device.now_ns() - start


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("workload", "values"),
    [
        ("elementwise-chain", {"length": 40}),
        ("conv-backward", {"channels": 16, "size": 28}),
        ("branches", {"branches": 8, "size": 1 << 12}),
        ("branches", {"branches": 8, "size": 1 << 17}),
        ("branches", {"branches": 3, "size": 1 << 22}),
        ("pipeline", {}),
        ("cnn", {}),
    ],
)
def test_the_prediction_agrees_with_the_simulated_device(workload, values, engine):
    made, _ = traced(workload, **values)
    device = SimulatedDevice()
    plan = ENGINES[engine].plan(made, device.estimate_ns, 4)
    allowed = 0.01 if plan.streams == 1 else 0.12  # Side by side, the simulated device shares the chip more finely.
    assert makespan_ns(plan, device.estimate_ns, device.model) == pytest.approx(simulated_ns(plan), rel=allowed)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["diamond", "in-place", "fan", "braid"])
def test_the_prediction_is_right_where_kernels_do_not_get_into_each_others_way(name, engine):
    function, inputs = PROGRAMS[name]
    plan, device = ENGINES[engine].plan(program(function).trace(*inputs), long, 3), SimulatedDevice()
    assert makespan_ns(plan, device.estimate_ns, device.model) == pytest.approx(simulated_ns(plan), rel=0.002)


def test_more_streams_make_branches_in_a_graph_quicker_on_the_simulated_device():
    made, _ = traced("branches", branches=8, length=16)
    estimate = SimulatedDevice().estimate_ns
    times = [simulated_ns(ENGINES["graph-dual"].plan(made, estimate, streams)) for streams in (1, 2, 4, 8)]
    assert all(later < 0.85 * earlier for earlier, later in pairwise(times))


def test_a_comparison_tells_streams_events_and_waits(tmp_path):
    function, inputs = WORKLOADS["branches"].build(branches=3, length=4, size=64)
    found = compare(function, *inputs, engines="async,graph-dual", streams=3, device="simulated", progress=False)
    told = {engine: [values[key] for key in ("streams", "events", "waits")] for engine, values in found.to_dict()["engines"].items()}
    plan = ENGINES["graph-dual"].plan(function.trace(*inputs), SimulatedDevice().estimate_ns, 3)
    assert told == {"async": [1, 0, 0], "graph-dual": [3, plan.events, plan.waits]}
    trace = found["graph-dual"].trace
    kernels = trace.spans.of_kind([SpanKind.KERNEL])
    assert {trace.spans.lanes[lane] for lane in kernels.lane} == {"main", "aux 1", "aux 2"}
    assert load_comparison(found.save(tmp_path / "saved")).to_dict()["engines"] == found.to_dict()["engines"]


def on_the_host(values):
    return values + 1


def test_host_functions_keep_their_order_though_they_share_no_variable():
    """They may have effects that no variable shows."""
    step = host_function(on_the_host, duration_us=1)
    made = program(lambda x, y: (step(x), step(y))).trace(np.ones(4), np.ones(4))
    assert dependencies(made.operations) == [[], [0]]


def test_of_what_is_ready_kernels_are_issued_before_host_functions_which_hold_up_the_rest():
    step = host_function(on_the_host, duration_us=1)
    made = program(lambda values, x: (step(values), relu(x))).trace(np.ones(4), np.ones(4, np.float32))
    assert DependencyGraph(made.operations, [100.0, 1.0]).by_rank() == [1, 0]
