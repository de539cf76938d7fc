"""What tables say of the times in them. These words are pinned here; other tests ask for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import streamscope as ss
from streamscope.analysis import measure
from streamscope.analysis.table import INTERVAL, device_words, markdown_rows, metrics_markdown, metrics_table
from streamscope.trace import DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo


def test_a_table_in_markdown_has_numbers_on_the_right():
    assert markdown_rows(("a", "b"), [("x", "1")]) == ["| a | b |", "| --- | ---: |", "| x | 1 |"]
    assert markdown_rows(("a", "b", "c"), [], words=2) == ["| a | b | c |", "| --- | ---: | --- |"]


def test_simulated_times_are_called_so():
    assert device_words(DeviceInfo("simulated", "simulated NVIDIA H200")) == "simulated NVIDIA H200: all times are simulated"
    assert device_words(DeviceInfo("cuda", "NVIDIA H200")) == "NVIDIA H200"


def table_of(*makespans_ns, kind="cuda"):
    builder = SpanBuilder(["host", "main"])
    builder.add(SpanKind.KERNEL, "a", "main", 0, 10_000, operation=0)
    trace = Trace(builder.build(), TraceInfo("async", "step", DeviceInfo(kind, "H200")))
    return metrics_table({"async": measure(trace, makespans_ns)})


@pytest.mark.parametrize(("last_ns", "kind", "shown"), [(168_000, "simulated", "166 to 168"), (166_000, "cuda", "166 to 166")])
def test_an_interval_is_shown_where_it_says_something(last_ns, kind, shown):
    table = table_of(166_000, 166_000, last_ns, kind=kind)
    assert table.cells["async"][table.headings.index(INTERVAL)] == shown


def test_an_interval_of_simulated_times_that_are_alike_is_left_out():
    same = table_of(166_000, 166_000.01, 166_000.02, kind="simulated")
    assert INTERVAL not in same.headings
    assert same.best == ()  # None is faster than another.
    assert len(same.headings) == len(same.definitions) == len(same.first) == len(same.cells["async"])


def test_an_interval_is_shown_where_it_says_something_of_one_engine():
    builder = SpanBuilder(["main"])
    builder.add(SpanKind.KERNEL, "a", "main", 0, 10_000)
    infos = [TraceInfo(engine, "step", DeviceInfo("simulated", "H200")) for engine in ("async", "graph")]
    same, varied = (
        measure(Trace(builder.build(), info), times) for info, times in zip(infos, ([166e3] * 3, [160e3, 166e3, 168e3]), strict=True)
    )
    assert INTERVAL in metrics_table({"async": same, "graph": varied}).headings
    assert INTERVAL not in metrics_table({"async": same, "graph": replace(same, engine="graph")}).headings


def test_engines_are_compared_with_the_reference():
    trace = Trace(SpanBuilder(["main"]).build(), TraceInfo("async", "step", DeviceInfo("cuda", "H200")))
    slow, quick = measure(trace, [200e3] * 6), replace(measure(trace, [100e3] * 6), engine="graph")
    table = metrics_table({"async": slow, "graph": quick})
    assert table.against == "against async"
    assert {engine: cells[table.headings.index(table.against)] for engine, cells in table.cells.items()} == {
        "async": "–", "graph": "2.0× faster",
    }  # fmt: skip
    assert table.best == ("graph",)
    assert metrics_table({"async": slow, "graph": quick}, wrong=["graph"]).best == ("async",)


def test_the_makespan_says_what_it_is_before_how_it_is_computed():
    table = table_of(1_000, 2_000, 3_000)
    meanings = dict(zip(table.headings, table.definitions, strict=True))
    assert meanings["makespan, µs"].startswith("From the first call until the host knows that all is done")
    assert "Binomial" not in meanings["makespan, µs"]
    assert meanings[INTERVAL].startswith("Median of the repeats, with its 95 % confidence interval.")


def test_a_reader_wants_some_columns_first():
    table = table_of(1_000, 2_000, 3_000)
    assert table.part(first=True).headings == ("makespan, µs", INTERVAL, "GPU busy, %", "idle, µs", "overlap, %", "kernels")
    assert table.part(first=False).headings == ("GPU busy, µs", "API time, µs")


def test_metrics_are_shown_as_a_table_and_simulated_ones_are_called_so():
    function, inputs = ss.workload("branches").build(length=2)
    runs = ss.compare(function, *inputs, engines="async,graph", device="simulated", progress=False)
    first, head, _, *rows = repr(runs.metrics).splitlines()
    assert first == "All times are simulated."
    assert head.split("  ")[0] == "engine"
    table = metrics_table(runs.metrics)
    assert [row.split() for row in rows] == [[engine, *" ".join(cells).split()] for engine, cells in table.cells.items()]
    one = runs["graph"].metrics
    alone = metrics_table({"graph": one})
    lines = [f"{heading} {value}" for heading, value in zip(alone.headings, alone.cells["graph"], strict=True)]
    assert [" ".join(line.split()) for line in repr(one).splitlines()] == ["All times are simulated.", "engine graph", *lines]
    measured = replace(one, simulated=False, flags=("take care",))
    assert repr(measured).splitlines()[0].split() == ["engine", "graph", "[1]"]
    assert repr(measured).splitlines()[-1] == "[1] take care"
    page = metrics_markdown("step", DeviceInfo("cuda", "card"), {"graph": measured}, runs.assessment)
    assert "\n| graph \\[1\\] |" in page
    assert "\n\\[1\\] take care" in page
    assert str(runs.assessment) == repr(runs.assessment) == runs.verdict
    with pytest.raises(AttributeError, match=r"no attribute 'metrics' \(ss.analysis.summary\(trace\) measures it\)"):
        runs["graph"].trace.metrics  # noqa: B018
