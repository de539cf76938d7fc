"""What fills the memory, as HTML and in pictures of a trace."""

from __future__ import annotations

import re

import pytest

import streamscope as ss
from streamscope.trace import Allocation, Allocations, DeviceInfo, Site, SpanTable, Trace, TraceInfo
from streamscope_widgets.payload import as_groups
from streamscope_widgets.still_counters import LINE, drawn_counter, memory_lines
from streamscope_widgets.still_timeline import AREA, GUTTER, timeline_svg

ONE = SpanTable.of(("launch", "a", "host", 0, 100, 0), ("kernel", "a", "main", 100, 1000, 0))
TWO = SpanTable.of(("launch", "a", "host", 0, 100, 0), ("kernel", "a", "GPU 0 main", 100, 1000, 0), ("kernel", "b", "GPU 1 main", 100, 900),
                   gpus={"GPU 0 main": 0, "GPU 1 main": 1})  # fmt: skip
EVIL = Site("</td><script>f", "mo<del>.py", 12)
ROWS = [Allocation(1 << 20, kind="before the recording"), Allocation(3 << 20, 200, 600, site=EVIL), Allocation(1 << 20, 700, 800, gpu=1)]


def traced(rows=ROWS, spans=ONE):
    """Return a trace from 0 to 1,000 ns."""
    return Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")), memory=Allocations.of(rows))


def test_names_are_escaped_and_the_page_needs_nothing():
    page = ss.analysis.memory(traced())._repr_html_()
    assert "<script" not in page
    assert "&lt;/td&gt;&lt;script&gt;f" in page
    assert "http" not in re.sub(r'"data:image/svg[^"]*"', "", page)
    assert "To lower the peak by a tenth, 1 allocation would have to go" in page


def test_a_table_of_very_many_rows_stays_small():
    rows = [Allocation(1000 + at, 1, 5, site=Site(f"f{at}" * 50, "model.py" * 50, at)) for at in range(3000)]
    page = ss.analysis.memory(traced(rows))._repr_html_()
    assert len(page) < 200_000
    assert "2,925 more line" in page


def test_the_line_rises_from_nothing_and_its_peak_is_marked():
    (line,) = memory_lines(traced(ROWS[:2]), 0, AREA / 1000, AREA).values()
    assert (line.label, line.low, line.high, line.value.tolist()) == ("memory, MiB", 0.0, 4.0, [1.0, 4.0, 1.0])
    assert line.left / AREA * 1000 == pytest.approx([0, 200, 600])
    drawn = "".join(drawn_counter(line, GUTTER, 0, AREA, 1.0))
    place, height = re.search(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawn).groups()
    assert (float(place) - GUTTER) / AREA * 1000 == pytest.approx(200, abs=0.5)
    assert float(height) == 2
    assert "peak: 4.0 MiB at 0.200 µs" in drawn
    assert ">4.0 MiB</text>" in drawn
    assert f"V{2 + LINE * 0.75:.1f}" in drawn


def test_each_gpu_has_a_lane_under_its_streams_and_memory_that_does_not_change_has_none():
    found = memory_lines(traced(ROWS, TWO), 0, AREA / 1000, AREA)
    assert {gpu: line.high for gpu, line in found.items()} == {0: 4.0, 1: 1.0}
    assert memory_lines(traced(ROWS[:1]), 0, AREA / 1000, AREA) == {}
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", timeline_svg(as_groups([traced(ROWS, TWO)])))
    lanes = [text for text in texts if text in ("host", "main", "memory, MiB", "0 … 4", "GPU 0", "GPU 1")]
    assert lanes == ["host", "GPU 0", "main", "memory, MiB", "0 … 4", "GPU 1", "main", "memory, MiB", "0 … 4"]
    assert timeline_svg(as_groups([traced(ROWS[:1])])).count("memory") == 0


def test_a_report_and_the_page_of_a_trace_have_the_table(tmp_path):
    trace = traced()
    page = trace.report(tmp_path / "t.html").read_text()
    assert "<h2>What held the peak of the memory</h2>" in page
    assert '"label":"memory"' in page  # the live timeline draws it
    assert "<script>f" not in page
    assert "What held the peak of the memory" in trace._repr_html_()
    assert "first at 0.200 µs" in trace.report(tmp_path / "t.md").read_text()
    assert "peak of the memory" not in traced(()).report(tmp_path / "u.html").read_text()


def test_the_first_view_of_a_report_says_what_costs_most_and_what_fills_the_memory_and_no_sentence_stands_twice(tmp_path):
    function, inputs = ss.workload("branches").build()
    trace = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)["async"].trace
    page = trace.report(tmp_path / "t.html").read_text()
    first, below = page.split('<div id="timeline">')
    assert "<h2>Lines that cost most</h2>" in below
    for sentence in (r"[^<>]* costs most: [^<>]*\.</p>", r"[^<>]* holds at most [^<>]*\.</p>"):
        (said,) = re.findall(sentence, first)
        assert said not in below
    assert "names no line for any kernel" in traced().report(tmp_path / "u.html").read_text()
    assert "costs most" not in traced().report(tmp_path / "v.html").read_text()


def test_modules_of_one_class_are_one_row_that_opens():
    sites = [Site(module=f"ResNet.layer1.{block}.<b>") for block in (0, 1)]
    page = ss.analysis.memory(traced([Allocation(1 << 20, 200, 600, site=site) for site in sites]), "module")._repr_html_()
    shown, parts = page.split("2 single modules")
    assert "ResNet.layer1.*.&lt;b&gt;" in shown
    assert all(f"ResNet.layer1.{block}.&lt;b&gt;" in parts for block in (0, 1))
