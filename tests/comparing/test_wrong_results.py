"""An engine whose results are wrong is marked wherever engines are compared, and called neither faster nor slower."""

from __future__ import annotations

from dataclasses import replace

import pytest

import streamscope as ss
from streamscope.analysis.table import metrics_table
from streamscope.analysis.traits import reference_engine
from streamscope.comparing.comparison import Comparison
from streamscope.engine_entry import ENGINES
from streamscope.words import listed


@pytest.fixture(scope="module")
def runs():
    function, inputs = ss.workload("branches").build(branches=2, length=3)
    return ss.compare(function, *inputs, engines=list(ENGINES.own), device="simulated", progress=False)


def wrong(runs, *engines):
    """Return a comparison with wrong results under some engines."""
    judged = [replace(run, max_abs_error=9.0, tolerance=1.0) if engine in engines else run for engine, run in runs.items()]
    return Comparison(runs.program, runs.device, judged)


def against(found):
    table = metrics_table(found.metrics, found.assessment.wrong)
    return table.against, {engine: cells[table.headings.index(table.against)] for engine, cells in table.cells.items()}


def test_tables_and_timelines_mark_them(runs, tmp_path):
    found = wrong(runs, "graph")
    assert against(found)[0] == "against async"
    assert against(found)[1] == against(runs)[1] | {"graph": "wrong results"}
    labels = {group.trace.info.engine: group.comparison for group in found.groups()}
    assert labels == {group.trace.info.engine: group.comparison for group in runs.groups()} | {"graph": "wrong results"}
    for text in (str(found), repr(found.metrics), found.to_markdown()):
        (line,) = (line for line in text.splitlines() if line.startswith(("graph ", "| graph ")))
        assert "wrong results" in line
        assert "faster" not in line


def test_the_others_are_compared_with_one_that_is_right(runs):
    nearest = reference_engine({engine: run.metrics for engine, run in runs.items() if engine != "async"})
    assert against(wrong(runs, "async"))[0] == f"against {nearest}"
    assert against(wrong(runs, *runs))[1] == dict.fromkeys(runs, "wrong results")


def test_the_explorer_calls_none_of_them_faster(runs):
    words = pytest.importorskip("streamscope_widgets.exploring.words")

    def text(said):
        return f"{said.sentence} {said.because}"

    for streams in (None, 1):
        assert "CUDA graph makes it" in text(words.answer(runs, streams))
        said = text(words.answer(wrong(runs, "graph", "graph-dual"), streams))
        assert said.startswith("RESULTS ARE WRONG under graph, graph-dual")
        assert "CUDA graph" not in said
    settings = ({"program": "branches", "length": "3"},) * 2
    said = text(words.between(runs, wrong(runs, "graph"), ("run 1", "run 2"), settings))
    assert f"under {listed([engine for engine in runs if engine != 'graph'])}." in said
    assert said.endswith("Results are wrong under graph, so its times are not compared.")
