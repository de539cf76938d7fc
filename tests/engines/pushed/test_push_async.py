"""Asynchronous host functions: they call back, on any thread, and no worker is held meanwhile."""

from __future__ import annotations

import gc
import threading
from collections import deque
from contextlib import suppress
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.interrupting import Calls, profiled

import streamscope as ss
from streamscope.errors import EngineError, ProgramError, WaitTimeoutError


class Service:
    """Answers on a thread of its own, when it is told to."""

    def __init__(self):
        self.asked = deque()

    def ask(self, done, *arrays):
        self.asked.append((done, arrays))

    def answer(self, answer=lambda *arrays: arrays[0] + 1):
        done, arrays = self.asked.popleft()
        thread = threading.Thread(target=lambda: done(answer(*arrays)))
        thread.start()
        thread.join(30)


def until(condition):
    for _ in range(3000):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("it never came")


@pytest.fixture
def engine():
    with ss.Engine("async", device="simulated", workers=1) as engine:
        yield engine


def hosts(engine, number, value=1):
    return [engine.variable(np.full(4, value), place="host") for _ in range(number)]


def test_no_worker_is_held_and_the_order_is_that_of_the_pushes(engine):
    service, (h, *others) = Service(), hosts(engine, 6)
    for other in others:
        engine.push_async(service.ask, reads=(other,), writes=(other,))
    engine.push(lambda one, two: one + two, reads=(h, others[0]), writes=(h,))
    engine.push(lambda values: values * 7, reads=(others[0],), writes=(others[0],))
    engine.push(lambda values: values + 41, reads=(g := hosts(engine, 1)[0],), writes=(g,))
    np.testing.assert_array_equal(engine.read(g), np.full(4, 42))  # The one worker is free.
    assert engine.statistics.callbacks_pending == len(service.asked) == 5
    assert h.version == 0
    for _ in others:
        service.answer()
    np.testing.assert_array_equal([engine.read(h), engine.read(others[0]), engine.read(others[4])], [[3] * 4, [14] * 4, [2] * 4])
    assert engine.statistics.callbacks_pending == 0
    assert others[0].version == 2


@pytest.mark.parametrize("name", ["sync", "async", "dual"])
def test_one_that_calls_back_at_once_or_from_a_timer(name):
    with ss.Engine(name, device="simulated") as engine:
        h, x = hosts(engine, 1)[0], engine.variable(np.zeros(4, np.int64))
        engine.push_async(lambda done, values: done(values + 1), reads=(h,), writes=(h,))
        engine.push_async(lambda done, values, by: threading.Timer(0.01, done, [values * by]).start(), reads=(h,), writes=(h,), by=3)
        engine.push_async(lambda done, values: done(), reads=(h,))
        engine.push(ss.ops.to_device, reads=(h,), writes=(x,))
        np.testing.assert_array_equal(engine.read(x), np.full(4, 6))


def test_what_fails_is_raised_where_the_results_are_waited_for(engine):
    h, g = hosts(engine, 2)

    def raises(done):
        done(np.ones(4))
        raise IndexError("too far")

    for function, message in (
        (lambda done: done(error=ValueError("no answer")), "failed: ValueError: no answer"),
        (lambda done: done(), r"done\(\) of .* was called without results, and it writes 1 variable"),
        (lambda done: done(np.ones(5)), "float64\\[5\\]|int64"),
        (raises, "failed: IndexError: too far"),
    ):
        engine.push_async(function, writes=(h,), name="ask")
        engine.push(lambda values: values, reads=(h,), writes=(g,))
        with pytest.raises(ss.StreamscopeError, match=rf"ask \(pushed at test_push_async.py:\d+\) .*{message}|{message}"):
            engine.wait_to_read(g)
        engine.wait_all()
    np.testing.assert_array_equal(engine.read(h), np.ones(4))


def test_an_operand_that_failed_is_not_asked_about(engine):
    h, service = hosts(engine, 1)[0], Service()
    engine.push(lambda values: values[9], reads=(h,), writes=(h,))
    engine.push_async(service.ask, reads=(h,), writes=(h,))
    with pytest.raises(EngineError, match="IndexError"):
        engine.wait_all()
    assert not service.asked


