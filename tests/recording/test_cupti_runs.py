"""From CUPTI's records of a run of a prepared program to its trace, with records made up for a run on the simulated device."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.recording.fake_cupti import Runtime
from tests.recording.test_events import prepared_workload

from streamscope.analysis import incomplete_replays, summary
from streamscope.devices.cuda.timer import TimerClock
from streamscope.devices.graph_node import NodeKind
from streamscope.engine_entry import ENGINES
from streamscope.engines.plan import Issue, Replay
from streamscope.recording import cupti
from streamscope.recording.activity_records import ActivityRecords
from streamscope.recording.cupti import RecordedRun, steps_of_calls
from streamscope.recording.timed_run import HostInterval, steps_of, timed_run
from streamscope.trace.spans import DEVICE_KINDS, Basis, SpanKind

OFFSET = 1_795_362_426_785_105_217  # CUPTI counts from 1970 on, the host from when it started.
CLOCK = TimerClock(-OFFSET, 300)
GRAPH = 5 << 32
THREAD = 4_711


def call_name(code, number):
    assert code == 1
    return Runtime(number).name


def made_up(prepared, host, kernels=2, lost=()):
    """Return records of a run: each launch is a call and so many kernels, one after the other on its stream."""
    calls, work, texts = [], [], {}
    free = dict.fromkeys(prepared.plan.lanes, 0)

    def add(step, correlation, called, node):
        lane = prepared.plan.lanes[step.lane]
        for place in range(kernels):
            start = free[lane] = max(free[lane], called) + 10
            free[lane] += 50
            name = texts.setdefault(f"{step.launch.name} {place}", len(texts) + 1)
            if (step.launch.operation, place) not in lost:
                work.append({"code": SpanKind.KERNEL, "start_ns": start, "end_ns": start + 50, "correlation": correlation, "name": name,
                             "graph_node": 0 if node is None else GRAPH + node + place, "grid_x": 4, "grid_y": 1, "grid_z": 1,
                             "block_x": 32, "block_y": 2, "block_z": 1})  # fmt: skip

    for index, (bound, interval) in enumerate(zip([*steps_of(prepared), None], host, strict=True)):
        if bound is None or not isinstance(bound.step, Issue | Replay):
            continue
        graph = isinstance(bound.step, Replay)
        number = Runtime["cudaGraphLaunch_v10000" if graph else "cudaLaunchKernel_v7000"]
        calls.append(
            {
                "code": 1,
                "start_ns": interval.start_ns,
                "end_ns": interval.end_ns,
                "correlation": 100 + index,
                "name": number,
                "thread": THREAD,
            }
        )
        node = 0
        for inner in bound.inner if graph else (bound,):
            if isinstance(inner.step, Issue):
                add(inner.step, 100 + index, interval.end_ns, node if graph else None)
                node += kernels
    records = ActivityRecords()
    tables = {}
    for table, rows in {"calls": calls, "work": work}.items():
        tables[table] = np.zeros(len(rows), getattr(records, table).dtype)
        for place, row in enumerate(rows):
            for column, value in row.items():
                tables[table][place][column] = value + OFFSET if column.endswith("_ns") else value
    return ActivityRecords(**tables, texts={number: text for text, number in texts.items()})


def graph_of(prepared, kernels):
    """Let the graphs of a prepared program have so many nodes for each launch, as a library's launches do."""
    for bound in prepared.bound:
        if isinstance(bound.step, Replay):
            issues = [index for index, inner in enumerate(bound.inner) if isinstance(inner.step, Issue)]
            bound.owners = tuple(index for index in issues for _ in range(kernels))
            node = type("Node", (), {"kind": NodeKind.KERNEL})()
            bound.graph = type("Graph", (), {"nodes": (node,) * len(bound.owners)})()


def run_of(workload, engine, kernels=2, **more):
    prepared = prepared_workload(workload, engine)
    host = timed_run(prepared)
    records = made_up(prepared, host, kernels, **more)
    graph_of(prepared, kernels)
    return prepared, records, RecordedRun(prepared, host, records, CLOCK, call_name, THREAD).trace({}, {})


@pytest.mark.parametrize(("gpus", "expected"), [(1, ["reload", "timed"]), (2, ["reload", "run", "wait", "timed"])])
def test_links_between_gpus_are_awake_when_a_run_is_recorded(monkeypatch, gpus, expected):
    done = []
    monkeypatch.setattr(cupti, "timed_run", lambda *_: done.append("timed"))
    program, (run, wait, reload) = SimpleNamespace(gpus=gpus), (lambda what=what: done.append(what) for what in ("run", "wait", "reload"))
    cupti._run(SimpleNamespace(program=program, run=run, wait=wait), reload)
    assert done == expected


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("workload", ["branches", "conv-backward", "lstm"])
def test_each_kernel_of_each_launch_is_a_span_under_it_at_its_time(workload, engine):
    prepared, records, trace = run_of(workload, engine, kernels=3)
    spans = trace.spans.of_kind(DEVICE_KINDS)
    launches = [(launch.operation, launch.part) for launch in prepared.program.launches()]
    found = list(zip(spans.operation.tolist(), spans.part.tolist(), strict=True))
    assert sorted(found) == sorted(launches * 3)
    assert trace.info.notes == ()
    zero = int(records.calls["start_ns"].min()) - int(
        trace.spans.start_ns[trace.spans.is_kind([SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH])].min()
    )
    assert sorted(spans.start_ns.tolist()) == sorted((records.work["start_ns"] - zero).tolist())
    assert set(spans.duration_ns.tolist()) == {50}
    names = np.array([*spans.names, ""])
    for name, symbol in zip(names[spans.name], names[spans.symbol], strict=True):
        assert symbol in {f"{name} {place}" for place in range(3)}
    assert (spans.blocks == 4).all()
    assert (spans.threads == 64).all()
    assert ((spans.graph_node >= 0) == engine.startswith("graph")).all()


