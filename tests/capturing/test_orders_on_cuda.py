"""Captured code in other orders: the same results, its own edges where they stay, and no node lost."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.cuda.raw_graph import FULL, _edges_between
from streamscope.devices.graph_node import NodeKind
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import prepare_traced
from streamscope.kernels.library.libraries import checked, libraries
from streamscope.recording.events import EventRecorder
from streamscope.trace.spans import DEVICE_KINDS

pytestmark = pytest.mark.gpu

BRANCHES = 6


@pytest.fixture(scope="module")
def device():
    return ss.open_device("cuda")


def branches(x):
    """Return one array for each branch; the branches share nothing but what they read."""
    import cupy

    return tuple(cupy.tanh(x * (number + 1)) + number for number in range(BRANCHES))


def freed(captured, after):
    """Return the program of captured code with an order of the test's own, and a certificate that does not know better."""
    program = captured.program
    program.raw.check = lambda edges: None
    operations = tuple(
        replace(one, reads=before, work=(replace(one.launches[0], reads=before),))
        for one, before in zip(program.operations, after, strict=True)
    )
    return replace(program, operations=operations, certificate=None)


def branch_edges(count):
    """Return the order of `branches`: each is a chain of as many nodes as the others."""
    length = count // BRANCHES
    assert length * BRANCHES == count
    return tuple((number - 1,) if number % length else () for number in range(count))


