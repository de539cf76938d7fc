"""On a simulated device an engine repeats itself to the nanosecond, however fast its worker threads are."""

from __future__ import annotations

import itertools
import random
import sys
import threading

import numpy as np
import pytest
from tests.engines.pushed.conftest import KINDS, SPEC, Serial

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.engine import Engine
from streamscope.engines.pushed.host_operations import WHILE_AWAITED, WHILE_PUSHED, HostQueue
from streamscope.engines.pushed.workers import Latch


def ones():
    return np.ones(4, np.int64)


@pytest.fixture(autouse=True)
def _restless():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def trace_of(name, seed):
    """Push at random, and read in between; return all that ran, with its times, and the host's clock."""
    device, chance = SimulatedDevice(), random.Random(seed)
    device.log.enabled = True
    with Engine(name, device=device, streams=3, priority_workers=2) as engine:
        serial = Serial(engine, 3, 3)
        for _ in range(40):
            operands = [chance.randrange(12) for _ in range(4)]
            serial.push(chance.choice([*KINDS, "host", "out"]), operands[:2], operands[2:], chance.choice([0, 0, 0, 1, 2]))
            if chance.random() < 0.1:
                engine.read(chance.choice(serial.variables))
        engine.wait_all()
        serial.check()
    return list(device.log), device.now_ns()


@pytest.mark.parametrize("name", ["async", "dual"])
@pytest.mark.parametrize("seed", range(3))
def test_all_runs_have_one_trace(name, seed):
    first = trace_of(name, seed)
    assert all(trace_of(name, seed) == first for _ in range(14))


class TestAThreadThatWaitsInAWayOfItsOwn:
    @pytest.fixture(autouse=True)
    def _impatient(self, monkeypatch):
        monkeypatch.setattr("streamscope.engines.pushed.host_operations.PATIENCE_S", 0.01)

    def test_for_a_function_that_reads_what_others_made_is_not_kept_waiting(self):
        with Engine("async", device=SimulatedDevice()) as engine:
            h, x, called = engine.variable(ones(), place="host"), engine.variable(SPEC), threading.Event()
            engine.push(lambda values: values + 1, reads=(h,), writes=(h,))
            engine.push(ss.ops.to_device, reads=(h,), writes=(x,))
            engine.push(ss.ops.to_host, reads=(x,), writes=(h,))
            engine.push(lambda values: called.set(), reads=(h,))
            assert called.wait(60)

    def test_a_function_that_waits_for_a_later_one_is_not_kept_waiting(self):
        with Engine("async", device=SimulatedDevice(), workers=2) as engine:
            go, done = threading.Event(), []
            engine.push(lambda: done.append(go.wait(60)))
            engine.push(lambda: None)
            engine.push(go.set)  # It gets the worker of the second.
            engine.wait_all()
            assert done == [True]

    def test_an_engine_that_nobody_waits_for_does_what_was_pushed(self):
        called = threading.Event()
        engine = Engine("async", device=SimulatedDevice())
        h, x = engine.variable(ones(), place="host"), engine.variable(SPEC)
        engine.push(lambda values: values + 1, reads=(h,), writes=(h,))
        engine.push(ss.ops.to_device, reads=(h,), writes=(x,))
        engine.push(ss.ops.to_host, reads=(x,), writes=(h,))
        engine.push(lambda values: called.set(), reads=(h,))
        del engine
        assert called.wait(60)

    def test_until_a_function_is_done_and_pushes_meanwhile_gets_there(self):
        with Engine("async", device=SimulatedDevice()) as engine:
            h, made, x = engine.variable(ones(), place="host"), engine.variable(ones(), place="host"), engine.variable(ones())
            engine.push(lambda values: values + 1, reads=(h,), writes=(made,))
            pushes = 0
            while made.version == 0 and pushes < 1_000_000:
                engine.push(ss.ops.add, reads=(x, x), writes=(x,))
                pushes += 1
            assert made.version == 1


class Slow(Latch):
    """A step whose turn comes after so many periods of patience."""

    def __init__(self, periods):
        super().__init__()
        self.left = periods

    def comes_within(self, seconds):
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize(
    ("awaited", "moves", "periods"), [(True, False, WHILE_AWAITED), (True, True, 10**9), (False, False, 1), (False, True, WHILE_PUSHED)]
)
def test_a_worker_loses_patience_after_as_long_as_what_goes_on_deserves(awaited, moves, periods):
    """A function that takes long is waited for, pushes for a while, nothing at all for one period."""

    def given_up(waited):
        clock = itertools.count(step=int(moves))
        order = HostQueue((), lambda: next(clock))
        order._awaited = [Latch()] if awaited else []
        released = []
        order.release = lambda: released.append(1)
        order.wait(Slow(waited))
        return bool(released)

    assert not given_up(min(periods, 100) - 1)
    assert given_up(periods) if periods < 100 else not given_up(1000)
