"""Memory is handed out again in the order of streams: never too early, never by stopping the host, and without growing."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streamscope.devices.cost_model import CostModel
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.lanes import Lane
from streamscope.engines.pushed.memory_pool import SMALLEST_BYTES, STEPS, MemoryPool, size_class
from streamscope.errors import DeviceError, OutOfMemoryError
from streamscope.program.launch import Cost, Launch, LaunchKind
from streamscope.program.variable import ArraySpec, MemoryPlace

EXAMPLES = settings(stateful_step_count=50)


def spec_of(nbytes: int) -> ArraySpec:
    return ArraySpec((nbytes,), np.dtype("int8"))


@dataclass(eq=False)
class FakeStream:
    """Knows, of each stream, how many of its records the work put on this one from now on comes behind.

    Attributes
    ----------
    history : list
        What each of its records came behind.
    finished : int
        How many of its records have come to pass.
    """

    behind: dict[FakeStream, int] = field(default_factory=dict)
    history: list[dict[FakeStream, int]] = field(default_factory=list)
    finished: int = 0

    def record(self, event: FakeEvent) -> None:
        self.history.append(dict(self.behind))
        event.stream, event.number = self, len(self.history)

    def wait(self, event: FakeEvent) -> None:
        assert event.stream is not None
        assert event.stream is not self, "a stream waits for itself"
        assert not event.done(), "a stream waits for what is done"
        for stream, number in ((event.stream, event.number), *event.stream.history[event.number - 1].items()):
            self.behind[stream] = max(number, self.behind.get(stream, 0))

    def finish(self, number: int) -> None:
        """Let the first ``number`` records come to pass and, as on a device, what they come behind."""
        while self.finished < number:
            for stream, needed in self.history[self.finished].items():
                stream.finish(needed)
            self.finished += 1


@dataclass(eq=False)
class FakeEvent:
    stream: FakeStream | None = None
    number: int = 0

    def done(self) -> bool:
        return self.stream is None or self.number <= self.stream.finished

    def synchronize(self) -> None:
        if self.stream is not None:
            self.stream.finish(self.number)


class FakeBlock:
    def __init__(self, device: FakeDevice, nbytes: int, place: MemoryPlace) -> None:
        self.device, self.nbytes, self.place = device, nbytes, place
        self.number = next(device.numbers)
        device.taken[place] += nbytes

    def __del__(self) -> None:
        self.device.taken[self.place] -= self.nbytes


@dataclass(eq=False)
class FakeBuffer:
    block: FakeBlock
    spec: ArraySpec
    place: MemoryPlace


class FakeDevice:
    """Counts the memory that is taken; a block that nobody holds is given back."""

    def __init__(self, capacity: int = 1 << 60) -> None:
        self.capacity = capacity
        self.numbers = count()
        self.taken = dict.fromkeys(MemoryPlace, 0)

    def event(self) -> FakeEvent:
        return FakeEvent()

    def allocate_block(self, nbytes: int, place: MemoryPlace) -> FakeBlock:
        if self.taken[place] + nbytes > self.capacity:
            raise OutOfMemoryError(f"there are no {nbytes:,} bytes left")
        return FakeBlock(self, nbytes, place)

    def buffer_on(self, block: FakeBlock, spec: ArraySpec, stream: FakeStream | None = None) -> FakeBuffer:
        assert block.nbytes >= spec.nbytes
        return FakeBuffer(block, spec, block.place)


class Bench:
    """A pool with some streams, each with its events."""

    def __init__(self, capacity: int = 1 << 60) -> None:
        self.device: Any = FakeDevice(capacity)
        self.streams: list[Any] = [FakeStream() for _ in range(3)]
        self.events = {stream: Lane(self.device, stream) for stream in self.streams}
        self.pool = MemoryPool(self.device)

    def use(self, stream: Any) -> tuple[Any, Any]:
        """Put work on a stream, and return what `free` is told of it."""
        return stream, self.events[stream].record()


class Reuse(RuleBasedStateMachine):
    """Buffers are handed out, used on several streams, and freed, in any order, while events come to pass at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.live: list[tuple[Any, Any]] = []
        self.uses: dict[int, list[tuple[Any, int]]] = {}
        self.high_water = 0

    @rule(nbytes=st.sampled_from((0, 600, 700, 1500, 5000)), stream=st.sampled_from((None, 0, 1, 2)), place=st.sampled_from(MemoryPlace))
    def allocate(self, nbytes: int, stream: int | None, place: MemoryPlace) -> None:
        user = None if stream is None else self.bench.streams[stream]
        buffer: Any = self.bench.pool.allocate(spec_of(nbytes), place, user)
        assert buffer.place is place
        assert all(buffer.block is not other.block for other, _ in self.live)
        for used_on, number in self.uses.setdefault(buffer.block.number, []):
            done = number <= used_on.finished
            assert done or (user is not None and (used_on is user or user.behind.get(used_on, 0) >= number))
        self.live.append((buffer, user))
        self.high_water = max(self.high_water, sum(one.block.nbytes for one, _ in self.live if one.place is MemoryPlace.DEVICE))

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 1000), users=st.lists(st.integers(0, 2), unique=True), tell_all=st.booleans())
    def use_and_free(self, which: int, users: list[int], tell_all: bool) -> None:
        """Use a buffer on streams that come behind the one it was handed out for, and free it; events that others imply may be left out."""
        buffer, first = self.live.pop(which % len(self.live))
        streams = [self.bench.streams[user] for user in users if self.bench.streams[user] is not first]
        after = []
        if first is not None and users:
            after = [self.bench.use(first)]
            for stream in streams:
                stream.wait(after[0][1].event)
        implied = [] if tell_all or not streams else after[:]
        after += [self.bench.use(stream) for stream in streams]
        self.uses[buffer.block.number] += [(stream, lease.event.number) for stream, lease in after]
        self.bench.pool.free(buffer, [entry for entry in after if entry not in implied])

    @rule(stream=st.integers(0, 2), more=st.integers(1, 5))
    def events_come_to_pass(self, stream: int, more: int) -> None:
        chosen = self.bench.streams[stream]
        chosen.finish(min(chosen.finished + more, len(chosen.history)))

    @rule()
    def trim(self) -> None:
        before = self.bench.device.taken.copy()
        given = self.bench.pool.trim()
        assert given == sum(before.values()) - sum(self.bench.device.taken.values())

    @invariant()
    def the_accounts_are_right(self) -> None:
        for place in MemoryPlace:
            counts = self.bench.pool.statistics(place)
            assert counts.reserved_bytes == self.bench.device.taken[place]
            assert counts.in_use_bytes == sum(buffer.block.nbytes for buffer, _ in self.live if buffer.place is place)
        assert self.bench.pool.statistics().high_water_bytes == self.high_water


