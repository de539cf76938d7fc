"""Prepared programs whose graphs are captured, and graphs of any shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.workloads import WORKLOADS


@pytest.fixture
def ran_twice() -> Callable[..., Prepared]:
    """Return what prepares a workload on a simulated device and runs it twice: ``ran_twice(workload, engine, streams, **settings)``."""

    def make(workload: str, engine: str, streams: int = 2, **settings: Any) -> Prepared:
        function, inputs = WORKLOADS[workload].build(**settings)
        prepared = prepare_traced(function.trace(*inputs), engine, SimulatedDevice(), streams=streams)
        prepared.load(inputs)
        prepared.run()
        prepared.run()
        prepared.wait()
        return prepared

    return make


@st.composite
def graphs(draw: Any, most: int = 30) -> tuple[GraphNode, ...]:
    """Draw nodes of any kind, name and stream, each after some of those before it."""
    nodes = []
    for index in range(draw(st.integers(0, most))):
        after = draw(st.sets(st.integers(0, index - 1), max_size=3)) if index else set()
        name = draw(st.text(max_size=12))
        kind, lane = draw(st.sampled_from(NodeKind)), draw(st.sampled_from(["", "main", 'a "b"\\']))
        nodes.append(GraphNode(kind, name, tuple(sorted(after)), lane=lane))
    return tuple(nodes)
