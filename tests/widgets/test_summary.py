"""The static summary: what it says, that it is safe and small, and that a browser shows it in light and dark."""

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.analysis import assess, measure
from streamscope.analysis.table import device_words, metrics_text
from streamscope.trace import Basis, DeviceInfo, SpanBuilder, SpanKind, SpanTable, TimelineGroup, Trace, TraceInfo
from streamscope.trace.spans import COLUMN_DTYPES
from streamscope_widgets.comparison_view import summary_html
from streamscope_widgets.show.html import THEME_OF_VS_CODE
from streamscope_widgets.still_timeline import GUTTER, MARGIN, MOST_BYTES, WIDTH, timeline_svg

SAFE_TAGS = {"div", "p", "table", "thead", "tbody", "tr", "th", "td", "br", "details", "summary", "img"}
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert('x')</script> & \"quoted\""


def run_of(engine, gap_ns, *, device="cuda", name="relu", count=20, streams=("main", "aux")):
    """A run of kernels of 2 µs, one every ``gap_ns``, spread over streams."""
    builder = SpanBuilder(["host", *streams])
    for number in range(count):
        start_ns = number * gap_ns
        builder.add(SpanKind.LAUNCH, name, "host", start_ns, start_ns + 1_000, operation=number, correlation=number)
        builder.add(
            SpanKind.KERNEL, name, streams[number % len(streams)], start_ns + 3_000, start_ns + 5_000, operation=number, correlation=number,
            basis=Basis.DERIVED,
        )  # fmt: skip
    info = TraceInfo(engine, "chain", DeviceInfo(device, "NVIDIA H200" if device == "cuda" else "simulated NVIDIA H200"))
    return Trace(builder.build(), info)


def comparison(device="cuda", **changes):
    traces = [run_of("async", 4_000, device=device, **changes), run_of("graph", 2_000, device=device, **changes)]
    repeats = {"async": np.linspace(83_500, 84_500, 20), "graph": np.linspace(42_500, 43_500, 20)}
    metrics = {trace.info.engine: measure(trace, repeats[trace.info.engine]) for trace in traces}
    groups = [TimelineGroup(trace, float(np.median(repeats[trace.info.engine]))) for trace in traces]
    return traces[0].info.device, groups, metrics, assess(metrics, traces[0].info.device)


