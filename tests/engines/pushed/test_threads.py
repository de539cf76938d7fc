"""Several threads use one engine."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from tests.engines.pushed.conftest import SPEC, Serial

import streamscope as ss
from streamscope.engines.pushed.engine import Engine


def in_threads(count, work):
    """Run ``work(number)`` on threads and raise what one of them raises."""
    errors = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 — told by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


def test_each_thread_has_variables_of_its_own(engine):
    serials = [Serial(engine, 4, 3) for _ in range(4)]

    def work(number):
        chance = random.Random(number)
        for _ in range(150):
            operands = [chance.randrange(12) for _ in range(4)]
            serials[number].push(chance.choice(["add", "multiply", "bulk", "in", "out", "host", "host two"]), operands[:2], operands[2:])
        serials[number].check()

    in_threads(4, work)


def test_threads_write_the_same_variable(engine):
    """Additions commute, so the order in which the threads push does not matter, and a lost one would."""
    x, h, one = (
        engine.variable(np.zeros(4, np.int64)),
        engine.variable(np.zeros(4, np.int64), place="host"),
        engine.variable(np.ones(4, np.int64)),
    )

    def work(number):
        for _ in range(100):
            engine.push(ss.ops.add, reads=(x, one), writes=(x,))
            engine.push(plus_one, reads=(h,), writes=(h,))

    in_threads(4, work)
    np.testing.assert_array_equal(engine.read(x), np.full(4, 400))
    np.testing.assert_array_equal(engine.read(h), np.full(4, 400))
    assert (x.version, h.version) == (400, 400)


def plus_one(values):
    return values + 1


def test_a_bulk_is_its_threads_own(engine):
    x, y, other = (engine.variable(np.ones(4, np.int64)) for _ in range(3))

    def work(number):
        engine.push(ss.ops.add, reads=(y, y), writes=(y,))
        np.testing.assert_array_equal(engine.read(y), np.full(4, 2))

    with engine.bulk():
        engine.push(ss.ops.add, reads=(x, x), writes=(other,))
        in_threads(1, work)
        assert other.version == 0
    assert other.version == 1


@pytest.mark.parametrize("name", ["sync", "async", "dual", "graph", "graph-dual"])
def test_programs_are_run_side_by_side(device, name):
    @ss.program
    def step(x, y):
        return ss.ops.add(ss.ops.multiply(x, y), x), ss.ops.relu(x)

    with Engine(name, device=device) as engine:

        def work(number):
            for turn in range(5):
                x, y = np.full(1000, float(number)), np.full(1000, float(turn))
                first, second = engine.run(step, x, y)
                np.testing.assert_array_equal(first, x * y + x)
                np.testing.assert_array_equal(second, x)

        in_threads(4, work)
        (entry,) = engine._programs.kept._entries.values()
        assert 1 <= len(entry.idle) <= 4


def test_run_while_others_push(device):
    @ss.host_function(duration_us=2)
    def negative(x):
        return -x

    @ss.program
    def step(x):
        return ss.ops.add(ss.ops.to_device(negative(ss.ops.to_host(x))), x)

    with Engine("async", device=device) as engine:
        x, h = engine.variable(np.zeros(4, np.int64)), engine.variable(np.zeros(4, np.int64), place="host")
        one = engine.variable(np.ones(4, np.int64))

        def work(number):
            for _ in range(20):
                if number == 0:
                    np.testing.assert_array_equal(engine.run(step, np.arange(3.0)), np.zeros(3))
                else:
                    engine.push(ss.ops.add, reads=(x, one), writes=(x,))
                    engine.push(plus_one, reads=(h,), writes=(h,))

        in_threads(3, work)
        np.testing.assert_array_equal(engine.read(x), np.full(4, 40))
        np.testing.assert_array_equal(engine.read(h), np.full(4, 40))


def test_host_operations_run_beside_each_other(device):
    """Each waits for the other, so they can only end if two workers run them."""
    with Engine("async", device=device, workers=2) as engine:
        barrier = threading.Barrier(2, timeout=30)
        for _ in range(2):
            engine.push(lambda: barrier.wait() and None)
        engine.wait_all()
        assert engine.statistics.threads == 2


def test_the_priority_pool_is_not_held_up(device):
    with Engine("async", device=device, workers=1, priority_workers=1) as engine:
        go = threading.Event()
        engine.push(lambda: go.wait(30) and None)
        engine.push(go.set, priority=1)
        engine.wait_all()
        assert go.is_set()


def test_waits_on_one_thread_do_not_hold_up_pushes_on_another(device):
    with Engine("async", device=device) as engine:
        go, h, x, y = threading.Event(), engine.variable(np.ones(4, np.int64), place="host"), engine.variable(SPEC), engine.variable(SPEC)
        engine.push(lambda values: go.wait(30) and values, reads=(h,), writes=(h,))
        engine.push(ss.ops.to_device, reads=(h,), writes=(x,))
        waiter = threading.Thread(target=engine.wait_to_read, args=(x,))
        waiter.start()
        engine.write(y, np.ones(4, np.int64))
        np.testing.assert_array_equal(engine.read(y), np.ones(4))
        assert waiter.is_alive()
        go.set()
        waiter.join(30)
        assert not waiter.is_alive()
