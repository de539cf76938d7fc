"""The event recorder against the simulated device's own log, which knows the truth."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.gates import SHIELD_NS, held, timed_event
from streamscope.devices.reference import Reference
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.program.launch import LaunchKind
from streamscope.recording import events, passes
from streamscope.recording.calibration import Clock, align_clocks, calibrate
from streamscope.recording.device_log import DeviceLogRecorder
from streamscope.recording.events import EventRecorder, ended_together, launched_ns
from streamscope.recording.kernel_times import kernel_times, key_of
from streamscope.recording.timed_run import HostInterval, steps_of
from streamscope.trace.spans import Basis, SpanKind
from streamscope.workloads import WORKLOADS

SMALL = {
    "elementwise-chain": {"length": 30, "size": 64},
    "conv-backward": {"channels": 16, "size": 16},
    "branches": {"branches": 3, "length": 5, "size": 65_536},
    "pipeline": {"chunks": 3, "size": 4096},
    "cnn": {"size": 6, "channels": 8, "blocks": 1},
    "attention": {"length": 5, "heads": 2, "depth": 4},
    "lstm": {"steps": 2, "width": 4},
    "resnet-block": {"size": 3, "channels": 2},
    "resnet50-v2": {"size": 33, "depth": 1, "width": 8},
    "transformer": {"layers": 1, "heads": 2, "depth": 3, "length": 4, "half": 0},
    "data-parallel": {"layers": 2, "width": 16, "rows": 4},
    "tensor-parallel": {"blocks": 1, "width": 64, "tokens": 3},
    "pipeline-parallel": {"layers": 1, "width": 16, "rows": 3, "batches": 3},
    "expert-parallel": {"blocks": 1, "width": 16, "tokens": 2},
}


def prepared_workload(name: str, engine: str, kind: type[SimulatedDevice] = SimulatedDevice) -> Prepared:
    function, inputs = WORKLOADS[name].build(**SMALL[name])
    traced = function.trace(*inputs)
    prepared = prepare_traced(traced, engine, kind(gpus=traced.gpus))
    for _ in range(3):
        prepared.load(inputs)
        prepared.run()
        prepared.wait()
    return prepared


def truth(prepared: Prepared) -> dict[tuple[int, int], tuple[float, float]]:
    """Return start and end of each launch of an unrecorded run, since its first call."""
    device = prepared.device
    device.log.clear()
    device.log.enabled = True
    start = device.now_ns()
    prepared.run()
    prepared.wait()
    return of_launches(((record.operation, record.part), record.start_ns - start, record.end_ns - start) for record in device.log)


def of_launches(kernels):
    """Return from when to when the kernels of each launch ran."""
    found = {}
    for key, start, end in kernels:
        first, last = found.get(key, (start, end))
        found[key] = (min(first, start), max(last, end))
    return found


def device_spans(trace, basis=None):
    spans = trace.spans.of_kind([SpanKind.KERNEL, SpanKind.COPY])
    spans = spans if basis is None else spans.select(spans.basis == basis)
    columns = zip(spans.operation, spans.part, spans.start_ns, spans.end_ns, strict=True)
    return of_launches(((int(operation), int(part)), int(start), int(end)) for operation, part, start, end in columns)


@cache
def truth_alone(workload: str) -> dict[tuple[int, int], tuple[float, float]]:
    """Return `truth` under the synchronous engine, where nothing runs beside others."""
    return truth(prepared_workload(workload, "sync"))


# Two engines for each workload, others for the next.
@pytest.mark.parametrize(
    ("workload", "engine"),
    [(name, [*ENGINES][(2 * number + other) % len(ENGINES)]) for number, name in enumerate(WORKLOADS) for other in (0, 1)],
)
def test_every_launch_has_a_span_as_long_as_it_truly_takes(workload, engine):
    prepared = prepared_workload(workload, engine)
    found = device_spans(EventRecorder.on(prepared.device).record(prepared))
    # Beside others a launch may take longer than alone: the recorder shows what it takes alone, as under the synchronous engine.
    expected = truth_alone(workload)
    assert found.keys() == expected.keys()
    # Parts of collectives wait for each other, as long as the run lets them.
    alone = expected.keys() - {(one.operation, one.part) for one in prepared.program.launches() if one.collective is not None}
    assert all(found[key][1] - found[key][0] == pytest.approx(expected[key][1] - expected[key][0], abs=2) for key in alone)


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
@pytest.mark.parametrize("workload", ["data-parallel", "tensor-parallel", "expert-parallel"])
def test_parts_of_a_collective_begin_and_end_in_a_graph_when_they_truly_do(workload, engine):
    prepared = prepared_workload(workload, engine)
    trace = EventRecorder.on(prepared.device).record(prepared)
    found, expected = device_spans(trace), truth(prepared)
    parts = {(one.operation, one.part) for one in prepared.program.launches() if one.collective is not None}
    shift = np.median([found[key][1] - expected[key][1] for key in parts])
    for key in parts:  # Events tell when a collective could begin; behind a kernel, it does 3.5 µs later.
        assert found[key] == pytest.approx([time + shift for time in expected[key]], abs=5000)
    assert trace.collectives.span.size == len(parts)
    assert set(trace.gpus) == {0, 1}


def test_nccl_launches_the_parts_of_a_collective_at_the_end_of_its_call_the_first_one_last():
    call = HostInterval(None, 0, 60_000)
    assert [launched_ns(part, call) for part in range(3)] == pytest.approx([53_100, 45_100, 37_100])
    assert launched_ns(3, HostInterval(None, 100, 8_000)) == 100


def test_a_waiting_part_of_a_collective_shows_its_waiting():
    @ss.program
    def late(x, y):
        with ss.gpu(1):
            for _ in range(20):
                y = ss.ops.tanh(y)
        return tuple(ss.ops.all_reduce([ss.ops.tanh(x), y]))

    traced = late.trace(*np.ones((2, 1 << 22), "float32"))
    prepared = prepare_traced(traced, "async", SimulatedDevice(gpus=2))
    prepared.load([*np.ones((2, 1 << 22), "float32")])
    prepared.run()
    trace = EventRecorder.on(prepared.device).record(prepared)
    (operation,) = [one.id for one in traced.operations if one.collective is not None]
    (start, end), (late_start, late_end) = (device_spans(trace)[operation, part] for part in range(2))
    assert late_start - start > 15_000
    assert end == pytest.approx(late_end, abs=2000)


@pytest.mark.parametrize(("returned", "expected"), [(90, [100.0, 104.0]), (130, [100.0, 101.5])])
def test_a_collective_that_ended_before_its_events_were_recorded_ends_as_it_does_first(returned, expected):
    prepared = prepared_workload("data-parallel", "async")
    steps = steps_of(prepared)
    parts = [index for index, bound in enumerate(steps) if passes.is_part(bound.step)][:2]
    host = [HostInterval(bound.step, 0, 80) for bound in steps[: parts[1] + 1]] + [HostInterval(None, returned, 200)]
    natural = passes.NaturalPass(host, dict(zip(parts, (102.0, 106.0), strict=True)), Clock(prepared.device, None, 0.0, 1.5), 200)
    assert list(ended_together(steps, natural, 2.0).values()) == expected


@pytest.mark.parametrize("late_ns", [-9_000, 9_000, 200_000])
def test_a_collective_takes_no_longer_than_was_seen_and_no_less_however_late_its_events_are(late_ns):
    """Events of a loaded host told of all-to-alls of 0.2 ms, which take 7 µs; no other GPU waits for an event."""
    prepared = prepared_workload("data-parallel", "async")
    log = DeviceLogRecorder(prepared.device, prepared.device.log).record(prepared)
    seen = kernel_times([log.spans])
    bounds = {key: (own - 500, own + 1_000) for key, (own, _) in seen.transfers_ns.items()}
    recorder = replace(EventRecorder.on(prepared.device), seen=replace(seen, transfers_ns=bounds))
    natural = passes.natural_pass(prepared)
    parts = [index for index, bound in enumerate(steps_of(prepared)) if passes.is_part(bound.step)]
    late = replace(natural, ends_ns=natural.ends_ns | {index: natural.ends_ns[index] + late_ns for index in parts})
    calibration = calibrate(prepared.device)
    there, moved = ({key_of_placed(one): one for one in recorder.placed(prepared, each, calibration)} for each in (natural, late))
    for key, one in moved.items():
        if passes.is_part(one.step):
            others = [other for other in moved.values() if other.correlation == key[0]]
            shortest_ns, longest_ns = bounds[key]
            transfer_ns = one.end_ns - max(other.start_ns for other in others)
            assert transfer_ns == pytest.approx(longest_ns if late_ns > 0 else shortest_ns, abs=1)
            if late_ns > 0:
                assert one.start_ns == pytest.approx(there[key].start_ns, abs=1)


@pytest.mark.parametrize("early_ns", [0, 3000])
def test_a_part_begins_as_far_ahead_of_the_one_launched_last_as_it_was_seen_to(early_ns):
    """The end of part 0, which is launched last, tells that it began earlier than its call does: then the others did, too."""
    prepared = prepared_workload("data-parallel", "sync")
    log = DeviceLogRecorder(prepared.device, prepared.device.log).record(prepared)
    seen, steps, natural = kernel_times([log.spans]), steps_of(prepared), passes.natural_pass(prepared)
    keys = {index: key_of(bound, index) for index, bound in enumerate(steps) if passes.is_part(bound.step)}
    recorder = replace(EventRecorder.on(prepared.device), seen=replace(seen, leads={key: 0.3 for key in keys.values() if key[2]}))
    calibration = calibrate(prepared.device)
    ends = dict(natural.ends_ns)
    for index, key in keys.items():
        if key[2] == 0:
            ends[index] = launched_ns(0, natural.host[key[0]]) - early_ns + seen.transfers_ns[key][0] + calibration.end_latency_ns
    placed = recorder.placed(prepared, replace(natural, ends_ns=ends), calibration)
    found = {key_of_placed(one): one.start_ns for one in placed if passes.is_part(one.step)}
    for call, operation, part in keys.values():
        called = natural.host[call]
        ahead_ns = 0.3 * (called.end_ns - called.start_ns) if part else 0.0
        assert found[call, operation, part] == pytest.approx(launched_ns(0, called) - early_ns - ahead_ns, abs=1)


@pytest.mark.parametrize(("replays_ns", "shown"), [(0, 130), (125, 130), (131, 150), (151, 170), (200, 130)])
def test_the_pass_with_the_median_makespan_is_shown_or_the_next_that_is_as_long_as_its_graphs(replays_ns, shown):
    """Some programs run in two ways: one of 1.68 or 1.95 ms was seen in the longer one, and shown in the shorter one."""
    clock = Clock(SimulatedDevice(), None, 0.0, 1.5)
    runs = [passes.NaturalPass([HostInterval(None, 0, length)], {}, clock, 0) for length in (170, 110, 150, 130, 120)]
    assert events._shown(runs, replays_ns).makespan_ns == shown


@pytest.mark.parametrize(("workload", "engine", "longer"), [("branches", "graph-dual", True), ("elementwise-chain", "graph", False)])
def test_a_graph_without_branches_runs_in_one_way_however_long_cupti_saw_it(workload, engine, longer, monkeypatch):
    prepared = prepared_workload(workload, engine)
    seen = kernel_times([DeviceLogRecorder(prepared.device, prepared.device.log).record(prepared).spans])
    told = []
    monkeypatch.setattr("streamscope.recording.events._shown", lambda passes, replays_ns: told.append(replays_ns) or passes[0])
    replace(EventRecorder.on(prepared.device), seen=seen).record(prepared)
    assert told == [seen.replays_ns if longer else 0.0]


@pytest.mark.parametrize(("engine", "told", "noted"), [("graph-dual", False, True), ("graph-dual", True, False), ("graph", False, False)])
def test_a_recording_says_how_far_exposed_shares_may_be_off_where_cupti_tells_nothing(engine, told, noted, monkeypatch):
    prepared = prepared_workload("data-parallel", engine)
    log = DeviceLogRecorder(prepared.device, prepared.device.log).record(prepared)
    gpu = replace(prepared.device.info, kind="cuda")
    monkeypatch.setattr(SimulatedDevice, "info", property(lambda _: gpu))
    monkeypatch.setattr(events, "reference_kernel", lambda device: Reference(device.working_kernel_ns, device.working_kernel_ns))
    recorder = replace(EventRecorder.on(prepared.device), passes=1, seen=kernel_times([log.spans]) if told else None)
    assert any("exposed share" in note for note in recorder.record(prepared).info.notes) is noted


def key_of_placed(one):
    return one.correlation, one.step.launch.operation, one.step.launch.part


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
@pytest.mark.parametrize("workload", ["data-parallel", "expert-parallel"])
def test_a_graph_over_several_gpus_ends_with_its_last_launch(workload, engine):
    prepared = prepared_workload(workload, engine)
    log = prepared.device.log
    log.clear()
    log.enabled = True
    natural = passes.natural_pass(prepared)
    (replay,) = [bound for bound in prepared.bound if bound.graph is not None]
    # Its GPUs join after its last launch.
    (end,) = [index for index, bound in enumerate(steps_of(prepared)) if bound is replay]
    last_ns = max(one.end_ns for one in log)
    assert natural.ends_ns[end] == pytest.approx(last_ns, abs=natural.clock.uncertainty_ns + 1000)


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
@pytest.mark.parametrize("workload", ["elementwise-chain", "branches", "conv-backward"])
def test_launches_of_a_graph_end_when_they_truly_end(workload, engine, monkeypatch):
    monkeypatch.setattr(passes, "MOST_EXACT_VARIANTS", 1000)
    prepared = prepared_workload(workload, engine)
    trace = EventRecorder.on(prepared.device).record(prepared)
    found, expected = device_spans(trace), truth(prepared)
    shift = np.median([found[key][1] - expected[key][1] for key in expected])
    assert abs(shift) <= trace.info.calibration["clock_uncertainty_ns"] + trace.info.calibration["end_latency_ns"]
    for key, (_, end) in expected.items():
        assert found[key][1] - shift == pytest.approx(end, abs=300)


@pytest.mark.parametrize("workload", ["branches", "pipeline", "conv-backward"])
def test_generated_kernels_take_longer_in_graphs_of_a_gpu(workload, monkeypatch):
    prepared = prepared_workload(workload, "graph")
    recorder = EventRecorder.on(prepared.device)
    alone = device_spans(recorder.record(prepared))
    gpu = replace(prepared.device.info, kind="cuda")
    monkeypatch.setattr(SimulatedDevice, "info", property(lambda _: gpu))
    monkeypatch.setattr(events, "reference_kernel", lambda device: Reference(device.working_kernel_ns, device.working_kernel_ns + 125))
    assert not prepared.device.info.exact
    found = device_spans(recorder.record(prepared))
    launches = {(launch.operation, launch.part): launch for launch in prepared.program.launches()}
    for key, (start, end) in found.items():
        generated = launches[key].kind is LaunchKind.KERNEL and not launches[key].library
        assert end - start == pytest.approx(alone[key][1] - alone[key][0] + 125 * generated, abs=3)


def test_the_delay_of_earlier_events_in_a_shared_variant_is_taken_off(monkeypatch):
    monkeypatch.setattr(passes, "MOST_EXACT_VARIANTS", 5)
    prepared = prepared_workload("elementwise-chain", "graph")
    found, expected = device_spans(EventRecorder.on(prepared.device).record(prepared)), truth(prepared)
    shifts = [found[key][1] - expected[key][1] for key in expected]
    assert max(shifts) - min(shifts) < 300


@pytest.mark.parametrize("engine", ENGINES)
def test_every_span_of_the_device_has_its_launch_call(engine):
    prepared = prepared_workload("pipeline", engine)
    trace = EventRecorder.on(prepared.device).record(prepared)
    frame = trace.to_pandas()
    calls = frame[frame.kind.isin(["launch", "graph_launch"])].set_index("correlation")
    launched = frame[frame.kind.isin(["kernel", "copy"])]
    assert set(launched.correlation) == set(calls.index)
    starts = launched.correlation.map(calls.start_ns)
    assert (launched.end_ns > starts).all()


def test_spans_of_a_stream_or_of_a_branch_do_not_overlap():
    for engine in ENGINES:
        prepared = prepared_workload("branches", engine)
        frame = EventRecorder.on(prepared.device).record(prepared).to_pandas()
        for _, lane in frame[frame.kind == "kernel"].groupby("lane", observed=True):
            ordered = lane.sort_values("start_ns")
            assert (ordered.start_ns.to_numpy()[1:] - ordered.end_ns.to_numpy()[:-1]).min(initial=0) >= -2, engine


def test_a_trace_says_how_its_times_came_to_be_known():
    for engine, basis in (("async", Basis.DERIVED), ("graph", Basis.PLACED)):
        prepared = prepared_workload("elementwise-chain", engine)
        trace = EventRecorder.on(prepared.device).record(prepared)
        assert set(trace.spans.of_kind([SpanKind.KERNEL]).basis.tolist()) == {int(basis)}
        assert trace.info.device.kind == "simulated"
        assert 0 < trace.info.ledger["unrecorded_ns"] <= trace.info.ledger["recorded_ns"]


def test_the_results_are_still_right_after_recording():
    for engine in ENGINES:
        prepared = prepared_workload("branches", engine)
        before = prepared.outputs()
        EventRecorder.on(prepared.device).record(prepared)
        for one, other in zip(prepared.outputs(), before, strict=True):
            np.testing.assert_array_equal(one, other)


def test_readings_in_two_states_are_off_by_nothing_in_the_mean():
    """The excess is 2,400 ns at even places of a pass, 2,600 ns at odd ones; the reference kernel takes 800 ns, each launch 1,000."""
    readings = {index: 3400.0 + 200 * (index % 2) for index in range(8)}
    odd_one = {index: reading + 9000 * (index == 3) for index, reading in readings.items()}
    reference = [3200.0, 3400.0, 3200.0, 3400.0]
    found = passes.alone_ns([[passes.Readings(one, reference)] for one in (readings, odd_one, readings)], reference_kernel_ns=800)
    assert found == {index: 900.0 if index % 2 == 0 else 1100.0 for index in range(8)}
    assert passes.alone_ns([], reference_kernel_ns=800) == passes.alone_ns([[passes.Readings({}, [])]], reference_kernel_ns=800) == {}


@pytest.mark.parametrize("count", [1, 2, 12, 30])
def test_the_reference_kernel_is_timed_all_over_a_pass_for_kernels_and_for_copies(count):
    function, inputs = WORKLOADS["elementwise-chain"].build(length=count)
    device = SimulatedDevice()
    prepared = prepare_traced(function.trace(*inputs), "async", device)
    prepared.load(inputs)
    kernels, copies = passes.gated_pass(prepared, steps_of(prepared))
    assert len(kernels.launches_ns) == count
    bare_ns = device.model.event_pair_gated_excess_ns + device.working_kernel_ns
    assert kernels.reference_ns == pytest.approx([kernels.reference_ns[0]] * passes.REFERENCES, abs=1)
    assert SHIELD_NS < kernels.reference_ns[0] - bare_ns < SHIELD_NS + 2_000  # a gap between two kernels
    assert copies == passes.Readings({}, [])
    prepared = prepared_workload("pipeline", "async")
    kernels, copies = passes.gated_pass(prepared, steps_of(prepared))
    kinds = [launch.kind for launch in prepared.program.launches()]
    assert len(kernels.launches_ns) == kinds.count(LaunchKind.KERNEL)
    assert len(copies.launches_ns) == len(kinds) - len(kernels.launches_ns) > 0
    assert copies.reference_ns == pytest.approx([bare_ns] * passes.REFERENCES, abs=1)


def test_the_calibration_finds_the_models_excesses():
    device = SimulatedDevice()
    found = calibrate(device)
    assert found.queued_excess_ns == pytest.approx(device.model.event_pair_gated_excess_ns, abs=1)
    assert found.graph_excess_ns == pytest.approx(device.model.event_pair_graph_excess_ns, abs=1)
    assert found.empty_pair_ns == pytest.approx(device.model.event_pair_empty_ns, abs=1)


def test_the_clock_is_aligned_within_its_stated_uncertainty():
    device = SimulatedDevice()
    stream = device.stream("main")
    clock = align_clocks(device, [stream])
    event = device.event(timing=True)
    before = device.now_ns()
    stream.record(event)
    stream.synchronize()
    assert before - clock.uncertainty_ns <= clock.host_ns(event) <= device.now_ns() + clock.uncertainty_ns


def test_each_kernel_that_is_timed_follows_one_of_another_kind_and_a_shield():
    prepared = prepared_workload("branches", "async")
    log = prepared.device.log
    log.clear()
    log.enabled = True
    passes.gated_pass(prepared, steps_of(prepared))
    names = [record.name for record in log]
    own = {launch.name for launch in prepared.program.launches()} | {"add"}  # The reference is an addition.
    (primer,) = set(names) - own - {"shield"}
    shields = [place for place, name in enumerate(names) if name == "shield"]
    assert len(shields) == len(list(prepared.program.launches())) + passes.REFERENCES
    assert {names[place - 1] for place in shields} == {primer}
    assert {names[place + 1] for place in shields} == own
    before = [names[place - 2] for place in shields if names[place + 1] == "add" and names[place - 2] == "add"]
    assert len(before) >= passes.REFERENCES  # The reference has run right before.


def test_the_clocks_of_several_gpus_agree_on_the_moment_when_one_gate_opens():
    device = SimulatedDevice(gpus=3)
    streams = [device.stream("main", gpu=gpu) for gpu in range(3)]
    clock = align_clocks(device, streams)
    events = [timed_event(device, stream) for stream in streams]
    before = device.now_ns()
    with held(device, streams):
        for stream, event in zip(streams, events, strict=True):
            stream.record(event)
    device.synchronize()
    times = [clock.host_ns(event) for event in events]
    assert max(times) - min(times) <= 2 * len(streams) * device.model.event_record_ns  # The host does not sleep here.
    assert all(before - clock.uncertainty_ns <= time <= device.now_ns() + clock.uncertainty_ns for time in times)