def test_done_is_called_once_and_with_what_it_takes(engine):
    service, h = Service(), hosts(engine, 1)[0]
    engine.push_async(service.ask, reads=(h,), writes=(h,))
    until(lambda: service.asked)
    done, _ = service.asked[0]
    for wrong in ({"error": "text"}, {"results": 1, "error": ValueError()}):
        with pytest.raises(ProgramError, match="error="):
            done(**wrong)
    service.answer()
    with pytest.raises(EngineError, match="was called twice"):
        done(np.ones(4))
    np.testing.assert_array_equal(engine.read(h), np.full(4, 2))


def test_it_is_for_functions_over_host_variables(engine):
    x = engine.variable(np.ones(4))
    for function, what in ((lambda done, values: done(), "device memory"), (ss.ops.add, "device memory")):
        with pytest.raises(ProgramError, match=what):
            engine.push_async(function, reads=(x,))
    with pytest.raises(ProgramError, match="is an operator"):
        engine.push_async(ss.ops.to_device, reads=hosts(engine, 1))


def test_waits_deletions_and_the_end_of_the_engine_come_after_it():
    service = Service()
    engine = ss.Engine("async", device="simulated")
    h, g = hosts(engine, 2)
    engine.push_async(service.ask, reads=(h,), writes=(g,))
    engine.delete(h)
    with pytest.raises(WaitTimeoutError):
        engine.wait_all(timeout=0.01)
    assert service.asked[0][1][0].tolist() == [1] * 4
    ended = threading.Thread(target=engine.close)
    ended.start()
    ended.join(0.05)
    assert ended.is_alive()
    service.answer()
    ended.join(30)
    assert not ended.is_alive()


def test_an_engine_that_nobody_holds_ends_all_the_same():
    service = Service()
    engine = ss.Engine("async", device="simulated")
    h = hosts(engine, 1)[0]
    engine.push_async(service.ask, reads=(h,), writes=(h,))
    until(lambda: service.asked)
    threads = [thread for pool in engine._scheduler.pools for thread in pool.threads]
    del engine, h
    gc.collect()
    service.answer()
    until(lambda: not any(thread.is_alive() for thread in threads))


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), name=st.sampled_from(["sync", "async", "dual"]))
def test_equal_to_serial_execution(name, seed):
    chance, late = Random(seed), Random(seed)

    def ask(done, one, two):
        if late.random() < 0.3:
            done(one + two)
        else:
            threading.Timer(late.choice([0, 0.001]), done, [one + two]).start()

    with ss.Engine(name, device="simulated") as engine:
        variables, values = hosts(engine, 4), [np.full(4, 1)] * 4
        x, on_device = engine.variable(np.full(4, 1)), np.full(4, 1)
        for _ in range(20):
            a, b, c = (chance.randrange(4) for _ in range(3))
            match chance.randrange(4):
                case 0 | 1:
                    engine.push_async(ask, reads=(variables[a], variables[b]), writes=(variables[c],), priority=chance.randrange(2))
                    values[c] = values[a] + values[b]
                case 2:
                    engine.push(ss.ops.to_host, reads=(x,), writes=(variables[a],))
                    values[a] = on_device
                case 3:
                    engine.push(ss.ops.to_device, reads=(variables[a],), writes=(x,))
                    on_device = values[a]
        np.testing.assert_array_equal([engine.read(each) for each in (*variables, x)], [*values, on_device])


@pytest.mark.parametrize("name", ["sync", "async"])
def test_ctrl_c_at_any_call(name):
    def push(engine, h):
        engine.push_async(lambda done, values: done(values + 1), reads=(h,), writes=(h,))

    with ss.Engine(name, device="simulated") as engine:
        h = hosts(engine, 1)[0]
        push(engine, h)
        with profiled(undisturbed := Calls()):
            push(engine, h)
        for at in Random(name).sample(range(1, undisturbed.countdown.count), 40):
            with suppress(KeyboardInterrupt), profiled(Calls(at)):
                push(engine, h)
            with suppress(EngineError):
                engine.wait_all(timeout=30)
            assert engine._scheduler.unfinished == 0
        engine.write(h, np.zeros(4, np.int64))
        push(engine, h)
        np.testing.assert_array_equal(engine.read(h), np.ones(4))
