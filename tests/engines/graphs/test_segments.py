"""Which operations are in which graph, why others are not, and what each node is."""

from __future__ import annotations

import numpy as np

import streamscope as ss
from streamscope.devices.graph_node import NodeKind
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.prepared import prepare_traced
from streamscope.program.launch import LaunchKind

X = np.arange(8, dtype=np.float32)


@ss.host_function
def on_host(values):
    """Do nothing, on the host."""
    return values


@ss.operator(reads=["x"], writes=["y"], reference=lambda x: x + 1, capturable=False)
def stubborn(x, y):
    """Say no to graphs."""


@ss.program
def mixed(x, raw):
    """Two graphs, with what cannot be captured between them."""
    y = ss.ops.relu(ss.ops.add(x, x))
    y = stubborn(y)
    raw = on_host(raw)
    return ss.ops.add(ss.ops.multiply(y, y), ss.ops.to_device(raw))


def captured(function, engine, *inputs, runs=2, **options):
    prepared = prepare_traced(function.trace(*inputs), engine, SimulatedDevice(), **options)
    prepared.load(inputs)
    for _ in range(runs):
        prepared.run()
    prepared.wait()
    return prepared


def test_segments_and_reasons():
    prepared = captured(mixed, "graph", X, X)
    first, between, second = prepared.segments
    assert [[operation.name for operation in segment.operations] for segment in prepared.segments] == [
        ["add", "relu"],
        ["stubborn", "on_host"],
        ["multiply", "to_device", "add"],
    ]
    assert between.graph is None
    assert between.why_not == {2: "its author declared capturable=False", 3: "it is a host function"}
    assert (first.why_not, second.why_not) == ({}, {})
    assert prepared.graphs == (first.graph, second.graph)
    assert [view.segment for view in prepared.graphs] == [0, 2]
    assert "stubborn (operation 2, test_segments.py" in str(between)


def test_before_the_second_run_nothing_is_captured():
    prepared = captured(mixed, "graph", X, X, runs=1)
    assert prepared.graphs == ()
    assert set(prepared.segments[0].why_not.values()) == {"it is captured by the second run"}


def test_an_engine_without_graphs():
    (segment,) = captured(mixed, "async", X, X).segments
    assert segment.graph is None
    assert segment.why_not[0] == "engine 'async' captured no graphs"
    assert segment.why_not[3] == "it is a host function"


def test_nodes_say_what_they_are():
    (_, view) = captured(mixed, "graph", X, X).graphs
    multiply, copy, add = view.nodes
    assert (multiply.kind, multiply.name, multiply.operation, multiply.operator) == (NodeKind.KERNEL, "multiply", 4, "multiply")
    assert (copy.kind, copy.nbytes, copy.grid) == (NodeKind.COPY, 32, (0, 0, 0))
    assert add.after == (0, 1)
    assert add.where.startswith("test_segments.py:")
    assert (add.registers, add.shared_bytes) == (None, None)
    assert "add.py" not in str(view)
    assert len(str(view).splitlines()) == 4


def test_nodes_are_the_launches_in_the_order_of_the_plan(ran_twice):
    for workload, streams in (("branches", 4), ("cnn", 2), ("conv-backward", 2)):
        settings = {} if workload == "branches" else {"size": 8, "channels": 8}
        prepared = ran_twice(workload, "graph-dual", streams, **settings)
        (view,) = prepared.graphs
        launches = {(launch.operation, launch.name): launch for launch in prepared.program.launches()}
        for node in view.nodes:
            launch = launches[node.operation, node.name]
            assert launch.kind is LaunchKind.KERNEL
            assert (node.grid, node.block) == ((launch.cost.blocks, 1, 1), (launch.cost.threads, 1, 1))
        assert len(view.nodes) == len(list(prepared.program.launches()))
        # Every dependency of the program is one of the graph, directly or not.
        reaches = _ancestors(view.nodes)
        at = {(node.operation, node.name): index for index, node in enumerate(view.nodes)}
        for index, earlier in _dependencies(prepared.program, at):
            assert earlier in reaches[index]


def test_auxiliary_streams_inside_a_capture_are_parallel_branches(ran_twice):
    (view,) = ran_twice("conv-backward", "graph-dual", size=8, channels=8).graphs
    assert {node.lane for node in view.nodes} == {"main", "aux"}
    assert [node.after for node in view.nodes] == [(), ()]
    (serial,) = ran_twice("conv-backward", "graph", size=8, channels=8).graphs
    assert [node.after for node in serial.nodes] == [(), (0,)]


def _ancestors(nodes):
    reaches: list[set[int]] = []
    for node in nodes:
        reaches.append({one for before in node.after for one in (before, *reaches[before])})
    return reaches


def _dependencies(program, at):
    """Yield pairs of nodes of which the first reads what the second wrote last."""
    writer: dict[int, int] = {}
    for launch in program.launches():
        index = at[launch.operation, launch.name]
        for variable in launch.reads:
            if variable in writer:
                yield index, writer[variable]
        for variable in launch.writes:
            writer[variable] = index
