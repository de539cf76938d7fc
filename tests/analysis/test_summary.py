"""The metrics of one trace of any origin: by hand, and against a count for each nanosecond."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.analysis import incomplete_replays, launches, span_ns, summary
from streamscope.analysis.metrics import PROFILED
from streamscope.errors import TraceError
from streamscope.trace import Basis, DeviceInfo, SpanBuilder, SpanKind, SpanTable, Trace, TraceInfo

LAUNCH, GRAPH_LAUNCH, API, RANGE, SYNC, KERNEL, COPY, SET = (
    SpanKind[name] for name in ("LAUNCH", "GRAPH_LAUNCH", "API", "RANGE", "SYNC", "KERNEL", "COPY", "SET")
)  # fmt: skip
KEYS = [
    "gpu", "span_us", "gpu_busy_us", "communication_us", "exposed_us", "hidden_us", "mean_exposed_us", "mean_hidden_us",
    "collective_wait_us", "collective_transfer_us",
    "waited_for_us", "bus_bandwidth", "busy_imbalance", "peer_copy_us", "copy_us", "idle_us", "overlap", "average_concurrency",
    "net_overlap_us",
    "kernel_count", "short_kernels", "late_kernels", "launch_latency_us", "launch_overhead_us", "queue_time_us", "api_time_us",
    "queue_full_us", "streams", "at_least", "warnings", "gpus", "links", "counters", "markers",
    "user_notes",
]  # fmt: skip
IDLE = ["total", "host_wait", "launch", "kernel_wait", "other"]


def foreign(*rows, recorder="spans", device="cuda", ledger=None, notes=(), basis=Basis.MEASURED, stretched=False):
    """A trace as readers of other tools' files make it, from rows of (kind, lane, start, end, correlation)."""
    builder = SpanBuilder(["thread 1", "thread 1 ranges", "thread 2", "stream 7", "stream 20"])
    for kind, lane, start_ns, end_ns, correlation in rows:
        builder.add(kind, kind.name.lower(), lane, start_ns, end_ns, correlation=correlation, basis=basis)
    about = DeviceInfo(device, "card")
    return Trace(builder.build(), TraceInfo(recorder, "step", about, recorder, ledger=ledger or {}, notes=notes, stretched=stretched))


def test_launches_into_empty_queues_are_looked_for_once(monkeypatch):
    asked, before_ns = [], launches._before_ns
    monkeypatch.setattr(launches, "_before_ns", lambda *rows: asked.append(rows) or before_ns(*rows))
    rows = (LAUNCH, "thread 1", 0, 3, 1), (KERNEL, "stream 7", 5, 9, 1), (LAUNCH, "thread 1", 4, 8, 2), (KERNEL, "stream 20", 11, 15, 2)
    idle = summary(foreign(*rows)).idle
    assert (idle.launch_ns, idle.kernel_wait_ns) == (5, 2)  # The second was called at 4 and there at 9, as the gap began.
    assert len(asked) == 1


