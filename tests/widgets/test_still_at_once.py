"""The lane "at once" of the still picture: as the analysis has it, in the colours of the charts."""

from __future__ import annotations

import re

import pytest

from streamscope.trace import DeviceInfo, SpanBuilder, SpanKind, TimelineGroup, Trace, TraceInfo
from streamscope.words import time_text
from streamscope_widgets.show import palette
from streamscope_widgets.still_timeline import GUTTER, MARGIN, WIDTH, timeline_svg

SCALE = (WIDTH - GUTTER - MARGIN) / 1000


def traced(*rows, device="cuda"):
    builder = SpanBuilder(["host", "main", "aux", "copy in"])
    for kind, lane, start_ns, end_ns in rows:
        builder.add(kind, "work", lane, start_ns, end_ns)
    return Trace(builder.build(), TraceInfo("dual", "p", DeviceInfo(device, "card")))


def bars(svg, colour):
    """Left edge and width of each bar of a colour, in the lane's own times."""
    found = []
    for path in re.findall(rf'<path stroke="{colour}"[^>]* d="([^"]+)"', svg):
        x = float(re.match(r"M([\d.]+) ", path)[1])
        for gap, width in re.findall(r"m([-\d.]+) 0h([\d.]+)", path):
            x += float(gap)
            found.append((round((x - GUTTER) / SCALE), round(float(width) / SCALE)))
            x += float(width)
    return sorted(found)


@pytest.fixture
def svg():
    trace = traced(
        (SpanKind.LAUNCH, "host", 0, 50), (SpanKind.KERNEL, "main", 100, 500), (SpanKind.KERNEL, "aux", 300, 700),
        (SpanKind.COPY, "copy in", 600, 800), (SpanKind.HOST, "host", 850, 900), (SpanKind.SYNC, "host", 900, 1000),
    )  # fmt: skip
    return timeline_svg([TimelineGroup(trace, makespan_ns=600.0)])


@pytest.mark.parametrize(
    ("colour", "wanted"),
    [
        (palette.OVERLAPPED, [(300, 200)]),
        (palette.BUSY, [(100, 200), (500, 100), (600, 100)]),
        (palette.COPY, [(600, 100), (700, 100)]),
        (palette.OTHER_IDLE, [(0, 850), (900, 100)]),  # under what runs meanwhile
    ],
)
def test_each_stretch_has_its_colour(svg, colour, wanted):
    assert [(start, pytest.approx(width, abs=2)) for start, width in bars(svg, colour)] == wanted


def test_idle_time_of_one_cause_is_one_line_under_what_runs():
    rows = [(SpanKind.KERNEL, "main", start, start + 50) for start in range(100, 1000, 100)]
    lines = bars(timeline_svg([TimelineGroup(traced(*rows, (SpanKind.SYNC, "host", 0, 1000)))]), palette.OTHER_IDLE)
    assert len(lines) == 1


def test_the_legend_tells_what_occurs(svg):
    for words in ("at once", "two or more kernels", "idle: host function", "idle: other"):
        assert f">{words}<" in svg
    assert "idle: kernel wait" not in svg


def test_a_gap_is_drawn_in_the_colours_of_its_causes():
    """A kernel of 300 to 400 that was called at 200, and takes 100 on its way: the host is waited for until then."""
    builder = SpanBuilder(["host", "main"])
    for number, called in enumerate((0, 200)):
        builder.add(SpanKind.LAUNCH, "launch", "host", called, called + 50, correlation=number)
        builder.add(SpanKind.KERNEL, "k", "main", called + 100, called + 150, correlation=number)
    builder.add(SpanKind.SYNC, "wait", "host", 250, 400)
    svg = timeline_svg([TimelineGroup(Trace(builder.build(), TraceInfo("async", "p", DeviceInfo("cuda", "card"))))])
    zoom = 400 / 1000  # `bars` tells thousandths of the picture.
    wanted = {palette.LAUNCH: [(0, 100), (200, 100)], palette.HOST_WAIT: [(150, 50)], palette.OTHER_IDLE: [(350, 50)]}
    for colour, stretches in wanted.items():
        found = [(start * zoom, width * zoom) for start, width in bars(svg, colour)]
        assert found == [(pytest.approx(start, abs=2), pytest.approx(width, abs=2)) for start, width in stretches]
    assert all(f">idle: {words}<" in svg for words in ("launch", "host wait", "other"))


def test_both_lengths_are_told_where_recording_stretched_the_run(svg):
    assert f"{time_text(600)} without recording; recording stretched this picture to {time_text(1000)}" in svg


def test_threads_that_compile_have_no_such_lane():
    svg = timeline_svg([TimelineGroup(traced((SpanKind.COMPILE, "host", 0, 1000)))])
    assert "at once" not in svg


def test_the_still_says_how_engines_compare_and_a_long_label_leaves_room(five_engines):
    traces = five_engines(20)
    groups = [
        TimelineGroup(traces["async"], 1000.0, comparison=""),
        TimelineGroup(traces["graph"], 500.0, label="graph-dual · run 2", comparison="2.0× faster (against async)"),
    ]
    svg = timeline_svg(groups)
    assert f"{time_text(500)} without recording; 2.0× faster (against async)" in svg
    at = {text: float(x) for x, text in re.findall(r'<text x="([\d.]+)"[^>]*>([^<]*)</text>', svg)}
    label, words = "graph-dual · run 2", next(text for text in at if "faster" in text)
    assert at[words] > at[label] + 7 * len(label)
