"""A trace as a cell's result, whoever recorded it: several threads, nested ranges, names of kernels, thousands of streams."""

from __future__ import annotations

import base64
import json
import re
from html import escape
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.analysis.summary import summary
from streamscope.formats.read import read
from streamscope.trace import DeviceInfo, SpanBuilder, SpanKind, SpanTable, TimelineGroup, Trace, TraceInfo
from streamscope.trace.spans import COLUMN_DTYPES
from streamscope_widgets import tiles, trace_view
from streamscope_widgets.payload import as_groups, encode
from streamscope_widgets.show.html import Column, Row, table
from streamscope_widgets.still_lanes import MOST_DEPTH, MOST_STREAMS, MOST_THREADS
from streamscope_widgets.still_timeline import MOST_BYTES, timeline_svg
from streamscope_widgets.trace_view import finding_of

SVG = "{http://www.w3.org/2000/svg}"
H200 = DeviceInfo("cuda", "NVIDIA H200")
SYMBOL = "void at::native::vectorized_elementwise_kernel<4, launch_clamp_scalar>(int)"
HOSTILE = "<img src=x onerror=alert(1)>"


def any_trace(*, device=H200, recorder="kineto", notes=(), program="resnet50", name="clamp"):
    """A call, the ranges that hold it, and the two kernels of its launch."""
    builder = SpanBuilder(["thread 12", "thread 12 ranges", "stream 7"])
    builder.add(SpanKind.RANGE, "aten::relu", "thread 12 ranges", 0, 9_000)
    builder.add(SpanKind.RANGE, "aten::clamp", "thread 12 ranges", 1_000, 8_000)
    builder.add(SpanKind.API, "cudaMalloc", "thread 12", 0, 1_500)
    builder.add(SpanKind.LAUNCH, "cudaLaunchKernel", "thread 12", 2_000, 6_000, correlation=9)
    builder.add(SpanKind.KERNEL, name, "stream 7", 8_000, 18_000, correlation=9, symbol=SYMBOL, graph_node=2**40)
    builder.add(SpanKind.KERNEL, "splitK", "stream 7", 18_000, 20_000, correlation=9)
    builder.add(SpanKind.SET, "Memset", "stream 7", 22_000, 24_000)
    info = TraceInfo("kineto", program, device, recorder, notes=notes, versions={}, created="2026-01-02T03:04:05+00:00")
    return Trace(builder.build(), info)


def on_lanes(count, kind=SpanKind.KERNEL, name="stream"):
    """One span on each of ``count`` lanes, and another on the last one."""
    lanes = np.append(np.arange(count), count - 1)
    start_ns = np.arange(count + 1) * 10
    filled = {"kind": np.full(count + 1, kind), "lane": lanes, "start_ns": start_ns, "end_ns": start_ns + 8}
    none = {column: np.full(count + 1, -1) for column in ("operation", "correlation", "symbol", "graph_node")}
    columns = {column: filled.get(column, none.get(column, np.zeros(count + 1))).astype(dtype) for column, dtype in COLUMN_DTYPES.items()}
    table = SpanTable(**columns, names=("k",), lanes=tuple(f"{name} {number}" for number in range(count)))
    return Trace(table, TraceInfo("kineto", "wide", H200, "kineto", versions={}))


def texts(svg):
    return [element.text for element in ET.fromstring(svg).iter(f"{SVG}text")]


def picture_of(html):
    return base64.b64decode(re.search('base64,([^"]*)', html)[1]).decode()


def test_a_cell_shows_what_was_found_the_warnings_and_a_picture():
    html = any_trace(notes=("31 kernels of GPU 1 are left out",))._repr_html_()
    assert "resnet50 · kineto · NVIDIA H200" in html
    assert "31 kernels of GPU 1 are left out" in html
    found = texts(picture_of(html))
    assert {"resnet50", "thread 12", "ranges", "stream 7", "range", "other call"} <= set(found)
    assert "imulated" not in html
    assert len(html) < 200_000


def test_the_numbers_are_those_of_the_summary():
    trace = any_trace()
    html = trace._repr_html_()
    for label, value, meaning in summary(trace).rows():
        told = (f">{escape(label)}<", f">{escape(value)}<", escape(meaning))
        assert [part for part in told if part not in html] == []
    assert re.search(">stream 7</td><td[^>]*>2</td><td[^>]*>12.0</td><td[^>]*>2.00</td>", html)


