"""From CUPTI's records to a trace: whatever was recorded, each kernel is one span, at its time, joined with its call."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.recording.fake_cupti import Runtime

from streamscope.recording.activity_records import ActivityRecords
from streamscope.recording.ranks import Rank
from streamscope.recording.recorded_trace import CodeBlock, recorded_trace
from streamscope.trace.info import DeviceInfo
from streamscope.trace.spans import DEVICE_KINDS, SpanKind
from streamscope.trace.trace import Trace

START = 1_795_362_426_785_105_217
END = START + 1_000_000
NAMES = "w", "x", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_Generic"
GPU = DeviceInfo("cuda", "NVIDIA H200")


def table(name, rows):
    made = np.zeros(len(rows), getattr(ActivityRecords(), name).dtype)
    for place, row in enumerate(rows):
        for column, value in row.items():
            made[place][column] = value
    return made


works = st.fixed_dictionaries(
    {
        "code": st.sampled_from([SpanKind.KERNEL, SpanKind.COPY, SpanKind.SET]),
        "start_ns": st.integers(START - 1000, END + 1000),
        "length": st.integers(0, 5_000),
        "stream": st.integers(1, 3),
        "gpu": st.integers(0, 1),
        "graph_node": st.sampled_from([0, 0, (3 << 32) + 1, (3 << 32) + 2]),
        "name": st.integers(1, 4),
        "bytes": st.integers(0, 1 << 40),
        "from_gpu": st.integers(0, 1),
        "to_gpu": st.integers(0, 1),
        "call": st.integers(0, 9),
    }
)
calls = st.fixed_dictionaries(
    {
        "start_ns": st.integers(START - 1000, END + 1000),
        "length": st.integers(0, 9_000),
        "thread": st.integers(1, 3),
        "name": st.sampled_from(list(map(int, Runtime))),
        "status": st.sampled_from([0, 0, 1]),
    }
)


def ended(row):
    length = row.pop("length")
    return row | {"end_ns": row["start_ns"] + length}


@given(st.lists(works, min_size=1, max_size=25), st.lists(calls, min_size=10, max_size=12), st.booleans())
def test_each_piece_of_work_is_a_span_at_its_time_and_read_back(made_works, made_calls, of_one_gpu):
    calls_made = [ended(dict(call)) | {"code": 1, "correlation": 50 + place} for place, call in enumerate(made_calls)]
    work = [ended(dict(one)) for one in made_works]
    for one in work:
        one["correlation"] = 50 + one.pop("call")
    gpu = work[0]["gpu"] if of_one_gpu else None
    records = ActivityRecords(table("calls", calls_made), table("work", work), texts=dict(enumerate(NAMES, start=1)))
    rank = Rank(1, 0, 2, "host")
    trace = recorded_trace(records, CodeBlock("step", START, END, gpu), GPU, lambda code, number: Runtime(number).name, rank=rank)
    ours = [one for one in work if gpu in (None, one["gpu"])]
    spans = trace.spans.of_kind(DEVICE_KINDS)
    found = zip(spans.kind, spans.gpu, spans.start_ns + START, spans.end_ns + START, spans.graph_node, spans.bytes, strict=True)
    expected = [(int(one["code"]), one["gpu"], one["start_ns"], one["end_ns"], one["graph_node"] or -1, one["bytes"]) for one in ours]
    assert sorted(tuple(map(int, row)) for row in found) == sorted(expected)
    copies = [one for one in ours if one["code"] == SpanKind.COPY]
    peers = [(one["start_ns"], one["from_gpu"], one["to_gpu"]) for one in copies if one["from_gpu"] != one["to_gpu"]]
    found = zip(trace.spans.start_ns[trace.peers.span] + START, trace.peers.from_gpu, trace.peers.to_gpu, strict=True)
    assert sorted(tuple(map(int, row)) for row in found) == sorted(peers)
    assert len(trace.collectives) == sum(one["code"] == SpanKind.KERNEL and one["name"] > 2 for one in ours)
    with TemporaryDirectory() as folder:
        read = Trace.from_parquet(trace.to_parquet(Path(folder, "t.parquet")))
    assert read.to_pandas().equals(trace.to_pandas())
    assert (read.info, read.collectives, read.peers, read.gpus) == (trace.info, trace.collectives, trace.peers, trace.gpus)
    # A span that says whose call launched it is joined with a call of the block, and the call is a launch.
    launches = trace.spans.is_kind([SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH])
    within = {call["correlation"] for call in calls_made if START <= call["start_ns"] < END}
    launching = set(trace.spans.correlation[launches].tolist()) - {-1}
    assert launching <= within
    assert within & {one["correlation"] for one in ours} <= launching
    # All that began outside of the block is not the user's.
    host = trace.spans.of_kind([SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH, SpanKind.API, SpanKind.EVENT, SpanKind.SYNC])
    assert len(host) == 0 or (host.start_ns.min() >= 0 and host.start_ns.max() < END - START)
    kernels = spans.of_kind([SpanKind.KERNEL])
    assert [kernels.names[symbol] for symbol in kernels.symbol] == [kernels.names[name] for name in kernels.name]


def test_streams_of_two_contexts_with_one_number_are_two_lanes():
    """Kernels overlap there, and a wait of one context's stream is none of the other's."""
    launch, record, wait, synchronize = Runtime.cudaLaunchKernel_v7000, Runtime.cudaEventRecord_v3020, 9, 10
    made_calls = [
        {"code": 1, "start_ns": START + 10 * place, "end_ns": START + 10 * place + 5, "thread": 1, "name": int(name), "correlation": place}
        for place, name in enumerate([launch, launch, launch, record, wait, launch, synchronize])
    ]
    work = [
        {"code": SpanKind.KERNEL, "start_ns": START + 100 * at, "end_ns": START + 100 * at + 150, "context": context, "stream": stream,
         "correlation": call, "name": 1}
        for at, (context, stream, call) in enumerate([(1, 7, 0), (2, 7, 1), (2, 9, 2), (1, 7, 5)])
    ]  # fmt: skip
    records = ActivityRecords(
        table("calls", made_calls),
        table("work", work),
        table("waits", [{"context": 1, "stream": 7, "correlation": 4, "event": 5, "what": 2},
                        {"context": 2, "stream": 7, "correlation": 6, "what": 3}]),
        table("events", [{"context": 2, "stream": 7, "correlation": 3, "event": 5}]),
        texts={1: "k"},
    )  # fmt: skip
    trace = recorded_trace(records, CodeBlock("step", START, END, 0), GPU, lambda code, number: Runtime(number).name)
    kernels = trace.spans.of_kind([SpanKind.KERNEL])
    lanes = [trace.spans.lanes[lane] for lane in kernels.lane]
    assert lanes == ["stream 7 (context 1)", "stream 7 (context 2)", "stream 9", "stream 7 (context 1)"]
    assert trace.info.notes == ()
    starts = trace.spans.start_ns[trace.origins.row_waits].tolist()
    assert starts == [[100, 300]]  # of the other context's kernel, and of the one behind the wait
    names = [trace.spans.names[name] for name in trace.spans.of_kind([SpanKind.SYNC]).name]
    assert names == ["cudaStreamSynchronize_v3020 stream 7 (context 2)"]


def test_records_without_a_time_are_left_out_and_counted():
    """CUPTI writes 0 for both times of a kernel whose times it could not collect."""
    calls_made = [{"code": 1, "start_ns": START + 10, "end_ns": START + 15, "name": int(Runtime.cudaLaunchKernel_v7000), "correlation": 1}]
    work = [{"code": SpanKind.KERNEL, "start_ns": at, "end_ns": at, "correlation": 2, "name": 1} for at in (0, 0, 0)]
    work.append({"code": SpanKind.KERNEL, "start_ns": START + 20, "end_ns": START + 30, "correlation": 1, "name": 1})
    records = ActivityRecords(table("calls", calls_made), table("work", work), texts={1: "k"})
    trace = recorded_trace(records, CodeBlock("step", START, END, 0), GPU, lambda code, number: Runtime(number).name)
    kernels = trace.spans.of_kind([SpanKind.KERNEL])
    assert (kernels.start_ns.tolist(), kernels.end_ns.tolist()) == ([20], [30])
    assert trace.info.notes == ("left out: 3 device spans without a time",)
