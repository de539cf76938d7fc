"""Events are lent: none is recorded again while somebody holds it, and no more are made than are held together."""

from __future__ import annotations

import gc
import random
import sys
import threading
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.interrupting import Calls, profiled

from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.lanes import EventPool, Lease


def lent(pool: EventPool) -> int:
    """Return the number of events that somebody holds."""
    return pool.created - len(pool._free)


class Holders(RuleBasedStateMachine):
    """Holders of events come and go in any order; each remembers the record that its event had when it got it."""

    def __init__(self) -> None:
        super().__init__()
        device = SimulatedDevice()
        self.pool = EventPool(device, device.stream("main"))
        self.holders: list[tuple[Lease, Any]] = []
        self.most = self.records = 0

    @rule()
    def record(self) -> None:
        lease = self.pool.record()
        self.holders.append((lease, lease.event.latest))
        self.records += 1
        self.most = max(self.most, len({lease for lease, _ in self.holders}))

    @precondition(lambda self: self.holders)
    @rule(which=st.integers(0, 1000))
    def share(self, which: int) -> None:
        self.holders.append(self.holders[which % len(self.holders)])

    @precondition(lambda self: self.holders)
    @rule(which=st.integers(0, 1000))
    def let_go(self, which: int) -> None:
        del self.holders[which % len(self.holders)]

    @invariant()
    def what_is_held_still_has_its_record(self) -> None:
        assert all(lease.event.latest is record for lease, record in self.holders)

    @invariant()
    def the_counters_are_right(self) -> None:
        held = {lease for lease, _ in self.holders}
        assert (lent(self.pool), self.pool.created, self.pool.recorded) == (len(held), self.most, self.records)


TestHolders = Holders.TestCase
TestHolders.settings = settings(max_examples=50, stateful_step_count=60, deadline=None)


def test_a_pool_of_slots_that_go_round_would_be_caught():
    """The fault of the original, put into the machine above: 4 slots, taken by turns whoever holds them."""
    device = SimulatedDevice()
    machine = Holders()
    slots = [device.event() for _ in range(4)]
    stream = device.stream("main")
    for number in range(5):
        stream.record(slots[number % 4])
        machine.holders.append((Lease(slots[number % 4], machine.pool._free), slots[number % 4].latest))
    with pytest.raises(AssertionError):
        machine.what_is_held_still_has_its_record()


def test_an_event_returns_only_when_the_last_holder_lets_go():
    device = SimulatedDevice()
    pool = EventPool(device, device.stream("main"))
    first = pool.lease()
    reader, event = first, first.event
    del first
    assert pool.lease().event is not event
    del reader
    assert (lent(pool), pool.created) == (0, 2)
    both = [pool.lease(), pool.lease()]
    assert event in [lease.event for lease in both]


def test_a_failed_record_gives_the_event_back():
    device = SimulatedDevice()
    pool = EventPool(device, SimulatedDevice().stream("of another device"))
    for _ in range(3):
        with pytest.raises(Exception, match="does not belong"):
            pool.record()
    assert (pool.created, lent(pool), pool.recorded) == (1, 0, 0)


def test_more_than_64_can_be_held():
    device = SimulatedDevice()
    pool = EventPool(device, device.stream("main"))
    held = [pool.record() for _ in range(1000)]
    assert len({lease.event for lease in held}) == pool.created == lent(pool) == 1000


def test_a_soak_makes_no_more_events_than_are_held_together():
    device = SimulatedDevice()
    pool = EventPool(device, device.stream("main"))
    held: list[Lease | None] = [None] * 10
    for number in range(100_000):
        held[number % 10] = pool.lease()  # The new one is lent before the old one returns.
    assert pool.created == 11


@pytest.mark.parametrize("held", [0, 5])
def test_what_ctrl_c_keeps_from_coming_back_is_found(held, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda swallowed: None)  # That of pytest keeps the frame, and so the lease.
    device = SimulatedDevice()
    pool = EventPool(device, device.stream("main"))
    holders = [pool.record() for _ in range(held)]
    lost = 0
    for _ in range(100):
        leases = [pool.record()]
        before = lent(pool)
        with suppress(KeyboardInterrupt), profiled(Calls(1)):
            leases.clear()
        lost += lent(pool) == before
    assert lost > 50
    assert pool.created <= 8
    assert len({lease.event for lease in holders}) == held
    assert all(lease.event is not pool.lease().event for lease in holders)


def test_threads_never_get_the_same_event():
    class Made:
        def event(self) -> object:
            return object()

    pool = EventPool(Made(), None)
    owners: dict[int, int] = {}
    clashes: list[int] = []

    def work(thread: int) -> None:
        chance, held = random.Random(thread), []
        for _ in range(3000):
            lease = pool.lease()
            if owners.setdefault(id(lease.event), thread) != thread:
                clashes.append(thread)
            held.append(lease)
            if len(held) > 5:
                returned = held.pop(chance.randrange(len(held)))
                del owners[id(returned.event)]
                del returned
        for lease in held:
            del owners[id(lease.event)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []
    assert pool.created <= 6 * 7


def test_a_lease_that_dies_in_a_cycle_leaves_its_event_alive():
    """An exception's traceback makes such cycles; the collector then finalises everything that only the cycle holds."""

    class Handle:
        destroyed = False

        def __del__(self):
            self.destroyed = True

    class Fake:
        def event(self):
            return Handle()

    pool = EventPool(Fake(), None)
    cycle = [pool.lease()]
    cycle.append(cycle)
    del cycle
    gc.collect()
    again = pool.lease()
    assert pool.created == 1
    assert not again.event.destroyed
