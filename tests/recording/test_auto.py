"""Which recorder tells what, by default: events, what CUPTI saw, or stamps."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from tests.recording.test_events import prepared_workload
from tests.recording.test_kernel_times import seen_in_the_log

from streamscope.devices import reference
from streamscope.devices.reference import GRAPH_GAP_NS, QUEUED_NS, reference_kernel
from streamscope.devices.simulated import SimulatedDevice
from streamscope.errors import RecordingError
from streamscope.recording import auto
from streamscope.recording.auto import AutoRecorder
from streamscope.recording.recorders import recorder_of
from streamscope.trace.spans import SpanKind


class Cupti:
    """Says what the device's own log knows; a run without it takes ``unrecorded`` times as long as its graphs."""

    refused, lost, unrecorded = False, 0, 1.0

    def on(self, _device):
        if self.refused:
            raise RecordingError("CUPTI is not permitted")
        return self

    def runs(self, prepared, _reload, *, beside_others, gated):
        assert not beside_others  # Nobody asked for CUPTI: the records of another profiler are not taken.
        assert gated == (prepared.program.gpus > 1)
        spans, self.seen = seen_in_the_log(prepared)
        run = SimpleNamespace(spans=lambda: spans, lost=self.lost, replays_ns=self.seen.replays_ns)
        return self.unrecorded * self.seen.replays_ns, [run, *self.others(run)]

    def others(self, run):
        return [run] * 2


@pytest.fixture
def cupti(monkeypatch):
    made = Cupti()
    monkeypatch.setattr(auto, "CuptiRecorder", made)
    monkeypatch.setattr(auto, "StampRecorder", lambda _: SimpleNamespace(record=lambda *_: "by stamps"))
    monkeypatch.setattr(SimulatedDevice, "tuned", None, raising=False)
    monkeypatch.setattr(auto, "kernel_times", lambda _: made.seen)
    return made


def recorded(workload, engine):
    prepared = prepared_workload(workload, engine)
    return AutoRecorder(prepared.device).record(prepared)


@pytest.mark.parametrize(
    ("workload", "engine"), [*product(["branches"], ["async", "graph", "graph-dual"]), ("data-parallel", "graph-dual")]
)
def test_what_cupti_saw_counts_where_it_can_be_had(cupti, workload, engine):
    assert recorded(workload, engine).info.calibration["by_cupti"] == 1


def test_stamps_tell_of_branches_that_cupti_stretches_and_events_of_chains(cupti):
    cupti.unrecorded = 0.9
    assert recorded("branches", "graph-dual") == "by stamps"
    assert recorded("branches", "graph").info.calibration["by_cupti"] == 1


@pytest.mark.parametrize(("unrecorded", "told"), [(0.98, True), (1 / 1.14, True), (1 / 1.16, False)])
def test_graphs_over_several_gpus_that_cupti_stretches_a_little_are_shortened(cupti, monkeypatch, unrecorded, told):
    """By events alone, the overlap of `pipeline-parallel` on two H200 was 13 to 36 points off."""
    monkeypatch.setattr(auto, "_AROUND_NS", 0.0)  # The program takes 29 µs.
    cupti.unrecorded = unrecorded
    shortened = told and unrecorded < 0.97
    trace = recorded("data-parallel", "graph-dual")
    assert trace.info.calibration["by_cupti"] == told
    assert any("shortened" in note for note in trace.info.notes) is shortened
    (graph,) = trace.spans.of_kind([SpanKind.GRAPH]).duration_ns.tolist()
    if told:
        assert graph == pytest.approx((unrecorded if shortened else 1) * cupti.seen.replays_ns, rel=1e-3)


@pytest.mark.parametrize(
    ("right", "factor", "expected"),
    [
        (3, 2.0, 1.0),
        (2, 2.0, 1.0),
        (1, 2.0, None),
        (1, 1.1, None),
        (1, 1.05, None),
        (2, 0.5, 1.0),
        (1, 0.5, 0.5),
    ],  # A shorter run is one without CUPTI's delays.
)
def test_of_a_program_that_runs_in_two_ways_the_runs_as_long_as_without_cupti_count(cupti, monkeypatch, right, factor, expected):
    def others(run):
        lengths_ns = [run.replays_ns] * right + [factor * run.replays_ns] * (5 - right)
        run.spans = lambda: run.replays_ns
        return [SimpleNamespace(spans=lambda one=one: one, lost=0, replays_ns=one) for one in lengths_ns[1:]]

    monkeypatch.setattr(auto, "kernel_times", lambda lengths_ns: replace(cupti.seen, replays_ns=float(np.median(lengths_ns))))
    monkeypatch.setattr(cupti, "others", others)
    monkeypatch.setattr(auto, "_AROUND_NS", 0.0)  # The program takes 29 µs.
    prepared = prepared_workload("data-parallel", "graph-dual")
    seen = AutoRecorder(prepared.device).checked(prepared).seen
    assert seen == (None if expected is None else replace(cupti.seen, replays_ns=expected * cupti.seen.replays_ns))


