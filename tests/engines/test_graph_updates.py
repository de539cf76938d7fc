"""A changed buffer or shape means an update of the graph, and an instantiation only where that is refused."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.graphs import GraphCounts
from streamscope.engines.prepared import prepare_traced
from streamscope.errors import DeviceError, OutOfMemoryError, ProgramError
from streamscope.program.reference import run_reference
from streamscope.program.variable import MemoryPlace

GRAPH_ENGINES = ["graph", "graph-dual"]
X, Y = np.arange(8.0), np.full(8, 2.0)


@ss.host_function
def plus_one(values):
    """Add one on the host."""
    return values + 1


@ss.program
def mixed(x, y, raw):
    """Two graphs with a host function between them; ``x`` is in the first only."""
    z = ss.ops.relu(ss.ops.multiply(x, y))
    copied = ss.ops.to_device(plus_one(raw))
    return ss.ops.add(ss.ops.add(z, copied), y)


def prepared_and_run(function, engine, inputs, runs=3):
    prepared = prepare_traced(function.trace(*inputs), engine, SimulatedDevice())
    prepared.load(inputs)
    for _ in range(runs):
        prepared.run()
    return prepared


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("runs", [0, 1, 3])
def test_bound_memory_is_read_in_place(engine, runs):
    prepared = prepared_and_run(mixed, engine, (X, Y, X), runs)
    mine = 10 * X
    prepared.rebind({"x": mine})
    for _ in range(3):
        prepared.run()
        np.testing.assert_array_equal(prepared.outputs()[0], 10 * X * Y + X + 1 + Y)
    # No copy was made: what is written there is read by the next run.
    mine[:] = 1
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], Y + X + 1 + Y)


@pytest.mark.parametrize("engine", GRAPH_ENGINES)
def test_a_hundred_buffers_are_one_instantiation_and_a_hundred_updates(engine):
    @ss.program
    def chain(x, y):
        return ss.ops.relu(ss.ops.add(ss.ops.multiply(x, y), y))

    prepared = prepared_and_run(chain, engine, (X, Y))
    for number in range(100):
        prepared.rebind({"x": number + X})
        prepared.run()
        np.testing.assert_array_equal(prepared.outputs()[0], (number + X) * Y + Y)
    assert prepared.graph_counts == GraphCounts(instantiated=1, updated=100)
    assert prepared.notes == []


def test_only_graphs_that_use_the_memory_are_updated():
    prepared = prepared_and_run(mixed, "graph", (X, Y, X))
    assert prepared.graph_counts == GraphCounts(instantiated=2)
    prepared.rebind({"x": X + 1})
    assert prepared.graph_counts == GraphCounts(instantiated=2, updated=1)
    prepared.rebind({"x": X + 1, "y": Y + 1})
    assert prepared.graph_counts == GraphCounts(instantiated=2, updated=3)
    raw = prepared.device.allocate(prepared.program.variables[2].spec, MemoryPlace.HOST)
    prepared.device.write(raw, X)
    prepared.rebind({"raw": raw})
    assert prepared.graph_counts == GraphCounts(instantiated=2, updated=3)
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], (X + 1) * (Y + 1) + X + 1 + Y + 1)


@pytest.mark.parametrize("engine", GRAPH_ENGINES)
def test_memory_that_the_program_changes(engine):
    @ss.program
    def count(x):
        return ss.ops.add(x, x, out=x)

    prepared = prepared_and_run(count, engine, (X,))
    mine = np.ones(8)
    prepared.rebind({"x": mine})
    for _ in range(3):
        prepared.run()
    prepared.wait()
    np.testing.assert_array_equal(mine, np.full(8, 8.0))


@pytest.mark.parametrize(
    ("inputs", "error", "words"),
    [
        ({"z": X}, ProgramError, "no input 'z'"),
        ({"x": X[:4].copy()}, ProgramError, r"float64\[4\], but was traced as float64\[8\]"),
        ({"x": X.astype(np.float32)}, ProgramError, "float32"),
        ({"x": np.arange(16.0)[::2]}, DeviceError, "cannot be used as memory in place"),
        ({"x": [1.0] * 8}, DeviceError, "a list cannot be used"),
        ({"y": Y + 1, "x": X[:4].copy()}, ProgramError, "but was traced as"),
    ],
)
def test_what_does_not_fit_changes_nothing(inputs, error, words):
    prepared = prepared_and_run(mixed, "graph", (X, Y, X))
    with pytest.raises(error, match=words):
        prepared.rebind(inputs)
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], X * Y + X + 1 + Y)
    assert prepared.graph_counts == GraphCounts(instantiated=2)


@pytest.mark.parametrize("engine", ENGINES)
def test_other_shapes_of_the_same_function(engine):
    prepared = prepared_and_run(mixed, engine, (X, Y, X))
    streams = dict(prepared.streams)
    for size in (5, 1000, 8):
        inputs = [np.linspace(-1, 1, size), np.full(size, 3.0), np.arange(float(size))]
        traced = mixed.trace(*inputs)
        prepared.retrace(traced)
        prepared.load(inputs)
        for _ in range(3):
            prepared.run()
            np.testing.assert_array_equal(prepared.outputs()[0], run_reference(traced, inputs)[0])
    assert prepared.streams == streams
    assert prepared.graph_counts == (GraphCounts(instantiated=2, updated=6) if engine in GRAPH_ENGINES else GraphCounts())
    assert prepared.notes == []


def test_another_topology_is_refused_and_said():
    def layers(count):
        @ss.program
        def chain(x):
            for _ in range(count):
                x = ss.ops.relu(x)
            return x

        return chain.trace(X)

    prepared = prepare_traced(layers(3), "graph", SimulatedDevice())
    prepared.run()
    prepared.run()
    prepared.retrace(layers(4))
    prepared.load([X])
    prepared.run()
    assert prepared.graph_counts == GraphCounts(instantiated=1)
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], X)
    reason = "topology changed: 4 nodes instead of 3"
    assert prepared.graph_counts == GraphCounts(2, 0, (reason,))
    assert prepared.notes == [f"a graph of 4 nodes was instantiated anew, since its update was refused: {reason}"]
    assert prepared.graph_counts.to_dict() == {"graphs_instantiated": 2, "graphs_updated": 0, "graph_updates_refused": 1}


def test_a_trace_that_cannot_be_prepared_changes_nothing():
    prepared = prepared_and_run(mixed, "graph", (X, Y, X))
    huge = [np.lib.stride_tricks.as_strided(np.zeros(1), (10**11,), (0,))] * 3
    with pytest.raises(OutOfMemoryError):
        prepared.retrace(mixed.trace(*huge))
    with pytest.raises(ProgramError, match="wants a traced program"):
        prepared.retrace(mixed)
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], X * Y + X + 1 + Y)
    assert len(prepared.graphs) == 2
