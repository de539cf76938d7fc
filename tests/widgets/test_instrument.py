"""The timeline as an instrument, in Chromium: zoom to a stretch, arrange and align engines, find, add up, follow, save, link."""

from __future__ import annotations

import base64
import json
import xml.etree.ElementTree as ET

import pytest
from tests.widgets.conftest import until
from tests.widgets.test_report_in_browser import CENTRE, TIMELINE, ink, set_view, settle, terms, view

from streamscope.trace.spans import SpanBuilder, SpanKind
from streamscope_widgets.payload import as_groups, encode
from streamscope_widgets.report import report

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("bundle")]


@pytest.fixture
def page(open_page, five_engines, tmp_path):
    return open_page(report(five_engines(), tmp_path / "step.html", title="step"))


def shown(page):
    return page.evaluate(f"{TIMELINE}.state.engines")


def selected(page):
    """Return engine, operation and kind of the selected span."""
    return page.evaluate(
        f"(({{ state: {{ selection }}, model }}) => selection && [selection.engine, selection.operation ?? -1,"
        f" model.kinds.names[model.groups.find(({{ label }}) => label === selection.engine).kind[selection.span]]])({TIMELINE})"
    )


def press(page, *keys):
    page.locator(".ss-overlay").focus()
    for key in keys:
        page.keyboard.press(key)
    settle(page)


def drag(page, start, end, held=None):
    if held:
        page.keyboard.down(held)
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=4)
    page.mouse.up()
    if held:
        page.keyboard.up(held)
    settle(page)


def test_a_dragged_stretch_is_zoomed_to(page):
    box = page.locator(".ss-overlay").bounding_box()
    (t0, t1), plot = view(page), page.evaluate(f"{TIMELINE}.layout.plot")
    per_pixel = (t1 - t0) / (plot["right"] - plot["left"])
    start, end = (box["x"] + 400, box["y"] + 100), (box["x"] + 600, box["y"] + 140)
    wanted = [t0 + (x - plot["left"]) * per_pixel for x in (400, 600)]
    drag(page, start, end, "Control")
    assert view(page) == pytest.approx(wanted)
    press(page, "0")
    page.get_by_role("button", name="Drag to zoom to a stretch").click()
    drag(page, start, end)
    assert view(page) == pytest.approx(wanted)
    assert page.evaluate(f"{TIMELINE}.measured") is None


def test_f_zooms_to_what_is_measured_and_to_the_selection(page):
    page.evaluate(f"{TIMELINE}.measureStretch(200_000, 300_000)")
    press(page, "f")
    assert view(page) == pytest.approx([198_000, 302_000])  # a fiftieth of air
    x, y, span = page.evaluate(CENTRE, [0, 30])
    page.mouse.click(x, y)
    press(page, "f")
    t0, t1 = view(page)
    start, end = page.evaluate(f"(span) => [{TIMELINE}.model.groups[0].start[span], {TIMELINE}.model.groups[0].end[span]]", span)
    assert (t0, t1) == pytest.approx((start - (end - start), end + (end - start)))  # the span takes a third
    press(page, "f")
    starts = page.evaluate(f"{TIMELINE}.model.groups.map((g) => g.start[g.operation.findIndex((id, i) => id === 30 && g.kind[i] === 8)])")
    t0, t1 = view(page)
    assert t0 < min(starts) < max(starts) < t1


