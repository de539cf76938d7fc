"""A CUDA device with two GPUs: memory and kernels on each, copies between them, collectives, graphs over both, and aborts."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import DeviceError
from streamscope.program.collective import Collective
from streamscope.program.launch import Cost, Launch, LaunchKind
from streamscope.program.reference import run_reference
from streamscope.program.variable import ArraySpec, MemoryPlace

pytestmark = pytest.mark.gpu
BOTH = (0, 1)
PENDING = 600


@pytest.fixture(scope="module")
def host():
    from streamscope.kernels.library.libraries import libraries

    if libraries().runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    return ss.open_device("cuda", gpus=2)


def put(host, gpu, values):
    buffer = host.allocate(ArraySpec(values.shape, values.dtype), MemoryPlace.DEVICE, gpu=gpu)
    host.write(buffer, values)
    return buffer


def streams(host, name="main"):
    return [host.stream(name, gpu=gpu) for gpu in BOTH]


def test_memory_lies_where_it_was_asked_for(host):
    for gpu in BOTH:
        buffer = put(host, gpu, np.arange(5) + gpu)
        assert buffer.array.device.id == host.indices[gpu]
        np.testing.assert_array_equal(host.read(buffer), np.arange(5) + gpu)
        assert host.adopt(buffer.array, MemoryPlace.DEVICE).gpu == gpu


def test_workspaces_of_libraries_lie_on_the_gpu_of_their_stream(host):
    for gpu, stream in zip(BOTH, streams(host), strict=True):
        for memory in (stream.cublas._workspace, stream.workspace(1 << 10)):
            assert memory.device.id == host.indices[gpu]


@pytest.mark.parametrize("function", [lambda x: x + x, lambda x: x @ x])
def test_a_launch_runs_on_the_gpu_of_its_stream_and_leaves_the_threads_current_one(host, function):
    from streamscope.kernels.library.libraries import libraries

    cuda, values = libraries().cupy.cuda, np.eye(64, dtype=np.float32)
    traced = ss.program(function).trace(values)
    (launch,) = traced.launches()
    for gpu, stream in zip(BOTH, streams(host), strict=True):
        operand, result = put(host, gpu, values), put(host, gpu, 0 * values)
        call = host.bind(launch, [operand] * len(launch.reads), [result], stream)
        for current in BOTH:
            with cuda.Device(current):
                call()
                assert cuda.runtime.getDevice() == current
            stream.synchronize()
            np.testing.assert_array_equal(host.read(result), run_reference(traced, [values])[0])


def test_there_is_no_time_between_events_of_two_gpus(host):
    events = [host.event(timing=True, gpu=gpu) for gpu in BOTH]
    for stream, event in zip(streams(host), events, strict=True):
        stream.record(event)
        stream.synchronize()
    with pytest.raises(DeviceError, match="no time between events of GPU 0 and GPU 1"):
        host.elapsed_ns(*events)


def bound(host, collective, operands, results, lanes):
    launches = [
        Launch(0, part, collective.kind, LaunchKind.COLLECTIVE, (0,), (1,), Cost(0), None, gpu=gpu, collective=collective)
        for part, gpu in enumerate(collective.gpus)
    ]
    return host.bind_collective(launches, [[each] for each in operands], [[each] for each in results], lanes)


class Network:
    """On each GPU a kernel, a sum of both over streams of their own, and a kernel."""

    def __init__(self, host):
        self.host, self.main, self.comm = host, streams(host), streams(host, "comm")
        values = np.arange(1 << 16, dtype=np.float32)
        doubled, summed, self.results = ([put(host, gpu, 0 * values) for gpu in BOTH] for _ in range(3))
        (double,), (more,) = (ss.program(each).trace(values).launches() for each in (lambda x: x * 2, lambda x: x + 1))
        self.first = [host.bind(double, [put(host, gpu, values)], [doubled[gpu]], self.main[gpu]) for gpu in BOTH]
        self.last = [host.bind(more, [summed[gpu]], [self.results[gpu]], self.main[gpu]) for gpu in BOTH]
        self.sum = bound(host, Collective("all_reduce", BOTH, values.nbytes, "sum"), doubled, summed, self.comm)
        self.ready, self.done = ([host.event(gpu=gpu) for gpu in BOTH] for _ in range(2))
        self.expected = 4 * values + 1

    def issue(self):
        for gpu in BOTH:
            self.first[gpu]()
            self.main[gpu].record(self.ready[gpu])
            self.comm[gpu].wait(self.ready[gpu])
        self.sum()
        for gpu in BOTH:
            self.comm[gpu].record(self.done[gpu])
            self.main[gpu].wait(self.done[gpu])
            self.last[gpu]()

    def graph(self):
        fork, join = (self.host.event(gpu=gpu) for gpu in BOTH)
        self.host.begin_capture(self.main[0])
        self.main[0].record(fork)
        self.main[1].wait(fork)
        self.issue()
        self.main[1].record(join)
        self.main[0].wait(join)
        return self.host.end_capture(self.main[0])

    def check(self, run=None):
        for result in self.results:
            self.host.write(result, 0 * self.expected)
        (run or self.issue)()
        for stream in self.main:
            stream.synchronize()
        for result in self.results:
            np.testing.assert_array_equal(self.host.read(result), self.expected)


@pytest.fixture(scope="module")
def network(host):
    network = Network(host)
    network.check()
    return network


def test_one_graph_over_both_gpus(network):
    graph = network.graph()
    for _ in range(20):
        network.check(partial(graph.launch, network.main[0]))


@pytest.fixture
def hung(network):
    """Half a collective, which never ends."""
    communicators = network.host.collectives.communicators((BOTH, 0))
    network.kept = put(network.host, 0, np.zeros(8, np.float32))
    stream, buffer = network.comm[0], network.kept
    communicators.parts[0].allReduce(buffer.pointer, buffer.pointer, 8, 7, 0, stream.pointer)
    return stream


def test_ctrl_c_ends_a_wait_for_a_collective_that_hangs_and_the_device_goes_on(network, hung):
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        hung.synchronize()
    network.check()


def test_a_time_out_ends_it_with_an_error_and_graphs_are_lost(network, hung):
    graph = network.graph()
    threading.Timer(0.2, network.host.abort_collectives).start()
    with pytest.raises(DeviceError, match="were aborted while they were waited for"):
        hung.synchronize()
    with pytest.raises(DeviceError, match="cannot be launched any more"):
        graph.launch(network.main[0])
    network.check()
    network.check(partial(network.graph().launch, network.main[0]))


@pytest.mark.parametrize("library", ["NCCL", "copies"])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send"])
def test_collectives_are_numpys(host, monkeypatch, kind, library):
    if library == "copies":
        monkeypatch.setattr("streamscope.devices.cuda.collectives.has_nccl", lambda: False)
    for op in ("sum", "mean", "min", "max") if "reduce" in kind else ("",):
        for dtype in ("float16", "float32", "int64"):
            if op == "mean" and dtype == "int64":
                continue
            values = [np.random.default_rng(gpu).integers(0, 9, (4, 3)).astype(dtype) for gpu in BOTH]
            collective = Collective(kind, BOTH, values[0].nbytes, op, root=1)
            expected = iter(collective.results([values[part] for part in BOTH if collective.reads(part)]))
            wanted = [next(expected) if collective.writes(part) else None for part in BOTH]
            operands = [put(host, gpu, values[gpu]) for gpu in BOTH]
            results = [put(host, gpu, np.zeros_like(values[0] if want is None else want)) for gpu, want in zip(BOTH, wanted, strict=True)]
            bound(host, collective, operands, results, streams(host))()
            host.synchronize()
            for result, want in zip(results, wanted, strict=True):
                if want is not None:
                    np.testing.assert_allclose(host.read(result), want, rtol=1e-3)


def of_two_gpus(u, v):
    with ss.gpu(0):
        a = u * 2
    with ss.gpu(1):
        b = v * 2
    p, q = ss.ops.all_reduce([a, b])
    return p + 1, ss.ops.to_gpu(p, 1) - q


@pytest.mark.parametrize("engine", ["sync", "async", "dual", "graph", "graph-dual"])
def test_a_prepared_program_goes_on_after_an_abort(host, engine):
    values = np.arange(64, dtype=np.float32)
    prepared = ss.prepare(ss.program(of_two_gpus).trace(values, values), engine=engine, device=host)
    prepared.load([values, values])
    for _ in range(3):
        for _ in range(5):
            prepared.run()
        for result, expected in zip(prepared.outputs(), (4 * values + 1, 0 * values), strict=True):
            np.testing.assert_array_equal(result, expected)
        host.abort_collectives()
