"""Nodes of a captured graph that are launched by themselves."""

from __future__ import annotations

import pytest

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
