"""What draws a result is chosen in one place: every entry leads to a function, and every result that shows itself has one."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest

import streamscope as ss
from streamscope import display

TYPES = {
    "Advice": "advising.advice",
    "Audit": "auditing.audit",
    "CapturedProgram": "capturing.captured",
    "Certificate": "capturing.certificate",
    "Choice": "measuring.choice",
    "Comparison": "comparing.comparison",
    "CompilationComparison": "compiling.compare_compilation",
    "CompilationLog": "kernels.compile.compilation_log",
    "EngineMetrics": "analysis.metrics",
    "EngineTable": "analysis.table",
    "GraphView": "engines.graphs",
    "Parallelised": "parallelising.parallelised",
    "Prediction": "predicting.prediction",
    "Trace": "trace.trace",
    "TraceDiff": "analysis.diff",
    "Tuning": "compiling.tuning",
    "Verification": "predicting.verify",
}


@pytest.mark.parametrize("name", display.RENDERERS)
def test_each_entry_names_a_type_and_functions_that_are_there(name):
    assert hasattr(importlib.import_module(f"streamscope.{TYPES[name]}"), name)
    for place in display.RENDERERS[name].values():
        module, function = place.split(":")
        assert callable(getattr(importlib.import_module(f"streamscope_widgets.{module}"), function))


def test_without_the_widgets_a_notebook_shows_the_text(monkeypatch):
    found = ss.audit(ss.program(lambda x: x + 1), np.ones(1, np.float32))
    assert "<div" in found._repr_html_()
    monkeypatch.setitem(sys.modules, "streamscope_widgets", None)
    assert found._repr_html_() is None
    assert "Audit of" in str(found)


def test_a_subclass_is_drawn_as_its_base():
    class Mine(type(ss.compilations())):
        pass

    assert "No kernel has been asked for" in display.html(Mine())


def test_the_widgets_have_what_a_result_promises():
    explorer = ss.explore(device="simulated")
    assert isinstance(explorer, display.Explorer)
    assert isinstance(explorer.timeline, display.Timeline)