def test_a_foreign_trace_by_hand():
    found = summary(
        foreign(
            (RANGE, "thread 1 ranges", 0, 500_000, -1),
            (API, "thread 1", 1_000, 90_000, -1),  # allocates
            (LAUNCH, "thread 1", 100_000, 104_000, 1), (SET, "stream 7", 105_000, 107_000, 1),
            (LAUNCH, "thread 1", 104_000, 106_000, 2), (KERNEL, "stream 7", 110_000, 130_000, 2),
            (LAUNCH, "thread 2", 120_000, 123_000, 3), (KERNEL, "stream 20", 125_000, 135_000, 3),
            (GRAPH_LAUNCH, "thread 1", 125_000, 126_000, 4),
            (KERNEL, "stream 7", 140_000, 150_000, 4), (KERNEL, "stream 7", 151_000, 160_000, 4), (COPY, "stream 20", 158_000, 170_000, 4),
            (SYNC, "thread 1", 126_000, 172_000, -1),
        )
    ).to_dict()  # fmt: skip
    assert list(found) == KEYS
    assert found["kernel_count"] == 4
    assert found["span_us"] == 72  # from the first launch, not from the range or the allocation, to the end of the wait
    assert found["gpu_busy_us"] == 25 + 10 + 9
    assert found["overlap"] == 5 / 44
    # The launch on stream 20 finds an empty queue, and takes 5. Before the first work: launch, 5. Before the kernel at 110: called at 104,
    # so launch until 109, which is 2 of the gap, and kernel wait of 1. Before 140 and 151: kernel wait, 5 + 1. At the end 2.
    assert found["idle_us"] == {"total": 16, "host_wait": 0, "launch": 7, "kernel_wait": 7, "other": 2}
    assert found["launch_latency_us"] == {"median": 6, "p95": pytest.approx(6 + 9 * 0.9)}  # 6, 5 and 15
    assert found["queue_time_us"] == {"median": 4, "p95": pytest.approx(4 + 10 * 0.9)}  # 4, 2 and 14
    assert found["api_time_us"] == {"median": 2.5, "p95": pytest.approx(3 + 0.85)}  # 1, 2, 3 and 4
    # The graph was called at 125, and so on the device at 130, when the kernel before it on stream 7 ended: 10 of kernel wait.
    first, second = found["streams"]
    assert first == {
        "name": "stream 7", "kernel_count": 3, "busy_us": 39, "copy_us": 2,
        "idle_us": {"total": 14, "host_wait": 0, "launch": 2, "kernel_wait": 12, "other": 0},
    }  # fmt: skip
    assert (second["name"], second["kernel_count"], second["busy_us"], second["copy_us"]) == ("stream 20", 1, 10, 12)
    assert found["warnings"] == []
    assert json.loads(json.dumps(found)) == found


@given(spans=st.from_type(SpanTable))
def test_the_parts_add_up_to_the_span(ticks, spans):
    found = summary(Trace(spans, TraceInfo("kineto", "p", DeviceInfo("cuda", "card"), "kineto")))
    assert found.span_us * 1000 == pytest.approx(spans.end_ns.max(initial=0) - spans.start_ns.min(initial=99) if len(spans) else 0)
    assert found.span_us == pytest.approx(found.gpu_busy_us + found.copy_us + found.idle.total_ns / 1000)
    kernels, device = ticks(spans, KERNEL) > 0, ticks(spans, KERNEL, COPY, SET) > 0
    assert found.gpu_busy_us * 1000 == pytest.approx(kernels.sum())
    assert found.copy_us * 1000 == pytest.approx((device & ~kernels).sum())
    for stream in found.streams:
        of_lane = ticks(spans, KERNEL, lane=stream.name)
        assert stream.busy_us * 1000 == pytest.approx((of_lane > 0).sum())
        assert stream.copy_us * 1000 == pytest.approx((ticks(spans, COPY, SET, lane=stream.name) > 0).sum())
    assert sum(stream.kernel_count for stream in found.streams) == found.kernel_count == (spans.kind == KERNEL).sum()
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()


def test_launch_latency_is_told_by_its_median_and_most_of_it():
    found = summary(foreign((LAUNCH, "thread 1", 0, 3_000, 1), (KERNEL, "stream 7", 5_000, 9_000, 1)))
    assert "launch latency               5.00 µs, 95 % below 5.00 µs" in repr(found)
    assert "API time                     3.00 µs, 95 % below 3.00 µs" in repr(found)


def test_kernels_that_communicate_keep_the_gpu_busy():
    builder = SpanBuilder(["stream 7", "stream 20"])
    builder.add(KERNEL, "gemm", "stream 7", 0, 40_000)
    builder.add(KERNEL, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "stream 20", 30_000, 90_000)
    found = summary(Trace(builder.build(), TraceInfo("kineto", "step", DeviceInfo("cuda", "card"), "spans")))
    assert (found.gpu_busy_us, found.work.exposed_communication_ns) == (90, 50_000)