def runs_right(captured, prepared):
    """Check that runs of captured code give what a plain call gives, each time."""
    for _ in range(4):
        captured.clear_outputs()
        prepared.run()
        prepared.wait()
        for found, expected in zip(captured.outputs(), captured.expected(), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_branches_of_a_chain_run_side_by_side_with_the_same_results(cupy, device, engine):
    captured = ss.capture(branches, cupy.linspace(-1, 1, 10_000, dtype=cupy.float32))
    edges = branch_edges(len(captured.nodes))
    program = freed(captured, edges)
    prepared = prepare_traced(program, engine, device)
    runs_right(captured, prepared)
    if engine == "graph":
        assert sum(len(node.after) for node in prepared.graphs[0].nodes) == len(captured.nodes) - 1
    if engine == "graph-dual":
        assert prepared.notes == [prepared.plan.chosen]
        assert prepared.plan.chosen.startswith("taken of ")
        assert edges in [order for order, _ in program.raw._times_us]  # The fewest edges were measured, however they did.
        assert len(prepared.graphs[0].nodes) == len(captured.nodes)
        assert sorted(node.operation for node in prepared.graphs[0].nodes) == list(range(len(captured.nodes)))


def test_a_graph_has_the_edges_that_are_asked_for(cupy):
    captured = ss.capture(branches, cupy.linspace(-1, 1, 1000, dtype=cupy.float32))
    raw, edges = captured.program.raw, branch_edges(len(captured.nodes))
    raw.check = lambda edges: None
    made, operations = raw.graph(edges)
    place = {operation: index for index, operation in enumerate(operations)}
    assert sorted(place) == list(range(len(captured.nodes)))
    assert [made.nodes[place[number]].after for number in range(len(edges))] == [tuple(place[one] for one in earlier) for earlier in edges]
    as_it_was, _ = raw.graph(raw.edges)
    assert [len(node.after) for node in as_it_was.nodes] == [0] + [1] * (len(edges) - 1)
    assert raw.times_us([edges, raw.edges]) == raw.times_us([edges, raw.edges])


CLUSTERED = r"""
extern "C" __global__ void counts(unsigned* x) {
    unsigned blocks;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
    x[blockIdx.x] += 10 * blocks + blockDim.x;
}
"""


def test_copied_nodes_keep_their_launch_attributes_and_the_order_in_which_they_were_added(cupy):
    if int(cupy.cuda.Device().compute_capability) < 90:
        pytest.skip("clusters need compute capability 9.0")
    cuda, function = libraries().cuda, cupy.RawModule(code=CLUSTERED, backend="nvrtc").get_function("counts")

    def launch(x, y):
        for array in (x, y, x):
            value = ctypes.c_void_p(array.data.ptr)
            arguments = (ctypes.c_void_p * 1)(ctypes.addressof(value))
            config = cuda.CUlaunchConfig()
            config.gridDimX, config.gridDimY, config.gridDimZ = 4, 1, 1
            config.blockDimX, config.blockDimY, config.blockDimZ = 3, 1, 1
            config.hStream = cuda.CUstream(cupy.cuda.get_current_stream().ptr)
            attribute = cuda.CUlaunchAttribute()
            attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = 2, 1, 1
            config.attrs, config.numAttrs = [attribute], 1
            checked(cuda.cuLaunchKernelEx(config, cuda.CUfunction(function.kernel.ptr), ctypes.addressof(arguments), 0))
        return x + 0, y + 0

    captured = ss.capture(launch, cupy.zeros(4, np.uint32), cupy.zeros(4, np.uint32))
    raw, count = captured.program.raw, len(captured.nodes)
    order = captured.certificate().order
    added = tuple(reversed(range(count)))
    made, operations = raw.graph(order, added=added)
    assert operations == added
    place = {operation: index for index, operation in enumerate(operations)}
    assert [made.nodes[place[number]].after for number in range(count)] == [
        tuple(sorted(place[one] for one in earlier)) for earlier in order
    ]
    captured.clear_outputs()
    stream = cupy.cuda.Stream(non_blocking=True)
    made.launch_on(stream.ptr)
    stream.synchronize()
    assert [each.tolist() for each in captured.outputs()] == [[46] * 4, [23] * 4]


def test_every_order_is_checked_before_its_graph_is_made(cupy):
    captured = ss.capture(branches, cupy.ones(1000, cupy.float32))
    raw = captured.program.raw

    def refuse(edges):
        raise ValueError(f"{len(edges)} operations")

    raw.check = refuse
    with pytest.raises(ValueError, match=f"{len(captured.nodes)} operations"):
        raw.graph(raw.edges)


SPINNING = r"""
extern "C" __global__ void early(float* x) {
    asm volatile("griddepcontrol.launch_dependents;");
    x[threadIdx.x] += 1.f;
}
extern "C" __global__ void late(float* x) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    x[threadIdx.x] *= 2.f;
}
"""


@pytest.fixture(scope="module")
def programmatic(cupy):
    """Return a function that launches three kernels, each allowed to begin before the one ahead of it is done."""
    cuda = libraries().cuda
    if int(cupy.cuda.Device().compute_capability) < 90:
        pytest.skip("programmatic launches need compute capability 9.0")
    module = cupy.RawModule(code=SPINNING, backend="nvrtc")
    functions = [module.get_function(name) for name in ("early", "late", "late")]

    def launch(x):
        value = ctypes.c_void_p(x.data.ptr)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        for function in functions:
            config = cuda.CUlaunchConfig()
            config.gridDimX = config.gridDimY = config.gridDimZ = 1
            config.blockDimX, config.blockDimY, config.blockDimZ = 64, 1, 1
            config.hStream = cuda.CUstream(cupy.cuda.get_current_stream().ptr)
            attribute = cuda.CUlaunchAttribute()
            attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [attribute], 1
            checked(cuda.cuLaunchKernelEx(config, cuda.CUfunction(function.kernel.ptr), ctypes.addressof(arguments), 0))
        return x

    return launch


def test_programmatic_edges_stay_where_both_ends_are_neighbours(cupy, programmatic):
    captured = ss.capture(programmatic, cupy.ones(64, cupy.float32))
    raw = captured.program.raw
    raw.check = lambda edges: None
    as_it_was, _ = raw.graph(raw.edges)
    assert np.count_nonzero(_edges_between(as_it_was._captured)[2] != FULL) == 2
    made, _ = raw.graph(((), (0,), (0,)))
    kinds = _edges_between(made._captured)[2]
    assert (len(kinds), np.count_nonzero(kinds != FULL)) == (2, 1)


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
def test_code_with_programmatic_edges_gives_what_a_plain_call_gives(cupy, device, programmatic, engine):
    captured = ss.capture(programmatic, cupy.linspace(0, 1, 64, dtype=cupy.float32))
    runs_right(captured, prepare_traced(captured.program, engine, device))


def with_an_empty_node(x):
    """Add, and multiply; in a capture there is an empty node between the two."""
    import cupy

    y = x + 1
    cuda = libraries().cuda
    stream = cuda.CUstream(cupy.cuda.get_current_stream().ptr)
    status, _, graph, dependencies, *_, count = checked(cuda.cuStreamGetCaptureInfo(stream))
    if status == cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE:
        empty = checked(cuda.cuGraphAddEmptyNode(graph, dependencies, count))
        call = ctypes.CDLL("libcuda.so.1").cuStreamUpdateCaptureDependencies
        node = ctypes.c_void_p(int(empty))
        assert call(ctypes.c_void_p(int(stream)), ctypes.byref(node), ctypes.c_size_t(1), ctypes.c_uint(1)) == 0
    return y * 2


@pytest.mark.parametrize("engine", ENGINES)
def test_empty_nodes_are_kept_by_the_capture_and_lead_nowhere_in_other_orders(cupy, device, engine):
    captured = ss.capture(with_an_empty_node, cupy.linspace(0, 1, 1000, dtype=cupy.float32))
    assert [node.after for node in captured.nodes] == [(), (0,)]
    prepared = prepare_traced(captured.program, engine, device)
    runs_right(captured, prepared)
    if engine == "graph":
        kinds = [node.kind for node in prepared.graphs[0].nodes]
        assert sorted(kinds, key=str) == [NodeKind.EMPTY, NodeKind.KERNEL, NodeKind.KERNEL]
        assert {node.operation for node in prepared.graphs[0].nodes} == {-1, 0, 1}
    raw = captured.program.raw
    raw.check = lambda edges: None
    made, operations = raw.graph(((), ()))
    assert [node.after for node in made.nodes] == [(), (), ()]
    assert sorted(operations) == [-1, 0, 1]


def test_an_lstm_keeps_the_streams_of_its_own(cupy, device):
    torch = pytest.importorskip("torch")
    lstm = torch.nn.LSTM(512, 512, 2).half().cuda()

    def call(x):
        with torch.no_grad():
            return lstm(x)[0]

    captured = ss.capture(call, torch.randn(32, 8, 512, device="cuda", dtype=torch.half))
    raw = captured.program.raw
    for engine in ("graph", "graph-dual"):
        prepared = prepare_traced(captured.program, engine, device)
        runs_right(captured, prepared)
    clone, _ = raw.graph(raw.edges)
    kinds, as_it_was = _edges_between(clone._captured)[2], _edges_between(raw._graph)[2]
    assert len(kinds) > len(captured.nodes) - 1
    assert sorted(kinds.tolist()) == sorted(as_it_was.tolist())


def test_a_recorded_replay_has_a_span_for_each_node_in_the_order_of_its_edges(cupy, device):
    captured = ss.capture(branches, cupy.linspace(-1, 1, 1_000_000, dtype=cupy.float32))
    edges = branch_edges(len(captured.nodes))
    prepared = prepare_traced(freed(captured, edges), "graph-dual", device)
    runs_right(captured, prepared)
    spans = EventRecorder.on(device).record(prepared).spans
    work = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    row = dict(zip(spans.operation[work].tolist(), work.tolist(), strict=True))
    assert sorted(row) == list(range(len(edges)))
    for number, earlier in enumerate(edges):
        assert all(spans.end_ns[row[one]] <= spans.start_ns[row[number]] for one in earlier)
    assert len(set(spans.graph_node[work].tolist())) == len(edges)


def test_durations_add_up_to_about_what_a_replay_takes(cupy):
    def products(x):
        for _ in range(20):
            x = cupy.tanh(x)
        return x

    captured = ss.capture(products, cupy.ones((4096, 4096), cupy.float32))
    (replay_us,) = captured.program.raw.times_us([captured.program.raw.edges])
    alone_us = sum(cost.alone_ns / 1e3 for cost in (launch.cost for launch in captured.program.launches()))
    assert 0.8 * replay_us < alone_us < 1.2 * replay_us


def test_sets_take_time_as_kernels_do(cupy):
    def clearing(x):
        y = cupy.tanh(x)
        y.data.memset_async(0, y.nbytes, cupy.cuda.get_current_stream())
        return cupy.tanh(y)

    captured = ss.capture(clearing, cupy.ones(2**24, cupy.float32))
    assert [node.kind for node in captured.nodes] == [NodeKind.KERNEL, NodeKind.SET, NodeKind.KERNEL]
    first, cleared, last = captured.durations_us
    # A set of 64 MiB writes as much as a kernel does, which reads as much besides, and computes.
    assert 0.1 * first < cleared < first
    assert 0.5 * first < last < 2 * first


def test_what_durations_and_trials_change_is_put_back(cupy):
    def counting(x):
        x += 1
        return x * 1

    x = cupy.zeros(1000, cupy.float32)
    captured = ss.capture(counting, x)
    before = x.get()
    captured.program.raw.times_us([captured.program.raw.edges])
    np.testing.assert_array_equal(x.get(), before)