TestReuse = Reuse.TestCase
TestReuse.settings = EXAMPLES


@given(nbytes=st.integers(0, 1 << 40))
def test_size_classes(nbytes):
    size = size_class(nbytes)
    assert size >= max(nbytes, SMALLEST_BYTES)
    assert size % SMALLEST_BYTES == 0
    assert size < nbytes + max(SMALLEST_BYTES, nbytes / STEPS) or size == SMALLEST_BYTES
    assert size_class(size) == size


def test_size_classes_by_hand():
    assert [size_class(n) for n in (0, 1, 512, 513, 1025, 2049, 4096, 4097, 5121, 100_000)] == [
        512, 512, 512, 1024, 1536, 2560, 4096, 5120, 6144, 114_688,
    ]  # fmt: skip


def test_the_same_stream_gets_memory_again_without_a_wait():
    bench = Bench()
    main = bench.streams[0]
    first: Any = bench.pool.allocate(spec_of(1000), MemoryPlace.DEVICE, main)
    bench.pool.free(first, [bench.use(main)])
    again: Any = bench.pool.allocate(spec_of(900), MemoryPlace.DEVICE, main)
    assert again.block is first.block
    counts = bench.pool.statistics()
    assert (counts.allocations, counts.reuses, counts.waits) == (1, 1, 0)


def test_another_stream_waits_and_the_host_takes_new_memory():
    bench = Bench()
    main, other, _ = bench.streams
    first: Any = bench.pool.allocate(spec_of(1000), MemoryPlace.DEVICE, main)
    bench.pool.free(first, [bench.use(main)])
    of_the_host: Any = bench.pool.allocate(spec_of(1000), MemoryPlace.DEVICE)
    assert of_the_host.block is not first.block
    of_the_other: Any = bench.pool.allocate(spec_of(1000), MemoryPlace.DEVICE, other)
    assert of_the_other.block is first.block
    assert other.behind == {main: 1}
    assert bench.pool.statistics().waits == 1


