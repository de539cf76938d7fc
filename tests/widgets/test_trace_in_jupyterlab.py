"""Traces of other code in a real JupyterLab: thousands of lanes, endless names, blocks of multiprocessors."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("bundle")]

NAME = "traces.ipynb"
KINETO = "tests/data/kineto/streams_graph.json.gz"
CELLS = (
    """import numpy as np
import streamscope as ss
from streamscope.trace import *
from streamscope.trace.spans import COLUMN_DTYPES
trace = ss.read({path!r})
def wide(count):
    lane, at = np.arange(count), np.arange(count) * 10
    none = dict.fromkeys(("operation", "correlation", "symbol", "graph_node"), np.full(count, -1))
    given = dict(kind=np.full(count, SpanKind.KERNEL), lane=lane, start_ns=at, end_ns=at + 8)
    columns = {{name: given.get(name, none.get(name, np.zeros(count))).astype(dtype) for name, dtype in COLUMN_DTYPES.items()}}
    info = TraceInfo("kineto", "x" * 100_000, DeviceInfo("cuda", "a GPU"), "kineto")
    return Trace(SpanTable(**columns, names=("<img src=x onerror=alert(1)>" * 3000,), lanes=tuple(f"stream {{i}}" for i in lane)), info)
builder = SpanBuilder(["host", "main"])
builder.add(SpanKind.KERNEL, "gemm", "main", 0, 9_000, operation=0)
sm = np.arange(132)
blocks = Blocks(np.zeros(132, int), np.zeros(132, int), sm, np.sort(sm * 10), np.sort(sm * 10) + 5_000)
stamped = Trace(builder.build(), TraceInfo("dual", "step", DeviceInfo("cuda", "a GPU"), "stamps"), blocks=blocks)""",
    "trace",
    "trace.timeline()",
    "wide(10_000).timeline()",
    "stamped.timeline(by='multiprocessor')",
    "ss.diff(trace, trace).timeline()",
)
TIMELINES = "[...document.querySelectorAll('.jp-OutputArea *')].map((part) => part.timeline).filter(Boolean)"


@pytest.fixture(scope="module")
def page(lab_page, lab, repository):
    lab.write_notebook(NAME, [cell.format(path=str(repository / KINETO)) if "{path" in cell else cell for cell in CELLS])
    page = lab_page
    page.set_viewport_size({"width": 1400, "height": 1400})
    page.evaluate(lab.OPEN, NAME)
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    page.complaints.clear()  # of JupyterLab, about the notebook before
    page.evaluate(lab.RUN_ALL, NAME)
    page.wait_for_function(f"{TIMELINES}.length === 4 && {TIMELINES}.every((timeline) => timeline.layout)", timeout=60_000)
    return page


def model(page, number, what):
    return page.evaluate(f"(({{ model, layout }}) => ({what}))({TIMELINES}[{number}])")


def test_a_trace_shows_its_summary_and_a_picture(page):
    cell = page.locator(".jp-Cell").nth(1)
    assert "The GPU is busy 21 % of 629 µs, with 58 kernels." in cell.locator(".jp-OutputArea").inner_text()
    assert cell.locator(".jp-OutputArea img").count() == 1


def test_it_is_live_with_its_threads_and_ranges(page):
    lanes = model(page, 0, "layout.groups[0].lanes.map(({ lane }) => lane.name)")
    assert lanes[:2] == ["thread 448", "thread 448 ranges"]
    assert model(page, 0, "model.groups[0].label") == "streams_graph"


def test_of_ten_thousand_streams_a_hundred_are_drawn_and_the_others_counted(page):
    assert model(page, 1, "[layout.groups[0].lanes.length, model.groups[0].lanes_left_out]") == [100, 9900]
    assert model(page, 1, "model.names[0].length") <= 1000


def test_each_multiprocessor_has_a_thin_lane(page):
    assert model(page, 2, "layout.groups.map(({ lanes }) => lanes.length)") == [1, 132]


def test_pairs_are_marked_in_both_traces(page):
    first = model(page, 3, "model.groups[0].operation.findIndex((operation) => operation === 5)")
    page.evaluate(f"{TIMELINES}[3].select(0, {first})")
    assert "pair #5 in both traces" in page.locator(".ss-panel-head:visible").last.inner_text()
    assert page.locator(".ss-panel:visible").last.locator("tbody tr").count() == 2
    assert page.complaints == []
