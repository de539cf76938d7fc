"""The report of a comparison: what it says, that it is whole, small and safe, and how it looks in a browser."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from streamscope.analysis.code import by_code
from streamscope.analysis.gpus import busiest_gpu
from streamscope.analysis.memory import memory
from streamscope.analysis.table import device_words
from streamscope.analysis.verdict import PLAIN_CALL
from streamscope.comparing.compare import compare
from streamscope.comparing.comparison import Comparison, Run, load_comparison
from streamscope.errors import OutputError
from streamscope.trace.info import DeviceInfo
from streamscope.trace.spans import SpanBuilder, SpanKind
from streamscope.words import time_text
from streamscope.workloads import WORKLOADS
from streamscope_widgets import comparison_view as module
from streamscope_widgets.comparison_view import comparison_report
from streamscope_widgets.payload import REPORT_BUNDLE, SECOND_BUNDLE, bundle_source

pytestmark = pytest.mark.usefixtures("bundle")
A4_ACROSS = 1032
"""Pixels between the margins of a page."""
HOSTILE = "</script><img src=x onerror=alert(1)><!--"


@pytest.fixture(scope="module")
def branches():
    """A workload whose kernels overlap under graph-dual."""
    program, inputs = WORKLOADS["branches"].build(length=4)
    return compare(program, *inputs, device="simulated", progress=False, name="branches")


class Reader(HTMLParser):
    """The text of a page's elements by tag, outside of scripts and styles."""

    def __init__(self, page):
        super().__init__()
        self.open, self.texts, self.tags = [], {}, []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        for tag in self.open:
            if not {"script", "style"} & set(self.open):
                self.texts.setdefault(tag, []).append(data)

    def text(self, tag):
        return " ".join(self.texts.get(tag, ()))


def written(comparison, tmp_path):
    path = comparison_report(comparison, tmp_path / "report.html")
    return path.read_text(encoding="utf-8")


def test_it_says_all_that_the_comparison_says(branches, tmp_path):
    page = written(branches, tmp_path)
    assert "<section></section>" not in page
    text = Reader(page).text("body")
    for sentence in re.split(r"(?<=\.) (?=[A-Z])", branches.verdict):
        assert sentence in text
    for line in branches.assessment.evidence:
        assert line in text
    for engine, run in branches.items():
        assert f"{time_text(run.metrics.makespan_us * 1e3)}, median of {run.metrics.repeats} without recording" in text, engine
    assert "device log" in text
    assert "python 3" in text
    assert "right: worst error" in text
    assert "WRONG" not in text


def test_the_answer_stands_before_the_timeline_and_the_rest_below(branches, tmp_path):
    page = written(branches, tmp_path)
    parts = ('class="verdict"', "<table>", 'id="timeline"', 'class="charts"', "Each operation", "Where the numbers")
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    lead = re.search(r'<p class="verdict">(.*?)</p>', page).group(1)
    assert lead.startswith(branches.assessment.bottleneck[0].upper())
    assert "Fastest: graph-dual." in lead


def test_lines_and_memory_of_the_fastest_engine_unfold(branches, tmp_path):
    text = Reader(written(branches, tmp_path)).text("details")
    assert "Which lines cost most, and what fills the memory, under graph-dual" in text
    assert memory(branches["graph-dual"].trace).answer in text
    assert by_code(branches["graph-dual"].trace).answer.partition(" (")[0] in text


def test_simulated_times_are_called_so_everywhere(branches, tmp_path):
    reader = Reader(written(branches, tmp_path))
    assert device_words(branches.device) in reader.text("h1")
    assert "Simulated times" in reader.text("p")
    axes = [text for text in reader.texts["text"] if text.startswith(("time, µs", "time with", "launch latency,", "speed-up"))]
    assert len(axes) == 4
    assert all(axis.endswith(", simulated") for axis in axes)


def test_measured_times_are_not(branches, tmp_path):
    device = DeviceInfo("cuda", "NVIDIA H200")
    runs = [
        replace(run, trace=replace(run.trace, info=replace(run.trace.info, device=device)), makespans_ns=np.repeat(run.makespans_ns, 10))
        for run in branches.values()
    ]
    page = written(Comparison("branches", device, runs), tmp_path)
    assert "imulated" not in Reader(page).text("body")


