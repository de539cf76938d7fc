"""Recording any code on a real GPU."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

import streamscope as ss
from streamscope.errors import RecordingError
from streamscope.recording.subscription import is_attached, subscription
from streamscope.trace.spans import SpanKind

pytestmark = pytest.mark.gpu
pytest.importorskip("cupti")


@pytest.fixture(scope="module")
def cp():
    return pytest.importorskip("cupy")


def of_kind(recording, *kinds):
    frame = recording.trace.to_pandas()
    return frame[frame.kind.isin([kind.name.lower() for kind in kinds])]


def test_kernels_copies_and_sets_are_joined_with_their_calls(cp):
    x = cp.ones(1 << 16, cp.float32)
    y = x + x
    with ss.record("step") as recording:
        x.__iadd__(y)
        cp.cuda.runtime.memsetAsync(y.data.ptr, 0, y.nbytes, 0)
        cp.asnumpy(y)
    work = of_kind(recording, SpanKind.KERNEL, SpanKind.COPY, SpanKind.SET)
    assert work.kind.tolist() == ["kernel", "set", "copy"]
    assert work.bytes.tolist()[1:] == [y.nbytes, y.nbytes]
    assert "add" in work.name.iloc[0]
    calls = of_kind(recording, SpanKind.LAUNCH).set_index("correlation")
    assert (work.start_ns.values >= calls.loc[work.correlation].start_ns.values).all()
    assert not recording.trace.info.notes
    assert not is_attached()


def test_each_node_of_a_graph_is_a_span_in_each_replay(cp):
    x, stream = cp.ones(1 << 16, cp.float32), cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()  # The ones are written on the default stream, for which a non-blocking stream does not wait.
    with stream:
        x.__iadd__(1)
        stream.begin_capture()
        for _ in range(5):
            x.__iadd__(1)
        graph = stream.end_capture()
    with ss.record() as recording:
        for _ in range(3):
            graph.launch(stream)
    kernels, graphs = of_kind(recording, SpanKind.KERNEL), of_kind(recording, SpanKind.GRAPH)
    assert len(kernels) == 15
    assert kernels.groupby("correlation").graph_node.nunique().tolist() == [5, 5, 5]
    assert len(of_kind(recording, SpanKind.GRAPH_LAUNCH)) == len(graphs) == 3
    assert (x == 17).all()


def test_a_graph_that_is_captured_in_the_block_is_not_missed(cp):
    x, stream = cp.ones(1 << 16, cp.float32), cp.cuda.Stream(non_blocking=True)
    with stream:
        x.__iadd__(1)
        with ss.record() as recording:
            stream.begin_capture()
            x.__iadd__(1)
            graph = stream.end_capture()
            graph.launch(stream)
    assert "1 launch call went into CUDA graphs that were captured" in " ".join(recording.trace.info.notes)
    assert "without" not in " ".join(recording.trace.info.notes)


def test_the_last_second_of_a_longer_block_is_there_and_memory_stays_bounded(cp):
    x = cp.ones(64, cp.float32)
    cp.add(x, x, out=x)
    most, began = {"early": 0, "late": 0}, time.perf_counter()
    with ss.record("long", last=1.0) as recording:
        while (passed := time.perf_counter() - began) < 8:
            for _ in range(1000):
                cp.add(x, x, out=x)
            cp.cuda.Device().synchronize()
            when = "early" if passed < 3 else "late"
            most[when] = max(most[when], len(subscription()._filled))
    assert 0 < most["late"] <= most["early"] + 3
    info, missing, kernels = recording.trace.info, ss.analysis.missing_records(recording.trace.spans), of_kind(recording, SpanKind.KERNEL)
    assert (missing.calls, missing.device) == (0, 0)
    assert info.ledger["recorded_ns"] == 1e9
    assert 0 <= kernels.start_ns.min() < 20e6
    assert kernels.start_ns.max() > 0.9e9
    assert any("only the last 1.00 s are kept" in note for note in info.notes)


def test_each_thread_has_a_lane(cp):
    x = cp.ones(1 << 16, cp.float32)
    x + x

    def work():
        with cp.cuda.Stream(non_blocking=True) as stream:
            for _ in range(10):
                x * 2
            stream.synchronize()

    with ss.record() as recording:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    launches = of_kind(recording, SpanKind.LAUNCH)
    assert sum(count >= 10 for count in launches.groupby("lane", observed=True).size()) == 3
    assert len(of_kind(recording, SpanKind.KERNEL)) >= 30


def test_two_gpus_are_recorded_with_their_copies_and_a_pause_is_left_out(cp):
    if cp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("this machine has one GPU")

    def work(count):
        for gpu in (0, 1):
            with cp.cuda.Device(gpu):
                for _ in range(count):
                    arrays[gpu] * 2
        with cp.cuda.Device(0):
            arrays[0].data.copy_from_device_async(arrays[1].data, arrays[0].nbytes, cp.cuda.get_current_stream())

    arrays = []
    for gpu in (0, 1):
        with cp.cuda.Device(gpu):
            arrays.append(cp.ones(1 << 16, cp.float32))
    work(1)
    with ss.record() as recording:
        work(3)
        recording.pause()
        work(5)
        recording.resume()
        work(2)
    trace = recording.trace
    kernels = trace.spans.of_kind([SpanKind.KERNEL])
    assert trace.gpus == (0, 1)
    assert [int((kernels.gpu == gpu).sum()) for gpu in (0, 1)] == [5, 5]
    assert list(zip(trace.peers.from_gpu, trace.peers.to_gpu, strict=True)) == [(1, 0), (1, 0)]
    assert trace.info.notes[0].startswith("cut out: 1 pause")


def test_what_ran_before_an_exception_is_there_and_the_next_recording_works(cp):
    x = cp.ones(8)
    x + x
    recording = ss.record()

    def fail():
        with recording:
            x + x
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail()
    assert len(of_kind(recording, SpanKind.KERNEL)) == 1
    with ss.record() as again, pytest.raises(RecordingError, match="under way"), ss.record():
        pass
    with pytest.raises(RecordingError, match="nothing ran"):
        _ = again.trace


RANGES = """
import cupy as cp, streamscope as ss
from cupy.cuda import nvtx
x = cp.ones(8); x + x
for name in ("first", "second"):
    with ss.record(name) as recording:
        nvtx.RangePush("outer"); x + x; nvtx.RangePop()
    frame = recording.trace.to_pandas()
    ranges, (kernel,) = frame[frame.kind == "range"], frame[frame.kind == "launch"].itertuples()
    (outer,) = ranges.itertuples()
    assert outer.name == "outer" and outer.start_ns < kernel.start_ns and kernel.end_ns < outer.end_ns, frame.to_string()
