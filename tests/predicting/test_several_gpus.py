"""What-if of programs over several GPUs, against the simulated host that their traces come from."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.workloads import WORKLOADS

CASES = {
    "data-parallel": {"layers": 2, "width": 256, "rows": 256},
    "tensor-parallel": {"blocks": 1, "width": 256, "tokens": 64},
    "pipeline-parallel": {"layers": 1, "width": 256, "rows": 256, "batches": 3},
    "expert-parallel": {"blocks": 1, "width": 128, "tokens": 64},
}


@pytest.mark.parametrize("name", CASES)
def test_every_engine_is_predicted_from_the_sync_trace(name):
    function, inputs = WORKLOADS[name].build(**CASES[name])
    found = ss.verify(function, *inputs, device="simulated", progress=False)
    assert all(abs(each.error) < 0.05 for each in found.values())


def test_a_predicted_trace_knows_gpus_collectives_and_copies():
    def both(x, y):
        u, v = ss.ops.all_reduce([x, y])
        return ss.ops.to_gpu(v, 0) + u

    runs = ss.compare(both, *np.ones((2, 64), np.float32), device="simulated", engines=["sync"], progress=False)
    trace = ss.what_if(runs["sync"].trace, engine="graph-dual")
    assert trace.gpus == (0, 1)
    assert trace.collectives.words("kind") == ["all_reduce"] * 2
    assert trace.peers.to_dict()["from_gpu"] == [1]


def test_a_change_counts_collectives_and_not_their_parts():
    function, inputs = WORKLOADS["data-parallel"].build(gpus=2, **CASES["data-parallel"])
    trace = ss.compare(function, *inputs, device="simulated", engines=["async"], progress=False)["async"].trace
    predicted = ss.what_if(trace).without("all_reduce")
    assert predicted.scenario.changes == (f"without {len(trace.collectives) // 2} all_reduce",)
    assert not [note for note in predicted.notes if "beside others" in note]