def test_what_the_device_waits_for_most_is_said_first():
    builder = SpanBuilder(["host", "main"])
    for number in range(4):  # each call begins after the kernel before it has ended
        builder.add(SpanKind.LAUNCH, "a", "host", number * 100_000, number * 100_000 + 3_000, correlation=number)
        builder.add(SpanKind.KERNEL, "a", "main", number * 100_000 + 5_000, number * 100_000 + 25_000, correlation=number)
    trace = Trace(builder.build(), TraceInfo("recorded", "step", H200, "cupti"))
    assert finding_of(trace) == "The GPU is busy 25 % of 325 µs, with 4 kernels. It waits for the host 69 % of the time."


def test_where_no_launch_call_tells_why_the_device_waits_the_sentence_says_so():
    trace = Trace.from_spans([("a", 1, 0, 1_000), ("b", 1, 3_000, 4_000)])
    told = "It is idle, and the trace does not tell why, 50 % of the time."
    assert finding_of(trace) == f"The GPU is busy 50 % of 4.00 µs, with 2 kernels. {told}"


def test_in_text_a_trace_is_one_line():
    said = repr(any_trace(program="x" * 100_000))
    assert len(said) < 200
    assert "7 spans" in said


def test_ranges_lie_below_those_that_hold_them():
    heights = [
        float(y) for y in re.findall(r'stroke="#[0-9a-f]+" stroke-width="12" d="M116 ([\d.]+)', timeline_svg(as_groups([any_trace()])))
    ]
    assert len(set(heights)) == 4  # calls, two depths of ranges, the stream


def test_of_deep_ranges_the_picture_shows_the_outer_ones():
    builder = SpanBuilder(["thread 1", "thread 1 ranges"])
    for depth in range(30):
        builder.add(SpanKind.RANGE, f"r{depth}", "thread 1 ranges", depth, 1_000 - depth)
    svg = timeline_svg(as_groups([Trace(builder.build(), TraceInfo("kineto", "deep", H200))]))
    assert svg.count('stroke-width="12"') == MOST_DEPTH


@pytest.mark.parametrize(
    ("kind", "name", "most", "words"),
    [(SpanKind.KERNEL, "stream", MOST_STREAMS, "streams"), (SpanKind.API, "thread", MOST_THREADS, "lanes")],
)
def test_ten_thousand_lanes(kind, name, most, words):
    trace = on_lanes(10_000, kind, name)
    svg = timeline_svg(as_groups([trace]))
    assert len(svg) < MOST_BYTES
    found = texts(svg)
    assert f"+ {10_000 - most:,} {words}" in found
    assert f"{name} 9999" in found  # the only one with two spans
    assert sum(str(text).startswith(name) for text in found) == most
    header = encode(as_groups([trace])).header
    assert len(header["groups"][0]["lanes"]) == 10_000


def test_names_that_nobody_could_read_are_cut():
    long = "k" * 100_000
    trace = any_trace(name=long, program=long)
    payload = encode(as_groups([trace]))
    assert len(json.dumps(payload.header)) < 30_000
    assert len(trace._repr_html_()) < 200_000
    assert max(map(len, map(str, texts(timeline_svg(as_groups([trace])))))) < 60


def test_long_names_break_between_their_parts():
    name = "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32"
    page = table([Column("name", kind="prose"), Column("code", kind="text")], [Row((f"a <b> of {name}, short_one", name))])
    broken = "sm90_<wbr>xmma_<wbr>fprop_<wbr>implicit_<wbr>gemm_<wbr>f16f16_<wbr>f16f32"
    assert f">a &lt;b&gt; of {broken}, short_one</td>" in page
    assert f">{name}</td>" in page


def test_kernels_that_differ_at_the_end_of_their_names_are_told_apart(repository):
    """Both begin with the same 80 letters."""
    trace = ss.read(repository / "tests/data/kineto/streams_graph.json.gz")
    shown = trace._repr_html_().replace("<wbr>", "")
    names = [kernel.name for kernel in ss.analysis.summary(trace).kernels if kernel.name.startswith("sm80")]
    assert len({name[:80] for name in names}) == 1 < len(names)
    assert all(f">{name}</td>" in shown for name in names)