def test_nodes_of_two_graphs_of_a_program_have_different_ids():
    """Host functions make several graphs of a program; each counts its nodes from 0."""
    _, _, trace = run_of("pipeline", "graph")
    nodes = trace.spans.select(trace.spans.graph_node >= 0)
    assert len(np.unique(nodes.correlation)) > 1
    assert len(np.unique(nodes.graph_node)) == len(nodes)
    assert not incomplete_replays(trace.spans)
    assert not summary(trace).at_least


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_launch_computes_is_shared_out_among_its_kernels(engine):
    prepared, _, trace = run_of("conv-backward", engine)
    spans = trace.spans.of_kind(DEVICE_KINDS)
    for launch in prepared.program.launches():
        own = (spans.operation == launch.operation) & (spans.part == launch.part)
        assert (spans.flops[own].sum(), spans.bytes[own].sum()) == (launch.cost.flops, launch.cost.bytes)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_launch_without_a_record_is_told_and_the_others_stay_where_they_belong(engine):
    prepared, _, trace = run_of("branches", engine, kernels=1, lost={(2, 0)})
    spans = trace.spans.of_kind(DEVICE_KINDS)
    operations = [launch.operation for launch in prepared.program.launches()]
    operations.remove(2)
    assert sorted(spans.operation.tolist()) == operations
    assert any("1 launch without a record of CUPTI" in note for note in trace.info.notes)


def test_dropped_records_are_told():
    prepared = prepared_workload("branches", "async")
    host = timed_run(prepared)
    records = made_up(prepared, host)
    trace = RecordedRun(prepared, host, ActivityRecords(records.calls, records.work, dropped=7), CLOCK, call_name, THREAD).trace({}, {})
    assert "CUPTI dropped 7 records: busy time and overlap are lower bounds" in trace.info.notes
    assert trace.info.ledger["lost_records"] == 7
    assert "gpu_busy_us" in summary(trace).at_least


@pytest.mark.parametrize(("engine", "unrecorded", "told"), [("graph", 0.9, True), ("graph", 1.1, False), ("async", 0.5, False)])
def test_a_graph_that_takes_longer_under_cupti_than_the_run_without_is_told(engine, unrecorded, told):
    prepared = prepared_workload("branches", engine)
    host = timed_run(prepared)
    records = made_up(prepared, host)
    graph_of(prepared, 2)
    extent_ns = records.work["end_ns"].max() - records.work["start_ns"].min()
    ledger = {"unrecorded_ns": float(unrecorded * extent_ns)}
    notes = RecordedRun(prepared, host, records, CLOCK, call_name, THREAD).trace(ledger, {}).info.notes
    assert any("CUPTI changes gaps and overlap here" in note for note in notes) == told


def test_work_of_others_is_left_out():
    prepared = prepared_workload("branches", "async")
    host = timed_run(prepared)
    records = made_up(prepared, host)
    foreign = records.work.copy()
    foreign["correlation"] += 10_000
    both = ActivityRecords(records.calls, np.concatenate([records.work, foreign]), texts=records.texts)
    with_them, without = (RecordedRun(prepared, host, each, CLOCK, call_name, THREAD).trace({}, {}) for each in (both, records))
    assert np.array_equal(with_them.spans.start_ns, without.spans.start_ns)


def test_work_that_another_thread_launched_in_the_same_moment_is_left_out():
    prepared = prepared_workload("branches", "async")
    host = timed_run(prepared)
    records = made_up(prepared, host)
    calls, work = records.calls.copy(), records.work.copy()
    calls["thread"] += 1
    for rows in (calls, work):
        rows["correlation"] += 10_000
    both = ActivityRecords(np.concatenate([calls, records.calls]), np.concatenate([records.work, work]), texts=records.texts)
    with_them, without = (RecordedRun(prepared, host, each, CLOCK, call_name, THREAD).trace({}, {}) for each in (both, records))
    assert np.array_equal(with_them.spans.start_ns, without.spans.start_ns)


def test_kernels_that_begin_early_are_estimates_and_counted():
    prepared = prepared_workload("lstm", "async")
    host = timed_run(prepared)
    records = made_up(prepared, host, kernels=1)
    records.work["start_ns"][5] = records.work["end_ns"][4] - 3
    trace = RecordedRun(prepared, host, records, CLOCK, call_name, THREAD).trace({}, {})
    assert "1 kernel began before those ahead of them on their stream ended" in trace.info.notes
    assert (trace.spans.basis == Basis.PLACED).sum() == 1


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(200, 9_000)), min_size=1, max_size=30), st.integers(-99, 99), st.data())
def test_a_call_is_joined_with_its_step_though_the_clocks_differ_by_a_little(lengths, error, data):
    host, now = [], 0
    for gap, length in lengths:
        host.append(HostInterval(None, now + gap, now + gap + length))
        now += gap + length
    inside = [data.draw(st.integers(0, (one.end_ns - one.start_ns - 200) // 2)) for one in host]  # a call is a bit shorter than its step
    calls = np.zeros(len(host), ActivityRecords().calls.dtype)
    calls["thread"] = THREAD
    calls["start_ns"] = [one.start_ns + by + OFFSET + error for one, by in zip(host, inside, strict=True)]
    calls["end_ns"] = [one.end_ns - by + OFFSET + error for one, by in zip(host, inside, strict=True)]
    assert steps_of_calls(calls, host, CLOCK, THREAD).tolist() == list(range(len(host)))
