"""Traces of spans that a user has in a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamscope as ss
from streamscope.errors import TraceError
from streamscope.trace import Basis, DeviceInfo, SpanBuilder, SpanKind, TraceInfo

GOOD = {"name": ["a"], "stream": [1], "start_us": [1], "end_us": [2]}
UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

rows = st.lists(
    st.tuples(
        st.text("ab<>:() é", max_size=8), st.integers(0, 3) | st.sampled_from(["x", "y"]), st.integers(-500, 500), st.integers(0, 90)
    ),
    min_size=1,
)


def table(trace):
    """Return name, lane without its further number, start and end of each span, from the first start on."""
    frame = trace.to_pandas()
    lane = frame["lane"].astype(str).str.replace(r" · \d+$", "", regex=True)
    return sorted(zip(frame["name"].astype(str), lane, frame["start_ns"], frame["end_ns"], strict=True))


@settings(max_examples=15)
@given(rows, st.sampled_from([*UNITS_NS]), st.booleans())
def test_every_way_to_say_it_gives_the_spans_as_they_are(spans, unit, whole):
    factor, first = UNITS_NS[unit], min(start for _, _, start, _ in spans)
    kind = int if whole else float
    columns = {
        "stream": [stream for _, stream, _, _ in spans],
        f"start_{unit}": [kind(start) for _, _, start, _ in spans],
        f"duration_{unit}": [kind(length) for _, _, _, length in spans],
        "name": [name for name, _, _, _ in spans],
    }
    wanted = sorted((name, f"stream {stream}", (at - first) * factor, (at - first + length) * factor) for name, stream, at, length in spans)
    tuples = [(name, stream, start * factor, (start + length) * factor) for name, stream, start, length in spans]
    dicts = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for given_spans in (columns, pd.DataFrame(columns), dicts, iter(dicts), tuples):
        assert table(ss.Trace.from_spans(given_spans)) == wanted


def test_launches_ranges_and_what_they_put_on_the_device():
    trace = ss.Trace.from_spans(
        {
            "kind": ["launch", "Kernel", "range", "copy"],
            "name": ["call", "my::step<2> (a)", "step", "copy"],
            "stream": ["main", 7, "main", 7.0],
            "start_us": [0.5, 3.25, 0.0, 9.0],
            "end_us": [1.5, 8.0, 10.0, 9.5],
            "correlation": [4, 4, -1, -1],
            "blocks": [0, 132, 0, 0],
            "bytes": [0, 0, 0, 2**40],
        },
        program="mine",
        device=DeviceInfo("simulated", "a model"),
    )
    frame = trace.to_pandas().set_index("name")
    assert frame["lane"].astype(str).to_dict() == {
        "call": "thread main", "my::step<2> (a)": "stream 7", "step": "thread main ranges", "copy": "stream 7",
    }  # fmt: skip
    assert frame["start_ns"].to_dict() == {"call": 0, "my::step<2> (a)": 2750, "step": -500, "copy": 8500}
    assert (frame["blocks"]["my::step<2> (a)"], frame["bytes"]["copy"]) == (132, 2**40)
    assert trace.info.device.simulated
    assert trace.info.notes == ("1 of 2 device spans without a launch call: launch latency unknown",)
    assert ss.analysis.summary(trace).kernel_count == 1


def test_it_is_shown_measured_exported_and_read_like_any_trace(tmp_path):
    frame = pd.DataFrame({"name": ["a", "b", "a"], "stream": ["x", "y", "x"], "start_ms": [0, 1, 2], "duration_ms": [2, 2, 1]})
    trace = ss.Trace.from_spans(frame, program="pipeline", device="my accelerator")
    assert ss.analysis.overlap_fraction(trace.spans) == pytest.approx(2 / 3)
    assert "pipeline" in trace._repr_html_()
    assert trace.to_perfetto(tmp_path / "step.pftrace").stat().st_size > 0
    assert list(ss.read(trace.to_kineto(tmp_path / "step.json")).to_pandas()["start_ns"]) == [0, 1_000_000, 2_000_000]
    assert table(ss.read(trace.to_parquet(tmp_path / "step.parquet"))) == table(trace)
    assert table(ss.Trace.from_spans(pa.Table.from_pandas(frame))) == table(trace)
    assert ss.what_if(trace, engine="graph").info.recorder == "prediction"


def test_columns_of_others_are_left_out_and_named():
    trace = ss.Trace.from_spans({**GOOD, "request_id": ["x"], 1: [2]})
    assert table(trace) == table(ss.Trace.from_spans(GOOD))
    assert trace.info.notes[0] == "columns left out: 'request_id' and 1"


def test_the_hint_for_dates_makes_numbers_of_them():
    t = pd.Series(pd.to_datetime(["2026-11-23T01:00:00.000002", "2026-11-23T01:00:00.000007"]))
    start_us = (t - t.min()) / np.timedelta64(1, "us")
    trace = ss.Trace.from_spans({"name": ["a", "b"], "stream": [1, 1], "start_us": start_us, "duration_us": [1, 1]})
    assert trace.spans.start_ns.tolist() == [0, 5_000]


def test_streams_stand_in_their_own_order_however_the_rows_do():
    trace = ss.Trace.from_spans([("a", 10, 0, 1), ("a", 2, 1, 2), ("a", "main", 2, 3), ("a", 0, 3, 4)])
    assert trace.spans.lanes == ("stream 0", "stream 2", "stream 10", "stream main")


def test_what_overlaps_on_one_stream_is_kept_and_noted():
    trace = ss.Trace.from_spans([("a", 1, 0, 10), ("b", 1, 5, 15)])
    assert trace.spans.lanes == ("stream 1", "stream 1 · 2")
    assert any("overlapped another of the same stream" in note for note in trace.info.notes)


def test_streams_that_read_alike_are_one():
    trace = ss.Trace.from_spans([("a", 1, 0, 10), ("b", "1", 10, 15), ("c", 2, 0, 1), ("d", 1.0, 15, 16)])
    assert trace.to_pandas().set_index("name")["lane"].astype(str).to_dict() == {
        "a": "stream 1", "b": "stream 1", "c": "stream 2", "d": "stream 1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        (5, "spans=5 is not a table"),
        ("abc", "'abc' is not a table"),
        ([], "there is no span"),
        ({"name": [], "stream": [], "start_us": [], "end_us": []}, "there is no span"),
        ([("a", 1, 2)], r"row 0 is \('a', 1, 2\), not"),
        ([("a", 1, 2, 3), None], "row 1 is None, not"),
        ([{"name": "a"}, {"nam": "a"}], "row 1 has other columns than row 0"),
        ({name: GOOD[name] for name in ("name", "start_us", "end_us")}, "no column 'stream', but 'name', 'start_us' and 'end_us'"),
        ({**GOOD, "stream": [1, 2]}, "'stream' has 2 rows, and 'name' has 1"),
        ({**GOOD, "stream": 7}, "'stream' is 7, not a value for each row"),
        ({**GOOD, "stream": [1.5]}, "row 0 of 'stream' is 1.5, neither a string nor a whole number"),
        ({**GOOD, "stream": [None]}, "row 0 of 'stream' is None"),
        ({**GOOD, "stream": [[1]]}, r"row 0 of 'stream' is \[1\], not a string"),
        ({**GOOD, "stream": [10**5000]}, "row 0 of 'stream' is <int too long to print>, neither"),
        ({**GOOD, "stream": np.array(7)}, r"'stream' is array\(7\), not a value for each row"),
        (pd.DataFrame({**GOOD, "name": [["a"]]}, index=[5]), r"row 0 of 'name' is \['a'\], not a string"),
        (pd.DataFrame([["a", "b", 1, 0, 1]], columns=["name", "name", "stream", "start_us", "end_us"]), "'name' is there twice"),
        ({**{key: 2 * GOOD[key] for key in GOOD}, "start_us": [1, [2]]}, "'start_us' must hold numbers, not object"),
        ({**{key: 2 * GOOD[key] for key in GOOD}, "blocks": [1, [2]]}, "'blocks' must hold whole numbers, not object"),
        ({**GOOD, "name": [float("nan")]}, "row 0 of 'name' is nan, not a string"),
        ({**GOOD, "start": [1]}, r"'start' has no unit \(call it start_ns, start_us"),
        ({**GOOD, "corelation": [1]}, "column 'corelation' is not known .call it 'correlation'"),
        ({**GOOD, "End_us": [1]}, "column 'End_us' is not known .call it 'end_us'"),
        ({**GOOD, "start_ns": [1]}, "both 'start_ns' and 'start_us'"),
        ({**GOOD, "duration_us": [1]}, "say twice when they end"),
        ({name: GOOD[name] for name in ("name", "stream", "start_us")}, "do not say when they end"),
        ({name: GOOD[name] for name in ("name", "stream", "end_us")}, "no column start_us"),
        ({**GOOD, "start_us": [float("nan")]}, "row 0 has start_us nan, which is not a time"),
        ({**GOOD, "end_us": [float("inf")]}, "row 0 has end_us inf"),
        ({**GOOD, "end_us": [2**62]}, "row 0 has end_us"),
        ({**GOOD, "end_us": [2**70]}, "'end_us' must hold numbers, not object"),
        ({**GOOD, "end_us": ["2"]}, "'end_us' must hold numbers, not <U1"),
        (
            {**GOOD, "end_us": np.array([5], "datetime64[us]")},
            r"'end_us' must hold numbers, not dates \(for example .*timedelta64\(1, 'us'\)",
        ),
        ({**GOOD, "end_us": [True]}, "'end_us' must hold numbers, not bool"),
        ({**GOOD, "start_us": [2.5]}, "row 0 ends 500 ns before it starts"),
        (
            {key: 2 * values for key, values in GOOD.items()} | {"kind": ["set", "kernal"]},
            "row 1 is of the kind 'kernal', which is not known",
        ),
        ({**GOOD, "kind": ["range"]}, "no span is of a kernel, copy or set"),
        ({**GOOD, "blocks": [-1]}, "row 0 has blocks -1, which must be from 0 to"),
        ({**GOOD, "correlation": [0.5]}, "'correlation' must hold whole numbers, not float64"),
    ],
)
def test_what_is_no_table_of_spans_is_refused_by_name(spans, said):
    with pytest.raises(TraceError, match=said):
        ss.Trace.from_spans(spans)


@pytest.mark.parametrize("wrong", [{"program": 5}, {"device": None}])
def test_names_are_checked(wrong):
    with pytest.raises(TraceError, match=r"Trace\.from_spans: "):
        ss.Trace.from_spans(GOOD, **wrong)


ODD_STREAMS = ["7", "7 · 2", "(7 · 2)", "7 (2)", "t", "t ranges", "t graphs", "a" * 200, "a" * 201, "a" * 200 + "b", "\0", "\1", " · 2", ""]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(ODD_STREAMS), st.sampled_from(["kernel", "range", "graph", "sync"]), st.integers(0, 9)), min_size=1)
)
def test_every_name_of_a_stream_has_lanes_of_its_own(given_rows):
    """A stream called "7 · 2" is not the second lane of stream "7", nor a thread called "t ranges" where thread "t" has its ranges."""
    given_rows = [("7", "kernel", 0), *given_rows]
    columns = {
        "name": [f"{kind} {stream}" for stream, kind, _ in given_rows],
        "stream": [stream for stream, *_ in given_rows],
        "kind": [kind for _, kind, _ in given_rows],
        "start_ns": [start for *_, start in given_rows],
        "duration_ns": [5] * len(given_rows),
    }
    trace = ss.Trace.from_spans(columns)
    frame = trace.to_pandas()
    first = np.array(trace.spans.lanes)[trace.spans.stream_lanes][trace.spans.lane]
    owner = dict(zip(frame["name"].astype(str), first.tolist(), strict=True))
    pairs = {(stream, kind) for stream, kind, _ in given_rows}
    assert len({owner[f"{kind} {stream}".replace("\0", "�").replace("\1", "�")] for stream, kind in pairs if stream not in "\0\1"}) == len(
        {pair for pair in pairs if pair[0] not in "\0\1"}
    )
    assert len(frame) == len(given_rows)


def test_streams_whose_names_agree_in_their_first_200_characters_are_many():
    names = [f"{'long' * 50}{number}" for number in range(3000)]
    trace = ss.Trace.from_spans({"name": ["k"] * 3000, "stream": names, "start_us": range(3000), "duration_us": [1] * 3000})
    assert len(set(trace.spans.lanes)) == 3000
    assert trace.spans.lanes[:2] == (f"stream {'long' * 50}", f"stream {'long' * 50} (2)")


kinds = st.sampled_from(["launch", "graph_launch", "event", "sync", "host", "compile", "api", "range", "kernel", "copy", "set", "graph"])
a_span = st.tuples(
    kinds, st.sampled_from(["gemm", "relu", ""]), st.integers(0, 3), st.integers(-(10**6), 10**6), st.integers(0, 50), st.integers(-1, 5),
    st.integers(-1, 9), st.integers(0, 2), st.sampled_from(["", "void gemm<4>()"]), st.integers(-1, 99),
)  # fmt: skip


@settings(max_examples=30)
@given(st.lists(a_span, max_size=12), st.booleans())
def test_the_table_of_a_trace_gives_the_trace_again(made, measured):
    """Whatever it holds: lanes in their order, an empty one too, operations, bases, symbols, times before zero."""
    builder = SpanBuilder(["host", "thread 7 ranges", "empty", "main", "stream 7 · 2"])
    work = {"kernel", "copy", "set", "graph"}
    end_ns = {}
    for kind, name, lane, start, length, correlation, operation, part, symbol, node in [("kernel", "k", 0, 0, 1, 1, 1, 0, "", -1), *made]:
        where = ["main", "stream 7 · 2"][lane % 2] if kind in work else ["host", "thread 7 ranges"][lane % 2]
        start_ns = end_ns.get(where, start) if kind in work else start
        end_ns[where] = start_ns + length
        builder.add(
            SpanKind[kind.upper()], name, where, start_ns, start_ns + length, correlation=correlation, operation=operation, part=part,
            symbol=symbol, graph_node=node, basis=Basis.MEASURED if measured else Basis.PLACED, blocks=3, threads=64, nbytes=8, flops=9,
        )  # fmt: skip
    info = TraceInfo(
        "async", "step", DeviceInfo("simulated", "a model"), "prediction", notes=("one GPU of two",), ledger={"recorded_ns": 5}
    )
    trace = ss.Trace(builder.build(), replace(info, ledger={"recorded_ns": 5}))
    again = ss.Trace.from_spans(trace.to_pandas())
    assert again.to_pandas().astype(str).equals(trace.to_pandas().astype(str))
    assert again.spans.lanes == tuple(lane for lane in trace.spans.lanes if lane in set(trace.to_pandas()["lane"]))
    assert (again.info.program, again.info.device, again.info.engine, again.info.recorder, again.info.notes) == (
        "step", info.device, "async", "prediction", ("one GPU of two",),
    )  # fmt: skip
    assert again.info.ledger == {}


@pytest.mark.parametrize("name", ["streams", "streams_graph", "resnet50_graph"])
def test_the_table_of_a_recorded_trace_gives_the_trace_again_by_way_of_csv_too(repository, tmp_path, name):
    trace = ss.read(repository / "tests" / "data" / "kineto" / f"{name}.json.gz")
    frame = trace.to_pandas()
    for table in (frame, pd.read_csv(trace.to_csv(tmp_path / "t.csv")), dict(frame.items()), frame.to_dict("records")):
        again = ss.Trace.from_spans(table, device="NVIDIA H200").to_pandas()
        assert again.astype(str).equals(frame.astype(str))


def test_some_rows_of_a_table_are_a_trace_too():
    trace = ss.Trace.from_spans([("a", 1, 0, 10), ("b", 1, 10, 15), ("c", 2, 0, 1)], program="mine", device="my GPU")
    frame = trace.to_pandas()
    kept = ss.Trace.from_spans(frame[frame["name"] != "b"], device="another GPU")
    assert table(kept) == [("a", "stream 1", 0, 10), ("c", "stream 2", 0, 1)]
    assert (kept.info.program, kept.info.device.name) == ("mine", "another GPU")
    frame["end_ns"] += 3
    with pytest.raises(TraceError, match="were measured on one stream, 'stream 1', and overlap"):
        ss.Trace.from_spans(frame)


def test_lanes_of_a_table_may_be_given_alone():
    rows_of = {
        "name": ["call", "k"],
        "kind": ["launch", "kernel"],
        "lane": ["main thread", "compute"],
        "start_us": [5, 7],
        "end_us": [6, 9],
    }
    trace = ss.Trace.from_spans(rows_of)
    assert table(trace) == [("call", "main thread", 5000, 6000), ("k", "compute", 7000, 9000)]
    assert trace.spans.lanes == ("main thread", "compute")
    late = ss.Trace.from_spans(rows_of | {"start_us": [17 * 10**14, 17 * 10**14 + 2], "end_us": [17 * 10**14 + 1, 17 * 10**14 + 4]})
    assert table(late) == [("call", "main thread", 0, 1000), ("k", "compute", 2000, 4000)]
    with pytest.raises(TraceError, match="spans have both 'stream' and 'lane'"):
        ss.Trace.from_spans(rows_of | {"stream": [1, 1]})
    with pytest.raises(TraceError, match="row 1 is of the basis 'guessed', which is not known"):
        ss.Trace.from_spans(rows_of | {"basis": ["measured", "guessed"]})


def test_simulated_times_stay_simulated_by_way_of_csv(tmp_path):
    function, inputs = ss.workload("branches").build()
    trace = ss.compare(function, *inputs, engines="async", device="simulated", progress=False)["async"].trace
    again = ss.Trace.from_spans(pd.read_csv(trace.to_csv(tmp_path / "t.csv")))
    assert again.info.device == DeviceInfo("simulated", "simulated NVIDIA H200")
    assert table(again) == table(trace)


def lost_info(frame):
    return pd.DataFrame(frame.to_dict("list"))


@pytest.mark.parametrize(
    "made", [lost_info, lambda frame: frame.to_dict("records"), lambda frame: pd.concat([frame[:3], lost_info(frame[3:])])]
)
def test_a_table_that_lost_whose_it_is_must_say_the_device(made):
    function, inputs = ss.workload("branches").build()
    frame = ss.compare(function, *inputs, engines="async", device="simulated", progress=False)["async"].trace.to_pandas()
    with pytest.raises(TraceError, match=r"has lost its origin: its times may be simulated \(say which device: device='NVIDIA H200'"):
        ss.Trace.from_spans(made(frame))
    assert ss.Trace.from_spans(lost_info(frame), device=DeviceInfo("simulated", "a model")).info.device.simulated


def test_another_name_does_not_make_simulated_times_measured(tmp_path):
    spans = SpanBuilder(["stream 7"])
    spans.add(SpanKind.KERNEL, "k", "stream 7", 0, 5)
    trace = ss.Trace(spans.build(), TraceInfo("async", "step", DeviceInfo("simulated", "a model")))
    table = pd.read_csv(trace.to_csv(tmp_path / "t.csv"))
    for again in (ss.Trace.from_spans(trace.to_pandas(), device="mine"), ss.Trace.from_spans(table, device="mine")):
        assert again.info.device == DeviceInfo("simulated", "mine")
    with pytest.raises(TraceError, match="the table is of several devices: an H200 and simulated a model"):
        ss.Trace.from_spans(pd.concat([table, table.assign(device="an H200", start_ns=10, end_ns=15)]))


def test_a_table_keeps_how_far_its_times_may_be_off():
    """Two kernels of 20 µs, 1 µs apart, of which the recorder says ± 80 ns and 5 %: 2 · 80 + 5 % of 40,000."""
    spans = SpanBuilder(["main", "aux"])
    spans.add(SpanKind.KERNEL, "a", "main", 5000, 25_000)
    spans.add(SpanKind.KERNEL, "b", "aux", 26_000, 46_000)
    calibration = {"kernel_error_ns": 80.0, "kernel_error_share": 0.05, "overlap_error": 0.1, "end_latency_ns": 300.0}
    trace = ss.Trace(spans.build(), TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200"), "events", calibration=calibration))
    wanted, found = (ss.analysis.summary(each) for each in (trace, ss.Trace.from_spans(trace.to_pandas())))
    assert wanted.gpu_busy_error_us == pytest.approx(2.16)
    assert (found.gpu_busy_error_us, found.overlap_error) == (wanted.gpu_busy_error_us, wanted.overlap_error)
