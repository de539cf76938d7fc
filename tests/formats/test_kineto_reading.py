"""Kineto files as other programs write them, read to the last nanosecond."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.formats.kineto_files import call, content, dumps, event, kernel, rows, step

import streamscope as ss
from streamscope.errors import TraceError
from streamscope.formats.kineto import events as kineto_events
from streamscope.formats.read import read
from streamscope.trace import SpanKind, foreign
from streamscope.trace.spans import COLUMN_DTYPES


@pytest.fixture
def written(tmp_path):
    def write(events, name="step.json", **beside):
        path = tmp_path / name
        path.write_text(dumps(events if beside.pop("bare", False) else content(events, **beside)), encoding="utf-8")
        return path

    return write


def test_every_kind_of_event_becomes_its_span(written):
    trace = read(written(step()))
    host, ranges, one, two = "thread 4242", "thread 4242 ranges", "stream 7", "stream 20"
    assert rows(trace, "kind", "name", "lane", "start_ns", "end_ns", "correlation") == [
        ("RANGE", "step", ranges, -2000, 90_000, -1),
        ("RANGE", "aten::mm", ranges, -1000, 4000, -1),
        ("LAUNCH", "cudaLaunchKernel", host, 0, 3001, 11),
        ("LAUNCH", "cudaMemcpyAsync", host, 4000, 6000, 12),
        ("KERNEL", "gemm", one, 5000, 9999, 11),
        ("LAUNCH", "cudaMemsetAsync", host, 6000, 7000, 13),
        ("EVENT", "cudaEventRecord", host, 7000, 7400, -1),
        ("API", "cudaMalloc", host, 7400, 7900, -1),
        ("GRAPH_LAUNCH", "cudaGraphLaunch", host, 8000, 11_000, 16),
        ("COPY", "Memcpy HtoD (Pinned -> Device)", two, 10_000, 12_000, 12),
        ("SYNC", "cudaDeviceSynchronize", host, 11_000, 25_000, -1),
        ("SET", "Memset (Device)", one, 12_500, 13_000, 13),
        ("KERNEL", "a_kernel", one, 20_000, 21_000, 16),
        ("KERNEL", "b_kernel", one, 21_000, 23_500, 16),
    ]
    kernels = trace.spans.of_kind([SpanKind.KERNEL, SpanKind.COPY])
    assert (kernels.blocks.tolist(), kernels.threads.tolist()) == ([24, 0, 0, 0], [64, 0, 0, 0])
    assert kernels.graph_node.tolist() == [-1, -1, 100, 101]
    assert kernels.bytes.tolist() == [0, 4096, 0, 0]
    assert [trace.spans.names[code] if code >= 0 else None for code in kernels.symbol] == [
        "void ns::gemm<float>(float*)", None, "a_kernel", "b_kernel",
    ]  # fmt: skip
    assert set(trace.spans.operation) == {-1}
    assert trace.spans.lanes == (host, ranges, one, two)
    info = trace.info
    assert (info.engine, info.program, info.recorder) == ("kineto", "step", "kineto")
    assert (info.device.kind, info.device.name) == ("cuda", "NVIDIA H200")
    assert info.device.details["multiprocessors"] == 132
    assert info.created == "2025-11-13T02:13:24+00:00"  # base, 5 s, less 2 µs
    assert info.notes == ("the profiler itself took 1.20 µs of host time within the span",)


@pytest.mark.parametrize(
    ("given", "job"),
    [
        ({"backend": "nccl", "rank": 3, "world_size": 8, "pg_count": 1}, (3, 8)),
        ({"rank": -1, "world_size": "many"}, (None, None)),
        ([3], (None, None)),
    ],
)
def test_the_rank_that_recorded_a_file_is_known(written, given, job):
    info = read(written(step(), distributedInfo=given)).info
    assert (info.rank, info.world_size) == job


@pytest.mark.parametrize("names", [("stream 0", "Stream #7"), ("7", "stream 7")])
def test_what_is_called_a_thread_or_a_stream_keeps_its_name(tmp_path, names):
    """And no two are called the same."""
    call = {"ph": "X", "cat": "cuda_runtime", "pid": 1, "tid": "Thread-9", "dur": 3}
    events = [{**call, "name": "cudaStreamSynchronize", "ts": 50, "args": {"correlation": 9}}]
    events.append({"ph": "X", "cat": "cuda_sync", "name": "Stream Synchronize", "pid": 0, "tid": 1, "ts": 50, "dur": 3})
    events[-1]["args"] = {"correlation": 9, "stream": names[0], "device": 0}
    for at, name in enumerate(names):
        events.append({**call, "name": "cudaLaunchKernel", "ts": 10 * at, "args": {"correlation": at}})
        args = {"correlation": at, "device": 0, "stream": name}
        events.append({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": name, "ts": 10 * at + 5, "dur": 4, "args": args})
    path = tmp_path / "named.json"
    path.write_text(json.dumps({"traceEvents": events}))
    lanes = {"stream 0": ("Thread-9", "stream 0", "Stream #7"), "7": ("Thread-9", "stream 7", "stream 7 (2)")}
    assert set(read(path).spans.lanes) == set(lanes[names[0]])


def same(one, other):
    assert rows(one, *COLUMN_DTYPES) == rows(other, *COLUMN_DTYPES)
    assert one.info.notes == other.info.notes


def test_any_way_to_write_the_same_json_reads_the_same(tmp_path, written):
    plain = read(written(step()))
    text = dumps(content(step()))
    shapes = {
        "indented.json": dumps(content(step()), indent=2),
        "compact.json": dumps(content(step()), separators=(",", ":")),
        "marked.json": "\ufeff" + text,
        "bare.json": "\n " + dumps(step()),
        "after.json": text[:-1] + ', "traceName": "x", "more": {"a": [1, {"b": "},{"}]}}\n',
        "before.json": '{"before": [{"a": "\\"traceEvents\\": [ },{"}, {"b": 1}], ' + text[1:],
    }
    for name, shape in shapes.items():
        (tmp_path / name).write_text(shape, encoding="utf-8")
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(shape.encode()))
        for found in (read(tmp_path / name), read(tmp_path / f"{name}.gz")):
            same(found, plain)
            assert found.info.program == name.removesuffix(".json")


@pytest.mark.parametrize("piece_bytes", [1, 7, 100, 1000, 4096])
def test_where_a_file_is_cut_into_pieces_does_not_matter(tmp_path, written, monkeypatch, piece_bytes):
    tricky = [call('}, {"ts": 1}, {', 30_000 + 10 * row, 30_005 + 10 * row, 1000 + row) for row in range(40)]
    path = written(step(0) + tricky)
    whole = read(path)
    monkeypatch.setattr(kineto_events, "PIECE_BYTES", piece_bytes)
    same(read(path), whole)
    assert len(whole.spans) == 14 + 40


@given(
    base_ns=st.sampled_from([0, 10**12, 8 * 10**15, 1_763_000_000_123_456_789]) | st.integers(0, 1_900_000_000_000_000_000),
    starts=st.lists(st.integers(0, 10**9), min_size=1, max_size=5, unique=True),
    length=st.integers(0, 10**9),
)
def test_times_are_exact_wherever_the_clock_begins(tmp_path_factory, base_ns, starts, length):
    """Relative to a base, as now, or since 1970, as PyTorch before 2.4 wrote: more digits than a double has."""
    assume(base_ns + min(starts) + length > 0)  # Else it is a record without a time.
    path = tmp_path_factory.mktemp("exact") / "t.json"
    events = [kernel("k", base_ns + start, base_ns + start + length, row + 1, stream=row) for row, start in enumerate(starts)]
    path.write_text(dumps(content([call("cudaLaunchKernel", base_ns, base_ns + 1, 1), *events])), encoding="utf-8")
    found = read(path).spans.of_kind([SpanKind.KERNEL])
    assert found.start_ns.tolist() == sorted(starts)
    assert set(found.duration_ns.tolist()) == {length}


def test_files_of_rocm_name_a_hip_device(written):
    events = [call("hipLaunchKernel", 0, 2000, 5), kernel("_ZN2at6native18elementwise_kernelILi128EEEvi.kd", 3000, 5000, 5),
              call("hipStreamSynchronize", 2000, 6000, 6)]  # fmt: skip
    trace = read(written(events, deviceProperties=[{"id": 0, "name": "AMD Instinct MI300X"}]))
    assert (trace.info.device.kind, trace.info.device.name) == ("hip", "AMD Instinct MI300X")
    assert rows(trace, "name") == [("hipLaunchKernel",), ("hipStreamSynchronize",), ("elementwise_kernel",)]


def test_older_files_with_other_categories_and_texts_for_numbers(written):
    events = [
        event("Runtime", "cudaLaunchKernel", 0, 2000, pid="12", tid="34", correlation="9"),
        event("Kernel", "k", 3000, 5000, pid="0", tid="stream 7", device="0", stream="7", correlation="9"),
        event("Operator", "aten::relu", 0, 2500, pid="12", tid="34"),
        event("Kernel", "k", 6000, 7000, pid=0, tid="compute", correlation=10),
    ]
    trace = read(written(events))
    assert rows(trace, "kind", "lane", "correlation") == [
        ("RANGE", "thread 34 ranges", -1), ("LAUNCH", "thread 34", 9), ("KERNEL", "stream 7", 9), ("KERNEL", "stream compute", 10),
    ]  # fmt: skip
    assert trace.info.notes == ("1 of 2 device spans without a launch call: launch latency unknown",)


def test_kernels_that_overlap_on_one_stream_lie_side_by_side(written):
    events = [kernel("a", 0, 100, 1), kernel("b", 50, 80, 2), kernel("c", 60, 200, 3), kernel("d", 80, 90, 4), kernel("e", 200, 300, 5)]
    trace = read(written(events))
    assert rows(trace, "name", "lane") == [
        ("a", "stream 7"), ("b", "stream 7 · 2"), ("c", "stream 7 · 3"), ("d", "stream 7 · 2"), ("e", "stream 7"),
    ]  # fmt: skip
    assert "on further lanes (· 2): 3 device spans that overlapped another of the same stream" in trace.info.notes


def test_kernels_that_overlap_on_one_stream_are_of_one_stream(written):
    """Four kernels of 100 µs that each begin 10 µs before the end of the one before, as programmatic dependent launch has them."""
    calls = [call("cudaLaunchKernelExC", 1000 * each, 1000 * each + 900, each + 1) for each in range(4)]
    kernels = [kernel(f"k{each}", 6000 + 90_000 * each, 106_000 + 90_000 * each, each + 1) for each in range(4)]
    trace = read(written([*calls, *kernels]))
    spans = trace.spans
    assert spans.lanes == ("thread 4242", "stream 7", "stream 7 · 2")
    assert {name: split.total_ns for name, split in ss.analysis.idle_by_stream(spans).items()} == {"stream 7": 0}
    assert ss.analysis.launch_overhead_ns(spans).tolist() == [6000]
    assert ss.analysis.stream_overlap(spans) == ()
    (stream,) = ss.analysis.summary(trace).streams
    assert (stream.name, stream.kernel_count, stream.busy_us) == ("stream 7", 4, 370.0)
    path = ss.analysis.critical_path(trace)
    assert path.time_ns(ss.analysis.Bound.KERNEL) == 370_000
    assert path.unexplained_ns == 0
    assert not ss.analysis.queue_full_ns(spans, limit=5)
    assert list(ss.analysis.queue_full_ns(spans, limit=4)) == ["stream 7"]


def test_ranges_that_do_not_nest_lie_side_by_side(written):
    spans = [("a", 0, 100), ("b", 10, 50), ("c", 40, 90), ("d", 50, 100), ("e", 100, 120)]
    events = [event("user_annotation", name, start, end, tid=1) for name, start, end in spans] + [kernel("k", 0, 1, 1)]
    trace = read(written(events))
    assert [row for row in rows(trace, "name", "lane") if row[0] != "k"] == [
        ("a", "thread 1 ranges"),
        ("b", "thread 1 ranges"),
        ("c", "thread 1 ranges · 2"),
        ("d", "thread 1 ranges"),
        ("e", "thread 1 ranges"),
    ]
    assert "on further lanes (· 2): 1 range that overlapped another of the same thread" in trace.info.notes


def test_all_gpus_are_read_or_one_and_the_others_are_counted(written):
    events = [call("cudaLaunchKernel", 0, 10, 1), kernel("small", 20, 30, 1), call("cudaLaunchKernel", 10, 20, 2),
              kernel("large", 30, 90, 2, device=1), kernel("large", 90, 150, 3, device=1)]  # fmt: skip
    both = read(written(events))
    assert both.gpus == (0, 1)
    assert both.spans.lanes == ("thread 4242", "GPU 0 stream 7", "GPU 1 stream 7")
    assert both.info.notes[0] == "2 GPUs: 0 and 1; metrics are of one each (gpu= reads one alone)"
    assert (both.info.device.name, both.info.device.gpu, both.info.device.gpus) == ("NVIDIA H200 and NVIDIA H200 b", None, (0, 1))
    trace = read(written(events), gpu=1)
    assert rows(trace, "kind", "name", "correlation") == [("LAUNCH", "cudaLaunchKernel", 2), ("KERNEL", "large", 2), ("KERNEL", "large", 3)]
    assert (trace.info.device.name, trace.spans.lanes) == ("NVIDIA H200 b", ("thread 4242", "stream 7"))
    assert trace.info.notes[0] == "only GPU 1; left out: 1 device span of GPU 0, and 1 call that launched it (gpu= chooses another)"
    other = read(written(events), gpu=0)
    assert rows(other, "kind", "name", "correlation") == [("LAUNCH", "cudaLaunchKernel", 1), ("KERNEL", "small", 1)]
    with pytest.raises(TraceError, match=r"it holds no work of GPU 2 \(it has work of GPU 0, GPU 1\)"):
        read(written(events), gpu=2)
    assert read(written(events), gpu=np.int64(0)).info.device.gpu == 0
    for wrong in ("0", 0.0, True):
        with pytest.raises(TraceError, match=r"gpu=.* is not a whole number"):
            read(written(events), gpu=wrong)


def test_what_the_profiler_took_counts_as_far_as_it_lies_in_the_run_wherever_the_clock_begins(written):
    at = 1_700_000_000_000_000_000
    events = [
        event("overhead", "before", at - 5000, at, tid=0),
        event("overhead", "before and within", at - 5000, at + 100, tid=0),
        event("overhead", "of no length", at + 20, at + 20, tid=0),
        event("overhead", "within", at + 200, at + 1400, tid=0),
        event("overhead", "behind", at + 3000, at + 4000, tid=0),
        {"ph": "X", "cat": "overhead", "name": "without a time"},
        call("cudaMalloc", at - 9000, at - 8000),
        call("cudaLaunchKernel", at, at + 1000, 1),
        kernel("k", at + 2000, at + 3000, 1),
    ]
    trace = read(written(events))
    assert trace.info.notes == ("the profiler itself took 1.30 µs of host time within the span",)
    assert read(written([*events[:1], *events[-2:]])).info.notes == ()
    assert rows(trace, "kind", "start_ns", "end_ns")[-1] == ("KERNEL", 11_000, 12_000)


def test_calls_without_a_number_stay_where_work_of_another_gpu_has_none(written):
    elsewhere = kernel("elsewhere", 20, 30, None, device=1)
    events = [
        call("cudaMalloc", 0, 5),
        call("cudaLaunchKernel", 5, 10, 1),
        kernel("k", 20, 90, 1),
        elsewhere,
        call("cudaDeviceSynchronize", 10, 95),
    ]
    trace = read(written(events), gpu=0)
    assert [row[0] for row in rows(trace, "name")] == ["cudaMalloc", "cudaLaunchKernel", "cudaDeviceSynchronize", "k"]
    assert trace.info.notes == ("only GPU 0; left out: 1 device span of GPU 1 (gpu= chooses another)",)


def test_streams_of_two_contexts_with_one_number_are_two(written):
    events = [
        call("cudaLaunchKernel", 0, 10, 1), call("cudaLaunchKernel", 10, 20, 2), call("cudaLaunchKernel", 20, 30, 3),
        call("cudaStreamSynchronize", 30, 400, 4), event("cuda_sync", "Stream Sync", 30, 400, correlation=4, stream=7, context=2),
        kernel("one", 100, 200, 1, context=1), kernel("two", 150, 250, 2, context=2), kernel("three", 150, 250, 3, context=2, stream=9),
    ]  # fmt: skip
    trace = read(written(events))
    names = [(row[0], row[1]) for row in rows(trace, "name", "lane")]
    assert names[3:] == [
        ("cudaStreamSynchronize stream 7 (context 2)", "thread 4242"),
        ("one", "stream 7 (context 1)"), ("two", "stream 7 (context 2)"), ("three", "stream 9"),
    ]  # fmt: skip
    assert trace.info.notes == ()


def test_a_call_inside_of_a_call_launches_nothing_twice(written):
    events = [call("cudaLaunchKernel", 0, 100, 1), call("cuLaunchKernelEx", 10, 90, 1, category="cuda_driver"), kernel("k", 200, 300, 1),
              call("ncclLaunch", 100, 120, 2), kernel("n", 300, 400, 2), call("cudaLaunchKernel", 120, 130, 3)]  # fmt: skip
    trace = read(written(events))
    assert rows(trace, "kind", "name", "correlation")[:4] == [
        ("LAUNCH", "cudaLaunchKernel", 1), ("API", "cuLaunchKernelEx", -1), ("LAUNCH", "ncclLaunch", 2), ("LAUNCH", "cudaLaunchKernel", 3),
    ]  # fmt: skip
    assert trace.info.notes == ("1 launch call without a kernel, copy or set",)


def test_correlations_beyond_32_bits_are_counted_anew(written):
    events = [call("cudaLaunchKernel", 0, 10, 2**40 + 5), kernel("k", 20, 30, 2**40 + 5), kernel("k", 30, 40, 7)]
    assert rows(read(written(events)), "kind", "correlation") == [("LAUNCH", 1), ("KERNEL", 1), ("KERNEL", 0)]


def test_what_is_too_much_leaves_out_the_shortest_ranges_first_and_says_so(written, monkeypatch):
    ranges = [event("cpu_op", f"op{row}", 10 * row, 10 * row + row, tid=1) for row in range(8)]
    events = [*ranges, call("cudaMalloc", 0, 5), call("cudaLaunchKernel", 0, 10, 1), kernel("k", 20, 30, 1)]
    monkeypatch.setattr(foreign, "MOST_FOREIGN_SPANS", 6)
    trace = read(written(events))
    assert [name for kind, name in rows(trace, "kind", "name") if kind == "RANGE"] == ["op5", "op6", "op7"]
    assert trace.info.notes == ("left out: 5 ranges, the shortest of 8, since a trace may have 6 spans",)
    monkeypatch.setattr(foreign, "MOST_FOREIGN_SPANS", 2)
    trace = read(written(events))
    assert rows(trace, "kind") == [("LAUNCH",), ("KERNEL",)]
    assert trace.info.notes[1] == "left out: 1 call, the shortest of 1, since a trace may have 2 spans"


def test_what_is_not_read_is_counted(written):
    functions = [event("python_function", name, 0, 10) for name in "fg"]
    apart = [{"ph": letter, "cat": "cpu_op", "name": "o", "pid": 1, "tid": 1, "ts": 1} for letter in "BEbe"]
    events = [kernel("k", 0, 10, 1), *functions, event("cpu_op", "o", 0, 1) | {"dur": None}, *apart]
    assert read(written(events)).info.notes == (
        "left out: 1 event of category 'cpu_op' without a time",
        "left out: 2 events whose begin and end stand apart",
        "of 2 frames of Python, only those of the user's code and of modules around each launch call are kept",
        "1 of 1 device span without a launch call: launch latency unknown",
    )


def test_json_of_jax_is_refused_and_names_the_file_that_is_read(written):
    names = [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}}]
    events = [*names, {"ph": "X", "pid": 1, "tid": 14, "ts": 8.0, "dur": 9.5, "name": "loop_add_fusion", "args": {"hlo_op": "add.1"}}]
    with pytest.raises(TraceError, match="none of Kineto's categories") as error:
        read(written({"displayTimeUnit": "ns", "traceEvents": events}, bare=True))
    assert error.value.hint.startswith("JAX writes an .xplane.pb beside it, which is read")


def test_operators_that_use_the_names_of_kernels_otherwise_are_read(written):
    """Triton's say ``"grid": "grid(16,)"`` and name their kernel's file and stream."""
    operator = event("cpu_op", "triton_poi_fused_0", 0, 5, grid="grid(16,)", stream=0, kernel_file="/tmp/x.py", correlation="a", device=[0])
    assert rows(read(written([operator, kernel("k", 10, 20, 1, grid=[2, 1, 1])])), "name", "blocks") == [
        ("triton_poi_fused_0", 0),
        ("k", 2),
    ]
