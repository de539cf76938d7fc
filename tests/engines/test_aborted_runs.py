"""Runs that end early, loads in between, and programs that hardly do anything."""

from __future__ import annotations

import numpy as np
import pytest

from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import prepare_traced
from streamscope.errors import ProgramError
from streamscope.ops import add, multiply
from streamscope.ops.host import host_function, to_device
from streamscope.program.reference import run_reference
from streamscope.tracing import program

pytestmark = pytest.mark.parametrize("engine", ENGINES)
X = np.arange(1.0, 5.0)


def late(launch, stream):
    return (1e6, 1.0)


def test_inputs_that_are_loaded_anew_wait_for_the_run_that_reads_them(engine):
    @program
    def twice(x):
        return add(x, x)

    prepared = prepare_traced(twice.trace(X), engine, SimulatedDevice(delays=late))
    for _ in range(3):
        prepared.load([X])
        prepared.run()
    prepared.load([10 * X])
    np.testing.assert_array_equal(prepared.outputs()[0], 2 * X)


def test_after_a_run_that_was_interrupted_in_the_middle_the_next_are_right(engine):
    broken = []

    @host_function
    def fragile(values):
        if broken:
            raise KeyboardInterrupt
        return values + 1

    @program
    def mixed(x, raw):
        y = multiply(x, x)
        z = to_device(fragile(raw))
        x = add(x, y, out=x)
        return x, add(z, y)

    traced = mixed.trace(X, X)
    prepared = prepare_traced(traced, engine, SimulatedDevice(delays=late))
    for interrupted in (True, False, False, True, False):
        broken[:] = [True] if interrupted else []
        prepared.load([X, X.copy()])
        if interrupted:
            with pytest.raises(KeyboardInterrupt):
                prepared.run()
        else:
            prepared.run()
            for found, expected in zip(prepared.outputs(), run_reference(traced, [X, X]), strict=True):
                np.testing.assert_array_equal(found, expected)


def test_a_program_that_returns_what_it_gets(engine):
    @program
    def nothing(x):
        return x

    prepared = prepare_traced(nothing.trace(X), engine, SimulatedDevice())
    prepared.load([X])
    for _ in range(3):
        prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], X)


def test_a_function_that_was_not_traced_is_refused(engine):
    with pytest.raises(ProgramError, match="wants a traced program, not a ProgramFunction"):
        prepare_traced(program(lambda x: x), engine, "simulated")


def test_a_host_function_cannot_change_what_it_only_reads(engine):
    @host_function
    def greedy(values):
        values += 1
        return values

    @program
    def wrong(x):
        return greedy(x)

    prepared = prepare_traced(wrong.trace(X), engine, SimulatedDevice())
    prepared.load([X])
    with pytest.raises(ValueError, match="read-only") as caught:
        prepared.run()
    (note,) = caught.value.__notes__
    assert note.startswith("in host function greedy (operation 0, test_aborted_runs.py:")