def test_what_needs_no_wait_goes_first():
    bench = Bench()
    main, other, _ = bench.streams
    buffers: list[Any] = [bench.pool.allocate(spec_of(1000), MemoryPlace.DEVICE, main) for _ in range(3)]
    for buffer in buffers:
        bench.pool.free(buffer, [bench.use(main)])
    main.finish(1)
    assert bench.pool.allocate(spec_of(1000), MemoryPlace.DEVICE, other).block is buffers[0].block
    assert other.behind == {}
    assert bench.pool.allocate(spec_of(1000), MemoryPlace.DEVICE).block not in [one.block for one in buffers]


@pytest.mark.parametrize("unused_on", [0, 1])
def test_memory_that_was_never_used_still_comes_behind_its_former_users(unused_on):
    bench = Bench()
    main, _, third = bench.streams
    first: Any = bench.pool.allocate(spec_of(1000), MemoryPlace.DEVICE, main)
    bench.pool.free(first, [bench.use(main)])
    unused = bench.pool.allocate(spec_of(1000), MemoryPlace.DEVICE, bench.streams[unused_on])
    bench.pool.free(unused)
    last: Any = bench.pool.allocate(spec_of(1000), MemoryPlace.DEVICE, third)
    assert last.block is first.block
    assert third.behind == {main: 1}


def test_a_younger_block_that_needs_no_wait_goes_before_an_older_one_that_does():
    bench = Bench()
    main, other, third = bench.streams
    older, younger = (bench.pool.allocate(spec_of(1000), MemoryPlace.DEVICE, stream) for stream in (main, other))
    bench.pool.free(older, [bench.use(main)])
    bench.pool.free(younger, [bench.use(other)])
    other.finish(1)
    again = [bench.pool.allocate(spec_of(1000), MemoryPlace.DEVICE, third).block for _ in range(2)]
    assert again == [younger.block, older.block]


def test_the_best_fit_is_less_than_twice_as_large():
    bench = Bench()
    for buffer in [bench.pool.allocate(spec_of(nbytes), MemoryPlace.DEVICE) for nbytes in (8192, 3000, 2000)]:
        bench.pool.free(buffer)
    # The third is too large, so the last request gets memory of its own.
    sizes = [bench.pool.allocate(spec_of(1800), MemoryPlace.DEVICE).block.nbytes for _ in range(3)]
    assert sizes == [2048, 3072, 2048]
    assert bench.pool.statistics().allocations == 4


def test_memory_is_freed_once():
    bench = Bench()
    buffer = bench.pool.allocate(spec_of(4), MemoryPlace.DEVICE)
    bench.pool.free(buffer)
    with pytest.raises(DeviceError, match=r"int8\[4\]: this pool does not lend it"):
        bench.pool.free(buffer)


def test_free_memory_is_given_back_before_it_is_said_that_there_is_none():
    bench = Bench(capacity=10_000)
    main = bench.streams[0]
    for nbytes in (2000, 4000):
        bench.pool.free(bench.pool.allocate(spec_of(nbytes), MemoryPlace.DEVICE, main), [bench.use(main)])
    # 10,240 would be the size class; where memory is short, every byte counts.
    large: Any = bench.pool.allocate(spec_of(9_000), MemoryPlace.DEVICE, main)
    assert large.block.nbytes == 9_000
    assert main.finished == 2  # The host had to wait for the last users.
    assert bench.device.taken[MemoryPlace.DEVICE] == bench.pool.statistics().reserved_bytes == 9_000


def test_out_of_memory_says_for_what_and_how_much():
    bench = Bench(capacity=10_000)
    kept = [bench.pool.allocate(spec_of(2000), MemoryPlace.DEVICE), bench.pool.allocate(spec_of(4000), MemoryPlace.DEVICE)]
    bench.pool.free(kept.pop())
    with pytest.raises(OutOfMemoryError) as caught:
        bench.pool.allocate(spec_of(50_000), MemoryPlace.DEVICE, purpose="add (operation 3, file.py:12)")
    assert caught.value.message == (
        "add (operation 3, file.py:12) needs 50,000 bytes of device memory, where this pool has 2,048 in use and 2,048 reserved: "
        "there are no 50,000 bytes left"
    )
    assert bench.pool.allocate(spec_of(7_000), MemoryPlace.DEVICE).spec.nbytes == 7_000


