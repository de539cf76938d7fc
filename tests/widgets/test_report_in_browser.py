"""The report in Chromium: what a reader sees, points at, and changes."""

from __future__ import annotations

import re

import pytest
from tests.widgets.conftest import until

from streamscope.trace import TimelineGroup
from streamscope.trace.spans import SpanBuilder, SpanKind
from streamscope.words import exact_time_text
from streamscope_widgets.report import report

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("bundle")]

TIMELINE = "document.querySelector('#timeline').timeline"
CENTRE = """([group, operation]) => {
  const timeline = document.querySelector('#timeline').timeline;
  const { operation: ids, kind } = timeline.model.groups[group];
  const span = ids.findIndex((id, i) => id === operation && kind[i] >= timeline.model.kinds.kernel);
  const box = timeline.root.querySelector('.ss-overlay').getBoundingClientRect();
  const place = timeline.locate(group, span);
  return [box.x + place.x + place.width / 2, box.y + place.y + place.height / 2, span];
}"""
PIXEL = """([selector, x, y]) => {
  const canvas = document.querySelector(selector);
  const box = canvas.getBoundingClientRect();
  const scale = canvas.width / box.width;
  const copy = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  copy.drawImage(canvas, -Math.floor((x - box.x) * scale), -Math.floor((y - box.y) * scale));
  return [...copy.getImageData(0, 0, 1, 1).data];
}"""


@pytest.fixture
def step(five_engines, tmp_path):
    groups = [TimelineGroup(trace, makespan_ns=trace.spans.end_ns.max() * 0.95) for trace in five_engines().values()]
    return report(groups, tmp_path / "step.html", title="step", sections=["<p class='verdict'>Launch-bound.</p>"])


def view(page):
    return page.evaluate(f"(({{t0, t1}}) => [t0, t1])({TIMELINE}.view)")


def set_view(page, t0, t1):
    page.evaluate(f"([t0, t1]) => {TIMELINE}.setView({{t0, t1}})", [t0, t1])
    settle(page)


def settle(page):
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def terms(page):
    """Return the visible tooltip's terms and values."""
    return page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.ss-tip dt')].map((term) => [term.textContent, term.nextSibling.textContent]))"
    )


def ink(page, x, y, canvas=".ss-base"):
    return page.evaluate(PIXEL, [canvas, x, y])[:3]


def test_first_view_answers_the_question(open_page, step):
    page = open_page(step)
    assert page.locator(".verdict").bounding_box()["y"] < page.locator(".ss-overlay").bounding_box()["y"] < 300
    label = page.locator(".ss-overlay").get_attribute("aria-label")
    assert re.search(r"5 engine runs .*sync: 1\.46 ms; async: 592 µs", label)


def test_spans_are_where_their_times_say(open_page, step):
    page = open_page(step)
    set_view(page, 100_000, 130_000)
    x, y, span = page.evaluate(CENTRE, [1, 35])
    width, start, end = page.evaluate(
        f"(span) => {{ const {{layout, model}} = {TIMELINE}; const g = model.groups[1];"
        " return [layout.plot.right - layout.plot.left, g.start[span], g.end[span]]; }",
        span,
    )
    pixels = (end - start) / 30_000 * width
    swatch = page.locator(".ss-chip", has_text="matmul").locator(".ss-swatch").evaluate("(e) => getComputedStyle(e).backgroundColor")
    colour = [int(part) for part in re.findall(r"\d+", swatch)][:3]
    assert ink(page, x - pixels / 2 + 4, y + 7) == colour
    assert ink(page, x + pixels / 2 - 4, y + 7) == colour
    assert ink(page, x - pixels / 2 - 3, y + 7) != colour
    assert ink(page, x + pixels / 2 + 3, y + 7) != colour


def test_hover_tells_exact_values(open_page, step):
    page = open_page(step)
    set_view(page, 100_000, 130_000)
    x, y, _ = page.evaluate(CENTRE, [1, 35])
    page.mouse.move(x, y)
    settle(page)
    # The 36th launch of 3.03 µs, 0.06 µs apart, from 1 µs on: 1 + 35 × 3.09 = 109.15; its kernel starts 3.9 µs later.
    assert terms(page) == {
        "start": "113.050 µs",
        "kernel time": "3.140 µs",
        "launch latency": "3.900 µs",
        "queue time": "0.870 µs",
        "launch size": "128 blocks × 256 threads",
        "moves": "1.05 MB, 333.9 GB/s",
        "computes": "33.6 MFLOP, 10.7 TFLOP/s",
        "operation": "#35",
    }
    assert page.locator(".ss-tip-where").inner_text() == "kernel · async · main"
    assert "start is the end less the duration, which was measured apart" in page.locator(".ss-tip-note").inner_text()
    page.mouse.move(x, page.locator(".ss-overlay").bounding_box()["y"] - 60)
    assert page.locator(".ss-tip").is_hidden()


