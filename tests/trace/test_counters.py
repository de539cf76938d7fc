"""Tables of counters and markers: checked, saved, cut, written for other programs and read from their files."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.kineto_files import call, content, dumps, kernel

import streamscope as ss
from streamscope.errors import TraceError
from streamscope.trace import Counters, DeviceInfo, Markers, Series, SpanTable, Trace, TraceInfo
from streamscope.trace.counters import Noted

SERIES = (Series("loss"), Series("power", "W", gpu=0), Series("power", "W", gpu=1))
SPANS = SpanTable.of(
    ("launch", "cudaLaunchKernel", "thread 5", 0, 2, 1), ("launch", "cudaLaunchKernel", "thread 5", 2, 4, 2),
    ("kernel", "a", "GPU 0 stream 7", 5, 25, 1), ("kernel", "b", "GPU 1 stream 7", 6, 26, 2),
    gpus={"GPU 0 stream 7": 0, "GPU 1 stream 7": 1},
)  # fmt: skip


def traced(counters=None, markers=None):
    """Return a trace of two GPUs with counters and markers."""
    counters = Counters([-3, 10, 10, 20], [0, 1, 2, 0], [2.5, 300.0, 310.5, -1e-9], SERIES) if counters is None else counters
    markers = Markers.of([(12, "epoch 2", "thread 5"), (4, "epoch 1", "")]) if markers is None else markers
    return Trace(SPANS, TraceInfo("async", "step", DeviceInfo("cuda", "2 × NVIDIA H100")), counters=counters, markers=markers)


values = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(
    st.lists(st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 2), values)),
    st.lists(st.tuples(st.integers(0, 99), st.text("aé\n", min_size=1))),
)
def test_parquet_gives_back_every_bit(tmp_path_factory, rows, marks):
    rows.sort()
    columns = [np.array([row[at] for row in rows], kind) for at, kind in enumerate((np.int64, np.int64, np.float64))]
    trace = traced(Counters(*columns, SERIES) if rows else Counters(), Markers.of([(at, name, "thread 5") for at, name in marks]))
    again = ss.read(trace.to_parquet(tmp_path_factory.mktemp("p") / "t.parquet"))
    assert (again.counters, again.markers) == (trace.counters, trace.markers)
    assert again.counters.value.tobytes() == trace.counters.value.tobytes()


def test_a_file_without_them_is_as_before(tmp_path):
    trace = traced(Counters(), Markers())
    text = trace.to_parquet(tmp_path / "t.parquet").read_bytes()
    assert b'"counters"' not in text
    assert b'"markers"' not in text
    assert len(ss.read(tmp_path / "t.parquet").counters) == 0


def test_one_gpu_keeps_its_own_and_those_of_the_host():
    cut = traced().of_gpu(1)
    assert cut.counters.to_pandas()[["time_ns", "name", "gpu", "value"]].to_numpy().tolist() == [
        [-3, "loss", -1, 2.5],
        [10, "power", 1, 310.5],
        [20, "loss", -1, -1e-9],
    ]
    assert cut.markers.names == ["epoch 1", "epoch 2"]
    assert traced(Counters()).of_gpu(0).counters == Counters()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Counters([2, 1], [0, 0], [1.0, 2.0], SERIES), "counters must be sorted by their times"),
        (lambda: Counters([1], [3], [1.0], SERIES), "must index described, whose length is 3"),
        (lambda: Counters([1], [0], [np.nan], SERIES), "value of counters must be finite"),
        (lambda: Counters([1], [0], ["a"], SERIES), "value of counters must be 1 numbers"),
        (lambda: Counters([1], [0.5], [1.0], SERIES), "series of counters must be 1 whole numbers"),
        (lambda: Counters([1], [0], [1.0], ("loss",)), "must be a tuple of Series"),
        (lambda: Series(""), "a counter has a name"),
        (lambda: Series("a", gpu=-2), "a counter has a name"),
        (lambda: Markers([1], [0], [-1], ()), "must index texts, whose length is 0"),
        (lambda: Markers([2, 1], [0, 0], [-1, -1], ("a",)), "markers must be sorted"),
        (lambda: Markers([1], [0], [-1], (3,)), "texts of markers must be a tuple"),
        (lambda: Counters.from_dict({"time_ns": [1], "series": [0], "value": [1.0], "described": [["a"] * 7]}), None),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(make, words):
    with pytest.raises((TraceError, TypeError), match=words):
        make()


@pytest.mark.parametrize("packed", ["t.json", "t.json.gz"])
def test_kineto_gives_back_counters_and_markers(tmp_path, packed):
    trace = traced()
    again = ss.read(trace.to_kineto(tmp_path / packed))
    assert again.counters == trace.counters
    assert (again.markers.names, again.markers.time_ns.tolist()) == (trace.markers.names, trace.markers.time_ns.tolist())
    assert again.markers.threads == ["thread 0", "thread 5"]
    assert not any("left out" in note for note in again.info.notes)


def test_no_event_of_kineto_lies_before_its_zero(tmp_path):
    path = traced().to_kineto(tmp_path / "t.json")
    events = json.loads(path.read_text())["traceEvents"]
    assert min(event["ts"] for event in events if "ts" in event) == 0
    counters = [(event["name"], event["pid"], event["ts"], event["args"]) for event in events if event["ph"] == "C"]
    assert counters == [
        ("loss", 2, 0, {"value": 2.5}),
        ("power", 0, 0.013, {"W": 300.0}),
        ("power", 1, 0.013, {"W": 310.5}),
        ("loss", 2, 0.023, {"value": -1e-9}),
    ]


def test_perfetto_has_a_track_for_each_counter_and_an_instant_for_each_marker(tmp_path):
    proto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    packets = proto.Trace.FromString(traced().to_perfetto(tmp_path / "t.pftrace").read_bytes()).packet
    tracks = {each.track_descriptor.uuid: each.track_descriptor for each in packets if each.HasField("track_descriptor")}
    named = {uuid: (track.name, track.counter.unit_name) for uuid, track in tracks.items() if track.HasField("counter")}
    assert sorted(named.values()) == [("GPU 0 power", "W"), ("GPU 1 power", "W"), ("loss", "")]
    events = [(each.timestamp, each.track_event) for each in packets if each.HasField("track_event")]
    counted = [(*named[event.track_uuid], at, event.double_counter_value) for at, event in events if event.type == event.TYPE_COUNTER]
    assert sorted(counted) == [
        ("GPU 0 power", "W", 13, 300.0),
        ("GPU 1 power", "W", 13, 310.5),
        ("loss", "", 0, 2.5),
        ("loss", "", 23, -1e-9),
    ]
    marked = [(tracks[event.track_uuid].name, at, event.name) for at, event in events if event.type == event.TYPE_INSTANT]
    assert marked == [("markers", 7, "epoch 1"), ("markers", 15, "epoch 2")]
    assert len(tracks) == len({*tracks}) == 1 + 1 + 3 + 1  # the process, a thread, counters, markers


def counter(name, at, process=1, **parts):
    """Return a counter of Chrome's format."""
    return {"ph": "C", "name": name, "pid": process, "ts": at, "args": parts}


