"""Who compiled when, as a picture: its clock, where bars lie, and that it stays small."""

from __future__ import annotations

import itertools
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.kernels.compile.compilation_log import CompilationLog, CompileStage, StageTime
from streamscope_widgets.compilation_view import COLOURS, GUTTER, MARGIN, MOST_ROWS, WIDTH, BusyClock, workers_svg
from streamscope_widgets.show.svg import round_step

SVG = "{http://www.w3.org/2000/svg}"
MS = 1_000_000


def stage(start, end, lane="host", kind=CompileStage.COMPILE):
    return StageTime(kind, "k", lane, start, end)


def bars(svg):
    """Return row, left edge and width of each bar; the legend's squares are 10 high, a bar 12."""
    found = [each for each in ET.fromstring(svg).iter(f"{SVG}rect") if each.get("height") == "12"]
    return sorted((float(each.get("y")), float(each.get("x")), float(each.get("width"))) for each in found)


intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=12)


@given(intervals)
def test_its_clock_runs_while_something_is_done(found):
    stages = [stage(start, start + length) for start, length in found]
    clock = BusyClock(stages)
    ticks = sorted({tick for each in stages for tick in range(each.start_ns, each.end_ns)})
    assert clock.total_ns == len(ticks)
    log = CompilationLog()
    for each in stages:
        log.add_stage(each)
        for time in (each.start_ns, each.end_ns):
            assert clock.at(time) == sum(tick < time for tick in ticks)
    assert clock.total_ns == log.wall_ns


def test_bars_lie_where_they_should_by_hand():
    """100 ms, then a pause of a minute that is left out, then 100 ms on another lane."""
    found = bars(workers_svg([stage(0, 100 * MS), stage(60_000 * MS, 60_100 * MS, "worker 1")]))
    half = (WIDTH - GUTTER - MARGIN) / 2
    assert [each[1:] for each in found] == [pytest.approx((GUTTER, half), abs=0.1), pytest.approx((GUTTER + half, half), abs=0.1)]
    assert found[0][0] < found[1][0]


@given(intervals, st.integers(0, 200))
def test_no_bar_leaves_the_picture(found, axis):
    svg = workers_svg([stage(start, start + length, f"worker {number}") for number, (start, length) in enumerate(found)], axis)
    for _, left, width in bars(svg) if svg else []:
        assert left >= GUTTER
        assert left + width <= WIDTH - MARGIN + 0.7


def test_nothing_to_draw():
    assert workers_svg([]) == ""
    assert workers_svg([stage(5, 5)]) == ""


@pytest.mark.parametrize("total_ns", [1, 999, 10**6, 3 * 10**9, 10**13])
def test_its_axis_has_a_few_round_ticks(total_ns):
    texts = [each for each in ET.fromstring(workers_svg([stage(0, total_ns)])).iter(f"{SVG}text") if each.get("text-anchor") == "middle"]
    assert 4 <= len(texts) <= 10


@given(st.floats(1e-6, 1e9))
def test_steps_are_round(least):
    step = round_step(least)
    assert least * 0.99 <= step <= least * 2.6
    assert f"{step:e}"[0] in "125"


def test_it_is_small_and_says_whom_it_leaves_out():
    stages = [stage(n * MS, (n + 1) * MS, f"worker {n % 100 + 1}") for n in range(5000)]
    svg = workers_svg(stages)
    assert len(svg) < 120_000
    assert f"{100 - MOST_ROWS} more" in svg


def test_each_sort_of_stage_has_a_colour_of_its_own():
    assert set(COLOURS) == set(CompileStage)
    assert len(set(COLOURS.values())) == len(CompileStage)


def test_markup_in_a_lane_is_text():
    root = ET.fromstring(workers_svg([stage(0, 9, "<script>")]))
    assert "<script>" in [text.text for text in root.iter(f"{SVG}text")]
    assert not list(itertools.chain.from_iterable(root.iter(f"{SVG}{tag}") for tag in ("script", "image", "a")))
