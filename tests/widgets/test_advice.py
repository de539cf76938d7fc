"""The charts of an advice: the finding in the title, the regions where they belong, the program as a point."""

from __future__ import annotations

import re
from dataclasses import replace
from math import log10
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import streamscope as ss
from streamscope.advising.break_even import graph_pays, graph_speedup, second_stream_pays
from streamscope.words import format_us
from streamscope.workloads import WORKLOADS
from streamscope_widgets import advice_view
from streamscope_widgets.show.still_chart import plane_svg


def advice_on(name, **settings):
    function, inputs = WORKLOADS[name].build(**settings)
    return ss.advise(function, *inputs, device="simulated")


@pytest.fixture(scope="module")
def branches():
    return advice_on("branches")


@pytest.fixture(scope="module")
def chain():
    return advice_on("elementwise-chain", length=50)


def regions(advice):
    return advice_view.regions_chart(advice.costs, advice.forecast)


def picture(costs, forecast):
    return plane_svg(advice_view.regions_chart(costs, forecast))


def points(chart):
    """Positions of the program in the panels."""
    return [(panel.spot.x, panel.spot.y) for panel in chart.panels if panel.spot is not None]


def test_the_title_is_the_finding(branches, chain):
    title = regions(branches).title
    forecast = branches.forecast
    assert title.startswith(
        f"parallel_branches, 35 kernels of {format_us(forecast.kernel_ns / 1e3)} µs: "
        f"graph-dual should be {forecast.speedup('graph-dual'):.1f}× as fast as async"
    )
    assert "simulated times" in regions(branches).below
    assert "graph should be " in regions(chain).title
    up_to, at_least = graph_pays(chain.costs).high_ns, second_stream_pays(chain.costs, advice_view.BRANCH, in_graph=False).low_ns
    assert (
        f"A graph pays for kernels of up to {format_us(up_to / 1e3)} µs, "
        f"a second stream launched one by one for kernels of {format_us(at_least / 1e3)} µs or more"
    ) in regions(ss.advise(device="simulated")).title


def test_the_program_is_a_point_at_its_length_and_count(branches, chain):
    (only,) = points(regions(chain))
    assert only == (pytest.approx(log10(chain.forecast.kernel_ns / 1e3)), pytest.approx(log10(50)))
    kernel_us = branches.forecast.kernel_ns / 1e3
    left, right = points(regions(branches))
    assert left == (pytest.approx(log10(kernel_us)), pytest.approx(log10(35)))
    assert right == (pytest.approx(log10(kernel_us)), pytest.approx(log10(branches.forecast.per_branch)))
    assert f"graph-dual: {branches.forecast.speedup('graph-dual'):.1f}× as fast" in regions(branches).panels[1].spot.words
    assert points(regions(ss.advise(device="simulated"))) == []


def test_a_program_outside_the_picture_stands_at_its_edge(chain):
    long = replace(chain, forecast=replace(chain.forecast, kernels=1500))
    (only,) = points(regions(long))
    assert only[1] == pytest.approx(3)


def test_regions_are_coloured_by_their_winner(chain):
    cells = regions(chain).panels[0].cells
    winner = cells.colour // 4
    for row, column in ((0, 0), (-1, 0), (-1, -1), (20, 30)):
        length_ns, count = 10 ** cells.x[column] * 1e3, round(10 ** cells.y[row])
        assert winner[row, column] == (graph_speedup(chain.costs, count, length_ns) >= 1.05)
    assert set(cells.colours) == {*advice_view.SHADES["async"], *advice_view.SHADES["graph"]}


def test_lines_of_equal_speedup_are_where_the_speedup_is(chain):
    left, _ = advice_view.regions_chart(chain.costs, None).panels
    lines = {line.words: line for line in left.lines if not line.dashed}
    assert {"1.5×", "2×", "3×"} <= set(lines)
    for name, line in lines.items():
        for x, y in zip(line.x, line.y, strict=True):
            assert graph_speedup(chain.costs, round(10**y), 10**x * 1e3) == pytest.approx(float(name.rstrip("×")), rel=0.04)


def test_the_words_of_the_program_hide_no_name_of_an_engine(chain):
    root = ET.fromstring(picture(chain.costs, replace(chain.forecast, kernels=309, kernel_ns=1560)))
    card = next(element for element in root.iter() if element.get("rx") == "3")
    left, top, width, height = (float(card.get(key)) for key in ("x", "y", "width", "height"))
    for name in (element for element in root.iter() if element.get("class") == "name mid halo"):
        x, y = float(name.get("x")), float(name.get("y"))
        assert not (left < x < left + width and top < y < top + height), name.text


def test_the_picture_is_small_and_whole(branches):
    svg = picture(branches.costs, branches.forecast)
    assert len(svg) < 60_000
    root = ET.fromstring(svg)
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"graph", "async", "dual", "yours", "2×", "kernel length, µs, simulated"} <= set(texts)
    fills = {element.get("fill") for element in root.iter()}
    assert {advice_view.SHADES["async"][0], advice_view.SHADES["dual"][1], advice_view.SHADES["graph-dual"][3]} <= fills


def test_the_picture_shows_the_same_point_as_the_chart(branches):
    svg = picture(branches.costs, branches.forecast)
    circles = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)
    low, high = np.log10([0.5, 100])
    expected = 58 + (log10(branches.forecast.kernel_ns / 1e3) - low) / (high - low) * 400
    assert float(circles[0][0]) == pytest.approx(expected, abs=0.1)
    assert len(circles) == 2


def test_control_characters_in_a_devices_name_are_replaced(branches):
    device = replace(branches.costs.device, name="a\x00\x1b[31m")
    root = ET.fromstring(picture(replace(branches.costs, device=device), branches.forecast))
    assert any((element.text or "").startswith("a��[31m") for element in root.iter())


def test_what_a_notebook_keeps(branches, tmp_path):
    html = branches._repr_html_()
    assert len(html) < 200_000
    assert "<svg" not in html
    assert "<script" not in html
    assert 'src="data:image/svg+xml;base64,' in html
    assert html.index("Your 35 kernels") < html.index("<img") < html.index("<table")
    page = branches.report(tmp_path / "advice.html")
    assert html in page.read_text(encoding="utf-8")


@pytest.mark.browser
def test_what_is_injected_into_the_page_does_not_run(branches, tmp_path, attacked):
    page, ran = attacked(branches.report(tmp_path / "advice.html"))
    assert page.locator("img[alt*='kernels']").evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 0
    assert ran == []
