"""What recording cost, by recorder, and what each number rests on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.analysis import assess, measure
from streamscope.trace import Basis, DeviceInfo, SpanBuilder, SpanKind, TimelineGroup, Trace, TraceInfo
from streamscope_widgets.comparison_view import summary_html
from streamscope_widgets.ledger_view import ledger_table, what_it_rests_on
from streamscope_widgets.payload import encode

H200 = DeviceInfo("cuda", "NVIDIA H200")


def group(engine, ledger, recorder="events", bases=(Basis.DERIVED, Basis.DERIVED, Basis.MEASURED), device=H200):
    builder = SpanBuilder(["host", "main"])
    for number, basis in enumerate(bases):
        joined, at_ns = {"operation": number, "correlation": number}, 10_000 * number
        builder.add(SpanKind.LAUNCH, "a", "host", at_ns, at_ns + 3_000, **joined)
        builder.add(SpanKind.KERNEL, "a", "main", at_ns + 4_000, at_ns + 9_000, **joined, basis=basis)
    return TimelineGroup(Trace(builder.build(), TraceInfo(engine, "step", device, recorder, ledger=ledger)), 30_000.0)


def cells(found):
    columns, rows = found
    return [[column.heading for column in columns], *([str(cell) for cell in row.cells] for row in rows)]


ASYNC = {"unrecorded_ns": 40_000.0, "recorded_ns": 44_000.0, "events_ns": 44_000.0, "stamps_ns": 41_000.0, "cupti_ns": 120_000.0}


def test_each_recorder_against_the_run_without_recording():
    graph = {"unrecorded_ns": 10_000.0, "recorded_ns": 10_500.0, "events_ns": 10_500.0, "cupti_ns": 260_000.0}
    assert cells(ledger_table([group("async", ASYNC), group("graph", graph)])) == [
        ["engine", "unprofiled, µs", "events", "stamps", "CUPTI"],
        ["async", "40.0", "1.10×", "1.02×", "3.00×"],
        ["graph", "10.0", "1.05×", "–", "26.00×"],
    ]


def test_without_a_ledger_what_the_one_recorder_cost():
    ledger = {"unrecorded_ns": 40_000.0, "recorded_ns": 44_000.0}
    assert cells(ledger_table([group("async", ledger, "cupti")])) == [["engine", "unprofiled, µs", "CUPTI"], ["async", "40.0", "1.10×"]]
    assert ledger_table([group("async", {})]) is None


def test_simulated_times_rest_on_a_model_and_recording_costs_nothing():
    simulated = group("async", ASYNC, device=DeviceInfo("simulated", "simulated NVIDIA H200"))
    assert ledger_table([simulated]) is None
    assert list(what_it_rests_on([simulated], {})) == []


def test_what_times_rest_on():
    found = group("async", ASYNC)
    metrics = {"async": measure(found.trace, [30_000.0] * 7)}
    (said,) = what_it_rests_on([found], metrics)
    assert said == (
        "async: makespan: median of 7 runs without recording; kernels, copies and sets, by events: "
        "1 with both ends measured and 2 with end measured, start from the length when timed alone"
    )


def test_durations_that_cupti_saw_are_not_said_to_be_timed_alone():
    found = group("async", ASYNC)
    found = replace(found, trace=replace(found.trace, info=replace(found.trace.info, calibration={"by_cupti": 1.0})))
    (said,) = what_it_rests_on([found], {})
    assert "2 with end measured, start from the length that CUPTI saw in other runs" in said


@pytest.mark.parametrize(
    ("calibration", "words"),
    [
        (
            {"stamp_excess_ns": 583.0, "stamp_correction_ns": -21.0, "stamp_by_cupti": 1.0},
            "about 0.6 µs around them added as CUPTI measured",
        ),
        ({"stamp_excess_ns": 383.0, "stamp_correction_ns": -221.0}, "about 0.4 µs around them added as the reference kernel tells"),
        ({}, "a constant around them added"),
    ],
)
def test_of_stamped_kernels_it_says_what_is_added(calibration, words):
    found = group("async", ASYNC, "stamps", (Basis.MEASURED, Basis.DERIVED))
    info = replace(found.trace.info, calibration=calibration)
    found = replace(found, trace=replace(found.trace, info=info))
    (said,) = what_it_rests_on([found], {})
    assert f"1 with first and last block measured, {words} and 1 with end measured" in said
    assert encode([found]).header["groups"][0]["stamped"]["kernel"] == f"first and last block measured, {words}"
    assert encode([group("async", ASYNC)]).header["groups"][0]["stamped"]["kernel"] == ""


@pytest.mark.parametrize(("ledger", "seen"), [(ASYNC, True), ({"unrecorded_ns": 40_000.0, "recorded_ns": 44_000.0}, False)])
def test_a_ledger_that_was_asked_for_is_seen_at_once_beside_the_metrics(ledger, seen):
    found = replace(group("async", ledger), label="async")
    metrics = {"async": measure(found.trace, np.linspace(29_000, 31_000, 7))}
    html = summary_html("step", H200, [found], metrics, assess(metrics, H200))
    before, _, after = html.partition("unprofiled, µs")
    assert "1.10×" in after
    assert (before.count("<details") == before.count("</details>")) is seen
    assert "What each number rests on" in html or "and what each number rests on" in html


@pytest.mark.usefixtures("bundle")
def test_the_report_shows_it(repository, tmp_path):
    runs = ss.load_comparison(repository / "notebooks/recorded/attention")
    page = runs.report(tmp_path / "a.html").read_text(encoding="utf-8")
    _, _, told = page.partition("<summary>What recording cost</summary>")
    assert all(f"<td>{cell}</td>" in told for row in cells(ledger_table(runs.groups()))[1:] for cell in row)
    assert f"<li>{next(what_it_rests_on(runs.groups(), runs.metrics))}</li>" in told