def test_hover_over_a_header_tells_about_the_run(open_page, step):
    page = open_page(step)
    box = page.locator(".ss-overlay").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 40)
    assert terms(page)["times by"] == "events"
    assert page.locator(".ss-tip-title").inner_text() == "sync"


def test_wheel_zooms_at_the_pointer_once_focused(open_page, step):
    page = open_page(step)
    box = page.locator(".ss-overlay").bounding_box()
    x, y = box["x"] + 700, box["y"] + 100
    page.mouse.move(x, y)
    before = view(page)
    page.mouse.wheel(0, -300)
    until(page, "document.querySelector('.ss-nudge').classList.contains('ss-shown')")
    assert view(page) == before
    page.locator(".ss-overlay").focus()
    at = page.evaluate(f"{TIMELINE}.cursor")
    page.mouse.wheel(0, -300)
    until(page, f"{TIMELINE}.view.t1 - {TIMELINE}.view.t0 < {(before[1] - before[0]) * 0.7}")
    page.mouse.move(x + 1, y)
    page.mouse.move(x, y)
    zoomed = view(page)
    assert abs(page.evaluate(f"{TIMELINE}.cursor") - at) < (zoomed[1] - zoomed[0]) / 1000


def test_dragging_pans_and_shift_wheel_too(open_page, step):
    page = open_page(step)
    set_view(page, 100_000, 200_000)
    box = page.locator(".ss-overlay").bounding_box()
    page.mouse.move(box["x"] + 700, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 800, box["y"] + 100, steps=4)
    page.mouse.up()
    t0, t1 = view(page)
    pixel = page.evaluate(f"100000 / ({TIMELINE}.layout.plot.right - {TIMELINE}.layout.plot.left)")
    assert t0 == pytest.approx(100_000 - 100 * pixel)
    assert t1 - t0 == pytest.approx(100_000)
    page.keyboard.down("Shift")
    page.mouse.wheel(0, 100)
    page.keyboard.up("Shift")
    until(page, f"Math.abs({TIMELINE}.view.t0 - 100000) < {pixel}")


def test_keys_zoom_pan_and_reset(open_page, step):
    page = open_page(step)
    whole = view(page)
    page.locator(".ss-overlay").focus()
    page.keyboard.press("w")
    page.keyboard.press("+")
    zoomed = view(page)
    assert zoomed[1] - zoomed[0] == pytest.approx((whole[1] - whole[0]) / 2.25)
    page.keyboard.press("d")
    moved = view(page)
    assert moved[0] - zoomed[0] == pytest.approx(0.2 * (zoomed[1] - zoomed[0]))
    page.keyboard.press("ArrowLeft")
    assert view(page) == pytest.approx(zoomed)
    page.keyboard.press("s")
    page.keyboard.press("0")
    assert view(page) == pytest.approx(whole)


def test_double_click_resets(open_page, step):
    page = open_page(step)
    whole = view(page)
    set_view(page, 100_000, 200_000)
    box = page.locator(".ss-overlay").bounding_box()
    page.mouse.dblclick(box["x"] + 700, box["y"] + box["height"] - 40)
    assert view(page) == whole


