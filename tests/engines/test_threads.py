"""Prepared programs used by several threads."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.engines.conftest import in_threads

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import prepare_traced
from streamscope.errors import EngineError
from streamscope.program.reference import run_reference

THREADS, TURNS = 4, 12
X = np.linspace(-1, 1, 16)


@ss.program
def chain(x, y):
    """Four operations that can go side by side in part."""
    return ss.ops.add(ss.ops.relu(ss.ops.multiply(x, y)), ss.ops.multiply(y, y))


@pytest.mark.parametrize("engine", ENGINES)
def test_one_shared_by_all(engine):
    prepared = prepare_traced(chain.trace(X, X), engine, SimulatedDevice())

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


@pytest.fixture
def _impatient():
    """Let threads be switched as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@ss.host_function(duration_us=1)
def shifted(values):
    """A step on the host, so that runs have two segments and the host waits."""
    return values + 1


@ss.program
def with_a_host_step(x, y):
    """Kernels, copies and a host step."""
    return ss.ops.add(ss.ops.to_device(shifted(ss.ops.to_host(ss.ops.multiply(x, y)))), ss.ops.relu(y))


def uses(device, engine, number):
    """Prepare a program, and run it on a device that others use."""
    prepared = prepare_traced(with_a_host_step.trace(X, X), engine, device)
    for turn in range(TURNS):
        inputs = [X + number, X * turn]
        prepared.load(inputs)
        prepared.run()
        prepared.wait()
        np.testing.assert_array_equal(prepared.outputs()[0], run_reference(prepared.program, inputs)[0])
    assert prepared.notes == []


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("engine", ENGINES)
class TestOnADeviceThatThreadsShare:
    def test_runs_and_waits_of_one_program(self, engine):
        prepared = prepare_traced(with_a_host_step.trace(X, X), engine, SimulatedDevice())
        prepared.load([X, X])

        def work(number):
            for _ in range(TURNS):
                prepared.run()
                prepared.wait()

        in_threads(work)
        np.testing.assert_array_equal(prepared.outputs()[0], run_reference(prepared.program, [X, X])[0])
        assert prepared.notes == []

    def test_a_program_each(self, engine):
        device = SimulatedDevice()
        in_threads(lambda number: uses(device, engine, number))

    def test_programs_beside_a_pushed_engine(self, engine):
        device = SimulatedDevice()
        with ss.Engine(engine, device=device) as pushing:

            def pushes():
                x, h = pushing.variable(X), pushing.variable(X, place="host")
                for turn in range(TURNS):
                    pushing.push(shifted, reads=(h,), writes=(h,))
                    pushing.push(ss.ops.to_device, reads=(h,), writes=(x,))
                    np.testing.assert_array_equal(pushing.read(x), pushing.read(h))
                    (expected,) = run_reference(with_a_host_step.trace(X, X), [X, X * turn])
                    np.testing.assert_array_equal(pushing.run(with_a_host_step, X, X * turn), expected)

            in_threads(lambda number: uses(device, engine, number) if number else pushes())


def test_a_thread_works_while_another_captures():
    device = SimulatedDevice()
    prepared = prepare_traced(chain.trace(X, X), "async", device)
    stream = device.stream("captured")
    device.begin_capture(stream)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(uses, device, "graph", 1).result()
        with pytest.raises(EngineError, match="is captured"):  # This stream, or all, nobody can wait for.
            pool.submit(stream.synchronize).result()
    with pytest.raises(EngineError, match="is captured"):
        prepared.wait()
    device.abandon_capture(stream)
    prepared.wait()


def test_rebinding_by_several_threads_keeps_runs_whole():
    prepared = prepare_traced(chain.trace(X, X), "graph", SimulatedDevice())
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
