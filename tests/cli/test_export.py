"""``streamscope export``: a saved comparison as documents, pictures and tables."""

from __future__ import annotations

import pytest

from streamscope.cli.main import main

CHAIN = ("compare", "elementwise-chain", "--set", "length=6", "--set", "size=64", "--device", "simulated", "--engines", "async,graph")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder that ``compare --out`` wrote."""
    folder = tmp_path_factory.mktemp("saved") / "demo"
    assert main((*CHAIN, "--out", str(folder))) == 0
    return folder


def test_the_endings_say_what_is_written(saved, tmp_path, capsys):
    names = ("r.md", "r.html", "t.svg", "s.csv", "s.parquet", "m.jsonl")
    files = [str(tmp_path / name) for name in names]
    assert main(("export", str(saved), *files)) == 0
    assert capsys.readouterr().out.splitlines() == [f"wrote {file}" for file in files]
    begins = {
        "r.md": b"# elementwise-chain",
        "r.html": b"<!doctype html>",
        "t.svg": b"<svg",
        "s.csv": b'"engine","device"',
        "s.parquet": b"PAR1",
        "m.jsonl": b'{"name": "',
    }
    assert {name: (tmp_path / name).read_bytes()[: len(begin)] for name, begin in begins.items()} == begins


def test_a_chart_instead_of_the_timelines(saved, tmp_path):
    assert main(("export", str(saved), str(tmp_path / "c.svg"), "--of", "speedups")) == 0
    assert "speed-up against async" in (tmp_path / "c.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("good.md", "bad.gif"), "its name ends with '.gif'"),
        (("good.md", "bad"), "its name has no ending"),
        (("c.svg", "--of", "pie"), "there is no picture of 'pie'"),
        (("none/\0.md",), "cannot"),
    ],
)
def test_nothing_is_written_where_something_is_wrong(saved, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(("export", str(saved), *arguments)) in (1, 2)
    assert message in capsys.readouterr().err
    assert [path for path in tmp_path.iterdir() if path.is_file()] == []


def test_a_folder_that_holds_no_comparison(tmp_path, capsys):
    assert main(("export", str(tmp_path), str(tmp_path / "r.md"))) == 1
    assert "comparison.json" in capsys.readouterr().err


def test_a_folder_that_holds_ranks(tmp_path, capsys):
    (tmp_path / "ranks.json").write_text("{}", encoding="utf-8")
    assert main(("export", str(tmp_path), str(tmp_path / "r.md"))) == 1
    said = capsys.readouterr().err
    assert f"error: '{tmp_path}' is the folder of a job of several ranks, not of a comparison" in said
    assert f"streamscope ranks {tmp_path} --save report.html" in " ".join(said.split())
