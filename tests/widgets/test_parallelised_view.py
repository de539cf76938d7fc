"""A parallelised function in a notebook."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.parallelising.gains import gain

import streamscope as ss
from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.engines.graphs import GraphView
from streamscope.errors import HungError
from streamscope_widgets.parallelised_view import parallelised_html


def graph_of(count):
    return GraphView("net", 0, tuple(GraphNode(NodeKind.KERNEL, f"kernel {number}", ()) for number in range(count)))


@pytest.fixture(scope="module")
def recorded():
    function, inputs = ss.workload("branches").build()
    return ss.compare(function, *inputs, engines="graph,graph-dual", device="simulated", progress=False)


def test_it_shows_the_verdict_both_orders_the_times_and_the_certificate_with_everything_escaped(recorded):
    page = parallelised_html(SimpleNamespace(gain=gain(1616, 909, 1.78, name="net <script>"), comparison=recorded, graph=graph_of(3)))
    assert "net &lt;script&gt; · NVIDIA H200" in page
    assert "<script>" not in page
    assert "1.78× as fast (1.76 to 1.80)" in page
    assert "captured order" in page
    assert "relu &lt;b&gt;" in page
    assert "must keep" in page
    assert page.count("data:image/svg+xml") == 2
    assert "The graph that runs" in page
    assert len(page) < 200_000


def test_where_the_orders_cannot_be_recorded_the_rest_is_shown():
    class Hung:
        gain = gain(1616, 909, 1.78)
        graph = graph_of(2000)

        @property
        def comparison(self):
            raise HungError("a run does not end <b>")

    page = parallelised_html(Hung())
    assert "1.78× as fast" in page
    assert "a run does not end &lt;b&gt;" in page
    assert "data:image/svg+xml" not in page
    assert "graph on it is a picture of the graph that runs, of 2,000 nodes." in page
