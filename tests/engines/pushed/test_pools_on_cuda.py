"""The pools on a real GPU: memory changes streams in their order, and nothing grows."""

from __future__ import annotations

import random

import numpy as np
import pytest

import streamscope as ss
from streamscope.engines.pushed.lanes import Lane
from streamscope.engines.pushed.memory_pool import MemoryPool
from streamscope.errors import OutOfMemoryError
from streamscope.kernels.library.libraries import libraries
from streamscope.program.variable import ArraySpec, MemoryPlace

pytestmark = pytest.mark.gpu

SPEC = ArraySpec((1 << 16,), np.dtype("uint8"))
DEVICE_TO_DEVICE = 3


@pytest.fixture(scope="module")
def device():
    return ss.open_device("cuda")


class ChangingStreams:
    """One stream reads memory behind a gate; then another, which is free to go, writes to it as its new owner."""

    def __init__(self, device):
        self.device, self.runtime = device, libraries().runtime
        self.held, self.free, self.third = (device.stream(name) for name in ("held", "free", "third"))
        self.pool, self.events = MemoryPool(device), Lane(device, self.held)
        self.result, self.unused = (device.allocate(SPEC, MemoryPlace.DEVICE) for _ in range(2))

    def run(self, *, waits=True):
        """Return what the old user read, what the new owner has, and whether the new owner's stream had to wait, as it should or not."""
        old = self.pool.allocate(SPEC, MemoryPlace.DEVICE, self.held)
        self.fill(old, 1, self.held)
        self.fill(self.result, 0, self.free)
        self.fill(self.unused, 0, self.third)
        self.device.synchronize()  # Whatever CUDA loads late is loaded before the gate closes.
        gate = self.device.gate()
        gate.hold(self.held)
        self.runtime.memcpyAsync(self.result.pointer, old.pointer, SPEC.nbytes, DEVICE_TO_DEVICE, self.held.pointer)
        self.pool.free(old, [(self.held, self.events.record())])
        new = self.pool.allocate(SPEC, MemoryPlace.DEVICE, self.free)
        assert new.pointer == old.pointer
        self.fill(new, 7, self.free)
        written = self.device.event()
        self.free.record(written)
        if waits:
            # What comes later on a stream that nothing holds is done: the new owner's could be, too.
            self.fill(self.unused, 7, self.third)
            self.third.synchronize()
        else:
            written.synchronize()
        waited = not written.done()
        gate.open()
        self.device.synchronize()
        return set(self.device.read(self.result)), set(self.device.read(new)), waited

    def fill(self, buffer, value, stream):
        self.runtime.memsetAsync(buffer.pointer, value, SPEC.nbytes, stream.pointer)


def test_memory_changes_streams_in_order(device):
    assert ChangingStreams(device).run() == ({1}, {7}, True)


def test_without_the_wait_the_numbers_are_wrong(device, monkeypatch):
    changing = ChangingStreams(device)
    monkeypatch.setattr(changing.free, "wait", lambda event: None)
    assert changing.run(waits=False) == ({7}, {7}, False)


def test_the_host_gets_memory_whose_events_are_done(device):
    changing = ChangingStreams(device)
    for place in MemoryPlace:
        old = changing.pool.allocate(SPEC, place, changing.held)
        gate = device.gate()
        gate.hold(changing.held)
        changing.pool.free(old, [(changing.held, changing.events.record())])
        assert changing.pool.allocate(SPEC, place).pointer != old.pointer
        gate.open()
        device.synchronize()
        assert changing.pool.allocate(SPEC, place).pointer == old.pointer


def test_a_pool_that_runs_out_says_so_and_gives_back_first(device):
    cupy, pool = libraries().cupy, MemoryPool(device)
    cupy.get_default_memory_pool().free_all_blocks()
    free_bytes, _ = libraries().runtime.memGetInfo()
    large = ArraySpec((int(free_bytes * 0.6),), np.dtype("uint8"))
    pool.free(pool.allocate(large, MemoryPlace.DEVICE))
    larger = ArraySpec((int(free_bytes * 0.8),), np.dtype("uint8"))
    held = pool.allocate(larger, MemoryPlace.DEVICE)
    with pytest.raises(OutOfMemoryError, match=rf"a test needs {larger.nbytes:,} bytes of device memory, where this pool has"):
        pool.allocate(larger, MemoryPlace.DEVICE, purpose="a test")
    pool.free(held)
    del held
    pool.trim()
    assert pool.statistics().reserved_bytes == 0
    cupy.get_default_memory_pool().free_all_blocks()


def test_a_soak_stays_flat(device):
    streams = [device.stream(str(number)) for number in range(4)]
    events = {stream: Lane(device, stream) for stream in streams}
    memset = libraries().runtime.memsetAsync
    pool, chance, live, reserved = MemoryPool(device), random.Random(3), [], []
    for step in range(20_000):
        if len(live) == 30:
            buffer, stream = live.pop(chance.randrange(30))
            memset(buffer.pointer, 1, buffer.spec.nbytes, stream.pointer)
            pool.free(buffer, [(stream, events[stream].record())])
        stream = chance.choice(streams)
        spec = ArraySpec((int(2 ** chance.uniform(6, 20)),), np.dtype("uint8"))
        live.append((pool.allocate(spec, MemoryPlace.DEVICE, stream), stream))
        if step % 2_000 == 1_999:
            reserved.append(pool.statistics().reserved_bytes)
    device.synchronize()
    # It grows with the most that was in use, in steps of size classes, and no further.
    assert reserved[-1] < 2 * pool.statistics().high_water_bytes
    assert sum(one.events for one in events.values()) < 400
