"""The recorder of simulated devices."""

from __future__ import annotations

import numpy as np
import pytest
from tests.recording.test_events import device_spans, prepared_workload, truth

import streamscope as ss
from streamscope.engines import PLANNERS
from streamscope.recording.device_log import DeviceLogRecorder
from streamscope.trace.spans import Basis, SpanKind
from streamscope.workloads import WORKLOADS


@pytest.mark.parametrize("engine", PLANNERS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_it_shows_what_an_unrecorded_run_does(workload, engine):
    prepared = prepared_workload(workload, engine)
    trace = DeviceLogRecorder(prepared.device).record(prepared)
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
