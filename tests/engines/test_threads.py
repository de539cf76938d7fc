"""Prepared programs used by several threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines import PLANNERS
from streamscope.engines.prepared import prepare
from streamscope.program.reference import run_reference

THREADS, TURNS = 4, 12
X = np.linspace(-1, 1, 16)


@ss.program
def chain(x, y):
    """Four operations that can go side by side in part."""
    return ss.add(ss.relu(ss.multiply(x, y)), ss.multiply(y, y))


def in_threads(work):
    """Run ``work(number)`` in several threads that start together; raises what one of them raises."""
    barrier = threading.Barrier(THREADS)

    def start(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(start, range(THREADS)))


@pytest.mark.parametrize("engine", PLANNERS)
def test_one_shared_by_all(engine):
    prepared = prepare(chain.trace(X, X), engine, SimulatedDevice())

    def work(number):
        for turn in range(TURNS):
            inputs = [X + number, X * turn]
            with prepared.lock:
                prepared.load(inputs)
                prepared.run()
                (found,) = prepared.outputs()
            np.testing.assert_array_equal(found, run_reference(prepared.program, inputs)[0])

    in_threads(work)
    assert prepared.notes == []


@pytest.mark.parametrize("engine", PLANNERS)
def test_one_each_on_a_device_that_they_share(engine):
    device, turn_lock = SimulatedDevice(), threading.Lock()

    def work(number):
        with turn_lock:
            prepared = prepare(chain.trace(X, X), engine, device)
        for turn in range(TURNS):
            inputs = [X + number, X * turn]
            with turn_lock:
                device.use()
                prepared.load(inputs)
                prepared.run()
                (found,) = prepared.outputs()
            np.testing.assert_array_equal(found, run_reference(prepared.program, inputs)[0])
        return prepared

    assert all(prepared.notes == [] for prepared in in_threads(work))


def test_rebinding_by_several_threads_keeps_runs_whole():
    prepared = prepare(chain.trace(X, X), "graph", SimulatedDevice())
    prepared.load([X, X])
    for _ in range(2):
        prepared.run()

    def work(number):
        for turn in range(TURNS):
            mine = X + number * TURNS + turn
            with prepared.lock:
                prepared.rebind({"x": mine})
                prepared.run()
                (found,) = prepared.outputs()
            np.testing.assert_array_equal(found, run_reference(prepared.program, [mine, X])[0])

    in_threads(work)
    assert (prepared.graph_counts.instantiated, prepared.graph_counts.updated) == (1, THREADS * TURNS)
