"""Which sets a kernel before a graph does in their place: the same of a graph and of its clone."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from streamscope.devices.cuda import graph as graph_module
from streamscope.devices.cuda import graph_nodes as module
from streamscope.devices.cuda.captures import Captures
from streamscope.devices.cuda.graph import CudaGraph
from streamscope.devices.graph_node import NodeKind

MIB = 1 << 20


def set_to(value=0, *, at, nbytes, element=1, height=1, gpu=0, kind=NodeKind.SET):
    return SimpleNamespace(dst=at, value=value, width=nbytes // element, elementSize=element, height=height, gpu=gpu, kind=kind)


@pytest.fixture
def chosen(monkeypatch):
    """Return a function that says which of some first nodes are chosen, by their numbers."""

    def of(*nodes, written=(), order=None):
        cuda = SimpleNamespace(CUgraphNode=lambda handle: handle, cuGraphMemsetNodeGetParams=lambda handle: nodes[handle])
        places = {node.dst: node for node in nodes}
        runtime = SimpleNamespace(pointerGetAttributes=lambda at: SimpleNamespace(device=places[at].gpu), getDevice=lambda: 0)
        monkeypatch.setattr(module, "libraries", lambda: SimpleNamespace(cuda=cuda, runtime=runtime))
        monkeypatch.setattr(module, "checked", lambda result: result)
        monkeypatch.setattr(module, "_node_kind", lambda handle: nodes[handle].kind)
        monkeypatch.setattr(module, "first_nodes", lambda graph: list(order or range(len(nodes))))
        return module.first_sets(1, written)

    return of


def test_small_sets_to_zero_on_this_gpu_are_chosen(chosen):
    nodes = [
        set_to(at=1000, nbytes=100),
        set_to(7, at=2000, nbytes=100),
        set_to(at=3000, nbytes=100, height=2),
        set_to(at=4000, nbytes=100, gpu=1),
        set_to(at=5000, nbytes=100, kind=NodeKind.KERNEL),
        set_to(at=6000, nbytes=400, element=4),
        set_to(at=7000, nbytes=100),
        set_to(at=10 * MIB, nbytes=MIB + 1),
    ]
    assert chosen(*nodes, written=[(6900, 7001), (1100, 1200)]) == {0: (1000, 1100), 5: (6000, 6400)}


def test_whatever_the_order_of_nodes_the_same_memory_is_chosen(chosen):
    """Two that do not fit together, and one that does with either."""
    nodes = [set_to(at=8 * MIB, nbytes=600_000), set_to(at=2 * MIB, nbytes=600_000), set_to(at=MIB // 2, nbytes=100_000)]
    for order in itertools.permutations(range(3)):
        assert list(chosen(*nodes, order=order).values()) == [(MIB // 2, MIB // 2 + 100_000), (2 * MIB, 2 * MIB + 600_000)]


def test_nodes_that_wait_for_none_are_first(monkeypatch):
    monkeypatch.setattr(module, "_nodes", lambda graph: range(10, 16))
    monkeypatch.setattr(module, "_predecessors", lambda graph, handles: [(), (0,), (), (0, 2), (), (3,)])
    assert module.first_nodes(1) == [10, 12, 14]


def test_the_kernel_stands_in_for_the_sets_and_before_all_that_is_first_then(monkeypatch):
    asked, first = [], [[5, 6, 7], [6, 8, 9]]
    runtime = SimpleNamespace(graphInstantiate=lambda graph: 1, graphUpload=lambda *_: None, graphDestroy=lambda _: None)
    runtime.graphExecDestroy, runtime.graphLaunch = runtime.graphDestroy, runtime.graphUpload
    monkeypatch.setattr(graph_module, "libraries", lambda: SimpleNamespace(runtime=runtime))
    monkeypatch.setattr(graph_module, "cuda_errors", lambda what: nullcontext())
    monkeypatch.setattr(graph_module, "node_count", lambda graph: 1)
    monkeypatch.setattr(graph_module, "driver_function", lambda name: lambda *arguments: 0)
    monkeypatch.setattr(graph_module, "first_sets", lambda graph, written: {5: (10, 20), 7: (30, 40)})
    monkeypatch.setattr(graph_module, "first_nodes", lambda graph: first[any(name == "cuGraphDestroyNode" for name, *_ in asked)])
    monkeypatch.setattr(graph_module, "_call", lambda name, *arguments: asked.append((name, *arguments)))
    graph = CudaGraph(1, Captures(), SimpleNamespace(ptr=7, synchronize=lambda: None))
    assert graph.first_sets([]) == [(10, 20), (30, 40)]
    graph.behind(3, 1, 1, 0, [])
    names = [name for name, *_ in asked]
    assert names == ["cuGraphClone", "cuGraphDestroyNode", "cuGraphDestroyNode", "cuGraphAddKernelNode_v2", "cuGraphAddDependencies"]
    assert [asked[number][1].value for number in (1, 2)] == [5, 7]
    _, _, before, after, count = asked[-1]
    assert (len(before), list(after), count.value) == (3, [6, 8, 9], 3)
