"""Engines that are closed or dropped while there is work, and what is left of an operation that is over."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.engine import Engine
from streamscope.engines.pushed.variable import Turn
from streamscope.errors import EngineError, OutOfMemoryError
from streamscope.program.variable import ArraySpec, MemoryPlace

LONG_S = 30


def in_time(call):
    """Call something on a thread that must end in time."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LONG_S)
    assert not thread.is_alive(), "it hangs"


def until(condition):
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end, "it never comes"
        time.sleep(0.001)


@pytest.mark.parametrize("name", ["async", "dual"])
def test_what_a_dropped_engine_was_given_is_done(name, device):
    go, done = threading.Event(), []

    def give():
        engine = Engine(name, device=device)
        h, other = (engine.variable(np.zeros(4), place="host") for _ in range(2))

        def count(values, *others):
            go.wait(LONG_S)
            done.append(len(done))
            return values + 1

        for _ in range(4):
            engine.push(count, reads=(h,), writes=(h,))
            engine.push(count, reads=(other, h), writes=(other,), priority=1)

    give()
    gc.collect()
    go.set()
    until(lambda: len(done) == 8)


@pytest.mark.parametrize("name", ["sync", "async"])
def test_closing_while_another_thread_pushes(name, device):
    """What is accepted is done before close returns; what is not is refused."""
    for _ in range(10):
        engine = Engine(name, device=device)
        x, h = engine.variable(np.zeros(4)), engine.variable(np.zeros(4), place="host")
        accepted, refused, started, ran = [], [], threading.Event(), []

        def step(values, ran=ran):
            ran.append(1)
            return values + 1

        def push(engine=engine, x=x, h=h, step=step, accepted=accepted, refused=refused, started=started):
            try:
                for number in range(10**6):
                    engine.push(ss.ops.negative, reads=(x,), writes=(x,))
                    engine.push(step, reads=(h,), writes=(h,))
                    accepted.append(number)
                    if number == 3:
                        started.set()
            except EngineError as error:
                refused.append(str(error))

        thread = threading.Thread(target=push, daemon=True)
        thread.start()
        assert started.wait(LONG_S)
        in_time(engine.close)
        count = len(ran)
        thread.join(LONG_S)
        assert not thread.is_alive()
        assert ["closed" in text for text in refused] == [True]
        assert count == len(ran) >= len(accepted)


def test_an_engine_that_is_closed_while_a_push_looks_at_its_variables_says_so(device, monkeypatch):
    engine = Engine("sync", device=device)
    x = engine.variable(np.zeros(4))
    check = engine._pusher._check_alive
    monkeypatch.setattr(engine._pusher, "_check_alive", lambda states: (check(states), engine.close()))
    with pytest.raises(EngineError, match="closed"):
        engine.push(ss.ops.negative, reads=(x,), writes=(x,))


def test_what_another_thread_has_in_a_bulk_is_refused(device):
    engine = Engine("async", device=device)
    x = engine.variable(np.ones(4))
    filled, closed, errors = threading.Event(), threading.Event(), []

    def fill():
        try:
            with engine.bulk():
                engine.push(ss.ops.negative, reads=(x,), writes=(x,))
                filled.set()
                closed.wait(LONG_S)
        except EngineError as error:
            errors.append(str(error))

    thread = threading.Thread(target=fill)
    thread.start()
    filled.wait(LONG_S)
    engine.close()
    closed.set()
    thread.join(LONG_S)
    assert "the engine was closed" in errors[0]


def test_closing_again_after_it_was_interrupted_goes_on(device, monkeypatch):
    engine = Engine("async", device=device)
    engine.write(engine.variable(np.zeros(4), place="host"), np.ones(4))
    wait_all = engine._scheduler.wait_all

    def interrupted():
        monkeypatch.setattr(engine._scheduler, "wait_all", wait_all)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine._scheduler, "wait_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.variable(np.zeros(4))
    engine.close()
    assert engine.statistics.threads == 0
    assert engine.statistics.in_use_bytes == 0


def test_host_operations_leave_no_garbage_for_the_collector(device):
    """With the collector off, what an operation held goes with it."""
    engine = Engine("async", device=device)
    h = engine.variable(np.zeros(4), place="host")
    engine.write(h, np.zeros(4))
    engine.wait_all()
    gc.collect()
    gc.disable()
    try:
        before = sum(type(one) is Turn for one in gc.get_objects())
        for _ in range(20):
            engine.write(h, np.ones(4))
        step = lambda values: values + 1  # noqa: E731 — it must have no other name
        gone = weakref.ref(step)
        engine.push(step, reads=(h,), writes=(h,))
        del step
        engine.wait_all()
        until(lambda: gone() is None)
        assert sum(type(one) is Turn for one in gc.get_objects()) == before
    finally:
        gc.enable()
        engine.close()


