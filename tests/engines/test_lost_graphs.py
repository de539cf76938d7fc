"""Programs whose collectives were aborted: graphs are captured again by the next run, and results are not given out."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.errors import DeviceError

X = np.arange(4.0)


def two_gpus(u, v):
    with ss.gpu(0):
        a = u * 2
    with ss.gpu(1):
        b = v * 2
    p, q = ss.ops.all_reduce([a, b])
    return p + 1, q + 1


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
def test_the_next_run_captures_again(engine):
    prepared = ss.prepare(ss.program(two_gpus).trace(X, X), engine=engine, device=SimulatedDevice(gpus=2))
    prepared.load([X, X])
    for _ in range(3):
        prepared.run()
    graphs = [bound.graph for _, bound in prepared._replays()]
    for graph in graphs:
        graph.lost = True
    prepared.run()
    again = [bound.graph for _, bound in prepared._replays()]
    assert all(new is not old for new, old in zip(again, graphs, strict=True))
    assert not any(graph.lost for graph in again)
    for result in prepared.outputs():
        np.testing.assert_array_equal(result, 4 * X + 1)
    prepared.run()
    assert [bound.graph for _, bound in prepared._replays()] == again


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_whose_collectives_were_aborted_has_no_results(engine):
    device = SimulatedDevice(gpus=2)
    prepared = ss.prepare(ss.program(two_gpus).trace(X, X), engine=engine, device=device)
    prepared.load([X, X])
    prepared.run()
    device.abort_collectives()
    with pytest.raises(DeviceError, match=r"collectives were aborted, so 'two_gpus' has no results"):
        prepared.outputs()
    prepared.load([X, X])
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], 4 * X + 1)


def in_place(u, v):
    with ss.gpu(0):
        u -= 1
    p, q = ss.ops.all_reduce([u, v])
    return p, q


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_run_writes_in_place_is_loaded_again_after_an_abort(engine):
    device = SimulatedDevice(gpus=2)
    prepared = ss.prepare(ss.program(in_place).trace(X, X.copy()), engine=engine, device=device)
    device.abort_collectives()
    prepared.load([X, X.copy()])
    prepared.run()
    prepared.outputs()
    prepared.run()
    device.abort_collectives()
    for each in (prepared, prepared.twin()):
        each.run()
        with pytest.raises(DeviceError, match=r"aborted since u was loaded, which 'in_place' writes in place.*load its inputs again"):
            each.outputs()
    prepared.load([X, X.copy()])
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], 2 * X - 1)
    device.abort_collectives()
    prepared.rebind({"u": X.copy()})
    prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], 2 * X - 1)
