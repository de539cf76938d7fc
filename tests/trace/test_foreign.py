"""What other programs recorded, as any columns: nothing is lost without a note, and what comes out is as a table of spans has to be."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.trace import DeviceInfo, SpanKind
from streamscope.trace.activities import Activities, looked_up
from streamscope.trace.foreign import EventWaits, foreign_trace

DEVICE = DeviceInfo("cuda", "NVIDIA H200")
KINDS = list(SpanKind)
small = st.integers(0, 2)
row = st.tuples(st.sampled_from(KINDS), small, st.integers(0, 60), st.integers(-3, 60), small, st.integers(-1, 6), st.integers(0, 1))


def activities(rows):
    kind, name, start, length, place, correlation, gpu = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    names = ("cudaLaunchKernel", "void ns::f<int>(int)", "g", "cudaStreamWaitEvent")
    gpu = np.where(np.isin(kind, [int(each) for each in KINDS if each >= SpanKind.KERNEL]), gpu, -1)
    return Activities(kind.astype(np.uint8), name, start, start + length, place, correlation, gpu=gpu, names=names)


def kernel_first(rows):
    return [(SpanKind.KERNEL, 1, 0, 10, 0, 1, 0), *rows]


@given(st.lists(row, max_size=40).map(kernel_first))
def test_any_activities_become_a_table_or_a_note(rows):
    trace = foreign_trace(activities(rows), engine="kineto", program="p", device=DEVICE, recorder="kineto", gpu=0)
    spans = trace.spans
    backwards = sum(length < 0 for _, _, _, length, *_ in rows)
    others = sum(kind >= SpanKind.KERNEL and gpu == 1 and length >= 0 for kind, _, _, length, _, _, gpu in rows)
    left_out = [int(found[1].replace(",", "")) for note in trace.info.notes if (found := re.search(r"left out: ([\d,]+)", note))]
    assert sum(left_out) == backwards + others
    launches = {correlation for kind, _, _, length, _, correlation, gpu in rows if kind >= SpanKind.KERNEL and length >= 0 and gpu == 1}
    host = [each for each in rows if each[0] < SpanKind.KERNEL and each[3] >= 0]
    theirs = sum(kind != SpanKind.RANGE and correlation in launches for kind, _, _, _, _, correlation, _ in host)
    assert len(rows) - backwards - others - theirs <= len(spans) <= len(rows) - backwards - others
    for lane, text in enumerate(spans.lanes):
        on_it = spans.select(spans.lane == lane)
        if " ranges" in text:
            assert_nested(on_it)
        assert {text.startswith("stream")} == {kind >= SpanKind.KERNEL for kind in on_it.kind.tolist()}
    calls = spans.is_kind([SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH]) & (spans.correlation >= 0)
    assert len(set(spans.correlation[calls].tolist())) == calls.sum()
    assert (spans.correlation[spans.kind == SpanKind.RANGE] == -1).all()


def assert_nested(spans):
    for one in range(len(spans)):
        for other in range(one + 1, len(spans)):
            if spans.start_ns[other] < spans.end_ns[one]:
                assert spans.end_ns[other] <= spans.end_ns[one]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=12),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 3), st.integers(0, 30)), max_size=6),
)
def test_a_wait_joins_the_last_launch_before_the_record_with_the_first_after_the_wait(work, waits):
    stream, launch_ns = (np.array(column, np.int64) for column in (zip(*work, strict=True) if work else ((), ())))
    found = EventWaits(*(np.array(column, np.int64) for column in (zip(*waits, strict=True) if waits else ((),) * 4)))
    expected = set()
    for recorded_on, record_ns, waiting, wait_ns in waits:
        before = [(at, index) for index, (one, at) in enumerate(work) if one == recorded_on and at < record_ns]
        after = [(at, index) for index, (one, at) in enumerate(work) if one == waiting and at > wait_ns]
        if before and after:
            expected.add((max(before)[1], min(after)[1]))
    assert {tuple(pair) for pair in found.rows(stream, launch_ns, np.arange(len(work))).tolist()} == expected


@given(st.dictionaries(st.integers(-5, 5), st.integers(), max_size=6), st.lists(st.integers(-6, 6), max_size=8))
def test_looked_up_is_a_join(known, wanted):
    known = {key: value % 100 for key, value in known.items()}
    keys, values = np.array(list(known), np.int64), np.array(list(known.values()), np.int64)
    assert looked_up(keys, values, np.array(wanted, np.int64), -7).tolist() == [known.get(each, -7) for each in wanted]


def test_the_zero_is_the_first_call_or_what_is_given_or_the_first_activity():
    call, work = (SpanKind.API, 0, 7, 3, 0, -1, 0), (SpanKind.KERNEL, 1, 5, 10, 0, 1, 0)
    made = {"engine": "recorded", "program": "p", "device": DEVICE, "recorder": "cupti"}
    for rows, options, start_ns in (([call, work], {}, [-2, 0]), ([work], {}, [0]), ([call, work], {"zero_ns": 1}, [4, 6])):
        assert foreign_trace(activities(rows), **made, **options).spans.start_ns.tolist() == start_ns


@pytest.mark.parametrize(("kinds", "complete"), [([], True), ([(SpanKind.GRAPH_LAUNCH, 0)], False), ([(SpanKind.EVENT, 3)], False)])
def test_waits_are_complete_only_where_each_is_known(kinds, complete):
    rows = [(SpanKind.LAUNCH, 0, 0, 3, 0, 1, 0), (SpanKind.KERNEL, 1, 5, 10, 0, 1, 0)]
    rows += [(kind, name, 3, 1, 0, -1, 0) for kind, name in kinds]
    trace = foreign_trace(activities(rows), engine="kineto", program="p", device=DEVICE, recorder="kineto")
    assert trace.origins.complete is complete


def test_several_streams_without_a_recorded_wait_may_still_wait_for_each_other():
    """The default stream waits without a call, and profilers drop some calls: no wait seen is not all waits known."""
    rows = [(SpanKind.LAUNCH, 0, 0, 3, 0, 1, 0), (SpanKind.KERNEL, 1, 5, 10, 7, 1, 0)]
    rows += [(SpanKind.LAUNCH, 0, 4, 6, 0, 2, 0), (SpanKind.KERNEL, 1, 12, 20, 13, 2, 0)]
    trace = foreign_trace(activities(rows), engine="kineto", program="p", device=DEVICE, recorder="kineto")
    assert not trace.origins.complete
    assert any("event waits are not known" in note for note in ss.what_if(trace, engine="graph").info.notes)


def test_a_kernel_without_a_launch_is_counted_beside_a_call_inside_of_a_call():
    rows = [(SpanKind.LAUNCH, 0, 0, 9, 0, 1, 0), (SpanKind.LAUNCH, 0, 1, 3, 0, 1, 0), (SpanKind.KERNEL, 1, 5, 10, 0, 1, 0)]
    trace = foreign_trace(
        activities([*rows, (SpanKind.KERNEL, 1, 20, 10, 0, -1, 0)]), engine="kineto", program="p", device=DEVICE, recorder="kineto"
    )
    assert trace.info.notes == ("1 of 2 device spans without a launch call: launch latency unknown",)
