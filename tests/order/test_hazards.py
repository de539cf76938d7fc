"""Hazards and the fewest waits for them, against plain reachability."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamscope.order.clocks import Stamp
from streamscope.order.hazards import HOST, Accesses, HazardTracker, hazards, note, unordered

LANES = (0, 1, 2)
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from((*LANES, HOST)),
        st.sets(st.integers(0, 4), max_size=3),
        st.sets(st.integers(0, 4), max_size=2),
    ),
    max_size=40,
)


def places(stamps):
    return [(stamp.lane, stamp.position) for stamp in stamps]


def test_a_new_reader_comes_after_the_writer_and_a_new_writer_after_all():
    accesses = Accesses()
    note(0, "write", (), (accesses,))
    assert hazards((accesses,), ()) == hazards((), (accesses,)) == ["write"]
    note(1, "first", (accesses,), ())
    note(2, "second", (accesses,), ())
    assert hazards((accesses,), ()) == ["write"]
    assert set(hazards((), (accesses,))) == {"first", "second"}  # Each of them comes after the write.
    assert set(accesses.users) == {"write", "first", "second"}


def test_a_reader_replaces_its_lanes_reader_and_a_writer_clears_all():
    accesses = Accesses()
    note(1, "first", (accesses,), ())
    note(1, "second", (accesses,), ())
    assert hazards((), (accesses,)) == ["second"]
    note(2, "third", (), (accesses,))
    assert hazards((), (accesses,)) == ["third"]


def test_the_same_lane_needs_no_wait():
    tracker = HazardTracker(len(LANES))
    tracker.issue(0, [], [1])
    assert tracker.issue(0, [1], [])[0] == []


def test_one_wait_per_foreign_lane_and_none_that_another_implies():
    tracker = HazardTracker(len(LANES))
    tracker.issue(0, [], [1])
    tracker.issue(0, [], [2])
    assert places(tracker.issue(1, [1, 2], [3])[0]) == [(0, 2)]
    assert places(tracker.issue(2, [1, 3], [])[0]) == [(1, 1)]


def test_what_the_host_has_waited_for_nobody_waits_for_again():
    tracker = HazardTracker(len(LANES))
    tracker.issue(0, [], [1])
    assert places(tracker.issue(HOST, [1], [2])[0]) == [(0, 1)]
    assert tracker.issue(1, [1, 2], [])[0] == []


def test_what_a_clock_covers_is_ordered():
    stamp, accesses, read = Stamp(0, 2, (1, 0)), Accesses(), Accesses()
    note(0, stamp, (read,), (accesses,))
    for clock, found in (((1, 0), [stamp]), ((2, 0), []), ((3, 0), [])):
        assert unordered(1, clock, [accesses], []) == unordered(1, clock, [], [accesses]) == unordered(1, clock, [], [read]) == found
    assert unordered(0, (1, 0), [accesses], [read]) == []  # A lane is in order by itself.


def test_the_start_is_waited_for_once_a_lane():
    tracker = HazardTracker(len(LANES))
    assert places(tracker.issue(1, [], [1], (tracker.start,))[0]) == [(0, 0)]
    assert tracker.issue(1, [], [2], (tracker.start,))[0] == []
    assert places(tracker.issue(2, [1], [], (tracker.start,))[0]) == [(1, 1)]
    assert tracker.issue(0, [], [3], (tracker.start,))[0] == []


@given(OPERATIONS)
def test_all_conflicts_are_ordered_and_every_wait_is_needed(operations):
    """Lane order, host order and the waits order each conflicting pair; without any one wait, the pair it is for is not ordered."""
    tracker = HazardTracker(len(LANES))
    items: list[tuple[int, set[int], set[int]]] = []
    stamps: dict[tuple[int, int], int] = {}
    edges: list[set[int]] = []
    for lane, reads, writes in operations:
        found, stamp = tracker.issue(lane, reads, writes)
        waits = places(found)
        number = len(items)
        order = {other for other, (at, _, _) in enumerate(items) if at in {lane, HOST}}  # A host item is done before the next is issued.
        edges.append(order | {stamps[wait] for wait in waits})
        items.append((lane, reads, writes))
        if stamp is not None:
            stamps[stamp.lane, stamp.position] = number
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
