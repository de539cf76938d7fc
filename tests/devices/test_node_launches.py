"""Nodes of a captured graph that are launched by themselves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streamscope.devices.cuda import graph_nodes
from streamscope.devices.cuda.node_launches import node_launch
from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.errors import EngineError


@pytest.mark.parametrize(
    ("origin", "said"), [("aten.linalg_qr.default at model.py:7", ", of aten.linalg_qr.default at model.py:7"), ("", "")]
)
def test_a_node_that_cannot_run_by_itself_is_named_with_what_launched_it(origin, said):
    """A library that allocates memory within a capture leaves such nodes."""
    with pytest.raises(EngineError) as caught:
        node_launch(None, GraphNode(NodeKind.OTHER, "mem alloc"), origin)
    assert caught.value.message == "the captured code has a node (mem alloc) that cannot run by itself" + said


@pytest.mark.parametrize("kind", [NodeKind.EVENT_RECORD, NodeKind.EVENT_WAIT, NodeKind.HOST])
def test_events_and_host_functions_that_no_collective_brought_are_refused(kind):
    with pytest.raises(EngineError, match="that cannot run by itself, of aten"):
        node_launch(None, GraphNode(kind, kind.value), "aten.add.Tensor at model.py:7")


def test_sets_of_other_memory_need_not_wait_for_a_kernel_before_the_graph(monkeypatch):
    """Nodes 0 to 2 and 5 begin the graph; 1 sets memory that the kernel writes, and 2 sets 2 rows of 4 bytes, 8 bytes apart."""
    before = [(), (), (), (0,), (0, 1), (), (2, 0), (3,)]
    size = {"pitch": 8, "width": 4, "elementSize": 1, "height": 2}
    set_at = {0: SimpleNamespace(dst=0, **size), 1: SimpleNamespace(dst=32, **size), 2: SimpleNamespace(dst=52, **size), 4: None}
    lib = SimpleNamespace(cuda=SimpleNamespace(cuGraphMemsetNodeGetParams=lambda handle: (0, set_at[handle])))
    monkeypatch.setattr(graph_nodes, "libraries", lambda: lib)
    monkeypatch.setattr(graph_nodes, "_nodes", lambda graph: range(8))
    monkeypatch.setattr(graph_nodes, "_predecessors", lambda graph, handles: before)
    monkeypatch.setattr(graph_nodes, "_node_kind", lambda handle: NodeKind.SET if handle in set_at else NodeKind.KERNEL)
    assert graph_nodes.behind_a_kernel(1, [(12, 13), (40, 52)]) == ([1, 3, 5, 6], [(0, 12), (52, 64)])
