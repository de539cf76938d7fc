"""Times of kernels in a program's own runs, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.recording.test_events import of_launches, prepared_workload

from streamscope.analysis import busy_error_ns, gpu_busy_ns, overlap_error, overlap_fraction
from streamscope.devices.reference import Reference
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.plan import Replay
from streamscope.recording import events
from streamscope.recording.device_log import DeviceLogRecorder
from streamscope.recording.events import EventRecorder
from streamscope.recording.kernel_times import kernel_times
from streamscope.recording.timed_run import steps_of
from streamscope.trace.spans import DEVICE_KINDS, SpanBuilder, SpanKind


def run(*kernels):
    """Return one run: launch (step, operation), start, end, symbol and node of each kernel."""
    builder = SpanBuilder(["main", "aux"])
    for (step, operation), start, end, symbol, node in kernels:
        builder.add(
            SpanKind.KERNEL,
            "work",
            "aux" if symbol == "b" else "main",
            start,
            end,
            operation=operation,
            correlation=step,
            symbol=symbol,
            graph_node=node,
        )
    return builder.build()


def test_durations_are_the_medians_of_the_runs():
    runs = [
        run(
            ((3, 0), begin, begin + 10, "a", -1),
            ((3, 0), begin + 12, begin + 12 + length, "b", -1),
            ((4, 1), begin + 90, begin + 95, "c", -1),
        )
        for begin, length in ((0, 20), (1_000, 50), (7, 30))
    ]
    found = kernel_times(runs)
    assert [(piece.symbol, piece.start_ns, piece.end_ns) for piece in found.pieces[3, 0, 0]] == [("a", 0, 10), ("b", 12, 42)]
    assert [(piece.symbol, piece.start_ns, piece.end_ns) for piece in found.pieces[4, 1, 0]] == [("c", 0, 5)]
    assert found.transfers_ns == {(3, 0, 0): (32, 62), (4, 1, 0): (5, 5)}
    assert found.in_replay_ns == {}
    assert found.replays_ns == 0


def test_launches_of_a_replay_stand_where_they_stood_before_its_end():
    runs = [
        run(((5, 0), 0, 10, "a", 0), ((5, 1), 5, 30, "b", 1), ((5, 2), late, late + 20, "c", 2), ((6, 3), 500, 510, "d", 0))
        for late in (20, 40, 60)
    ]
    found = kernel_times(runs)
    assert found.in_replay_ns == {(5, 0, 0): (-60, -50), (5, 1, 0): (-55, -30), (5, 2, 0): (-20, 0), (6, 3, 0): (-10, 0)}
    assert found.replays_ns == 60 + 10


def test_of_a_graph_that_runs_in_several_ways_the_runs_that_are_alike_count():
    """By CUPTI on two H200, a program's five runs took 1,887, 1,892, 1,609, 1,622 and 1,895 µs, and only the first two were alike."""
    runs = [
        run(((2, 0), first, first + 40_000, "a", 1), ((2, 1), second, second + 50_000, "b", 2), ((2, 2), 190_000, 200_000, "c", 3))
        for first, second in ((0, 45_000), (200, 45_400), (60_000, 0), (80_000, 20_000), (100_000, 40_000))
    ]
    found = kernel_times(runs)
    assert found.in_replay_ns == {(2, 0, 0): (-199_900, -159_900), (2, 1, 0): (-154_800, -104_800), (2, 2, 0): (-10_000, 0)}
    assert found.replays_ns == 199_900


def test_where_no_two_runs_of_a_graph_are_alike_all_count():
    runs = [run(((2, 0), 0, 10_000, "a", 1), ((2, 1), length - 10_000, length, "b", 2)) for length in (400_000, 100_000, 130_000, 165_000)]
    assert kernel_times(runs).replays_ns == (130_000 + 165_000) / 2


def test_parts_of_a_collective_begin_as_far_ahead_of_the_one_launched_last_as_they_were_seen_to():
    def one(call, *begins):
        builder = SpanBuilder(["host", "gpu 0", "gpu 1"])
        builder.add(SpanKind.LAUNCH, "launch", "host", *call, correlation=7)
        for part, begin in enumerate(begins):
            builder.add(SpanKind.KERNEL, "part", f"gpu {part}", begin, begin + 500, operation=2, part=part, correlation=7)
        return builder.build()

    # In the last run, part 0 waits for its stream: that tells nothing.
    runs = [one((100, 200), 180, 150), one((0, 100), 90, 40), one((0, 100), 260, 30)]
    assert kernel_times(runs).leads == {(7, 2, 1): 0.4}


