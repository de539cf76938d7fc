"""The critical path, by hand and against a reference that looks at one span after the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.analysis import Bound, critical_path, launch_overhead_ns, span_ns
from streamscope.trace import Basis, DeviceInfo, Origins, SpanBuilder, SpanKind, SpanTable, Trace, TraceInfo

LAUNCH, GRAPH_LAUNCH, EVENT, SYNC, HOST, API, RANGE, KERNEL, COPY, SET, GRAPH = (
    SpanKind[name] for name in ("LAUNCH", "GRAPH_LAUNCH", "EVENT", "SYNC", "HOST", "API", "RANGE", "KERNEL", "COPY", "SET", "GRAPH")
)  # fmt: skip
CARD = DeviceInfo("cuda", "card")


def traced(rows, waits=(), complete=True):
    """A trace of rows (kind, lane, start, end, operation, correlation)."""
    builder = SpanBuilder(["host", "main", "aux", "copy in"])
    for kind, lane, start, end, operation, correlation in rows:
        builder.add(kind, kind.name, lane, start, end, operation=operation, correlation=correlation)
    origins = Origins(waits=np.array([(a, 0, b, 0) for a, b in waits]).reshape(-1, 4).astype(int), complete=complete)
    return Trace(builder.build(), TraceInfo("dual", "p", CARD), origins)


def told(trace):
    path = critical_path(trace)
    return [(int(start), int(end), Bound(bound).name) for start, end, bound in zip(path.start_ns, path.end_ns, path.bound, strict=True)]


LAUNCHED = [
    (LAUNCH, "host", 0, 3, 0, 0), (LAUNCH, "host", 3, 6, 1, 1), (LAUNCH, "host", 6, 9, 2, 2),
    (KERNEL, "main", 5, 50, 0, 0), (KERNEL, "aux", 8, 20, 1, 1),
]  # fmt: skip


def test_a_kernel_follows_its_stream():
    trace = traced([*LAUNCHED, (KERNEL, "main", 52, 60, 2, 2), (SYNC, "host", 9, 65, -1, -1)])
    assert told(trace) == [(0, 5, "LAUNCH"), (5, 50, "KERNEL"), (50, 52, "GAP"), (52, 60, "KERNEL"), (60, 65, "HOST")]


@pytest.mark.parametrize(("waits", "first"), [([(0, 2)], 5), ([(0, 2), (1, 2)], 5)])
def test_a_kernel_follows_the_last_that_its_stream_waited_for(waits, first):
    """On aux after a kernel of aux that ended long before: only the event wait explains why it starts at 52."""
    trace = traced([*LAUNCHED, (KERNEL, "aux", 52, 60, 2, 2)], waits)
    assert told(trace) == [(0, first, "LAUNCH"), (5, 50, "KERNEL"), (50, 52, "GAP"), (52, 60, "KERNEL")]
    assert critical_path(trace).complete


def test_without_its_waits_a_trace_of_two_streams_says_that_they_are_missing():
    trace = traced([*LAUNCHED, (KERNEL, "aux", 52, 60, 2, 2)], complete=False)
    assert told(trace) == [(0, 3, "HOST"), (3, 8, "LAUNCH"), (8, 20, "KERNEL"), (20, 52, "GAP"), (52, 60, "KERNEL")]
    assert critical_path(trace).words == "gaps 53 %, kernels 33 %, launches 8 % and host 5 %; this trace does not tell event waits"


def test_one_stream_needs_no_waits():
    assert critical_path(traced([(KERNEL, "main", 0, 10, 0, -1)], complete=False)).words == "kernels 100 %"


def test_a_launch_that_comes_late_leads_to_the_host():
    """The second call begins after the first kernel, and the shortest latency of the trace is 5."""
    rows = [(LAUNCH, "host", 0, 3, 0, 0), (KERNEL, "main", 5, 10, 0, 0), (HOST, "host", 4, 30, 1, -1), (LAUNCH, "host", 31, 34, 2, 2)]
    trace = traced([*rows, (KERNEL, "main", 36, 40, 2, 2)])
    assert told(trace) == [
        (0, 3, "HOST"), (3, 4, "HOST"), (4, 30, "HOST"), (30, 31, "HOST"), (31, 36, "LAUNCH"), (36, 40, "KERNEL"),
    ]  # fmt: skip


def test_a_host_function_follows_the_copy_that_it_waited_for():
    """Another copy ended within the wait, later than the one that the function needs, but before the wait was over."""
    rows = [
        (LAUNCH, "host", 0, 3, 0, 0), (COPY, "copy in", 5, 25, 0, 0), (LAUNCH, "host", 3, 6, 1, 1), (KERNEL, "main", 8, 27, 1, 1),
        (SYNC, "host", 6, 28, -1, -1), (HOST, "host", 28, 40, 2, -1),
    ]  # fmt: skip
    assert told(traced(rows, [(0, 2)])) == [(0, 5, "LAUNCH"), (5, 25, "COPY"), (25, 28, "HOST"), (28, 40, "HOST")]
    assert told(traced(rows))[-3:] == [(8, 27, "KERNEL"), (27, 28, "HOST"), (28, 40, "HOST")]


def test_a_host_function_that_need_not_wait_follows_the_host():
    rows = [
        (LAUNCH, "host", 0, 3, 0, 0), (COPY, "copy in", 5, 6, 0, 0), (HOST, "host", 10, 18, 1, -1), (SYNC, "host", 18, 19, -1, -1),
        (HOST, "host", 19, 40, 2, -1),
    ]  # fmt: skip
    assert {bound for _, _, bound in told(traced(rows, [(0, 2)]))} == {"HOST"}


def test_a_graph_is_one_launch():
    rows = [
        (GRAPH_LAUNCH, "host", 0, 3, -1, 0), (GRAPH, "main", 5, 30, -1, 0), (KERNEL, "main", 5, 10, 0, 0), (KERNEL, "aux", 12, 20, 1, 0),
        (KERNEL, "main", 21, 30, 2, 0), (SYNC, "host", 3, 33, -1, -1),
    ]  # fmt: skip
    assert told(traced(rows, [(0, 1), (1, 2)])) == [
        (0, 5, "LAUNCH"), (5, 10, "KERNEL"), (10, 12, "GAP"), (12, 20, "KERNEL"), (20, 21, "GAP"), (21, 30, "KERNEL"), (30, 33, "HOST"),
    ]  # fmt: skip


def test_an_empty_trace_has_no_path():
    path = critical_path(traced([]))
    assert (path.length_ns, path.words, len(path.span)) == (0, "", 0)


def test_one_kernel_before_its_call_does_not_hide_the_launches():
    """Called at 21, the kernel was on its way for 5 as the others are, and the one before it ended at 24: it came in between."""
    rows = [
        (LAUNCH, "host", 0, 3, 0, 0), (KERNEL, "main", 5, 10, 0, 0), (LAUNCH, "host", 13, 15, 1, 1), (KERNEL, "main", 12, 24, 1, 1),
        (LAUNCH, "host", 21, 23, 2, 2), (KERNEL, "main", 26, 40, 2, 2),
    ]  # fmt: skip
    assert told(traced(rows))[-2:] == [(21, 26, "LAUNCH"), (26, 40, "KERNEL")]


def test_a_host_function_follows_the_kernel_in_the_first_row():
    assert told(traced([(KERNEL, "main", 0, 10, 0, -1), (HOST, "host", 12, 20, 1, -1)], [(0, 1)])) == [
        (0, 10, "KERNEL"), (10, 12, "HOST"), (12, 20, "HOST"),
    ]  # fmt: skip


def test_a_host_function_that_need_not_wait_follows_the_host_in_the_first_row():
    rows = [(HOST, "host", 0, 30, 0, -1), (KERNEL, "main", 5, 20, 1, -1), (HOST, "host", 32, 40, 2, -1)]
    assert told(traced(rows, [(1, 2)])) == [(0, 30, "HOST"), (30, 32, "HOST"), (32, 40, "HOST")]


def test_a_wait_notices_what_ends_with_it():
    rows = [(LAUNCH, "host", 0, 3, 0, 0), (KERNEL, "main", 5, 20, 0, 0), (SYNC, "host", 3, 20, -1, -1), (HOST, "host", 20, 30, 1, -1)]
    assert told(traced(rows)) == [(0, 5, "LAUNCH"), (5, 20, "KERNEL"), (20, 30, "HOST")]


def test_a_wait_that_begins_when_a_kernel_ends_did_not_wait_for_it():
    rows = [(LAUNCH, "host", 0, 3, 0, 0), (KERNEL, "main", 5, 20, 0, 0), (HOST, "host", 3, 20, 1, -1), (SYNC, "host", 20, 22, -1, -1)]
    assert told(traced([*rows, (HOST, "host", 22, 30, 2, -1)])) == [(0, 3, "HOST"), (3, 20, "HOST"), (20, 22, "HOST"), (22, 30, "HOST")]


def slow_path(spans, waits):
    """The definition, one span at a time: (start, end, bound) from the end back."""
    device = [row for row in range(len(spans)) if spans.kind[row] in (KERNEL, COPY, SET)]
    calls = {}
    for row in range(len(spans)):
        if spans.kind[row] in (LAUNCH, GRAPH_LAUNCH) and spans.correlation[row] >= 0:
            calls.setdefault(spans.correlation[row], row)
    shortest = min((latency for latency in launch_overhead_ns(spans) if latency >= 0), default=0)
    place = {}
    for row in reversed(range(len(spans))):
        if spans.kind[row] in (HOST, KERNEL, COPY, SET) and spans.operation[row] >= 0:
            place[int(spans.operation[row])] = row

    def on_lane(row, rows):
        key = [(spans.start_ns[other], spans.end_ns[other], other) for other in rows if spans.lane[other] == spans.lane[row]]
        before = [one for one in key if one < (spans.start_ns[row], spans.end_ns[row], row)]
        return max(before)[2] if before else None

    def before(row):
        """What came before, when the path leaves this span, and when it arrives there."""
        if row in device:
            found = []
            if spans.correlation[row] in calls:
                call = calls[spans.correlation[row]]
                found.append((spans.start_ns[call] + shortest, 0, call, spans.start_ns[call], Bound.LAUNCH))
            if (earlier := on_lane(row, device)) is not None:
                found.append((spans.end_ns[earlier], 1, earlier, spans.end_ns[earlier], Bound.GAP))
            awaited = [place[a] for a, b in waits if place.get(b) == row and a in place]
            found += [(spans.end_ns[a], 2, a, spans.end_ns[a], Bound.GAP) for a in awaited]
            best = max(found, key=lambda one: one[:2], default=None)
            return None if best is None else (best[2], spans.start_ns[row], best[3], best[4])
        earlier = on_lane(row, [other for other in range(len(spans)) if spans.kind[other] < KERNEL])
        return None if earlier is None else (earlier, spans.start_ns[row], spans.end_ns[earlier], Bound.HOST)

    if not len(spans):
        return []
    row = max(range(len(spans)), key=lambda row: (spans.end_ns[row], row))
    now, found, seen = int(spans.end_ns[row]), [], set()
    while row not in seen:
        seen.add(row)
        inside = Bound.KERNEL if spans.kind[row] == KERNEL else Bound.COPY if spans.kind[row] in (COPY, SET) else Bound.HOST
        step = before(row)
        found.append((min(now, int(spans.start_ns[row])), now, inside))
        now = found[-1][0]
        if step is None or step[0] in seen:
            break
        found.append((min(now, int(step[2])), now, step[3]))
        now, row = found[-1][0], step[0]
    return [one for one in reversed(found) if one[0] < one[1]]


@st.composite
def waiting_traces(draw):
    """Small traces whose operations are numbered, with waits between any two of them."""
    spans = draw(st.from_type(SpanTable))
    device = np.isin(spans.kind, [KERNEL, COPY, SET])
    operation = np.where(device, np.cumsum(device) - 1, -1).astype(np.int32)
    spans = SpanTable(**{**vars(spans), "operation": operation})
    numbers = st.integers(0, max(0, int(device.sum()) - 1))
    ends = {int(op): int(spans.end_ns[row]) for row, op in enumerate(operation) if op >= 0}
    waits = draw(st.lists(st.tuples(numbers, numbers), max_size=6))
    # Two that end together are told apart by neither.
    waits = [pair for pair in waits if len({ends.get(a) for a, b in waits if b == pair[1]}) == len({a for a, b in waits if b == pair[1]})]
    return spans, waits


@given(given_trace=waiting_traces())
def test_against_one_span_after_the_other(given_trace):
    spans, waits = given_trace
    origins = Origins(waits=np.array([(a, 0, b, 0) for a, b in waits], int).reshape(-1, 4), complete=True)
    path = critical_path(Trace(spans, TraceInfo("dual", "p", CARD), origins))
    found = [(int(a), int(b), int(bound)) for a, b, bound in zip(path.start_ns, path.end_ns, path.bound, strict=True)]
    assert found == slow_path(spans, waits)
    assert (path.end_ns[:-1] == path.start_ns[1:]).all()
    assert (path.end_ns > path.start_ns).all()
    if path.length_ns:
        assert path.end_ns[-1] == spans.end_ns.max()
    inside = np.isin(path.bound, [Bound.KERNEL, Bound.COPY])
    assert (path.start_ns[inside] >= spans.start_ns[path.span[inside]]).all()
    assert (path.end_ns[inside] <= spans.end_ns[path.span[inside]]).all()
    assert sum(path.time_ns(bound) for bound in Bound) == path.length_ns


def test_clocks_that_disagree_do_not_make_it_run_for_ever():
    """The kernel ends before its own call begins, within a wait before that call: a ring."""
    builder = SpanBuilder(["host", "main"])
    builder.add(KERNEL, "a", "main", 5, 8, correlation=0, basis=Basis.DERIVED)
    builder.add(SYNC, "wait", "host", 6, 9)
    builder.add(LAUNCH, "a", "host", 10, 12, correlation=0)
    path = critical_path(Trace(builder.build(), TraceInfo("async", "p", CARD)))
    assert path.end_ns[-1] == 12
    assert path.length_ns <= 7


def foreign(*rows, lanes=("thread 1", "thread 1 ranges", "thread 2", "stream 7", "stream 20"), waits=None):
    """A trace of another tool's file: rows of (kind, name, lane, start, end, correlation), and waits between rows of the table."""
    builder = SpanBuilder(lanes)
    for kind, name, lane, start, end, correlation in rows:
        builder.add(kind, name, lane, start, end, correlation=correlation)
    origins = Origins(row_waits=np.array(waits), complete=True) if waits else Origins()
    return Trace(builder.build(), TraceInfo("kineto", "p", CARD, "kineto"), origins)


