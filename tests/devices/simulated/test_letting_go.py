"""A simulated run holds what somebody still reads, and nothing else."""

from __future__ import annotations

import gc
import random
import tracemalloc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.measuring.case import Case
from streamscope.program.reference import run_reference
from streamscope.program.variable import MemoryPlace

X = np.linspace(-1, 1, 1 << 16, dtype=np.float32)
LENGTH = 50


def chain(x):
    for _ in range(LENGTH):
        x = ss.ops.tanh(x)
    return x


def peak_arrays(function):
    """Return how many arrays like X a call held at once; it is called before, for what it imports and keeps."""
    function()
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1] / X.nbytes
    finally:
        tracemalloc.stop()


def test_the_reference_holds_a_few_arrays():
    traced = ss.program(chain).trace(X)
    assert peak_arrays(lambda: run_reference(traced, [X])) < 8


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_holds_a_few_arrays(engine):
    prepared = ss.prepare(chain, X, engine=engine, device="simulated", progress=False)

    def run():
        for _ in range(3):
            prepared.run()
            prepared.wait()

    assert peak_arrays(run) < 10
    np.testing.assert_array_equal(prepared.outputs()[0], run_reference(prepared.program, [X])[0])


def test_reference_and_tolerances_hold_a_few_arrays():
    case = Case.of(ss.program(chain), [X], "ss.compare")
    assert peak_arrays(case.with_reference) < 16  # float64 among them


def test_what_a_variable_takes_on_the_device_stays_the_same():
    assert ss.prepare(chain, X, device="simulated", progress=False).memory["variables_bytes"] == (LENGTH + 1) * X.nbytes


@ss.host_function(duration_us=3.0)
def negated(values):
    """Return the values with the other sign."""
    return -values


def woven(chance, length):
    """Return a program of branches that meet, with copies to the host and back, and a variable that is written again and again."""

    def function(x, y):
        values = [x, y, x - y]
        kept = ss.empty(x.shape, x.dtype)
        ss.ops.add(x, y, out=kept)
        for _ in range(length):
            a, b = chance.choice(values[-4:]), chance.choice(values[-4:])
            kind = chance.randrange(6)
            if kind == 0:
                values.append(ss.ops.to_device(negated(ss.ops.to_host(a))))
            elif kind == 1:
                ss.ops.add(kept, a, out=kept)
            elif kind == 2:
                ss.ops.subtract(a, b, out=kept)
            elif kind == 3:
                values.append(kept * a)
            else:
                values.append(a - 2 * b)
        return values[-1], kept

    return ss.program(function)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), length=st.integers(1, 25), runs=st.integers(1, 4))
def test_nothing_is_let_go_that_somebody_still_reads(engine, seed, length, runs):
    x, y = np.arange(1, 6, dtype=np.int32), np.arange(7, 2, -1, dtype=np.int32)
    traced = woven(random.Random(seed), length).trace(x, y)
    late = random.Random(seed)
    device = SimulatedDevice(delays=lambda launch, stream: (late.choice((0.0, 0.0, 50_000.0)), late.choice((1.0, 30.0))))
    prepared = ss.prepare(traced, x, y, engine=engine, device=device, streams=3, progress=False)
    for _ in range(runs):
        prepared.run()  # one after the other, with nothing between them
    for one, other in zip(prepared.outputs(), run_reference(traced, [x, y]), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("at", [0, 3, 7])
def test_a_run_that_broke_off_does_no_harm_to_the_next(engine, at):
    class StopError(Exception):
        pass

    def stop(launch):
        if len(seen) == at:
            seen.append(launch)
            raise StopError
        seen.append(launch)

    def step(x):
        a, b = ss.ops.tanh(x), ss.ops.exp(x)
        for _ in range(3):
            a, b = a + b, a - b
        return a * b

    seen = []
    device = SimulatedDevice()
    prepared = ss.prepare(step, X, engine=engine, device=device, progress=False)

    def broken_off():
        with device.watched(stop):
            prepared.run()
            prepared.wait()

    with pytest.raises(StopError):
        broken_off()
    for _ in range(3):
        prepared.run()
    np.testing.assert_array_equal(prepared.outputs()[0], run_reference(prepared.program, [X])[0])


def test_memory_that_nobody_wrote_to_is_poison():
    device = SimulatedDevice()
    for dtype, poison in (("float32", np.nan), ("int16", 0x5A5A), ("bool", True)):
        buffer = device.allocate(ss.ArraySpec((3,), dtype), MemoryPlace.DEVICE)
        values = device.read(buffer)
        np.testing.assert_array_equal(values, np.full(3, poison, dtype))
        values[:] = 0  # a copy, and writeable
        device.write(buffer, values)
        np.testing.assert_array_equal(device.read(buffer), values)


def test_a_device_keeps_no_stream_that_nobody_uses(bench):
    stream = bench.device.stream("short")
    gone = weakref.ref(stream)
    bench.kernel(stream, 100)()
    bench.device.synchronize()
    del stream
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("waits", [False, True])
def test_the_device_finishes_the_work_of_a_stream_that_nobody_holds(bench, waits):
    other, stream, done = bench.device.stream("other"), bench.device.stream("short"), bench.buffer()
    if waits:
        bench.kernel(other, 5000)()
        event = bench.device.event()
        other.record(event)
        stream.wait(event)
        del event
    bench.kernel(stream, 3000)()
    bench.compute(stream, lambda: np.float64(7.0), [], [done])()
    del other, stream
    gc.collect()
    assert bench.value(done) != 7
    bench.device.synchronize()
    assert bench.value(done) == 7
