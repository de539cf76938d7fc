"""Waits with a time-out, on every engine; collectives that are aborted by them, and by others."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.errors import DeviceError, EngineError, WaitTimeoutError

WAITS = {
    "read": lambda engine, x, **options: engine.read(x, **options),
    "to read": lambda engine, x, **options: engine.wait_to_read(x, **options),
    "to write": lambda engine, x, **options: engine.wait_to_write(x, **options),
    "all": lambda engine, x, **options: engine.wait_all(**options),
}


def late(name, ns=5_000_000):
    """Return delays by which one operator's launches start late."""
    return lambda launch, stream: (ns if launch.name == name else 0, 1)


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_that_takes_too_long_ends_and_the_next_one_succeeds(wait):
    device = SimulatedDevice(delays=late("sin"))
    with ss.Engine("async", device=device) as engine:
        x = engine.variable(np.zeros(4))
        engine.push(ss.ops.sin, reads=(x,), writes=(x,))
        begin_ns = device.now_ns()
        with pytest.raises(WaitTimeoutError, match=r"waiting for .* took longer than 1.00 ms \(wait longer"):
            WAITS[wait](engine, x, timeout=1e-3)
        assert 1e6 <= device.now_ns() - begin_ns < 1.1e6
        np.testing.assert_array_equal(engine.read(x, timeout=1.0), np.zeros(4))


@pytest.mark.parametrize("wait", WAITS)
def test_a_host_function_that_takes_too_long(wait):
    go = threading.Event()
    with ss.Engine("async", device="simulated") as engine:
        h = engine.variable(np.zeros(4), place="host")
        engine.push(lambda values: go.wait(30) and values + 1, reads=(h,), writes=(h,))
        with pytest.raises(WaitTimeoutError):
            WAITS[wait](engine, h, timeout=0.01)
        go.set()
        np.testing.assert_array_equal(engine.read(h), np.ones(4))


@pytest.mark.parametrize("timeout", [0, -1, "1", True, float("nan")])
def test_what_is_no_time_out(timeout):
    with ss.Engine("async", device="simulated") as engine, pytest.raises(EngineError, match="no number of seconds above 0"):
        engine.wait_all(timeout=timeout)


class Pair:
    """A variable on each of two GPUs, and others for results."""

    def __init__(self, engine):
        self.engine = engine
        self.u, self.v = (engine.variable(np.ones(4), gpu=gpu) for gpu in (0, 1))
        self.p, self.q = (engine.variable(np.zeros(4), gpu=gpu) for gpu in (0, 1))
        self.other = engine.variable(np.ones(4))
        engine.wait_all()

    def reduce(self):
        self.engine.push(ss.ops.all_reduce, reads=(self.u, self.v), writes=(self.p, self.q))

    def works(self):
        for variable in (self.u, self.v, self.p, self.q):
            self.engine.write(variable, np.ones(4))
        self.reduce()
        np.testing.assert_array_equal([self.engine.read(self.p), self.engine.read(self.q)], np.full((2, 4), 2.0))


@pytest.fixture(params=["async", "dual"])
def pair(request):
    with ss.Engine(request.param, device=SimulatedDevice(gpus=2, delays=late("all_reduce"))) as engine:
        yield Pair(engine)


def test_a_time_out_aborts_the_collectives_and_says_so_at_a_wait_for_their_results(pair):
    engine = pair.engine
    engine.push(ss.ops.add, reads=(pair.other, pair.other), writes=(pair.other,))
    pair.reduce()
    engine.push(ss.ops.add, reads=(pair.q, pair.v), writes=(pair.v,))
    with pytest.raises(WaitTimeoutError, match=r"took longer than 1.00 ms \(collectives that were under way were aborted"):
        engine.wait_to_read(pair.v, timeout=1e-3)
    assert engine.device.collective_aborts == 1
    np.testing.assert_array_equal(engine.read(pair.other), np.full(4, 2.0))
    with pytest.raises(DeviceError, match=r"all_reduce \(pushed at test_timeouts.py:\d+\) failed: it was aborted"):
        engine.wait_to_read(pair.v)
    pair.works()


def test_what_was_pushed_behind_a_collective_that_is_aborted_is_skipped_or_at_fault(pair):
    engine, called = pair.engine, []
    h = engine.variable(np.ones(4), place="host")
    pair.reduce()
    engine.push(ss.ops.to_host, reads=(pair.p,), writes=(h,))
    engine.push(lambda values: called.append(values) or values, reads=(h,), writes=(h,))
    with pytest.raises(WaitTimeoutError):
        engine.wait_to_read(pair.q, timeout=1e-3)
    with pytest.raises(DeviceError, match="aborted"):
        engine.wait_to_read(h)
    engine.wait_all()
    assert called == []
    pair.works()


