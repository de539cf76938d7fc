"""An engine of another package: compared, predicted, chosen from and shown like ours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.cli.main import main
from streamscope.doors import GuestWarning
from streamscope.engine_entry import ENGINES
from streamscope.errors import EngineError

X = np.ones((64, 64), np.float32)
NAME = "one-stream"
SAID = "one stream for all work makes it"


@pytest.fixture
def runs(guest):
    return ss.compare(lambda x: ss.ops.relu(x @ x) + x, X, engines=f"async,graph,{NAME}", device="simulated", progress=False)


def test_it_is_the_last_of_all_engines(guest):
    assert list(ENGINES) == [*ENGINES.own, NAME]


def test_verdict_notebook_and_report_tell_of_it_by_its_trait(runs, tmp_path):
    assert runs[NAME].correct
    assert SAID in runs.verdict
    for page in (runs._repr_html_(), runs.save(tmp_path / "runs.md").read_text(encoding="utf-8")):
        assert NAME in page


def test_the_terminal_compares_it(guest, capsys):
    assert main(["compare", "branches", "--engines", f"async,{NAME}", "--device", "simulated"]) == 0
    assert NAME in capsys.readouterr().out


def test_it_is_predicted_chosen_and_pushed_to(runs):
    assert ss.what_if(runs["async"].trace, engine=NAME).info.engine == NAME
    choice = ss.best(lambda x: x + x, X, engines=f"async,{NAME}", device="simulated", progress=False)
    assert choice.engine == "async", "which is simpler where both are as fast"
    with ss.Engine(NAME, device="simulated") as engine:
        assert (engine.run(ss.program(lambda x: x + x), X)[0] == 2).all()


def test_one_that_fails_is_an_error_where_it_is_named_and_else_left_out(runs, monkeypatch):
    monkeypatch.setitem(ENGINES.guests(), NAME, replace(ENGINES[NAME], plan=lambda *_, **__: {}["lane"]))
    said = f"^engine '{NAME}' of the package 'steplog' failed to plan '.*': KeyError: 'lane'"
    for verb in (ss.compare, ss.best):
        with pytest.raises(EngineError, match=said):
            verb(lambda x: x + x, X, engines=f"async,{NAME}", device="simulated", progress=False)
    for verb in (ss.prepare, ss.audit):
        with pytest.raises(EngineError, match=said):
            verb(lambda x: x + x, X, engine=NAME)
    with pytest.raises(EngineError, match=said):
        ss.what_if(runs["async"].trace, engine=NAME)
    for verb in (ss.compare, ss.best, ss.verify):
        with pytest.warns(GuestWarning, match=f"^engine '{NAME}' of the package 'steplog' is left out: KeyError: 'lane'"):
            found = verb(lambda x: x + x, X, device="simulated", progress=False)
        assert NAME not in str(found)


def test_a_saved_comparison_is_told_by_its_name_where_the_package_is_missing(runs, tmp_path, monkeypatch):
    folder = runs.save(tmp_path / "runs")
    monkeypatch.setattr(ENGINES, "_guests", {})
    assert f"{NAME} makes it" in ss.load_comparison(folder).verdict