def test_where_there_is_nothing_to_measure_there_is_no_number():
    found = summary(foreign()).to_dict()
    nothing = {"median": None, "p95": None}
    assert found == {
        "gpu": None, "kernel_count": 0, "span_us": 0, "gpu_busy_us": 0, "communication_us": 0, "exposed_us": 0, "hidden_us": 0,
        "mean_exposed_us": None, "mean_hidden_us": None,
        "collective_wait_us": None, "collective_transfer_us": None, "waited_for_us": None, "bus_bandwidth": None,
        "busy_imbalance": None, "peer_copy_us": None,
        "copy_us": 0, "idle_us": dict.fromkeys(IDLE, 0), "overlap": None, "average_concurrency": None, "net_overlap_us": None,
        "short_kernels": 0, "late_kernels": 0, "launch_overhead_us": nothing, "queue_full_us": 0,
        "launch_latency_us": nothing, "queue_time_us": nothing, "api_time_us": nothing, "streams": [], "at_least": [], "warnings": [],
        "gpus": [], "links": [], "counters": [], "markers": 0, "user_notes": [],
    }  # fmt: skip
    only_ranges = foreign((RANGE, "thread 1 ranges", 5, 9, -1))
    assert span_ns(only_ranges.spans) == 0
    assert summary(only_ranges).to_dict() == found


def test_what_a_profiler_recorded_says_so():
    rows = (LAUNCH, "thread 1", 0, 3, 1), (KERNEL, "stream 7", 5, 9, 1)
    for stretched, warnings in ((True, (PROFILED,)), (False, ())):
        assert summary(foreign(*rows, stretched=stretched)).warnings == warnings
    assert summary(foreign(*rows, stretched=True, ledger={"recorded_ns": 12, "unrecorded_ns": 10})).warnings == ()


def test_that_launch_calls_are_missing_is_said_once():
    found = summary(ss.Trace.from_spans([("a", 1, 0, 10), ("b", 1, 20, 30)]))
    assert [text for text in found.warnings if "launch call" in text] == [
        "kernels or copies without a launch call: 2; latency and idle causes leave them out"
    ]


def test_lost_records_mark_the_numbers():
    found = summary(
        foreign((LAUNCH, "thread 1", 0, 3, 1), (LAUNCH, "thread 1", 3, 6, 2), (KERNEL, "stream 7", 5, 9, 1), (KERNEL, "stream 7", 9, 12, 9))
    )
    assert found.warnings == (
        "launch calls without a record on the device: 1; GPU busy and overlap are lower bounds",
        "kernels or copies without a launch call: 1; latency and idle causes leave them out",
    )
    assert found.at_least == {"kernel_count", "gpu_busy_us", "overlap"}
    assert found.at_most == {"idle_us"}
    assert "| idle | ≤ 0.005 µs" in found.to_markdown()
    assert "| GPU busy | ≥ 0.007 µs (58 %)" in found.to_markdown()
    assert "kernels" in repr(found)
    assert not any(meaning.startswith(("Return", "Count")) for _, _, meaning in found.rows())
    assert "≥ 2" in repr(found)


def test_records_that_the_recorder_says_it_dropped_mark_the_numbers():
    rows = (LAUNCH, "thread 1", 0, 3, 1), (KERNEL, "stream 7", 5, 9, 1)
    found = summary(foreign(*rows, ledger={"lost_records": 5.0}, notes=("CUPTI dropped 5 records",)))
    assert (found.at_least, found.at_most) == ({"kernel_count", "gpu_busy_us", "overlap"}, {"idle_us"})
    assert not summary(foreign(*rows)).at_least | summary(foreign(*rows)).at_most


ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}<float>, std::array<char*, 3ul> >(int)"


