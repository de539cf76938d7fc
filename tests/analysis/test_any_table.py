"""Whatever a table holds, the metrics are numbers that agree with each other: files of other tools hold what no recorder of ours writes."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.analysis import (
    activity,
    critical_path,
    json_lines,
    neighbours,
    queue_full_ns,
    span_ns,
    stream_overlap,
    summary,
    work_split,
)
from streamscope.trace import DeviceInfo, SpanKind, SpanTable, Trace, TraceInfo
from streamscope.trace.spans import COLUMN_DTYPES

NAMES, LANES = (
    ("", "gemm", "ncclDevKernel_AllReduce", "cudaMemcpy", "cudaStreamSynchronize stream 7"),
    ("thread 1", "stream 7", "stream 20", "x"),
)
FAR_NS = 2**53 // 16


@st.composite
def any_tables(draw):
    """Kinds on any lane, correlations that several calls share, times far apart, spans of no length."""
    count = draw(st.integers(0, 12))
    whole = lambda least, most: draw(st.lists(st.integers(least, most), min_size=count, max_size=count))  # noqa: E731
    near, far = draw(st.sampled_from([(-5, 60), (-FAR_NS, FAR_NS)]))
    start = np.array(whole(near, far), np.int64)
    length = np.array(whole(0, draw(st.sampled_from([12, FAR_NS // 12]))), np.int64)
    columns = {name: np.zeros(count, np.int64) for name in COLUMN_DTYPES}
    columns |= {
        "kind": np.array(whole(0, max(SpanKind)), np.int64), "name": np.array(whole(0, len(NAMES) - 1), np.int64),
        "lane": np.array(whole(0, len(LANES) - 1), np.int64), "start_ns": start, "end_ns": start + length,
        "operation": np.array(whole(*draw(st.sampled_from([(-1, -1), (-1, 3), (0, 3)]))), np.int64),
        "correlation": np.array(whole(-1, draw(st.sampled_from([3, 2**31 - 1]))), np.int64), "basis": np.ones(count, np.int64),
        "symbol": np.array(whole(-1, len(NAMES) - 1), np.int64), "graph_node": np.array(whole(-1, 3), np.int64),
    }  # fmt: skip
    order = np.argsort(start, kind="stable")
    spans = SpanTable(**{name: values[order] for name, values in columns.items()}, names=NAMES, lanes=LANES)
    return Trace(spans, TraceInfo("kineto", "step", DeviceInfo("cuda", "card"), "kineto"))


@given(any_tables())
def test_the_numbers_of_any_table_agree(trace):
    spans, found = trace.spans, summary(trace)
    whole_us, work = span_ns(spans) / 1000, work_split(spans)
    idle = found.idle
    idle_ns = idle.host_wait_ns, idle.launch_ns, idle.kernel_wait_ns, idle.other_ns
    parts = [found.gpu_busy_us, found.copy_us, *(time_ns / 1000 for time_ns in idle_ns)]
    assert min(parts) >= 0
    assert abs(sum(parts) - whole_us) <= 1e-9 * max(1, whole_us)
    assert work.total_ns == span_ns(spans)
    assert found.overlap is None or 0 <= found.overlap <= 1
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
    assert all(json.loads(line) for line in json_lines(trace).splitlines())
    assert found.to_markdown()
    path = critical_path(trace)
    assert path.length_ns + path.unexplained_ns == path.whole_ns
    assert all(0 <= pair.fraction <= 1 for pair in stream_overlap(spans))
    assert neighbours(trace).known == 0  # the times are estimates
    assert all(time_ns >= 0 for time_ns in queue_full_ns(spans, limit=1).values())
    assert (activity(spans, 132).end_ns >= activity(spans, 132).start_ns).all()


@given(any_tables(), any_tables())
def test_any_two_tables_can_be_compared(first, second):
    found = ss.diff(first, second)
    change_us = found.summaries[1].span_us - found.summaries[0].span_us
    assert abs(sum(part.difference_us for part in found.contributions) - change_us) <= 1e-9 * max(
        1, abs(change_us), *map(span_of, (first, second))
    )
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
    assert found.to_markdown()
    assert repr(found)
    assert len(np.unique(found.pairs[:, 0])) == len(np.unique(found.pairs[:, 1])) == len(found.pairs)
    kinds = first.spans.kind[found.pairs[:, 0]], second.spans.kind[found.pairs[:, 1]]
    assert found.joined.by == "operation" or (kinds[0] == kinds[1]).all()


def span_of(trace):
    return span_ns(trace.spans) / 1000
