"""The dependency tracker against plain reachability."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamscope.engines.sync_objects import HOST, DependencyTracker, Stamp, SyncObject

LANES = (0, 1, 2)
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from((*LANES, HOST)),
        st.sets(st.integers(0, 4), max_size=3),
        st.sets(st.integers(0, 4), max_size=2),
    ),
    max_size=40,
)


def test_a_new_reader_comes_after_the_writer_and_a_new_writer_after_all():
    sync = SyncObject()
    write, first, second = Stamp(0, 1), Stamp(1, 1), Stamp(2, 1)
    sync.touch(write, write=True)
    sync.touch(first, write=False)
    sync.touch(second, write=False)
    assert sync.conflicts(write=False) == [write]
    assert set(sync.conflicts(write=True)) == {write, first, second}


def test_a_reader_replaces_its_lanes_reader_and_a_writer_clears_all():
    sync = SyncObject()
    sync.touch(Stamp(1, 1), write=False)
    sync.touch(Stamp(1, 2), write=False)
    assert sync.conflicts(write=True) == [Stamp(1, 2)]
    sync.touch(Stamp(2, 1), write=True)
    assert sync.conflicts(write=True) == [Stamp(2, 1)]


def test_the_same_lane_needs_no_wait():
    tracker = DependencyTracker(LANES)
    tracker.issued(0, [], [1])
    assert tracker.needed(0, [1], []) == []


def test_one_wait_per_foreign_lane_and_none_that_another_implies():
    tracker = DependencyTracker(LANES)
    tracker.issued(0, [], [1])
    tracker.issued(0, [], [2])
    assert tracker.needed(1, [1, 2], []) == [Stamp(0, 2)]
    tracker.waited(1, Stamp(0, 2))
    tracker.issued(1, [1, 2], [3])
    assert tracker.needed(2, [1, 3], []) == [Stamp(1, 1)]


def test_what_the_host_has_waited_for_nobody_waits_for_again():
    tracker = DependencyTracker(LANES)
    tracker.issued(0, [], [1])
    assert tracker.needed(HOST, [1], []) == [Stamp(0, 1)]
    tracker.waited(HOST, Stamp(0, 1))
    tracker.issued(HOST, [1], [2])
    assert tracker.needed(1, [1, 2], []) == []


@given(OPERATIONS)
def test_all_conflicts_are_ordered_and_every_wait_is_needed(operations):
    """Lane order, host order and the waits order each conflicting pair; without any one wait, the pair it is for is not ordered."""
    tracker = DependencyTracker(LANES)
    items: list[tuple[int, set[int], set[int]]] = []
    stamps: dict[Stamp, int] = {}
    edges: list[set[int]] = []
    for lane, reads, writes in operations:
        waits = tracker.needed(lane, reads, writes)
        for stamp in waits:
            tracker.waited(lane, stamp)
        stamp = tracker.issued(lane, reads, writes)
        number = len(items)
        order = {other for other, (at, _, _) in enumerate(items) if at in {lane, HOST}}  # A host item is done before the next is issued.
        edges.append(order | {stamps[wait] for wait in waits})
        items.append((lane, reads, writes))
        stamps[stamp] = number
        for wait in waits:
            others = [*edges[:number], edges[number] - {stamps[wait]}]
            assert stamps[wait] not in reached(others, number), "a wait that other orders imply"
        before = reached(edges, number)
        for other, (_, other_reads, other_writes) in enumerate(items[:number]):
            if writes & (other_reads | other_writes) or reads & other_writes:
                assert other in before


def reached(edges: list[set[int]], start: int) -> set[int]:
    found: set[int] = set()
    pending = list(edges[start])
    while pending:
        item = pending.pop()
        if item not in found:
            found.add(item)
            pending += edges[item]
    return found
