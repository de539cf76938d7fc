"""Graphs are put on the device before anybody can launch them, without a GPU: the calls of CUDA, in their order."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from streamscope.devices.cuda import graph as module
from streamscope.devices.cuda.captures import Captures
from streamscope.devices.cuda.graph import CudaGraph
from streamscope.errors import DeviceError


@pytest.fixture
def calls(monkeypatch):
    made = []
    runtime = SimpleNamespace(
        graphInstantiate=lambda graph: made.append(("instantiate", graph)) or 100 + graph,
        graphUpload=lambda executable, stream: made.append(("upload", executable, stream)),
        graphDestroy=lambda graph: made.append(("destroy", graph)),
        graphExecDestroy=lambda executable: made.append(("destroy", executable)),
        graphLaunch=lambda executable, stream: made.append(("launch", executable, stream)),
    )
    monkeypatch.setattr(module, "libraries", lambda: SimpleNamespace(runtime=runtime))
    monkeypatch.setattr(module, "cuda_errors", lambda what: nullcontext())
    monkeypatch.setattr(module, "node_count", lambda graph: 1)
    monkeypatch.setattr(module, "first_nodes", lambda graph: [5])
    monkeypatch.setattr(module, "first_sets", lambda graph, written: {6: (7, 8)})
    monkeypatch.setattr(module, "_call", lambda *arguments: None)
    monkeypatch.setattr(module, "driver_function", lambda name: lambda *arguments: 0)
    monkeypatch.setattr(module, "_update", lambda executable, graph: "")
    return made


def test_the_host_waits_for_the_upload_before_a_launch_on_another_stream(calls):
    uploads = SimpleNamespace(ptr=7, synchronize=lambda: calls.append("wait"))
    graph = CudaGraph(1, Captures(), uploads)
    graph.launch_on(8)
    assert calls == [("instantiate", 1), ("upload", 101, 7), "wait", ("launch", 101, 8)]
    calls.clear()
    graph.update(2)
    graph.launch_on(8)
    assert calls == [("destroy", 1), ("upload", 101, 7), "wait", ("launch", 101, 8)]
    calls.clear()
    del graph
    assert calls == [("destroy", 101), ("destroy", 2)]


def test_a_graph_that_is_lost_is_destroyed_once_and_cannot_be_launched(calls):
    uploads = SimpleNamespace(ptr=7, synchronize=lambda: None)
    graph = CudaGraph(1, Captures(), uploads)
    longer, read_anew = graph.behind(3, 1, 1, 0, [])
    kept = graph.launch_on, longer.launch_on, read_anew
    assert read_anew() == 0
    calls.clear()
    graph.break_off("it is lost")
    graph.break_off("it is lost")
    assert calls == [("destroy", 100), ("destroy", 101), ("destroy", 1)]
    assert graph.lost
    assert longer.lost
    assert graph.nodes == ()
    assert graph.update(2) == "the graph was destroyed"
    for launch in (graph.launch_on, *kept):
        with pytest.raises(DeviceError, match="it is lost"):
            launch(8)
    calls.clear()
    del graph
    assert calls == []
