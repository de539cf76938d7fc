"""The event recorder against CUPTI on a real GPU."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.cost_model import CostModel
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import prepare_traced
from streamscope.recording.calibration import calibrate
from streamscope.recording.events import EventRecorder
from streamscope.trace.spans import SpanKind
from streamscope.workloads import WORKLOADS

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device():
    return ss.open_device("cuda")


def warm(function, inputs, engine, device):
    prepared = prepare_traced(function.trace(*inputs), engine, device)
    prepared.load(inputs)
    for _ in range(3):
        prepared.run()
        prepared.wait()
    return prepared


def durations_us(trace):
    """Return how long each kernel took, by operation, part, and place among the kernels of its launch."""
    spans, found = trace.spans.of_kind([SpanKind.KERNEL]), {}
    for operation, part, duration in zip(spans.operation.tolist(), spans.part.tolist(), spans.duration_ns.tolist(), strict=True):
        place = sum(key[:2] == (operation, part) for key in found)
        found[operation, part, place] = duration / 1e3
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_kernel_durations_agree_with_cupti(device, engine):
    pytest.importorskip("cupti")
    from streamscope.recording.cupti import CuptiRecorder

    function, inputs = WORKLOADS["cnn"].build()
    prepared = warm(function, inputs, engine, device)
    found = durations_us(EventRecorder.on(device).record(prepared))
    runs = [durations_us(CuptiRecorder.on(device).record(prepared)) for _ in range(5)]
    expected = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
    assert found.keys() == expected.keys()
    errors = [abs(found[key] - value) - max(0.3, 0.05 * value) for key, value in expected.items()]
    assert np.median(errors) <= 0


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("workload", ["attention", "resnet-block", "pipeline", "lstm"])
def test_cupti_and_events_see_the_same_kernels_under_the_same_launches(device, engine, workload):
    pytest.importorskip("cupti")
    from streamscope.recording.cupti import CuptiRecorder

    function, inputs = WORKLOADS[workload].build()
    prepared = warm(function, inputs, engine, device)
    seen = []
    for recorder in (EventRecorder.on(device), CuptiRecorder.on(device)):
        trace = recorder.record(prepared)
        assert not [note for note in trace.info.notes if "without a record" in note]
        frame = trace.to_pandas()
        work = frame[frame.kind.isin(["kernel", "copy", "set"])]
        columns = ["operation", "part", "correlation", "kind", "lane", "blocks", "threads", "graph_node"]
        seen.append(sorted(map(tuple, work[columns].astype({"kind": str, "lane": str}).values.tolist())))
        launches = frame[frame.kind.isin(["launch", "graph_launch"])].set_index("correlation")
        assert set(work.correlation) <= set(launches.index)
    assert seen[0] == seen[1]


def test_after_a_recording_cupti_has_left(device):
    pytest.importorskip("cupti")
    from streamscope.recording.cupti import CuptiRecorder
    from streamscope.recording.subscription import is_attached

    function, inputs = WORKLOADS["cnn"].build()
    prepared = warm(function, inputs, "graph", device)
    expected = prepared.outputs()
    CuptiRecorder.on(device).record(prepared)
    assert not is_attached()
    prepared.run()
    prepared.wait()
    assert all(np.array_equal(a, b) for a, b in zip(prepared.outputs(), expected, strict=True))


def test_a_comparison_by_cupti_with_a_ledger(device):
    pytest.importorskip("cupti")
    function, inputs = WORKLOADS["branches"].build()
    runs = ss.compare(
        function, *inputs, engines="async,graph-dual", device=device, repeats=3, progress=False, recorder="cupti", ledger=True
    )
    for run in runs.values():
        assert run.trace.info.recorder == "cupti"
        assert {"events_ns", "cupti_ns", "recorded_ns", "unrecorded_ns"} <= run.trace.info.ledger.keys()


@pytest.mark.parametrize("engine", ENGINES)
def test_every_launch_is_recorded_and_nothing_runs_before_it_is_called(device, engine):
    function, inputs = WORKLOADS["pipeline"].build()
    prepared = warm(function, inputs, engine, device)
    trace = EventRecorder.on(device).record(prepared)
    frame = trace.to_pandas()
    launched = frame[frame.kind.isin(["kernel", "copy"])]
    expected = {(launch.operation, launch.part) for launch in prepared.program.launches()}
    assert set(zip(launched.operation, launched.part, strict=True)) == expected
    calls = frame[frame.kind.isin(["launch", "graph_launch"])].set_index("correlation").start_ns
    assert (launched.start_ns >= launched.correlation.map(calls) - 1).all()


def test_the_calibration_is_of_the_size_that_was_measured(device):
    calibrate(device)
    found = calibrate(device)
    assert 1_000 < found.queued_excess_ns < 5_000
    assert 1_000 < found.empty_pair_ns < min(found.queued_excess_ns, found.graph_excess_ns)  # 1.5 to 3 µs, by the host.


def test_a_cost_model_can_be_measured(tmp_path):
    pytest.importorskip("cupti")
    # In a process of its own: in this one CUPTI is subscribed, and a graph of 1,000 nodes then blocks the host behind a gate.
    target = tmp_path / "model.json"
    done = subprocess.run(
        [sys.executable, "-m", "streamscope", "calibrate", "--out", str(target)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "measuring graphs" in done.stderr
    model = CostModel.load(target)
    assert model.null_kernel_ns < model.working_kernel_ns < 3_000
    assert model.memory_gb_s > 100
