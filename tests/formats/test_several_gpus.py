"""Files of several GPUs: collectives, copies between GPUs, and which parts are one operation, in every format that says so."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from tests.analysis.test_gpus import step
from tests.formats.databases import nsight, rocpd
from tests.formats.kineto_files import call, content, dumps, event, kernel
from tests.formats.test_xplane import message, space

import streamscope as ss
from streamscope.trace import Collectives, SpanKind

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def nccl(name, start_ns, end_ns, correlation, gpu, **args):
    """Return a kernel of NCCL with the arguments that PyTorch's profiler gives it."""
    return kernel(name, start_ns, end_ns, correlation, device=gpu, stream=20, **args)


def told(kind, sequence=None, *, elements=(1024, 1024), dtype="Float", group="0"):
    """Return the arguments of a collective of two ranks."""
    found = {"Collective name": kind, "In msg nelems": elements[0], "Out msg nelems": elements[1], "Group size": 2, "dtype": dtype}
    found |= {"Process Group Name": group, "Process Group Ranks": "[0, 1]"}
    return found if sequence is None else found | {"Seq": sequence}


def read(tmp_path, *events, **options):
    path = tmp_path / "two.json"
    path.write_text(dumps(content(list(events))), encoding="utf-8")
    return ss.read(path, **options)


def of(trace, *columns):
    return list(zip(*(trace.collectives.to_pandas()[column] for column in columns), strict=True))


def test_arguments_say_kind_size_group_and_number(tmp_path):
    events = [nccl(REDUCE, 0, 9000, 1, 0, **told("allreduce", 7)), nccl(REDUCE, 4000, 9000, 2, 1, **told("allreduce", 7))]
    gathered = told("_allgather_base", 8, elements=(100, 200), dtype="BFloat16")
    events += [nccl("ncclDevKernel_AllGather_RING_LL", 9000 + gpu, 12_000, 3 + gpu, gpu, **gathered) for gpu in (0, 1)]
    events += [nccl("ncclDevKernel_Generic", 13_000, 14_000, 9, 0, **told("all_to_allv", 9, elements=(300, 200), dtype="Long"))]
    trace = read(tmp_path, *events, kernel("gemm", 0, 5000, 8))
    assert of(trace, "kind", "op", "nbytes", "ranks", "communicator", "sequence", "instance") == [
        ("all_reduce", "sum", 4096, 2, "0 [0, 1]", 7, 0), ("all_reduce", "sum", 4096, 2, "0 [0, 1]", 7, 0),
        ("all_gather", "", 400, 2, "0 [0, 1]", 8, 1), ("all_gather", "", 400, 2, "0 [0, 1]", 8, 1),
        ("all_to_all", "", 2400, 2, "0 [0, 1]", 9, -1),
    ]  # fmt: skip
    found = ss.analysis.summary(trace)
    assert [each.collective_wait_us for each in found.gpus] == [4.001, 0]
    assert found.bus_bandwidth == pytest.approx((4096 + 400 / 2) / (5000 + 2999))
    one = read(tmp_path, *events, gpu=1)
    assert of(one, "kind", "sequence", "instance") == [("all_reduce", 7, -1), ("all_gather", 8, -1)]


def test_the_other_end_of_a_message_is_read_and_written(tmp_path):
    sent, received = told("send") | {"Dst Rank": 3}, told("recv") | {"Src Rank": "1"}
    trace = read(tmp_path, nccl("ncclDevKernel_SendRecv", 0, 5, 1, 0, **sent), nccl("ncclDevKernel_SendRecv", 9, 15, 2, 0, **received))
    assert of(trace, "kind", "peer") == [("send", 3), ("recv", 1)]
    assert of(ss.read(trace.to_kineto(tmp_path / "again.json")), "kind", "peer") == [("send", 3), ("recv", 1)]


@pytest.mark.parametrize(
    ("second", "instances"),
    [
        ([("allreduce", 10, 20), ("allgather", 20, 30)], [0, 0, 1, 1]),
        ([("allreduce", 10, 20)], [-1, -1, -1]),
        ([("allgather", 10, 20), ("allreduce", 20, 30)], [-1, -1, -1, -1]),
        ([("allreduce", 30, 40), ("allgather", 40, 50)], [-1, -1, -1, -1]),
    ],
    ids=["as many", "fewer", "in another order", "after those of the other GPU had ended"],
)
def test_without_numbers_the_order_says_which_parts_are_one(tmp_path, second, instances):
    first = [("allreduce", 10, 20), ("allgather", 20, 30)]
    events = [
        nccl("ncclDevKernel_Generic", start * 1000, end * 1000, 10 * gpu + at, gpu, **told(kind))
        for gpu, parts in enumerate((first, second)) for at, (kind, start, end) in enumerate(parts, 1)
    ]  # fmt: skip
    assert read(tmp_path, *events).collectives.instance.tolist() == instances


