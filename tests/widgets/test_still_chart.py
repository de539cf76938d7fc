"""Charts as SVG: their numbers, words and colours, to scale."""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope_widgets.show import palette
from streamscope_widgets.show.chart import CHARACTER, Axis, Bars, Boxes, Dots, Note, RowChart
from streamscope_widgets.show.still_chart import MOST_TICKS, WIDTH, row_svg
from streamscope_widgets.show.svg import tick_text, ticks

HOSTILE = "<script>alert('x')</script> & \"quoted\""


def bars(lengths, title="time, µs", more=()):
    """A chart of two stretches a row."""
    series = [
        Bars(name, colour, "#ffffff", [pair[column] for pair in lengths.values()], [f"{pair[column]}" for pair in lengths.values()], "µs")
        for name, colour, column in (("busy", palette.BUSY, 0), ("idle", palette.HOST_WAIT, 1))
    ]
    return RowChart("Where it goes", Axis(title, 0, 100), tuple(lengths), (*series, *more))


def drawn(chart):
    return ET.fromstring(row_svg(chart))


def texts(root):
    return [element.text for element in root.iter("text")]


def rectangles(root, colour):
    """Rectangles of a colour in rows, without the legend's square: x and width."""
    found = [r for r in root.iter("rect") if r.get("fill") == colour]
    return [(float(r.get("x")), float(r.get("width"))) for r in found[1:]]


def test_bars_are_stacked_and_to_scale():
    root = drawn(bars({"async": (20, 60), "graph": (20, 5)}))
    (x1, w1), (x2, w2) = rectangles(root, palette.BUSY)
    (x3, w3), (x4, w4) = rectangles(root, palette.HOST_WAIT)
    assert x1 == x2
    assert w1 == w2
    assert (x3, x4) == pytest.approx((x1 + w1, x2 + w2), abs=0.11)
    assert w3 == pytest.approx(3 * w1, abs=0.3)
    assert w4 == pytest.approx(w1 / 4, abs=0.2)
    assert {"Where it goes", "time, µs", "async", "graph", "busy", "idle", "60"} <= set(texts(root))


@given(
    words=st.lists(st.text("abc ", max_size=50), min_size=1, max_size=4),
    value=st.floats(0.1, 4),
    outside=st.booleans(),
    name=st.integers(1, 20),
)
def test_words_beside_marks_end_inside_the_picture(words, value, outside, name):
    rows = tuple(f"{number}" * name for number in range(len(words)))
    each = [value] * len(rows)
    series = Bars("", "#111111", "#222222", each, words, "%", outside=True) if outside else Dots(each, each, each, ["#111111"] * len(rows))
    notes = () if outside else tuple(Note(value, row, told, 10) for row, told in zip(rows, words, strict=True))
    root = drawn(RowChart("t", Axis("speed-up", 0, 4), rows, (series,), notes))
    for element in root.iter("text"):
        if element.text in words and element.get("text-anchor") is None and float(element.get("y")) > 20:
            assert float(element.get("x")) + CHARACTER * len(element.text) <= WIDTH


def test_points_with_their_intervals():
    dots = Dots([1.0, 3.0], [1.0, 2.5], [1.0, 4.0], ["#111111", "#222222"])
    root = drawn(RowChart("t", Axis("speed-up", 0, 4), ("a", "b"), (dots,), (Note(4, "b", "3.0× faster", 10),), rule=1))
    first, second = (float(circle.get("cx")) for circle in root.iter("circle"))
    unit = (second - first) / 2
    thick = [line for line in root.iter("line") if "stroke-width" in line.attrib]
    bar = max(thick, key=lambda line: float(line.get("x2")) - float(line.get("x1")))
    assert float(bar.get("x1")) == pytest.approx(second - 0.5 * unit, abs=0.2)
    assert float(bar.get("x2")) == pytest.approx(second + unit, abs=0.2)
    (rule,) = (line for line in root.iter("line") if "stroke-dasharray" in line.attrib)
    assert float(rule.get("x1")) == first
    assert "3.0× faster" in texts(root)


def test_boxes_show_their_quantiles():
    root = drawn(RowChart("t", Axis("x", 0, 10), ("a",), (Boxes([1], [2], [4], [6], [10]),)))
    (rectangle,) = root.iter("rect")
    unit = float(rectangle.get("width")) / 4
    (median,) = (line for line in root.iter("line") if line.get("stroke-width") == "2.5")
    assert float(median.get("x1")) == pytest.approx(float(rectangle.get("x")) + 2 * unit, abs=0.2)


def test_words_cannot_leave_their_place():
    root = drawn(bars({HOSTILE: (1, 2)}, title=HOSTILE))
    assert HOSTILE in texts(root)
    assert not list(root.iter("script"))


def test_a_legend_that_is_too_long_takes_another_row():
    more = [Bars(f"a long name, number {number}", palette.COPY, "#ffffff", [1], [""], "µs") for number in range(8)]
    root = drawn(bars({"a": (1, 2)}, more=more))
    places = [(float(t.get("x")), float(t.get("y"))) for t in root.iter("text") if "number" in t.text]
    assert len({y for _, y in places}) > 1
    assert max(x for x, _ in places) < WIDTH - 100


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_round_few_and_inside(low, extent):
    high = low + extent
    marks = ticks(low, high, MOST_TICKS)
    assert len(marks) <= 7
    assert all(low - 1e-6 * extent <= mark <= high + 1e-6 * extent for mark in marks)
    if len(marks) > 1:
        step = marks[1] - marks[0]
        mantissa = step / 10 ** math.floor(math.log10(step) + 1e-6)
        assert min(abs(mantissa - nice) for nice in (1, 2, 5, 10)) < 1e-3
        assert extent / step <= 6.001


def test_a_tick_is_told_without_an_exponent_and_without_what_the_computer_adds():
    assert [tick_text(value) for value in (0, 0.1 + 0.2, 1500, 3_600_000, -2e6)] == ["0", "0.3", "1,500", "3,600,000", "-2,000,000"]
