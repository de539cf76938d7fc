"""What-if of programs over several GPUs, against the simulated host that their traces come from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.link_model import LinkModel
from streamscope.devices.measured_models import save_model
from streamscope.trace import DeviceInfo, Trace
from streamscope.workloads import WORKLOADS

CASES = {
    "data-parallel": {"layers": 2, "width": 256, "rows": 256},
    "tensor-parallel": {"blocks": 1, "width": 256, "tokens": 64},
    "pipeline-parallel": {"layers": 1, "width": 256, "rows": 256, "batches": 3},
    "expert-parallel": {"blocks": 1, "width": 128, "tokens": 64},
}


def recorded(function):
    """Return a trace of a function of two arrays under "sync"."""
    runs = ss.compare(function, *np.ones((2, 64), np.float32), device="simulated", engines=["sync"], progress=False)
    return runs["sync"].trace


@pytest.mark.parametrize("name", CASES)
def test_every_engine_is_predicted_from_the_sync_trace(name):
    function, inputs = WORKLOADS[name].build(**CASES[name])
    found = ss.verify(function, *inputs, device="simulated", progress=False)
    assert all(abs(each.error) < (0.05 if engine == "graph-dual" else 0.001) for engine, each in found.items())


def test_a_predicted_trace_knows_gpus_collectives_and_copies():
    def both(x, y):
        u, v = ss.ops.all_reduce([x, y])
        return ss.ops.to_gpu(v, 0) + u

    trace = ss.what_if(recorded(both), engine="graph-dual")
    assert trace.gpus == (0, 1)
    assert trace.collectives.words("kind") == ["all_reduce"] * 2
    assert trace.peers.to_dict()["from_gpu"] == [1]


def test_the_gpu_that_sends_is_the_one_of_the_trace():
    def program(x, y):
        with ss.gpu(1):
            z = y * 2
        return ss.ops.broadcast(z, [0, 1])

    trace = recorded(program)
    predicted = ss.what_if(trace)
    sends = [task for task in predicted.scenario.tasks if task.collective is not None and task.collective.reads(task.place[1])]
    assert [task.gpu for task in sends] == [1]
    assert predicted.spans.end_ns.max() == pytest.approx(trace.spans.end_ns.max() - trace.spans.start_ns.min(), rel=0.01)


def test_collectives_of_priority_go_first_in_a_prediction_too():
    def program(x, y):
        return (*ss.ops.all_reduce([x, y]), *ss.ops.all_reduce([x, y], priority=2))

    trace = recorded(program)
    assert trace.collectives.words("communicator") == ["0, 1"] * 2 + ["0, 1, priority 2"] * 2
    assert [task.collective.priority for task in ss.what_if(trace).scenario.tasks if task.collective is not None] == [0, 0, 2, 2]
    predicted = ss.what_if(trace, engine="dual")
    assert predicted.collectives.words("communicator") == ["0, 1, priority 2"] * 2 + ["0, 1"] * 2
    assert [task.collective.priority for task in ss.what_if(predicted).scenario.tasks if task.collective is not None] == [0, 0, 2, 2]


def test_a_change_counts_collectives_and_not_their_parts():
    function, inputs = WORKLOADS["data-parallel"].build(gpus=2, **CASES["data-parallel"])
    trace = ss.compare(function, *inputs, device="simulated", engines=["async"], progress=False)["async"].trace
    predicted = ss.what_if(trace).without("all_reduce")
    assert predicted.scenario.changes == (f"without {len(trace.collectives) // 2} all_reduce",)
    assert not [note for note in predicted.notes if "beside others" in note]


def test_links_are_those_that_were_calibrated_for_the_host_of_the_trace(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = recorded(lambda x, y: ss.ops.all_reduce([x, y]))
    known = {"collectives": found.collectives, "peers": found.peers}

    def graph_us(device):
        trace = Trace(found.spans, replace(found.info, device=device), found.origins, **known)
        return ss.what_if(trace, engine="graph").spans.end_ns.max() / 1e3

    hosts = [DeviceInfo("cuda", "2 × NVIDIA H100"), DeviceInfo("cuda", "4 × NVIDIA H100"), found.info.device]
    before = [graph_us(host) for host in hosts]
    links = LinkModel.load()
    save_model(replace(links, graph_call_ns=links.graph_call_ns + 1e6, provenance=replace(links.provenance, device="2 x NVIDIA H100")))
    assert [round(graph_us(host) - us) for host, us in zip(hosts, before, strict=True)] == [1000, 0, 0]