def test_collectives_that_have_ended_keep_their_results(pair):
    engine, (r, s) = pair.engine, (pair.engine.variable(np.zeros(4), gpu=gpu) for gpu in (0, 1))
    engine.push(ss.ops.all_gather, reads=(pair.u, pair.v), writes=(wide := [engine.variable(np.zeros(8), gpu=gpu) for gpu in (0, 1)]))
    engine.push(ss.ops.all_reduce, reads=(pair.u, pair.v), writes=(r, s))
    with pytest.raises(WaitTimeoutError):
        engine.wait_all(timeout=1e-3)
    np.testing.assert_array_equal(engine.read(wide[1]), np.ones(8))
    with pytest.raises(DeviceError, match="aborted"):
        engine.wait_all()
    pair.works()


def test_an_abort_by_somebody_else_is_met_too(pair):
    pair.reduce()
    pair.engine.device.abort_collectives()
    with pytest.raises(DeviceError, match=r"all_reduce .* aborted"):
        pair.engine.read(pair.q)
    pair.works()


def test_a_time_out_without_collectives_under_way_aborts_nothing():
    with ss.Engine("async", device=SimulatedDevice(gpus=2, delays=late("sin"))) as engine:
        pair = Pair(engine)
        pair.reduce()
        engine.push(ss.ops.sin, reads=(pair.p,), writes=(pair.other,))
        with pytest.raises(WaitTimeoutError, match="wait longer"):
            engine.wait_all(timeout=1e-3)
        assert engine.device.collective_aborts == 0
        np.testing.assert_array_equal(engine.read(pair.other), np.sin(np.full(4, 2.0)))


def test_a_time_out_may_be_longer_than_the_machine_can_tell():
    with ss.Engine("async", device="simulated") as engine:
        h = engine.variable(np.zeros(4), place="host")
        for timeout in (float("inf"), 1e30, np.float32(5), np.int64(3)):
            engine.push(lambda values: values + 1, reads=(h,), writes=(h,))
            engine.wait_to_read(h, timeout=timeout)
        np.testing.assert_array_equal(engine.read(h), np.full(4, 4))


def test_ctrl_c_in_a_wait_that_aborts_leaves_the_next_push_alone(pair, monkeypatch):
    """As on CUDA, where a collective that is waited for may never end."""
    engine, event = pair.engine, type(pair.engine.device.event())
    pair.reduce()

    def interrupted(_):
        engine.device.abort_collectives()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(event, "synchronize", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.wait_all()
    pair.reduce()  # The quick way.
    with pytest.raises(DeviceError, match="aborted"):
        engine.wait_all()
    engine.wait_all()
    np.testing.assert_array_equal([engine.read(pair.p), engine.read(pair.q)], np.full((2, 4), 2.0))
    assert pair.p.version == 2


def test_a_collective_that_is_pushed_after_an_abort_by_somebody_else_is_whole(pair):
    pair.reduce()
    pair.engine.device.abort_collectives()
    r, s = (pair.engine.variable(np.zeros(4), gpu=gpu) for gpu in (0, 1))
    pair.engine.push(ss.ops.all_reduce, reads=(pair.u, pair.v), writes=(r, s))
    np.testing.assert_array_equal([pair.engine.read(r), pair.engine.read(s)], np.full((2, 4), 2.0))
    with pytest.raises(DeviceError, match="aborted"):
        pair.engine.read(pair.p)


@pytest.fixture
def aborts_in(pair, monkeypatch):
    """Let the next call of a method of streams or events abort all collectives, as another thread may."""

    def prepared(owner, method):
        call = getattr(owner, method)

        def aborting(*arguments):
            monkeypatch.setattr(owner, method, call)
            pair.engine.device.abort_collectives()
            return call(*arguments)

        monkeypatch.setattr(owner, method, aborting)

    return prepared


def test_an_abort_between_launch_and_record_is_met(pair, aborts_in):
    aborts_in(type(pair.engine.device.stream("another")), "record")
    pair.reduce()
    assert pair.engine.device.collective_aborts == 1
    with pytest.raises(DeviceError, match=r"all_reduce .* aborted"):
        pair.engine.read(pair.p)
    pair.works()


def test_what_is_aborted_while_the_engine_asks_whether_it_has_ended_has_not(pair, aborts_in):
    engine = pair.engine
    u, v, p, q = (engine.variable(np.ones(1 << 20), gpu=gpu) for gpu in (0, 1, 0, 1))
    engine.wait_all()
    engine.push(ss.ops.all_to_all, reads=(u, v), writes=(p, q))
    for _ in range(20):  # Until it has begun.
        engine.push(ss.ops.add, reads=(pair.other, pair.other), writes=(pair.other,))
    aborts_in(type(engine.device.event()), "done")
    pair.reduce()
    assert engine.device.collective_aborts == 1
    with pytest.raises(DeviceError, match=r"all_to_all .* aborted"):
        engine.read(p)
    with pytest.raises(DeviceError, match=r"all_reduce .* aborted"):
        engine.wait_all()
    pair.works()
