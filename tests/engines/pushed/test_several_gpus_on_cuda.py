"""Pushes over two real GPUs: equal to NumPy, a time-out that aborts, functions that call back."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
from tests.engines.pushed.several_gpus import KINDS, Hosts

import streamscope as ss
from streamscope.errors import DeviceError, WaitTimeoutError

pytestmark = pytest.mark.gpu
BOTH = (0, 1)


@pytest.fixture(scope="module")
def host():
    from streamscope.kernels.library.libraries import libraries

    if libraries().runtime.getDeviceCount() < len(BOTH):
        pytest.skip("needs two GPUs")
    return ss.open_device("cuda", gpus=2)


@pytest.mark.parametrize("name", ["sync", "async", "dual"])
def test_equal_to_serial_execution(host, name):
    chance = random.Random(name)
    with ss.Engine(name, device=host) as engine:
        serial = Hosts(engine, 2)
        for _ in range(300):
            serial.push(chance.choice(KINDS), chance, chance.choice([0, 0, 1]))
        serial.check()


@ss.program
def busy(x):
    for _ in range(20):
        x = x @ x
    return x


def test_a_time_out_aborts_collectives_and_the_next_one_is_whole(host):
    with ss.Engine("async", device=host) as engine:
        large = [[engine.variable(np.zeros((4096, 4096), np.float32), gpu=gpu) for gpu in BOTH] for _ in range(3)]

        def push():
            engine.push(busy, reads=(large[0][1],), writes=(large[1][1],))
            engine.push(ss.ops.all_reduce, reads=large[1], writes=large[2])

        push()
        engine.wait_all()
        before = host.collective_aborts
        push()
        with pytest.raises(WaitTimeoutError, match="were aborted"):
            engine.wait_to_read(large[2][0], timeout=0.002)
        assert host.collective_aborts == before + 1
        with pytest.raises(DeviceError, match="aborted"):
            engine.wait_all()
        push()
        engine.wait_all(timeout=30)
        assert not engine.read(large[2][1]).any()


def test_a_function_that_calls_back(host):
    with ss.Engine("async", device=host) as engine:
        h, x = engine.variable(np.zeros(4), place="host"), engine.variable(np.zeros(4), gpu=1)
        engine.push_async(lambda done, values: threading.Timer(0.01, done, [values + 1]).start(), reads=(h,), writes=(h,))
        engine.push(ss.ops.to_device, reads=(h,), writes=(x,))
        np.testing.assert_array_equal(engine.read(x), np.ones(4))