def test_engines_are_hidden_pinned_collapsed_and_moved(page):
    height = page.locator(".ss-overlay").bounding_box()["height"]
    button = lambda name: page.get_by_role("button", name=name, exact=True)  # noqa: E731
    button("Hide sync").dispatch_event("click")
    assert shown(page) == ["async", "dual", "graph", "graph-dual"]
    assert view(page)[1] < 800_000  # async, the longest that is left, ends at 770 µs
    button("Pin to the top: graph").dispatch_event("click")
    assert shown(page) == ["graph", "async", "dual", "graph-dual"]
    button("Move down: graph").dispatch_event("click")  # would leave the pinned ones
    button("Move up: dual").dispatch_event("click")
    assert shown(page) == ["graph", "dual", "async", "graph-dual"]
    button("Lanes of dual").dispatch_event("click")
    assert button("Lanes of dual").get_attribute("aria-expanded") == "false"
    assert page.evaluate(f"{TIMELINE}.layout.boxes[2].lanes.length") == 0
    assert page.locator(".ss-overlay").bounding_box()["height"] < height - 80
    button("Show sync again").click()
    assert sorted(shown(page)) == sorted(["sync", "async", "dual", "graph", "graph-dual"])
    for name in ("sync", "async", "dual", "graph"):
        button(f"Hide {name}").dispatch_event("click")
    button("Hide graph-dual").dispatch_event("click")  # one stays
    assert shown(page) == ["graph-dual"]


def test_buttons_of_an_engine_are_seen_before_they_can_be_clicked(page):
    hide = page.get_by_role("button", name="Hide sync", exact=True)
    box = hide.bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    at_middle = "([x, y]) => document.elementFromPoint(x, y).getAttribute('aria-label')"
    assert page.evaluate(at_middle, middle) != "Hide sync"
    page.mouse.move(*middle)
    page.mouse.move(middle[0] + 1, middle[1])
    assert page.evaluate(at_middle, middle) == "Hide sync"
    assert hide.evaluate("(button) => getComputedStyle(button.parentElement).opacity") == "1"
    page.mouse.click(*middle)
    assert "sync" not in shown(page)


def test_an_engine_is_dragged_by_its_name(page):
    box = page.locator(".ss-overlay").bounding_box()
    tops = page.evaluate(f"{TIMELINE}.layout.groups.map(({{ top }}) => top)")
    drag(page, (box["x"] + 60, box["y"] + tops[0] + 12), (box["x"] + 60, box["y"] + tops[2] + 20))
    assert shown(page)[:3] == ["async", "dual", "sync"]


def test_the_buttons_of_an_engine_are_one_stop_of_tab_and_arrows_go_on(page):
    page.locator(".ss-collapse").first.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert "sync" not in shown(page)
    page.locator(".ss-collapse").first.focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Lanes of dual"


def test_each_engine_at_its_own_scale_fills_the_width_and_says_so(page):
    page.get_by_label("Align the engines").select_option("scale")
    settle(page)
    ends = page.evaluate(
        f"(({{ model, parts }}) => model.groups.map((g, i) => {{ const p = {TIMELINE}.locate(i, g.end.indexOf(Math.max(...g.end)));"
        " return p.x + p.width; }))(" + TIMELINE + ")"
    )
    assert ends == pytest.approx([ends[0]] * 5, abs=0.01)
    # Under the pointer, and in a measured stretch, each engine has its own times.
    x, y, _ = page.evaluate(CENTRE, [3, 100])
    page.mouse.move(x, y)
    assert terms(page)["operation"] == "#100"
    assert page.evaluate(f"{TIMELINE}.layout.groups.every(({{ axis, top }}) => axis > top)")
    whole = page.evaluate(f"{TIMELINE}.model.groups.map(({{ extent_ns }}) => extent_ns)")
    page.evaluate(f"{TIMELINE}.measureStretch(0, {max(whole) / 2})")
    running = [row.split("\t")[1] for row in page.locator(".ss-panel table").first.locator("tbody tr").all_inner_texts()]
    assert [float(text.removesuffix(" µs").replace(",", "")) * 1e3 for text in running] == pytest.approx([end / 2 for end in whole], abs=1)


def test_engines_are_aligned_at_an_operation(page):
    x, y, _ = page.evaluate(CENTRE, [0, 35])
    page.mouse.click(x, y)
    press(page, "g")
    at = [page.evaluate(CENTRE, [group, 35])[0] for group in range(5)]
    assert at == pytest.approx([at[0]] * 5, abs=0.01)
    press(page, "g")
    assert page.get_by_label("Align the engines").input_value() == "time"


