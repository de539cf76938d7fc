"""Collectives that are aborted on a simulated host, and waits for them with a limit."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.program.variable import MemoryPlace


class Reduced:
    """An all-reduce of two ones, bound to streams."""

    def __init__(self, delays=None):
        self.device = device = SimulatedDevice(gpus=2, delays=delays)
        program = ss.program(lambda u, v: ss.ops.all_reduce([u, v])).trace(np.ones(4), np.ones(4))
        parts = list(program.launches())
        memory = [device.allocate(each.spec, MemoryPlace.DEVICE, gpu=each.gpu) for each in program.variables]
        for variable in program.inputs:
            device.write(memory[variable], np.ones(4))
        reads, writes = ([[memory[v] for v in getattr(part, role)] for part in parts] for role in ("reads", "writes"))
        self.results = [memory[v] for v in program.outputs]
        self.streams = [device.stream("comm", gpu=gpu) for gpu in (0, 1)]
        self.call = device.bind_collective(parts, reads, writes, self.streams)
        self.event = device.event()

    def issue(self):
        self.call()
        self.streams[0].record(self.event)

    def values(self):
        self.device.synchronize()
        return [self.device.read(each) for each in self.results]


def test_a_wait_with_a_limit_ends_there_or_when_the_work_does():
    reduced = Reduced(lambda launch, stream: (1_000_000, 1))
    device = reduced.device
    reduced.issue()
    begin_ns = device.now_ns()
    assert not reduced.event.comes_within(1e-4)
    assert device.now_ns() - begin_ns == pytest.approx(1e5, abs=1)
    assert reduced.event.comes_within(1.0)
    assert device.now_ns() - begin_ns < 2e6
    assert reduced.event.comes_within(1e-9)
    assert device.event().comes_within(1e-9)  # It was never recorded.


@pytest.mark.parametrize("late", [(), (0,), (0, 1)], ids=["all began", "one waits", "none began"])
def test_what_is_aborted_leaves_poison_and_the_next_one_is_whole(late):
    reduced = Reduced(lambda launch, stream: (1_000_000 if launch.gpu in late else 0, 1000))
    reduced.issue()
    assert not reduced.event.comes_within(1e-5)
    reduced.device.abort_collectives()
    assert reduced.device.collective_aborts == 1
    np.testing.assert_array_equal(reduced.values(), np.full((2, 4), 2.0 if late == (0, 1) else np.nan))
    reduced.issue()
    np.testing.assert_array_equal(reduced.values(), np.full((2, 4), 2.0))


def test_an_abort_without_collectives_changes_nothing():
    reduced = Reduced()
    reduced.device.abort_collectives()
    reduced.issue()
    reduced.values()
    reduced.device.abort_collectives()
    np.testing.assert_array_equal(reduced.values(), np.full((2, 4), 2.0))