def test_a_run_just_as_long_as_without_cupti_is_no_other_way_than_runs_that_are_a_little_longer(cupti, monkeypatch):
    """On two H200, runs of `pipeline-parallel` took 1,054 to 1,090 µs under CUPTI, and 1,042 without; the bound is 1,073."""
    monkeypatch.setattr(auto, "kernel_times", lambda lengths_ns: replace(cupti.seen, replays_ns=float(np.median(lengths_ns))))
    lengths_ns = (1_072e3, 1_078e3, 1_080e3, 1_089e3, 1_090e3)
    runs = [SimpleNamespace(spans=lambda one=one: one, lost=0, replays_ns=one) for one in lengths_ns]
    prepared = prepared_workload("data-parallel", "graph-dual")
    cupti.runs = lambda prepared, _reload, **_: (vars(cupti).update(seen=seen_in_the_log(prepared)[1]), (1_042e3, runs))[1]
    assert AutoRecorder(prepared.device).checked(prepared).seen.unrecorded_share == pytest.approx(1_042 / 1_080)


def test_events_around_a_graph_may_say_some_us_more_than_cupti(cupti, monkeypatch):
    """Events say 300 µs. Runs of 288 µs are as long by CUPTI, and count beside those of 306."""
    monkeypatch.setattr(auto, "kernel_times", lambda lengths_ns: replace(cupti.seen, replays_ns=float(np.median(lengths_ns))))
    runs = [SimpleNamespace(spans=lambda one=one: one, lost=0, replays_ns=one) for one in (287e3, 288e3, 288e3, 305e3, 306e3)]
    prepared = prepared_workload("data-parallel", "graph-dual")
    cupti.runs = lambda prepared, _reload, **_: (vars(cupti).update(seen=seen_in_the_log(prepared)[1]), (300e3, runs))[1]
    assert AutoRecorder(prepared.device).checked(prepared).seen.replays_ns == 288e3


@pytest.mark.parametrize("what", [{"refused": True}, {"lost": 1}])
def test_without_cupti_stamps_tell_what_they_can(cupti, what):
    vars(cupti).update(what)
    assert recorded("branches", "async") == "by stamps"
    assert recorded("conv-backward", "async").info.calibration["by_cupti"] == 0  # It has no kernel that could stamp.


def test_a_gpu_is_recorded_so_by_default(monkeypatch):
    gpu = replace(SimulatedDevice().info, kind="cuda")
    monkeypatch.setattr(SimulatedDevice, "info", property(lambda _: gpu))
    monkeypatch.setattr(SimulatedDevice, "log", None)
    assert isinstance(recorder_of(SimulatedDevice()), AutoRecorder)


@pytest.mark.parametrize(
    ("name", "cost_model", "queued_ns"), [("H100 PCIe", "H200", QUEUED_NS["H100"]), ("A100", "A100", 857.0), ("A100", "H200", None)]
)
def test_the_reference_kernel_is_measured_without_cupti(monkeypatch, name, cost_model, queued_ns):
    device = SimulatedDevice()
    assert reference_kernel(device).queued_ns == device.working_kernel_ns  # Its times are exact.
    info = replace(device.info, kind="cuda", name=name, details={"cost_model_of": cost_model})
    monkeypatch.setattr(SimulatedDevice, "info", property(lambda _: info))
    found = reference_kernel(device)
    model = device.model
    assert found.in_graph_ns == pytest.approx(model.working_kernel_ns + model.graph_node_gap_ns - GRAPH_GAP_NS, abs=5)
    assert found.queued_ns == (queued_ns or found.in_graph_ns)
    assert found.error_ns == (reference.KNOWN_TO_NS if queued_ns else reference.UNKNOWN_TO_NS)
    assert reference_kernel(device) is found