def test_names_are_text_and_no_markup():
    html = any_trace(name=HOSTILE, program=HOSTILE, notes=(HOSTILE,))._repr_html_()
    assert "<img src=x" not in html
    assert HOSTILE in texts(picture_of(html))


@given(st.lists(st.sampled_from([-1, 0, 1, 2**31, 2**40 + 3, 2**52]), min_size=1, max_size=6), st.data())
def test_symbols_and_graph_nodes_arrive(nodes, data):
    symbols = [data.draw(st.sampled_from(["", "k", "long_kernel", "other_kernel"])) for _ in nodes]
    builder = SpanBuilder(["stream 7"])
    for number, (node, symbol) in enumerate(zip(nodes, symbols, strict=True)):
        builder.add(SpanKind.KERNEL, "k", "stream 7", 10 * number, 10 * number + 5, symbol=symbol, graph_node=node)
    trace = Trace(builder.build(), TraceInfo("kineto", "step", H200))
    payload = encode(as_groups([trace]))
    columns = payload.header["groups"][0]["columns"]

    def column(name):
        spec = columns[name]
        dtype = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "f64": "<f8"}[spec["dtype"]]
        values = (
            np.full(len(nodes), spec["constant"]) if "constant" in spec else np.frombuffer(payload.block, dtype, len(nodes), spec["offset"])
        )
        return [int(value) - 1 for value in values]

    assert column("graph_node") == nodes
    told = [payload.header["texts"][code] if code >= 0 else "" for code in column("symbol")]
    assert told == ["" if symbol == "k" else symbol for symbol in symbols]  # what the name says already is not said again


def test_predicted_times_are_labelled():
    predicted = any_trace(device=DeviceInfo("simulated", "simulated NVIDIA H200"), recorder="prediction")
    html = predicted._repr_html_()
    assert "Predicted times, not measured." in html
    assert "predicted time of the run, µs" in texts(picture_of(html))
    both = timeline_svg([TimelineGroup(any_trace(), label="measured"), TimelineGroup(predicted, label="graph")])
    assert "partly predicted time of the recorded run, µs" in texts(both)
    assert any(str(text).startswith("predicted; ") for text in texts(both))
    assert [group["recorder"] for group in encode(as_groups([predicted])).header["groups"]] == ["prediction"]


def test_an_empty_trace_is_shown():
    empty = Trace(SpanBuilder(["host"]).build(), TraceInfo("kineto", "nothing", H200))
    assert "No kernel runs in this trace." in empty._repr_html_()


@pytest.mark.usefixtures("bundle")
def test_the_live_timeline_is_called_by_the_program_where_no_engine_of_ours_ran(five_engines):
    widget = any_trace().timeline()
    assert widget.engines == ["resnet50"]
    assert widget.finding.startswith("The GPU is busy 55 % of 22.0 µs, with 2 kernels.")  # 12 of the 22 µs from the call to the set's end
    assert five_engines(20)["graph"].timeline().engines == ["graph"]


def test_the_timeline_of_a_foreign_trace_has_the_length_that_its_finding_tells(repository):
    """Some ranges and calls begin before the run, and the run does not begin at 0."""
    trace = read(repository / "tests/data/kineto/streams_graph.json.gz")
    (group,) = encode(as_groups([trace])).header["groups"]
    assert finding_of(trace).startswith(f"The GPU is busy 21 % of {group['makespan_text']}, ")
    assert group["extent_ns"] > summary(trace).span_us * 1e3


def own_spans():
    return Trace.from_spans([("load", "copies", 0, 4_000), ("gemm", "compute", 3_000, 9_000)], program="my pipeline")


def foreign():
    return read(Path(__file__).parents[1] / "data/kineto/streams_graph.json.gz")


def of_a_run():
    function, inputs = ss.workload("branches").build(length=4)
    return ss.compare(function, *inputs, engines="sync", device="simulated", progress=False)["sync"].trace


