"""Counters and markers in the still picture: steps at their times and heights, a range, and a line with a name for each marker."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from streamscope.trace import Counters, DeviceInfo, Markers, Series, SpanTable, Trace, TraceInfo
from streamscope_widgets.payload import as_groups
from streamscope_widgets.still_counters import LINE, counter_lines, drawn_counter
from streamscope_widgets.still_timeline import AREA, GUTTER, MOST_BYTES, timeline_svg

SVG = "{http://www.w3.org/2000/svg}"
ONE = SpanTable.of(("launch", "a", "host", 0, 100, 0), ("kernel", "a", "main", 100, 1000, 0))
TWO = SpanTable.of(("launch", "a", "host", 0, 100, 0), ("kernel", "a", "GPU 0 main", 100, 1000, 0), ("kernel", "b", "GPU 1 main", 100, 900),
                   gpus={"GPU 0 main": 0, "GPU 1 main": 1})  # fmt: skip


def traced(counters, markers=(), spans=ONE):
    """Return a trace from 0 to 1,000 ns."""
    info = TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200"))
    return Trace(spans, info, counters=counters, markers=Markers.of([(at, name, "host") for at, name in markers]))


def counted(times, values, *more):
    """Return one counter, and more of one value each."""
    described = (Series("loss"), *more)
    rows = sorted([(at, 0, value) for at, value in zip(times, values, strict=True)] + [(0, at, 1.0) for at in range(1, len(described))])
    return Counters(*(np.array(column) for column in zip(*rows, strict=True)), described)


def corners(trace, column=1.0):
    """Return the corners of the first counter's line as times in ns and values."""
    (line, *_), _ = counter_lines(trace, 0, AREA / 1000, AREA)
    (path,) = [part for part in drawn_counter(line, GUTTER, 0, AREA, column) if part.startswith("<path")]
    x, y, found = 0.0, 0.0, []
    for kind, first, second in re.findall(r"([MHV])([\d.]+)(?: ([\d.]+))?", re.search(' d="(.*?)"', path)[1]):
        x, y = (float(first), float(second)) if kind == "M" else (float(first), y) if kind == "H" else (x, float(first))
        found.append((round((x - GUTTER) / AREA * 1000), line.high - (y - 2) / LINE * (line.high - line.low)))
    return [each for number, each in enumerate(found) if number == 0 or each != found[number - 1]]


def test_a_value_holds_until_the_next_one_and_the_last_to_the_end():
    assert corners(traced(counted([100, 500, 700], [0.0, 10.0, 5.0]))) == pytest.approx(
        np.array([(100, 0), (500, 0), (500, 10), (700, 10), (700, 5), (1000, 5)])
    )


def test_of_what_came_before_the_picture_the_last_value_counts_and_what_comes_after_is_not_in_it():
    found = corners(traced(counted([-900, -300, 400, 5000], [90.0, 2.0, 4.0, -70.0])))
    assert found == pytest.approx(np.array([(0, 2), (400, 2), (400, 4), (1000, 4)]))


def test_values_that_share_a_column_reach_from_the_least_to_the_largest_and_end_at_the_last():
    found = corners(traced(counted([100, 101, 102, 103, 600], [5.0, 0.0, 10.0, 5.0, 5.0])), column=12.0)
    assert {round(value) for at, value in found if 95 < at < 105} == {0, 5, 10}
    assert found[-1] == pytest.approx((1000, 5), abs=0.1)


@pytest.mark.parametrize("values", [[3.0, 3.0], [-1.7e308, 1.7e308], [5e-324, 0.0], [-0.0, 0.0]])
def test_extreme_ranges_are_drawn_within_the_lane(values):
    svg = timeline_svg(as_groups([traced(counted([100, 500], values))]))
    path = re.search(r'<path d="(M[^"]*V?[^"]*)" fill="none"', svg)[1]
    heights = [float(y) for y in re.findall(r"(?:M[\d.]+ |V)([\d.]+)", path)]
    assert max(heights) - min(heights) <= LINE
    assert "nan" not in svg
    assert "inf" not in svg


@pytest.mark.parametrize("spans", [ONE, TWO], ids=["one GPU", "two GPUs"])
def test_the_picture_has_a_lane_for_each_counter_under_the_host_and_a_line_for_each_marker(spans):
    marks = [(100, "epoch <1>"), (105, "hidden"), (700, "epoch 2")]
    trace = traced(counted([0, 500], [1.5, -0.25], Series("power", "W", gpu=0)), marks, spans)
    root = ET.fromstring(timeline_svg(as_groups([trace, traced(Counters(), (), spans)])))
    texts = {}
    for each in root.iter(f"{SVG}text"):
        texts.setdefault(each.text, float(each.get("y")))
    assert "−0.25 … 1.5" in texts
    assert texts["host"] < texts["markers"] < texts["loss"] < texts["GPU 0 power, W"]
    marked = [each for each in root.iter(f"{SVG}path") if each.get("class") == "marker"]
    titles = [each.find(f"{SVG}title").text for each in marked]
    assert titles == ["epoch <1>", "hidden", "epoch 2"]
    assert "epoch 2" in texts
    assert "hidden" in texts
    assert "epoch <1>" not in texts  # No room before the next one.
    lines = [re.fullmatch(r"M([\d.]+) ([\d.]+)V([\d.]+)", each.get("d")) for each in marked]
    assert [round((float(line[1]) - GUTTER) / AREA * 1000) for line in lines] == [100, 105, 700]
    assert sum(each.get("fill") == "none" for each in root.iter(f"{SVG}path")) == 2
    main = [float(each.get("y")) for each in root.iter(f"{SVG}text") if each.text == "main"]
    assert texts["GPU 0 power, W"] < max(main)


def test_a_trace_without_them_is_drawn_as_before():
    bare = timeline_svg(as_groups([traced(Counters())]))
    assert "marker" not in bare
    assert 'fill="none"' not in bare


def test_many_counters_and_values_keep_the_picture_small_and_what_is_left_out_is_said():
    rng, count = np.random.default_rng(0), 100_000
    described = tuple(Series(f"counter {number}") for number in range(9))
    counters = Counters(np.sort(rng.integers(0, 1000, count)), rng.integers(0, 9, count), rng.normal(size=count), described)
    svg = timeline_svg(as_groups([traced(counters, [(at, f"m{at}") for at in range(0, 1000, 2)])]))
    assert len(svg) <= MOST_BYTES
    assert "+ 3 counters" in svg
    assert "markers, 100 of 500" in svg


def test_a_trace_shows_its_counters_in_a_notebook_and_in_its_report(bundle, tmp_path):
    trace = traced(counted([0, 500], [1.5, -0.25]), [(100, "epoch 1")])
    assert "<summary" in trace._repr_html_()
    report = trace.report(tmp_path / "r.html").read_text(encoding="utf-8")
    for page in (trace._repr_html_(), report):
        assert re.search(r"loss</td>.*?>2</td>.*?>-0\.25</td>.*?>1\.5</td>.*?>-0\.25</td>", page, re.DOTALL)
    assert "<h2>Counters</h2>" in report
    assert '"label":"loss"' in report  # the live timeline draws it
    bare = traced(Counters()).report(tmp_path / "b.html").read_text(encoding="utf-8")
    assert "<h2>Counters</h2>" not in bare
    assert "Counters</summary>" not in traced(Counters())._repr_html_()
