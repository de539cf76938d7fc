"""CUDA graphs on a real GPU: node lists, updates, failed captures and threads."""

from __future__ import annotations

import gc
import threading
from contextlib import suppress

import numpy as np
import pytest
from tests.engines.conftest import in_threads
from tests.engines.graphs.dot_language import read_dot

import streamscope as ss
from streamscope.devices.graph_node import NodeKind
from streamscope.engine_entry import ENGINES
from streamscope.engines.binding import captured
from streamscope.engines.graphs import GraphCounts
from streamscope.engines.plan import Issue
from streamscope.engines.prepared import prepare_traced
from streamscope.errors import DeviceError, EngineError
from streamscope.program.reference import run_reference
from streamscope.program.variable import MemoryPlace
from streamscope.workloads import ON_ONE_GPU, WORKLOADS

pytestmark = pytest.mark.gpu

GRAPH_ENGINES = ["graph", "graph-dual"]
X, Y = np.linspace(-1, 1, 4096, dtype=np.float32), np.full(4096, 2, np.float32)


@pytest.fixture(scope="module")
def device():
    return ss.open_device("cuda")


@ss.program
def chain(x, y):
    """Three kernels."""
    return ss.ops.add(ss.ops.relu(ss.ops.multiply(x, y)), y)


def ran(function, engine, device, inputs, runs=3, **options):
    prepared = prepare_traced(function.trace(*inputs), engine, device, **options)
    prepared.load(inputs)
    for _ in range(runs):
        prepared.run()
    prepared.wait()
    return prepared


# The node list


@pytest.mark.parametrize("engine", GRAPH_ENGINES)
@pytest.mark.parametrize("workload", [each.name for each in ON_ONE_GPU])
def test_each_node_belongs_to_the_operation_that_made_it(device, workload, engine):
    function, inputs = WORKLOADS[workload].build()
    prepared = ran(function, engine, device, inputs, streams=4)
    replays = [bound for bound in prepared.bound if bound.inner]
    assert len(prepared.graphs) == len(replays)
    for view, replay in zip(prepared.graphs, replays, strict=True):
        assert all(earlier < index for index, node in enumerate(view.nodes) for earlier in node.after)
        for step, bound in enumerate(replay.inner):
            if isinstance(bound.step, Issue):
                # By itself, the step makes the nodes that are said to be its own in the whole graph.
                alone, _ = captured(device, bound.stream, [bound], str)
                mine = [node for node, owner in zip(replay.graph.nodes, replay.owners, strict=True) if owner == step]
                assert [(node.kind, node.name, node.grid, node.block) for node in mine] == [
                    (node.kind, node.name, node.grid, node.block) for node in alone.nodes
                ]
        for node in view.nodes:
            assert node.operator == prepared.program.operations[node.operation].name
            if node.kind is NodeKind.KERNEL:
                assert 0 < node.registers <= 255
                assert min(*node.grid, *node.block) > 0
                assert node.shared_bytes >= 0
        assert len(read_dot(view.dot()).nodes) == len(view.nodes)


def test_copies_say_their_bytes(device):
    @ss.program
    def there_and_back(raw):
        return ss.ops.to_host(ss.ops.relu(ss.ops.to_device(raw)))

    (view,) = ran(there_and_back, "graph", device, [X]).graphs
    assert [(node.kind, node.nbytes) for node in view.nodes if node.kind is NodeKind.COPY] == [(NodeKind.COPY, X.nbytes)] * 2


def test_captured_code_has_such_nodes_too(cupy):
    def twice(x):
        return cupy.sin(x) + cupy.cos(x)

    captured_code = ss.capture(twice, cupy.linspace(0, 1, 1000, dtype=cupy.float32))
    kernels = [node for node in captured_code.nodes if node.kind is NodeKind.KERNEL]
    assert len(kernels) == 3
    assert all(node.registers > 0 for node in kernels)
    (view,) = ran(captured_code, "graph", ss.open_device("cuda"), []).graphs
    assert [node.name for node in view.nodes] == [node.name for node in captured_code.nodes]


@ss.operator(reads=["x"], writes=["doubled", "squared"], reference=lambda x: (2 * x, x * x))
def double_and_square(x, doubled, squared):
    """Two CuPy calls, one in a scope."""
    import cupy

    with ss.auxiliary_stream() as main:
        cupy.multiply(x, x, out=squared)
        with main:
            cupy.add(x, x, out=doubled)


@ss.program
def scoped(x):
    """An operator with a scope between two others."""
    doubled, squared = double_and_square(ss.ops.relu(x))
    return ss.ops.add(doubled, squared)


def test_auxiliary_streams_inside_a_capture_are_parallel_branches(device):
    (dual,) = ran(scoped, "graph-dual", device, [X]).graphs
    (single,) = ran(scoped, "graph", device, [X]).graphs
    kernels = [node for node in dual.nodes if node.operation == 1]
    assert [node.after for node in kernels] == [(0,), (0,)]
    assert sorted(dual.nodes[-1].after) == [1, 2]
    assert [node.after for node in single.nodes] == [(), (0,), (1,), (2,)]


