"""A metric of another package: in tables, reports, JSON, the terminal, and in what a notebook asserts."""

from __future__ import annotations

import json

import pytest

import streamscope as ss
from streamscope.cli.main import main

pytestmark = pytest.mark.usefixtures("guest")


@pytest.fixture
def runs():
    function, inputs = ss.workload("branches").build()
    return ss.compare(function, *inputs, engines="async,graph", device="simulated", progress=False)


def test_comparison_and_report_show_it(runs, tmp_path):
    longest = {engine: run.trace.spans.duration_ns[run.trace.spans.blocks > 0].max() / 1000 for engine, run in runs.items()}
    assert {engine: metrics.value("longest_us") for engine, metrics in runs.metrics.items()} == longest
    assert runs.to_dict()["engines"]["graph"]["longest_us"] == runs.to_pandas().loc["graph", "longest_us"] == longest["graph"]
    for page in (str(runs), runs._repr_html_(), runs.report(tmp_path / "runs.md").read_text(encoding="utf-8")):
        assert "longest kernel, µs" in page
    assert "Duration of the longest kernel." in runs._repr_html_()


def test_trace_and_terminal_show_it(runs, tmp_path, capsys):
    trace = runs["async"].trace
    assert ("longest kernel", "0.881 µs", "Duration of the longest kernel.") in list(ss.analysis.summary(trace).rows())
    path = trace.to_parquet(tmp_path / "step.parquet")
    assert main(["read", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["longest_us"] == 0.881
    assert "longest_us" in {name for name, *_ in ss.analysis.definitions()}


def test_a_notebook_may_expect_it(runs):
    check = pytest.importorskip("streamscope_widgets.expectations").check
    assert next(check(runs, "graph.longest_us < 1 us")).startswith("longest_us of graph is 0.8")