def test_ranges_and_other_calls_are_no_part_of_it():
    trace = foreign(
        (RANGE, "step", "thread 1 ranges", 0, 500, -1), (API, "cudaMalloc", "thread 1", 5, 40, -1),
        (LAUNCH, "cudaLaunchKernel", "thread 1", 50, 53, 1), (KERNEL, "a", "stream 7", 57, 90, 1),
        (API, "cudaFree", "thread 1", 60, 70, -1), (RANGE, "aten::add", "thread 1 ranges", 100, 108, -1),
        (LAUNCH, "cudaLaunchKernel", "thread 1", 104, 107, 2), (KERNEL, "b", "stream 7", 112, 130, 2),
    )  # fmt: skip
    assert told(trace) == [(50, 53, "HOST"), (53, 104, "HOST"), (104, 112, "LAUNCH"), (112, 130, "KERNEL")]
    path = critical_path(trace)
    assert trace.spans.kind[path.span].tolist() == [LAUNCH, LAUNCH, KERNEL, KERNEL]
    assert (path.length_ns, path.whole_ns, path.unexplained_ns) == (80, 80, 0)


def test_a_thread_goes_on_where_another_one_ended():
    """The backward pass runs on a thread of its own: it begins after the forward pass, and the optimizer after it."""
    trace = foreign(
        (LAUNCH, "cudaLaunchKernel", "thread 1", 0, 3, 1), (KERNEL, "forward", "stream 7", 5, 9, 1),
        (LAUNCH, "cudaLaunchKernel", "thread 2", 40, 43, 2), (KERNEL, "backward", "stream 7", 45, 50, 2),
        (LAUNCH, "cudaLaunchKernel", "thread 1", 80, 83, 3), (KERNEL, "optimizer", "stream 7", 85, 90, 3),
    )  # fmt: skip
    assert told(trace) == [
        (0, 3, "HOST"), (3, 40, "HOST"), (40, 43, "HOST"), (43, 80, "HOST"), (80, 85, "LAUNCH"), (85, 90, "KERNEL"),
    ]  # fmt: skip


