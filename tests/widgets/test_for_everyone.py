"""A report for people who use no mouse, cannot see the page, read it on a small or a low window, or print it."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from tests.widgets.conftest import until

from streamscope.trace import TimelineGroup
from streamscope_widgets.report import report
from streamscope_widgets.trace_view import finding_of, trace_report

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("bundle")]

TIMELINE = "document.querySelector('#timeline').timeline"
SELECT = f"{TIMELINE}.select(1, {TIMELINE}.model.groups[1].operation.indexOf(35))"
EDGES = f"""(({{ width, height, axis, groups }}) => [0, axis, ...groups.slice(1).map(({{ top }}) => top), height, width])(
  {TIMELINE}.layout
)"""
BOX = "(part) => (({ top, bottom, left, right }) => ({ top, bottom, left, right }))(part.getBoundingClientRect())"
PIECES = """[...document.querySelectorAll('.ss-pieces img')].map(
  ({ naturalWidth, naturalHeight, clientWidth, clientHeight }) => [naturalWidth, naturalHeight, clientWidth, clientHeight]
)"""
LOW = {"width": 1400, "height": 560}
NARROW = {"width": 390, "height": 800}


@pytest.fixture
def step(five_engines, tmp_path):
    groups = [TimelineGroup(trace, makespan_ns=trace.spans.end_ns.max() * 0.95) for trace in five_engines().values()]
    long = "<table><thead><tr>" + "<th>a heading of a column</th>" * 8 + "</tr></thead></table>"
    return report(groups, tmp_path / "step.html", title="step", sections=["<p class='verdict'>Launch-bound.</p>", long])


@pytest.fixture
def one_trace(five_engines, tmp_path):
    trace = five_engines(20)["dual"]
    return trace_report(trace, [TimelineGroup(trace)], finding_of(trace), tmp_path / "trace.html")


def box(page, part):
    return page.locator(part).first.evaluate(BOX)


def overlap(one, other):
    return one["left"] < other["right"] and other["left"] < one["right"] and one["top"] < other["bottom"] and other["top"] < one["bottom"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [{"width": 1400, "height": 1000}, NARROW], ids=["wide", "narrow"])
def test_axe_finds_nothing(open_page, violations, step, one_trace, viewport, scheme):
    for path in (step, one_trace):
        page = open_page(path, viewport=viewport, color_scheme=scheme)
        page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
        page.evaluate(f"{TIMELINE}.select(0, 3); {TIMELINE}.state = {{ find: {{ name: null, text: 'm' }} }}")
        page.evaluate(f"{TIMELINE}.state = {{ engines: {TIMELINE}.state.engines.toSpliced(1, 1) }}")
        assert violations(page) == []


def test_axe_would_find_what_is_wrong(open_page, violations, step):
    """So that the test before this one tests something."""
    page = open_page(step)
    page.evaluate("for (const name of ['aria-label', 'placeholder']) document.querySelector('.ss-filter').removeAttribute(name)")
    page.evaluate("document.querySelector('.ss-buttons button').setAttribute('aria-label', 'another name')")
    page.evaluate("document.querySelector('footer').style.color = '#ccc'")
    found = violations(page)
    assert {line.partition(":")[0] for line in found} == {"label", "label-content-name-mismatch", "color-contrast"}


def test_a_few_tabs_lead_to_the_timeline_and_arrows_from_button_to_button(open_page, step):
    page = open_page(step)
    stops = []
    while not page.evaluate("document.activeElement.matches('.ss-overlay')"):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.getAttribute('aria-label')"))
        assert len(stops) <= 6, stops
    page.locator(".ss-chip").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == page.locator(".ss-chip").nth(1).inner_text()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    # The last button of the tools, which the report adds, is reached as well.
    page.get_by_role("button", name="pan").focus()
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "link"


def test_escape_leaves_the_search_and_what_is_found_stays(open_page, step):
    page = open_page(step)
    page.locator(".ss-overlay").focus()
    page.keyboard.press("/")
    page.keyboard.type("soft")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.className") == "ss-overlay"
    assert page.locator(".ss-filter").input_value() == "soft"
    page.keyboard.press("Enter")
    assert page.locator(".ss-count").inner_text() == "1 of 200"


def test_combined_keys_are_the_pages_and_others_the_timelines(open_page, step):
    page = open_page(step)
    page.evaluate("""() => {
      window.heard = [];
      document.addEventListener("keydown", (event) => {
        const kept = event.target.closest("[data-lm-suppress-shortcuts]") !== null;
        window.heard.push([event.key, event.defaultPrevented, kept]);
        event.preventDefault();  // the browser's own answer, as its dialogue that saves the page
      });
    }""")
    combined = ["Control+s", "Control+Shift+f", "Meta+p", "Control+a", "Control+0", "Control+l", "Alt+w", "Meta+m", "Control+Enter"]
    for part in (".ss-overlay", ".ss-filter", ".ss-chip", ".ss-tools select", ".ss-head button"):
        page.locator(part).first.focus()
        before = page.evaluate(f"JSON.stringify([{TIMELINE}.view, {TIMELINE}.state.selection === null])")
        for key in combined:
            page.keyboard.press(key)
        heard = [each for each in page.evaluate("window.heard") if each[0] not in ("Control", "Meta", "Alt", "Shift")]
        assert [key.lower() for key, *_ in heard] == [key.rpartition("+")[2].lower() for key in combined], part
        assert all(not prevented and not kept for _, prevented, kept in heard), part
        assert page.evaluate(f"JSON.stringify([{TIMELINE}.view, {TIMELINE}.state.selection === null])") == before
        page.evaluate("window.heard.length = 0")
        for key in ("s", "a", "0", "?", "Escape", "Escape"):
            page.locator(part).first.focus()
            page.keyboard.press(key)
        assert page.evaluate("window.heard") == [], part


def test_on_a_narrow_page_the_header_of_an_engine_is_whole(open_page, step):
    page = open_page(step, viewport=NARROW)
    written = page.evaluate(f"""() => {{
      const written = [];
      const {{ fillText }} = CanvasRenderingContext2D.prototype;
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {{ written.push([text, x, y]); }};
      {TIMELINE}.resize();
      CanvasRenderingContext2D.prototype.fillText = fillText;
      return written;
    }}""")
    texts = [text for text, *_ in written]
    remarks = page.evaluate(f"{TIMELINE}.model.groups.flatMap(({{ remarks }}) => remarks)")
    assert len(remarks) == 9  # how long the picture is, of five, and how each but async compares with it
    assert [remark for remark in remarks if remark not in texts] == []
    places = [(x, y) for text, x, y in written if text in remarks or re.match(r"[0-9.]+ (µs|ms)$", text)]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("width", [390, 700, 1400])
def test_focus_does_not_make_the_page_wider(open_page, step, width):
    page = open_page(step, viewport={"width": width, "height": 900})
    page.locator(".ss-overlay").focus()
    page.keyboard.press("w")
    assert page.evaluate("getComputedStyle(document.querySelector('.ss-stage'), '::after').content") != "none"
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_axis_and_the_details_stay_in_sight(open_page, step):
    page = open_page(step, viewport=LOW)
    page.evaluate(SELECT)
    page.evaluate("document.querySelector('.ss-overlay').scrollIntoView()")
    panel = box(page, ".ss-panel")
    assert panel["top"] > 0
    assert panel["bottom"] <= LOW["height"]
    page.evaluate("scrollBy(0, 150)")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    pinned = box(page, ".ss-pinned")
    assert pinned["top"] == 0
    # What is pinned is the axis: the same pixels as at the head of the canvas. A pointer on it is on the axis, and measures.
    same = """() => {
      const [axis, base] = [".ss-pinned canvas", ".ss-base"].map((part) => document.querySelector(part));
      const pixels = (canvas) => canvas.getContext("2d").getImageData(0, 0, axis.width, axis.height).data.join();
      return pixels(axis) === pixels(base);
    }"""
    assert page.evaluate(same)
    page.evaluate(f"{TIMELINE}.clear()")
    page.mouse.move(400, 15)
    page.mouse.down()
    page.mouse.move(700, 15, steps=3)
    page.mouse.up()
    assert page.locator(".ss-panel-head").inner_text().count("µs") == 3  # how long it is, and from when to when
    assert page.locator(".ss-panel tbody").first.locator("tr").count() == 5  # in all rows of all engines
    # A timeline lower than half of the window is not covered by its panel.
    page.set_viewport_size({"width": 1400, "height": 4 * LOW["height"]})
    page.evaluate(SELECT)
    assert page.locator(".ss-panel").evaluate("(panel) => getComputedStyle(panel).position") == "static"


def test_a_tooltip_covers_neither_the_engine_that_it_tells_about_nor_the_axis_with_the_nudge(open_page, step):
    page = open_page(step)
    tip = page.locator(".ss-tip")
    overlay = page.locator(".ss-overlay").bounding_box()
    groups = page.evaluate(f"{TIMELINE}.layout.groups.map(({{ top, bottom, lanes }}) => [top, bottom, lanes[1].y, bottom - 16])")
    told = 0
    for top, bottom, stream, at_once in groups:
        lanes = {"top": overlay["y"] + top, "bottom": overlay["y"] + bottom, "left": 0, "right": 1400}
        for x in (130, 160, 500, 1300):
            for y in (top + 9, stream + 5, at_once + 8):
                page.mouse.move(overlay["x"] + x, overlay["y"] + y)
                if tip.is_visible():
                    told += 1
                    assert not overlap(box(page, ".ss-tip"), lanes), (x, y)
                    assert not overlap(box(page, ".ss-tip"), box(page, ".ss-pinned canvas"))
                    assert not overlap(box(page, ".ss-tip"), box(page, ".ss-nudge"))
    assert told > 20
    page.mouse.wheel(0, 10)
    until(page, "document.querySelector('.ss-nudge').classList.contains('ss-shown')")
    assert not overlap(box(page, ".ss-tip"), box(page, ".ss-nudge"))


def test_an_area_lists_the_engines_in_it(open_page, step):
    page = open_page(step)
    overlay = page.locator(".ss-overlay").bounding_box()
    lanes = page.evaluate(f"{TIMELINE}.layout.groups[1].lanes.map(({{ y, height }}) => [y, y + height])")
    page.keyboard.down("Alt")
    page.mouse.move(overlay["x"] + 150, overlay["y"] + lanes[0][0] + 2)
    page.mouse.down()
    page.mouse.move(overlay["x"] + 600, overlay["y"] + lanes[-1][1] - 2, steps=3)
    page.mouse.up()
    page.keyboard.up("Alt")
    assert page.locator(".ss-panel table").first.locator("tbody th, tbody td:first-child").all_inner_texts() == ["async"]
    assert page.locator(".ss-panel table").nth(1).locator("thead th").all_inner_texts() == ["name", "async"]


PRESSED = "button, select, input, textarea, [role=button], [role=toolbar] > button, a[href]"


def test_nothing_that_can_be_pressed_is_printed(open_page, step):
    page = open_page(step, color_scheme="dark")
    assert page.evaluate(f"{TIMELINE}.root.matches('.ss-dark')")
    page.evaluate(SELECT)
    *edges, drawn = page.evaluate(EDGES)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="light")
    assert not page.evaluate(f"{TIMELINE}.root.matches('.ss-dark')")
    shown = f"[...document.querySelectorAll('{PRESSED}')].filter((part) => part.getClientRects().length).map((part) => part.outerHTML)"
    assert page.evaluate(shown) == []
    assert "ss-chip" in page.content()
    # What the colours mean is printed, and what is selected; the engines in pieces, each whole, the axis at the head of them.
    legend = page.locator(".ss-bar").inner_text()
    assert all(name in legend for name in ("matmul", "softmax", "launch", "host waits"))
    assert page.locator(".ss-panel tbody tr").count() == 5
    sizes = page.evaluate(PIECES)
    assert [[width, height] for width, height, *_ in sizes] == [[drawn, end - start] for start, end in pairwise(edges)]
    assert all(width / height == pytest.approx(shown / high, rel=0.05) for width, height, shown, high in sizes)
    assert {shown for *_, shown, _ in sizes} == {page.evaluate("document.querySelector('.ss-timeline').clientWidth")}


def test_timelines_begin_on_the_first_page_and_go_on_under_their_axis_on_the_next(open_page, five_engines, tmp_path):
    rows = "<tr><td>a line of the answer</td></tr>" * 20
    page = open_page(report(five_engines(), tmp_path / "long.html", title="step", sections=[f"<table>{rows}</table>"]))
    pages = re.findall(rb"/Type /Page\b.*?endobj", page.pdf(prefer_css_page_size=True), re.DOTALL)
    first, second = (set(re.findall(rb"/(X\d+) ", one)) for one in pages[:2])
    assert len(first) >= 2  # pictures: the axis and some of the engines
    assert len(second) >= 2
    assert len(first & second) == 1  # the axis
    assert len(first | second) == 6