def test_a_send_belongs_to_its_receive_and_numbers_of_pairs_are_their_own(tmp_path):
    events = [
        nccl("ncclDevKernel_SendRecv", 0, 5, 1, 0, **told("send", 3)), nccl("ncclDevKernel_SendRecv", 0, 5, 2, 1, **told("recv", 3)),
        nccl(REDUCE, 10, 20, 3, 0, **told("allreduce", 3)), nccl(REDUCE, 10, 20, 4, 1, **told("allreduce", 3)),
        nccl(REDUCE, 30, 40, 5, 0, **told("allreduce", 4)), nccl(REDUCE, 30, 40, 6, 1, **told("allreduce", 4, group="1")),
    ]  # fmt: skip
    found = dict.fromkeys(of(read(tmp_path, *events), "kind", "instance"))
    assert list(found) == [("send", 0), ("recv", 0), ("all_reduce", 1), ("all_reduce", -1)]


def test_without_arguments_the_name_says_the_kind(repository):
    trace = ss.read(repository / "tests" / "data" / "issue31" / "comm_names.json")
    kinds, reduced = ["all_reduce"] * 4, ["all_reduce"] * 2
    assert trace.collectives.words("kind") == [
        "all_reduce", "send_recv", *kinds, "all_to_all", "", *reduced, "", "",
    ]  # fmt: skip
    assert trace.collectives.words("op")[0] == "sum"
    assert set(trace.collectives.instance.tolist()) == {-1}


@pytest.mark.parametrize("wrong", [{"In msg nelems": "many"}, {"Seq": -4}, {"dtype": None}, {"Group size": 2**40}, {"Collective name": 7}])
def test_odd_arguments_are_unknown_ones(tmp_path, wrong):
    trace = read(tmp_path, nccl(REDUCE, 0, 9000, 1, 0, **told("allreduce", 7) | wrong))
    assert len(trace.collectives) == 1
    assert ss.analysis.summary(trace).work.communication_ns == 9000


def test_a_copy_between_gpus_names_both(tmp_path):
    copy = event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 0, 2000, tid=9, pid=1, fromDevice=1, inDevice=1, toDevice=0, stream=9,
                 inContext=2, correlation=3, bytes=4000)  # fmt: skip
    more = kernel("gemm", 0, 5000, 8, context=1), kernel("gemm", 2000, 5000, 9, device=1, stream=9, context=2)
    trace = read(tmp_path, call("cudaMemcpyPeerAsync", 0, 10, 3), copy, *more)
    assert trace.spans.lanes == ("thread 4242", "GPU 0 stream 7", "GPU 1 stream 9")
    assert [trace.spans.lanes[trace.spans.lane[row]] for row in trace.peers.span] == ["GPU 1 stream 9"]
    (link,) = ss.analysis.link_copies(trace)
    assert (link.from_gpu, link.to_gpu, link.nbytes, link.bandwidth) == (1, 0, 4000, 2.0)


def test_kineto_keeps_gpus_collectives_and_copies(tmp_path):
    trace = replace(step(), info=replace(step().info, notes=()))
    found = ss.read(trace.to_kineto(tmp_path / "step.json"))
    assert found.gpus == (0, 1)
    assert found.info.device.name == trace.info.device.name
    for column in ("kind", "op", "communicator"):
        assert found.collectives.words(column) == trace.collectives.words(column)
    for column in ("instance", "nbytes", "ranks", "sequence"):
        assert getattr(found.collectives, column).tolist() == getattr(trace.collectives, column).tolist()
    assert found.peers.to_gpu.tolist() == [0]
    before, after = ss.analysis.summary(trace), ss.analysis.summary(found)
    assert (after.bus_bandwidth, after.links) == (before.bus_bandwidth, before.links)
    for one, other in zip(before.gpus, after.gpus, strict=True):
        assert (one.gpu_busy_us, one.work, one.collective_wait_us, one.idle) == (
            other.gpu_busy_us, other.work, other.collective_wait_us, other.idle,
        )  # fmt: skip
    events = json.loads((tmp_path / "step.json").read_text())
    assert [each["id"] for each in events["deviceProperties"]] == [0, 1]
    named = {row["pid"]: row["args"]["labels"] for row in events["traceEvents"] if row["name"] == "process_labels"}
    assert named == {2: "CPU", 0: "GPU 0", 1: "GPU 1"}
    pids = {(event["cat"], event["pid"], event["args"].get("device")) for event in events["traceEvents"] if event["ph"] == "X"}
    assert pids == {("cuda_runtime", 2, None), ("kernel", 0, 0), ("kernel", 1, 1), ("gpu_memcpy", 1, 1)}