def test_page_locked_memory_is_pooled_apart():
    bench = Bench()
    first: Any = bench.pool.allocate(spec_of(700), MemoryPlace.HOST)
    bench.pool.free(first)
    assert bench.pool.statistics().reserved_bytes == 0
    assert bench.pool.allocate(spec_of(700), MemoryPlace.DEVICE).block is not first.block
    again: Any = bench.pool.allocate(spec_of(700), MemoryPlace.HOST)
    assert again.block is first.block
    assert bench.pool.statistics(MemoryPlace.HOST).reuses == 1


def test_trim_leaves_what_is_still_in_use_on_a_stream():
    bench = Bench()
    main = bench.streams[0]
    buffers = [bench.pool.allocate(spec_of(1024), MemoryPlace.DEVICE, main) for _ in range(2)]
    for buffer in buffers:
        bench.pool.free(buffer, [bench.use(main)])
    del buffer, buffers
    main.finish(1)
    assert bench.pool.trim() == 1024
    assert bench.device.taken[MemoryPlace.DEVICE] == 1024
    assert bench.pool.trim(wait=True) == 1024
    assert bench.pool.trim(wait=True) == bench.pool.statistics().reserved_bytes == bench.device.taken[MemoryPlace.DEVICE] == 0


def test_a_soak_stays_flat():
    bench = Bench()
    chance = random.Random(7)
    live: list[tuple[Any, Any]] = []
    reserved, events = [], []  # In steps of a tenth.
    for step in range(100_000):
        if len(live) == 50:
            buffer, stream = live.pop(chance.randrange(50))
            bench.pool.free(buffer, [bench.use(stream)])
        stream = chance.choice(bench.streams)
        live.append((bench.pool.allocate(spec_of(int(2 ** chance.uniform(6, 20))), MemoryPlace.DEVICE, stream), stream))
        if chance.random() < 0.3:
            one = chance.choice(bench.streams)
            one.finish(len(one.history) - chance.randrange(min(30, len(one.history)) + 1))
        if step % 10_000 == 9_999:
            reserved.append(bench.pool.statistics().reserved_bytes)
            events.append(sum(lane.events for lane in bench.events.values()))
    assert reserved[-1] < 1.1 * reserved[4]
    assert events[-1] < 1.1 * events[4]
    counts = bench.pool.statistics()
    assert counts.allocations < 200
    assert counts.allocations + counts.reuses == 100_000
    assert counts.reserved_bytes < 2 * counts.high_water_bytes


def test_threads_share_a_pool():
    bench = Bench()
    owners: dict[int, int] = {}
    clashes: list[int] = []

    def work(thread: int) -> None:
        stream, chance = FakeStream(), random.Random(thread)
        events: Lane = Lane(bench.device, stream)
        for _ in range(1000):
            buffers: list[Any] = [bench.pool.allocate(spec_of(chance.choice((1, 2000))), MemoryPlace.DEVICE) for _ in range(3)]
            clashes.extend(thread for one in buffers if owners.setdefault(one.block.number, thread) != thread)
            for one in buffers:
                del owners[one.block.number]
                lease = events.record()
                stream.finish(len(stream.history))
                bench.pool.free(one, [(stream, lease)])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []
    assert bench.pool.statistics().in_use_bytes == 0
    assert bench.pool.statistics().allocations <= 2 * 4 * 3


