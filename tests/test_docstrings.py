"""Docstrings that are shown, where Python kept them and where it stripped them."""

import json
import re
import subprocess
import sys

import streamscope as ss
from streamscope.docstrings import SHARED, docstring

SHOWN = """
import contextlib, io, json, sys
import streamscope as ss
from streamscope.analysis.metric import ENGINE, metrics_of
from streamscope.analysis.table import AGAINST
from streamscope.cli.app import COMMANDS, run
helps = {}
for command in ("", *(command.__name__.replace("_", "-") for command in COMMANDS)):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        run([command, "--help"] if command else [])
    helps[command] = said.getvalue()
function, inputs = ss.workload("branches").build(branches=2, length=2, size=16)
runs = ss.compare(function, *inputs, engines="async,graph", device="simulated", progress=False)
found = {
    "definitions": {one.heading: one.definition for one in (*metrics_of(ENGINE), AGAINST)},
    "rows": {label: meaning for label, _, meaning in ss.analysis.summary(runs["graph"].trace).rows()},
    "help": helps,
}
json.dump(found, sys.stdout)
"""


def test_a_python_that_strips_docstrings_shows_the_same_definitions_and_the_same_help(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    exec(SHOWN, {})
    kept = json.loads(capsys.readouterr().out)
    said = subprocess.run([sys.executable, "-OO", "-c", SHOWN], capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(said.stdout) == kept
    assert kept["rows"]["GPU busy"] == "Time with at least one kernel running."
    assert "Compare two traces" in kept["help"]["diff"]


def test_what_has_no_docstring_or_no_source_has_an_empty_one():
    def without():
        return 1

    lines = {}
    exec(compile("def made():\n    return 1", "nowhere", "exec"), lines)
    assert [docstring(one) for one in (without, lines["made"], lambda: 1, int.__add__)] == ["", "", "", "Return self+value."]


def test_shared_parts_are_filled_in_wherever_they_are_named():
    names = [*(getattr(ss, name) for name in dir(ss)), *(getattr(ss.ops, name) for name in dir(ss.ops))]
    assert not [one for one in names if re.search(r"^ *\{\w+\}$", getattr(one, "__doc__", None) or "", re.MULTILINE)]
    assert all(SHARED["attributes"].split()[-1] in verb.__doc__ for verb in (ss.compare, ss.best, ss.prepare, ss.warm))