def test_perfetto_has_each_stage_on_its_gpu(tmp_path):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    packets = Trace.FromString(step().to_perfetto(tmp_path / "step.pftrace").read_bytes()).packet
    stages = [packet.gpu_render_stage_event for packet in packets if packet.HasField("gpu_render_stage_event")]
    assert sorted(stage.gpu_id for stage in stages) == [0, 0, 1, 1, 1, 1]
    assert [gpu.name for packet in packets for gpu in packet.gpu_info.gpus] == ["NVIDIA H100"] * 2


def test_nsight_names_both_gpus_of_a_copy(tmp_path):
    path = nsight(tmp_path / "step.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        for column in ("srcDeviceId", "dstDeviceId"):
            connection.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_MEMCPY ADD COLUMN {column} INTEGER")
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET copyKind = 10, deviceId = 1, srcDeviceId = 1, dstDeviceId = 0")
    trace = ss.read(path)
    assert trace.gpus == (0, 1)
    assert ss.analysis.link_copies(trace)[0].to_dict() == {"from": 1, "to": 0, "count": 1, "bytes": 4096, "time_us": 2.0}
    assert "cudaStreamSynchronize GPU 0 stream 7" in trace.spans.names
    assert len(ss.read(path, gpu=0).peers) == 0


def test_rocprofv3_names_both_gpus_of_a_copy(tmp_path):
    path = rocpd(tmp_path / "t.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO rocpd_info_agent_0a1b VALUES (6, 'GPU', 1, 'gfx942', 'AMD Instinct MI300X')")
        connection.execute("UPDATE rocpd_memory_copy_0a1b SET src_agent_id = 5, dst_agent_id = 6")
    trace = ss.read(path)
    assert trace.gpus == (0, 1)
    assert trace.info.device.name == "2 × AMD Instinct MI300X"
    assert trace.of_gpu(1).info.device.name == "AMD Instinct MI300X"
    assert [(link.from_gpu, link.to_gpu) for link in ss.analysis.link_copies(trace)] == [(0, 1)]


def test_a_plane_of_jax_for_each_gpu(tmp_path):
    names = message((2, "/device:GPU:0"))
    assert names in space(message((1, 1), (2, 5_000_000), (3, 2_000_000)))
    planes = [space(message((1, 1), (2, 5_000_000), (3, length)), name=f"/device:GPU:{gpu}") for gpu, length in ((0, 10**6), (1, 10**7))]
    (tmp_path / "t.xplane.pb").write_bytes(b"".join(planes))
    trace = ss.read(tmp_path / "t.xplane.pb")
    assert (trace.gpus, trace.spans.lanes) == ((0, 1), ("GPU 0 stream 7", "GPU 1 stream 7"))
    assert ss.analysis.summary(trace).gpu == 1
    assert ss.read(tmp_path / "t.xplane.pb", gpu=0).spans.lanes == ("stream 7",)


def test_more_collectives_than_a_trace_keeps_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(Collectives, "MOST", 1)
    trace = read(tmp_path, *(nccl(REDUCE, 10 * at, 10 * at + 5, at, 0) for at in (1, 2)))
    assert (len(trace.collectives), len(trace.spans.of_kind([SpanKind.KERNEL]))) == (0, 2)
    assert "not told apart: 2 collectives, since a trace keeps 1" in trace.info.notes


def test_tables_of_a_user_may_have_several_gpus():
    rows = {"name": ["a", "b", "c"], "stream": [7, 7, 7], "start_us": [0, 0, 5], "end_us": [4, 4, 6], "gpu": [0, 1, 1]}
    trace = ss.Trace.from_spans(rows)
    assert (trace.gpus, trace.spans.lanes) == ((0, 1), ("GPU 0 stream 7", "GPU 1 stream 7"))
    assert np.array_equal(trace.spans.gpu, [0, 1, 1])
