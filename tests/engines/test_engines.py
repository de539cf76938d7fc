"""All engines on the simulated device: results, overlap, captures."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines import engine_names
from streamscope.engines.plan import Issue, Replay, Synchronize
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.errors import EngineError, ProgramError
from streamscope.ops import add, multiply, relu
from streamscope.ops.convolutions import convolution_backward
from streamscope.ops.custom import operator
from streamscope.ops.host import host_function
from streamscope.program.reference import run_reference
from streamscope.tracing import program
from streamscope.workloads import WORKLOADS

SMALL = {
    "elementwise-chain": {"length": 12, "size": 64},
    "conv-backward": {"channels": 4, "size": 6},
    "branches": {"branches": 3, "length": 4, "size": 64},
    "pipeline": {"chunks": 3, "size": 64},
    "cnn": {"size": 6, "channels": 8, "blocks": 2},
    "attention": {"length": 5, "heads": 2, "depth": 4},
    "lstm": {"steps": 3, "width": 4},
    "resnet-block": {"size": 3, "channels": 2},
    "resnet50-v2": {"size": 33, "depth": 1, "width": 8},
    "transformer": {"layers": 1, "heads": 2, "depth": 3, "length": 4, "half": 0},
    "data-parallel": {"layers": 2, "width": 16, "rows": 4},
    "tensor-parallel": {"blocks": 1, "width": 64, "tokens": 3},
    "pipeline-parallel": {"layers": 1, "width": 16, "rows": 3, "batches": 3},
    "expert-parallel": {"blocks": 1, "width": 16, "tokens": 2},
}


def run_twice(prepared: Prepared, inputs) -> list[np.ndarray]:
    prepared.load(inputs)
    for _ in range(3):
        prepared.run()
    prepared.wait()
    return prepared.outputs()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_equals_its_reference_under_every_engine(workload, engine):
    function, inputs = WORKLOADS[workload].build(**SMALL[workload])
    traced = function.trace(*inputs)
    found = run_twice(prepare_traced(traced, engine, SimulatedDevice(gpus=traced.gpus)), inputs)
    for one, other in zip(found, run_reference(traced, inputs), strict=True):
        np.testing.assert_array_equal(one, other)


BINARY = {"add": add, "multiply": multiply}


@st.composite
def random_programs(draw):
    """Return a program of random operations, in place and not, over a few variables."""
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from(["add", "multiply", "relu"]), st.integers(0, 7), st.integers(0, 7), st.booleans()),
            min_size=1,
            max_size=25,
        )
    )

    def random_program(*variables):
        known = list(variables)
        for name, first, second, in_place in steps:
            a, b = known[first % len(known)], known[second % len(known)]
            out = b if in_place else None
            known.append(relu(a, out=out) if name == "relu" else BINARY[name](a, b, out=out))
        return tuple(dict.fromkeys(known))

    inputs = [np.array([value, -value / 2], np.float32) for value in (1.0, 0.5, 0.25)]
    return program(random_program).trace(*inputs), inputs


@settings(max_examples=40)
@given(random_programs(), st.sampled_from(list(ENGINES)), st.randoms(use_true_random=False))
def test_random_programs_equal_serial_execution_whatever_the_schedule(made, engine, random):
    traced, inputs = made
    delays = {launch.operation: random.choice([0.0, 0.0, 1e4, 1e5]) for launch in traced.launches()}
    device = SimulatedDevice(delays=lambda launch, stream: (delays[launch.operation], 1.0))
    prepared = prepare_traced(traced, engine, device)
    state = inputs
    prepared.load(inputs)
    for _ in range(3):
        outputs = run_reference(traced, state)
        changed = dict(zip(traced.outputs, outputs, strict=True))
        state = [changed[variable] for variable in traced.inputs]
        prepared.run()
    prepared.wait()
    for one, other in zip(prepared.outputs(), outputs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_synchronous_engine_waits_after_each_launch_and_nothing_overlaps():
    function, inputs = WORKLOADS["branches"].build(**SMALL["branches"])
    device = SimulatedDevice()
    prepared = prepare_traced(function.trace(*inputs), "sync", device)
    prepared.load(inputs)
    device.log.enabled = True
    prepared.run()
    steps = prepared.plan.steps
    assert all(isinstance(after, Synchronize) for before, after in pairwise(steps) if isinstance(before, Issue))
    spans = sorted((record.start_ns, record.end_ns) for record in device.log)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def overlapped(engine: str, function, inputs) -> bool:
    device = SimulatedDevice()
    prepared = prepare_traced(function.trace(*inputs), engine, device)
    prepared.load(inputs)
    for _ in range(3):
        prepared.run()
        prepared.wait()
    device.log.enabled = True
    prepared.run()
    prepared.wait()
    spans = sorted((record.start_ns, record.end_ns) for record in device.log)
    return any(start < end for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize(("engine", "expected"), [("sync", False), ("async", False), ("graph", False), ("graph-dual", True)])
def test_the_gradients_of_a_convolution_run_side_by_side_in_a_dual_graph_only(engine, expected):
    function, inputs = WORKLOADS["conv-backward"].build(channels=16, size=16)
    assert overlapped(engine, function, inputs) is expected


def test_long_kernels_overlap_on_two_streams_without_a_graph():
    function, inputs = WORKLOADS["conv-backward"].build(channels=64, size=32, batch=2)
    slow = SimulatedDevice(delays=lambda launch, stream: (0.0, 100.0))
    prepared = prepare_traced(function.trace(*inputs), "dual", slow)
    prepared.load(inputs)
    slow.log.enabled = True
    prepared.run()
    prepared.wait()
    (_, first_end), (second_start, _) = sorted((record.start_ns, record.end_ns) for record in slow.log)
    assert second_start < first_end


def test_asynchronous_issue_overlaps_the_host_with_the_device():
    function, inputs = WORKLOADS["pipeline"].build(chunks=4, size=65_536)
    spent = {}
    for engine in ("sync", "async"):
        device = SimulatedDevice()
        prepared = prepare_traced(function.trace(*inputs), engine, device)
        prepared.load(inputs)
        start = device.now_ns()
        prepared.run()
        prepared.wait()
        spent[engine] = device.now_ns() - start
    assert spent["async"] < 0.8 * spent["sync"]


def test_segments_are_captured_around_host_functions():
    @host_function
    def halve(values):
        return values / 2

    from streamscope.ops.host import to_device, to_host

    @program
    def mixed(x):
        x = relu(add(x, x))
        y = to_device(halve(to_host(x)))
        return add(y, y)

    plan = ENGINES["graph"].plan(mixed.trace(np.ones(4, np.float32)), SimulatedDevice().estimate_ns)
    kinds = [type(step).__name__ for step in plan.steps]
    assert kinds == ["Replay", "RecordEvent", "HostWait", "CallHost", "Replay"]
    first = next(step for step in plan.steps if isinstance(step, Replay))
    assert [step.launch.name for step in first.steps if isinstance(step, Issue)] == ["add", "relu", "to_host"]


def test_an_operator_that_cannot_be_captured_runs_between_graphs():
    @operator(reads=["x"], writes=["y"], reference=lambda x: x + 1, capturable=False)
    def stubborn(x, y):
        raise AssertionError("not run on the simulated device")

    @program
    def mixed(x):
        return relu(stubborn(relu(x)))

    inputs = (np.arange(4, dtype=np.float32),)
    traced = mixed.trace(*inputs)
    plan = ENGINES["graph"].plan(traced, SimulatedDevice().estimate_ns)
    assert [type(step).__name__ for step in plan.steps] == ["Replay", "Issue", "Replay"]
    np.testing.assert_array_equal(run_twice(Prepared(plan, SimulatedDevice()), inputs)[0], inputs[0] + 1)


def test_a_failed_capture_names_the_operation_and_the_program_runs_on():
    function, inputs = WORKLOADS["elementwise-chain"].build(length=4, size=8)
    traced = function.trace(*inputs)
    device = SimulatedDevice()
    prepared = prepare_traced(traced, "graph", device)
    broken = prepared.bound[0].inner[2]
    original = broken.call

    def synchronizing() -> None:
        device.synchronize()
        original()

    broken.call = synchronizing
    found = run_twice(prepared, inputs)
    assert len(prepared.notes) == 1
    assert "relu (operation 2" in prepared.notes[0]
    np.testing.assert_array_equal(found[0], run_reference(traced, inputs)[0])


def test_inputs_that_do_not_fit_are_refused():
    function, inputs = WORKLOADS["elementwise-chain"].build(length=2, size=8)
    prepared = prepare_traced(function.trace(*inputs), "async", SimulatedDevice())
    with pytest.raises(ProgramError, match="takes 3 inputs, got 1"):
        prepared.load(inputs[:1])
    with pytest.raises(ProgramError, match=r"input 'x' is float64\[8\]"):
        prepared.load([inputs[0].astype(np.float64), *inputs[1:]])


@pytest.mark.parametrize(("names", "expected"), [(None, tuple(ENGINES)), ("graph, async,graph", ("graph", "async")), (["sync"], ("sync",))])
def test_engine_names(names, expected):
    assert engine_names(names) == expected


@pytest.mark.parametrize("names", ["warp", ["async", "warp"], "", []])
def test_unknown_engines_are_refused(names):
    with pytest.raises(EngineError, match="choose from sync, async, dual, graph, graph-dual"):
        engine_names(names)


def test_the_scope_of_a_convolutions_backward_uses_the_auxiliary_stream():
    @program
    def backward(x, w, dy):
        return convolution_backward(x, w, dy, padding=1)

    image = np.ones((1, 4, 4, 2), np.float16)
    traced = backward.trace(image, np.ones((2, 3, 3, 2), np.float16), image)
    plan = ENGINES["dual"].plan(traced, SimulatedDevice().estimate_ns)
    lanes = {step.launch.name: plan.lanes[step.lane] for step in plan.steps if isinstance(step, Issue)}
    assert lanes == {"convolution_weight_gradient": "aux", "convolution_data_gradient": "main"}


def test_a_prepared_program_says_what_it_is():
    device = SimulatedDevice()
    assert repr(prepare_traced(program(relu).trace(np.ones(3)), "dual", device)) == f"<relu prepared for dual on {device.info.name}>"