def test_without_a_selected_operation_nothing_is_aligned(page):
    press(page, "g")
    assert page.locator(".ss-nudge").text_content() == "Select an operation first: click its bar, or press N"
    choice = page.get_by_label("Align the engines")
    assert (choice.input_value(), page.evaluate(f"{TIMELINE}.state.align")) == ("time", "time")
    choice.select_option("operation")
    assert (choice.input_value(), page.evaluate(f"{TIMELINE}.state.align")) == ("time", "time")


def test_the_tooltip_tells_what_lies_under_the_pointer_when_the_picture_moves(page):
    set_view(page, 100_000, 130_000)
    x, y, _ = page.evaluate(CENTRE, [1, 35])
    box = page.locator(".ss-overlay").bounding_box()

    def told_and_there():
        settle(page)
        told = terms(page)["operation"] if page.locator(".ss-tip").is_visible() else None
        picked = page.evaluate(
            f"([x, y]) => {{ const timeline = {TIMELINE}; const at = Object.values(timeline).find((part) => part?.pick).pick({{ x, y }});"
            f" return at && `#${{timeline.model.groups[at.group].operation[at.span]}}`; }}",
            [x - box["x"], y - box["y"]],
        )
        return told, picked

    page.mouse.move(x, y)
    assert told_and_there() == ("#35", "#35")
    page.evaluate(f"{TIMELINE}.setView({{ t0: 115000, t1: 145000 }})")
    told, there = told_and_there()
    assert told == there != "#35"
    set_view(page, 100_000, 130_000)
    page.mouse.click(x, y)
    press(page, "f", "f")  # zooms to the operation in all engines, which takes its bar away from the pointer
    told, there = told_and_there()
    assert told == there != "#35"
    set_view(page, 100_000, 130_000)
    assert told_and_there() == ("#35", "#35")
    press(page, "Escape")
    assert told_and_there() == (None, "#35")
    page.mouse.move(x + 1, y)
    assert told_and_there() == ("#35", "#35")
    press(page, "0")
    told, there = told_and_there()
    assert told == there != "#35"


def test_hits_are_counted_and_stepped_through(page):
    press(page, "/")
    page.keyboard.type("softmax")
    assert page.locator(".ss-count").inner_text() == "200"  # 40 in each of five engines
    page.keyboard.press("Enter")
    assert (selected(page), page.locator(".ss-count").inner_text()) == (["sync", 4, "kernel"], "1 of 200")
    page.keyboard.press("Enter")
    assert selected(page) == ["sync", 9, "kernel"]
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Shift+Enter")
    assert (selected(page), page.locator(".ss-count").inner_text()) == (["graph-dual", 199, "kernel"], "200 of 200")
    page.get_by_role("button", name="Next hit").click()
    assert selected(page) == ["sync", 4, "kernel"]
    page.get_by_placeholder("find by name").fill("nothing like it")
    assert page.locator(".ss-count").inner_text() == "no hit"


def test_an_area_is_added_up_by_name(page):
    set_view(page, 100_000, 130_000)
    first, y, _ = page.evaluate(CENTRE, [1, 34])
    last, _, _ = page.evaluate(CENTRE, [1, 36])
    drag(page, (first, y - 5), (last, y + 5), "Alt")
    head, *rows = [row.split("\t") for row in page.locator(".ss-panel table").nth(1).locator("tr").all_inner_texts()]
    assert head == ["name", "async"]  # the area touches no other engine
    # Half of softmax 34 (1.48 µs), all of matmul 35 (3.14 µs), half of bias add 36 (0.83 µs).
    told = {row[0]: row[1:] for row in rows}
    assert set(told) == {"softmax", "matmul", "bias add"}
    count, time, share = told["matmul"][0].split(" · ")
    assert (count, time) == ("1 ×", "3.140 µs")
    assert float(share.removesuffix(" %")) == pytest.approx(100 * 3.14 / (3.14 + 0.74 + 0.415), abs=0.7)  # a pixel is 25 ns


