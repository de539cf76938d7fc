"""The recorder of simulated devices."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.recording.test_events import device_spans, prepared_workload, truth

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.recording.recorders import recorder_of
from streamscope.trace.spans import Basis, SpanKind
from streamscope.workloads import WORKLOADS


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_it_shows_what_an_unrecorded_run_does(workload, engine):
    prepared = prepared_workload(workload, engine)
    trace = recorder_of(prepared.device).record(prepared)
    found, expected = device_spans(trace), truth(prepared)
    assert found.keys() == expected.keys()
    for key, times in expected.items():
        assert found[key] == pytest.approx(times, abs=2)
    assert set(trace.spans.of_kind([SpanKind.KERNEL]).basis.tolist()) == {int(Basis.MEASURED)}


def test_a_simulated_comparison_is_recorded_by_it_and_recording_costs_nothing():
    function, inputs = WORKLOADS["elementwise-chain"].build(length=20)
    comparison = ss.compare(function, *inputs, device="simulated", progress=False)
    assert {run.trace.info.recorder for run in comparison.values()} == {"device log"}
    assert {run.metrics.recording_cost for run in comparison.values()} == {1.0}
    extent = comparison["async"].trace.spans.end_ns.max()
    assert extent == pytest.approx(np.median(comparison["async"].makespans_ns), rel=0.02)


def test_a_host_function_may_let_another_thread_use_the_device_and_its_work_is_not_recorded():
    device, x = SimulatedDevice(), np.ones(8, np.float32)
    other = ss.prepare(doubled.trace(x), engine="async", device=device)

    def lets_another_work(values):
        thread = threading.Thread(target=lambda: (other.load([x]), other.run(), other.wait()), daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        return values

    host = ss.host_function(lets_another_work)
    prepared = ss.prepare(ss.program(lambda x: ss.ops.to_device(host(ss.ops.to_host(x + x)))).trace(x), engine="async", device=device)
    for _ in range(2):
        prepared.load([x])
        prepared.run()
        prepared.wait()
    trace = recorder_of(device).record(prepared)
    kinds = [SpanKind(kind) for kind in trace.spans.kind]
    assert (kinds.count(SpanKind.KERNEL), kinds.count(SpanKind.COPY), kinds.count(SpanKind.HOST)) == (1, 2, 1)


@ss.program
def doubled(x):
    return x + x


@pytest.mark.parametrize(("recorder", "told"), [("auto", False), ("events", False), ("stamps", True), ("cupti", True)])
def test_a_recorder_of_gpus_that_was_asked_for_is_told(recorder, told):
    prepared = prepared_workload("branches", "async")
    trace = recorder_of(prepared.device, recorder).record(prepared)
    assert trace.info.recorder == "device log"
    assert any(f'recorder="{recorder}" is for GPUs' in note for note in trace.info.notes) == told


@pytest.mark.parametrize(("workload", "count"), [("conv-backward", "2 convolutions"), ("attention", ""), ("branches", "")])
def test_times_of_convolutions_are_called_rough_and_those_of_other_kernels_are_not(workload, count):
    prepared = prepared_workload(workload, "graph")
    notes = [note for note in recorder_of(prepared.device).record(prepared).info.notes if "rough" in note]
    assert [note.startswith(f"times of {count} are rough") for note in notes] == [True] * bool(count)
