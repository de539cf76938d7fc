"""Launch latency, queue time and queue length."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.analysis import api_time_ns, join_launches, launch_latency_ns, missing_records, queue_length, queue_time_ns
from streamscope.analysis.launches import call_rows
from streamscope.trace import SpanKind, SpanTable

LAUNCH, GRAPH_LAUNCH, EVENT, KERNEL, COPY, SET = (
    SpanKind[name] for name in ("LAUNCH", "GRAPH_LAUNCH", "EVENT", "KERNEL", "COPY", "SET")
)  # fmt: skip
CALLS, WORK = (LAUNCH, GRAPH_LAUNCH), (KERNEL, COPY, SET)


def joined(spans, kinds, in_graphs=None):
    """Reference by loops: (call, first span on the device), each as (start, end, lane), for each correlation that has both."""
    pairs = []
    for key in sorted({int(key) for key in spans.correlation if key >= 0}):
        rows = [row for row in range(len(spans)) if spans.correlation[row] == key]
        wanted = in_graphs if in_graphs and any(spans.kind[row] == GRAPH_LAUNCH for row in rows) else kinds
        call, work = ([(spans.start_ns[r], spans.end_ns[r], spans.lane[r]) for r in rows if spans.kind[r] in of] for of in (CALLS, wanted))
        if call and work:
            pairs.append((call[0], min(work, key=lambda span: span[0])))
    return pairs


@given(spans=st.from_type(SpanTable))
def test_latency_and_queue_time_against_loops(spans):
    pairs = joined(spans, (KERNEL,), in_graphs=WORK)
    assert launch_latency_ns(spans).tolist() == [work[0] - call[0] for call, work in pairs]
    assert queue_time_ns(spans).tolist() == [work[0] - call[1] for call, work in pairs if work[0] > call[1]]


@given(spans=st.from_type(SpanTable))
def test_correlations_need_not_be_small(spans):
    far = replace(spans, correlation=np.where(spans.correlation < 0, -1, spans.correlation.astype(np.int64) * 100_000_003))
    assert launch_latency_ns(far).tolist() == launch_latency_ns(spans).tolist()
    assert missing_records(far) == missing_records(spans)
    assert call_rows(far, np.arange(len(far))).tolist() == call_rows(spans, np.arange(len(spans))).tolist()


@given(st.from_type(SpanTable), st.sampled_from([None, "main", "aux", "absent"]))
def test_queue_length_against_a_count_for_each_nanosecond(spans, lane):
    expected = np.zeros(64, int)
    for call, work in joined(spans, WORK):
        if lane is None or spans.lanes[work[2]] == lane:
            expected[call[0] : max(call[0], work[0])] += 1
    if lane is not None and any(a[0] == b[0] and a[2] != b[2] for _, a in joined(spans, WORK) for _, b in joined(spans, WORK)):
        return  # two streams begin a replay at the same time: either may count as the first
    steps = queue_length(spans, lane)
    at = np.searchsorted(steps.time_ns, np.arange(64), side="right") - 1
    found = np.where(at >= 0, steps.value[at] if len(steps.value) else 0, 0)
    assert found.tolist() == expected.tolist()


def test_by_hand(make_trace):
    spans = make_trace(
        (LAUNCH, "host", 0, 3, 0), (KERNEL, "main", 10, 20, 0),
        (EVENT, "host", 3, 4, -1),
        (LAUNCH, "host", 4, 8, 1), (KERNEL, "main", 20, 25, 1),
        (LAUNCH, "host", 8, 30, 2), (COPY, "copy", 28, 40, 2),
    ).spans  # fmt: skip
    assert launch_latency_ns(spans).tolist() == [10, 16]
    assert queue_time_ns(spans).tolist() == [7, 12]
    assert api_time_ns(spans) == 3 + 4 + 22
    steps = queue_length(spans)
    assert list(zip(steps.time_ns.tolist(), steps.value.tolist(), strict=True)) == [(0, 1), (4, 2), (8, 3), (10, 2), (20, 1), (28, 0)]


def test_a_graph_replay_is_one_launch_measured_to_its_first_kernel(make_trace):
    spans = make_trace(
        (GRAPH_LAUNCH, "host", 0, 2, 5), (KERNEL, "main", 9, 12, 5), (KERNEL, "aux", 7, 30, 5), (KERNEL, "main", 12, 15, 5)
    ).spans
    assert launch_latency_ns(spans).tolist() == [7]
    assert queue_length(spans).value.tolist() == [1, 0]
    assert join_launches(spans).lane.tolist() == [spans.lanes.index("aux")]


def test_a_replay_that_begins_with_a_copy_is_measured_to_the_copy_and_the_launch_of_a_copy_is_none_of_a_kernel(make_trace):
    spans = make_trace(
        (GRAPH_LAUNCH, "host", 0, 2, 5), (COPY, "copy", 6, 20, 5), (KERNEL, "main", 21, 30, 5),
        (LAUNCH, "host", 2, 4, 6), (COPY, "copy", 30, 40, 6),
    ).spans  # fmt: skip
    assert launch_latency_ns(spans).tolist() == [6]
    assert queue_time_ns(spans).tolist() == [4]


def test_missing_halves_are_counted(make_trace):
    spans = make_trace(
        (LAUNCH, "host", 0, 2, 0),
        (KERNEL, "main", 3, 4, 0),
        (LAUNCH, "host", 2, 4, 1),
        (KERNEL, "main", 5, 6, 2),
        (KERNEL, "main", 6, 7, -1),
    ).spans
    missing = missing_records(spans)
    assert (missing.calls, missing.device) == (1, 2)


def test_an_empty_trace(make_trace):
    spans = make_trace().spans
    assert len(launch_latency_ns(spans)) == len(queue_time_ns(spans)) == len(queue_length(spans).time_ns) == api_time_ns(spans) == 0


@pytest.mark.parametrize("start_ns", [4, 0])
def test_a_kernel_that_seems_to_start_before_its_call_leaves_the_queue_at_once(make_trace, start_ns):
    spans = make_trace((LAUNCH, "host", 5, 8, 0), (KERNEL, "main", start_ns, 20, 0)).spans
    assert launch_latency_ns(spans).tolist() == [start_ns - 5]
    assert queue_length(spans).value.tolist() == [0]
