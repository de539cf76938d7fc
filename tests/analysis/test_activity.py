"""What the device does at each time, by hand and against a count for each nanosecond."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.analysis import (
    Occupation,
    activity,
    concurrency,
    copy_busy_ns,
    device_idle,
    exposed_copy_ns,
    exposed_host_ns,
    fullness,
    gpu_busy_ns,
    host_device_overlap,
    overlap_ns,
    stream_overlap,
)
from streamscope.trace import Basis, SpanBuilder, SpanKind, SpanTable

KERNEL, COPY, SET, HOST, LAUNCH = SpanKind.KERNEL, SpanKind.COPY, SpanKind.SET, SpanKind.HOST, SpanKind.LAUNCH
IDLE = (Occupation.HOST_WAIT, Occupation.LAUNCH, Occupation.KERNEL_WAIT, Occupation.OTHER)


def spread(found, column):
    """One value for each nanosecond."""
    return np.repeat(getattr(found, column), found.end_ns - found.start_ns)


@given(spans=st.from_type(SpanTable))
def test_against_a_count_for_each_nanosecond(ticks, spans):
    found = activity(spans)
    length = int(spans.end_ns.max(initial=0))
    kernels = sum((ticks(spans, KERNEL, lane=lane) > 0).astype(int) for lane in spans.lanes)[:length]
    copies = sum((ticks(spans, COPY, SET, lane=lane) > 0).astype(int) for lane in spans.lanes)[:length]
    host = ticks(spans, HOST)[:length] > 0
    assert (spread(found, "kernels") == kernels).all()
    assert (spread(found, "copies") == copies).all()
    running = kernels + copies > 0
    assert ((spread(found, "occupation") == Occupation.RUNNING) == running).all()
    assert ((spread(found, "occupation") == Occupation.HOST_FUNCTION) == (host & ~running)).all()


@given(spans=st.from_type(SpanTable))
def test_it_adds_up_to_the_numbers_of_the_table(spans):
    found = activity(spans)
    assert (found.start_ns[1:] == found.end_ns[:-1]).all()
    assert found.time_ns(found.start_ns >= 0) == spans.end_ns.max(initial=0)
    assert found.time_ns(found.kernels > 0) == gpu_busy_ns(spans)
    assert found.time_ns(found.kernels > 1) == overlap_ns(spans)
    assert found.time_ns(found.copies > 0) == copy_busy_ns(spans)
    assert found.time_ns((found.copies > 0) & (found.kernels == 0)) == exposed_copy_ns(spans)
    assert found.time_ns(found.occupation == Occupation.HOST_FUNCTION) == exposed_host_ns(spans)
    idle = found.time_ns(np.isin(found.occupation, IDLE)) + exposed_host_ns(spans)
    assert idle == device_idle(spans).total_ns


@given(spans=st.from_type(SpanTable))
def test_idle_time_has_the_cause_of_its_gap_where_no_host_function_runs(spans):
    without = spans.select(spans.kind != HOST)
    found, split = activity(without), device_idle(without)
    assert tuple(found.time_ns(found.occupation == cause) for cause in IDLE) == (
        split.host_wait_ns, split.launch_ns, split.kernel_wait_ns, split.other_ns,
    )  # fmt: skip


@given(spans=st.from_type(SpanTable))
def test_neighbours_differ(spans):
    found = activity(spans, 132)
    columns = np.stack([found.kernels, found.copies, found.occupation, np.nan_to_num(found.fullness, nan=-1)])
    assert (columns[:, 1:] != columns[:, :-1]).any(axis=0).all()


def test_by_hand():
    """Two kernels side by side, a copy beside the second, a host function that hides half of a gap."""
    builder = SpanBuilder(["host", "main", "aux", "copy in"])
    builder.add(LAUNCH, "a", "host", 4, 6, correlation=0)
    builder.add(KERNEL, "a", "main", 10, 30, correlation=0, blocks=66)
    builder.add(KERNEL, "b", "aux", 20, 40, blocks=33)
    builder.add(COPY, "x", "copy in", 35, 50)
    builder.add(HOST, "read", "host", 50, 55)
    builder.add(KERNEL, "c", "main", 60, 70, blocks=500)
    found = activity(builder.build(), multiprocessors=132)
    assert list(zip(found.start_ns, found.end_ns, found.kernels, found.copies, found.occupation, found.fullness, strict=True)) == [
        (0, 4, 0, 0, Occupation.HOST_WAIT, 0),
        (4, 10, 0, 0, Occupation.LAUNCH, 0),
        (10, 20, 1, 0, Occupation.RUNNING, 0.5),
        (20, 30, 2, 0, Occupation.RUNNING, 0.75),
        (30, 35, 1, 0, Occupation.RUNNING, 0.25),
        (35, 40, 1, 1, Occupation.RUNNING, 0.25),
        (40, 50, 0, 1, Occupation.RUNNING, 0),
        (50, 55, 0, 0, Occupation.HOST_FUNCTION, 0),
        (55, 60, 0, 0, Occupation.OTHER, 0),
        (60, 70, 1, 0, Occupation.RUNNING, 1),
    ]


def test_a_kernel_before_the_zero_is_there():
    builder = SpanBuilder(["main"])
    builder.add(KERNEL, "a", "main", -5, 5)
    found = activity(builder.build())
    assert (found.start_ns.tolist(), found.end_ns.tolist(), found.kernels.tolist()) == ([-5], [5], [1])


def test_an_empty_trace_has_no_stretches(make_trace):
    found = activity(make_trace().spans, 132)
    assert [len(column) for column in vars(found).values()] == [0] * 6


@pytest.mark.parametrize(
    ("blocks", "multiprocessors", "share"),
    [((66,), 132, 0.5), ((66, 66), 132, 1.0), ((1000, 1), 132, 1.0), ((66, 0), 132, None), ((132, 0), 132, 1.0), ((66,), None, None)],
)
def test_fullness_is_never_guessed(blocks, multiprocessors, share):
    builder = SpanBuilder([f"stream {row}" for row in range(len(blocks))])
    for row, count in enumerate(blocks):
        builder.add(KERNEL, "a", f"stream {row}", 0, 10, blocks=count)
    time_ns, found = fullness(builder.build(), multiprocessors)
    assert time_ns.tolist() == [0, 10]
    assert np.isnan(found[0]) if share is None else found[0] == share
    assert found[1] == 0


def test_estimated_times_of_one_stream_do_not_fill_it_twice():
    builder = SpanBuilder(["main"])
    builder.add(KERNEL, "a", "main", 0, 10, blocks=66, basis=Basis.DERIVED)
    builder.add(KERNEL, "b", "main", 8, 20, blocks=33, basis=Basis.DERIVED)
    time_ns, share = fullness(builder.build(), 132)
    assert dict(zip(time_ns.tolist(), share.tolist(), strict=True)) == {0: 0.5, 8: 0.25, 20: 0.0}


@given(spans=st.from_type(SpanTable))
def test_host_functions_beside_the_device(ticks, spans):
    host, device = ticks(spans, HOST) > 0, ticks(spans, KERNEL, COPY, SET) > 0
    assert host_device_overlap(spans) == pytest.approx((host & device).sum() / max(1, host.sum()))


@given(spans=st.from_type(SpanTable))
def test_pairs_of_streams_with_copies(ticks, spans):
    for pair in stream_overlap(spans, [KERNEL, COPY, SET]):
        first, second = ticks(spans, KERNEL, COPY, SET, lane=pair.first) > 0, ticks(spans, KERNEL, COPY, SET, lane=pair.second) > 0
        assert pair.overlap_ns == (first & second).sum()
    counted = sum((ticks(spans, COPY, SET, lane=lane) > 0).astype(int) for lane in spans.lanes)
    for running, time_ns in enumerate(concurrency(spans, [COPY, SET]).time_at_ns()):
        assert running == 0 or time_ns == (counted == running).sum()
