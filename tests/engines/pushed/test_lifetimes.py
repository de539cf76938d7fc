"""Memory, events, caches and threads come back: after a delete, when Python lets go, and in a soak."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from tests.engines.pushed.conftest import SPEC

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed import catalogue
from streamscope.engines.pushed.engine import Engine


def big(value=1.0):
    return np.full(1 << 16, float(value))


def test_delete_gives_memory_back_behind_the_last_users():
    # The addition that reads it comes late; who gets the memory next must not write before.
    device = SimulatedDevice(delays=lambda launch, stream: (1e6, 1.0) if launch.name == "add" else (0, 1))
    with Engine("async", device=device) as engine:
        x, y = engine.variable(big(1)), engine.variable(ss.ArraySpec((1 << 16,), "float64"))
        engine.push(ss.ops.add, reads=(x, x), writes=(y,))
        engine.wait_to_read(x)
        memory = x._state.buffer._block
        before = engine.statistics.in_use_bytes
        engine.delete(x)
        assert engine.statistics.in_use_bytes == before - big().nbytes
        z = engine.variable(big(5))
        assert z._state.buffer._block is memory
        assert device.now_ns() < 1e6  # The host did not wait for it.
        np.testing.assert_array_equal(engine.read(y), big(2))
        np.testing.assert_array_equal(engine.read(z), big(5))


def test_delete_has_its_turn(device):
    with Engine("async", device=device) as engine:
        go, h, x = threading.Event(), engine.variable(big(3), place="host"), engine.variable(big(0))
        engine.push(lambda values: go.wait(10) and values, reads=(h,), writes=(h,))
        engine.push(ss.ops.to_device, reads=(h,), writes=(x,))
        engine.delete(h)
        go.set()
        np.testing.assert_array_equal(engine.read(x), big(3))


def test_a_variable_that_python_lets_go_is_deleted(engine):
    keep = engine.variable(big())
    before = engine.statistics.in_use_bytes
    for _ in range(20):
        x = engine.variable(big(2))
        engine.push(ss.ops.add, reads=(keep, x), writes=(keep,))
        del x
    engine.push(ss.ops.add, reads=(keep, keep), writes=(keep,))
    engine.wait_all()
    assert engine.statistics.in_use_bytes == before
    assert len(engine._lifetimes.live) == 1
    np.testing.assert_array_equal(engine.read(keep), big(82))


def test_temporaries_go_with_the_application():
    with Engine("async", device=SimulatedDevice()) as engine:
        x, y = engine.variable(big()), engine.variable(big())
        engine.push(lambda a: ss.ops.multiply(ss.ops.add(a, a), a), reads=(x,), writes=(y,))
        assert engine.statistics.in_use_bytes == 3 * big().nbytes
        engine.delete(y)
        engine.wait_all()
        assert engine.statistics.in_use_bytes == big().nbytes


def test_caches_are_bounded(monkeypatch):
    monkeypatch.setattr(catalogue, "APPLICATIONS", 8)
    monkeypatch.setattr(catalogue, "TEMPLATES", 8)
    with Engine("async", device=SimulatedDevice()) as engine:
        x, y = engine.variable(np.ones(4, np.int64)), engine.variable(SPEC)
        for _ in range(100):
            engine.push(lambda a: ss.ops.multiply(ss.ops.add(a, a), a), reads=(x,), writes=(y,))  # A new function each time.
        assert len(engine._catalogue) <= 32
        assert len(engine._catalogue.keys_of(x._state)) <= 16
        assert engine.statistics.in_use_bytes <= (2 + 16) * 512
        np.testing.assert_array_equal(engine.read(y), [2, 2, 2, 2])


@pytest.mark.parametrize("name", ["sync", "async", "dual"])
def test_a_soak_is_flat(device, name):
    with Engine(name, device=device, streams=3, workers=1) as engine:
        variables = [engine.variable(np.full(4, number, np.int64)) for number in range(6)]
        hosts = [engine.variable(np.ones(4, np.int64), place="host") for _ in range(2)]

        def some(count):
            for number in range(count):
                one, other = variables[number % 6], variables[(number * 5 + 1) % 6]
                engine.push(ss.ops.add, reads=(one, other), writes=(one,), priority=number % 7 == 0)
                if number % 50 == 0:
                    fresh = engine.variable(np.ones(4, np.int64))
                    engine.push(ss.ops.add, reads=(fresh, one), writes=(fresh,))
                if number % 100 == 0:
                    engine.push(ss.ops.to_host, reads=(one,), writes=(hosts[0],))
                    engine.push(lambda_on_host, reads=(hosts[0],), writes=(hosts[1],))
                    engine.push(ss.ops.to_device, reads=(hosts[1],), writes=(other,))
                if number % 500 == 0:
                    engine.wait_all()
            engine.wait_all()

        def held():
            numbers = engine.statistics
            threads = threading.active_count()
            return numbers.in_use_bytes, numbers.threads, threads, len(engine._catalogue)

        some(2_000)
        before = held()
        some(6_000)
        assert held() == before
        # Between two waits, ten more variables are made.
        assert engine.statistics.high_water_bytes <= (len(variables) + 12) * 512
        # Each variable holds at most one event of each stream that reads it, and one of the stream that wrote it.
        lanes = len(engine._issuer.lanes)
        assert engine.statistics.events_created <= (len(variables) + len(hosts) + 12) * (lanes + 1)


def lambda_on_host(values):
    return values + 1


def test_an_engine_that_nobody_closes_is_collected_with_its_threads():
    engine = Engine("async", device=SimulatedDevice())
    for priority in (0, 1):
        engine.push(lambda: None, priority=priority)
    engine.wait_all()
    threads = [thread for pool in engine._scheduler.pools for thread in pool.threads]
    gone = weakref.ref(engine)
    assert len(threads) == 2
    del engine
    gc.collect()
    assert gone() is None
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def test_close_stops_the_threads_and_frees_the_memory(device):
    before = threading.active_count()
    with Engine("async", device=device) as engine:
        x = engine.variable(big())
        engine.push(lambda: None)
        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
    assert threading.active_count() == before
    assert engine.statistics.in_use_bytes == 0
    assert engine._issuer.memory.statistics().reserved_bytes == 0


LEFT_OPEN = """
import threading, numpy as np, streamscope as ss
from streamscope.engines.pushed.engine import Engine
engine = Engine("async", device="simulated")
x = engine.variable(np.ones(4), place="host")
engine.push(lambda values: values, reads=(x,), writes=(x,))
engine.push(lambda: threading.Event().wait(), name="for ever")
print("done")
"""


def test_an_engine_that_is_left_open_does_not_hold_up_the_exit(environment):
    finished = subprocess.run([sys.executable, "-c", LEFT_OPEN], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert (finished.stdout, finished.stderr) == ("done\n", "")
