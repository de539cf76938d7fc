"""``streamscope sweep``: a table of points, its files and its exit codes."""

from __future__ import annotations

import json

import pytest

from streamscope.cli.main import main
from streamscope.comparing import sweep as module
from streamscope.comparing.swept import Point, Sweep

SMALL = ("sweep", "branches", "--set", "size=16,32", "--set", "branches=2", "--engines", "async,graph", "--device", "simulated")


def test_it_prints_a_row_for_each_point(capsys):
    assert main(SMALL) == 0
    title, headline, blank, heads, *rows = capsys.readouterr().out.splitlines()
    assert title == "branches · simulated NVIDIA H200: all times are simulated"
    assert headline == "graph is the fastest at 2 of 2 points."
    assert blank == ""
    assert heads.split() == ["size", "branches", "async,", "µs", "graph,", "µs", "fastest"]
    assert [row.split()[0] for row in rows] == ["16", "32"]


def test_json_files_and_points_that_are_kept(tmp_path, capsys, monkeypatch):
    path, table = tmp_path / "points.jsonl", tmp_path / "sweep.md"
    assert main((*SMALL, "--json", "--path", str(path), "--out", str(table))) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["points"] == [
        {key: value for key, value in json.loads(line).items() if key != "sweep"} for line in path.read_text().splitlines()
    ]
    assert table.read_text().startswith("# branches · simulated NVIDIA H200: all times are simulated")
    monkeypatch.setattr(module, "compare", lambda *_, **__: pytest.fail("it ran again"))
    assert main((*SMALL, "--path", str(path))) == 0


def test_a_failed_point_is_a_note_and_code_1(capsys):
    assert main((*SMALL, "--set", "branches=2,0")) == 1
    out, err = capsys.readouterr()
    assert "[1] WorkloadError: setting branches=0 of 'branches' is out of range (1 to 256)" in out
    assert "error: 2 of 4 points failed" in err


def test_wrong_results_are_code_3(capsys, monkeypatch):
    wrong = Point({"size": 16}, comparison={"engines": {}, "device": {"kind": "cuda", "name": "GPU"}}, wrong=("graph",))
    monkeypatch.setattr(module, "sweep", lambda *_, **__: Sweep("s", (wrong,)))
    assert main(SMALL) == 3
    assert "results are wrong under graph" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("sweep", "branches"), 2, "there is no setting to sweep over"),
        (("sweep", "data-parallel", "--gpus", "2,4"), 2, "for example --set gpus=2,4; at one point"),
        (("sweep", "branches", "--gpus", "2"), 2, "for example --set size=1024,4096; at one point"),
        (("sweep", "branches", "--set", "depth=3"), 2, "no setting 'depth'"),
        (("sweep", "branches", "--set", "size"), 2, "'size' is not NAME=VALUE"),
        (("sweep", "nope", "--set", "size=3"), 2, "unknown workload 'nope'"),
        ((*SMALL, "--executor", "threads"), 2, "neither processes nor an address"),
        ((*SMALL, "--path", "points.csv"), 1, "its name ends with '.csv'"),
        ((*SMALL, "--out", "sweep.docx"), 1, "its name ends with '.docx'"),
        (("sweep", "no.captured.json", "--set", "streams=2"), 1, "cannot read no.captured.json"),
    ],
)
def test_what_is_refused_before_anything_runs(tmp_path, monkeypatch, capsys, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "compare", lambda *_, **__: pytest.fail("it ran"))
    assert main(arguments) == code
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
