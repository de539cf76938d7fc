"""``streamscope advise`` through the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.cli.test_cli import check_refused

from streamscope.advising import advice as advising
from streamscope.cli.main import main
from streamscope.comparing.comparison import load_comparison
from streamscope.errors import EngineError
from streamscope.measuring.case import Case

CHAIN = ("elementwise-chain", "--set", "length=6", "--set", "size=64", "--device", "simulated")


def test_advice_on_the_device_alone(capsys):
    assert main(("advise", "--device", "simulated")) == 0
    captured = capsys.readouterr()
    assert "Simulated times, not measured." in captured.out
    assert "Predicted with the cost model of the NVIDIA H200" in captured.out
    assert captured.err == ""


def test_advice_as_json_and_as_a_page(tmp_path, capsys):
    page = tmp_path / "new" / "advice.html"
    assert main(("advise", "--device", "simulated", "--json", "--out", str(page))) == 0
    captured = capsys.readouterr()
    content = json.loads(captured.out)
    assert content["cost_model_of"] == "NVIDIA H200"
    assert str(page) in captured.err
    text = page.read_text(encoding="utf-8")
    assert content["verdict"].removeprefix("Simulated times, not measured. ").split(". ")[0] in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("advise", "--device", "tpu"), "'tpu' is not one of", "advise --help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_wrong_usage_exits_with_2(arguments, message, hint, capsys):
    assert main(arguments) == 2
    check_refused(capsys, message, hint)


def test_nothing_runs_where_the_page_cannot_be_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(advising, "advise", lambda *_, **__: pytest.fail("it ran"))
    taken = tmp_path / "taken"
    taken.write_text("mine")
    assert main(("advise", "--device", "simulated", "--out", str(taken / "advice.html"))) == 1
    assert "cannot write to folder" in capsys.readouterr().err
    assert main(("advise", "--device", "simulated", "--out", str(tmp_path))) == 1
    assert "it is a folder" in capsys.readouterr().err


def test_settings_are_named_with_their_defaults(tmp_path):
    assert (
        main(("compare", "elementwise-chain", "--set", "size=64", "--device", "simulated", "--engines", "graph", "--out", str(tmp_path)))
        == 0
    )
    content = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    assert content["settings"] == {"length": 200, "size": 64}
    assert load_comparison(tmp_path).settings == {"length": 200, "size": 64}
    assert "length 200, size 64" in (tmp_path / "report.html").read_text(encoding="utf-8")


def failing(*_, **__):
    raise EngineError("it fails")


def test_an_older_comparison_stays_where_the_run_fails(tmp_path, monkeypatch):
    assert main(("compare", *CHAIN, "--engines", "sync", "--out", str(tmp_path))) == 0
    monkeypatch.setattr(Case, "of", failing)
    assert main(("compare", *CHAIN, "--out", str(tmp_path))) == 1
    assert list(load_comparison(tmp_path)) == ["sync"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("arguments", [("workloads",), ("compare", *CHAIN, "--json")], ids=lambda words: words[0])
def test_a_full_disk_is_one_clear_line(arguments, monkeypatch, capsys):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(arguments) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == "error: cannot write the output: No space left on device"
    assert second.startswith("hint: ")
