"""The flame chart: its data, and that readers of reports and notebooks can use it."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
from collections import deque
from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.analysis.call_tree import call_tree
from streamscope.trace import LaunchSites, Site
from streamscope_widgets import details
from streamscope_widgets.details import FRAME_KINDS, details_of, tree_of
from streamscope_widgets.payload import as_groups
from streamscope_widgets.report import answers, report
from streamscope_widgets.tile_questions import answer, hits_of
from streamscope_widgets.tiles import Tiles

SITES = (Site("<b>forward", "model.py", 12, "Net_0", defined=True), Site("loss", "train.py", 40))


@pytest.fixture
def trace(five_engines):
    """Matrix products are launched in one function, all others at one line."""
    found = five_engines(40)["async"]
    device = np.flatnonzero(found.spans.kind >= 8)
    matmul = found.spans.names.index("matmul")
    return replace(found, sites=LaunchSites(device, np.where(found.spans.name[device] == matmul, 0, 1), SITES))


def column(header, block, name, count):
    """Decode a column as ``decode_column.js`` does."""
    spec = header["columns"][name] if name in header["columns"] else header[name]
    dtype = {"u8": "u1", "u16": "u2", "u32": "u4", "f64": "f8"}[spec["dtype"]]
    values = np.full(count, spec["constant"]) if "constant" in spec else np.frombuffer(block, f"<{dtype}", count, spec["offset"])
    return values.astype(np.int64) + spec.get("shift", 0)


def test_kinds_of_frames_are_those_of_the_browser(node_path, repository):
    module = (repository / "widgets/frontend/src/flame_tree.js").as_uri()
    script = f"import {{ FRAME_KINDS }} from '{module}'; console.log(FRAME_KINDS.join());"
    run = subprocess.run([node_path, "--input-type=module", "--eval", script], capture_output=True, text=True, check=True)
    assert tuple(run.stdout.strip().split(",")) == FRAME_KINDS


def test_a_tree_is_found_while_another_thread_adds_one(trace, monkeypatch):
    trees = deque([(lambda: trees.append((lambda: None, None)), None)])
    monkeypatch.setattr(details, "_trees", trees)
    assert tree_of(trace, "code").by == "code"


def test_a_tree_is_sent_with_the_frame_of_each_span(trace):
    header, block = (found := answer(None, as_groups([trace]), {"type": "tree", "group": 0, "by": "range"})).header, found.block
    tree = call_tree(trace)
    assert (header["by"], header["other"], header["defined"], header["count"]) == ("code", False, True, len(tree.frames))
    assert [header["texts"][code] for code in column(header, block, "name", header["count"])] == [frame.name for frame in tree.frames]
    assert column(header, block, "parent", header["count"]).tolist() == tree.parent.tolist()
    for name, costs in zip(("kernels", "gpu", "exposed", "idle"), tree.costs, strict=True):
        assert column(header, block, name, header["count"]).tolist() == costs.tolist()
    frame = column(header, block, "frame", header["rows"])
    assert header["rows"] == len(trace.spans)
    assert frame[tree.span].tolist() == tree.frame.tolist()
    assert (np.delete(frame, tree.span) == -1).all()


def test_frames_of_a_long_trace_are_asked_for_one_by_one(trace, five_engines):
    groups = as_groups([trace, five_engines(40)["graph"]])
    tiles = Tiles(groups)
    assert answer(tiles, groups, {"type": "tree", "group": 0, "by": "code"}).header["frame"] is None
    tree = tree_of(trace, "code")
    row = int(tree.span[3])
    asked = {"type": "frame", "group": 0, "by": "code"}
    assert answer(tiles, groups, {**asked, "span": row}).header == {"frame": int(tree.frame[3])}
    assert answer(tiles, groups, {**asked, "span": 0}).header == {"frame": -1}  # a call
    forward = [frame.name for frame in tree.frames].index("<b>forward")
    hits = hits_of(tiles, {"code": None, "text": "", "frame": {"group": 0, "by": "code", "numbers": [forward]}})
    under, spans, other = tree.under(forward), trace.spans, groups[1].trace.spans
    assert np.flatnonzero(hits[0] & (spans.kind >= 8)).tolist() == under.tolist()
    assert sorted(spans.correlation[hits[0] & (spans.kind < 8)]) == sorted(spans.correlation[under])
    assert sorted(other.operation[hits[1]]) == sorted(spans.operation[under])
    assert "refused" in answer(tiles, groups, {**asked, "group": 7, "span": row}).header


def test_only_traces_that_tell_code_have_a_chart(trace, five_engines, tmp_path, bundle):
    plain = five_engines(40)["async"]
    assert details_of(as_groups([plain])) == []
    assert details_of(as_groups([plain, trace])) == ["code"]
    assert answers(as_groups([plain])) is None
    paths = [report([each], tmp_path / f"{number}.html", title="step") for number, each in enumerate((plain, trace))]
    pages = [path.read_text(encoding="utf-8") for path in paths]
    assert ["streamscopeSecond" in page for page in pages] == [False, True]
    assert "<b>" not in pages[1].partition("<script")[2].partition("details-header")[2]
    header = json.loads(re.search('id="details-header">(.*?)</script>', pages[1]).group(1))
    packing, block = re.search('id="details-block" data-packing="(.*?)">(.*?)</script>', pages[1]).groups()
    found = base64.b64decode(block)
    expected = answers(as_groups([trace]))
    assert header == json.loads(json.dumps(expected.header))
    assert (gzip.decompress(found) if packing == "gzip" else found) == expected.block


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_shows_where_time_goes(trace, tmp_path, browser, violations, bundle, scheme):
    """By keys alone: open the chart, go into a frame, see its spans, go back."""
    page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
    page.goto(trace.report(tmp_path / "step.html").as_uri())
    page.locator(".ss-overlay").focus()
    page.keyboard.press("b")
    page.locator(".ss-frame").first.wait_for()
    assert page.evaluate("document.querySelector('#timeline').timeline.state.shows") == ["overlap", "by code"]
    page.locator(".ss-frame[tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    names = page.evaluate("[...document.querySelectorAll('.ss-frame')].map((frame) => frame.textContent)")
    assert {"GPU", "loss", "Net_0", "<b>forward", "matmul"} <= set(names)
    assert page.evaluate("document.activeElement.textContent") in ("<b>forward", "bias add", "relu", "multiply", "softmax")
    page.locator(".ss-frame", has_text="Net_0").focus()
    page.keyboard.press("Enter")
    assert page.locator(".ss-count").inner_text() == "8"  # every fifth kernel
    assert "Net_0" in page.locator(".ss-flame-told strong").inner_text()
    assert page.evaluate("document.activeElement.textContent") == "Net_0"
    assert violations(page, ".ss-timeline") == []
    page.keyboard.press("Escape")
    assert page.locator(".ss-count").inner_text() == ""
    # A frame's spans are shown as long as its chart is: neither another direction nor closing it leaves them alone in the timeline.
    page.keyboard.press("ArrowDown")
    for leave in (lambda: page.get_by_label("Direction").select_option("up"), lambda: page.locator(".ss-overlay").press("b")):
        page.locator(".ss-frame").nth(1).click()
        assert page.locator(".ss-count").inner_text() != ""
        leave()
        page.locator(".ss-count:empty").wait_for(state="attached")
    page.locator(".ss-overlay").press("b")
    page.get_by_label("Direction").select_option("down")
    page.get_by_label("What is added up").select_option("exposed")
    assert "No communication here" in page.locator(".ss-flame-told").inner_text()
    # In the idle time after the last work nothing ran that could be shown alone.
    page.get_by_label("What is added up").select_option("idle")
    page.get_by_label("Direction").select_option("up")
    page.locator(".ss-frame[aria-label^='not attributed']").press("Enter")
    assert "not attributed" in page.locator(".ss-flame-told strong").inner_text()
    assert page.locator(".ss-count").inner_text() == ""
    page.get_by_label("Direction").select_option("down")
    page.get_by_label("What is added up").select_option("gpu")
    page.locator(".ss-filter").fill("forw")
    # As a function: Playwright evaluates a text again and again, which the report's policy for scripts forbids.
    page.wait_for_function("() => document.querySelector('.ss-hit')?.textContent === '<b>forward'")
    page.locator(".ss-overlay").focus()
    page.keyboard.press("n")
    page.wait_for_selector(".ss-launched")
    assert page.locator(".ss-launched").inner_text() == "launched in <b>forward, defined at model.py:12 in module Net_0"
    told = "(({ details, state }) => details.shown.codeOf(0, state.selection.span))(document.querySelector('#timeline').timeline)"
    assert page.evaluate(told) == [page.locator(".ss-launched").inner_text()]  # for its tooltip
    # Here no operation tells its line, so a line that ran is told, too.
    relu = "model.groups[0].kind.findIndex((kind, i) => kind === model.kinds.kernel && model.names[model.groups[0].name[i]] === 'relu')"
    told = f"(({{ details, model }}) => details.shown.codeOf(0, {relu}))(document.querySelector('#timeline').timeline)"
    assert page.evaluate(told) == ["launched at train.py:40"]
    lit = page.evaluate("[...document.querySelectorAll('.ss-lit')].map((frame) => frame.textContent)")
    assert lit == ["GPU", "Net_0", "<b>forward", "matmul"]
    # The tables are sorted by their headings. On paper none scrolls: Chromium leaves out a row of those that do at the end of a page.
    lines = page.locator(".ss-sortable").first
    assert lines.locator("th").count() == lines.locator("th[aria-sort=none]").count() > 1  # They say that they sort.
    for sort, order in (("descending", ["loss", "<b>forward"]), ("ascending", ["<b>forward", "loss"])):
        lines.get_by_role("button", name="kernels").press("Enter")
        assert lines.locator(f"[aria-sort={sort}]").inner_text() == "kernels"
        assert lines.locator("tbody td:first-child").all_inner_texts() == order
    page.emulate_media(media="print")
    boxes = "[...document.querySelectorAll('section, section *')]"
    assert page.evaluate(f"{boxes}.filter((box) => getComputedStyle(box).overflowX === 'auto').length") == 0
    page.close()


def test_the_second_bundle_is_what_python_sends(five_engines, bundle):
    found = answer(None, as_groups(five_engines(4)), {"type": "details"})
    assert found.block == bundle.with_name("details.js").read_bytes()


def test_programs_and_captures_have_lines():
    function, inputs = ss.workload("branches").build()
    runs = ss.compare(function, *inputs, engines=["graph"], device="simulated", progress=False)
    assert details_of(runs.groups()) == ["code"]
