"""``ss.verify`` on a GPU: what is measured is measured, and what is predicted is labelled as simulated."""

import numpy as np
import pytest

import streamscope as ss

pytestmark = pytest.mark.gpu


def test_predictions_come_from_a_recorded_sync_trace_and_runs_from_the_gpu():
    function, inputs = ss.workload("branches").build(branches=2, length=4)
    found = ss.verify(function, *inputs, device="cuda", repeats=5, progress=False)
    assert list(found) == ["sync", "async", "dual", "graph", "graph-dual"]
    assert not found.device.simulated
    assert found.source.info.engine == "sync"
    assert len(found.source.origins.launches) == 9
    for each in found.values():
        assert each.prediction.info.device.simulated
        assert each.makespans_ns.shape == (5,)
        assert np.isfinite(each.error)
    # Launched together, nine short kernels take less than launched one by one, predicted as measured.
    assert found["graph"].prediction.predicted_ns < found["sync"].prediction.predicted_ns