"""

NAMES = """
import numpy as np, streamscope as ss
@ss.program
def step(x):
    with ss.label("mlp"):
        return np.tanh(x) * x
x = np.ones(1024, np.float32)
prepared = ss.prepare(step, x, engine="async", device="cuda", progress=False)
prepared.run(); prepared.wait()
ss.nvtx(True)
with ss.record("step") as recording: prepared.run()
frame = recording.trace.to_pandas()
ranges, launches = frame[frame.kind == "range"].set_index("name"), frame[frame.kind == "launch"]
assert sorted(ranges.index) == ["mlp", "multiply", "step", "tanh"], frame.to_string()
for name, launch in zip(["tanh", "multiply"], launches.itertuples()):
    assert ranges.start_ns[name] <= launch.start_ns and launch.end_ns <= ranges.end_ns[name], frame.to_string()
assert ranges.start_ns.step <= ranges.start_ns.mlp and ranges.end_ns.mlp <= ranges.end_ns.step
"""

TORCH = """
import torch, streamscope as ss, warnings
from torch.profiler import profile, ProfilerActivity
x = torch.randn(2048, 2048, device="cuda", requires_grad=True)
times = []
def step(): (x @ x).relu().sum().backward(); torch.cuda.synchronize()
step()
def kernels():
    with ss.record("step") as recording: step()
    frame = recording.trace.to_pandas()
    assert not [note for note in recording.trace.info.notes if "without" in note], recording.trace.info.notes
    times.append(frame[frame.kind == "kernel"].eval("end_ns - start_ns").sum())
    return int((frame.kind == "kernel").sum())
def theirs():
    with profile(activities=[ProfilerActivity.CUDA]) as profiler: step()
    events = profiler.profiler.kineto_results.events()
    return sum(e.device_type().name == "CUDA" and not e.name().startswith(("Memset", "Memcpy")) for e in events)
counts = [kernels(), theirs(), kernels(), theirs(), kernels()]
assert len(set(counts)) == 1 and counts[0] > 3, counts
assert max(times) < 1.5 * min(times), times  # PyTorch's profiler leaves CUPTI a clock that counts cycles.
with profile(activities=[ProfilerActivity.CUDA]):
    try:
        with ss.record(): raise SystemExit("it began beside PyTorch's profiler")
    except ss.StreamscopeError as error:
        assert "PyTorch's profiler" in str(error)
    step()
assert kernels() == counts[0]
"""


@pytest.mark.parametrize(("script", "needs"), [(RANGES, "cupy"), (NAMES, "cupy"), (TORCH, "torch")])
def test_in_a_process_of_its_own(script, needs):
    pytest.importorskip(needs)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
