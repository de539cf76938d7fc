"""Notes of a reader on a trace: made, checked, numbered, cut to a GPU, saved, and told by summaries."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamscope as ss
from streamscope.cli.main import main
from streamscope.errors import TraceError
from streamscope.trace import Counters, DeviceInfo, Note, Series, SpanTable, Trace, TraceInfo
from streamscope.trace.counters import LONGEST_NOTE, MOST_NOTES

SPANS = SpanTable.of(
    ("launch", "cudaLaunchKernel", "thread 5", 0, 2_000, 1), ("launch", "cudaLaunchKernel", "thread 5", 2_000, 4_000, 2),
    ("kernel", "a", "GPU 0 stream 7", 5_000, 25_000, 1), ("kernel", "b", "GPU 1 stream 7", 6_000, 26_001, 2),
    gpus={"GPU 0 stream 7": 0, "GPU 1 stream 7": 1},
)  # fmt: skip
TRACE = Trace(SPANS, TraceInfo("async", "step", DeviceInfo("cuda", "2 × NVIDIA H100")))
NOTED = (
    TRACE.with_note("late", 5, 26.001, lane="GPU 1 stream 7")
    .with_note("b <late>\n | again", 5)
    .with_note("run on Monday")
    .with_note("first kernel", span=2)
)
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(str.strip)


def test_notes_are_numbered_those_on_the_whole_first_then_by_time():
    assert [(note.text, note.start_ns, note.end_ns, note.lane) for note in NOTED.user_notes] == [
        ("run on Monday", None, None, ""),
        ("b <late> | again", 5_000, 5_000, ""),
        ("first kernel", 5_000, 25_000, "GPU 0 stream 7"),
        ("late", 5_000, 26_001, "GPU 1 stream 7"),
    ]
    assert [note.when for note in NOTED.user_notes] == ["", "5 µs", "5 µs to 25 µs", "5 µs to 26.001 µs"]
    assert TRACE.user_notes == ()
    assert [note.text for note in NOTED.without_note(2).without_note(1).user_notes] == ["first kernel", "late"]


@settings(max_examples=30)
@given(st.lists(st.tuples(TEXTS, st.none() | st.tuples(st.integers(0, 26_001), st.integers(0, 26_001))), max_size=6))
def test_parquet_gives_back_each_note(tmp_path_factory, rows):
    trace = TRACE
    for text, times_ns in rows:
        low, high = sorted(times_ns) if times_ns else (None, None)
        trace = trace.with_note(text, None if low is None else low / 1000, None if high is None else high / 1000)
    again = ss.read(trace.to_parquet(tmp_path_factory.mktemp("p") / "t.parquet"))
    assert again.user_notes == trace.user_notes
    assert sorted(note.text for note in again.user_notes) == sorted(" ".join(text.split()) for text, _ in rows)


def test_a_file_without_notes_is_as_before(tmp_path):
    assert b'"user_notes"' not in TRACE.to_parquet(tmp_path / "t.parquet").read_bytes()


def test_one_gpu_keeps_notes_that_are_not_on_a_lane_of_another():
    assert [note.text for note in NOTED.of_gpu(0).user_notes] == ["run on Monday", "b <late> | again", "first kernel"]
    assert [note.text for note in NOTED.of_gpu(1).user_notes] == ["run on Monday", "b <late> | again", "late"]


def test_a_time_may_lie_where_a_counter_is():
    trace = Trace(SPANS, TRACE.info, counters=Counters([-3_000, 40_000], [0, 0], [1.0, 2.0], (Series("loss"),)))
    found = trace.with_note("before", -3).with_note("after", np.float64(40)).with_note("zero", np.int64(0))
    assert [note.when for note in found.user_notes] == ["-3 µs", "0 µs", "40 µs"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"at_us": float("nan")}, "at_us=nan is not a time of the trace.*in µs, from 0.000 to 26.001"),
        ({"at_us": float("inf")}, "at_us=inf is not a time of the trace"),
        ({"at_us": 10**400}, "is not a time of the trace"),
        ({"at_us": 26.002}, "at_us=26.002 is not a time of the trace"),
        ({"at_us": -0.001}, "at_us=-0.001 is not a time of the trace"),
        ({"at_us": 5, "until_us": 30}, "until_us=30 is not a time"),
        ({"at_us": 5, "until_us": 4.999}, "until_us=4.999 is before at_us=5"),
        ({"until_us": 4}, "until_us=4 needs a start"),
        ({"at_us": True}, "at_us=True is not a time of the trace"),
        ({"at_us": "5"}, "at_us='5' is not a time of the trace"),
        ({"lane": "stream 8"}, "the trace has no lane 'stream 8'.*thread 5, GPU 0 stream 7"),
        ({"span": 4}, "span=4 is out of range.*0 to 3"),
        ({"span": 1.5}, "span=1.5 is not a whole number"),
        ({"span": 1, "at_us": 5}, "a note on a span has its times and its lane"),
    ],
)
def test_wrong_places_are_refused(arguments, words):
    with pytest.raises(TraceError, match=words):
        TRACE.with_note("x", **arguments)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TRACE.with_note(" \n"), "a note is a text of 1 to 2,000 characters"),
        (lambda: TRACE.with_note("x" * (LONGEST_NOTE + 1)), "a note is a text of 1 to 2,000 characters"),
        (lambda: TRACE.with_note(5), "a note is a text.*not 5"),
        (lambda: TRACE.with_note("\ud800"), "a note is a text"),
        (lambda: Note("two\nlines"), "on one line"),
        (lambda: Note("x", 5), "a note is on times in whole ns"),
        (lambda: Note("x", 5.0, 6.0), "a note is on times in whole ns"),
        (lambda: Note("x", 6, 5), "in their order, not on 6 to 5"),
        (lambda: Note("x", 0, 2**60), "a note is on times"),
        (lambda: Note("x", lane=7), "the lane of a note is its name"),
        (lambda: Trace(SPANS, TRACE.info, user_notes=["x"]), "user_notes of a trace must be a tuple of Note"),
        (lambda: Trace(SPANS, TRACE.info, user_notes=(Note("x"),) * (MOST_NOTES + 1)), "1,001 notes are too many"),
        (lambda: TRACE.without_note(1), "there is no note to remove"),
        (lambda: NOTED.without_note(5), "number=5 is out of range.*1 to 4"),
    ],
)
def test_what_is_wrong_is_refused(make, words):
    with pytest.raises(TraceError, match=words):
        make()


def test_summary_text_markdown_and_json_have_them(tmp_path, capsys):
    found = ss.analysis.summary(NOTED)
    assert [line.split(maxsplit=1)[1] for line in str(found).splitlines()[-4:]] == [
        "whole trace                        run on Monday",
        "5 µs                               b <late> | again",
        "5 µs to 25 µs      GPU 0 stream 7  first kernel",
        "5 µs to 26.001 µs  GPU 1 stream 7  late",
    ]
    assert NOTED.to_markdown().splitlines()[-3] == "| 2 | 5 µs |  | b \\<late\\> \\| again |"
    notes = [
        {"text": "run on Monday", "at_us": None, "until_us": None, "lane": None},
        {"text": "b <late> | again", "at_us": 5.0, "until_us": None, "lane": None},
        {"text": "first kernel", "at_us": 5.0, "until_us": 25.0, "lane": "GPU 0 stream 7"},
        {"text": "late", "at_us": 5.0, "until_us": 26.001, "lane": "GPU 1 stream 7"},
    ]
    assert found.to_dict()["user_notes"] == NOTED.to_dict()["user_notes"] == notes
    path = str(NOTED.to_parquet(tmp_path / "t.parquet"))
    assert main(["read", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["user_notes"] == notes
    assert main(["read", path]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["4", "5", "µs", "to", "26.001", "µs", "GPU", "1", "stream", "7", "late"]


def test_a_prediction_says_that_it_has_none():
    function, inputs = ss.workload("branches").build()
    trace = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)["async"].trace
    predicted = ss.what_if(trace.with_note("slow here", 3), engine="graph")
    assert predicted.user_notes == ()
    assert any("your notes of the trace, whose times would be others, too" in note for note in predicted.info.notes)


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_kineto_gives_them_back(tmp_path, name):
    trace = replace(NOTED, user_notes=(*NOTED.user_notes, Note("over it", 5_000, 26_001), Note("far before", -7_000, -6_500)))
    again = ss.read(trace.to_kineto(tmp_path / name))
    assert again.user_notes == trace.user_notes
    assert again.markers.names == []
    assert not any("left out" in note for note in again.info.notes)


def test_other_programs_see_slices_that_do_not_overlap(tmp_path):
    trace = NOTED.with_note("over it", 5, 26).with_note("after it", 26.001)
    events = json.loads(trace.to_kineto(tmp_path / "t.json").read_text())["traceEvents"]
    found = [(event["name"], event["tid"], event["ts"], event["dur"]) for event in events if event.get("cat") == "streamscope note"]
    first = found[0][1]
    assert found == [
        ("late", first, 5, 21.001), ("over it", first + 1, 5, 21), ("first kernel", first + 2, 5, 20),
        ("b <late> | again", first + 3, 5, 0), ("after it", first, 26.001, 0),
    ]  # fmt: skip
    names = {event["tid"] for event in events if event["ph"] == "M" and event["args"].get("name") == "your notes"}
    assert names == {first, first + 1, first + 2, first + 3}
    assert first not in {event["tid"] for event in events if event.get("cat") != "streamscope note" and event["ph"] == "X"}


def test_perfetto_has_instants_and_slices(tmp_path):
    proto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = replace(NOTED, counters=Counters([3], [0], [1.0], (Series("loss"),)))
    packets = proto.Trace.FromString(trace.to_perfetto(tmp_path / "t.pftrace").read_bytes()).packet
    tracks = [each.track_descriptor for each in packets if each.HasField("track_descriptor")]
    assert len({track.uuid for track in tracks}) == len(tracks)
    ours = {track.uuid for track in tracks if track.name == "your notes"}
    events = [(each.timestamp, each.track_event.type, each.track_event.name) for each in packets if each.track_event.track_uuid in ours]
    begin, end, instant = (getattr(proto.TrackEvent, f"TYPE_{kind}") for kind in ("SLICE_BEGIN", "SLICE_END", "INSTANT"))
    assert events == [
        (5_000, begin, "late"), (26_001, end, ""), (5_000, begin, "first kernel"), (25_000, end, ""), (5_000, instant, "b <late> | again"),
    ]  # fmt: skip
    assert tracks[0].description.splitlines()[-1] == "note: run on Monday"


def test_wrong_notes_of_a_file_are_left_out_and_said(tmp_path):
    path = NOTED.to_kineto(tmp_path / "t.json")
    path.write_text(path.read_text().replace('"b <late> | again"', '""').replace('{"lane": "GPU 1 stream 7"}', '{"lane": 5}'))
    found = ss.read(path)
    assert [note.text for note in found.user_notes] == ["run on Monday", "first kernel"]
    assert "left out: 2 notes with a text, a time or a lane that none can have" in found.info.notes
