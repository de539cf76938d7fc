"""What was allocated around an address, from an allocator's history."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from streamscope.capturing.allocations import Allocated, most_in_use, united

REGIONS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda one: (one[0], one[0] + one[1])), max_size=12)


@given(REGIONS)
def test_united_regions_are_apart_and_hold_the_same_bytes(regions):
    found = united(regions)
    assert found == sorted(found)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(found))
    assert {byte for one in found for byte in range(*one)} == {byte for one in regions for byte in range(*one)}


@given(REGIONS)
def test_each_allocation_lies_whole_in_what_is_around_its_addresses(regions):
    allocated = Allocated(regions, pools=[(0, 100)])
    for start, end in regions:
        for address in range(start, end):
            found = allocated.around(address)
            assert found[0] <= start
            assert end <= found[1]


def test_memory_that_was_used_twice_is_one_and_an_address_between_stands_for_the_pool():
    allocated = Allocated([(0, 512), (256, 1024)], [(2048, 2560)], [(0, 4096), (8192, 9000)])
    assert allocated.around(100) == (0, 1024)
    assert allocated.around(2100) == (2048, 2560)
    assert allocated.around(1500) == (0, 4096)


EVENTS = st.lists(st.tuples(st.sampled_from(["alloc", "free_requested", "free_completed"]), st.integers(0, 4)), max_size=30)


@given(EVENTS)
def test_most_in_use_is_the_most_that_is_in_use_after_any_event(drawn):
    events, in_use, most = [], {}, 0
    for action, address in drawn:
        if action == "alloc" and address in in_use:
            continue  # No allocator hands out what is in use.
        nbytes = 100 * (address + 1)
        events.append((action, address, nbytes))
        if action == "alloc":
            in_use[address] = nbytes
        elif action == "free_completed":
            in_use.pop(address, None)
        most = max(most, sum(in_use.values()))
    assert most_in_use(events) == most
