"""Stamps, and the kernels of launches, against CUPTI on a real GPU."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.cuda.timer import align_timer
from streamscope.engines import PLANNERS
from streamscope.engines.prepared import prepare_traced
from streamscope.recording.events import EventRecorder
from streamscope.recording.passes import timed_run
from streamscope.recording.stamps import StampRecorder
from streamscope.trace.spans import DEVICE_KINDS, Basis, SpanKind

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device():
    return ss.open_device("cuda")


def warm(function, inputs, engine, device):
    prepared = prepare_traced(ss.program(function).trace(*inputs), engine, device)
    prepared.load(inputs)
    for _ in range(3):
        prepared.run()
        prepared.wait()
    return prepared


def cupti_records(prepared):
    """Return all kernels, copies and sets of a run by CUPTI, in the order of launch and of capture."""
    pytest.importorskip("cupti")
    from streamscope.recording.cupti import _activities

    for _ in range(3):
        with _activities().enabled() as records:
            timed_run(prepared)
    return sorted(records, key=lambda record: record.order)


def overlap(starts, ends):
    """Return the share of the busy time in which two or more ran."""
    marks = sorted([(int(start), 1) for start in starts] + [(int(end), -1) for end in ends])
    busy = both = depth = last = 0
    for time, change in marks:
        busy += (time - last) * (depth >= 1)
        both += (time - last) * (depth >= 2)
        depth, last = depth + change, time
    return both / busy


def side_by_side(x, *scales):
    ends = list(scales)
    for step in range(4):
        ends = [ss.ops.multiply(end, x) if step % 2 == 0 else ss.ops.relu(end) for end in ends]
    return tuple(ends)


def mixed(x, a, b, c, d):
    h = ss.ops.relu(x)
    return (h @ a) @ b + ss.ops.softmax((h @ c) @ d)


@pytest.mark.parametrize("engine", PLANNERS)
def test_stamps_change_no_result_and_blocks_lie_within_their_kernels(device, engine):
    rng = np.random.default_rng(0)
    prepared = warm(mixed, rng.standard_normal((5, 256, 256)).astype("float32"), engine, device)
    before = prepared.outputs()
    trace = StampRecorder(device, 3).record(prepared)
    for one, other in zip(prepared.outputs(), before, strict=True):
        np.testing.assert_array_equal(one, other)
    measured = trace.spans.select(trace.spans.is_kind(DEVICE_KINDS) & (trace.spans.basis == Basis.MEASURED))
    own = {(one.operation, one.part) for one in prepared.program.launches() if not one.library}
    assert set(zip(measured.operation.tolist(), measured.part.tolist(), strict=True)) == own
    times: dict[tuple[int, int], tuple[int, int]] = {}
    for operation, part, start, end in zip(measured.operation, measured.part, measured.start_ns, measured.end_ns, strict=True):
        first, last = times.get((operation, part), (start, end))
        times[operation, part] = min(first, start), max(last, end)
    assert len(trace.blocks) >= len(measured.kind)
    for operation, part, start, end in zip(
        trace.blocks.operation, trace.blocks.part, trace.blocks.start_ns, trace.blocks.end_ns, strict=True
    ):
        assert times[operation, part][0] - 1 <= start <= end <= times[operation, part][1] + 1
    assert trace.blocks.multiprocessor.max() < 256
    calls = trace.spans.of_kind([SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH])
    called = dict(zip(calls.correlation.tolist(), calls.start_ns.tolist(), strict=True))
    late = [start - called[one] for one, start in zip(measured.correlation.tolist(), measured.start_ns.tolist(), strict=True)]
    assert min(late) >= -trace.info.calibration["clock_uncertainty_ns"]


def test_the_timer_is_aligned_within_its_stated_uncertainty(device):
    stream = device.stream("timer")
    offsets = [align_timer(device, stream) for _ in range(5)]
    assert all(one.uncertainty_ns < 3_000 for one in offsets)
    assert max(one.offset_ns for one in offsets) - min(one.offset_ns for one in offsets) < 4_000


@pytest.mark.parametrize("blocks", [16, 66, 132, 1056])
@pytest.mark.parametrize("engine", ["dual", "graph-dual"])
def test_side_by_side_stamps_agree_with_cupti(device, blocks, engine):
    rng = np.random.default_rng(0)
    prepared = warm(side_by_side, rng.standard_normal((5, 1024 * blocks)).astype("float32"), engine, device)
    trace = StampRecorder(device, 5).record(prepared)
    spans = trace.spans.of_kind(DEVICE_KINDS)
    spans = spans.select(np.lexsort((spans.start_ns, spans.graph_node, spans.correlation)))
    records = cupti_records(prepared)
    assert len(records) == len(spans.kind)
    starts, ends = (np.array([getattr(record, name) for record in records]) for name in ("start_ns", "end_ns"))
    error = np.abs(spans.duration_ns - (ends - starts)) - np.maximum(300, 0.05 * (ends - starts))
    assert np.median(error) <= 0
    if engine == "graph-dual":
        assert overlap(spans.start_ns, spans.end_ns) == pytest.approx(overlap(starts, ends), abs=0.1)


@pytest.mark.parametrize("engine", PLANNERS)
@pytest.mark.parametrize("recorder", [EventRecorder, StampRecorder])
def test_every_kernel_of_a_library_call_is_a_span_as_cupti_has_them(device, engine, recorder):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("float16") for shape in ((64, 65536), (65536, 64)))
    prepared = warm(lambda a, b: ss.ops.relu(a @ b), (a, b), engine, device)
    spans = recorder(device, 3).record(prepared).spans.of_kind(DEVICE_KINDS)
    spans = spans.select(np.lexsort((spans.start_ns, spans.graph_node, spans.correlation)))
    assert (spans.symbol >= 0).all()
    records = cupti_records(prepared)
    assert len(records) == len(spans.kind) >= 3
    lasted = np.array([record.end_ns - record.start_ns for record in records])
    assert np.median(np.abs(spans.duration_ns - lasted) - np.maximum(300, 0.05 * lasted)) <= 0
    assert int(spans.flops[:-1].sum()) == 2 * 64 * 64 * 65536
