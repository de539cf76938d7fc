"""Idle time and its causes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.analysis import (
    IdleCause,
    IdleSplit,
    device_gaps,
    device_idle,
    idle_by_stream,
    launch_latency_ns,
    launch_overhead_ns,
    stream_gaps,
)
from streamscope.trace import Basis, SpanKind, SpanTable

LAUNCH, GRAPH_LAUNCH, KERNEL, COPY, SET, HOST, SYNC = (
    SpanKind[name] for name in ("LAUNCH", "GRAPH_LAUNCH", "KERNEL", "COPY", "SET", "HOST", "SYNC")
)  # fmt: skip
CALLS = (LAUNCH, GRAPH_LAUNCH)
CASES = Path(__file__).resolve().parents[1] / "data" / "issue31"


@given(spans=st.from_type(SpanTable))
def test_gaps_are_the_nanoseconds_without_work(ticks, spans):
    for lane, split in idle_by_stream(spans).items():
        busy = ticks(spans, KERNEL, COPY, SET, lane=lane) > 0
        # Zero-length spans run in no nanosecond, but they bound a gap.
        rows = [r for r in range(len(spans)) if spans.lanes[spans.lane[r]] == lane and spans.kind[r] in (KERNEL, COPY, SET)]
        first, last = min(spans.start_ns[r] for r in rows), max(spans.end_ns[r] for r in rows)
        assert split.total_ns == (~busy[first:last]).sum()
    end_ns = spans.end_ns.max(initial=0)
    assert device_idle(spans).total_ns == (ticks(spans, KERNEL, COPY, SET)[:end_ns] == 0).sum()


def calls_of(spans):
    """Return the start of the call of each correlation, by loops."""
    return {spans.correlation[r]: spans.start_ns[r] for r in reversed(range(len(spans))) if spans.kind[r] in CALLS}


def shortest_launch_ns(spans):
    """Return the shortest latency of a kernel whose call found its stream empty, by loops; 0 where there is none."""
    start_ns, found = spans.start_ns, []
    device = [row for row in range(len(spans)) if spans.kind[row] in (KERNEL, COPY, SET)]
    for key, call_ns in calls_of(spans).items():
        first_ns = min((start_ns[row] for row in device if spans.correlation[row] == key), default=None)
        for row in device:
            before = [spans.end_ns[r] for r in device if spans.lane[r] == spans.lane[row] and start_ns[r] < start_ns[row]]
            first = spans.correlation[row] == key and start_ns[row] == first_ns and spans.kind[row] == KERNEL
            if first and max(before, default=call_ns) <= call_ns <= first_ns:
                found.append(first_ns - call_ns)
    return min(found, default=0)


def cause_at(time_ns, gap, call_ns, launch_ns, short_ns):
    """Return the cause of one nanosecond of a gap, by its definition."""
    start_ns, end_ns = gap
    if call_ns is None:
        return IdleCause.OTHER
    if time_ns < call_ns:
        return IdleCause.HOST_WAIT
    if time_ns < call_ns + launch_ns:
        return IdleCause.LAUNCH
    return IdleCause.KERNEL_WAIT if call_ns <= start_ns and end_ns - start_ns < short_ns else IdleCause.OTHER


@given(st.from_type(SpanTable), st.sampled_from([None, 3]))
def test_causes_against_a_loop_over_nanoseconds(spans, launch_ns):
    calls = calls_of(spans)
    longest_ns = shortest_launch_ns(spans) if launch_ns is None else launch_ns
    gaps = stream_gaps(spans, kernel_wait_below_ns=5, launch_ns=launch_ns)
    found = {
        (lane, time_ns): IdleCause(cause)
        for lane, start_ns, end_ns, cause in zip(gaps.lane, gaps.start_ns, gaps.end_ns, gaps.cause, strict=True)
        for time_ns in range(start_ns, end_ns)
    }
    expected = {}
    for lane in range(len(spans.lanes)):
        before_ns = None
        for row in range(len(spans)):
            if spans.lane[row] != lane or spans.kind[row] not in (KERNEL, COPY, SET):
                continue
            at_once = (spans.lane == lane) & (spans.start_ns == spans.start_ns[row]) & (spans.kind >= KERNEL)
            known = [calls[key] for key in spans.correlation[at_once] if key in calls]
            gap, call_ns = (before_ns, spans.start_ns[row]), min(known, default=None)
            for time_ns in range(*gap) if before_ns is not None else ():
                expected[lane, time_ns] = cause_at(time_ns, gap, call_ns, longest_ns, 5)
            before_ns = max(spans.end_ns[row], spans.end_ns[row] if before_ns is None else before_ns)
    assert found == expected


@given(st.from_type(SpanTable))
def test_without_launches_gaps_are_whole_as_in_holistic_trace_analysis(spans):
    calls = calls_of(spans)
    gaps = stream_gaps(spans, kernel_wait_below_ns=5, launch_ns=0)
    for lane, start_ns, end_ns, cause in zip(gaps.lane, gaps.start_ns, gaps.end_ns, gaps.cause, strict=True):
        ended_by = [
            r for r in range(len(spans)) if spans.lane[r] == lane and spans.start_ns[r] == end_ns and spans.kind[r] in (KERNEL, COPY, SET)
        ]
        called = {calls.get(spans.correlation[r]) for r in ended_by}
        in_time = IdleCause.KERNEL_WAIT if end_ns - start_ns < 5 else IdleCause.OTHER
        assert cause in {IdleCause.OTHER if call is None else IdleCause.HOST_WAIT if call > start_ns else in_time for call in called}


def test_each_cause_by_hand(make_trace):
    spans = make_trace(
        (LAUNCH, "host", 0, 3, 0), (KERNEL, "main", 10, 20, 0),
        (LAUNCH, "host", 26, 28, 1), (KERNEL, "main", 34, 40, 1),  # called 6 after the stream had run dry, 8 on its way
        (LAUNCH, "host", 38, 39, 2), (KERNEL, "main", 50, 52, 2),  # called 2 before: 6 on its way, then 4 of kernel wait
        (LAUNCH, "host", 39, 40, 3), (KERNEL, "main", 92, 95, 3),  # long under way, gap of 40: other
        (KERNEL, "main", 96, 99, -1),  # launch unknown: other, 1
        (LAUNCH, "host", 100, 102, 5), (KERNEL, "main", 111, 113, 5),  # called 1 after, 8 on its way, and 3 more: other
        (LAUNCH, "host", 40, 41, 4), (COPY, "aux", 60, 70, 4),  # another stream: splits the device's gap, not main's
        (SYNC, "host", 102, 120, -1),
    ).spans  # fmt: skip
    assert launch_overhead_ns(spans).min() == 8
    found = idle_by_stream(spans, kernel_wait_below_ns=30)
    assert found == {"main": IdleSplit(6 + 1, 8 + 6 + 8, 4, 40 + 1 + 3), "aux": IdleSplit(0, 0, 0, 0)}
    # The device: 8 and 2 before the first, which was called at 0; the gaps of 8 and 22 around the copy are short; 7 at the end.
    assert device_idle(spans, kernel_wait_below_ns=30) == IdleSplit(6 + 1, 8 + 8 + 6 + 8, 2 + 4 + 8 + 22, 1 + 3 + 7)
    assert device_idle(spans, kernel_wait_below_ns=30, begin_ns=-5).host_wait_ns == 5 + 6 + 1
    gaps = device_gaps(spans, kernel_wait_below_ns=30)
    assert (gaps.start_ns.tolist(), gaps.end_ns.tolist()) == (
        [0, 8, 20, 26, 40, 46, 52, 70, 95, 99, 100, 108, 113],
        [8, 10, 26, 34, 46, 50, 60, 92, 96, 100, 108, 111, 120],
    )
    assert set(gaps.lane.tolist()) == {-1}


def test_what_was_launched_early_and_ran_late_does_not_wait_for_the_host():
    # Two calls at 0 and 50 µs. The second kernel runs at 463 ms: the host waited 35 µs with its call, and 10 µs it was on its way.
    spans = ss.read(CASES / "launched_early_ran_late.json").spans
    device = device_idle(spans)
    assert (device.host_wait_ns, device.launch_ns, device.kernel_wait_ns) == (35_000, 10_000 + 10_000, 0)
    assert device.other_ns == 463_300_000 - 60_000 + 5_000  # and until the host noticed the end
    assert idle_by_stream(spans) == {"stream 7": IdleSplit(35_000, 10_000, 0, 463_240_000)}
    assert launch_latency_ns(spans).tolist() == [10_000, 463_250_000, 463_245_000]
    assert launch_overhead_ns(spans).tolist() == [10_000]
    assert device_idle(spans, launch_ns=0).host_wait_ns == 463_285_000  # Holistic Trace Analysis: the whole gap


def test_the_device_waits_for_the_host_before_its_first_kernel_only_until_that_is_called(make_trace):
    spans = make_trace(
        (SYNC, "host", 0, 2_000, -1),
        (LAUNCH, "host", 2_100, 2_105, 0), (KERNEL, "main", 151_000, 151_010, 0),
        (LAUNCH, "host", 151_020, 151_025, 1), (KERNEL, "main", 151_026, 151_030, 1),
    ).spans  # fmt: skip
    assert device_idle(spans) == IdleSplit(2_100 + 10, 6 + 6, 0, 151_000 - 2_106)


def test_a_program_that_is_launch_bound_waits_for_its_launches(make_trace):
    # A launch every 3 ns takes 7 ns until its kernel of 1 ns runs: each is called before the one before has even begun.
    rows = [row for k in range(5) for row in ((LAUNCH, "host", 3 * k, 3 * k + 3, k), (KERNEL, "main", 3 * k + 7, 3 * k + 8, k))]
    spans = make_trace(*rows).spans
    assert idle_by_stream(spans)["main"] == IdleSplit(0, 4 * 2, 0, 0)
    assert device_idle(spans) == IdleSplit(0, 7 + 4 * 2, 0, 0)
    # Holistic Trace Analysis asks only whether the call had begun.
    assert idle_by_stream(spans, launch_ns=0)["main"] == IdleSplit(0, 0, 4 * 2, 0)


def test_a_call_that_begins_as_its_gap_does_is_in_time(make_trace):
    rows = (LAUNCH, "host", 0, 1, 0), (KERNEL, "main", 6, 10, 0), (LAUNCH, "host", 10, 11, 1), (KERNEL, "main", 18, 20, 1)
    spans = make_trace(*rows).spans
    assert idle_by_stream(spans)["main"] == IdleSplit(0, 6, 2, 0)
    assert idle_by_stream(spans, launch_ns=0)["main"] == IdleSplit(0, 0, 8, 0)


def test_what_has_reached_the_device_does_not_wait_for_the_host(make_trace):
    # The host is far ahead from the second kernel on; in the graph, all nodes were there when the first began.
    spans = make_trace(
        (LAUNCH, "host", 0, 3, 0), (KERNEL, "main", 5, 30, 0),
        (LAUNCH, "host", 3, 6, 1), (KERNEL, "main", 31, 60, 1),
        (GRAPH_LAUNCH, "host", 6, 8, 2), (KERNEL, "main", 62, 70, 2), (KERNEL, "main", 71, 80, 2),
    ).spans  # fmt: skip
    assert idle_by_stream(spans)["main"] == IdleSplit(0, 0, 1 + 2 + 1, 0)


def test_clocks_that_disagree_make_no_negative_time(make_trace):
    rows = (LAUNCH, "host", 8, 9, 0), (KERNEL, "main", 5, 10, 0), (LAUNCH, "host", 20, 21, 1), (KERNEL, "main", 18, 30, 1)
    spans = make_trace(*rows).spans
    assert launch_overhead_ns(spans).tolist() == [-3, -2]
    assert device_idle(spans) == IdleSplit(5 + 8, 0, 0, 0)


def test_one_kernel_before_its_call_does_not_decide_for_all(make_trace):
    # 100 launches of 8 µs; the clocks place one kernel before its call, by little or by more than a late kernel is late.
    for early_ns in (100, 5_000, 95_000):
        rows = [r for k in range(100) for r in ((LAUNCH, "host", k * 200_000, k * 200_000 + 3_000, k),
                                                (KERNEL, "main", k * 200_000 + 8_000, k * 200_000 + 20_000, k))]  # fmt: skip
        rows[101] = (KERNEL, "main", 50 * 200_000 - early_ns, 50 * 200_000, 50)
        spans = make_trace(*rows).spans
        assert sorted(launch_overhead_ns(spans).tolist()) == [-early_ns, *[8_000] * 99]
        assert device_idle(spans).launch_ns == 99 * 8_000
        assert idle_by_stream(spans)["main"].launch_ns == 98 * 8_000  # The first has no gap before it.


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_of_several_that_begin_at_once_the_first_that_was_called_ended_the_wait(make_trace, order):
    at_once = [(KERNEL, "main", 60, 70, 1), (KERNEL, "aux", 60, 72, 2), (COPY, "copy", 60, 65, -1)]
    spans = make_trace(
        (LAUNCH, "host", 0, 3, 0), (KERNEL, "main", 5, 10, 0), (LAUNCH, "host", 6, 8, 1), (LAUNCH, "host", 50, 53, 2),
        *(at_once[index] for index in order),
    ).spans  # fmt: skip
    # Called at 6, in the queue as the gap from 10 to 60 began; until 11 on its way.
    assert device_idle(spans) == IdleSplit(0, 5 + 1, 49, 0)
    assert device_idle(spans, launch_ns=0) == IdleSplit(0, 0, 5 + 50, 0)


@given(st.from_type(SpanTable), st.integers(0, 2**32 - 1), st.sampled_from([None, 0, 3]))
def test_the_order_of_rows_that_begin_at_once_changes_nothing(spans, seed, launch_ns):
    other = spans.select(np.lexsort((np.random.default_rng(seed).random(len(spans)), spans.start_ns)))
    assert device_idle(other, launch_ns=launch_ns) == device_idle(spans, launch_ns=launch_ns)
    assert idle_by_stream(other, launch_ns=launch_ns) == idle_by_stream(spans, launch_ns=launch_ns)
    assert sorted(launch_overhead_ns(other).tolist()) == sorted(launch_overhead_ns(spans).tolist())


def test_a_short_span_inside_a_long_one_opens_no_gap(make_trace):
    spans = make_trace(
        (KERNEL, "main", 0, 100, -1), (KERNEL, "main", 10, 20, -1), (KERNEL, "main", 110, 120, -1), basis=Basis.DERIVED
    ).spans
    assert idle_by_stream(spans)["main"].total_ns == 10


def test_only_the_host_ran(make_trace):
    assert device_idle(make_trace((HOST, "host", 0, 50, -1)).spans) == IdleSplit(0, 0, 0, 50)
    assert device_idle(make_trace().spans) == IdleSplit(0, 0, 0, 0)
    assert idle_by_stream(make_trace().spans) == {}