def test_selecting_highlights_the_operation_in_every_engine(open_page, step):
    page = open_page(step)
    set_view(page, 20_000, 70_000)
    x, y, _ = page.evaluate(CENTRE, [1, 10])
    drawn = [page.evaluate(CENTRE, [group, 10]) for group in (1, 2)]
    beside = [(px + 4, py + 6) for px, py, _ in drawn]  # the line under the pointer goes through the middle
    plain = [ink(page, px, py) for px, py in beside]
    page.mouse.click(x, y)
    settle(page)
    rows = page.locator(".ss-panel tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == ["sync", "async", "dual", "graph", "graph-dual"]
    assert page.locator(".ss-panel-head strong").inner_text() == "matmul"
    assert [ink(page, px, py, ".ss-overlay") for px, py in beside] == plain
    assert all(ink(page, px, py) != colour for (px, py), colour in zip(beside, plain, strict=True))  # below, all is dimmed
    page.get_by_role("button", name="Zoom until all of them are in view").click()
    t0, t1 = view(page)
    # From graph-dual's, the earliest, to sync's, the latest.
    starts = page.evaluate(f"{TIMELINE}.model.groups.map((g) => g.start[g.operation.findIndex((id, i) => id === 10 && g.kind[i] === 8)])")
    assert t0 < min(starts) < max(starts) < t1
    page.keyboard.press("Tab")
    page.locator(".ss-overlay").focus()
    page.keyboard.press("n")
    assert "operation #11" in page.locator(".ss-panel-head").inner_text()
    page.keyboard.press("Escape")
    assert page.locator(".ss-panel").is_hidden()


def test_measuring_snaps_to_spans_and_tells_busy_time(open_page, step):
    page = open_page(step)
    set_view(page, 100_000, 130_000)
    first, y, _ = page.evaluate(CENTRE, [1, 34])
    last, _, _ = page.evaluate(CENTRE, [1, 35])
    half = page.evaluate(f"(ns) => ns / 30000 * ({TIMELINE}.layout.plot.right - {TIMELINE}.layout.plot.left) / 2", 1)
    page.keyboard.down("Shift")
    page.mouse.move(first - 1480 * half + 2, y)
    page.mouse.down()
    page.mouse.move(last + 3140 * half + 2, y, steps=5)
    page.mouse.up()
    page.keyboard.up("Shift")
    # Softmax 34 starts at 1 + 34 × 3.09 + 3.9 = 109.96 and takes 1.48; matmul 35 ends at 113.05 + 3.14 = 116.19.
    assert page.locator(".ss-panel-head").inner_text().startswith("6.230 µs\nfrom 109.960 µs to 116.190 µs")
    row = page.locator(".ss-panel tbody tr").nth(1).inner_text().split("\t")
    assert row == ["async", "6.230 µs", "4.620 µs", "74.2 %", "1.610 µs", "2"]


def test_filter_dims_what_does_not_match(open_page, step):
    page = open_page(step)
    set_view(page, 100_000, 130_000)
    x, y, _ = page.evaluate(CENTRE, [1, 35])
    other_x, _, _ = page.evaluate(CENTRE, [1, 34])
    matmul, softmax = ink(page, x, y + 7), ink(page, other_x, y + 7)
    page.get_by_placeholder("find by name").fill("MATM")
    settle(page)
    assert ink(page, x, y + 7) == matmul
    assert ink(page, other_x, y + 7) != softmax
    page.get_by_placeholder("find by name").fill("nothing has this name")
    assert page.locator(".ss-filter").get_attribute("aria-invalid") == "true"
    page.locator(".ss-chip", has_text="softmax").click()
    assert page.locator(".ss-filter").get_attribute("aria-invalid") == "false"
    settle(page)
    assert ink(page, x, y + 7) != matmul
    assert ink(page, other_x, y + 7) == softmax
    page.locator(".ss-chip", has_text="softmax").click()
    settle(page)
    assert ink(page, x, y + 7) == matmul


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_follows_the_readers_colour_scheme(open_page, step, scheme):
    page = open_page(step, color_scheme=scheme)
    box = page.locator(".ss-overlay").bounding_box()
    ground = ink(page, box["x"] + 2, box["y"] + 60)
    assert (max(ground) < 50) == (scheme == "dark")
    page.emulate_media(color_scheme="light" if scheme == "dark" else "dark")
    until(page, f"{TIMELINE}.root.matches('.ss-dark') === {str(scheme == 'light').lower()}")
    assert (max(ink(page, box["x"] + 2, box["y"] + 60)) < 50) == (scheme == "light")


def test_simulated_time_is_labelled_at_every_zoom(open_page, five_engines, simulated, tmp_path):
    path = report(five_engines(20, simulated), tmp_path / "s.html", title="step")
    page = open_page(path)
    box = page.locator(".ss-overlay").bounding_box()

    def label():
        clip = {"x": box["x"], "y": box["y"], "width": 96, "height": 26}
        return page.screenshot(clip=clip)

    whole = label()
    set_view(page, 10_000, 12_000)
    assert label() == whole
    real = open_page(report(five_engines(20), tmp_path / "r.html", title="step"))
    assert real.screenshot(clip={"x": box["x"], "y": box["y"], "width": 96, "height": 26}) != whole
    x, y, _ = page.evaluate(CENTRE, [0, 0])
    set_view(page, 0, 20_000)
    x, y, _ = page.evaluate(CENTRE, [1, 2])
    page.mouse.move(x, y)
    assert page.locator(".ss-tip-where").inner_text().endswith("simulated time")


def test_hostile_names_are_harmless(open_page, make_trace, tmp_path):
    hostile = "</script><img src=x onerror='window.hacked = 1'>"
    builder = SpanBuilder([hostile, "main"])
    builder.add(SpanKind.LAUNCH, hostile, hostile, 0, 3000, operation=0, correlation=0)
    builder.add(SpanKind.KERNEL, hostile, "main", 4000, 9000, operation=0, correlation=0)
    trace = make_trace(hostile, builder.build(), program=hostile, notes=(hostile,))
    page = open_page(report([TimelineGroup(trace, note=hostile)], tmp_path / "h.html", title=hostile))
    x, y, _ = page.evaluate(CENTRE, [0, 0])
    page.mouse.move(x, y)
    assert page.locator(".ss-tip-title").inner_text() == hostile
    page.mouse.click(x, y)
    box = page.locator(".ss-overlay").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 40)
    assert page.locator(".ss-tip-note").inner_text() == hostile
    assert page.locator("img").count() == 0
    assert page.evaluate("window.hacked") is None
    assert page.title() == hostile


