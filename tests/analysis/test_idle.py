"""Idle time and its causes."""

from hypothesis import given
from hypothesis import strategies as st

from streamscope.analysis import IdleCause, IdleSplit, device_gaps, device_idle, idle_by_stream, stream_gaps
from streamscope.trace import Basis, SpanKind, SpanTable

LAUNCH, GRAPH_LAUNCH, KERNEL, COPY, SET, HOST, SYNC = (
    SpanKind[name] for name in ("LAUNCH", "GRAPH_LAUNCH", "KERNEL", "COPY", "SET", "HOST", "SYNC")
)  # fmt: skip
CALLS = (LAUNCH, GRAPH_LAUNCH)


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


def arrivals(spans, launch_ns):
    """When the work of each correlation was on the device, by loops: its call, and as long as the quickest took."""
    calls = {spans.correlation[r]: spans.start_ns[r] for r in range(len(spans)) if spans.kind[r] in CALLS}
    rows = [row for row in range(len(spans)) if spans.kind[row] in (KERNEL, COPY, SET) and spans.correlation[row] in calls]
    quickest = min((spans.start_ns[row] - calls[spans.correlation[row]] for row in rows), default=0)
    return {key: start_ns + (max(0, quickest) if launch_ns is None else launch_ns) for key, start_ns in calls.items()}


@given(st.from_type(SpanTable), st.sampled_from([None, 0, 3]))
def test_causes_against_loops(spans, launch_ns):
    calls = arrivals(spans, launch_ns)
    gaps = stream_gaps(spans, kernel_wait_below_ns=5, launch_ns=launch_ns)
    for lane, start_ns, end_ns, cause in zip(gaps.lane, gaps.start_ns, gaps.end_ns, gaps.cause, strict=True):
        ended_by = [
            r for r in range(len(spans)) if spans.lane[r] == lane and spans.start_ns[r] == end_ns and spans.kind[r] in (KERNEL, COPY, SET)
        ]
        called = {calls.get(spans.correlation[r]) for r in ended_by}
        in_time = IdleCause.KERNEL_WAIT if end_ns - start_ns < 5 else IdleCause.OTHER
        expected = {IdleCause.OTHER if call is None else IdleCause.HOST_WAIT if call >= start_ns else in_time for call in called}
        assert cause in expected


def test_each_cause_by_hand(make_trace):
    spans = make_trace(
        (LAUNCH, "host", 0, 3, 0), (KERNEL, "main", 10, 20, 0),
        (LAUNCH, "host", 20, 23, 1), (KERNEL, "main", 30, 40, 1),  # called when the stream had just run dry: host wait, 10
        (LAUNCH, "host", 23, 26, 2), (KERNEL, "main", 44, 50, 2),  # called in time, gap of 4: kernel wait
        (LAUNCH, "host", 26, 29, 3), (KERNEL, "main", 90, 95, 3),  # called in time, gap of 40: other
        (KERNEL, "main", 96, 99, -1),  # launch unknown: other, 1
        (LAUNCH, "host", 29, 30, 4), (COPY, "aux", 60, 70, 4),  # another stream: splits the device's gap, not main's
        (SYNC, "host", 30, 120, -1),
    ).spans  # fmt: skip
    assert idle_by_stream(spans, kernel_wait_below_ns=30) == {"main": IdleSplit(10, 4, 41), "aux": IdleSplit(0, 0, 0)}
    # The device: before the first launch has run, 10, and after the last end, 21, too; 50 to 60 and 70 to 90 are short now.
    assert device_idle(spans, kernel_wait_below_ns=30) == IdleSplit(10 + 10, 4 + 10 + 20, 1 + 21)
    gaps = device_gaps(spans, kernel_wait_below_ns=30)
    assert (gaps.start_ns.tolist(), gaps.end_ns.tolist()) == ([0, 20, 40, 50, 70, 95, 99], [10, 30, 44, 60, 90, 96, 120])
    assert set(gaps.lane.tolist()) == {-1}


def test_a_program_that_is_launch_bound_waits_for_the_host(make_trace):
    # A launch every 3 us takes 7 us until its kernel of 1 us runs: each is called before the one before has even begun.
    rows = [row for k in range(5) for row in ((LAUNCH, "host", 3 * k, 3 * k + 3, k), (KERNEL, "main", 3 * k + 7, 3 * k + 8, k))]
    spans = make_trace(*rows).spans
    assert idle_by_stream(spans)["main"] == IdleSplit(4 * 2, 0, 0)
    assert device_idle(spans) == IdleSplit(7 + 4 * 2, 0, 0)
    # Holistic Trace Analysis asks only whether the call had begun.
    assert idle_by_stream(spans, launch_ns=0)["main"] == IdleSplit(0, 4 * 2, 0)


def test_what_has_reached_the_device_does_not_wait_for_the_host(make_trace):
    # The host is far ahead from the second kernel on; in the graph, all nodes were there when the first began.
    spans = make_trace(
        (LAUNCH, "host", 0, 3, 0), (KERNEL, "main", 5, 30, 0),
        (LAUNCH, "host", 3, 6, 1), (KERNEL, "main", 31, 60, 1),
        (GRAPH_LAUNCH, "host", 6, 8, 2), (KERNEL, "main", 62, 70, 2), (KERNEL, "main", 71, 80, 2),
    ).spans  # fmt: skip
    assert idle_by_stream(spans)["main"] == IdleSplit(0, 1 + 2 + 1, 0)


def test_a_short_span_inside_a_long_one_opens_no_gap(make_trace):
    spans = make_trace(
        (KERNEL, "main", 0, 100, -1), (KERNEL, "main", 10, 20, -1), (KERNEL, "main", 110, 120, -1), basis=Basis.DERIVED
    ).spans
    assert idle_by_stream(spans)["main"].total_ns == 10


def test_only_the_host_ran(make_trace):
    assert device_idle(make_trace((HOST, "host", 0, 50, -1)).spans) == IdleSplit(0, 0, 50)
    assert device_idle(make_trace().spans) == IdleSplit(0, 0, 0)
    assert idle_by_stream(make_trace().spans) == {}