# Updates


@pytest.mark.parametrize("engine", ENGINES)
def test_a_hundred_arrays_are_one_instantiation_and_a_hundred_updates(cupy, device, engine):
    prepared = ran(chain, engine, device, [X, Y])
    for number in range(100):
        mine = cupy.asarray(X) + np.float32(number)
        prepared.rebind({"x": mine})
        prepared.run()
        np.testing.assert_array_equal(prepared.outputs()[0], np.maximum((X + np.float32(number)) * Y, 0) + Y)
    assert prepared.graph_counts == (GraphCounts(1, 100) if engine in GRAPH_ENGINES else GraphCounts())
    assert prepared.notes == []


def test_an_array_is_read_in_place(cupy, device):
    prepared, mine = ran(chain, "graph", device, [X, Y]), cupy.asarray(X)
    prepared.rebind({"x": mine})
    mine[:] = 3
    device.synchronize()
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], np.full(4096, 8, np.float32))


def test_libraries_take_other_arrays(cupy, device):
    """cuBLAS and cuDNN: what the update refuses is instantiated, and the results are right."""
    function, inputs = WORKLOADS["cnn"].build(size=8, blocks=1)
    prepared = ran(function, "graph", device, inputs)
    (expected,) = prepared.outputs()
    prepared.load([np.zeros_like(values) for values in inputs])
    names = [prepared.program.variables[variable].name for variable in prepared.program.inputs]
    prepared.rebind({name: cupy.asarray(values) for name, values in zip(names, inputs, strict=True)})
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], expected)
    assert prepared.graph_counts.updated + prepared.graph_counts.refused == 1


def test_copies_take_another_host_buffer(device):
    @ss.program
    def doubled(raw):
        x = ss.ops.to_device(raw)
        return ss.ops.add(x, x)

    prepared = ran(doubled, "graph", device, [X])
    buffer = device.allocate(prepared.program.variables[0].spec, MemoryPlace.HOST)
    device.write(buffer, X + 1)
    prepared.rebind({"raw": buffer})
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], 2 * (X + 1))
    assert prepared.graph_counts.updated + prepared.graph_counts.refused == 1


def test_what_cannot_be_used_in_place(cupy, device):
    prepared = ran(chain, "graph", device, [X, Y])
    for memory, words in ((X, "not in device memory"), (cupy.zeros(8192, cupy.float32)[::2], "not in one piece")):
        with pytest.raises(DeviceError, match=words):
            prepared.rebind({"x": memory})


@pytest.mark.parametrize("engine", GRAPH_ENGINES)
def test_other_shapes_of_the_same_function(device, engine):
    prepared = ran(chain, engine, device, [X, Y])
    for size in (1000, 1 << 20, 4096):
        inputs = [np.linspace(-1, 1, size, dtype=np.float32), np.full(size, 3, np.float32)]
        prepared.retrace(chain.trace(*inputs))
        prepared.load(inputs)
        for _ in range(3):
            prepared.run()
            np.testing.assert_array_equal(prepared.outputs()[0], np.maximum(inputs[0] * 3, 0) + 3)
    assert prepared.graph_counts == GraphCounts(1, 3)


def test_another_topology_is_refused_and_said(device):
    @ss.program
    def longer(x, y):
        return ss.ops.relu(ss.ops.add(ss.ops.relu(ss.ops.multiply(x, y)), y))

    prepared = ran(chain, "graph", device, [X, Y])
    prepared.retrace(longer.trace(X, Y))
    prepared.load([X, Y])
    for _ in range(3):
        prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], np.maximum(X * Y, 0) + Y)
    assert prepared.graph_counts == GraphCounts(2, 0, ("topology changed",))
    assert "its update was refused: topology changed" in prepared.notes[0]


# Failed captures


def captures():
    """Tell whether CuPy's current stream is captured."""
    import cupy

    return cupy.cuda.get_current_stream().is_capturing()


def synchronizes():
    import cupy

    cupy.cuda.get_current_stream().synchronize()


def hides_its_fault():
    import cupy

    with suppress(cupy.cuda.runtime.CUDARuntimeError):
        cupy.cuda.get_current_stream().synchronize()


def allocates():
    import cupy

    cupy.cuda.runtime.free(cupy.cuda.runtime.malloc(256))


def forks_and_does_not_join():
    import cupy

    side, fork = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Event(disable_timing=True)
    cupy.cuda.get_current_stream().record(fork)
    side.wait_event(fork)
    with side:
        SCRATCH[0].fill(0)
    KEPT.extend((side, fork))


def raises():
    if captures():
        raise ValueError("this operator is broken")


FAULTS = [synchronizes, hides_its_fault, allocates, forks_and_does_not_join, raises]
SCRATCH: list[object] = []
KEPT: list[object] = []