def test_kernels_are_added_up_by_name_and_symbol():
    builder = SpanBuilder(["stream 7"])
    for at, (name, symbol, length) in enumerate(
        [("gemm", "", 10), ("vectorized_elementwise_kernel", ELEMENTWISE.format("CUDAFunctor_add"), 3),
         ("vectorized_elementwise_kernel", ELEMENTWISE.format("FillFunctor"), 30), ("gemm", "", 20),
         ("vectorized_elementwise_kernel", ELEMENTWISE.format("CUDAFunctor_add"), 5)]
    ):  # fmt: skip
        builder.add(KERNEL, name, "stream 7", 100_000 * at, 100_000 * at + 1000 * length, symbol=symbol)
    builder.add(COPY, "copy", "stream 7", 900_000, 990_000)
    found = summary(Trace(builder.build(), TraceInfo("kineto", "step", DeviceInfo("cuda", "card"), "kineto")))
    assert [kernel.cells() for kernel in found.kernels] == [
        ("gemm", "2", "30.0", "15.0"),
        ("vectorized_elementwise_kernel FillFunctor", "1", "30.0", "30.0"),
        ("vectorized_elementwise_kernel CUDAFunctor_add", "2", "8.00", "4.00"),
    ]
    assert found.kernels[1].symbol == ELEMENTWISE.format("FillFunctor")
    assert "| vectorized\\_" not in found.to_markdown()
    assert "CUDAFunctor_add | 2 | 8.00 | 4.00 |" in found.to_markdown()
    assert "vectorized_elementwise_kernel CUDAFunctor_add      2       8.00      4.00" in repr(found)


def test_how_far_a_time_may_be_off_is_told_with_its_share():
    found = summary(foreign((KERNEL, "stream 7", 0, 40_000, 1), (KERNEL, "stream 7", 60_000, 100_000, 2)))
    assert "80.0 µs ± 8.00 µs (80 ± 8 %)" in repr(replace(found, gpu_busy_error_us=8.0))


def test_a_function_of_spans_says_what_to_pass():
    with pytest.raises(TraceError, match=r"pass trace\.spans"):
        span_ns(foreign((KERNEL, "stream 7", 5, 9, 1)))


def replays(*nodes):
    """Replays of graphs, each with the ids of its nodes."""
    builder = SpanBuilder(["thread 1", "stream 7"])
    for at, ids in enumerate(nodes):
        builder.add(GRAPH_LAUNCH, "graph", "thread 1", 1000 * at, 1000 * at + 5, correlation=at)
        for turn, node in enumerate(ids):
            builder.add(KERNEL, "k", "stream 7", 1000 * at + 10 + 5 * turn, 1000 * at + 14 + 5 * turn, correlation=at, graph_node=node)
    return Trace(builder.build(), TraceInfo("recorded", "step", DeviceInfo("cuda", "card"), "cupti"))


@pytest.mark.parametrize(
    ("nodes", "incomplete"),
    [
        ([(1, 2, 3), (1, 2, 3)], 0), ([(1, 2), (1, 2, 3)], 1), ([(1, 2, 3), (2, 3), (3,)], 2), ([(1, 2, 3), (4, 5)], 0),
        ([(1, 2), (4, 5, 6), (2, 1), (6, 4)], 1), ([(7, 8), (7, 8, 9), (9,)], 2),
        ([(1, 2), (3, 4), (5, 6), (4, 5), (2, 3)], 5), ([(-1, -1), (-1,)], 0), ([(1, 1, 2), (1, 2)], 0), ([()], 0),
        ([(0, 1), (1,), (0, 1)], 1), ([(7, -1), (-1,)], 0),
    ],
)  # fmt: skip
def test_replays_of_one_graph_must_have_the_same_kernels(nodes, incomplete):
    assert incomplete_replays(replays(*nodes).spans) == incomplete


def test_replays_with_lost_kernels_mark_the_numbers():
    found = summary(replays((1, 2, 3), (1, 3)))
    told = "replays of a graph with fewer kernels than its other replays: 1; GPU busy and overlap are lower bounds"
    assert found.warnings == (told,)
    assert "gpu_busy_us" in found.at_least


