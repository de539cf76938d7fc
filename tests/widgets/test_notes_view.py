"""Notes of a reader in pictures, notebooks and reports: a line or a shade at its place, its number above, and a table."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from streamscope.trace import Counters, DeviceInfo, Note, Series, SpanTable, Trace, TraceInfo
from streamscope_widgets.details import details_of
from streamscope_widgets.payload import as_groups
from streamscope_widgets.report import report
from streamscope_widgets.still_timeline import AREA, GUTTER, MOST_BYTES, WIDTH, timeline_svg
from streamscope_widgets.tile_questions import answer

SVG = "{http://www.w3.org/2000/svg}"
ONE = SpanTable.of(("launch", "a", "host", 0, 100, 0), ("kernel", "a", "main", 100, 1000, 0))
TWO = SpanTable.of(("launch", "a", "host", 0, 100, 0), ("kernel", "a", "GPU 0 main", 100, 1000, 0), ("kernel", "b", "GPU 1 main", 100, 900),
                   gpus={"GPU 0 main": 0, "GPU 1 main": 1})  # fmt: skip


def noted(*notes, spans=ONE):
    """Return a trace from 0 to 1,000 ns with notes."""
    return Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")), user_notes=notes)


def drawn(trace):
    """Return titles, places in ns and heights of the lines and shades of notes, and the texts of the picture by place in ns."""
    root = ET.fromstring(timeline_svg(as_groups([trace])))
    marks = [each for each in root.iter() if each.get("class") == "note"]
    lines = [(each.find(f"{SVG}title").text, [at(x) for x in re.findall(r"M([\d.]+)", each.get("d"))]) for each in marks if each.get("d")]
    shades = [(at(each.get("x")), round(float(each.get("width")) / AREA * 1000)) for each in marks if each.tag == f"{SVG}rect"]
    return lines, shades, {each.text: at(each.get("x")) for each in root.iter(f"{SVG}text")}


def at(x):
    """Return the time of a place in ns."""
    return round((float(x) - GUTTER) / AREA * 1000)


@pytest.mark.parametrize("spans", [ONE, TWO], ids=["one GPU", "two GPUs"])
def test_a_moment_is_a_line_and_a_stretch_a_shade_with_numbers_above(spans):
    lines, shades, texts = drawn(noted(Note("whole"), Note("b <x>", 200, 200), Note("c", 400, 700, "main"), spans=spans))
    assert lines == [("2: b <x>", [200]), ("3: c", [400, 700])]
    assert shades == [(400, 300)]
    assert "notes" in texts
    half_a_badge = 1000 * 6.5 / AREA
    assert texts["2"] == pytest.approx(200 + half_a_badge, abs=1)
    assert texts["3"] == pytest.approx(400 + half_a_badge, abs=1)


def test_numbers_that_are_too_close_share_a_badge_and_none_leaves_the_picture():
    _, _, texts = drawn(noted(Note("a", 500, 500), Note("b", 503, 503), Note("c", 510, 510), Note("d", 1000, 1000)))
    assert {"1–3", "4"} <= set(texts)
    assert GUTTER + texts["4"] * AREA / 1000 < WIDTH


def test_what_lies_outside_is_cut_or_not_drawn():
    lines, shades, _ = drawn(noted(Note("cut", -500, 100), Note("before", -500, -400), Note("after", 1001, 1500), Note("cut", 900, 1500)))
    assert lines == [("2: cut", [0, 100]), ("3: cut", [900, 1000])]
    assert shades == [(0, 100), (900, 100)]


def test_a_picture_without_times_of_notes_is_as_before():
    assert timeline_svg(as_groups([noted(Note("whole"))])) == timeline_svg(as_groups([noted()]))


def test_many_long_notes_keep_picture_and_notebook_small_and_the_report_has_all(bundle, tmp_path):
    trace = noted(*(Note(f"{number} {'<&' * 900}", number, number) for number in range(1000)))
    svg, html = timeline_svg(as_groups([trace])), trace._repr_html_()
    assert len(svg) <= MOST_BYTES
    assert "notes, 100 of 1,000" in svg
    assert len(html.encode()) < 200_000
    assert "+ 970 more notes, which a report has" in html
    report = trace.report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert len(re.findall(r"<td>\d+ (?:&lt;&amp;){900}</td>", report)) == 1000


def test_notebook_and_report_have_the_table(bundle, tmp_path):
    trace = noted(Note("<script>"), Note("late", 400, 700, "main"))
    html, report = trace._repr_html_(), trace.report(tmp_path / "r.html").read_text(encoding="utf-8")
    for page in (html, report):
        assert re.search(r">400 ns|>0\.4 µs to 0\.7 µs</td>.*?>main</td>.*?>late</td>", page)
        assert "&lt;script&gt;</td>" in page
    assert "<h2>Notes</h2>" in report
    assert "data:image/svg+xml" not in report  # The live timeline has their numbers.
    counted = replace(trace, counters=Counters([5], [0], [1.0], (Series("loss"),)))
    page = counted.report(tmp_path / "c.html").read_text(encoding="utf-8")
    assert "<h2>Counters</h2>" in page
    assert "<h2>Notes</h2>" not in noted().report(tmp_path / "b.html").read_text(encoding="utf-8")


def test_the_live_timeline_gets_those_on_times_with_their_numbers():
    groups = as_groups([noted(Note("whole"), Note("x" * 2000, 5, 5), Note("c", 400, 700, "main"))])
    (found,) = answer(None, groups, {"type": "counters"}).header["groups"]
    assert found["notes"] == [
        {"number": 2, "start": 5, "end": 5, "text": "x" * 999 + "…", "lane": ""},
        {"number": 3, "start": 400, "end": 700, "text": "c", "lane": "main"},
    ]
    assert details_of(groups) == ["counters"]
    assert details_of(as_groups([noted(Note("whole"))])) == []


@pytest.mark.browser
def test_a_report_draws_them_over_the_streams_and_tells_their_texts(tmp_path, browser, violations, bundle):
    trace = noted(Note("<img src=x onerror=alert(1)>", 200, 200), Note("late", 400, 700, "main"))
    page = browser.new_page(viewport={"width": 1100, "height": 900}, reduced_motion="reduce")
    page.goto(report([trace], tmp_path / "step.html", title="step").as_uri())
    lanes = page.locator(".ss-lanes canvas")
    lanes.wait_for()
    words = "your notes: 1: <img src=x onerror=alert(1)>, 2: late (main)"
    assert lanes.get_attribute("aria-label") == f"Counters under the streams: {words}"
    assert violations(page, ".ss-timeline") == []
    left, right = page.evaluate("(({ left, right }) => [left, right])(document.querySelector('#timeline').timeline.layout.plot)")
    start, end = page.evaluate("(({ t0, t1 }) => [t0, t1])(document.querySelector('#timeline').timeline.view)")
    for time, told in ((550, "2: late (main)"), (300, "")):
        lanes.hover(position={"x": left + (time - start) / (end - start) * (right - left), "y": 5})
        page.wait_for_function("told => document.querySelector('.ss-lanes canvas').title === told", arg=told)
    page.close()