def saved(folder, what):
    """Write what a file of Kineto has, and return its path."""
    path = folder / "kineto.json"
    path.write_text(dumps(what))
    return path


BASE = [call("cudaLaunchKernel", 0, 2, 1), kernel("k", 5, 9, 1)]


def test_each_part_of_a_counter_of_chrome_is_a_series(tmp_path):
    events = [*BASE, counter("memory", 3, used=3, free=5), counter("memory", 1, used=1, free=7), counter("queue", 2, value=4)]
    events += [counter("GPU 0 utilization", 2, utilization=0.5)]
    found = ss.read(saved(tmp_path, content(events))).counters.to_pandas()
    assert found[["time_ns", "name", "value"]].to_numpy().tolist() == [
        [1000, "memory used", 1.0], [1000, "memory free", 7.0], [2000, "queue", 4.0], [2000, "GPU 0 utilization utilization", 0.5],
        [3000, "memory used", 3.0], [3000, "memory free", 5.0],
    ]  # fmt: skip


def test_what_is_no_value_is_counted(tmp_path):
    wrong = [
        counter("x", 1, value="high"),
        counter("x", 2, value=None),
        counter("x", 3, value=True),
        counter("x", 4),
        counter("x", None, value=1),
    ]
    trace = ss.read(saved(tmp_path, content([*BASE, *wrong, counter("x", 5, value=1)])))
    assert trace.counters.value.tolist() == [1.0]
    assert [note for note in trace.info.notes if "counters" in note] == [
        'left out: 3 events that are counters ("ph": "C") whose value is not a number',
        'left out: 2 events that are counters ("ph": "C") without a time or a value',
    ]


def test_counters_of_two_processes_are_two_series(tmp_path):
    events = [*BASE, counter("queue", 1, process=11, value=1), counter("queue", 1, process="worker", value=2)]
    trace = ss.read(saved(tmp_path, content(events)))
    assert {(each.label, each.process) for each in trace.counters.described} == {("queue (11)", "11"), ("queue (worker)", "worker")}


