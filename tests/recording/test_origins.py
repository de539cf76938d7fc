"""What a trace says of where its operations come from, and of which waits for which."""

from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.analysis import critical_path
from streamscope.devices.simulated import SimulatedDevice
from streamscope.recording.origins import memory_of
from streamscope.trace import SpanKind, Trait
from streamscope.trace.memory import BEFORE, HELD

ENGINES = ["sync", "async", "dual", "graph", "graph-dual"]


@pytest.fixture(scope="module")
def runs():
    """Two branches with labels, side by side where there are two streams, joined at the end; copies in and out around them."""

    def step(x, w):
        device_x, device_w = ss.ops.to_device(x), ss.ops.to_device(w)
        with ss.label("left"):
            a = device_x @ device_w
        with ss.label("right"):
            b = device_x @ device_w
            b = ss.ops.relu(b)
        return ss.ops.to_host(a + b)

    x, w = np.ones((2, 64, 64), "float32")
    return ss.compare(ss.program(step), x, w, engines=ENGINES, device="simulated", progress=False)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_operation_knows_its_label_line_and_shapes(runs, engine, tmp_path):
    trace = ss.Trace.from_parquet(runs[engine].trace.to_parquet(tmp_path / "t.parquet"))
    origins, spans = trace.origins, trace.spans
    product = int(spans.operation[[spans.names[code] == "matmul" for code in spans.name]][0])
    assert origins.texts[origins.label[product]] == "left"
    assert origins.texts[origins.line[product]].endswith(": a = device_x @ device_w")
    assert origins.texts[origins.line[product]].startswith("test_origins.py:")
    assert origins.texts[origins.arguments[product]] == "float32[64, 64], float32[64, 64] → float32[64, 64]"
    assert origins.label[0] == -1  # the copy has no label


@pytest.mark.parametrize("engine", ENGINES)
def test_what_waited_began_after_what_it_waited_for(runs, engine):
    origins, spans = runs[engine].trace.origins, runs[engine].trace.spans
    earlier, later = origins.wait_rows(spans)
    assert len(earlier) == len(origins.waits)
    assert (spans.end_ns[earlier] <= spans.start_ns[later]).all()
    assert (spans.lane[earlier] != spans.lane[later]).all()
    assert critical_path(runs[engine].trace).complete


def test_the_join_of_two_streams_is_a_wait(runs):
    """The sum reads what both streams wrote; one of them runs it, so it waits for the other one."""
    origins, spans = runs["graph-dual"].trace.origins, runs["graph-dual"].trace.spans
    rows = [row for row in range(len(spans)) if spans.names[spans.name[row]] == "add"]
    total = spans.operation[rows[-1]]
    awaited = origins.waits[origins.waits[:, 2] == total, 0]
    names = {
        spans.names[spans.name[row]] for row in range(len(spans)) if spans.operation[row] in awaited and spans.kind[row] == SpanKind.KERNEL
    }
    assert names in ({"matmul"}, {"relu"})


@pytest.mark.parametrize("engine", ["async", "graph"])
def test_a_host_function_waits_for_the_copy_that_it_reads(engine):
    double = ss.host_function(lambda a: a + a)
    step = ss.program(lambda x: double(ss.ops.to_host(ss.ops.relu(ss.ops.to_device(x)))))
    trace = ss.compare(step, np.ones(1000, "float32"), engines=engine, device="simulated", progress=False)[engine].trace
    earlier, later = trace.origins.wait_rows(trace.spans)
    kinds = [(SpanKind(trace.spans.kind[a]), SpanKind(trace.spans.kind[b])) for a, b in zip(earlier, later, strict=True)]
    assert (SpanKind.COPY, SpanKind.HOST) in kinds
    assert (trace.spans.end_ns[earlier] <= trace.spans.start_ns[later]).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_every_recording_knows_what_has_to_come_after_what(runs, engine):
    """By hand: two copies; two products of both; relu of the second; a sum of both branches; a copy back. The engine changes nothing."""
    origins = runs[engine].trace.origins
    edges = {(int(before), int(after)) for before, _, after, _ in origins.dependencies}
    assert edges == {(0, 2), (1, 2), (0, 3), (1, 3), (3, 4), (2, 5), (4, 5), (5, 6)}
    assert origins.launches[:, :2].tolist() == [[operation, 0] for operation in range(7)]
    assert [Trait(int(trait)) for trait in origins.launches[:, 2]] == [
        Trait.COPY_IN, Trait.COPY_IN, Trait.LIBRARY, Trait.LIBRARY, 0, 0, Trait.COPY_OUT,
    ]  # fmt: skip