def test_a_call_follows_the_one_of_another_thread_that_ended_as_it_began():
    rows = [(HOST, "forward", "thread 1", 0, 10, -1), (HOST, "backward", "thread 2", 10, 20, -1)]
    assert told(foreign(*rows)) == [(0, 10, "HOST"), (10, 20, "HOST")]


def test_a_call_follows_its_own_thread_where_that_ended_later_than_another():
    rows = [(SYNC, "wait", "thread 1", 0, 30, -1), (HOST, "data", "thread 2", 5, 20, -1), (HOST, "backward", "thread 1", 32, 40, -1)]
    assert told(foreign(*rows)) == [(0, 30, "HOST"), (30, 32, "HOST"), (32, 40, "HOST")]


def test_a_wait_for_a_stream_notices_that_stream():
    rows = [
        (LAUNCH, "cudaLaunchKernel", "thread 1", 0, 3, 1), (LAUNCH, "cudaLaunchKernel", "thread 1", 3, 6, 2),
        (KERNEL, "a", "stream 7", 5, 40, 1), (KERNEL, "b", "stream 20", 8, 48, 2),
    ]  # fmt: skip
    of_stream = foreign(*rows, (SYNC, "cudaStreamSynchronize stream 7", "thread 1", 6, 50, -1))
    assert told(of_stream) == [(0, 5, "LAUNCH"), (5, 40, "KERNEL"), (40, 50, "HOST")]
    of_all = foreign(*rows, (SYNC, "cudaDeviceSynchronize", "thread 1", 6, 50, -1))
    assert told(of_all) == [(0, 3, "HOST"), (3, 8, "LAUNCH"), (8, 48, "KERNEL"), (48, 50, "HOST")]


