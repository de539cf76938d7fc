"""Arrays without elements: what writes nothing else puts nothing on a stream, and no trace counts it."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.analysis import kernel_count, missing_records
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines import PLANNERS
from streamscope.engines.prepared import prepare
from streamscope.program.reference import run_reference
from streamscope.recording.device_log import DeviceLogRecorder
from streamscope.recording.events import EventRecorder

X, NONE = np.arange(4, dtype=np.float32), np.zeros((0, 3), np.float32)


@ss.host_function
def on_host(values):
    """Is called with an empty array too."""
    return values + 1


@ss.program
def mixed(x, none):
    """Two kernels that do something, beside others, copies and a host step of empty arrays."""
    empty = ss.relu(ss.add(none, none))
    back = ss.to_device(on_host(ss.to_host(empty)))
    return ss.add(x, x), ss.sum(ss.multiply(back, empty)), back


@ss.program
def nothing(none):
    """Only empty arrays."""
    return ss.relu(ss.add(none, none))


@pytest.mark.parametrize("device", ["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("engine", PLANNERS)
@pytest.mark.parametrize(("function", "inputs", "kernels"), [(mixed, (X, NONE), 2), (nothing, (NONE,), 0)], ids=["mixed", "nothing"])
def test_every_engine_and_recorder(function, inputs, kernels, engine, device):
    opened = SimulatedDevice() if device == "simulated" else ss.open_device("cuda")
    traced = function.trace(*inputs)
    prepared = prepare(traced, engine, opened)
    for _ in range(3):
        prepared.load(inputs)
        prepared.run()
        for found, expected in zip(prepared.outputs(), run_reference(traced, inputs), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert prepared.notes == []
    for recorder in (EventRecorder.on(opened), *([DeviceLogRecorder(opened)] if device == "simulated" else [])):
        spans = recorder.record(prepared).spans
        assert kernel_count(spans) == kernels
        assert missing_records(spans).device == 0


@pytest.mark.gpu
def test_cupti_counts_as_many():
    from streamscope.recording.cupti import CuptiRecorder

    device = ss.open_device("cuda")
    for engine in PLANNERS:
        prepared = prepare(mixed.trace(X, NONE), engine, device)
        for _ in range(3):
            prepared.load((X, NONE))
            prepared.run()
        (trace,) = CuptiRecorder(device).record(prepared)
        assert kernel_count(trace.spans) == kernel_count(EventRecorder.on(device).record(prepared).spans) == 2


def test_a_comparison():
    runs = ss.compare(mixed, X, NONE, device="simulated", progress=False)
    assert {run.metrics.kernel_count for run in runs.values()} == {2}
    assert all(run.max_abs_error == 0 for run in runs.values())
    runs = ss.compare(nothing, NONE, device="simulated", progress=False)
    assert {run.metrics.kernel_count for run in runs.values()} == {0}
