"""Traces as Kineto's Chrome JSON: what other programs find in the file. `test_kineto_back.py` tests the way back."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.formats.test_parquet import traces

from streamscope.errors import OutputError
from streamscope.formats.kineto.writer import CATEGORIES, FLOW, WAIT
from streamscope.trace import Basis, DeviceInfo, Origins, SpanBuilder, SpanKind, Trace, TraceInfo
from streamscope.trace.spans import DEVICE_KINDS

INFO = TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200", {"multiprocessors": 132}))


def written(trace, tmp_path):
    return json.loads(trace.to_kineto(tmp_path / "t.json").read_text(encoding="ascii"))


def rows(content, sign, category=None):
    return [row for row in content["traceEvents"] if row["ph"] == sign and category in (None, row.get("cat"))]


def trace_of(lanes, add, info=INFO, origins=None):
    builder = SpanBuilder(lanes)
    add(builder.add)
    return Trace(builder.build(), info, origins or Origins())


def small(add):
    """A launch with its kernel, and a graph of a copy and a kernel on two streams."""
    add(SpanKind.LAUNCH, "launch relu", "host", 0, 3_000, operation=0, correlation=4)
    add(SpanKind.KERNEL, "relu", "main", 5_000, 6_500, operation=0, correlation=4, blocks=132, threads=256, nbytes=1024, flops=256,
        symbol="relu_fp32")  # fmt: skip
    add(SpanKind.GRAPH_LAUNCH, "launch graph", "host", 4_001, 6_001, correlation=7)
    add(SpanKind.COPY, "x", "aux", 8_000, 9_000, operation=1, correlation=7, nbytes=64, graph_node=12)
    add(SpanKind.KERNEL, "matmul", "main", 9_500, 12_000, operation=2, correlation=7, basis=Basis.PLACED, graph_node=11)
    add(SpanKind.GRAPH, "graph", "main", 8_000, 12_000, correlation=7)


def test_events_have_the_names_that_the_field_gives_them(tmp_path):
    content = written(trace_of(["host", "main", "aux"], small), tmp_path)
    assert content["schemaVersion"] == 1
    assert content["displayTimeUnit"] == "ms"
    assert content["traceName"] == "step · async"
    assert content["deviceProperties"] == [{"id": 0, "name": "NVIDIA H200", "numSms": 132}]
    events = [(e["cat"], e["name"], e["pid"], e["tid"], e["ts"], e["dur"], e["args"]) for e in rows(content, "X")]
    assert events == [
        ("cuda_runtime", "cudaLaunchKernel", 1, 1, 0.0, 3.0,
         {"operation name": "launch relu", "correlation": 4, "operation": 0}),
        ("cuda_runtime", "cudaGraphLaunch", 1, 1, 4.001, 2.0,
         {"operation name": "launch graph", "correlation": 7}),
        ("kernel", "relu_fp32", 0, 1, 5.0, 1.5,
         {"device": 0, "operation name": "relu", "stream": 1, "correlation": 4, "operation": 0,
          "grid": [132, 1, 1], "block": [256, 1, 1], "bytes": 1024, "flops": 256}),
        ("gpu_memcpy", "Memcpy (x)", 0, 2, 8.0, 1.0,
         {"device": 0, "operation name": "x", "stream": 2, "correlation": 7, "graph id": 1, "graph node id": 12,
          "operation": 1, "bytes": 64}),
        ("gpu_user_annotation", "graph", 0, 1, 8.0, 4.0, {}),
        ("kernel", "matmul", 0, 1, 9.5, 2.5,
         {"device": 0, "stream": 1, "correlation": 7, "graph id": 1, "graph node id": 11, "operation": 2,
          "basis": "placed"}),
    ]  # fmt: skip
    named = {(row["pid"], row["tid"]): row["args"]["name"] for row in rows(content, "M") if row["name"] == "thread_name"}
    assert named == {(1, 1): "host", (0, 1): "main", (0, 2): "aux"}
    assert content["traceEvents"][0]["ph"] == "M"  # To HTA, the event of number 0 is none.


def test_arrows_lead_from_a_call_to_all_that_it_launched(tmp_path):
    content = written(trace_of(["host", "main", "aux"], small), tmp_path)
    starts, ends = ({row["id"]: (row["pid"], row["tid"], row["ts"]) for row in rows(content, sign, FLOW)} for sign in "sf")
    assert starts == {4: (1, 1, 0.0), 7: (1, 1, 4.001), 8: (1, 1, 4.001)}
    assert ends == {4: (0, 1, 5.0), 7: (0, 2, 8.0), 8: (0, 1, 9.5)}
    assert {row["bp"] for row in rows(content, "f")} == {"e"}


def test_an_arrow_leads_from_what_was_waited_for_to_what_waited(tmp_path):
    origins = Origins(waits=np.array([[1, 0, 2, 0]]))
    content = written(trace_of(["host", "main", "aux"], small, origins=origins), tmp_path)
    (start,), (end,) = rows(content, "s", WAIT), rows(content, "f", WAIT)
    assert (start["pid"], start["tid"], start["ts"]) == (0, 2, 8.999)  # within the copy, which ends at 9
    assert (end["pid"], end["tid"], end["ts"]) == (0, 1, 9.5)
    assert start["id"] == end["id"]
    assert start["id"] not in {row["id"] for row in rows(content, "s", FLOW)}


def test_calls_keep_the_names_that_others_know(tmp_path):
    def add(add):
        add(SpanKind.LAUNCH, "cuLaunchKernelEx", "thread 31", 0, 10, correlation=1)
        add(SpanKind.LAUNCH, "cudaLaunchKernelExC", "thread 31", 20, 30, correlation=2)
        add(SpanKind.LAUNCH, "custom", "thread 31", 40, 50, correlation=3)
        add(SpanKind.SET, "x", "stream 7", 60, 70, correlation=3)
        add(SpanKind.COPY, "Memcpy HtoD (Pageable -> Device)", "stream 7", 80, 90)
        add(SpanKind.RANGE, "step", "thread 31 ranges", 0, 100)

    content = written(trace_of(["thread 31", "thread 31 ranges", "stream 7"], add), tmp_path)
    assert [(e["cat"], e["name"], e["tid"]) for e in rows(content, "X")] == [
        ("cuda_driver", "cuLaunchKernelEx", 31),
        ("user_annotation", "step", 1),
        ("cuda_runtime", "cudaLaunchKernelExC", 31),
        ("cuda_runtime", "cudaMemsetAsync", 31),
        ("gpu_memset", "Memset (x)", 7),
        ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 7),
    ]


@pytest.mark.parametrize(
    ("change", "word"),
    [({"device": DeviceInfo("simulated", "simulated NVIDIA H200")}, "simulated"),
     ({"device": DeviceInfo("simulated", "simulated NVIDIA H200"), "recorder": "prediction"}, "predicted")],
)  # fmt: skip
def test_times_that_were_not_measured_are_called_so(tmp_path, change, word):
    content = written(trace_of(["host", "main", "aux"], small, replace(INFO, **change)), tmp_path)
    assert content["traceName"] == f"step · async ({word} times)"
    shown = {(row["name"], row["pid"]): row["args"] for row in rows(content, "M") if row["name"].startswith("process")}
    assert shown["process_name", 1] == {"name": f"step · async ({word} times)"}
    assert shown["process_name", 0] == {"name": "simulated NVIDIA H200"}
    assert shown["process_labels", 0] == {"labels": "GPU 0, simulated"}
    assert content["streamscope"]["device"]["kind"] == "simulated"


def keep_apart_or_nest(spans):
    """Check that of a thread's slices each two keep apart, or one lies in the other, and that no kernel lies in another."""
    for first, (begin, end, work) in enumerate(spans):
        for other_begin, other_end, other_work in spans[first + 1 :]:
            apart = end <= other_begin or other_end <= begin
            nested = (begin <= other_begin and other_end <= end) or (other_begin <= begin and end <= other_end)
            assert apart or (nested and not (work and other_work))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(original=traces())