def test_selection_is_followed_from_call_to_kernel_to_waits_and_dependents(page):
    x, y, _ = page.evaluate(CENTRE, [2, 30])
    page.mouse.click(x, y)
    press(page, "l")
    assert selected(page) == ["dual", 30, "launch"]
    page.get_by_role("button", name="Go from the launch call to the kernel").click()
    assert selected(page) == ["dual", 30, "kernel"]
    press(page, "[")
    before = selected(page)
    press(page, "]")
    assert before[1] < 30
    assert selected(page) == ["dual", 30, "kernel"]
    press(page, "ArrowDown")
    assert selected(page) == ["graph", 30, "kernel"]
    press(page, "ArrowUp", "ArrowUp")
    assert selected(page) == ["async", 30, "kernel"]


def test_two_fingers_zoom_and_one_selects(open_page, five_engines, tmp_path):
    page = open_page(report(five_engines(), tmp_path / "touch.html", title="step"), has_touch=True)
    box = page.locator(".ss-overlay").bounding_box()
    before = view(page)
    session = page.context.new_cdp_session(page)

    def touch(kind, *places):
        points = [{"x": box["x"] + x, "y": box["y"] + 100, "id": place} for place, x in enumerate(places)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 600)
    touch("touchStart", 600, 700)
    for step in range(1, 11):
        touch("touchMove", 600 - 10 * step, 700 + 10 * step)
    touch("touchEnd")
    settle(page)
    after = view(page)
    assert (after[1] - after[0]) / (before[1] - before[0]) == pytest.approx(1 / 3, rel=0.02)  # 100 pixels became 300
    set_view(page, 300_000, 330_000)
    x, y, _ = page.evaluate(CENTRE, [1, 100])
    page.touchscreen.tap(x, y)
    assert selected(page)[:2] == ["async", 100]


def test_question_mark_tells_the_keys(page):
    press(page, "?")
    help_card = page.get_by_role("dialog")
    assert "Shift" in help_card.inner_text()
    page.keyboard.press("Escape")
    assert help_card.count() == 0
    assert page.evaluate("document.activeElement.className") == "ss-overlay"