def test_instants_are_markers_with_their_threads_and_marks_of_the_profiler_are_not(tmp_path):
    marks = [
        {"ph": "i", "s": "t", "cat": "note", "name": "epoch 1", "pid": 1, "tid": 5, "ts": 7},
        {"ph": "I", "name": "epoch 0", "pid": 1, "tid": "main", "ts": 1},
        {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 9},
        {"ph": "i", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": 0},
        {"ph": "i", "name": "no time", "pid": 1, "tid": 5},
    ]
    trace = ss.read(saved(tmp_path, content([*BASE, *marks])))
    assert trace.markers.to_pandas().to_numpy().tolist() == [[1000, "epoch 0", "thread main"], [7000, "epoch 1", "thread 5"]]
    assert [note for note in trace.info.notes if "instants" in note] == ["left out: 1 event that are instants without a time or a name"]


def test_times_with_all_digits_and_damaged_events_keep_their_counters(tmp_path):
    at = 2**44
    early = [call("cudaLaunchKernel", 1000 * at, 1000 * at + 2, 1), kernel("k", 1000 * at + 5, 1000 * at + 9, 1)]
    events = [*early, counter("x", at + 3, value=1.25)]
    text = dumps(content(events)).replace('"value": 1.25', '"value": 1.25, "other": 2')
    path = tmp_path / "t.json"
    path.write_text(text)
    assert ss.read(path).counters.to_pandas()[["time_ns", "name", "value"]].to_numpy().tolist() == [
        [3000, "x value", 1.25],
        [3000, "x other", 2.0],
    ]
    path.write_text(text.replace('{"traceEvents": [', '{"traceEvents": [{"ph": "X", "ts": wrong}, '))
    assert len(ss.read(path, damaged="skip").counters) == 2


def test_values_that_no_trace_can_hold_are_left_out_and_said():
    noted, said = Noted(), list[str]()
    number = noted.number(Series("x"))
    noted.add_values([number] * 3, [5, 2**62, 1], [1.0, 2.0, float("inf")])
    noted.add_markers([(5, "m", ""), (-(2**62), "far", "")])
    counters, markers = noted.tables(5, said)
    assert (counters.time_ns.tolist(), counters.value.tolist(), markers.names) == ([0], [1.0], ["m"])
    assert said == [
        "left out: 1 value of counters that are NaN or infinite",
        "left out: 1 value of counters that are at impossible times",
        "left out: 1 marker at impossible times",
    ]


def test_the_summary_and_its_json_have_them():
    found = ss.analysis.summary(traced())
    assert found.to_dict()["markers"] == 2
    assert found.to_dict()["counters"] == [
        {"name": "loss", "count": 2, "min": -1e-9, "max": 2.5, "last": -1e-9},
        {"name": "power", "count": 1, "min": 300.0, "max": 300.0, "last": 300.0, "unit": "W", "gpu": 0},
        {"name": "power", "count": 1, "min": 310.5, "max": 310.5, "last": 310.5, "unit": "W", "gpu": 1},
    ]
    assert ["GPU", "1", "power,", "W", "1", "310.5", "310.5", "310.5"] in [line.split() for line in str(found).splitlines()]
    assert "GPU 1 power, W" in found.to_markdown()


def test_a_diff_has_the_means_of_both_side_by_side():
    first = traced().of_gpu(0)
    second = replace(first, counters=Counters([1, 2], [0, 1], [3.0, 7.0], (Series("loss"), Series("rate", "1/s"))))
    found = ss.diff(first, second)
    assert found.to_dict()["counters"] == [
        {"name": "loss", "first_mean": pytest.approx(1.25), "second_mean": 3.0, "first_count": 2, "second_count": 1},
        {"name": "GPU 0 power, W", "first_mean": 300.0, "second_mean": None, "first_count": 1, "second_count": 0},
        {"name": "rate, 1/s", "first_mean": None, "second_mean": 7.0, "first_count": 0, "second_count": 1},
    ]
    for text in (str(found), found.to_markdown(), found._repr_html_()):
        assert "mean of the first" in text
        assert "+1.75" in text
    assert "counters" not in ss.diff(replace(first, counters=Counters()), replace(first, counters=Counters())).to_dict()


def test_a_prediction_says_that_it_has_none():
    function, inputs = ss.workload("branches").build()
    trace = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)["async"].trace
    counters = Counters([1], [0], [1.0], (Series("x"),))
    told, untold = (ss.what_if(each, engine="graph").info.notes for each in (replace(trace, counters=counters), trace))
    assert "left out: counters and memory of the trace, whose times would be others, too" in told
    assert not any("counters" in note for note in untold)
