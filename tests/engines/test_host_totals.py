"""Running totals of the host's time: what is counted, under which name, and that a run without them is as it was."""

from __future__ import annotations

import gc
import json
from itertools import count
from weakref import ref

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines import host_totals, watched_runs
from streamscope.engines.host_totals import OTHERS, CallLayout, HostSums, HostTotal, HostTotals
from streamscope.engines.plan import CallHost, Issue, Replay
from streamscope.errors import DeviceError
from streamscope.ops.convolutions import convolution_backward

X = np.linspace(-1, 1, 8, dtype=np.float32)


def step(x):
    """Two operators, one of them twice."""
    return np.tanh(np.tanh(x) * x)


def prepared_for(engine, function=step, *inputs):
    return ss.prepare(function, *(inputs or (X,)), engine=engine, device="simulated", progress=False)


def counts(totals):
    return {(row.kind, row.name): row.count for row in totals.rows}


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if not engine.startswith("graph")])
def test_each_operation_is_counted_once_a_run(engine):
    prepared = prepared_for(engine)
    prepared.run()
    prepared.host_totals.start()
    for _ in range(3):
        prepared.run()
    found = counts(prepared.host_totals)
    assert found["operation", "tanh"] == 6
    assert found["operation", "multiply"] == 3
    np.testing.assert_allclose(prepared.outputs()[0], step(X), rtol=1e-5)


def test_a_graph_is_one_call_and_its_first_run_is_counted_by_operation():
    prepared = prepared_for("graph")
    prepared.host_totals.start()
    prepared.run()
    assert counts(prepared.host_totals) == {("operation", "tanh"): 2, ("operation", "multiply"): 1}
    prepared.host_totals.reset()
    for _ in range(4):
        prepared.run()
    assert counts(prepared.host_totals) == {("graph", "step"): 4}
    np.testing.assert_allclose(prepared.outputs()[0], step(X), rtol=1e-5)


def test_an_operation_of_several_launches_counts_once_with_the_time_of_all(monkeypatch):
    x, w, g = np.ones((1, 6, 6, 4), np.float32), np.ones((4, 3, 3, 4), np.float32), np.ones((1, 6, 6, 4), np.float32)
    prepared = prepared_for("async", lambda x, w, g: convolution_backward(x, w, g, padding=1), x, w, g)
    launches = [bound for bound in prepared.bound if isinstance(bound.step, Issue)]
    operations = {bound.step.launch.operation for bound in launches}
    assert len(launches) > len(operations)
    clock = count(0, 100)
    monkeypatch.setattr(watched_runs, "perf_counter_ns", lambda: next(clock))
    prepared.host_totals.start()
    prepared.run()
    rows = [row for row in prepared.host_totals.rows if row.kind == "operation"]
    assert sum(row.count for row in rows) == len(operations)
    assert sum(row.total_ns for row in rows) == 100 * len(launches)


def test_host_functions_waits_and_events_have_rows_of_their_own():
    function, inputs = ss.workload("pipeline").build(chunks=3, size=64)
    prepared = prepared_for("async", function, *inputs)
    calls = [bound for bound in prepared.bound if isinstance(bound.step, CallHost)]
    prepared.host_totals.start()
    prepared.run()
    rows = prepared.host_totals.rows
    assert sum(row.count for row in rows if row.kind == "host function") == len(calls) > 0
    assert {row.name for row in rows if row.kind == "wait"} == {"waits of the host"}
    assert {row.name for row in rows if row.kind == "event"} == {"events between streams"}
    assert sum(row.count for row in rows) <= len(prepared.bound)


def test_sums_least_and_most_are_those_of_the_clock(monkeypatch):
    prepared = prepared_for("async", lambda x: np.tanh(np.tanh(x)), X)
    issues = [isinstance(bound.step, Issue) for bound in prepared.bound]
    assert issues == [True, True]
    ticks = iter([0, 10, 40, 100, 105, 106])
    monkeypatch.setattr(watched_runs, "perf_counter_ns", lambda: next(ticks))
    prepared.host_totals.start()
    prepared.run()
    prepared.run()
    assert prepared.host_totals.rows == (HostTotal("operation", "tanh", 4, 46, 1, 30),)
    assert prepared.host_totals.rows[0].mean_ns == 11.5


def test_pause_keeps_start_goes_on_and_reset_forgets():
    prepared = prepared_for("async")
    totals = prepared.host_totals
    assert not totals.counting
    prepared.run()
    assert totals.rows == ()
    totals.start()
    prepared.run()
    totals.pause()
    prepared.run()
    assert counts(totals)["operation", "multiply"] == 1
    totals.start()
    prepared.run()
    assert counts(totals)["operation", "multiply"] == 2
    totals.reset()
    assert totals.rows == ()
    assert totals.counting


def test_a_call_that_fails_is_not_counted_and_the_error_names_it(monkeypatch):
    prepared = prepared_for("async")
    prepared.host_totals.start()
    failing = next(bound for bound in prepared.bound if isinstance(bound.step, Issue) and bound.step.launch.operation == 1)

    def fail():
        raise DeviceError("no")

    failing.call = fail
    prepared._calls = [bound.call for bound in prepared.bound]
    with pytest.raises(DeviceError) as raised:
        prepared.run()
    assert "while multiply" in raised.value.__notes__[0]
    assert len(raised.value.__notes__) == 1
    assert {key: number for key, number in counts(prepared.host_totals).items() if key[0] == "operation"} == {("operation", "tanh"): 1}


