"""The page on metrics quotes the docstrings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import streamscope as ss
from streamscope.analysis.metric import definition_of

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
FORMULAS = PAGE.partition("## What are the formulas?")[2].partition("\n## ")[0]
ROWS = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in FORMULAS.splitlines() if re.search(r"\| `\w+` \|$", line)]


def test_there_are_formulas():
    assert len(ROWS) > 15


@pytest.mark.parametrize(("metric", "formula", "function"), ROWS, ids=[row[0] for row in ROWS])
def test_a_formula_is_that_of_the_docstring(metric, formula, function):
    definition = definition_of(getattr(ss.analysis, function.strip("`")))
    assert formula.replace("\\|", "|") in definition, metric


def test_every_number_of_the_summary_is_on_the_page():
    """As its text form names them."""
    function, inputs = ss.workload("branches").build()
    runs = ss.compare(function, *inputs, engines=["graph-dual"], device="simulated", progress=False)
    labels = {label.partition(":")[0] for label, *_ in ss.analysis.summary(runs["graph-dual"].trace).rows()}
    rows = {row[0].removesuffix(" of the device") for row in ROWS} | {"kernels", "idle"}
    assert labels <= rows