def test_any_trace_can_be_drawn(tmp_path, original):
    """Every span is an event, in the table's order, with exact times; slices of a thread nest; arrows are pairs of their own."""
    content = written(original, tmp_path)
    spans, events = original.spans, rows(content, "X")
    assert [e["cat"] for e in events] == [CATEGORIES[SpanKind(kind)] for kind in spans.kind]
    texts = (tmp_path / "t.json").read_text().split("\n")
    starts = [line.split('"ts": ')[1].split(",")[0] for line in texts if '"ph": "X"' in line]
    times = [int(text.replace(".", "")) for text in starts]
    assert times == (spans.start_ns - min(0, spans.start_ns.min(initial=0))).tolist()
    assert not any(text.startswith("-") for text in starts)  # Perfetto drops what begins before 0.
    threads = defaultdict(list)
    for row, event in enumerate(events):
        threads[event["pid"], event["tid"]].append((spans.start_ns[row], spans.end_ns[row], spans.kind[row] in DEVICE_KINDS))
    for inside in threads.values():
        keep_apart_or_nest(inside)
    ids = [row["id"] for row in rows(content, "s")]
    assert len(set(ids)) == len(ids)
    assert sorted(ids) == sorted(row["id"] for row in rows(content, "f"))


def test_a_trace_that_begins_before_its_zero_begins_at_0_in_the_file(tmp_path):
    """As PyTorch's ranges do, which begin before the first call."""

    def add(add):
        add(SpanKind.RANGE, "step", "thread 1 ranges", -2_500, 9_000)
        add(SpanKind.LAUNCH, "cudaLaunchKernel", "thread 1", 0, 1_000, correlation=1)
        add(SpanKind.KERNEL, "relu", "stream 7", 3_000, 4_000, correlation=1)

    content = written(trace_of(["thread 1", "thread 1 ranges", "stream 7"], add), tmp_path)
    assert [(event["name"], event["ts"]) for event in rows(content, "X")] == [("step", 0.0), ("cudaLaunchKernel", 2.5), ("relu", 5.5)]
    assert [(row["ph"], row["ts"]) for row in content["traceEvents"] if row.get("cat") == FLOW] == [("s", 2.5), ("f", 5.5)]


def test_a_packed_file_holds_the_same(tmp_path):
    trace = trace_of(["host", "main", "aux"], small)
    plain, packed = (trace.to_kineto(tmp_path / name).read_bytes() for name in ("t.json", "t.json.gz"))
    assert gzip.decompress(packed) == plain
    assert trace.to_kineto(tmp_path / "again.json.gz").read_bytes() == packed


@pytest.mark.parametrize("name", ["t.csv", "t", "t.gz", "t.json.zip", ".json"])
def test_another_ending_is_refused(tmp_path, name):
    with pytest.raises(OutputError, match="its name ends with" if (tmp_path / name).suffix else "its name has no ending") as raised:
        trace_of(["host", "main", "aux"], small).to_kineto(tmp_path / name)
    assert raised.value.hint == "use .json or .json.gz"
    assert list(tmp_path.iterdir()) == []