def test_a_copy_that_blocks_the_host_is_on_the_path():
    rows = [
        (LAUNCH, "cudaMemcpy", "thread 1", 0, 100, 1), (COPY, "Memcpy HtoD", "stream 7", 10, 95, 1),
        (LAUNCH, "cudaLaunchKernel", "thread 1", 101, 104, 2), (KERNEL, "a", "stream 20", 108, 120, 2),
    ]  # fmt: skip
    assert told(foreign(*rows)) == [
        (0, 10, "LAUNCH"), (10, 95, "COPY"), (95, 100, "HOST"), (100, 101, "HOST"), (101, 108, "LAUNCH"), (108, 120, "KERNEL"),
    ]  # fmt: skip


def test_a_stream_that_waits_for_another_one_is_followed_by_rows():
    trace = foreign(
        (LAUNCH, "cudaLaunchKernel", "thread 1", 0, 3, 1), (LAUNCH, "cudaLaunchKernel", "thread 1", 3, 6, 2),
        (KERNEL, "a", "stream 7", 8, 60, 1), (KERNEL, "b", "stream 20", 63, 80, 2), waits=[(2, 3)],
    )  # fmt: skip
    assert told(trace) == [(0, 8, "LAUNCH"), (8, 60, "KERNEL"), (60, 63, "GAP"), (63, 80, "KERNEL")]