class Reader(HTMLParser):
    """Collects tags, attributes and text, and checks that tags nest."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], [], []
        self.feed(text.replace(THEME_OF_VS_CODE, ""))
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def picture_of(html):
    return base64.b64decode(re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', html)[1]).decode()


def rectangles(svg):
    """Left edge, width and row of every bar of the host and the streams, in pixels."""
    picture = ET.fromstring(svg)
    for lane in picture.findall(f"{SVG}g[@class='at-once']"):
        picture.remove(lane)
    found = []
    for path in (path.get("d") for path in picture.iter(f"{SVG}path") if path.get("stroke-width")):
        x, y = map(float, re.match(r"M([\d.]+) ([\d.]+)", path).groups())
        for gap, width in re.findall(r"m([-\d.]+) 0h([-\d.]+)", path):
            found.append((x + float(gap), y, float(width)))
            x += float(gap) + float(width)
    return found


def texts(svg):
    return [text.text for text in ET.fromstring(svg).iter(f"{SVG}text")]


def test_it_holds_only_what_an_untrusted_notebook_shows():
    device, groups, metrics, verdict = comparison()
    shown = summary_html("chain", device, groups, metrics, verdict)
    assert shown.count(THEME_OF_VS_CODE) == 1  # VS Code shows an untrusted notebook no HTML at all; elsewhere it means nothing.
    reader = Reader(shown)
    assert set(reader.tags) <= SAFE_TAGS
    assert {name for name, _ in reader.attributes} <= {"style", "title", "alt", "src", "class"}
    assert not any("http" in value or "url(" in value for name, value in reader.attributes if name in ("style", "src"))


def test_the_verdict_comes_first_then_the_table_then_the_picture():
    device, groups, metrics, verdict = comparison()
    html = summary_html("chain", device, groups, metrics, verdict)
    assert 0 < html.index(verdict.text) < html.index("<table") < html.index("<img")
    assert all(line in "".join(Reader(html).text) for line in verdict.evidence)


def test_the_table_has_the_numbers():
    device, groups, metrics, verdict = comparison()
    text = Reader(summary_html("chain", device, groups, metrics, verdict)).text
    row = text[text.index("graph") :]
    # 20 kernels of 2 µs, one every 2 µs, on two streams: busy for 40 µs of 43, and never two at once.
    assert row[:8] == ["graph", "43.0", "2.0× faster", "42.8 to 43.2", "93", "3.00", "0", "20"]
    more = text[text.index("GPU busy, µs") :]
    assert more[more.index("graph") + 1] == "40.0"


def test_every_number_has_its_definition():
    device, groups, metrics, verdict = comparison()
    titles = [value for name, value in Reader(summary_html("chain", device, groups, metrics, verdict)).attributes if name == "title"]
    heads = re.findall("<th[^>]*>([^<]+)", summary_html("chain", device, groups, metrics, verdict))
    named = [head for head in heads if head != "engine"]
    assert heads[0] == "engine"
    assert len(heads) == len(named) + 2  # the first numbers, and the folded ones
    definitions = dict(zip(named, titles, strict=True))
    assert "length of the union of all kernels" in definitions["GPU busy, µs"]
    assert "time with two or more kernels running / GPU busy" in definitions["overlap, %"]
    assert "shorter makespan" in definitions["against async"]


def test_hostile_names_stay_text():
    trace = run_of(HOSTILE, 4_000, name=HOSTILE, streams=(HOSTILE,))
    metrics = {HOSTILE: replace(measure(trace, [80_000.0] * 6), flags=(HOSTILE,))}
    html = summary_html(
        HOSTILE, DeviceInfo("cuda", HOSTILE), [TimelineGroup(trace, 1.0)], metrics, assess(metrics, DeviceInfo("cuda", HOSTILE))
    )
    assert set(Reader(html).tags) <= SAFE_TAGS
    assert HOSTILE in texts(picture_of(html))


def test_simulated_times_are_labelled_everywhere():
    device, groups, metrics, verdict = comparison("simulated")
    html = summary_html("chain", device, groups, metrics, verdict)
    assert "Simulated times" in html
    assert device_words(device) in html
    assert any("simulated time" in text for text in texts(picture_of(html)))
    assert metrics_text("chain", device, metrics, verdict).startswith(f"chain · {device_words(device)}\nSimulated times")
    measured = summary_html("chain", *comparison())
    assert "imulated" not in measured
    assert "imulated" not in picture_of(measured)


def test_plain_text_is_aligned_and_ends_in_its_notes():
    device, _, metrics, verdict = comparison()
    metrics["graph"] = replace(metrics["graph"], flags=("a warning", "another"))
    metrics["async"] = replace(metrics["async"], flags=("another",))
    lines = metrics_text("chain", device, metrics, verdict).splitlines()
    assert lines[:3] == ["chain · NVIDIA H200", verdict.text, ""]
    head, rule, *rows = lines[3:7]
    ends = [match.end() for match in re.finditer("-+", rule)]
    assert all(len(row) == len(rule) == len(head) for row in rows)
    assert all(row[end - 1] != " " for row in (head, *rows) for end in ends[1:])
    assert rows[0].startswith("async [1]")
    assert rows[1].startswith("graph [2, 1]")
    assert lines[7:] == ["[1] another", "[2] a warning"]


def test_one_engine_needs_no_column_for_the_others():
    device, groups, metrics, _ = comparison()
    html = summary_html("chain", device, groups[:1], {"async": metrics["async"]}, "a verdict as text")
    assert "against" not in "".join(Reader(html).text)
    assert "a verdict as text" in html


def test_nothing_at_all_is_still_a_page():
    assert Reader(summary_html("chain", DeviceInfo("cuda", "card"), [], {}, "nothing ran")).text == ["chain · card", "nothing ran"]
    assert ET.fromstring(timeline_svg([])).tag == f"{SVG}svg"


def test_all_engines_share_one_axis():
    svg = timeline_svg(
        [
            TimelineGroup(run_of("async", 4_000, count=2, streams=("main",)), 9_000.0),
            TimelineGroup(run_of("graph", 2_000, count=2, streams=("main",)), 7_000.0),
        ]
    )
    scale = (WIDTH - GUTTER - MARGIN) / 9_000
    starts = sorted(left for left, _, _ in rectangles(svg))
    expected = sorted(GUTTER + time_ns * scale for time_ns in (0, 4_000, 3_000, 7_000, 0, 2_000, 3_000, 5_000))
    assert starts == pytest.approx(expected, abs=0.06)
    assert {"async", "graph", "host", "main"} <= set(texts(svg))


def test_short_kernels_with_gaps_do_not_look_busy():
    busy, quarter = (timeline_svg([TimelineGroup(run_of("a", gap_ns, count=20_000, streams=("main",)), 1.0)]) for gap_ns in (2_000, 8_000))
    assert 'opacity="0.' not in busy.split(">main<")[1].split("opacity", 1)[0]
    kernels = quarter.split(">main<")[1].split(">at once<")[0]
    opacities = {float(value) for value in re.findall(r'opacity="([\d.]+)"', kernels)}
    assert opacities
    assert max(opacities) < 0.7


def big_trace(lanes, count):
    random = np.random.default_rng(lanes)
    columns = {column: np.zeros(count, np.int64) for column in COLUMN_DTYPES}
    columns["start_ns"] = np.sort(random.integers(0, 10**9, count))
    columns["end_ns"] = columns["start_ns"] + random.integers(0, 3_000_000, count) * (random.random(count) < 0.001)
    columns["lane"], columns["name"] = random.integers(0, lanes, count), random.integers(0, 9, count)
    columns["kind"][:] = SpanKind.KERNEL
    columns["basis"][:] = Basis.DERIVED  # some overlap
    names = tuple(f"kernel {number}" for number in range(9))
    table = SpanTable(**columns, names=names, lanes=tuple(f"stream {number}" for number in range(lanes)))
    return Trace(table, TraceInfo("graph-dual", "p", DeviceInfo("simulated", "card")))


@pytest.mark.parametrize("lanes", [2, 40])
def test_large_traces_stay_small(lanes):
    trace = big_trace(lanes, 100_000)
    metrics = {f"engine {number}": measure(trace, [1e9] * 6) for number in range(5)}
    html = summary_html("big", trace.info.device, [TimelineGroup(trace, 1e9)] * 5, metrics, assess(metrics, trace.info.device))
    assert len(html.encode()) < 200_000
    assert len(picture_of(html)) <= MOST_BYTES
    assert (f"+ {lanes - 6} streams" in texts(picture_of(html))) == (lanes > 6)


@given(
    st.lists(st.tuples(st.sampled_from(list(SpanKind)), st.integers(0, 10**6), st.integers(0, 10**5), st.text(max_size=3)), max_size=30),
    st.integers(1, 10**7),
)
def test_any_trace_draws_well_formed_bars_inside_the_picture(rows, makespan_ns):
    builder = SpanBuilder(["host", "stream"])
    for kind, start_ns, length_ns, name in rows:
        builder.add(kind, name, "host" if kind < SpanKind.KERNEL else "stream", start_ns, start_ns + length_ns, basis=Basis.PLACED)
    svg = timeline_svg([TimelineGroup(Trace(builder.build(), TraceInfo("async", "p", DeviceInfo("cuda", "c"))), float(makespan_ns))])
    for left, _, width in rectangles(svg):
        assert left >= GUTTER
        assert left + width <= WIDTH - MARGIN + 8


def test_metrics_alone_are_a_table_in_a_notebook():
    function, inputs = ss.workload("branches").build(length=2)
    found = ss.compare(function, *inputs, engines="async,graph-dual", device="simulated", progress=False).metrics
    page = Reader(found._repr_html_())
    assert "all times are simulated" in page.text
    assert all(engine in page.text for engine in found)
    alone = Reader(found["graph-dual"]._repr_html_()).text
    assert "graph-dual" in alone
    assert "async" not in alone
    assert "GPU busy, %" in alone
