"""Stamps, and the kernels of launches, against CUPTI on a real GPU."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.test_stamped import every_kind, its_inputs

import streamscope as ss
from streamscope.devices.cuda.timer import align_timer
from streamscope.engine_entry import ENGINES
from streamscope.engines.plan import Issue
from streamscope.engines.prepared import prepare_traced
from streamscope.recording.events import EventRecorder
from streamscope.recording.recorders import cupti_stayed
from streamscope.recording.stamps import Recording, StampRecorder
from streamscope.recording.timed_run import steps_of, timed_run
from streamscope.trace.spans import DEVICE_KINDS, Basis, SpanKind

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device():
    return ss.open_device("cuda")


def warm(function, inputs, engine, device):
    prepared = prepare_traced(ss.program(function).trace(*inputs), engine, device)
    prepared.load(list(inputs))
    for _ in range(3):
        prepared.run()
        prepared.wait()
    return prepared


def cupti_times(prepared):
    """Return starts and ends of all kernels, copies and sets of a run by CUPTI, in the order of launch and of capture."""
    pytest.importorskip("cupti")
    from streamscope.recording.subscription import WORK, subscription

    with subscription().recording(WORK) as found:
        timed_run(prepared)
    work = found[0].work
    work = work[np.lexsort((work["graph_node"], work["correlation"]))]
    first = int(work["start_ns"].min())
    return np.stack([work["start_ns"] - first, work["end_ns"] - first]).astype(np.int64)


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


@pytest.mark.parametrize("engine", ENGINES)
def test_cupti_tells_what_stamps_leave_out_and_leaves(device, engine):
    pytest.importorskip("cupti")
    prepared = warm(side_by_side, np.random.default_rng(0).standard_normal((4, 65_536)).astype("float32"), engine, device)
    found = StampRecorder(device, 3).record(prepared).info.calibration
    assert found["stamp_by_cupti"] == 1
    assert 400 < found["stamp_excess_ns"] < 1_200
    assert not cupti_stayed()


@pytest.mark.parametrize("engine", ENGINES)
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


@pytest.mark.parametrize("engine", ["async", "graph-dual"])
def test_stamped_kernels_of_every_kind_compute_the_same(device, engine):
    prepared = warm(every_kind.function, its_inputs(), engine, device)
    before = prepared.outputs()
    trace = StampRecorder(device, 1).record(prepared)
    for one, other in zip(prepared.outputs(), before, strict=True):
        np.testing.assert_array_equal(one, other)
    kernels = trace.spans.of_kind(DEVICE_KINDS)
    assert (kernels.basis == Basis.MEASURED).all()
    assert int(kernels.blocks.sum()) == len(trace.blocks)


@pytest.mark.parametrize("engine", ["async", "graph-dual"])
@pytest.mark.parametrize(("function", "inputs"), [(every_kind.function, its_inputs()), (side_by_side, [np.ones(1 << 18, np.float32)] * 3)])
def test_stamped_twins_compute_the_same_and_stamp_every_block(device, function, inputs, engine):
    """This one needs no gate, so that compute-sanitizer can watch it: a gate opens by itself before work that the tool slows is done."""
    prepared = warm(function, inputs, engine, device)
    before = prepared.outputs()
    recording = Recording(StampRecorder(device, 1), prepared)
    for _ in range(3):
        recording.memory.clear()
        recording.twin.run()
        recording.twin.wait()
        for one, other in zip(prepared.outputs(), before, strict=True):
            np.testing.assert_array_equal(one, other)
        for stamps in recording.memory.read():
            assert (stamps[:, 0] > 0).all()
            assert (stamps[:, 1] >= stamps[:, 0]).all()
            assert stamps[:, 2].max() < 256


def test_the_timer_is_aligned_within_its_stated_uncertainty(device):
    stream = device.stream("timer")
    offsets = [align_timer(device, stream) for _ in range(5)]
    assert all(one.uncertainty_ns < 3_000 for one in offsets)
    assert max(one.offset_ns for one in offsets) - min(one.offset_ns for one in offsets) < 4_000


@pytest.mark.parametrize("blocks", [16, 66, 132, 1056])
@pytest.mark.parametrize("engine", ["dual", "graph-dual"])
def test_stamps_agree_with_cupti_on_the_same_run(device, blocks, engine):
    rng = np.random.default_rng(0)
    prepared = warm(side_by_side, rng.standard_normal((5, 1024 * blocks)).astype("float32"), engine, device)
    recording = Recording(StampRecorder(device, 5), prepared)
    twin = recording.twin
    for _ in range(3):
        twin.run()
        twin.wait()
    steps = [one for bound in steps_of(twin) for one in (bound.inner or [bound])]
    for _ in range(3):
        recording.memory.clear()
        theirs = cupti_times(twin)
        stamps = recording.memory.read()
    keys = [(one.step.launch.operation, one.step.launch.part) for one in steps if isinstance(one.step, Issue)]
    first = min(stamps[slot][:, 0].min() for slot in range(len(recording.slots)))
    own = np.array([recording.extent_ns(slot, stamps[slot] - first) for key in keys for slot in recording.own[key]]).T
    assert own.shape == theirs.shape
    lasted = theirs[1] - theirs[0]
    ends = own[1] - theirs[1]
    assert np.median(np.abs(ends - np.median(ends))) < 1_000
    # CUPTI counts a kernel as running from when the device has taken it up, also while it waits for room on the multiprocessors.
    if blocks <= 132:
        assert np.median(np.abs(own[1] - own[0] - lasted) - np.maximum(300, 0.05 * lasted)) <= 0
        assert overlap(*own) == pytest.approx(overlap(*theirs), abs=0.1)
    else:
        assert overlap(*own) <= overlap(*theirs) + 0.02


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("recorder", [EventRecorder, StampRecorder])
def test_every_kernel_of_a_library_call_is_a_span_as_cupti_has_them(device, engine, recorder):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("float16") for shape in ((64, 65536), (65536, 64)))
    prepared = warm(lambda a, b: ss.ops.relu(a @ b), (a, b), engine, device)
    spans = recorder(device, 3).record(prepared).spans.of_kind(DEVICE_KINDS)
    spans = spans.select(np.lexsort((spans.start_ns, spans.graph_node, spans.correlation)))
    assert (spans.symbol >= 0).all()
    cupti_times(prepared)
    starts, ends = cupti_times(prepared)
    assert len(starts) == len(spans.kind) >= 3
    lasted = ends - starts
    # CUPTI delays what is in a graph by some tenths of a microsecond.
    allowed = np.maximum(600 if "graph" in engine else 300, 0.05 * lasted)
    assert np.median(np.abs(spans.duration_ns - lasted) - allowed) <= 0
    assert int(spans.flops[:-1].sum()) == 2 * 64 * 64 * 65536