def test_wrong_results_come_first_and_loud(branches, tmp_path):
    runs = [replace(run, max_abs_error=5.0) if run.engine == "dual" else run for run in branches.values()]
    page = written(Comparison("branches", branches.device, runs), tmp_path)
    assert page.index('<p class="warning">RESULTS ARE WRONG under dual') < page.index('<p class="verdict">')
    assert "WRONG: worst error 5 against NumPy" in page


def test_of_captured_code_wrong_results_name_a_plain_call_not_numpy(branches, tmp_path):
    runs = [replace(run, max_abs_error=5.0) if run.engine == "dual" else run for run in branches.values()]
    captured = Comparison("branches", branches.device, runs, checked_against=PLAIN_CALL)
    captured.save(tmp_path / "saved")
    for comparison in (captured, load_comparison(tmp_path / "saved")):
        page = written(comparison, tmp_path)
        assert "WRONG: worst error 5 against a plain call" in page
        assert "NumPy" not in comparison.verdict + Reader(page).text("body")


def test_each_operation_has_its_time_under_every_engine(branches, tmp_path):
    page = written(branches, tmp_path)
    (table,) = re.findall(r"Each operation under every engine.*?<tbody>(.*?)</tbody>", page, re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", table)
    assert page.count('<div class="ss-sortable">') >= 3  # These, the metrics, and more of them.
    assert len(rows) == branches["sync"].metrics.kernel_count
    assert all(row.count("<td>") == 1 + len(branches) for row in rows)


def test_each_part_of_an_operation_has_the_names_of_its_own_kernels(make_trace, tmp_path, monkeypatch):
    builder = SpanBuilder(["host", "main"])
    builder.add(SpanKind.LAUNCH, "conv", "host", 0, 500, operation=0, correlation=0)
    kernels = [(0, "im2col<float>"), (1, "gemm_64x8"), (1, "splitk_sum"), (1, "gemm_64x8"), (2, "gemm_32x64")]
    for number, (part, symbol) in enumerate(kernels):
        joined = {"operation": 0, "part": part, "correlation": 0, "symbol": symbol}
        builder.add(SpanKind.KERNEL, "conv", "main", 1000 * (number + 1), 1000 * (number + 1) + 900, **joined)
    real, calls = module._symbols, []
    monkeypatch.setattr(module, "_symbols", lambda trace: calls.append(trace) or real(trace))
    page = written(comparison_of(make_trace, [("sync", builder.build())]), tmp_path)
    found = re.findall(r'<span title="([^"]*)">(0[^<]*)</span>', page)
    assert found == [("im2col&lt;float&gt;", "0 conv"), ("gemm_64x8\nsplitk_sum", "0.1 conv"), ("gemm_32x64", "0.2 conv")]
    assert len(calls) == 1  # not once a row


def hindered(name="slow", count=3):
    """Two engines with ``count`` operations, of 2 µs under the first and of 3 µs under the second."""

    def run(engine, duration_ns):
        builder = SpanBuilder(["host", "main"])
        for operation in range(count):
            start = operation * 10_000
            builder.add(SpanKind.LAUNCH, name, "host", start, start + 1000, operation=operation, correlation=operation)
            builder.add(
                SpanKind.KERNEL,
                name,
                "main",
                start + 2000,
                start + 2000 + duration_ns + operation,
                operation=operation,
                correlation=operation,
            )
        return engine, builder.build()

    return [run("sync", 2000), run("dual", 3000)]


def comparison_of(make_trace, parts, program="p"):
    runs = [
        Run(engine, np.full(8, float(spans.end_ns.max())), float("nan"), float("nan"), make_trace(engine, spans, program=program))
        for engine, spans in parts
    ]
    return Comparison(program, runs[0].trace.info.device, runs)


def test_what_neighbours_cost_is_marked(make_trace, tmp_path):
    page = written(comparison_of(make_trace, hindered()), tmp_path)
    assert page.count('<span class="hindered">(1.50×)</span>') == 3
    assert "In brackets: how much longer than under sync" in page
    assert "In brackets" not in written(comparison_of(make_trace, hindered()[:1]), tmp_path)


def test_the_first_view_says_whether_communication_hides_and_of_which_gpu_it_speaks(tmp_path):
    program, inputs = WORKLOADS["data-parallel"].build(layers=4, width=512, rows=512)
    runs = compare(program, *inputs, engines="graph-dual", device="simulated", progress=False)
    page = written(runs, tmp_path)
    first = page.index("<table")
    gpu = busiest_gpu(runs["graph-dual"].trace)
    answer = f"Does communication on GPU {gpu} hide? {runs.assessment.hidden}"
    assert answer in runs.verdict
    for words in (answer, f"Communication on GPU {gpu} takes ", f"Metrics of one GPU are of GPU {gpu}"):
        assert page.index(words) < first


def test_only_the_longest_operations_are_kept(make_trace, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_OPERATIONS", 4)
    page = written(comparison_of(make_trace, hindered(count=9)), tmp_path)
    assert "The 4 longest of 9, in the order of the program." in page
    assert re.findall(r"<td>(\d) slow</td>", page) == ["5", "6", "7", "8"]


def test_names_cannot_leave_their_place(make_trace, tmp_path):
    page = written(comparison_of(make_trace, hindered(HOSTILE), program=HOSTILE), tmp_path)
    tags = [tag for tag, _ in Reader(page).tags]
    assert "img" not in tags
    assert "<!--" not in page
    assert tags.count("script") == 3


def test_it_stays_small_and_asks_nobody_for_anything(branches, tmp_path):
    program, inputs = WORKLOADS["elementwise-chain"].build(length=3000, size=16)
    large = compare(program, *inputs, device="simulated", progress=False, engines="async,graph")
    path = comparison_report(large, tmp_path / "large.html")
    assert path.stat().st_size < 1_000_000
    small = comparison_report(branches, tmp_path / "small.html")
    drawing = sum(len(bundle_source(bundle).encode()) for bundle in (REPORT_BUNDLE, SECOND_BUNDLE))
    assert small.stat().st_size - drawing < 80_000  # what draws it has a bound of its own
    reader = Reader(small.read_text(encoding="utf-8"))
    assert [tag for tag, attributes in reader.tags if {"src", "href"} & set(dict(attributes))] == []


def test_it_is_whole_or_not_there(branches, tmp_path):
    with pytest.raises(OutputError, match="cannot write"):
        comparison_report(branches, tmp_path / "none" / "report.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 800])
def test_in_a_browser(branches, tmp_path, open_page, width, scheme):
    path = comparison_report(branches, tmp_path / "report.html")
    page = open_page(path, viewport={"width": width, "height": 1000}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".verdict").bounding_box()["y"] < 120
    assert page.locator("#timeline").bounding_box()["y"] < 760
    boxes = [box.bounding_box() for box in page.locator("svg.chart").all()]
    assert len(boxes) == 4
    assert (boxes[0]["y"] == boxes[1]["y"]) == (width == 1400)
    # No text of a chart is cut off at its edge.
    assert page.evaluate("""[...document.querySelectorAll("svg.chart")].every((chart) => {
      const edge = chart.getBoundingClientRect();
      return [...chart.querySelectorAll("text")].every((text) => {
        const box = text.getBoundingClientRect();
        return box.left >= edge.left - 1 && box.right <= edge.right + 1;
      });
    })""")
    page.locator("summary", has_text="What this rests on").click()
    assert page.locator("li", has_text="async:").first.is_visible()


@pytest.mark.browser
def test_the_report_of_the_demo_prints_on_five_pages_with_nothing_cut_off(tmp_path, open_page):
    program, inputs = WORKLOADS["elementwise-chain"].build()
    demo = compare(program, *inputs, device="simulated", progress=False, name="elementwise-chain")
    page = open_page(comparison_report(demo, tmp_path / "report.html"))
    printed = page.pdf(prefer_css_page_size=True)
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 5
    page.set_viewport_size({"width": A4_ACROSS, "height": 700})
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= A4_ACROSS
    assert page.evaluate("[...document.querySelectorAll('table')].every((table) => table.getBoundingClientRect().right <= innerWidth)")


@pytest.mark.browser
def test_the_table_fits_a_narrow_window_and_the_rest_unfolds(branches, tmp_path, open_page):
    page = open_page(comparison_report(branches, tmp_path / "report.html"), viewport={"width": 760, "height": 900})
    table = page.locator("section table").first.bounding_box()
    assert table["x"] + table["width"] <= 760
    more = page.locator("th", has_text="launch latency")
    assert not more.is_visible()
    page.locator("summary", has_text="More numbers").click()
    assert more.is_visible()
