"""Short and late kernels, empty and full queues: by hand and by loops."""

from hypothesis import given
from hypothesis import strategies as st

from streamscope.analysis import late_kernels, launch_overhead_ns, queue_full_ns, short_kernels
from streamscope.trace import SpanBuilder, SpanKind, SpanTable

LAUNCH, GRAPH_LAUNCH, KERNEL, COPY, SET = (SpanKind[name] for name in ("LAUNCH", "GRAPH_LAUNCH", "KERNEL", "COPY", "SET"))


def pairs(spans):
    """Kernels with the launch of their own, by loops: rows of both."""
    calls = {}
    for row in range(len(spans)):
        if spans.kind[row] in (LAUNCH, GRAPH_LAUNCH) and spans.correlation[row] >= 0:
            calls.setdefault(spans.correlation[row], row)
    rows = [row for row in range(len(spans)) if spans.kind[row] == KERNEL and spans.correlation[row] in calls]
    return [(row, calls[spans.correlation[row]]) for row in rows if spans.kind[calls[spans.correlation[row]]] == LAUNCH]


@given(spans=st.from_type(SpanTable))
def test_short_and_late_kernels_against_loops(spans):
    found = pairs(spans)
    lengths = spans.duration_ns
    assert short_kernels(spans).tolist() == [kernel for kernel, call in found if lengths[kernel] < lengths[call]]
    assert late_kernels(spans, above_ns=9).tolist() == [k for k, call in found if spans.start_ns[k] - spans.end_ns[call] > 9]


def test_a_launch_into_an_empty_queue(make_trace):
    spans = make_trace(
        (LAUNCH, "host", 0, 3, 0), (KERNEL, "main", 7, 20, 0),  # nothing before: 7
        (LAUNCH, "host", 10, 13, 1), (KERNEL, "main", 22, 30, 1),  # called while the first was under way
        (LAUNCH, "host", 14, 16, 2), (KERNEL, "aux", 20, 25, 2),  # another stream: 6
        (LAUNCH, "host", 30, 33, 3), (KERNEL, "main", 38, 40, 3), (KERNEL, "main", 40, 42, 3),  # 8, and one launch of two kernels
        (LAUNCH, "host", 42, 44, 4), (COPY, "aux", 50, 60, 4),  # a copy is none of a kernel
        (KERNEL, "main", 60, 61, -1),
    ).spans  # fmt: skip
    assert sorted(launch_overhead_ns(spans).tolist()) == [6, 7, 8]


def test_a_launch_that_waits_for_something_else_is_none_into_an_empty_queue(make_trace):
    spans = make_trace(
        (LAUNCH, "host", 0, 3_000, 0), (KERNEL, "main", 6_000, 9_000, 0),
        (LAUNCH, "host", 10_000, 13_000, 1), (KERNEL, "main", 116_000, 117_000, 1),  # 100 µs later after its call than the first, and
        (LAUNCH, "host", 120_000, 123_000, 2), (KERNEL, "main", 226_001, 228_000, 2),  # one nanosecond too much
        (LAUNCH, "host", 300_000, 523_000, 3), (KERNEL, "main", 526_000, 528_000, 3),  # a long call, and no wait
    ).spans  # fmt: skip
    assert launch_overhead_ns(spans).tolist() == [6_000, 106_000, 226_000]


def test_a_long_call_makes_no_other_launch_late(make_trace):
    spans = make_trace(
        (LAUNCH, "host", 0, 300_000, 0), (KERNEL, "main", 6_000, 9_000, 0),  # begins within its call
        (LAUNCH, "host", 400_000, 403_000, 1), (KERNEL, "main", 407_000, 409_000, 1),
        (LAUNCH, "host", 500_000, 503_000, 2), (KERNEL, "main", 603_001, 604_000, 2),
    ).spans  # fmt: skip
    assert launch_overhead_ns(spans).tolist() == [6_000, 7_000]


def test_a_kernel_before_its_call_is_not_the_quickest(make_trace):
    spans = make_trace(
        (LAUNCH, "host", 1_000, 3_000, 0), (KERNEL, "main", 900, 2_000, 0),
        (LAUNCH, "host", 10_000, 13_000, 1), (KERNEL, "main", 133_000, 134_000, 1),  # where each launch takes long, none is late
        (LAUNCH, "host", 200_000, 203_000, 2), (KERNEL, "main", 324_000, 325_000, 2),
    ).spans  # fmt: skip
    assert launch_overhead_ns(spans).tolist() == [-100, 123_000, 124_000]


def test_a_replay_is_one_launch_on_however_many_streams_its_nodes_run(make_trace):
    spans = make_trace(
        (GRAPH_LAUNCH, "host", 0, 3, 0), (KERNEL, "main", 7, 20, 0), (KERNEL, "aux", 20, 25, 0),
    ).spans  # fmt: skip
    assert launch_overhead_ns(spans).tolist() == [7]


def test_a_full_queue():
    builder = SpanBuilder(["host", "main", "aux"])
    for number in range(40):  # a launch each 10 ns, a kernel each 20 ns
        builder.add(LAUNCH, "call", "host", 10 * number, 10 * number + 5, correlation=number)
        builder.add(KERNEL, "k", "main", 20 * number + 5, 20 * number + 25, correlation=number)
    builder.add(LAUNCH, "call", "host", 400, 405, correlation=40)
    builder.add(KERNEL, "k", "aux", 410, 420, correlation=40)
    spans = builder.build()
    # 20 are under way from the 39th call, at 380, until the 20th kernel begins at 385, and again from 390 to 405.
    assert queue_full_ns(spans, limit=20) == {"main": 5 + 15}
    assert queue_full_ns(spans) == {}


def test_a_queue_is_full_with_as_many_as_its_limit(make_trace):
    spans = make_trace(
        (LAUNCH, "host", 0, 3, 0), (KERNEL, "main", 20, 25, 0), (LAUNCH, "host", 10, 13, 1), (KERNEL, "main", 30, 35, 1),
    ).spans  # fmt: skip
    assert queue_full_ns(spans, limit=2) == {"main": 10}
    assert queue_full_ns(spans, limit=3) == {}