class OnSimulatedDevice:
    """Kernels on two streams of a simulated device, with memory that both use one after the other."""

    SPEC = ArraySpec((4,), np.dtype("float64"))

    def __init__(self) -> None:
        # The old user's stream is slow, the new one's is not.
        self.device = SimulatedDevice(delays=lambda launch, stream: (1e6, 1.0) if stream == "slow" else (0.0, 1.0))
        self.slow, self.fast = self.device.stream("slow"), self.device.stream("fast")
        self.pool = MemoryPool(self.device)
        self.events = Lane(self.device, self.slow)
        self.result = self.device.allocate(self.SPEC, MemoryPlace.DEVICE)

    def kernel(self, stream: Any, reads: list[Any], writes: list[Any], reference: Any) -> None:
        launch = Launch(0, 0, "kernel", LaunchKind.KERNEL, tuple(range(len(reads))), tuple(range(len(writes))), Cost(64), reference)
        self.device.bind(launch, reads, writes, stream)()

    def read_on_slow_then_write_on_fast(self) -> tuple[list[float], list[float], bool]:
        """Return what the old user read, what the new user has in the end, and whether they had the same memory."""
        old = self.pool.allocate(self.SPEC, MemoryPlace.DEVICE, self.slow)
        self.kernel(self.slow, [], [old], lambda _: [np.full(4, 1.0)])
        self.kernel(self.slow, [old], [self.result], lambda arrays: [arrays[0] + 1])
        self.pool.free(old, [(self.slow, self.events.record())])
        new = self.pool.allocate(self.SPEC, MemoryPlace.DEVICE, self.fast)
        self.kernel(self.fast, [], [new], lambda _: [np.full(4, 7.0)])
        self.device.synchronize()
        return self.device.read(self.result).tolist(), self.device.read(new).tolist(), self.pool.statistics().reuses == 1


def test_numbers_are_right_when_memory_changes_streams():
    assert OnSimulatedDevice().read_on_slow_then_write_on_fast() == ([2.0] * 4, [7.0] * 4, True)


def test_numbers_are_wrong_without_the_wait(monkeypatch):
    bench = OnSimulatedDevice()
    monkeypatch.setattr(bench.fast, "wait", lambda event: None)
    read, kept, _ = bench.read_on_slow_then_write_on_fast()
    assert read == [2.0] * 4  # The slow stream overwrote what the fast one had written, and read its own.
    assert kept == [1.0] * 4


def test_a_pending_reader_sees_the_new_owner_without_the_wait(monkeypatch):
    bench = OnSimulatedDevice()
    old = bench.pool.allocate(bench.SPEC, MemoryPlace.DEVICE, bench.slow)
    bench.device.write(old, np.full(4, 1.0))
    bench.kernel(bench.slow, [old], [bench.result], lambda arrays: [arrays[0] + 1])
    bench.pool.free(old, [(bench.slow, bench.events.record())])
    monkeypatch.setattr(bench.fast, "wait", lambda event: None)
    bench.pool.allocate(bench.SPEC, MemoryPlace.DEVICE, bench.fast)
    bench.device.synchronize()
    assert np.isnan(bench.device.read(bench.result)).all()  # It was poison already: nothing need be written to show it.


def test_memory_is_poison_for_its_new_owner_in_the_order_of_its_stream():
    bench = OnSimulatedDevice()
    old = bench.pool.allocate(bench.SPEC, MemoryPlace.DEVICE, bench.slow)
    bench.kernel(bench.slow, [], [old], lambda _: [np.full(4, 1.0)])
    bench.kernel(bench.slow, [old], [bench.result], lambda arrays: [arrays[0] + 1])
    lease = bench.events.record()
    bench.pool.free(old, [(bench.slow, lease)])
    other = bench.device.allocate(bench.SPEC, MemoryPlace.DEVICE)
    new = bench.pool.allocate(bench.SPEC, MemoryPlace.DEVICE, bench.fast)
    bench.kernel(bench.fast, [new], [other], list)  # Reads what it has not written.
    bench.device.synchronize()
    assert bench.device.read(bench.result).tolist() == [2.0] * 4  # The old user was not disturbed.
    assert np.isnan(bench.device.read(other)).all()


def test_a_small_simulated_device_runs_out():
    pool = MemoryPool(SimulatedDevice(replace(CostModel.load(), memory_gb=10_000 / 1e9)))
    kept = [pool.allocate(spec_of(4_000), MemoryPlace.DEVICE) for _ in range(2)]
    with pytest.raises(OutOfMemoryError, match=r"needs 4,000 bytes of device memory, where this pool has 8,192 in use"):
        pool.allocate(spec_of(4_000), MemoryPlace.DEVICE)
    pool.free(kept.pop())
    assert pool.allocate(ArraySpec((1400,), np.dtype("float32")), MemoryPlace.DEVICE).spec.nbytes == 5_600