def test_a_library_call_is_done_with_its_last_kernel():
    """The wait is for operation 0, which is two kernels."""
    rows = [(KERNEL, "main", 0, 20, 0, 0), (KERNEL, "main", 21, 50, 0, 0), (KERNEL, "aux", 53, 60, 1, 1), (KERNEL, "aux", 60, 70, 1, 1)]
    assert told(traced(rows, [(0, 1)])) == [
        (0, 20, "KERNEL"), (20, 21, "GAP"), (21, 50, "KERNEL"), (50, 53, "GAP"), (53, 60, "KERNEL"), (60, 70, "KERNEL"),
    ]  # fmt: skip


def test_what_nothing_explains_is_told():
    """The kernel has no call, and nothing ran before it on its stream."""
    trace = traced([(LAUNCH, "host", 0, 3, 0, 0), (KERNEL, "main", 5, 9, 0, 0), (KERNEL, "aux", 20, 40, 1, -1)])
    path = critical_path(trace)
    assert (path.length_ns, path.unexplained_ns) == (20, 20)
    assert path.words == "kernels 100 %; what came before it, 50 % of the run, nothing in the trace explains"


@given(spans=st.from_type(SpanTable))
def test_the_path_and_what_nothing_explains_add_up_to_the_run(spans):
    path = critical_path(Trace(spans, TraceInfo("kineto", "p", CARD, "kineto")))
    assert path.length_ns + path.unexplained_ns == path.whole_ns == span_ns(spans)
    assert path.unexplained_ns >= 0
