"""Whatever is pushed, in whatever order, the results are those of serial execution."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engines.hostile_schedules import adversary
from tests.engines.pushed.conftest import KINDS, Serial, WithoutOneWait

from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.engine import Engine
from streamscope.errors import DeviceError

OPERATION = st.tuples(
    st.sampled_from(list(KINDS)),
    st.lists(st.integers(0, 5), min_size=2, max_size=2),
    st.lists(st.integers(0, 5), min_size=2, max_size=2),
    st.integers(-1, 1),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATION, max_size=40))
def test_equal_to_serial_execution(engine, operations):
    serial = Serial(engine, 5, 3)
    for name, reads, writes, priority in operations:
        serial.push(name, reads, writes, priority)
    serial.check()


@pytest.mark.parametrize("name", ["sync", "async", "dual"])
@settings(max_examples=40)
@given(operations=st.lists(OPERATION, min_size=5, max_size=40), seed=st.integers(0, 1000), bulk=st.integers(1, 5))
def test_equal_to_serial_execution_against_an_adversary(name, operations, seed, bulk):
    with Engine(name, device=SimulatedDevice(delays=adversary(seed)), streams=3) as engine:
        serial = Serial(engine, 4, 3)
        with engine.bulk(bulk):
            for each, reads, writes, priority in operations:
                serial.push(each, reads, writes, priority)
        serial.check()


def test_thousands_of_operations_over_a_hundred_variables(engine):
    chance = random.Random(7)
    serial = Serial(engine, 70, 30)
    kinds = ["add", "multiply", "bulk", "add", "multiply", "in", "out", "host", "host two"]
    for _ in range(2000):
        operands = [chance.randrange(100) for _ in range(4)]
        serial.push(chance.choice(kinds), operands[:2], operands[2:], chance.choice([0, 0, 0, 1]))
    serial.check()


def braid(engine: Engine) -> None:
    """Strands on several streams that cross in every way: what was written is read, what was read or written is written again."""
    serial = Serial(engine, 4, 2)
    for turn in range(3):
        serial.push("in", [turn], [0])
        serial.push("add", [0, 1], [2])
        serial.push("multiply", [0, 2], [1], priority=1)
        serial.push("out", [1], [turn])
        serial.push("add", [3, 0], [1])
        serial.push("in", [turn + 1], [1])
        serial.push("add", [1, 3], [3], priority=1)
    # Not through the engine's own copies, so that every stream wait is one of the strands'.
    engine.device.synchronize()
    found = [engine.device.read(variable._state.buffer) for variable in serial.variables]
    for one, other in zip(found, serial.values, strict=True):
        np.testing.assert_array_equal(one, other)


def slow(lane_name: str):
    """Return delays that make all launches of one stream late."""
    return lambda launch, stream: (500_000, 1) if stream == lane_name else (0, 1)


def test_every_wait_of_a_stream_is_needed(monkeypatch):
    with monkeypatch.context() as patch, Engine("async", device=SimulatedDevice()) as engine:
        counted = WithoutOneWait(patch, None)
        braid(engine)
        names = [lane.stream.name for lane in engine._issuer.lanes.values()]
    assert counted.waits > 10
    for left_out in range(counted.waits):
        caught = False
        for name in names:
            with monkeypatch.context() as patch:
                WithoutOneWait(patch, left_out)
                engine = Engine("async", device=SimulatedDevice(delays=slow(name)))
                try:
                    braid(engine)
                except (AssertionError, DeviceError):
                    caught = True
        assert caught, f"nobody notices that wait {left_out} is missing"
