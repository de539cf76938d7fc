"""A prepared program bound a second time, in the same memory and on the same streams."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.workloads import WORKLOADS


def prepared(engine: str, device: SimulatedDevice) -> tuple[Prepared, tuple[np.ndarray, ...]]:
    function, inputs = WORKLOADS["branches"].build(branches=3, length=3, size=4096, copies=1)
    made = prepare_traced(function.trace(*inputs), engine, device)
    made.load(inputs)
    return made, inputs


@pytest.mark.parametrize("engine", ENGINES)
def test_a_twin_computes_the_same_in_the_same_memory_with_calls_of_its_own(engine):
    device = SimulatedDevice()
    made, _ = prepared(engine, device)
    for _ in range(2):
        made.run()
    expected, calls = made.outputs(), [bound.call for bound in made.bound]
    twin = made.twin()
    made.load([np.zeros(made.program.variables[one].spec.shape, np.float32) for one in made.program.inputs])
    for _ in range(3):
        twin.run()
    assert all((output == 0).all() for output in made.outputs())
    assert twin.buffers == made.buffers
    assert twin.streams is made.streams
    assert [bound.call for bound in made.bound] == calls
    assert not {id(bound) for bound in twin.bound} & {id(bound) for bound in made.bound}
    assert len(expected) == len(twin.outputs())


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
def test_a_twin_captures_graphs_of_its_own_and_leaves_those_that_there_are(engine):
    made, _ = prepared(engine, SimulatedDevice())
    for _ in range(2):
        made.run()
    graphs, counts = [bound.graph for bound in made.bound], made.graph_counts
    twin = made.twin()
    assert all(bound.graph is None for bound in twin.bound)
    for _ in range(2):
        twin.run()
    assert [bound.graph for bound in made.bound] == graphs
    assert made.graph_counts == counts
    assert twin.graph_counts.instantiated == counts.instantiated
    assert not {id(bound.graph) for bound in twin.bound if bound.graph} & {id(graph) for graph in graphs if graph}


def test_the_two_run_in_turns_and_either_may_go_first():
    made, inputs = prepared("graph-dual", SimulatedDevice())
    for _ in range(2):
        made.run()
    expected = made.outputs()
    twin = made.twin()
    for each in (twin, made, twin, made):
        each.load(inputs)
        each.run()
        for one, other in zip(each.outputs(), expected, strict=True):
            np.testing.assert_array_equal(one, other)
    twin.run()
    del twin, each  # While it runs.
    gc.collect()
    made.load(inputs)
    made.run()
    np.testing.assert_array_equal(made.outputs()[0], expected[0])


def test_a_twin_that_cannot_be_bound_leaves_the_program_as_it_was(monkeypatch):
    made, _ = prepared("async", SimulatedDevice())
    made.run()
    expected = made.outputs()

    def refuse(*_: object) -> None:
        raise ss.errors.DeviceError("no more")

    with monkeypatch.context() as patched:
        patched.setattr(made.device, "bind", refuse)
        with pytest.raises(ss.errors.DeviceError, match="no more"):
            made.twin()
    made.run()
    np.testing.assert_array_equal(made.outputs()[0], expected[0])
