"""The event recorder against CUPTI on a real GPU."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.cost_model import CostModel
from streamscope.engines import PLANNERS
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
    spans = trace.spans.of_kind([SpanKind.KERNEL])
    return {(int(o), int(p)): d / 1e3 for o, p, d in zip(spans.operation, spans.part, spans.duration_ns, strict=True)}


@pytest.mark.parametrize("engine", PLANNERS)
def test_kernel_durations_agree_with_cupti(device, engine):
    pytest.importorskip("cupti")
    from streamscope.recording.cupti import CuptiRecorder

    function, inputs = WORKLOADS["cnn"].build()
    prepared = warm(function, inputs, engine, device)
    found = durations_us(EventRecorder.on(device).record(prepared))
    runs = [durations_us(trace) for trace in CuptiRecorder(device).record(prepared, 5)]
    expected = {key: float(np.median([run[key] for run in runs])) for key in runs[0]}
    assert found.keys() == expected.keys()
    errors = [abs(found[key] - value) - max(0.3, 0.05 * value) for key, value in expected.items()]
    assert np.median(errors) <= 0


@pytest.mark.parametrize("engine", PLANNERS)
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
    assert 1_000 < found.alone_excess_ns < 5_000
    assert 1_000 < found.empty_pair_ns < 2_000


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
