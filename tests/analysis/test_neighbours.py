"""What kernels cost each other: by hand, and against a count for each nanosecond."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.analysis import assess, gpu_busy_ns, kernel_time_ns, neighbours, summary
from streamscope.trace import Basis, DeviceInfo, SpanBuilder, SpanKind, SpanTable, Trace, TraceInfo

KERNEL, COPY = SpanKind.KERNEL, SpanKind.COPY


def traced(*rows, basis=Basis.MEASURED, engine="kineto"):
    """A trace of rows (name, lane, start, end[, operation[, blocks]])."""
    builder = SpanBuilder(["main", "aux", "third"])
    for name, lane, start_ns, end_ns, *more in rows:
        operation, blocks = (*more, *(-1, 8)[len(more) :])
        builder.add(KERNEL, name, lane, start_ns, end_ns, operation=operation, blocks=blocks, basis=basis)
    return Trace(builder.build(), TraceInfo(engine, "p", DeviceInfo("cuda", "card"), "cupti"))


ALONE_FIRST = [("a", "main", 0, 100), ("b", "aux", 100, 300), ("a", "main", 400, 520), ("b", "aux", 450, 700)]


def test_by_hand():
    found = neighbours(traced(*ALONE_FIRST))
    assert found.row.tolist() == [2, 3]
    assert found.beside_ns.tolist() == [70, 70]
    assert found.alone_ns.tolist() == [100, 200]
    assert found.slowdown.tolist() == [1.2, 1.25]
    # Kernels take 100 + 200 + 120 + 250, busy is 300 + 300; alone they would take 600.
    assert (found.gross_ns, found.cost_ns, found.net_ns) == (70, 70, 0)


def test_what_is_not_known_is_not_guessed():
    other_size = [*ALONE_FIRST[:2], ("a", "main", 400, 520, -1, 16), ("b", "aux", 450, 700)]
    found = neighbours(traced(*other_size))
    assert np.isnan(found.alone_ns).tolist() == [True, False]
    assert (found.known, found.cost_ns, found.net_ns) == (1, None, None)
    assert summary(traced(*other_size)).net_overlap_us is None


def test_estimated_times_say_nothing_of_neighbours():
    found = neighbours(traced(*ALONE_FIRST, basis=Basis.PLACED))
    assert (found.known, found.net_ns) == (0, None)


def test_runs_alone_that_differ_tell_no_time_alone():
    runs = [("a", "main", 1000 * k, 1000 * k + length) for k, length in enumerate((100, 140, 180, 220))]
    found = neighbours(traced(*runs, ("b", "aux", 5000, 5200), ("a", "main", 6000, 6150), ("b", "aux", 6100, 6400)))
    assert np.isnan(found.alone_ns).tolist() == [True, False]


def test_the_middle_half_of_runs_alone_lies_within_a_tenth_of_their_median():
    runs = [("a", "main", 1000 * k, 1000 * k + length) for k, length in enumerate((100, 101, 105, 109, 190))]
    found = neighbours(traced(*runs, ("a", "main", 6000, 6150), ("b", "aux", 6100, 6400)))
    assert found.alone_ns[0] == 105


def test_nothing_is_slower_than_what_takes_no_time():
    found = neighbours(traced(("a", "main", 0, 0), *ALONE_FIRST[1:]))
    assert np.isnan(found.slowdown).tolist() == [True, False]


def test_the_time_alone_comes_from_another_trace_by_operation():
    sync = traced(("a", "main", 0, 100, 0), ("b", "main", 200, 400, 1), ("c", "main", 500, 600, 2), engine="sync")
    dual = traced(("b", "aux", 0, 240, 1), ("a", "main", 0, 130, 0), ("c", "main", 300, 410, 2), engine="dual")
    found = neighbours(dual, alone=sync)
    assert found.slowdown.tolist() == [1.2, 1.3]
    assert found.gross_ns == 130
    assert found.net_ns == 130 - 40 - 30
    assert summary(dual, alone=sync).net_overlap_us == 0.06
    assert "net gain of overlap" in repr(summary(dual, alone=sync))
    assert summary(dual).net_overlap_us is None
    assert neighbours(dual, alone=dual).known == 0  # there they are not alone either
    assert neighbours(dual, alone=traced(("x", "main", 0, 100), engine="sync")).known == 0


@given(spans=st.from_type(SpanTable))
def test_against_a_count_for_each_nanosecond(ticks, spans):
    found = neighbours(Trace(spans, TraceInfo("kineto", "p", DeviceInfo("cuda", "card"), "cupti")))
    lanes = sum((ticks(spans, KERNEL, lane=lane) > 0).astype(int) for lane in spans.lanes)
    expected = {row: int((lanes[spans.start_ns[row] : spans.end_ns[row]] > 1).sum()) for row in np.flatnonzero(spans.kind == KERNEL)}
    assert dict(zip(found.row.tolist(), found.beside_ns.tolist(), strict=True)) == {row: time for row, time in expected.items() if time}
    assert found.gross_ns == kernel_time_ns(spans) - gpu_busy_ns(spans)
    assert len(found.row) == 0 or found.net_ns is None  # all times are estimates


@pytest.mark.parametrize("engine", ["dual", "graph-dual"])
def test_the_simulated_device_tells_what_neighbours_cost(engine):
    function, inputs = ss.workload("conv-backward").build()
    runs = ss.compare(function, *inputs, engines=["sync", engine], device="simulated", progress=False)
    found = neighbours(runs[engine].trace, runs["sync"].trace)
    assert found.known == len(found.row)
    assert found.net_ns == pytest.approx(
        kernel_time_ns(runs["sync"].trace.spans) - gpu_busy_ns(runs[engine].trace.spans), abs=len(found.row)
    )


def test_a_comparison_with_sync_tells_the_net_gain():
    function, inputs = ss.workload("conv-backward").build()
    runs = ss.compare(function, *inputs, engines=["sync", "graph-dual"], device="simulated", progress=False)
    expected = summary(runs["graph-dual"].trace, alone=runs["sync"].trace).net_overlap_us
    assert runs.metrics["graph-dual"].net_overlap_us == expected
    assert runs.metrics["sync"].net_overlap_us is None
    assert expected > 0
    assert not any("neighbours cost" in line for line in runs.assessment.evidence)  # its neighbours are a model's
    metrics = {engine: replace(found, simulated=False) for engine, found in runs.metrics.items()}
    told = assess(metrics, DeviceInfo("cuda", "card")).evidence
    assert any("µs gained, less what neighbours cost)" in line for line in told)


def test_nothing_runs():
    found = neighbours(traced())
    assert (len(found.row), found.gross_ns, found.net_ns) == (0, 0, 0)
