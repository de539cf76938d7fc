"""Tables of allocations: checked, saved, cut to one GPU, moved to another clock."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamscope as ss
from streamscope.errors import TraceError
from streamscope.formats.kineto import writer
from streamscope.trace import BEFORE, HELD, Allocation, Allocations, DeviceInfo, Level, Site, SpanTable, Trace, TraceInfo
from streamscope.trace.memory import packed, unpacked

SITE = Site("forward", "model.py", 12, "Net_0")
ROWS = (
    Allocation(512, 30, 40, 0, kind="PyTorch", name="aten::relu", site=SITE, operation=3),
    Allocation(1 << 33, BEFORE, HELD, 1, Level.RESERVED),
    Allocation(64, -5, 30, -1, name="host"),
)


def traced(rows=ROWS):
    """Return a trace of two GPUs with allocations."""
    spans = SpanTable.of(
        ("kernel", "a", "GPU 0 stream 7", 5, 25, 1), ("kernel", "b", "GPU 1 stream 7", 6, 26, 2),
        gpus={"GPU 0 stream 7": 0, "GPU 1 stream 7": 1},
    )  # fmt: skip
    return Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "2 × NVIDIA H100")), memory=Allocations.of(rows))


def test_rows_are_sorted_and_name_what_they_are():
    frame = traced().memory.to_pandas()
    assert frame.to_dict("records") == [
        {"start_ns": start, "end_ns": end, "bytes": nbytes, "gpu": gpu, "level": level, "kind": kind, "name": name, "operation": operation,
         "function": site.function, "file": site.file, "line": site.line, "module": site.module}
        for start, end, nbytes, gpu, level, kind, name, operation, site in (
            (BEFORE, HELD, 1 << 33, 1, "reserved", "", "", -1, Site()),
            (-5, 30, 64, -1, "allocated", "", "host", -1, Site()),
            (30, 40, 512, 0, "allocated", "PyTorch", "aten::relu", 3, SITE),
        )
    ]  # fmt: skip


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2**50), st.integers(BEFORE, HELD), st.integers(BEFORE, HELD), st.integers(-1, 3))))
def test_what_is_stored_is_read_back(rows):
    found = Allocations.of(
        Allocation(nbytes, start, max(start, end), gpu, site=SITE if gpu else None, kind="k" * gpu) for nbytes, start, end, gpu in rows
    )
    assert Allocations.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_parquet_keeps_them(tmp_path):
    trace = traced()
    assert ss.read(trace.to_parquet(tmp_path / "t.parquet")).memory == trace.memory
    assert b'"rows"' not in traced(()).to_parquet(tmp_path / "u.parquet").read_bytes()


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_kineto_gives_them_back(tmp_path, name):
    spans = SpanTable.of(("launch", "a", "host", -7, 3, 0), ("kernel", "a", "main", 5, 25, 0))
    trace = Trace(spans, TraceInfo("async", "step", DeviceInfo("simulated", "H")), memory=Allocations.of(ROWS))
    back = ss.read(trace.to_kineto(tmp_path / name))
    shift_ns = back.spans.start_ns[0] - trace.spans.start_ns[0]
    assert back.memory == trace.memory.since(-shift_ns)
    assert not any("memory" in note for note in back.info.notes)


def test_a_kineto_file_says_that_it_has_no_memory_where_there_is_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_MOST_ALLOCATIONS", len(ROWS) - 1)
    back = ss.read(traced().to_kineto(tmp_path / "t.json"))
    assert len(back.memory) == 0
    assert f"memory is not in this file: {len(ROWS)} allocations were too many for it; to_parquet keeps them" in back.info.notes


def test_perfetto_has_a_counter_for_the_memory_of_each_gpu(tmp_path):
    proto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    packets = proto.Trace.FromString(traced().to_perfetto(tmp_path / "t.pftrace").read_bytes()).packet
    tracks = {each.track_descriptor.uuid: each.track_descriptor.name for each in packets if each.HasField("track_descriptor")}
    events = [(each.timestamp, each.track_event) for each in packets if each.HasField("track_event")]
    counted = [(tracks[event.track_uuid], at, event.double_counter_value) for at, event in events if event.type == event.TYPE_COUNTER]
    assert counted == [
        ("host memory", 0, 64.0), ("host memory", 30, 0.0),
        ("GPU 0 memory", 0, 0.0), ("GPU 0 memory", 30, 512.0), ("GPU 0 memory", 40, 0.0),
        ("GPU 1 memory taken from the driver", 0, float(1 << 33)),
    ]  # fmt: skip


def test_so_many_rows_as_a_trace_keeps_fit_into_a_file():
    rng = np.random.default_rng(0)
    column = np.sort(rng.integers(0, 10**10, 100_000))  # A file has room for 16 bytes a row.
    assert len(packed(column)) + len(packed(column + rng.integers(1, 10**8, 100_000))) < 1_000_000


def test_one_gpu_keeps_its_own_and_those_of_the_host():
    assert traced().of_gpu(0).memory.bytes.tolist() == [64, 512]
    assert traced().of_gpu(1).memory.bytes.tolist() == [1 << 33, 64]


def test_another_zero_moves_all_but_the_two_ends():
    moved = traced().memory.since(30)
    assert moved.start_ns.tolist() == [BEFORE, -35, 0]
    assert moved.end_ns.tolist() == [HELD, 0, 10]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([Allocation(1, 5, 4)], "none may end before it starts"),
        ([Allocation(-1)], "bytes of allocations must be from 0"),
        ([Allocation(1, gpu=-2)], "gpu of allocations must be from -1"),
        ([Allocation(1, level=2)], "must be a Level"),
        ([Allocation(1, kind="a\ud800")], "texts of allocations"),
        ([Allocation(1, site=("f", "g"))], "sites of allocations"),
        ([Allocation(2**61), Allocation(2**61)], "more bytes than any memory"),
    ],
)
def test_what_is_wrong_is_refused(rows, words):
    with pytest.raises(TraceError, match=words):
        Allocations.of(rows)


def test_damaged_columns_are_refused():
    whole = traced().memory.to_dict()
    for wrong in ({"rows": 4}, {"rows": 2}, {"rows": -1}, {"rows": True}, {"bytes": "####"}, {"bytes": packed(np.arange(9))}, {"gpu": 7}):
        with pytest.raises((TypeError, ValueError)):
            Allocations.from_dict(whole | wrong)
    with pytest.raises(ValueError, match="numbers that it should have"):
        unpacked(packed(np.zeros(1_000_000, np.int64)), 3)


def test_a_prediction_has_no_memory_and_says_so():
    function, inputs = ss.workload("branches").build()
    trace = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)["async"].trace
    predicted = ss.what_if(Trace(trace.spans, trace.info, trace.origins, memory=Allocations.of(ROWS)))
    assert len(predicted.memory) == 0
    assert "left out: memory of the trace, whose times would be others, too" in predicted.info.notes