@pytest.mark.parametrize("engine", GRAPH_ENGINES)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_program_runs_on_and_a_note_says_why(cupy, device, engine, fault):
    SCRATCH[:] = [cupy.zeros(16, cupy.float32)]

    @ss.operator(reads=["x"], writes=["y"], reference=lambda x: x + 1)
    def faulty(x, y):
        cupy.add(x, 1, out=y)
        fault()

    @ss.program
    def broken(x):
        return ss.ops.relu(faulty(ss.ops.relu(x)))

    prepared = prepare_traced(broken.trace(X), engine, device)
    prepared.load([X])
    for _ in range(4):
        prepared.run()
        np.testing.assert_array_equal(prepared.outputs()[0], np.maximum(X, 0) + 1)
    assert len(prepared.notes) == 1
    assert "faulty (operation 1, test_graphs_on_cuda.py" in prepared.notes[0]
    assert not device.capturing
    # The streams are as good as new.
    with prepared.capturing() as graphs:
        prepared.bound[0].inner[0].call()
    graphs[0].launch(prepared.streams[0])
    prepared.wait()


@pytest.mark.parametrize("engine", GRAPH_ENGINES)
def test_ctrl_c_while_capturing(cupy, device, engine):
    interrupted = []

    @ss.operator(reads=["x"], writes=["y"], reference=lambda x: x + 1)
    def interrupts(x, y):
        cupy.add(x, 1, out=y)
        if captures() and not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt

    @ss.program
    def broken(x):
        return ss.ops.relu(interrupts(ss.ops.relu(x)))

    prepared = prepare_traced(broken.trace(X), engine, device)
    prepared.load([X])
    prepared.run()
    with pytest.raises(KeyboardInterrupt):
        prepared.run()
    for _ in range(3):
        prepared.run()
        np.testing.assert_array_equal(prepared.outputs()[0], np.maximum(X, 0) + 1)
    assert prepared.notes == []
    assert len(prepared.graphs) == 1


def test_a_capture_that_is_broken_is_told_at_once(cupy, device):
    stream = device.stream("main")
    with pytest.raises(EngineError, match="is broken"):
        device.captured_nodes(stream)
    device.begin_capture(stream)
    assert device.captured_nodes(stream) == 0
    with suppress(cupy.cuda.runtime.CUDARuntimeError):
        stream.handle.synchronize()
    with pytest.raises(EngineError, match="is broken"):
        device.captured_nodes(stream)
    device.abandon_capture(stream)
    stream.synchronize()


# Threads


@pytest.mark.parametrize("engine", ENGINES)
def test_each_thread_its_own(device, engine):
    traced = chain.trace(X, Y)

    def work(number):
        device.use()
        inputs = [X + np.float32(number), Y]
        for _ in range(5):
            prepared = prepare_traced(traced, engine, device)
            prepared.load(inputs)
            for _ in range(50):
                prepared.run()
            np.testing.assert_array_equal(prepared.outputs()[0], run_reference(traced, inputs)[0])
            assert prepared.notes == []

    in_threads(work)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_shared_by_all(device, engine):
    prepared = prepare_traced(chain.trace(X, Y), engine, device)

    def work(number):
        device.use()
        for turn in range(50):
            inputs = [X + np.float32(number), Y * np.float32(turn)]
            with prepared.lock:
                prepared.load(inputs)
                prepared.run()
                (found,) = prepared.outputs()
            np.testing.assert_array_equal(found, run_reference(prepared.program, inputs)[0])

    in_threads(work)
    assert prepared.notes == []


def test_another_thread_works_on_while_one_captures(device):
    """Its timed events are ordinary records, and it may destroy graphs, streams and library handles."""
    function, inputs = WORKLOADS["cnn"].build(size=8, blocks=1)
    old = ran(function, "graph", device, inputs)
    prepared = ran(chain, "graph", device, [X, Y])
    other, events = device.stream("other"), [device.event(timing=True) for _ in range(2)]
    cell, read = [old], []
    del old

    def meanwhile():
        device.use()
        assert not device.capturing
        for event in events:
            other.record(event)
        other.synchronize()
        read.append(device.elapsed_ns(*events))
        cell.clear()
        gc.collect()

    with prepared.capturing() as graphs:
        prepared.bound[0].inner[0].call()
        thread = threading.Thread(target=meanwhile)
        thread.start()
        thread.join()
        assert device.captured_nodes(prepared.streams[0]) == 1
    assert read[0] > 0
    assert graphs[0].node_count == 1


def test_handles_that_go_out_of_use_during_a_capture_do_not_break_it(device):
    function, inputs = WORKLOADS["cnn"].build(size=8, blocks=1)
    cell = [ran(function, "async", device, inputs)]

    @ss.program
    def product(a, b):
        return a @ b

    square = np.eye(64, dtype=np.float32)
    cell.append(ran(product, "async", device, [square, square]))
    prepared = ran(chain, "graph", device, [X, Y])
    with prepared.capturing() as graphs:
        prepared.bound[0].inner[0].call()
        cell.clear()
        gc.collect()
        prepared.bound[0].inner[1].call()
    assert graphs[0].node_count == 2
    # And what was made with plans of the streams that are gone still runs.
    ran(function, "graph", device, inputs)