def test_estimated_times_side_by_side_make_overlap_a_lower_bound():
    rows = (KERNEL, "stream 7", 0, 10, 1), (KERNEL, "stream 20", 5, 15, 2)
    found = summary(foreign(*rows, basis=Basis.PLACED))
    assert "times of 2 of 2 kernels are estimates, not read from a clock; overlap is a lower bound" in found.warnings
    assert found.at_least == {"overlap"}
    assert not summary(foreign(rows[0], basis=Basis.PLACED)).at_least  # one stream cannot overlap
    assert not summary(foreign(*rows)).at_least


@pytest.mark.parametrize(
    ("changed", "warning"),
    [
        ({"device": "simulated"}, "all times are simulated (card), not measured"),
        ({"device": "simulated", "recorder": "prediction"}, "all times are predicted, not measured"),
        ({"ledger": {"recorded_ns": 30, "unrecorded_ns": 15}}, "recording makes the run 2.0 times as long: latency, API time and idle"),
        ({"notes": ("2 kernels spill",)}, "2 kernels spill"),
    ],
)
def test_what_a_reader_must_know_is_a_warning(changed, warning):
    found = summary(foreign((LAUNCH, "thread 1", 0, 3, 1), (KERNEL, "stream 7", 5, 9, 1), **changed))
    assert any(one.startswith(warning) for one in found.warnings)
    assert warning.split(":")[0] in repr(found)
    assert warning[1:20] in found.to_markdown()


def test_clocks_that_disagree_are_a_warning():
    found = summary(foreign((LAUNCH, "thread 1", 10, 13, 1), (KERNEL, "stream 7", 5, 9, 1)))
    assert found.warnings == ("1 of 1 launches seem to run before they were called: the two clocks do not agree",)


def test_text_from_a_file_stays_text():
    builder = SpanBuilder(["stream 7"])
    builder.add(KERNEL, "k", "stream 7", 0, 5)
    info = TraceInfo("kineto", "<b>|x", DeviceInfo("cuda", "a\x1b[31m|b"), "kineto", notes=("see [here](http://x)",))
    found = summary(Trace(builder.build(), info))
    assert "\x1b" not in repr(found) + found.to_markdown()
    assert "# \\<b\\>\\|x" in found.to_markdown()
    assert "\\[here\\]" in found.to_markdown()


def test_many_streams_and_kernels_of_one_launch():
    """A library call of three kernels is one launch; 200 streams each have a row."""
    builder = SpanBuilder(["thread 1", *(f"stream {number}" for number in range(200))])
    for number in range(200):
        builder.add(LAUNCH, "call", "thread 1", 10 * number, 10 * number + 5, correlation=number)
        for part in range(3):
            start_ns = 10 * number + 7 + 4 * part
            builder.add(KERNEL, "k", f"stream {number}", start_ns, start_ns + 3, correlation=number, operation=number)
    found = summary(Trace(builder.build(), TraceInfo("kineto", "p", DeviceInfo("cuda", "card"), "kineto")))
    assert found.kernel_count == 600
    assert len(found.streams) == 200
    assert {stream.kernel_count for stream in found.streams} == {3}
    assert found.launch_latency.p95_us == 0.007
    assert np.isclose(found.api_time.median_us, 0.005)


def test_kernels_of_one_short_name_are_told_apart_by_what_differs():
    builder = SpanBuilder(["stream 7"])
    long = "void cutlass::gemm<" + "cutlass::TensorRef<float, 4>, " * 15 + "cutlass::Shape<{}, 64>>(Params)"
    for at, size in enumerate((64, 128, 256)):
        builder.add(KERNEL, "gemm", "stream 7", 100 * at, 100 * at + 50 - at, symbol=long.format(size))
    found = summary(Trace(builder.build(), TraceInfo("e", "p", DeviceInfo("cuda", "card"))))
    assert [kernel.name.rpartition(" … ")[2] for kernel in found.kernels] == ["64", "128", "256"]
    assert len({kernel.name.rpartition(" … ")[0] for kernel in found.kernels}) == 1
    assert all(len(line) < 120 for line in repr(found).splitlines())
    assert [kernel.symbol for kernel in found.kernels] == [long.format(size) for size in (64, 128, 256)]