def test_what_is_injected_into_a_report_does_not_run(attacked, step):
    """And the timeline is drawn beside it."""
    page, ran = attacked(step)
    until(page, f"{TIMELINE}?.layout")
    assert page.evaluate(f"{TIMELINE}.layout.groups.length") == 5
    assert page.evaluate("typeof window.hacked") == "function"
    assert ran == []


def test_the_attacks_work_on_a_page_without_a_policy(attacked, step):
    """So that the test before this one tests something."""
    step.write_text(re.sub(r"<meta http-equiv=[^>]+>", "", step.read_text(encoding="utf-8")), encoding="utf-8")
    page, ran = attacked(step)
    until(page, f"{TIMELINE}?.layout")
    assert {"handler", "handler of an SVG", "script", "module", "source", "click"} <= set(ran)


def test_hundreds_of_thousands_of_spans_are_drawn_and_found(open_page, large_trace, tmp_path):
    trace = large_trace(300_000)  # A function of JavaScript takes some 120,000 arguments at most.
    path = report([trace], tmp_path / "large.html", title="large", budget_bytes=100_000_000)
    page = open_page(path)
    assert page.evaluate(f"{TIMELINE}.model.count") == 300_000
    filled = page.evaluate(
        f"""() => {{
          const {{layout, root}} = {TIMELINE};
          const dpr = devicePixelRatio;
          const row = layout.groups[0].lanes[1].rows[0];
          const width = layout.plot.right - layout.plot.left;
          const drawn = root.querySelector('.ss-base').getContext('2d');
          const data = drawn.getImageData(layout.plot.left * dpr, (row.y + 4) * dpr, width * dpr, 1).data;
          let coloured = 0;
          for (let i = 0; i < data.length; i += 4) coloured += Math.max(...data.slice(i, i + 3)) - Math.min(...data.slice(i, i + 3)) > 12;
          return coloured / (data.length / 4);
        }}"""
    )
    assert filled > 0.95
    operation = 121_123
    kernel = (trace.spans.kind == SpanKind.KERNEL) & (trace.spans.operation == operation)
    start, end = int(trace.spans.start_ns[kernel][0]), int(trace.spans.end_ns[kernel][0])
    set_view(page, start - 20_000, end + 20_000)
    x, y, _ = page.evaluate(CENTRE, [0, operation])
    page.mouse.move(x, y)
    assert terms(page)["operation"] == f"#{operation}"
    assert terms(page)["start"] == exact_time_text(start)
    assert terms(page)["kernel time"] == f"{(end - start) / 1e3:,.3f} µs"


def test_cut_reports_show_where_they_end(open_page, large_trace, tmp_path):
    page = open_page(report([large_trace(40_000)], tmp_path / "c.html", title="t", budget_bytes=200_000))
    assert "not all spans are in it" in page.locator(".missing").inner_text()
    assert page.evaluate(f"{TIMELINE}.model.groups[0].shown_until_ns") > 0


def test_empty_and_tiny_traces_are_drawn(open_page, make_trace, tmp_path):
    builder = SpanBuilder(["host", "main"])
    builder.add(SpanKind.KERNEL, "k", "main", 5, 5)
    traces = {"nothing": make_trace("sync", SpanBuilder(["host"]).build()), "an instant": make_trace("async", builder.build())}
    page = open_page(report(traces, tmp_path / "e.html", title="t"))
    assert page.evaluate(f"{TIMELINE}.layout.groups.length") == 2
    page.locator(".ss-overlay").click(position={"x": 300, "y": 90})
    page.keyboard.press("w")


@pytest.mark.parametrize(("width", "scale"), [(420, 1), (800, 2), (1920, 1.5)])
def test_canvas_fits_every_width_and_density(open_page, step, width, scale):
    page = open_page(step, viewport={"width": width, "height": 900}, device_scale_factor=scale)
    box = page.locator(".ss-base").bounding_box()
    size = page.locator(".ss-base").evaluate("(canvas) => [canvas.width, canvas.height]")
    assert size == pytest.approx([box["width"] * scale, box["height"] * scale], abs=1)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_resizing_draws_again(open_page, step):
    page = open_page(step)
    page.set_viewport_size({"width": 900, "height": 900})
    until(page, "document.querySelector('.ss-base').width < 900")
    x, y, _ = page.evaluate(CENTRE, [0, 199])
    page.mouse.move(x, y)
    settle(page)
    assert terms(page)["operation"].startswith("#")
