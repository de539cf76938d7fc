"""Traces of several GPUs: the GPU of each lane, collectives and copies between GPUs, and one GPU out of several."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import TraceError
from streamscope.trace import Collectives, DeviceInfo, Origins, PeerCopies, SpanBuilder, SpanKind, SpanTable, Trace, TraceInfo

GPUS = {"GPU 0 main": 0, "GPU 1 main": 1, "GPU 1 peer copy": 1}
ROWS = (
    ("launch", "a", "host", 0, 2, 0),
    ("launch", "b", "host", 2, 4, 1),
    ("graph_launch", "both", "host", 4, 6, 2),
    ("kernel", "a", "GPU 0 main", 5, 25, 0),
    ("kernel", "b", "GPU 1 main", 6, 26, 1),
    ("kernel", "all-reduce", "GPU 0 main", 30, 50, 2),
    ("kernel", "all-reduce", "GPU 1 main", 35, 50, 2),
    ("copy", "to GPU 0", "GPU 1 peer copy", 52, 60, -1),
)


def two_gpus() -> Trace:
    spans = SpanTable.of(*ROWS, gpus=GPUS)
    both = Collectives.from_columns([5, 6], "all_reduce", instance=0, op="sum", nbytes=64, ranks=2, communicator="world", sequence=7)
    origins = Origins(row_waits=np.array([[3, 6], [4, 6], [6, 7]]))
    peers = PeerCopies(np.array([7]), np.array([1]), np.array([0]))
    info = TraceInfo("async", "step", DeviceInfo("cuda", "2 × NVIDIA H100"))
    return Trace(spans, info, origins, collectives=both, peers=peers)


def test_lanes_have_the_gpu_of_their_work_by_default():
    builder = SpanBuilder(["host", "host ranges", "main", "aux"])
    builder.add(SpanKind.LAUNCH, "a", "host", 0, 1)
    builder.add(SpanKind.KERNEL, "a", "main", 1, 2)
    spans = builder.build()
    assert spans.gpus == (-1, -1, 0, 0)
    assert spans.gpu.tolist() == [-1, 0]
    assert two_gpus().spans.select(np.array([4])).gpus == (-1, 0, 1, 1)
    assert SpanBuilder(["host"]).build().gpus == (-1,)


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        ((0,), "gpus of spans has 1 number for 4 lanes"),
        ((-1, 0, 1, -2), "whole numbers from -1"),
        ((-1, 0, 1, True), "whole numbers from -1"),
        ((-1, 0, 1, 2**31), "whole numbers from -1"),
        ((-1, 0, -1, 1), "lane 'GPU 1 main' has work of a GPU, but its GPU is -1"),
    ],
)
def test_gpus_that_do_not_fit_the_lanes_are_refused(gpus, message):
    with pytest.raises(TraceError, match=message):
        dataclasses.replace(two_gpus().spans, gpus=gpus)


def test_files_keep_gpus_collectives_and_copies(tmp_path):
    trace = two_gpus()
    read = Trace.from_parquet(trace.to_parquet(tmp_path / "two.parquet"))
    assert read.gpus == (0, 1)
    assert read.spans.gpus == trace.spans.gpus
    assert read.collectives == trace.collectives
    assert read.collectives.words("communicator") == ["world"] * 2
    assert read.peers == trace.peers
    assert read.to_dict()["gpus"] == [0, 1]
    again = ss.Trace.from_spans(trace.to_pandas())
    assert again.spans.gpus == trace.spans.gpus
    lines = trace.to_csv(tmp_path / "two.csv").read_text().splitlines()
    assert lines[0].split(",")[-4:] == ['"gpu"', '"operator"', '"module"', '"line"']
    assert [line.split(",")[-4] for line in lines[1:]] == ["-1", "-1", "-1", "0", "1", "0", "1", "1"]


def test_a_table_with_two_gpus_on_one_lane_is_refused():
    frame = two_gpus().to_pandas()
    frame.loc[5, "gpu"] = 1
    with pytest.raises(TraceError, match="row 3 has gpu 0, and another row of lane 'GPU 0 main' has gpu 1"):
        ss.Trace.from_spans(frame)


def test_one_gpu_of_several_has_its_lanes_and_those_of_the_host():
    one = two_gpus().of_gpu(1)
    assert one.gpus == (1,)
    assert one.spans.lanes == ("host", "GPU 1 main", "GPU 1 peer copy")
    assert [one.spans.names[code] for code in one.spans.name] == ["b", "both", "b", "all-reduce", "to GPU 0"]
    assert one.collectives.span.tolist() == [3]
    assert one.collectives.instance.tolist() == [0]
    assert one.peers.to_dict() == {"span": [4], "from_gpu": [1], "to_gpu": [0]}
    assert one.origins.row_waits.tolist() == [[2, 3], [3, 4]]
    assert (one.info.device.gpu, one.info.device.gpus) == (1, (0, 1))
    assert one.of_gpu(1) is one
    with pytest.raises(TraceError, match="no lane of this trace is of GPU 2"):
        two_gpus().of_gpu(2)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"span": [3, 3]}, "each of which is there once"),
        ({"span": [3, 5], "nbytes": [1, 2, 3]}, "nbytes of collectives has 3 values for 2 spans"),
        ({"span": [3, 5], "instance": -2}, "instance of collectives must be from -1"),
    ],
)
def test_columns_that_are_no_collectives_are_refused(columns, message):
    with pytest.raises(TraceError, match=message):
        Collectives.from_columns(**columns)


def test_collectives_lie_on_work_of_a_gpu():
    for rows in ([0], [8]):
        with pytest.raises(TraceError, match="collectives must name rows with work of a GPU"):
            dataclasses.replace(two_gpus(), collectives=Collectives.from_columns(rows, "all_reduce"))
    found = Collectives.from_columns([9, 4], ["broadcast", ""], nbytes=[8, 3])
    assert found.to_pandas()[["span", "kind", "nbytes"]].to_numpy().tolist() == [[4, "", 3], [9, "broadcast", 8]]
    assert Collectives.from_dict(found.to_dict()) == found
    with pytest.raises(TraceError, match="must index texts, whose length is 1"):
        dataclasses.replace(found, op=np.array([-1, 1]))
    with pytest.raises(TraceError, match="'nbytes' of collectives has no texts"):
        found.words("nbytes")
