"""Notes of a reader on a comparison: on the whole, and on an engine's time axis; told, saved and read back."""

from __future__ import annotations

import json
import re

import pytest

import streamscope as ss
from streamscope.comparing.comparison import NotComparedError
from streamscope.errors import TraceError
from streamscope.trace import Note


@pytest.fixture(scope="module")
def runs():
    function, inputs = ss.workload("branches").build(branches=2, length=2, size=1000, copies=1)
    return ss.compare(function, *inputs, engines="async,graph", device="simulated", progress=False)


@pytest.fixture(scope="module")
def noted(runs):
    runs = runs.with_note("seen on <b>Monday</b>").with_note("late", "graph", 1.0005, 2, lane="main")
    return runs.with_note("one call", "graph", span=0).with_note("run", "async")


ROWS = [
    ("1", "all", "all", "", "seen on <b>Monday</b>"),
    ("1", "async", "all", "", "run"),
    ("1", "graph", "0 µs to 8.078 µs", "host", "one call"),
    ("2", "graph", "1 µs to 2 µs", "main", "late"),
]


def test_they_are_numbered_on_the_whole_and_by_engine(runs, noted):
    assert noted.note_rows() == ROWS
    assert runs.note_rows() == []
    assert noted.user_notes == (Note("seen on <b>Monday</b>"),)
    assert [note.text for note in noted["graph"].trace.user_notes] == ["one call", "late"]
    assert noted.without_note(1).without_note(1, "graph").note_rows() == [ROWS[1], ("1", *ROWS[3][1:])]


def test_notes_change_nothing_else(runs, noted):
    assert noted.verdict == runs.verdict
    assert {key: value for key, value in noted.to_dict().items() if key != "user_notes"} == runs.to_dict()
    assert "user_notes" not in runs.to_dict()


def test_a_folder_gives_them_back_to_the_nanosecond(noted, tmp_path):
    again = ss.load_comparison(noted.save(tmp_path / "runs"))
    assert again.note_rows() == ROWS
    assert [run.trace.user_notes for run in again.values()] == [run.trace.user_notes for run in noted.values()]
    assert again.without_note(2, "graph").save(tmp_path / "runs") == tmp_path / "runs"
    assert len(ss.load_comparison(tmp_path / "runs").note_rows()) == 3


def test_text_markdown_json_notebook_and_report_have_them(runs, noted, bundle, tmp_path):
    assert str(noted).splitlines()[-4].split() == ["1", "all", "all", "seen", "on", "<b>Monday</b>"]
    assert noted.to_markdown().splitlines()[-1] == "| 2 | graph | 1 µs to 2 µs | main | late |"
    assert noted.to_dict()["user_notes"][0] == {
        "engine": None,
        "text": "seen on <b>Monday</b>",
        "at_us": None,
        "until_us": None,
        "lane": None,
    }
    assert noted.to_dict()["user_notes"][2] == {"engine": "graph", "text": "one call", "at_us": 0.0, "until_us": 8.078, "lane": "host"}
    json.dumps(noted.to_dict(), allow_nan=False)
    report = noted.report(tmp_path / "r.html").read_text(encoding="utf-8")
    for page in (report, noted._repr_html_()):
        assert re.search(r">graph</td>.*?>1 µs to 2 µs</td>.*?>main</td>.*?>late</td>", page)
        assert "seen on &lt;b&gt;Monday&lt;/b&gt;</td>" in page
    assert "<h2>Notes</h2>" in report
    assert "data:image/svg+xml" not in report  # The live timeline has the numbers.
    assert "<h2>Notes</h2>" not in runs.report(tmp_path / "b.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"at_us": 5}, TraceError, "a note on a time, a lane or a span needs an engine.*engine='async'"),
        ({"lane": "host"}, TraceError, "needs an engine"),
        ({"span": 0}, TraceError, "needs an engine"),
        ({"engine": "dual"}, NotComparedError, "engine 'dual' was not compared"),
        ({"engine": "graph", "at_us": 1e6}, TraceError, "is not a time of the trace"),
    ],
)
def test_wrong_places_are_refused(runs, arguments, error, words):
    with pytest.raises(error, match=words):
        runs.with_note("x", **arguments)


def test_a_note_that_is_not_there_is_refused(noted):
    with pytest.raises(TraceError, match=r"number=2 is out of range"):
        noted.without_note(2)
    with pytest.raises(TraceError, match="number=3 is out of range"):
        noted.without_note(3, "graph")
