"""The chart and the table of a sweep."""

from __future__ import annotations

from dataclasses import replace
from math import log10
from xml.etree import ElementTree as ET

import pytest

import streamscope as ss
from streamscope.comparing.swept import Failure, Point, Sweep
from streamscope.errors import TraceError
from streamscope_widgets import sweep_view
from streamscope_widgets.show.still_chart import plane_svg
from streamscope_widgets.sweep_view import MOST_PANELS, makespans, speedups, sweep_html

HOSTILE = "<script>alert('x')</script>"


def point(settings, simulated=True, **times_us):
    """A point whose engines took so long."""
    engines = {engine: {"makespan_us": dict.fromkeys(("median", "low", "high"), time_us)} for engine, time_us in times_us.items()}
    device = {"kind": "simulated" if simulated else "cuda", "name": "simulated GPU" if simulated else "GPU"}
    fastest = min(times_us, key=times_us.__getitem__)
    return Point(settings, comparison={"engines": engines, "device": device}, fastest=(fastest,))


def failed(settings, message="it broke"):
    return Point(settings, failure=Failure("ValueError", message))


SWEEP = Sweep("s", tuple(point({"size": size, "branches": branches}, a=size / 10 * branches, b=size / 40)
                         for size in (1000, 10, 100) for branches in (1, 2)))  # fmt: skip


def lines(chart, panel=0):
    return {line.words: (line.x.tolist(), line.y.tolist()) for line in chart.panels[panel].lines}


def test_a_line_for_each_engine_over_the_first_setting_and_a_panel_for_each_choice_of_the_others():
    chart = makespans(SWEEP)
    assert [panel.title for panel in chart.panels] == ["branches=1", "branches=2"]
    assert lines(chart)["a"] == (pytest.approx([1, 2, 3]), pytest.approx([0, 1, 2]))
    assert lines(chart, 1)["a"] == (pytest.approx([1, 2, 3]), pytest.approx([log10(2), 1 + log10(2), 2 + log10(2)]))
    assert lines(chart)["b"] == lines(chart, 1)["b"]
    assert [name for name, _ in chart.legend] == ["a", "b"]
    assert len({colour for _, colour in chart.legend}) == 2
    axes = {(panel.x, panel.y) for panel in chart.panels}
    ((x, y),) = axes
    assert [label for _, label in x.ticks] == ["10", "100", "1,000"]
    assert y.title == "makespan, µs, simulated"
    assert all(place == pytest.approx(log10(float(label))) for place, label in y.ticks)
    assert all(y.low < place < y.high for panel in chart.panels for line in panel.lines for place in line.y)


def test_speed_ups_are_against_the_plainest_engine():
    found = ss.sweep("branches", {"branches": [1, 2, 4]}, size=16, length=2, engines="sync,graph,async", device="simulated", progress=False)
    chart = speedups(found)
    assert "speed-up against async" in chart.panels[0].y.title
    assert lines(chart)["async"][1] == [0, 0, 0]
    ratios = [each.makespan_us("async") / each.makespan_us("graph") for each in found.points]
    assert lines(chart)["graph"][1] == pytest.approx([log10(ratio) for ratio in ratios])


def test_values_that_are_no_numbers_stand_side_by_side_and_gaps_are_left():
    found = Sweep("s", (point({"dtype": "float16"}, a=1), failed({"dtype": "int8"}), point({"dtype": "float64"}, a=4, b=2)))
    chart = makespans(found)
    assert lines(chart) == {"a": ([0, 2], [0, pytest.approx(log10(4))]), "b": ([2], [pytest.approx(log10(2))])}
    assert [label for _, label in chart.panels[0].x.ticks] == ["float16", "int8", "float64"]


def test_a_number_that_is_written_twice_has_two_points_at_one_place():
    found = Sweep("s", (point({"scale": 1}, a=1), point({"scale": 1.0}, a=2), point({"scale": 2}, a=4)))
    assert lines(makespans(found))["a"][0] == [1, 1, 2]


def test_a_choice_at_which_all_points_failed_has_no_panel():
    found = Sweep("s", (point({"n": 1, "m": 2}, a=1), failed({"n": 1, "m": 3}), point({"n": 2, "m": 2}, a=1), failed({"n": 2, "m": 3})))
    assert [panel.title for panel in makespans(found).panels] == ["m=2"]


def test_long_times_have_another_unit_and_measured_ones_do_not_say_simulated():
    chart = makespans(Sweep("s", (point({"n": 1}, simulated=False, a=2000), point({"n": 2}, simulated=False, a=4000))))
    assert chart.panels[0].y.title == "makespan, ms"
    assert lines(chart)["a"] == ([1, 2], pytest.approx([log10(2), log10(4)]))


def test_of_many_choices_some_are_drawn_and_the_others_counted():
    found = Sweep("s", tuple(point({"n": n, "m": m}, a=1 + n) for n in (1, 2) for m in range(9)))
    chart = makespans(found)
    assert len(chart.panels) == MOST_PANELS
    assert "not shown: 3 more choices of m" in chart.below
    root = ET.fromstring(plane_svg(chart))
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == MOST_PANELS


def test_panels_lie_inside_the_picture_and_not_on_each_other():
    root = ET.fromstring(plane_svg(makespans(Sweep("s", tuple(point({"n": n, "m": m}, a=1 + n) for n in (1, 2) for m in range(5))))))
    height = float(root.get("height"))
    rules = list(root.iter("{http://www.w3.org/2000/svg}line"))
    tops = sorted({float(line.get("y1")) for line in rules})
    assert 0 < tops[0] < tops[-1] < height
    assert len({(line.get("x1"), line.get("y1")) for line in rules}) == len(rules)


@pytest.mark.parametrize("chart", [makespans, speedups])
def test_where_all_failed_or_are_wrong_there_is_nothing_to_draw(chart):
    found = Sweep("s", (failed({"n": 1}), replace(point({"n": 2}, a=1), wrong=("a",), fastest=())))
    with pytest.raises(TraceError, match="nothing to draw"):
        chart(found)
    assert "it broke" in sweep_html(found)
    assert "wrong results" in sweep_html(found)
    assert "data:image" not in sweep_html(found)


def test_html_escapes_names_and_stays_small():
    found = Sweep(HOSTILE, (point({HOSTILE: HOSTILE, "n": 1}, a=1), failed({HOSTILE: HOSTILE}, HOSTILE)))
    html = sweep_html(found)
    assert "<script" not in html
    engines = {f"engine{number}": 1 + number for number in range(8)}
    failures = (failed({"n": n, "m": 30}, f"{n} {'why & ' * 400}") for n in range(100))
    many = Sweep("s", (*(point({"n": n, "m": m}, **engines) for n in range(60) for m in range(7)), *failures))
    html = sweep_html(many)
    assert len(html) < 200_000
    assert "another 455 are not listed" in html
    assert "one point in 2 is drawn" in makespans(many).below
    assert sweep_view.sweep_html(found) == found._repr_html_()