def test_a_view_is_saved_as_a_picture(page, make_trace, open_page, tmp_path):
    set_view(page, 100_000, 130_000)
    with page.expect_download() as download:
        page.get_by_role("button", name="as PNG").click()
    png = download.value.path().read_bytes()
    width = page.evaluate(f"{TIMELINE}.layout.width")
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(png[16:20]) == 2 * width
    with page.expect_download() as download:
        page.get_by_role("button", name="as SVG").click()
    svg = ET.fromstring(download.value.path().read_text(encoding="utf-8"))
    assert (download.value.suggested_filename, float(svg.get("width"))) == ("step.svg", width)
    words = {text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {"sync", "graph-dual", "matmul", "110 µs"} <= words
    # Arrows from calls, which are curves, are drawn before the bars, whose names they would cross out: here those of dual.
    drawn = ["".join(part.itertext()) or part.get("d", "") for part in svg.iter() if part.tag.endswith(("}path", "}text"))]
    at_once, host = ([place for place, text in enumerate(drawn) if text == label][2] for label in ("at once", "host"))
    assert at_once < host
    assert any("C" in path for path in drawn[at_once:host])

    hostile = "<img src=x onerror=alert(1)> & \x01"
    builder = SpanBuilder(["main"])
    builder.add(SpanKind.KERNEL, hostile, "main", 0, 9000)
    other = open_page(report([make_trace("async", builder.build())], tmp_path / "h.html", title="h"))
    with other.expect_download() as download:
        other.get_by_role("button", name="as SVG").click()
    svg = ET.fromstring(download.value.path().read_text(encoding="utf-8"))
    assert "<img src=x onerror=alert(1)> & \ufffd" in {text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")}


def test_a_link_opens_the_same_view(page):
    set_view(page, 100_000, 130_000)
    page.evaluate(f"{TIMELINE}.state = {{ engines: ['graph', 'sync'], selection: {{ engine: 'graph', operation: 7 }}, align: 'start' }}")
    set_view(page, 100_000, 130_000)
    state = page.evaluate(f"{TIMELINE}.state")
    assert (state["engines"], state["align"], state["selection"]["operation"]) == (["graph", "sync"], "start", 7)
    page.get_by_role("button", name="Copy a link").click()
    page.reload()
    until(page, f"{TIMELINE}?.layout")
    assert page.evaluate(f"{TIMELINE}.state") == state
    for broken in ("%7B", "null", "%5B%5D", '{"range":["a",null],"engines":["none"],"selection":5}'):
        page.evaluate(f"location.hash = '#view={broken}'")
        settle(page)
    assert page.evaluate(f"{TIMELINE}.state.engines") == ["graph", "sync"]


def test_a_link_that_nobody_made_leaves_the_report_whole(page):
    for broken in ('{"engines":5}', '{"range":5}', '{"pinned":3}', '{"find":{}}', '{"selection":{"operation":"x"}}', '{"align":"x"}'):
        page.evaluate(f"location.hash = '#view={broken}'")
        page.reload()
        until(page, f"{TIMELINE}?.layout")
        assert page.evaluate(f"[{TIMELINE}.shown, {TIMELINE}.state.range, {TIMELINE}.state.find.text]") == [None, None, ""]


def test_a_page_that_changes_a_class_draws_nothing_again_and_takes_no_focus(page):
    chip = page.locator(".ss-chip").first
    chip.focus()
    page.evaluate(f"window.layout = {TIMELINE}.layout; document.body.classList.add('some-dialog')")
    settle(page)
    assert chip.evaluate("(chip) => chip === document.activeElement")
    assert page.evaluate(f"layout === {TIMELINE}.layout")


def test_the_strip_is_filled_by_the_run_where_ranges_begin_long_before_it(open_page, make_trace, tmp_path):
    builder = SpanBuilder(["thread 1", "thread 1 ranges", "stream 7"])
    builder.add(SpanKind.RANGE, "setup", "thread 1 ranges", -2_000_000, -1_000_000)
    builder.add(SpanKind.LAUNCH, "launch", "thread 1", 0, 1_000, correlation=0)
    builder.add(SpanKind.KERNEL, "k", "stream 7", 5_000, 100_000, correlation=0)
    page = open_page(report([make_trace("kineto", builder.build())], tmp_path / "early.html", title="t"))
    box = page.locator(".ss-overlay").bounding_box()
    left, right, top, height = page.evaluate(
        f"(({{ plot, overview }}) => [plot.left, plot.right, overview.top, overview.height])({TIMELINE}.layout)"
    )
    middle = box["y"] + top + height / 2
    busy = ink(page, box["x"] + right - 20, middle)
    assert ink(page, box["x"] + left + 0.2 * (right - left), middle) == busy
    page.evaluate(f"{TIMELINE}.setView({{ t0: -1.5e6, t1: -1.4e6 }})")
    settle(page)
    page.mouse.click(box["x"] + (left + right) / 2, middle)
    settle(page)
    assert sum(view(page)) / 2 == pytest.approx(50_000, abs=1_500)


@pytest.fixture
def bare(browser, bundle, five_engines):
    """A page with the bundle, and in ``header()`` and ``block`` what it draws."""
    payload = encode(as_groups(five_engines(40)))
    page = browser.new_page(viewport={"width": 1000, "height": 700})
    page.set_content("<!doctype html><div id='timeline'></div>")
    page.add_script_tag(content=bundle.read_text(encoding="utf-8").partition("export default")[0])
    page.evaluate(
        """([header, block]) => {
          window.header = () => JSON.parse(header);
          window.block = Uint8Array.from(atob(block), (sign) => sign.charCodeAt(0));
        }""",
        [json.dumps(payload.header), base64.b64encode(payload.block).decode()],
    )
    yield page
    page.close()


def test_other_spans_are_shown_in_the_same_view(bare):
    before = bare.evaluate(
        """() => {
          const timeline = window.timeline = streamscopeTimeline.mount(document.getElementById('timeline'), header(), block);
          const selection = { engine: 'async', operation: 35 };
          timeline.state = { engines: ['graph', 'async'], selection, range: [100e3, 130e3], pinned: ['graph'] };
          return timeline.state;
        }"""
    )
    assert before["selection"]["name"] == "matmul"
    bare.evaluate(
        """() => {
          const other = header();
          other.groups[4].label = 'a new engine';
          timeline.replace(streamscopeTimeline.decode(other, block));
        }"""
    )
    assert bare.evaluate("timeline.state") == before | {"engines": ["graph", "async", "a new engine"]}
    assert bare.locator(".ss-panel strong").inner_text() == "matmul"
    assert "a new engine" in bare.locator(".ss-overlay").get_attribute("aria-label")


def test_of_twenty_timelines_only_those_in_sight_are_drawn(bare):
    drawn = bare.evaluate(
        """() => {
          const boxes = Array.from({ length: 20 }, () => document.body.appendChild(document.createElement('div')));
          boxes.forEach((box) => { box.style.minHeight = '900px'; });
          window.many = boxes.map((box) => streamscopeTimeline.mount(box, header(), block));
          // A canvas that nobody drew on is black.
          window.drawn = () => many.map(({ root }) => root.querySelector('.ss-base').getContext('2d').getImageData(5, 5, 1, 1).data[0] > 0);
          return drawn();
        }"""
    )
    assert drawn[0]
    assert not any(drawn[2:])
    bare.evaluate("many[12].root.scrollIntoView()")
    until(bare, "drawn()[12]")
    assert not bare.evaluate("drawn()[19]")


def test_thousands_of_lanes_are_drawn_up_to_a_limit_that_is_told(open_page, make_trace, tmp_path):
    names = [f"stream {index}" for index in range(2_000)]
    builder = SpanBuilder(names)
    for index, name in enumerate(names[:500]):
        builder.add(SpanKind.KERNEL, "k", name, index * 10, index * 10 + 5, operation=index)
    page = open_page(report([make_trace("async", builder.build())], tmp_path / "wide.html", title="t"))
    assert page.evaluate(f"{TIMELINE}.layout.groups[0].lanes.length") == 100
    assert page.evaluate(f"{TIMELINE}.model.groups[0].lanes_left_out") == 400
    # An operation whose lane is not drawn is selected all the same.
    page.evaluate(f"{TIMELINE}.select(0, 450)")
    settle(page)
    assert "operation #450" in page.locator(".ss-panel-head").inner_text()


def test_hours_beside_nanoseconds(open_page, make_trace, tmp_path):
    hour = 3_600_000_000_000
    builder = SpanBuilder(["main"])
    for index, (start, end) in enumerate([(0, 1), (1, 1), (2, 5 * hour), (5 * hour, 5 * hour + 1), (5 * hour + 7, 5 * hour + 9)]):
        builder.add(SpanKind.KERNEL, f"k{index}", "main", start, end, operation=index)
    page = open_page(report([make_trace("async", builder.build())], tmp_path / "long.html", title="t"))
    for operation, told in enumerate(["0.001 µs", "0.000 µs", "17,999.999999998 s", "0.001 µs", "0.002 µs"]):
        press(page, "n")
        assert page.locator(".ss-panel tbody td").nth(3).inner_text() == told
        place = page.evaluate(f"{TIMELINE}.locate(0, {operation})")
        left, right = page.evaluate(f"[{TIMELINE}.layout.plot.left, {TIMELINE}.layout.plot.right]")
        assert place["x"] < right
        assert place["x"] + place["width"] >= left
        if operation == 2:
            page.evaluate(f"{TIMELINE}.state = {{ range: null }}")
        else:
            assert left - 1 <= place["x"]
            assert place["x"] + place["width"] <= right + 1
