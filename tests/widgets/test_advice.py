"""The charts of an advice: the finding in the title, the regions where they belong, the program as a point."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

import streamscope as ss
from streamscope.advising.break_even import graph_pays, graph_speedup, second_stream_pays
from streamscope.words import format_us
from streamscope_widgets import advice_view
from streamscope_widgets.show.still_chart import plane_svg


@pytest.fixture(scope="module")
def advice():
    return ss.advise(device="simulated")


def regions(advice):
    return advice_view.regions_chart(advice.costs)


def test_the_title_is_the_finding(advice):
    assert "simulated times" in regions(advice).below
    up_to, at_least = graph_pays(advice.costs).high_ns, second_stream_pays(advice.costs, advice_view.BRANCH, in_graph=False).low_ns
    assert regions(advice).title == (
        f"A graph pays for kernels of up to {format_us(up_to / 1e3)} µs, "
        f"a second stream launched one by one for kernels of {format_us(at_least / 1e3)} µs or more"
    )


def test_regions_are_coloured_by_their_winner(advice):
    cells = regions(advice).panels[0].cells
    winner = cells.colour // 4
    for row, column in ((0, 0), (-1, 0), (-1, -1), (20, 30)):
        length_ns, count = 10 ** cells.x[column] * 1e3, round(10 ** cells.y[row])
        assert winner[row, column] == (graph_speedup(advice.costs, count, length_ns) >= 1.05)
    assert set(cells.colours) == {*advice_view.SHADES["async"], *advice_view.SHADES["graph"]}


def test_lines_of_equal_speedup_are_where_the_speedup_is(advice):
    left, _ = advice_view.regions_chart(advice.costs).panels
    lines = {line.words: line for line in left.lines if not line.dashed}
    assert {"1.5×", "2×", "3×"} <= set(lines)
    for name, line in lines.items():
        for x, y in zip(line.x, line.y, strict=True):
            assert graph_speedup(advice.costs, round(10**y), 10**x * 1e3) == pytest.approx(float(name.rstrip("×")), rel=0.04)


def test_the_picture_is_small_and_whole(advice):
    svg = plane_svg(regions(advice))
    assert len(svg) < 60_000
    root = ET.fromstring(svg)
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"graph", "async", "dual", "2×", "kernel length, µs, simulated"} <= set(texts)
    fills = {element.get("fill") for element in root.iter()}
    assert {advice_view.SHADES["async"][0], advice_view.SHADES["dual"][1], advice_view.SHADES["graph-dual"][3]} <= fills


def test_control_characters_in_a_devices_name_are_replaced(advice):
    device = replace(advice.costs.device, name="a\x00\x1b[31m")
    root = ET.fromstring(plane_svg(advice_view.regions_chart(replace(advice.costs, device=device))))
    assert any((element.text or "").startswith("a��[31m") for element in root.iter())


def test_what_a_notebook_keeps(advice, tmp_path):
    html = advice._repr_html_()
    assert len(html) < 200_000
    assert "<svg" not in html
    assert "<script" not in html
    assert 'src="data:image/svg+xml;base64,' in html
    assert html.index("A graph makes") < html.index("<img")
    page = advice.report(tmp_path / "advice.html")
    assert html in page.read_text(encoding="utf-8")


@pytest.mark.browser
def test_what_is_injected_into_the_page_does_not_run(advice, tmp_path, attacked):
    page, ran = attacked(advice.report(tmp_path / "advice.html"))
    assert page.locator("img[alt*='kernels']").evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 0
    assert ran == []
