"""Host operations that push, and those after which what ends the program comes."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.engines.pushed.conftest import SPEC

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.engine import Engine
from streamscope.engines.pushed.workers import Latch
from streamscope.errors import EngineError


def in_time(call):
    """Call something on a thread that must end in time."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "it hangs"


@pytest.mark.parametrize("name", ["async", "dual"])
def test_what_they_push_while_the_engine_is_closed_runs(name, device):
    engine, closing, done = Engine(name, device=device, workers=1), threading.Event(), []
    x = engine.variable(np.ones(4))

    def push():
        while not engine._pusher.closed:
            closing.wait(0.001)
        engine.push(ss.ops.negative, reads=(x,), writes=(x,))
        engine.push(lambda: done.append(1))
        engine.push(lambda: engine.push(lambda: done.append(2)), priority=1)

    engine.push(push)
    in_time(engine.close)
    assert sorted(done) == [1, 2]
    assert x.version == 1
    with pytest.raises(EngineError, match="was closed"):
        engine.push(push)


@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_ends_no_worker(ends, monkeypatch):
    """A device operation is issued by the worker that ends the host operation before it."""
    engine = Engine("async", device=SimulatedDevice(), workers=1)
    h, x, y = engine.variable(np.ones(4, np.int64), place="host"), engine.variable(SPEC), engine.variable(SPEC)
    go, bound = threading.Event(), engine._issuer._bound

    def end(*of):
        monkeypatch.setattr(engine._issuer, "_bound", bound)
        raise ends

    def slow(values):
        go.wait(30)
        return values

    engine.push(slow, reads=(h,), writes=(h,))
    engine.push(ss.ops.to_device, reads=(h,), writes=(x,))
    engine.push(ss.ops.negative, reads=(x,), writes=(y,))
    monkeypatch.setattr(engine._issuer, "_bound", end)
    go.set()

    def raises():
        with pytest.raises(EngineError, match=rf"to_device .* was interrupted by {ends.__name__}"):
            engine.wait_to_read(y)

    in_time(raises)
    engine.push(lambda values: values + 1, reads=(h,), writes=(h,))
    np.testing.assert_array_equal(engine.read(h), np.full(4, 2))
    assert all(thread.is_alive() for pool in engine._scheduler.pools for thread in pool.threads)
    in_time(engine.close)


def test_a_latch_lets_go_whoever_waits_before_or_after():
    latch, waited = Latch(), []
    waits = threading.Thread(target=lambda: waited.append(latch.wait()), daemon=True)
    waits.start()
    assert not latch.is_set
    latch.set()
    latch.set()
    waits.join(30)
    assert waited == [None]
    in_time(latch.wait)
    assert latch.is_set
