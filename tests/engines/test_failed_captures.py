"""A capture that fails leaves the streams usable, says which operation broke it and why, and the program runs on uncaptured."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.prepared import prepare_traced
from streamscope.errors import EngineError
from streamscope.program.variable import ArraySpec, MemoryPlace

X = np.arange(1.0, 9.0)


@ss.program
def chain(x):
    """Three operations; the second is the one that gets broken."""
    return ss.ops.add(ss.ops.relu(ss.ops.multiply(x, x)), x)


def synchronizes(prepared, bound, call):
    prepared.device.synchronize()


def allocates(prepared, bound, call):
    prepared.device.allocate(ArraySpec((4,), np.dtype(np.float32)), MemoryPlace.DEVICE)


def hides_its_fault(prepared, bound, call):
    with suppress(EngineError):  # as a library may
        prepared.device.synchronize()


def forks_and_does_not_join(prepared, bound, call):
    side, event = prepared.device.stream("side"), prepared.device.event()
    bound.stream.record(event)
    side.wait(event)
    launch = prepared.program.operations[1].launches[0]
    memory = [prepared.device.adopt(np.ones(8), MemoryPlace.DEVICE) for _ in range(2)]
    prepared.device.bind(launch, memory[:1], memory[1:], side)()


def raises(prepared, bound, call):
    raise ValueError("this operator is broken")


FAULTS = {
    synchronizes: "synchronizing the device is not possible",
    allocates: "allocating memory is not possible",
    hides_its_fault: "synchronizing the device is not possible",
    forks_and_does_not_join: "work on stream 'side' was not joined",
    raises: "this operator is broken",
}


def broken_in_captures(engine, fault):
    """Prepare the chain with an operator that does something that a capture does not allow, in captures only."""
    prepared = prepare_traced(chain.trace(X), engine, SimulatedDevice())
    (bound,) = (one for replay in prepared.bound for one in replay.inner if "relu" in str(one.step))
    call = bound.call

    def faulty():
        call()
        if prepared.streams[0].capture is not None or (bound.stream is not None and bound.stream.capture is not None):
            fault(prepared, bound, call)

    bound.call = faulty
    prepared.load([X])
    return prepared


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_program_runs_on_and_a_note_says_why(engine, fault):
    prepared = broken_in_captures(engine, fault)
    for _ in range(4):
        prepared.run()
        np.testing.assert_array_equal(prepared.outputs()[0], X * X + X)
    (note,) = prepared.notes
    assert "relu (operation 1, test_failed_captures.py" in note
    assert FAULTS[fault] in note
    assert prepared.graphs == ()
    assert FAULTS[fault] in prepared.segments[0].why_not[1]
    assert prepared.graph_counts.instantiated == 0
    # The streams are as good as new.
    with prepared.capturing() as graphs:
        prepared.bound[0].inner[0].call()
    graphs[0].launch(prepared.streams[0])
    prepared.wait()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_capture_is_not_tried_again_by_rebinding(fault):
    prepared = broken_in_captures("graph", fault)
    for _ in range(3):
        prepared.run()
    prepared.rebind({"x": X + 1})
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], (X + 1) * (X + 1) + X + 1)
    assert len(prepared.notes) == 1


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
def test_ctrl_c_while_capturing(engine):
    interrupted = []

    def interrupts(prepared, bound, call):
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt

    prepared = broken_in_captures(engine, interrupts)
    prepared.run()
    with pytest.raises(KeyboardInterrupt):
        prepared.run()
    for _ in range(3):
        prepared.run()
        np.testing.assert_array_equal(prepared.outputs()[0], X * X + X)
    assert prepared.notes == []
    assert len(prepared.graphs) == 1


def test_ctrl_c_while_a_graph_is_updated():
    interrupted = [True]

    def interrupts(prepared, bound, call):
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt

    prepared = broken_in_captures("graph", interrupts)
    for _ in range(3):
        prepared.run()
    # Rebinding makes a new call for what it touches, so the faulty one must not be among that.
    mine = X + 1
    interrupted.clear()
    with pytest.raises(KeyboardInterrupt):
        prepared.rebind({"x": mine})
    for _ in range(2):
        prepared.run()
        np.testing.assert_array_equal(prepared.outputs()[0], mine * mine + mine)
    assert (prepared.graph_counts.instantiated, prepared.graph_counts.updated) == (1, 1)