def test_new_shapes_and_new_memory_go_on_counting():
    prepared = prepared_for("graph")
    prepared.host_totals.start()
    prepared.run()
    prepared.run()
    prepared.retrace(ss.program(step).trace(np.ones(5, np.float32)))
    prepared.load([np.ones(5, np.float32)])
    prepared.run()
    assert counts(prepared.host_totals) == {("operation", "tanh"): 4, ("operation", "multiply"): 2, ("graph", "step"): 1}
    prepared.run()
    assert counts(prepared.host_totals)["graph", "step"] == 2
    prepared.rebind({"x": np.ones(5, np.float32)})
    prepared.run()
    assert counts(prepared.host_totals)["graph", "step"] == 3


def test_segments_of_a_program_with_host_functions_are_graphs_of_one_name():
    function, inputs = ss.workload("pipeline").build(chunks=3, size=64)
    prepared = prepared_for("graph", function, *inputs)
    prepared.run()
    prepared.host_totals.start()
    prepared.run()
    graphs = [bound for bound in prepared.bound if isinstance(bound.step, Replay)]
    assert counts(prepared.host_totals)["graph", prepared.program.name] == len(graphs) > 1


def test_many_runs_are_summed_before_they_fill_the_memory(monkeypatch):
    monkeypatch.setattr(host_totals, "_MOST_STAMPS", 50)
    sums, layout = HostSums("x"), CallLayout((0, 1), (("operation", "a"), None))
    for start in range(100):
        sums.add_run(layout, [start, start + 7, start + 9])
        assert sums._stamps < 50
    assert sums.rows() == (HostTotal("operation", "a", 100, 700, 7, 7),)


def test_names_without_end_share_a_row(monkeypatch):
    monkeypatch.setattr(host_totals, "MOST_NAMES", 3)
    sums = HostSums("x")
    for number in range(10):
        sums.add(("operation", f"step {number}"), number)
    assert len(sums.rows()) == 4
    assert sums.rows()[0] == HostTotal("operation", OTHERS, 7, sum(range(3, 10)), 3, 9)


def test_text_table_and_data_have_the_largest_total_first():
    sums = HostSums("step, async")
    for key, took in ((("operation", "add"), 2_000), (("operation", "<b>relu"), 9_000), (("wait", "waits of the host"), 500)):
        sums.add(key, took)
    totals = HostTotals(sums)
    assert str(totals).splitlines() == [
        "host time of step, async: 3 calls in 11.5 µs of the host, paused",
        "name                      count  host total µs  host mean µs  host min µs  host max µs",
        "------------------------  -----  -------------  ------------  -----------  -----------",
        "<b>relu                       1           9.00          9.00         9.00         9.00",
        "add                           1           2.00          2.00         2.00         2.00",
        "waits of the host (wait)      1          0.500         0.500        0.500        0.500",
    ]
    assert json.loads(json.dumps(totals.to_dict()))["rows"][0] == {
        "kind": "operation", "name": "<b>relu", "count": 1, "host_total_us": 9.0, "host_min_us": 9.0, "host_max_us": 9.0,
        "host_mean_us": 9.0,
    }  # fmt: skip
    html = totals._repr_html_()
    assert html.index("&lt;b&gt;relu") < html.index("add<")
    assert "3 calls in 11.5" in html


def test_an_engine_counts_pushes_bulks_host_functions_and_programs():
    with ss.Engine("async", device=SimulatedDevice()) as engine:
        x, y = engine.variable(X), engine.variable(X)
        h = engine.variable(X, place="host")
        engine.push(ss.ops.add, reads=(x, y), writes=(x,))
        engine.host_totals.start()
        for _ in range(5):
            engine.push(ss.ops.add, reads=(x, y), writes=(x,))
        engine.push(ss.ops.add, reads=(x, y), writes=(x,), name="sum")
        engine.push(lambda values: values + 1, reads=(h,), writes=(h,), name="plus one")
        with engine.bulk(2):
            engine.push(ss.ops.relu, reads=(x,), writes=(y,))
            engine.push(ss.ops.add, reads=(x, y), writes=(x,))
        engine.wait_all()
        engine.run(step, X)
        engine.host_totals.pause()
        engine.push(ss.ops.add, reads=(x, y), writes=(x,))
        engine.push(lambda values: values + 1, reads=(h,), writes=(h,), name="plus one")
        engine.run(step, X)
        engine.wait_all()
        found = counts(engine.host_totals)
    assert found == {
        ("operation", "add"): 5, ("operation", "sum"): 1, ("host function", "plus one"): 1, ("operation", "bulk of 2: relu and add"): 1,
        ("operation", "tanh"): 2, ("operation", "multiply"): 1,
    }  # fmt: skip
    assert "issue" not in vars(engine._issuer)


def test_an_engine_does_not_count_what_fails_or_is_skipped():
    def broken(values):
        raise ValueError("no")

    with ss.Engine("async", device=SimulatedDevice()) as engine:
        h, x = engine.variable(X, place="host"), engine.variable(X)
        engine.host_totals.start()
        engine.push(broken, reads=(h,), writes=(h,))
        engine.push(ss.ops.to_device, reads=(h,), writes=(x,))
        with pytest.raises(ss.StreamscopeError, match="no"):
            engine.wait_all()
        assert engine.host_totals.rows == ()


def test_an_engine_that_is_let_go_while_it_counts_waits_for_no_collector_of_cycles():
    engine = ss.Engine("async", device=SimulatedDevice())
    x = engine.variable(X)
    engine.host_totals.start()
    engine.push(ss.ops.add, reads=(x, x), writes=(x,))
    engine.run(step, X)
    gone = [ref(each) for each in (engine, engine._pusher, engine._scheduler, engine._watch)]
    engine.close()
    gc.disable()
    try:
        del engine, x
        assert [each() for each in gone] == [None] * 4
    finally:
        gc.enable()
