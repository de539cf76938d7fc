"""Messages between Python and the browser: both halves name the same ones, with the same fields."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
from tests.widgets.conftest import gpus_trace

import streamscope as ss
from streamscope_widgets import messages, tile_questions
from streamscope_widgets.payload import as_groups, encode
from streamscope_widgets.tiles import Tiles
from streamscope_widgets.timeline import TimelineWidget


@pytest.fixture(scope="module")
def browser_half(node_path, repository):
    """What ``messages.js``, ``header.js`` and ``traits.js`` export."""
    folder = (repository / "widgets/frontend/src").as_uri()
    script = f"const all = await Promise.all(['messages', 'header', 'traits'].map((name) => import(`{folder}/${{name}}.js`)));"
    script += "console.log(JSON.stringify(Object.assign({}, ...all)));"
    run = subprocess.run([node_path, "--input-type=module", "--eval", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def fields_of(message):
    return {name: name in message.__required_keys__ for name in message.__annotations__}


@pytest.mark.parametrize("table", ["TO_PYTHON", "TO_BROWSER", "ANSWERS"])
def test_python_and_browser_know_the_same_messages_and_fields(browser_half, table):
    assert browser_half[table] == {name: fields_of(message) for name, message in getattr(messages, table).items()}


def test_every_question_has_an_answer():
    assert tile_questions.QUESTIONS == messages.ANSWERS.keys() == messages.TO_PYTHON.keys() - {"ready"}


def test_the_browser_keeps_the_traits_alike(browser_half):
    ours = {name for name, trait in TimelineWidget.class_own_traits(sync=True).items() if not name.startswith("_")}
    assert set(browser_half["TRAITS"]) == ours


@pytest.fixture(scope="module")
def groups():
    function, inputs = ss.workload("branches").build()
    return as_groups(ss.compare(function, *inputs, device="simulated", engines=("sync", "graph"), progress=False).groups())


def test_a_header_has_the_fields_that_the_browser_reads(browser_half, groups):
    always = {name for name, there in browser_half["GROUP"].items() if there}
    for payload in (encode(groups, paths=True), Tiles(groups).overview()):
        assert payload.header.keys() == browser_half["HEADER"].keys()
        for group in payload.header["groups"]:
            assert always <= group.keys() <= browser_half["GROUP"].keys()
            assert group["columns"].keys() >= {name for name, there in browser_half["COLUMNS"].items() if there}


def test_a_tile_has_columns_that_the_browser_reads(browser_half, groups):
    two_gpus = as_groups([gpus_trace(2)])
    found = np.ones(len(two_gpus[0].trace.spans), bool)
    part, none = Tiles([*two_gpus, groups[0]]).tile([[0, 10, 0], None], [found, found], paths=True).header["groups"]
    assert none is None
    assert part.keys() <= browser_half["GROUP"].keys()
    assert part["columns"].keys() == browser_half["COLUMNS"].keys()
