"""Arrays without elements: what writes nothing else puts nothing on a stream, and no trace counts it."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.analysis import kernel_count, missing_records
from streamscope.devices.simulated import SimulatedDevice
from streamscope.devices.simulated.graphs import SimulatedGraph
from streamscope.engine_entry import ENGINES
from streamscope.engines.plan import CallHost, HostWait, Replay
from streamscope.engines.prepared import prepare_traced
from streamscope.program.reference import run_reference
from streamscope.recording.events import EventRecorder
from streamscope.recording.recorders import recorder_of

X, NONE = np.arange(4, dtype=np.float32), np.zeros((0, 3), np.float32)


@ss.host_function
def on_host(values):
    """Is called with an empty array too."""
    return values + 1


@ss.program
def mixed(x, none):
    """Two kernels that do something, beside others, copies and a host step of empty arrays."""
    empty = ss.ops.relu(ss.ops.add(none, none))
    back = ss.ops.to_device(on_host(ss.ops.to_host(empty)))
    return ss.ops.add(x, x), ss.ops.sum(ss.ops.multiply(back, empty)), back


@ss.program
def nothing(none):
    """Only empty arrays."""
    return ss.ops.relu(ss.ops.add(none, none))


@pytest.mark.parametrize("device", ["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("function", "inputs", "kernels"), [(mixed, (X, NONE), 2), (nothing, (NONE,), 0)], ids=["mixed", "nothing"])
def test_every_engine_and_recorder(function, inputs, kernels, engine, device):
    opened = SimulatedDevice() if device == "simulated" else ss.open_device("cuda")
    traced = function.trace(*inputs)
    prepared = prepare_traced(traced, engine, opened)
    for _ in range(3):
        prepared.load(inputs)
        prepared.run()
        for found, expected in zip(prepared.outputs(), run_reference(traced, inputs), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert prepared.notes == []
    for recorder in (EventRecorder.on(opened), *([recorder_of(opened)] if device == "simulated" else [])):
        spans = recorder.record(prepared).spans
        assert kernel_count(spans) == kernels
        assert missing_records(spans).device == 0


@ss.program
def empty_steps_between(x, none):
    """Empty arrays before, between and behind kernels and host steps of others."""
    first = on_host(ss.ops.to_host(ss.ops.relu(none)))
    y = ss.ops.add(x, x)
    second = on_host(ss.ops.to_host(ss.ops.to_device(first)))
    return on_host(ss.ops.to_host(ss.ops.multiply(y, y))), ss.ops.to_device(second)


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
@pytest.mark.parametrize(("function", "inputs"), [(mixed, (X, NONE)), (nothing, (NONE,)), (empty_steps_between, (X, NONE))])
def test_no_graph_without_nodes_is_made_or_launched(function, inputs, engine):
    prepared = prepare_traced(function.trace(*inputs), engine, SimulatedDevice())
    for _ in range(3):
        prepared.load(inputs)
        prepared.run()
    assert all(bound.inner for bound in prepared.bound if isinstance(bound.step, Replay))
    assert all(graph.nodes for graph in prepared.graphs)
    for segment in prepared.segments:
        reasons = {None if operation.launches else segment.why_not.get(operation.id) for operation in segment.operations}
        assert (segment.graph is None) is (None not in reasons)
        assert segment.graph is not None or reasons <= {"it is a host function", "it launches nothing"}


@pytest.mark.parametrize("engine", ["async", "dual", "graph", "graph-dual"])
def test_the_host_waits_for_nothing_before_its_functions_on_empty_arrays(engine):
    plan = ENGINES[engine].plan(empty_steps_between.trace(X, NONE), SimulatedDevice().estimate_ns)
    waits = [index for index, step in enumerate(plan.steps) if isinstance(step, HostWait)]
    calls = [index for index, step in enumerate(plan.steps) if isinstance(step, CallHost)]
    assert [index + 1 for index in waits] == calls[2:]  # The last call alone is on what a kernel makes.


def test_an_operator_of_the_users_that_launches_nothing_is_not_replayed(monkeypatch):
    """A graph without nodes costs as much to launch as another."""
    prepared = prepare_traced(ss.program(lambda x: ss.ops.add(x, x)).trace(X), "graph", SimulatedDevice())
    (replay,) = prepared.bound
    for bound in replay.inner:
        bound.call = int
    prepared.load([X])
    prepared.run()
    launches = []
    monkeypatch.setattr(SimulatedGraph, "launch", lambda graph, stream: launches.append(graph.node_count))
    for _ in range(2):
        prepared.run()
    assert replay.graph.node_count == 0
    assert launches == []


@pytest.mark.parametrize("name", ["sync", "async", "dual"])
def test_pushed_operations_on_empty_arrays_put_nothing_on_a_stream(name):
    with ss.Engine(name, device="simulated") as engine:
        x, none = engine.variable(X), engine.variable(NONE)
        back, h = engine.variable(ss.ArraySpec(NONE.shape, NONE.dtype)), engine.variable(NONE, place="host")
        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        engine.wait_all()
        before = engine.statistics
        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        engine.push(ss.ops.add, reads=(none, none), writes=(none,))
        engine.push(ss.ops.to_host, reads=(none,), writes=(h,))
        engine.push(on_host, reads=(h,), writes=(h,))
        engine.push(ss.ops.to_device, reads=(h,), writes=(back,))
        assert engine.read(back).shape == NONE.shape
        assert none.version == back.version == 1
        after = engine.statistics
        assert after.events_recorded == before.events_recorded + 1
        assert after.host_waits == before.host_waits
        np.testing.assert_array_equal(engine.read(x), X * 4)


@pytest.mark.gpu
def test_cupti_counts_as_many():
    from streamscope.recording.cupti import CuptiRecorder

    device = ss.open_device("cuda")
    for engine in ENGINES:
        prepared = prepare_traced(mixed.trace(X, NONE), engine, device)
        for _ in range(3):
            prepared.load((X, NONE))
            prepared.run()
        trace = CuptiRecorder.on(device).record(prepared)
        assert kernel_count(trace.spans) == kernel_count(EventRecorder.on(device).record(prepared).spans) == 2


def test_a_comparison():
    runs = ss.compare(mixed, X, NONE, device="simulated", progress=False)
    assert {run.metrics.kernel_count for run in runs.values()} == {2}
    assert all(run.max_abs_error == 0 for run in runs.values())
    runs = ss.compare(nothing, NONE, device="simulated", progress=False)
    assert {run.metrics.kernel_count for run in runs.values()} == {0}
