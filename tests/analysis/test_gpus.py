"""Metrics of several GPUs: of each by itself, of all together, and of what they send each other."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope import analysis
from streamscope.analysis import IdleSplit, LinkCopies, Work, json_lines, measure, summary
from streamscope.analysis.collectives import awaited
from streamscope.analysis.gpus import busiest_gpu, compared_gpu, work_without_waiting_ns
from streamscope.trace import Collectives, DeviceInfo, Origins, PeerCopies, SpanKind, SpanTable, Trace, TraceInfo
from streamscope.trace.collectives import bus_factor
from streamscope.trace.joins import CALL_KINDS

INFO = TraceInfo("dual", "step", DeviceInfo("cuda", "2 × NVIDIA H100"), "cupti")
GPUS = {"GPU 0 main": 0, "GPU 0 comm": 0, "GPU 1 main": 1, "GPU 1 comm": 1, "GPU 1 peer copy": 1}


def step(*more, instance=0, ranks=2, nbytes=60_000_000) -> Trace:
    """Two GPUs in µs: GPU 1 begins the all-reduce 30 µs late, and hides a part of its copy to GPU 0."""
    rows = [
        ("launch", "gemm", "host", 0, 2, 1),
        ("launch", "gemm", "host", 2, 4, 2),
        ("launch", "all-reduce", "host", 4, 6, 3),
        ("kernel", "gemm", "GPU 0 main", 5, 35, 1),
        ("kernel", "gemm", "GPU 1 main", 6, 58, 2),
        ("kernel", "all-reduce", "GPU 0 comm", 30, 90, 3),
        ("kernel", "all-reduce", "GPU 1 comm", 60, 89, 3),
        ("copy", "to GPU 0", "GPU 1 peer copy", 90, 110),
        ("kernel", "gemm", "GPU 1 main", 95, 120),
        *more,
    ]
    spans = SpanTable.of(*((kind, name, lane, at * 1000, end * 1000, *rest) for kind, name, lane, at, end, *rest in rows), gpus=GPUS)
    both = Collectives.from_columns([5, 6], "all_reduce", instance=instance, op="sum", nbytes=nbytes, ranks=ranks)
    moved = np.where(spans.kind == SpanKind.COPY, 40_000_000, 0)
    waits = Origins(row_waits=np.array([[4, 6]]))
    return Trace(replace(spans, bytes=moved), INFO, waits, collectives=both, peers=PeerCopies(np.array([7]), np.array([1]), np.array([0])))


def test_each_gpu_is_measured_by_itself_and_the_busiest_is_at_the_top():
    found = summary(step())
    one, other = found.gpus
    assert (found.gpu, one.gpu, other.gpu) == (1, 0, 1)
    assert (one.gpu_busy_us, one.overlap, one.span_us) == (85, 5 / 85, 110)
    assert (other.gpu_busy_us, other.overlap, other.span_us) == (52 + 29 + 25, 0, 118)
    assert (one.work.hidden_communication_ns, one.work.exposed_communication_ns) == (5_000, 75_000)
    # The copy from 90 to 110 is communication, too, on both GPUs: on GPU 1, a kernel hides it from 95 on.
    assert (other.work.hidden_communication_ns, other.work.exposed_communication_ns, other.work.memory_ns) == (15_000, 34_000, 0)
    assert (one.copy_us, other.copy_us) == (20, 5)
    assert [stream.name for stream in one.streams] == ["GPU 0 main", "GPU 0 comm", "GPU 0 from GPU 1"]
    assert one.idle == IdleSplit(0, 5_000, 0, 0)
    for each in found.gpus:
        assert each.span_us == pytest.approx(each.gpu_busy_us + each.copy_us + each.idle.total_ns / 1000)
    assert (found.gpu_busy_us, [stream.name for stream in found.streams]) == (106, ["GPU 1 main", "GPU 1 comm", "GPU 1 peer copy"])
    whole = {"gpus": (), "links": (), "warnings": (), "mean_exposed_us": None, "mean_hidden_us": None}
    assert replace(found, info=other.info, **whole) == replace(other, warnings=())
    assert "step · dual · 2 × NVIDIA H100 · GPU 1 of 2, which has most work" in repr(found)


def test_waiting_transfer_and_bandwidth_of_collectives_by_hand():
    found = summary(step())
    assert [(each.collective_wait_us, each.collective_transfer_us) for each in found.gpus] == [(30, 30), (0, 29)]
    assert [each.waited_for_us for each in found.gpus] == [0, 30]  # GPU 1 is the slow one.
    assert found.bus_bandwidth == pytest.approx(60_000_000 / 30_000)  # n = 2: the factor is 1; from 60 to 90 µs
    assert (found.mean_exposed_us, found.mean_hidden_us) == ((75 + 34) / 2, (5 + 15) / 2)
    assert analysis.mean_exposed_ns(step()) == found.mean_exposed_us * 1000
    assert found.busy_imbalance == pytest.approx(106 / 95.5 - 1)
    assert found.peer_copy_us == 20
    assert found.links == (LinkCopies(1, 0, 1, 40_000_000, 20.0),)
    assert found.links[0].bandwidth == 2000.0


@pytest.mark.parametrize("unknown", [{"instance": -1}, {"ranks": 4}])
def test_without_all_parts_of_a_collective_nobody_knows_who_waited(unknown):
    found = summary(step(**unknown))
    assert {(each.collective_wait_us, each.collective_transfer_us) for each in found.gpus} == {(None, None)}
    assert found.bus_bandwidth is None
    assert summary(step(nbytes=0)).bus_bandwidth is None
    assert summary(step(ranks=0)).gpus[0].collective_wait_us == 30  # Two parts, and nobody says that there are more.


def test_bus_bandwidth_has_the_factors_of_nccl():
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "barrier")
    assert [bus_factor(kind, 4) for kind in kinds] == [1.5, 0.75, 0.75, 0.75, 1, 1, 0]


def test_the_metrics_of_an_engine_are_those_of_its_busiest_gpu():
    found = measure(step(), [150_000] * 6)
    assert (found.gpu_busy_us, found.kernel_count, found.busy_fraction) == (106, 3, 106 / 150)
    assert (found.communication_us, found.exposed_us, found.hidden_us) == (49, 34, 15)
    assert (found.collective_wait_us, found.collective_transfer_us, found.peer_copy_us) == (0, 29, 20)
    assert "communication alone, µs" in repr(found)
    alone = measure(step().of_gpu(0), [150_000] * 6)
    assert (alone.gpu_busy_us, alone.exposed_us, alone.busy_imbalance) == (85, 75, None)


def test_a_comparison_is_of_the_gpu_that_the_others_wait_for_under_each_engine():
    def uneven(x, y, v, w):
        with ss.gpu(0):
            first = x @ v
        with ss.gpu(1):
            for _ in range(4):
                y = y @ w
        return ss.ops.all_reduce([first, y])

    inputs = [np.ones((1024, 1024), np.float32) for _ in range(4)]
    runs = ss.compare(uneven, *inputs, engines="async,graph", device="simulated", progress=False)
    assert {run.metrics.gpu for run in runs.values()} == {1} == {runs.to_dict()["gpu"]}
    assert {run.metrics.kernel_count for run in runs.values()} == {5}
    assert {run.metrics.collective_wait_us for run in runs.values()} == {0}
    assert len({round(run.metrics.communication_us, 1) for run in runs.values()}) == 1
    for run in runs.values():
        assert re.fullmatch(r"the other GPU waits \S+ µs for GPU 1, which has more work", run.metrics.awaited)
    assert "Metrics of one GPU are of GPU 1: no other one has more work." in str(runs)
    assert "Under async the other GPU waits" in runs.verdict


def waiting() -> Trace:
    """GPU 0 has 30 µs of work, and waits 90 µs, which are 120 µs. GPU 1 has 110 µs of work."""
    rows = [
        ("kernel", "gemm", "GPU 0 main", 0, 10_000),
        ("kernel", "all-reduce", "GPU 0 comm", 10_000, 120_000),
        ("kernel", "gemm", "GPU 1 main", 10_000, 100_000),
        ("kernel", "all-reduce", "GPU 1 comm", 100_000, 120_000),
    ]
    both = Collectives.from_columns([1, 3], "all_reduce", instance=0, op="sum", nbytes=1, ranks=2)
    return Trace(SpanTable.of(*rows, gpus=GPUS), INFO, collectives=both)


def test_waiting_in_collectives_makes_no_gpu_the_busiest():
    trace = waiting()
    assert work_without_waiting_ns(trace).tolist() == [30_000, 110_000]
    assert busiest_gpu(trace) == compared_gpu([trace]) == summary(trace).gpu == measure(trace, [200_000]).gpu == 1
    assert ss.diff(trace, trace).first.gpus == (1,)
    assert analysis.collective_wait_ns(trace) == 0
    assert analysis.waited_for_ns(trace) == 90_000
    assert analysis.work_split(trace).compute_ns == 90_000
    assert analysis.neighbours(trace).kernel_ns == 110_000
    # In a table of spans, nobody knows who waits.
    assert busiest_gpu(trace.spans) == 0
    assert busiest_gpu(replace(trace, collectives=Collectives())) == 0


def test_a_replay_does_not_count_beside_its_kernels():
    rows = [("kernel", "a", "GPU 0 main", 0, 10), ("kernel", "a", "GPU 1 main", 0, 40)]
    replay = ("graph", "replay", "GPU 0 main", 0, 40)
    assert busiest_gpu(SpanTable.of(*rows, replay, gpus=GPUS)) == 1
    assert busiest_gpu(SpanTable.of(("graph", "replay", "GPU 1 main", 0, 40), gpus=GPUS)) == 1


def test_a_gpu_without_more_work_was_launched_later_and_waits_have_a_range():
    begins = (0, 5_000, 10_000, 60_000)
    rows = [("kernel", "gemm", f"GPU {gpu} main", begin, begin + 10_000) for gpu, begin in enumerate(begins)]
    rows += [("kernel", "all-reduce", f"GPU {gpu} comm", begin + 10_000, 90_000) for gpu, begin in enumerate(begins)]
    lanes = {f"GPU {gpu} {stream}": gpu for gpu in range(4) for stream in ("main", "comm")}
    parts = Collectives.from_columns([3, 4, 5, 7], "all_reduce", instance=0, op="sum", nbytes=1, ranks=4)
    found = awaited(Trace(SpanTable.of(*rows, gpus=lanes), INFO, collectives=parts))
    assert (found.gpu, found.others, found.works_longer) == (3, 3, False)
    assert found.words == "the others wait 50.0 µs to 60.0 µs for GPU 3, which was launched later"


def test_copies_alone_are_communication_too():
    runs = ss.compare(lambda a: ss.ops.to_gpu(a, 1), np.ones((512, 512), np.float32), engines="async", device="simulated", progress=False)
    metrics = runs["async"].metrics
    assert metrics.exposed_us == metrics.communication_us == metrics.peer_copy_us > 0
    assert "Does communication hide? No: under async, all " in runs.verdict


def test_functions_of_one_gpu_take_the_busiest_of_several():
    trace = step()
    spans, one = trace.spans, trace.of_gpu(1).spans
    for name in (
        "gpu_busy_ns", "copy_busy_ns", "exposed_copy_ns", "overlap_ns", "overlap_fraction", "average_concurrency", "copy_compute_overlap",
        "exposed_host_ns", "host_device_overlap", "device_idle", "work_split", "exposed_communication_ns", "hidden_communication_ns",
    ):  # fmt: skip
        function = getattr(analysis, name)
        assert function(spans) == function(one), name
    assert analysis.activity(spans).kernels.tolist() == analysis.activity(one).kernels.tolist()
    assert analysis.device_gaps(spans).start_ns.tolist() == analysis.device_gaps(one).start_ns.tolist()
    assert [(pair.first, pair.second) for pair in analysis.stream_overlap(spans)] == [
        ("GPU 0 main", "GPU 0 comm"),
        ("GPU 1 main", "GPU 1 comm"),
    ]
    found = analysis.neighbours(trace)
    assert len(found.row) == 0
    assert found.kernel_ns == 106_000
    beside = analysis.neighbours(step(("kernel", "late", "GPU 1 comm", 100, 130)))
    assert [trace.spans.start_ns[row] for row in beside.row[:1]] == [95_000]


def test_communication_is_known_from_the_trace_whatever_it_is_called():
    trace = step()
    assert [Work(work).name for work in analysis.work_of(trace) if work >= 0] == [
        "COMPUTE", "COMPUTE", "COMMUNICATION", "COMMUNICATION", "COMMUNICATION", "COMPUTE",
    ]  # fmt: skip
    assert analysis.work_split(trace.of_gpu(0)).communication_ns == 80_000


def test_the_critical_path_goes_through_the_gpu_that_was_late():
    trace = step()
    path = analysis.critical_path(replace(trace, spans=trace.spans.select(np.arange(7)), peers=PeerCopies()))
    lanes = [trace.spans.lanes[trace.spans.lane[row]] for row in path.span]
    assert lanes == ["host", "GPU 1 main", "GPU 1 main", "GPU 1 comm", "GPU 0 comm"]
    assert (path.end_ns - path.start_ns).tolist() == [2_000, 4_000, 52_000, 2_000, 30_000]


def test_two_gpus_of_one_trace_are_compared_stream_by_stream():
    trace = step()
    found = ss.diff(trace.of_gpu(0), trace.of_gpu(1))
    assert "GPU 0 is compared with GPU 1" in " ".join(found.warnings)
    assert {row.name: row.count for row in found.rows} == {"gemm": (1, 2), "all-reduce": (1, 1), "to GPU 0": (1, 1)}
    whole = ss.diff(trace, replace(trace, info=replace(INFO, engine="sync")))
    assert (whole.first.gpus, whole.second.gpus) == ((1,), (1,))
    assert sum(part.difference_us for part in whole.contributions) == 0


def test_traces_of_several_gpus_differ_by_the_span_of_all():
    def called(late_us, computes_us):
        """The host calls GPU 1 so late, and both add up for 10 µs once GPU 1 has computed."""
        end_us = late_us + 5 + computes_us
        rows = [
            ("launch", "gemm", "host", 0, 2, 1),
            ("kernel", "gemm", "GPU 0 main", 5, 8, 1),
            ("launch", "gemm", "host", late_us, late_us + 2, 2),
            ("kernel", "gemm", "GPU 1 main", late_us + 5, end_us, 2),
            ("kernel", "all-reduce", "GPU 0 comm", end_us, end_us + 10),
            ("kernel", "all-reduce", "GPU 1 comm", end_us - 4, end_us + 10),
        ]
        spans = SpanTable.of(*((kind, name, lane, at * 1000, end * 1000, *rest) for kind, name, lane, at, end, *rest in rows), gpus=GPUS)
        parts = np.flatnonzero(spans.is_kind([SpanKind.KERNEL]))[-2:]
        return Trace(spans, INFO, collectives=Collectives.from_columns(parts, "all_reduce", instance=0, op="sum", nbytes=4, ranks=2))

    first, second = called(30, 60), called(10, 50)
    found = ss.diff(first, second)
    assert found.span_us == (105, 75)
    assert {part.label: (part.first_us, part.second_us) for part in found.contributions if part.first_us} == {
        "compute": (60, 50), "communication alone": (10, 10), "idle: launch": (5, 5), "other GPUs before and after": (30, 10),
    }  # fmt: skip
    assert (found.communication.first_us, found.communication.second_us) == (14, 14)
    assert "on GPU 1, 20.0 µs less time of other GPUs before and after and 10.0 µs less compute." in found.answer
    assert "its parts and the rows are of GPU 1" in found.warnings[0]
    assert json.loads(json.dumps(found.to_dict()))["gpu"] == 1
    one = ss.diff(first.of_gpu(1), second.of_gpu(1))
    assert (one.span_us, one.communication) == ((75, 65), None)


def test_what_if_of_foreign_code_predicts_the_busiest_gpu():
    rows = [("a", "7", 0, 5_000, 0), ("b", "7", 6_000, 9_000, 1), ("c", "9", 0, 9_500, 1)]
    trace = ss.Trace.from_spans([dict(zip(("name", "stream", "start_ns", "end_ns", "gpu"), row, strict=True)) for row in rows])
    assert trace.spans.lanes == ("GPU 0 stream 7", "GPU 1 stream 7", "GPU 1 stream 9")
    assert len(ss.what_if(trace, engine="async").spans.of_kind([SpanKind.KERNEL])) == 2


def test_json_has_all_gpus_and_lines_say_which_one_they_are_of():
    found = summary(step()).to_dict()
    assert [each["gpu"] for each in found["gpus"]] == [0, 1]
    assert found["gpus"][1]["gpu_busy_us"] == found["gpu_busy_us"]
    assert "busy_imbalance" not in found["gpus"][0]
    assert found["links"] == [{"from": 1, "to": 0, "count": 1, "bytes": 40_000_000, "time_us": 20.0}]
    lines = [json.loads(line) for line in json_lines(step()).splitlines()]
    busy = [(line["gpu"], line["value"]) for line in lines if line["name"] == "gpu_busy_us"]
    assert busy == [(0, 85.0), (1, 106.0)]
    (speed,) = (line for line in lines if line["name"] == "bus_bandwidth")
    assert (speed["unit"], "gpu" in speed) == ("GB/s", False)
    (moved,) = (line for line in lines if line["name"] == "peer_copy_bytes")
    assert (moved["unit"], moved["from"], moved["to"], moved["value"]) == ("bytes", 1, 0, 40_000_000)
    keys = [tuple(line.get(key) for key in ("name", "gpu", "lane", "from", "to")) for line in lines]
    assert len(set(keys)) == len(keys)


def test_texts_show_the_gpus_side_by_side():
    found = summary(step())
    row = next(line for line in repr(found).splitlines() if line.lstrip().startswith("0 "))
    assert row.split() == ["0", "2", "85.0", "75.0", "5.00", "30.0", "0", "5.00", "5.9"]
    assert "| main | 2 | 77.0 |" in found.to_markdown()
    assert "| GPU 1 → 0 | 1 | 38.1 | 20.0 | 2000.0 |" in found.to_markdown()
    assert "9 spans of 2 GPUs" in repr(step())


def launched_alone(spans: SpanTable) -> SpanTable:
    """Return the work on the device with the calls that launched it."""
    work = spans.kind >= SpanKind.KERNEL
    return spans.select(work | (spans.is_kind(CALL_KINDS) & np.isin(spans.correlation, spans.correlation[work])))


def side_by_side(first: SpanTable, second: SpanTable) -> Trace:
    """Return two tables as two GPUs of one trace, each launched by a thread of its own."""
    both, columns = (first, second), {}
    for name in ("kind", "start_ns", "end_ns", "basis", "bytes", "operation", "part", "flops", "blocks", "threads", "graph_node"):
        columns[name] = np.concatenate([getattr(spans, name) for spans in both])
    texts = tuple(dict.fromkeys((*first.names, *second.names)))
    columns["name"] = np.concatenate([np.array([texts.index(spans.names[code]) for code in spans.name], int) for spans in both])
    columns["symbol"] = np.full(len(columns["kind"]), -1)
    columns["lane"] = np.concatenate([first.lane, second.lane.astype(int) + len(first.lanes)])
    columns["correlation"] = np.concatenate([first.correlation, second.correlation + 1000 * (second.correlation >= 0)])
    order = np.argsort(columns["start_ns"], kind="stable")
    lanes = tuple(f"GPU {gpu} {lane}" for gpu, spans in enumerate(both) for lane in spans.lanes)
    gpus = tuple(gpu if number else -1 for gpu, spans in enumerate(both) for number in range(len(spans.lanes)))
    table = SpanTable(**{name: values[order] for name, values in columns.items()}, names=texts, lanes=lanes, gpus=gpus)
    return Trace(table, INFO)


@given(first=st.from_type(SpanTable), second=st.from_type(SpanTable))
def test_metrics_of_two_gpus_are_those_of_two_traces(first, second):
    tables = launched_alone(first), launched_alone(second)
    found = summary(side_by_side(*tables))
    for each, spans in zip(found.gpus, tables, strict=True):
        alone = summary(Trace(replace(spans, gpus=(-1, 0, 0, 0)), INFO))
        for name in (
            "kernel_count", "span_us", "gpu_busy_us", "copy_us", "idle", "overlap", "average_concurrency", "launch_latency", "queue_time",
            "api_time", "launch_overhead", "work", "short_kernels", "late_kernels", "queue_full_us", "net_overlap_us",
        ):  # fmt: skip
            assert getattr(each, name) == getattr(alone, name), name
        assert [replace(stream, name=stream.name.split()[-1]) for stream in each.streams] == list(alone.streams)
