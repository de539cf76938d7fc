"""``streamscope note``: notes added, listed and removed, in files of ours and beside others."""

from __future__ import annotations

import json

import pytest
from tests.cli.test_cli import check_refused
from tests.formats.test_notes_file import saved

import streamscope as ss
from streamscope.cli.main import main
from streamscope.errors import TraceError


@pytest.fixture
def path(tmp_path):
    return saved(tmp_path)


@pytest.fixture(scope="module")
def runs():
    function, inputs = ss.workload("branches").build(branches=2, length=2, size=1000, copies=1)
    return ss.compare(function, *inputs, engines="async,graph", device="simulated", progress=False)


def printed(capsys, *arguments):
    """Return the rows that the command prints, as words."""
    assert main(["note", *map(str, arguments)]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("ours", [False, True], ids=["Kineto JSON", "Parquet"])
def test_notes_are_added_listed_and_removed(path, tmp_path, capsys, ours):
    before = path.read_bytes()
    file = ss.read(path).to_parquet(tmp_path / "t.parquet") if ours else path
    assert printed(capsys, file) == [["no", "notes"]]
    printed(capsys, file, "[b]late[/b] ✓", "--at", "6us", "--until", "0.026 ms", "--lane", "GPU 1 stream 7")
    assert printed(capsys, file, "Monday")[1:] == [
        ["1", "whole", "trace", "Monday"],
        ["2", "6", "µs", "to", "26", "µs", "GPU", "1", "stream", "7", "[b]late[/b]", "✓"],
    ]
    assert main(["note", str(file), "--remove", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["user_notes"]
    assert found == [{"text": "[b]late[/b] ✓", "at_us": 6.0, "until_us": 26.0, "lane": "GPU 1 stream 7"}]
    assert ss.read(file).to_dict()["user_notes"] == found
    assert path.read_bytes() == before
    assert (tmp_path / "step.json.notes.json").exists() is not ours


@pytest.mark.parametrize(("time", "us"), [("500ns", 0.5), ("20us", 20), ("20.5 µs", 20.5), ("0.02ms", 20), ("0.00002s", 20)])
def test_times_have_a_unit(path, time, us):
    assert main(["note", str(path), "x", "--at", time]) == 0
    assert ss.read(path).to_dict()["user_notes"][0]["at_us"] == us


def test_a_comparison_has_them_by_engine_and_its_report_is_written_anew(runs, tmp_path, capsys, bundle):
    folder = runs.save(tmp_path / "runs")
    printed(capsys, folder, "Monday")
    assert not (folder / "report.html").exists()
    runs.report(folder / "report.html")
    rows = printed(capsys, folder / "comparison.json", "late", "--engine", "graph", "--at", "1us")
    assert rows[1:] == [["1", "all", "all", "Monday"], ["1", "graph", "1", "µs", "late"]]
    assert "<h2>Notes</h2>" in (folder / "report.html").read_text(encoding="utf-8")
    assert len(list(folder.iterdir())) == 4
    assert main(["note", str(folder), "--engine", "graph", "--remove", "1", "--json"]) == 0
    assert [each["text"] for each in json.loads(capsys.readouterr().out)["user_notes"]] == ["Monday"]
    assert ss.load_comparison(folder)["graph"].trace.user_notes == ()


def test_a_number_that_several_engines_have_needs_the_engine(runs, tmp_path, capsys):
    """Numbers count within an engine. One that only one of them has needs no more."""
    noted = runs.with_note("whole").with_note("first", "graph", 0).with_note("second", "graph", 1)
    folder = noted.save(tmp_path / "runs")
    assert main(["note", str(folder), "--remove", "1"]) == 2
    check_refused(capsys, "all and graph have a note 1 each", "--engine NAME: all, graph")
    assert [row[-1] for row in printed(capsys, folder, "--remove", "2")[1:]] == ["whole", "first"]
    assert [row[-1] for row in printed(capsys, folder, "--remove", "1", "--engine", "all")[1:]] == ["first"]
    with pytest.raises(TraceError, match=r"no note on the whole comparison.*engine='graph'"):
        ss.load_comparison(folder).without_note(1)
    assert printed(capsys, folder, "--remove", "1") == [["no", "notes"]]
    assert main(["note", str(folder), "x", "--engine", "graph", "--at", "9s"]) == 1
    check_refused(capsys, "--at 9s is not a time of the trace", "in µs")


def test_damaged_notes_are_told_without_a_word_of_python(path, capsys):
    path.with_name(f"{path.name}.notes.json").write_text("{")
    assert main(["note", str(path)]) == 0
    said = capsys.readouterr()
    assert "no notes" in said.out
    assert "without your notes in step.json.notes.json: the file is damaged, or not ours: move it away" in " ".join(said.err.split())


@pytest.mark.parametrize(
    ("arguments", "code", "message", "hint"),
    [
        (["x", "--at", "5"], 2, "'5' is not a time with a unit, such as 20us", "--help"),
        (["x", "--at", "nan us"], 2, "is not a time with a unit", "--help"),
        (["x", "--at", "1s"], 1, "--at 1s is not a time of the trace", "in µs, from 0.000 to 26.000"),
        (["x", "--at", "5 us", "--until", "1.5us"], 1, "--until 1.5us is before --at 5 us", "swap them"),
        (["x", "--until", "1us"], 2, "--until needs a start", "give --at, too"),
        (["--at", "1us"], 2, "--at, --until and --lane are of a note to add", "give its text"),
        (["x", "--remove", "1"], 2, "--remove takes no text", "remove the note first"),
        (["--remove", "1"], 1, "there is no note to remove", "streamscope note FILE TEXT adds one"),
        (["x", "--engine", "graph"], 2, "is one trace, not a comparison", "--engine"),
        (["x", "--lane", "stream 9"], 1, "the trace has no lane 'stream 9'", "GPU 0 stream 7"),
    ],
)
def test_wrong_use_is_refused_and_nothing_is_written(path, capsys, arguments, code, message, hint):
    assert main(["note", str(path), *arguments]) == code
    check_refused(capsys, message, hint)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_the_trace_of_a_comparison_is_left_to_its_folder(runs, tmp_path, capsys):
    folder = runs.save(tmp_path / "runs")
    (file,) = folder.glob("graph-*.parquet")
    assert main(["note", str(file), "x"]) == 2
    check_refused(capsys, "belongs to a comparison", f"streamscope note {folder} --engine graph")
    assert main(["note", str(folder), "x", "--at", "1us"]) == 2
    check_refused(capsys, "a note on a time or a lane needs an engine", "--engine NAME: async, graph")
    assert ss.load_comparison(folder).note_rows() == []