@pytest.mark.parametrize("longer_ns", [0, 30])
def test_a_part_of_a_collective_transfers_from_when_all_have_begun_whichever_waits(longer_ns):
    """On a loaded host either part of an all-to-all waited: the medians of its parts were 239 and 294 µs, and it transferred in 7."""

    def one(*lengths):
        builder = SpanBuilder(["gpu 0", "gpu 1"])
        for part, length in enumerate(lengths):
            end = 400 + part * longer_ns
            builder.add(SpanKind.KERNEL, "part", f"gpu {part}", 400 - length, end, operation=2, part=part, correlation=7)
        return builder.build()

    runs = [one(7, 300), one(9, 250), one(239, 8), one(260, 7), one(200, 294)]
    assert kernel_times(runs).transfers_ns == {(7, 2, 0): (7, 200), (7, 2, 1): (7, 200 + longer_ns)}


def test_runs_with_different_kernels_tell_nothing():
    assert kernel_times([run(((3, 0), 0, 10, "a", -1)), run(((3, 0), 0, 10, "b", -1))]) is None
    assert kernel_times([run(((3, 0), 0, 10, "a", -1)), run()]) is None


def seen_in_the_log(prepared):
    """Return what the device's own log knows of a run, as if CUPTI had recorded it."""
    log = SimulatedDevice.log.fget(prepared.device)
    spans = DeviceLogRecorder(prepared.device, log).record(prepared).spans
    replays = [index for index, bound in enumerate(steps_of(prepared)) if isinstance(bound.step, Replay)]
    inside = np.isin(spans.correlation, replays) & spans.is_kind(DEVICE_KINDS)
    return spans, kernel_times([replace(spans, graph_node=np.where(inside, np.arange(len(spans)), -1))] * 3)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("workload", ["branches", "conv-backward", "pipeline"])
def test_the_event_recorder_shows_launches_as_they_were_seen_beside_neighbours(workload, engine):
    prepared = prepared_workload(workload, engine)
    spans, seen = seen_in_the_log(prepared)
    trace = EventRecorder(prepared.device, 1, seen).record(prepared)
    expected, found = (times_of(one) for one in (spans, trace.spans))
    assert found.keys() == expected.keys()
    for key, (start, end) in expected.items():
        assert found[key][1] - found[key][0] == pytest.approx(end - start, abs=2)
    assert trace.info.calibration["by_cupti"] == 1
    assert busy_error_ns(trace) is overlap_error(trace) is None
    if engine == "graph-dual":
        assert overlap_fraction(trace.spans) == pytest.approx(overlap_fraction(spans), abs=0.01)


def times_of(spans):
    work = spans.of_kind(DEVICE_KINDS)
    columns = (column.tolist() for column in (work.operation, work.part, work.start_ns, work.end_ns))
    return of_launches(((operation, part), start, end) for operation, part, start, end in zip(*columns, strict=True))


def test_without_cupti_a_trace_says_how_far_its_durations_may_be_off(monkeypatch):
    prepared = prepared_workload("branches", "graph-dual")
    gpu = replace(prepared.device.info, kind="cuda")
    monkeypatch.setattr(SimulatedDevice, "info", property(lambda _: gpu))
    monkeypatch.setattr(events, "reference_kernel", lambda device: Reference(device.working_kernel_ns, device.working_kernel_ns, 60.0))
    trace = EventRecorder(prepared.device, 1).record(prepared)
    kernels = trace.spans.of_kind([SpanKind.KERNEL])
    share = 60 / kernels.duration_ns.mean() + events.BESIDE_ERROR
    assert busy_error_ns(trace) == pytest.approx(share * gpu_busy_ns(trace.spans))
    assert overlap_error(trace) == 0.1


@pytest.mark.parametrize(("engine", "told"), [("graph", 0), ("graph-dual", 1), ("dual", 0)])
def test_a_graph_with_streams_for_communication_says_how_far_exposed_shares_may_be_off(engine, told, monkeypatch):
    prepared = prepared_workload("data-parallel", engine)
    gpu = replace(prepared.device.info, kind="cuda")
    monkeypatch.setattr(SimulatedDevice, "info", property(lambda _: gpu))
    monkeypatch.setattr(events, "reference_kernel", lambda device: Reference(device.working_kernel_ns, device.working_kernel_ns, 60.0))
    trace = EventRecorder(prepared.device, 1).record(prepared)
    assert sum("exposed" in note for note in trace.info.notes) == told
