"""A certificate in a notebook."""

from __future__ import annotations

from streamscope.capturing.certificate import Certificate
from streamscope.capturing.memory import Access, Evidence, NodeMemory
from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope_widgets.capture_view import MOST_SHOWN, certificate_html


def test_a_long_one_is_short_and_names_nodes_memory_and_reasons():
    count = 2_000
    memories = [NodeMemory((Access(0, 4096, True, True, Evidence.SCHEMA),))] * (count - 1) + [NodeMemory(why_unknown="no <pointer>")]
    nodes = [GraphNode(NodeKind.KERNEL, "relu", (number - 1,) if number else (), where="model.py:7") for number in range(count)]
    page = certificate_html(Certificate("net", nodes, memories, tuple(node.after for node in nodes)))
    assert len(page) < 200_000
    assert "4,096 bytes at 0x0, read and written by the first" in page
    assert f"{count - 1 - MOST_SHOWN:,} more are not listed" in page
    assert "no &lt;pointer&gt;" in page
    assert "nowrap" not in page  # Names of 60 characters in three columns are wider than a notebook.
    assert page.count("overflow-wrap:anywhere") >= MOST_SHOWN


def test_one_of_nothing():
    page = certificate_html(Certificate("nothing", [], [], ()))
    assert "0 pairs of nodes must keep their order" in page
    assert "<details" not in page