@pytest.mark.usefixtures("bundle")
@pytest.mark.parametrize("make", [own_spans, foreign, of_a_run])
def test_a_report_is_one_file_with_all_that_was_found(make, tmp_path):
    trace = make()
    page = trace.report(tmp_path / "t.html").read_text(encoding="utf-8")
    found = summary(trace)
    told = [finding_of(trace), *(value for _, value, _ in found.rows()), *(kernel.cells()[1] for kernel in found.kernels)]
    assert [words for words in told if escape(words) not in page] == []
    assert page.count("\u26a0") == len(found.warnings)  # none is folded away
    header = re.search('id="timeline-header">(.*?)</script>', page)[1]
    assert json.loads(header) == json.loads(json.dumps(encode(as_groups([trace]), paths=True).header))
    markup = re.sub(r"(<script\b[^>]*>).*?</script>", r"\1", page, flags=re.DOTALL)
    assert not re.search(r"(src|href|url)\s*[=(](?!.?data:)", markup, re.IGNORECASE)


@pytest.mark.usefixtures("bundle")
def test_the_report_of_a_prediction_has_the_trace_that_it_was_made_from(tmp_path):
    page = ss.what_if(of_a_run(), engine="graph").report(tmp_path / "p.html").read_text(encoding="utf-8")
    header = json.loads(re.search('id="timeline-header">(.*?)</script>', page)[1])
    assert [group["label"] for group in header["groups"]] == ["sync", "graph, predicted"]
    assert "Predicted, not measured: " in page


@pytest.mark.usefixtures("bundle")
def test_too_many_spans_for_a_file_are_a_picture_that_says_so(tmp_path, monkeypatch):
    for module in (tiles, trace_view):
        monkeypatch.setattr(module, "MOST_WHOLE", 6)
    trace = any_trace(name=HOSTILE, program=HOSTILE, notes=(HOSTILE,))
    page = trace.report(tmp_path / "t.html").read_text(encoding="utf-8")
    assert "these are 7 spans, and a file holds the live timeline of 6 at most" in page
    assert escape(finding_of(trace)) in page
    assert HOSTILE in texts(picture_of(page))
    assert "<img src=x" not in page
    assert "<script" not in page
    monkeypatch.setattr(tiles, "MOST_WHOLE", 7)
    assert "<script" in trace.report(tmp_path / "t.html").read_text(encoding="utf-8")


@pytest.mark.browser
@pytest.mark.usefixtures("bundle")
def test_a_report_of_hostile_names_is_drawn_and_runs_none(open_page, tmp_path):
    trace = any_trace(name=HOSTILE, program=HOSTILE, notes=(HOSTILE,))
    page = open_page(trace.report(tmp_path / "t.html"))
    assert page.evaluate("document.querySelector('#timeline').timeline.model.count") == 7
    assert page.locator("h1").inner_text() == f"{HOSTILE} \u00b7 kineto \u00b7 NVIDIA H200"
    assert page.get_by_text(HOSTILE).count() > 2
    assert page.locator("img").count() == 0


@pytest.mark.browser
@pytest.mark.usefixtures("bundle")
def test_one_trace_of_another_profiler_has_no_engines(open_page, repository, tmp_path):
    trace = ss.read(repository / "tests/data/kineto/streams_graph.json.gz")
    page = open_page(trace.report(tmp_path / "step.html"), viewport={"width": 700, "height": 900})
    assert "click selects ·" in page.locator(".ss-hint").inner_text()
    page.locator(".ss-overlay").focus()
    page.keyboard.press("n")
    panel = page.locator(".ss-panel")
    assert panel.locator("th").first.inner_text() == "trace"
    name = panel.locator("td.ss-kernel")
    assert panel.evaluate("(box) => box.scrollWidth <= box.clientWidth")  # The name is wrapped, and no number is cut off.
    assert name.evaluate("(cell) => cell.clientHeight") > panel.locator("th").first.evaluate("(cell) => cell.clientHeight")
    page.keyboard.press("Escape")
    page.keyboard.press("m")
    assert panel.locator("td", has_text="sm80_xmma_gemm").count()
    assert panel.evaluate("(box) => box.scrollWidth <= box.clientWidth")
    page.keyboard.press("c")
    page.locator(".ss-nudge", has_text="").wait_for(state="hidden")  # No empty pill is left where it said what it was about.
