"""What changed from one trace to another, as a cell's result and on one axis."""

from __future__ import annotations

import re

import numpy as np
import pytest

import streamscope as ss
from streamscope.comparing.comparison import Run
from streamscope.trace import DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo
from streamscope_widgets.diff_view import diff_groups
from streamscope_widgets.payload import PairGroup, encode

HOSTILE = "<img src=x onerror=alert(1)>"
H200 = DeviceInfo("cuda", "NVIDIA H200")


def foreign(name, lengths_ns, kernel="gemm", gap_ns=1000):
    """Kernels one after the other, each with its call."""
    builder = SpanBuilder(["thread 1", "stream 7"])
    now_ns = 0
    for number, length_ns in enumerate(lengths_ns):
        builder.add(SpanKind.LAUNCH, "cudaLaunchKernel", "thread 1", now_ns, now_ns + 500, correlation=number)
        builder.add(SpanKind.KERNEL, kernel, "stream 7", now_ns + gap_ns, now_ns + gap_ns + length_ns, correlation=number)
        now_ns += gap_ns + length_ns
    return Trace(builder.build(), TraceInfo("kineto", name, H200, "kineto", versions={}))


@pytest.fixture(scope="module")
def own():
    function, inputs = ss.workload("branches").build(branches=2, length=3)
    return ss.compare(function, *inputs, engines=["async", "graph-dual"], device="simulated", progress=False)


def test_the_sentence_the_parts_and_the_rows_are_those_of_the_comparison():
    found = ss.diff(foreign("before", [9000, 9000, 4000]), foreign("after", [3000, 3000, 4000]))
    html = found._repr_html_()
    assert f">{found.answer}<" in html
    for cells in (*found.contribution_rows(), *found.table_rows()):
        assert [cell for cell in cells if f">{cell}<" not in html] == []
    assert "⚠ One run each, and rows of fewer than 6 runs: too few repeats to tell a difference" in html
    assert len(html) < 200_000


def test_longest_differences_have_the_longest_bars_and_the_colour_says_the_direction():
    html = ss.diff(foreign("before", [9000, 9000]), foreign("after", [3000, 3000], gap_ns=2000))._repr_html_()
    # Kernel time 18 -> 6 µs, host wait 1 -> 2 µs and once more at the start, span 20 -> 10 µs: of 120 px, 12 µs get all.
    widths = [(int(width), colour) for width, colour in re.findall(r"width:(\d+)px;height:9px;border-radius:2px;background:(#\w+)", html)]
    assert (120, "#1a936f") in widths
    assert (100, "#1a936f") in widths
    assert {colour for width, colour in widths if width <= 20} == {"#d1495b"}


def test_bars_of_both_tables_have_one_scale():
    """The span is 100 µs longer, nearly all of it waiting for the host; the kernels' own 1 µs is a hundredth of that."""
    html = ss.diff(foreign("before", [9000, 9000]), foreign("after", [9500, 9500], gap_ns=50_500))._repr_html_()
    parts, rows = html.split("</table>")[:2]
    widths = [[int(width) for width in re.findall(r"width:(\d+)px;height:9px", part)] for part in (parts, rows)]
    assert max(widths[0]) == 120
    assert widths[1]
    assert max(widths[1]) <= 3


def test_the_rest_of_many_rows_unfolds():
    builder = SpanBuilder(["stream 7"])
    for number in range(300):
        builder.add(SpanKind.KERNEL, f"kernel_{number}_" + "x" * 3000, "stream 7", number * 10, number * 10 + 5)
    html = ss.diff(Trace(builder.build(), TraceInfo("kineto", "many", H200)), foreign("other", [5]))._repr_html_()
    assert "90 more rows" in html
    assert "+ 201 more rows, " in html
    assert len(html) < 200_000


def test_names_are_text_and_no_markup():
    html = ss.diff(foreign(HOSTILE, [9000], kernel=HOSTILE), foreign("b", [3000], kernel=HOSTILE))._repr_html_()
    assert "<img src=x" not in html
    assert "&lt;img src=x" in html


def test_traces_of_other_code_are_joined_by_pairs():
    first, second = foreign("before", [9000, 9000, 4000]), foreign("after", [3000, 3000])
    found = ss.diff(first, second)
    groups = diff_groups(found)
    assert all(isinstance(group, PairGroup) for group in groups)
    for pair, (row, other) in enumerate(found.pairs):
        assert groups[0].trace.spans.operation[row] == groups[1].trace.spans.operation[other] == pair
    assert [int(np.sum(group.trace.spans.operation >= 0)) for group in groups] == [2, 2]
    headers = encode(groups).header["groups"]
    assert headers[0]["program"] == headers[1]["program"]  # which is what joins them in the browser
    assert {header["joined_by"] for header in headers} == {"pair"}
    assert (first.spans.operation == -1).all()


def test_traces_of_one_program_keep_their_operations(own):
    found = ss.diff(own["async"].trace, own["graph-dual"].trace)
    first, second = diff_groups(found)
    assert first.trace is own["async"].trace
    assert {header["joined_by"] for header in encode((first, second)).header["groups"]} == {"operation"}
    assert "imulated" in found._repr_html_()


def test_pictures_of_two_runs_say_what_their_repeats_tell():
    slow, quick = (
        Run("graph", np.linspace(shortest, shortest + 9, 10) * 1e3, np.nan, np.nan, foreign(name, [9000]))
        for name, shortest in (("slow", 80), ("quick", 50))
    )
    assert diff_groups(ss.diff(slow, quick))[1].comparison == "1.6× faster than slow"
    assert diff_groups(ss.diff(slow, slow))[1].comparison == "within the noise (against the first)"
    assert diff_groups(ss.diff(slow.trace, quick.trace))[1].comparison is None


@pytest.mark.usefixtures("bundle")
def test_both_are_live_on_one_axis(own):
    widget = ss.diff(own["async"].trace, own["graph-dual"].trace).timeline()
    assert widget.engines == ["async", "graph-dual"]
    assert widget.finding.startswith("graph-dual is ")
    assert ss.diff(foreign("a", [1000]), foreign("a", [1000])).timeline().engines == ["the first", "the second"]


def test_notes_on_both_are_listed_with_the_numbers_of_the_picture(bundle, tmp_path):
    first, second = foreign("before", [9000]).with_note("slow <here>", 2), foreign("after", [3000]).with_note("fixed")
    found = ss.diff(first, second)
    report = found.report(tmp_path / "d.html").read_text(encoding="utf-8")
    for page in (found._repr_html_(), report):
        assert re.search(
            r">1</td>.*?>before</td>.*?>2 µs</td>.*?>slow &lt;here&gt;</td>.*?>after</td>.*?>whole trace</td>.*?>fixed</td>", page
        )
    assert "<h2>Notes</h2>" in report
    assert "<h2>Notes</h2>" not in ss.diff(foreign("a", [9000]), foreign("b", [9000])).report(tmp_path / "e.html").read_text(
        encoding="utf-8"
    )