def test_dependencies_tell_parts_host_functions_and_what_overwrites(monkeypatch):
    """The parts of one operation may be independent; a write comes after the reads before it; host functions come one after the other."""
    host = ss.host_function(lambda a: a + a)

    def step(x, w, dy, raw):
        dx, dw = ss.ops.convolution_backward(x, w, dy, padding=1)
        once, twice = host(raw), host(raw)
        return dx, dw, once, twice

    x, w, dy = np.ones((1, 4, 4, 8), "float16"), np.ones((8, 3, 3, 8), "float16"), np.ones((1, 4, 4, 8), "float16")
    function, inputs = ss.program(step), (x, w, dy, np.ones(4, "float32"))
    trace = ss.compare(function, *inputs, engines="sync", device="simulated", progress=False)["sync"].trace
    assert trace.origins.dependencies.tolist() == [[1, 0, 2, 0]]
    assert trace.origins.launches[:, :3].tolist() == [
        [0, 0, Trait.AUXILIARY | Trait.LIBRARY], [0, 1, Trait.LIBRARY], [1, 0, Trait.HOST], [2, 0, Trait.HOST],
    ]  # fmt: skip
    monkeypatch.setattr("streamscope.recording.origins.MOST_DEPENDENCIES", 3)
    many = ss.compare(function, *inputs, engines="sync", device="simulated", progress=False)["sync"].trace.origins
    assert (len(many.launches), len(many.dependencies), many.complete) == (0, 0, True)


@pytest.mark.parametrize("engine", ENGINES)
def test_memory_adds_up_to_the_devices_own_and_each_variable_is_of_its_operation(runs, engine, tmp_path):
    trace = ss.Trace.from_parquet(runs[engine].trace.to_parquet(tmp_path / "t.parquet"))
    memory = trace.memory
    assert int(memory.bytes[memory.gpu == 0].sum()) == trace.info.memory["device_bytes"]
    assert int(memory.bytes[memory.gpu == -1].sum()) == trace.info.memory["host_bytes"]
    assert set(memory.start_ns) | set(memory.end_ns) == {BEFORE, HELD}
    rows = memory.to_pandas()
    assert rows["kind"].value_counts().to_dict() == {"intermediate": 6, "input": 2, "output": 1}
    products = rows[rows["name"] == "matmul"]
    assert products["module"].tolist() == ["left", "right"]
    assert products["file"].tolist() == ["test_origins.py"] * 2
    assert products["line"].is_unique
    assert rows[rows["kind"] == "input"]["operation"].tolist() == [-1, -1]
    assert rows[rows["kind"] == "input"]["name"].tolist() == ["x", "w"]


def test_streams_memory_is_of_its_gpu_and_captured_memory_of_the_node_that_writes_it(monkeypatch):
    monkeypatch.setattr(SimulatedDevice, "memory_of", lambda self, streams: {"workspaces_bytes": 100 * len(list(streams))})

    def step(x):
        y = ss.ops.to_gpu(x, 1)
        return y + 1

    prepared = ss.prepare(ss.program(step), np.ones(4, "float32"), engine="async", device="simulated", gpus=2, progress=False)
    rows = memory_of(prepared).to_pandas()
    lanes = [prepared.plan.gpu(lane) for lane in prepared.streams]
    scratch = rows[rows["kind"] == "workspaces"]
    assert dict(zip(scratch["gpu"], scratch["bytes"], strict=True)) == {gpu: 100 * lanes.count(gpu) for gpu in set(lanes)}
    assert int(rows["bytes"][rows["gpu"] >= 0].sum()) == prepared.memory["device_bytes"]
    program = replace(prepared.program, variables=(), inputs=(), outputs=(), captured=((),), held=((4096, 0), (512, -1)))
    monkeypatch.setattr(type(prepared), "program", program)
    rows = memory_of(prepared).to_pandas()
    assert rows[["bytes", "kind", "operation"]].values.tolist() == [[4096, "capture", 0], [512, "capture", -1]]
