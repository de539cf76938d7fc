"""The charts: their values, the finding in the title, units and the word "simulated" on the axes."""

import base64
import re
import subprocess
import sys
from dataclasses import dataclass, replace

import plotly.io
import pytest

from streamscope.analysis import measure
from streamscope.errors import TraceError
from streamscope.trace import Allocation, Allocations, DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo
from streamscope_widgets.charts import launch_overheads, makespan_chart, makespans, memories, overlap_chart, speedup_chart, speedups
from streamscope_widgets.show.still_chart import row_svg


@dataclass(frozen=True)
class Group:
    trace: Trace
    makespan_ns: float


def run_of(engine, gap_ns, device="cuda"):
    """Ten launches; a kernel of 4 µs each, on two streams in turn, 5 µs after its call."""
    builder = SpanBuilder(["host", "main", "aux"])
    for number in range(10):
        start_ns = number * gap_ns
        builder.add(SpanKind.LAUNCH, "relu", "host", start_ns, start_ns + 1_000, correlation=number)
        builder.add(SpanKind.KERNEL, "relu", ("main", "aux")[number % 2], start_ns + 5_000, start_ns + 9_000, correlation=number)
    return Trace(builder.build(), TraceInfo(engine, "p", DeviceInfo(device, "card")))


def metrics_of(device="cuda"):
    # async: busy 40 of 100; dual: kernels start every 3 µs, so 1 µs of each but the last overlaps with the next.
    repeats = {"async": [98e3, 99e3, 100e3, 100e3, 101e3, 102e3], "dual": [49e3, 49.5e3, 50e3, 50e3, 50.5e3, 51e3]}
    return {engine: measure(run_of(engine, gap_ns, device), repeats[engine]) for engine, gap_ns in (("async", 10_000), ("dual", 3_000))}


def test_the_stretches_of_a_bar_add_up_to_the_makespan():
    figure = makespan_chart(metrics_of())
    assert [sum(lengths) for lengths in zip(*(bar.x for bar in figure.data), strict=True)] == pytest.approx([100, 50])
    lengths = {bar.name: list(bar.x) for bar in figure.data}
    assert lengths["one kernel"] == [40, 22]
    assert lengths["two or more kernels"] == [0, 9]
    assert figure.layout.title.text == "Under async no kernel runs for 60 % of the run, under dual 38 %"


def test_the_unit_of_an_axis_is_that_of_its_longest_time():
    slow = {
        engine: measure(run_of(engine, gap_ns), [40e6 if engine == "async" else 2e6])
        for engine, gap_ns in (("async", 10_000), ("dual", 3_000))
    }
    chart = makespans(slow)
    assert chart.axis.title == "time, ms"
    assert [note.words for note in chart.notes] == ["40.0 ms", "2.00 ms"]
    assert [note.value for note in chart.notes] == [40, 2]
    assert [sum(lengths) for lengths in zip(*(bars.lengths for bars in chart.series), strict=True)] == pytest.approx([40, 2])
    assert all(bars.meaning.startswith("ms ") for bars in chart.series)
    slow["dual"] = replace(slow["dual"], makespan_us=984)
    assert [note.words for note in makespans(slow).notes] == ["40.0 ms", "0.984 ms"]
    chart = launch_overheads([Group(run_of("async", 10_000), 1e5)])
    assert chart.axis.title.startswith("launch latency, µs")
    assert chart.notes[0].words == "median 5.00 µs"


@pytest.mark.parametrize(("function_us", "stretches"), [(20, (20, 25, 5)), (48, (48, 0, 2)), (90, (50, 0, 0))])
def test_functions_of_the_users_are_no_launch_that_came_late(function_us, stretches):
    """Idle time is 45 of host wait and 5 of other causes."""
    metrics = {
        "async": replace(
            metrics_of()["async"], host_wait_us=45, launch_wait_us=0, kernel_wait_us=10, other_idle_us=5, host_function_us=function_us
        )
    }
    figure = makespan_chart(metrics)
    lengths = {bar.name: bar.x[0] for bar in figure.data}
    names = ("host functions alone", "host wait (not launched yet)", "other idle")
    assert tuple(lengths.get(name, 0) for name in names) == stretches
    assert sum(lengths.values()) == pytest.approx(100)


def test_a_label_is_narrower_than_its_stretch():
    metrics = {"async": replace(metrics_of()["async"], makespan_us=1440, host_wait_us=1300, kernel_wait_us=83)}
    chart = makespans(metrics)
    picture = row_svg(chart)
    scale = max(float(width) for width in re.findall(r'width="([\d.]+)"', picture)) / 1.3
    for bars in chart.series:
        for length, label in zip(bars.lengths, bars.labels, strict=True):
            assert not label or len(label) * 7.5 <= length * scale
    assert "0.083" not in {label for bars in chart.series for label in bars.labels}


def test_what_never_happens_has_no_entry_in_the_legend():
    assert "copies alone" not in {bar.name for bar in makespan_chart(metrics_of()).data}


def test_overlap_is_labelled_with_its_parts():
    figure = overlap_chart(metrics_of())
    assert list(figure.data[0].x) == pytest.approx([0, 100 * 9 / 31])
    assert list(figure.data[0].text) == ["none", "29.0 % (9.00 of 31.0 µs)"]
    assert figure.layout.title.text == "Kernels overlap most under dual: 29 % of GPU-busy time"
    assert overlap_chart({"async": metrics_of()["async"]}).layout.title.text == "No kernels run side by side under any engine"