def test_the_temporaries_of_what_ran_out_of_memory_are_free_at_once(monkeypatch):
    device = SimulatedDevice()
    engine = Engine("async", device=device)
    x, y = engine.variable(np.ones(1 << 16)), engine.variable(ArraySpec((1 << 16,), np.dtype(np.float64)))
    engine.wait_all()
    allocate, left = device.allocate_block, [3]

    def little(nbytes, place):
        if place is MemoryPlace.DEVICE:
            left[0] -= 1
            if left[0] < 0:
                raise OutOfMemoryError("full")
        return allocate(nbytes, place)

    def many(a):
        b = ss.ops.add(a, a)
        c = ss.ops.multiply(b, a)
        return ss.ops.add(ss.ops.multiply(c, b), ss.ops.add(c, b))

    in_use = engine.statistics.in_use_bytes
    monkeypatch.setattr(device, "allocate_block", little)
    gc.disable()
    try:
        engine.push(many, reads=(x,), writes=(y,))
        # The variable that is written keeps its memory; of the temporaries, nothing.
        assert engine.statistics.in_use_bytes == in_use + y.spec.nbytes
        with pytest.raises(OutOfMemoryError, match="many"):
            engine.wait_to_read(y)
    finally:
        gc.enable()
        monkeypatch.undo()
        engine.close()


class TestInterruptedTwice:
    @pytest.fixture
    def engine(self, device):
        engine = Engine("async", device=device)
        yield engine
        in_time(lambda: self.closed(engine))

    @staticmethod
    def closed(engine):
        try:
            engine.close()
        except ss.StreamscopeError:
            engine.close()

    def test_while_it_mends_itself(self, engine, monkeypatch):
        """What another thread's operation waits for still comes, and so do the results after it."""
        h, d, q = engine.variable(np.zeros(4), place="host"), engine.variable(np.zeros(4)), engine.variable(np.zeros(4))
        r = engine.variable(ArraySpec((4,), np.dtype(np.float64)))
        go, issuer = threading.Event(), engine._issuer

        def slow(values):
            go.wait(LONG_S)
            return values + 1

        engine.push(slow, reads=(h,), writes=(h,))
        engine.push(ss.ops.to_device, reads=(h,), writes=(d,))

        def interrupt(*arguments):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(issuer, "_bound", interrupt)
            patch.setattr(issuer, "mend", interrupt)
            with pytest.raises(KeyboardInterrupt):
                engine.push(ss.ops.relu, reads=(q,), writes=(r,))
        assert issuer.torn
        go.set()
        in_time(lambda: engine.wait_to_read(d))
        np.testing.assert_array_equal(engine.read(d), np.ones(4))
        engine.push(ss.ops.relu, reads=(d,), writes=(r,))
        np.testing.assert_array_equal(engine.read(r), np.ones(4))

    def test_in_the_last_moment_of_an_operation(self, engine):
        x = engine.variable(np.ones(4))
        engine._issuer._issuing = True  # as Ctrl-C leaves it before anything could be noted
        engine.push(ss.ops.negative, reads=(x,), writes=(x,))
        np.testing.assert_array_equal(engine.read(x), -np.ones(4))

    def test_an_operator_that_uses_its_engine_is_still_told(self, engine):
        x, y = engine.variable(np.ones(4)), engine.variable(np.ones(4))

        bound = engine._issuer._bound
        engine._issuer._bound = lambda *of: (engine.push(ss.ops.negative, reads=(y,), writes=(y,)), bound(*of))[1]
        engine.push(ss.ops.negative, reads=(x,), writes=(x,))
        engine._issuer._bound = bound
        with pytest.raises(EngineError, match="used the engine that was calling it"):
            engine.wait_to_read(x)


def test_turns_end_where_an_operation_cannot_start(device, monkeypatch):
    """The system has no thread for it: the operation fails, and what comes after it goes on."""
    engine = Engine("async", device=device)
    h = engine.variable(np.zeros(4), place="host")

    def start(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        engine.push(lambda values: values + 1, reads=(h,), writes=(h,))
    with pytest.raises(EngineError, match="cannot start a thread for a host operation"):
        engine.wait_to_read(h)
    engine.push(lambda values: values + 2, reads=(h,), writes=(h,))
    np.testing.assert_array_equal(engine.read(h), np.full(4, 2.0))
    in_time(engine.close)
