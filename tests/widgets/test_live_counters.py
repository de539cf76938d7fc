"""Counters, markers and memory in the live timeline: what is sent, and what a reader sees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamscope.trace import Allocation, Allocations, Counters, Markers, Series
from streamscope.trace.memory import Level
from streamscope_widgets.details import details_of, thinned
from streamscope_widgets.payload import as_groups
from streamscope_widgets.report import answers, report
from streamscope_widgets.tile_questions import answer
from streamscope_widgets.timeline import TimelineWidget

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def trace(five_engines):
    counters = Counters([-5, 10, 30_000], [0, 0, 1], [2.5, -1.5, 70.0], (Series(HOSTILE), Series("power", "W", gpu=0)))
    held = [Allocation(1 << 20), Allocation(3 << 20, 20_000, 40_000), Allocation(8 << 20, level=Level.RESERVED)]
    found = five_engines(40)["async"]
    return replace(found, counters=counters, markers=Markers.of([(20_000, "epoch 2", "host")]), memory=Allocations.of(held))


def floats(block, spec, count):
    """Decode a column as ``decode_column.js`` does."""
    dtype = {"u8": "u1", "u16": "u2", "u32": "u4", "f64": "f8"}[spec["dtype"]]
    values = np.full(count, spec["constant"]) if "constant" in spec else np.frombuffer(block, f"<{dtype}", count, spec["offset"])
    return (np.cumsum(values.astype(float)) + spec["first"] if spec.get("delta") else values).tolist()


def test_lanes_have_their_values_units_and_range(trace):
    found = answer(None, as_groups([trace]), {"type": "counters"})
    (group,) = found.header["groups"]
    memory, loss, power = group["lanes"]
    lines = [
        [floats(found.block, line[name], line["count"]) for name in ("time", "value")]
        for lane in (memory, loss, power)
        for line in lane["lines"]
    ]
    assert lines == [
        [[1000, 20_000, 40_000], [1 << 20, 4 << 20, 1 << 20]], [[1000], [8 << 20]], [[-5, 10], [2.5, -1.5]], [[30_000], [70.0]],
    ]  # fmt: skip
    assert [(lane["label"], lane["unit"], lane["low"], lane["high"], lane["peak"]) for lane in group["lanes"]] == [
        ("memory", "B", 0.0, 8 << 20, 20_000), (HOSTILE, "", -1.5, 2.5, None), ("GPU 0 power, W", "W", 70.0, 70.0, None),
    ]  # fmt: skip
    assert [line["name"] for line in memory["lines"]] == ["allocated", "reserved"]
    markers = group["markers"]
    assert floats(found.block, markers["time"], markers["count"]) == [20_000]
    assert markers["texts"] == ["epoch 2", "host"]


def test_lines_of_memory_share_the_room_of_a_report(trace, monkeypatch):
    monkeypatch.setattr("streamscope_widgets.report.MOST_POINTS", 1_000)
    held = Allocations.of(Allocation(1 + n % 7, n, n + 5, gpu=n % 2) for n in range(5_000))
    found = answers(as_groups([replace(trace, memory=held)]))
    lanes = found.header["counters"]["groups"][0]["lanes"]
    assert 400 < sum(line["count"] for lane in lanes if lane["peak"] is not None for line in lane["lines"]) <= 1_000


def test_only_traces_that_count_have_lanes(trace, five_engines):
    plain = five_engines(4)["async"]
    assert details_of(as_groups([plain])) == []
    assert details_of(as_groups([replace(plain, memory=Allocations.of([Allocation(4)]))])) == []  # It does not change.
    assert details_of(as_groups([trace])) == ["counters"]
    assert TimelineWidget(as_groups([plain])).shows == ["overlap"]
    assert TimelineWidget(as_groups([trace])).shows == ["overlap", "counters"]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(-50, 50)), min_size=1, max_size=200), st.integers(8, 40))
def test_a_thinned_line_keeps_its_ends_and_its_range(points, most):
    times, values = (np.array(each) for each in zip(*sorted(points), strict=True))
    time, value = thinned(times, values, most)
    assert len(value) <= max(most, 4)
    assert set(zip(time.tolist(), value.tolist(), strict=True)) <= set(zip(times.tolist(), values.tolist(), strict=True))
    assert (time[0], value[0], time[-1], value[-1]) == (times[0], values[0], times[-1], values[-1])
    assert (value.min(), value.max()) == (values.min(), values.max())
    assert (np.diff(time) >= 0).all()


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_draws_them_under_the_streams(trace, tmp_path, browser, violations, bundle, scheme):
    page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
    page.goto(report([trace], tmp_path / "step.html", title="step").as_uri())
    lanes = page.locator(".ss-lanes canvas")
    lanes.wait_for()
    words = f"Counters under the streams: memory from 0 to 8.0 MiB; {HOSTILE} from −1.50 to 2.50; GPU 0 power, W from 70 to 70"
    assert lanes.get_attribute("aria-label") == words
    assert violations(page, ".ss-timeline") == []
    drawn = """() => { const { width, height } = document.querySelector('.ss-lanes canvas');
      const { data } = document.querySelector('.ss-lanes canvas').getContext('2d').getImageData(0, 0, width, height);
      return new Set(new Uint32Array(data.buffer)).size; }"""
    assert page.evaluate(drawn) > 20  # lines, names, areas
    lanes.hover(position={"x": 500, "y": 30})
    page.wait_for_function("() => document.querySelector('#timeline').timeline.cursor > 0")
    page.get_by_role("button", name="counters").click()
    lanes.wait_for(state="hidden")
    assert page.evaluate("document.querySelector('#timeline').timeline.state.shows") == ["overlap"]
    page.close()