def test_few_repeats_have_no_winner():
    few = {
        engine: measure(run_of(engine, 10_000), times) for engine, times in (("async", [98e3, 99e3, 97e3]), ("dual", [49e3, 50e3, 51e3]))
    }
    figure = speedup_chart(few)
    assert figure.layout.title.text == "Too few repeats to tell which engine is faster than async"
    assert "too few repeats to tell" in {note.text for note in figure.layout.annotations}


def test_speedup_has_the_interval_of_both_makespans():
    figure = speedup_chart(metrics_of())
    points = figure.data[0]
    assert list(points.x) == pytest.approx([1, 2])
    assert points.x[1] + points.error_x.array[1] == pytest.approx(102 / 49)
    assert points.x[1] - points.error_x.arrayminus[1] == pytest.approx(98 / 51)
    assert figure.layout.title.text == "dual is 2.0× faster than async"
    assert speedups(metrics_of(), wrong=["dual"]).title == "No engine beside async has right results"


def test_speedup_within_the_noise_is_not_claimed():
    metrics = metrics_of()
    metrics["dual"] = replace(metrics["dual"], makespan_us=99, makespan_low_us=97, makespan_high_us=103)
    figure = speedup_chart(metrics)
    assert figure.layout.title.text == "No engine is measurably faster than async"
    assert "within the noise" in {note.text for note in figure.layout.annotations}


def test_launch_latency_is_drawn_from_quantiles():
    chart = launch_overheads([Group(run_of("async", 10_000), 1e5), Group(run_of("dual", 3_000), 5e4)])
    (box,) = chart.series
    assert (box.median, box.q1, box.high) == ([5, 5], [5, 5], [5, 5])
    assert chart.rows == ("async (10)", "dual (10)")


def holding(engine, **kinds):
    trace = run_of(engine, 10_000)
    return Group(replace(trace, memory=Allocations.of([Allocation(size << 20, kind=kind) for kind, size in kinds.items()])), 1e5)


def test_memory_of_the_engines_stands_on_one_axis_by_kind():
    chart = memories([holding("async", variable=10), holding("dual", workspace=2, variable=10), Group(run_of("sync", 10_000), 1e5)])
    assert chart.rows == ("async", "dual")
    assert [(bars.name, bars.lengths) for bars in chart.series] == [("variable", [10, 10]), ("workspace", [0, 2])]
    assert [(note.row, note.value, note.words) for note in chart.notes] == [
        ("async", 10, "10.0 MiB"), ("dual", 12, "12.0 MiB (+2.0 MiB)"),
    ]  # fmt: skip
    assert chart.title == "Dual holds most: 12.0 MiB, 2.0 MiB more than async"
    assert memories([holding("async", a=3), holding("dual", a=3)]).title == "Every engine holds 3.0 MiB"
    assert "MiB" in row_svg(chart)


def all_charts(device):
    metrics = metrics_of(device)
    return [makespan_chart(metrics), overlap_chart(metrics), speedup_chart(metrics)]


@pytest.mark.parametrize("index", range(3))
def test_units_and_simulated_are_on_the_axis(index):
    axes = [all_charts(device)[index].layout.xaxis.title.text for device in ("cuda", "simulated")]
    assert any(unit in axes[0] for unit in ("µs", "%", "×"))
    assert axes == [axes[0], f"{axes[0]}, simulated"]


def test_engines_run_from_top_to_bottom_and_figures_are_plain():
    for figure in all_charts("cuda"):
        assert "BaseFigureWidget" not in {kind.__name__ for kind in type(figure).__mro__}  # which would add 5 MB to a notebook
        assert figure.layout.yaxis.autorange == "reversed"
        assert len(figure.to_json()) < 20_000


def test_a_chart_has_a_picture_where_nothing_draws_plotly(monkeypatch):
    """VS Code without an extension, and nbconvert, take `text/html` of such an output."""
    formatter = pytest.importorskip("IPython.core.formatters").DisplayFormatter()
    monkeypatch.setattr(plotly.io.renderers, "default", "plotly_mimetype")
    for figure in all_charts("cuda"):
        shown, _ = formatter.format(figure)
        assert shown["application/vnd.plotly.v1+json"]["layout"]["title"]["text"] == figure.layout.title.text
        picture = base64.b64decode(re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', shown["text/html"])[1]).decode()
        assert re.search('aria-label="([^"]+)"', picture)[1] == figure.layout.title.text
        assert len(shown["text/html"]) < 20_000
    monkeypatch.setattr(plotly.io.renderers, "default", "png")
    assert "text/html" not in formatter.format(figure)[0]


@pytest.mark.parametrize("chart", [makespan_chart, overlap_chart, speedup_chart, launch_overheads, memories])
def test_nothing_to_draw_is_an_error(chart):
    with pytest.raises(TraceError, match="no "):
        chart({} if chart not in (launch_overheads, memories) else [])


def test_plotly_is_imported_only_where_a_chart_is_drawn():
    modules = "streamscope_widgets.charts, streamscope_widgets.comparison_view"
    code = f"import sys, {modules}; print({{'plotly', 'pandas', 'pyarrow'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)})
    assert done.stdout.strip() == "set()"
