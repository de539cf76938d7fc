from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.errors import TraceError
from streamscope.trace.info import DeviceInfo, TraceInfo
from streamscope.trace.spans import DEVICE_KINDS, Basis, SpanBuilder, SpanKind
from streamscope.trace.trace import Trace
from streamscope_widgets.payload import TimelineGroup, as_groups, compare_makespans, encode

DTYPES = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f64": "<f8"}


def trace_of(rows, engine="async", program="step", device="NVIDIA H200"):
    builder = SpanBuilder(["host", "main", "aux"])
    for row in rows:
        builder.add(**row)
    kind = "simulated" if device.startswith("simulated") else "cuda"
    return Trace(builder.build(), TraceInfo(engine, program, DeviceInfo(kind, device), versions={}))


def trace_lasting(ns, **more):
    return trace_of([{"kind": SpanKind.LAUNCH, "name": "call", "lane": "host", "start_ns": 0, "end_ns": ns}], **more)


def read_column(payload, group, column):
    """Read a column back as the front end does."""
    header = payload.header["groups"][group]
    spec = header["columns"][column]
    if "constant" in spec:
        values = np.full(header["count"], spec["constant"], dtype=np.int64)
    else:
        assert spec["offset"] % 8 == 0
        values = np.frombuffer(payload.block, DTYPES[spec["dtype"]], header["count"], spec["offset"]).astype(np.int64)
    if spec.get("delta"):
        return spec["first"] + np.cumsum(values)
    return values + spec.get("shift", 0)


rows = st.lists(
    st.builds(
        lambda start, length, kind, basis, **more: {
            "start_ns": start,
            "end_ns": start + length,
            "kind": kind,
            "basis": max(basis, Basis.DERIVED) if kind in DEVICE_KINDS else basis,  # they overlap
            **more,
        },
        start=st.integers(0, 2**44),
        length=st.integers(0, 2**40),
        kind=st.sampled_from(SpanKind),
        name=st.sampled_from(["relu", "add", "</script>", "µ"]),
        lane=st.sampled_from(["host", "main", "aux"]),
        operation=st.integers(-1, 2**31 - 1),
        part=st.integers(0, 3),
        correlation=st.integers(-1, 2**31 - 1),
        basis=st.sampled_from(Basis),
        blocks=st.integers(0, 2**33),
        threads=st.integers(0, 1024),
        nbytes=st.integers(0, 2**45),
        flops=st.integers(0, 2**50),
    ),
    max_size=12,
)


@given(first=rows, second=rows)
def test_every_column_survives_exactly(first, second):
    traces = [trace_of(first), trace_of(second, engine="graph")]
    payload = encode(as_groups(traces))
    json.dumps(payload.header, allow_nan=False)
    for index, trace in enumerate(traces):
        spans = trace.spans
        for column in ("kind", "lane", "operation", "part", "correlation", "basis", "blocks", "threads", "bytes", "flops"):
            np.testing.assert_array_equal(read_column(payload, index, column), getattr(spans, column))
        np.testing.assert_array_equal(read_column(payload, index, "start"), spans.start_ns)
        np.testing.assert_array_equal(read_column(payload, index, "duration"), spans.duration_ns)
        assert [payload.header["names"][code] for code in read_column(payload, index, "name")] == [spans.names[code] for code in spans.name]


def test_columns_that_do_not_vary_cost_nothing():
    payload = encode(as_groups([trace_lasting(5)]))
    assert payload.block == b""


def test_host_lanes_are_those_with_host_calls():
    trace = trace_of(
        [
            {"kind": SpanKind.LAUNCH, "name": "a", "lane": "host", "start_ns": 0, "end_ns": 1},
            {"kind": SpanKind.GRAPH, "name": "g", "lane": "main", "start_ns": 1, "end_ns": 2},
        ]
    )
    header = encode(as_groups([trace])).header["groups"][0]
    assert [lane["host"] for lane in header["lanes"]] == [True, False, False]


def test_labels_differ():
    traces = [trace_lasting(1), trace_lasting(2), trace_lasting(3, engine="graph")]
    assert [group.label for group in as_groups(traces)] == ["async", "async (2)", "graph"]
    assert [group.label for group in as_groups({"before": traces[0], "after": TimelineGroup(traces[1], 9.0)})] == ["before", "after"]


def test_engines_are_compared_with_async():
    groups = as_groups([TimelineGroup(trace_lasting(1, engine=engine), makespan) for engine, makespan in
                        (("sync", 2100.0), ("async", 1000.0), ("dual", 1120.0), ("graph", 294.0), ("graph-dual", 1005.0))])  # fmt: skip
    assert compare_makespans(groups) == [
        "2.1× slower than async",
        "",
        "1.12× slower than async",
        "3.4× faster than async",
        "as fast as async",
    ]


def test_recorded_and_unrecorded_makespans_are_never_compared_with_each_other():
    exact = {"device": "simulated NVIDIA H200"}
    groups = as_groups([TimelineGroup(trace_lasting(4000, **exact), 1000.0), trace_lasting(2000, engine="graph", **exact)])
    assert compare_makespans(groups) == ["", "2.0× faster than async"]


def test_of_two_measured_recordings_no_difference_is_told():
    groups = as_groups([trace_lasting(4000), trace_lasting(2000, engine="graph"), trace_lasting(0, engine="dual")])
    assert compare_makespans(groups) == ["", "too few repeats to tell (against async)", ""]


def test_other_programs_are_not_compared():
    groups = as_groups([trace_lasting(4000), trace_lasting(2000, engine="graph", program="another")])
    assert compare_makespans(groups) == ["", ""]


def test_header_says_what_the_lengths_rest_on():
    header = encode(as_groups([TimelineGroup(trace_lasting(291_000), 268_000.0, note="cold")])).header["groups"][0]
    assert (header["makespan_text"], header["remarks"]) == ("268 µs", ["recording stretched this picture to 291 µs", "cold"])
    assert ["makespan without recording", "268.000 µs"] in header["details"]
    assert ["end of the last span, in this recording", "291.000 µs"] in header["details"]


def test_devices_are_named_where_they_differ():
    groups = as_groups([trace_lasting(4000), trace_lasting(2000, engine="graph", device="simulated NVIDIA H200")])
    headers = encode(groups).header["groups"]
    assert headers[1]["remarks"] == ["2.0× faster than async on simulated NVIDIA H200"]


def test_what_is_left_out_is_said():
    trace = trace_of([{"kind": SpanKind.LAUNCH, "name": "a", "lane": "host", "start_ns": i * 10, "end_ns": i * 10 + 5} for i in range(8)])
    header = encode(as_groups([trace]), keep=[3]).header["groups"][0]
    assert (header["count"], header["shown_until_ns"], header["extent_ns"]) == (3, 30, 75)
    assert header["remarks"] == ["5 of 8 spans left out"]


def test_wrong_input_is_refused():
    with pytest.raises(TraceError, match="at least one trace"):
        as_groups([])
    with pytest.raises(TraceError, match="str is not a trace"):
        as_groups(["step.parquet"])
    with pytest.raises(TraceError, match="-3 ns"):
        TimelineGroup(trace_lasting(1), -3)
    with pytest.raises(TraceError, match="nan ns"):
        TimelineGroup(trace_lasting(1), float("nan"))
