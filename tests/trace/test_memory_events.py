"""Allocations out of events of memory: against a walk with a dictionary, and by hand where events are missing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamscope.trace.memory import BEFORE, BEFORE_THE_RECORDING, HELD, Allocations, Level
from streamscope.trace.memory_events import MemoryEvents, allocations_of, held_bytes


def tabled(rows, zero_ns=0, **more):
    """Return the allocations of events ``(time, bytes, address, gpu, total, reserved)``, and what is said of them."""
    columns = np.array(rows, np.int64).reshape(-1, 6).T
    said = []
    return allocations_of([MemoryEvents(*columns, **more)], zero_ns, said), said


def rows_of(found):
    return list(zip(found.start_ns.tolist(), found.end_ns.tolist(), found.bytes.tolist(), found.kinds, strict=True))


@settings(max_examples=30)
@given(st.data())
def test_the_curve_is_the_total_of_the_allocator_after_each_event(data):
    base = {gpu: data.draw(st.integers(0, 2**40)) for gpu in (-1, 0, 1)}
    old = {(gpu, 100 + at): data.draw(st.integers(1, max(1, base[gpu]))) for gpu in base for at in range(2)}
    live = {key: size for key, size in old.items() if size * 2 <= base[key[0]]}
    total, events, at_ns = dict(base), [], 0
    for _ in range(data.draw(st.integers(1, 30))):
        at_ns += data.draw(st.integers(0, 5))
        if live and data.draw(st.booleans()):
            gpu, address = data.draw(st.sampled_from(sorted(live)))
            change = -live.pop((gpu, address))
        else:
            gpu, address = data.draw(st.sampled_from(sorted(base))), data.draw(st.integers(0, 9))
            if (gpu, address) in live:
                continue
            change = live[gpu, address] = data.draw(st.integers(1, 2**30))
        total[gpu] += change
        events.append((at_ns, change, address, gpu, total[gpu], 0))
    found, said = tabled(events, zero_ns=7)
    assert not said
    for gpu, before in base.items():
        its, pushed_ns = found.rows(found.gpu == gpu), -(10**9)
        for at_ns, *_, owner, after, _ in events:
            if owner == gpu:
                pushed_ns = max(at_ns - 7, pushed_ns + 1)
                assert held_bytes(its.start_ns, its.end_ns, its.bytes, np.array([pushed_ns])).tolist() == [after]
        if any(event[3] == gpu for event in events):
            assert int(its.bytes[its.start_ns == BEFORE].sum()) == before


def test_events_without_totals_are_paired_and_what_was_held_is_given_back():
    found, said = tabled([(10, 5, 1, 0, -1, -1), (20, -7, 2, 0, -1, -1), (30, -5, 1, 0, -1, -1), (40, 9, 1, 0, -1, -1)], kind="PyTorch")
    assert rows_of(found) == [
        (BEFORE, 20, 7, BEFORE_THE_RECORDING), (10, 30, 5, "PyTorch"), (40, HELD, 9, "PyTorch"),
    ]  # fmt: skip
    assert not said


def test_missing_events_are_counted_and_bound_what_is_known():
    found, said = tabled([(10, 5, 1, 0, -1, -1), (20, 6, 1, 0, -1, -1), (30, -6, 1, 0, -1, -1), (40, -8, 1, 0, -1, -1)])
    assert [row[:3] for row in rows_of(found)] == [(10, 20, 5), (20, 30, 6), (30, 40, 8)]
    assert said == ["memory of GPU 0: 2 events missing, since an address was taken, or given back, twice in a row"]


def test_totals_that_change_without_an_event_are_rows_of_which_no_more_is_known():
    found, said = tabled([(10, 5, 1, 0, 105, 0), (20, 5, 2, 0, 150, 0), (30, -5, 2, 0, 115, 0)], kind="PyTorch")
    assert [row for row in rows_of(found) if row[3] != "PyTorch"] == [
        (BEFORE, HELD, 100, BEFORE_THE_RECORDING), (20, 30, 30, ""), (20, HELD, 10, ""),
    ]  # fmt: skip
    assert said == ["memory of GPU 0: 2 times the allocator's total changed without an event"]


def test_totals_of_two_threads_out_of_order_are_no_memory():
    events = [(at, 10, at, 0, 100 + 10 * at, 0) for at in range(1, 9)]
    events[3] = (4, 50, 5, 0, 190, 0)  # The larger one is counted later than its clock says, after the one of 10 bytes.
    events[4] = (5, 10, 4, 0, 140, 0)
    events[5:] = [(at, 10, at, 0, 140 + 10 * at, 0) for at in range(6, 9)]
    found, said = tabled(events, kind="PyTorch")
    assert [row for row in rows_of(found) if row[3] != "PyTorch"] == [(BEFORE, HELD, 100, BEFORE_THE_RECORDING)]
    assert said == ["memory of GPU 0: 2 totals out of order by the clock, as where several threads take memory at once"]


def test_a_total_below_the_events_is_not_used():
    found, said = tabled([(10, 5, 1, 0, 5, 0), (20, 5, 2, 0, 4, 0)])
    assert [row[:3] for row in rows_of(found)] == [(10, HELD, 5), (20, HELD, 5)]
    assert said == ["memory of GPU 0: at 1 moment the allocator's total is less than the events add up to: totals are not used"]


def test_an_event_of_no_byte_tells_what_was_held_before():
    found, said = tabled([(10, 0, 0, 0, 9, -1), (20, 5, 1, 0, 14, -1), (30, 0, 0, 0, -1, -1)])
    assert rows_of(found) == [(BEFORE, HELD, 9, BEFORE_THE_RECORDING), (20, HELD, 5, "")]
    assert not said


def test_reserved_memory_follows_its_total():
    found, _ = tabled([(10, 5, 1, 0, 5, 20), (20, 30, 2, 0, 35, 60), (30, -30, 2, 0, 5, 30), (40, -5, 1, 0, 0, 0)], kind="PyTorch")
    reserved = found.rows(found.level == Level.RESERVED)
    assert sorted(rows_of(reserved)) == [
        (BEFORE, 40, 20, BEFORE_THE_RECORDING), (20, 30, 30, "PyTorch"), (20, 40, 10, "PyTorch"),
    ]  # fmt: skip


def test_events_of_one_moment_keep_their_order():
    found, said = tabled([(5, 3, 1, 0, 3, 0), (5, -3, 1, 0, 0, 0), (5, 4, 1, 0, 4, 0), (6, -4, 1, 0, 0, 0)])
    assert [row[:3] for row in rows_of(found)] == [(5, 6, 3), (7, 8, 4)]
    assert not said


def test_names_sites_and_levels_of_several_sources_stay_theirs():
    pool = MemoryEvents(*np.array([[10, 5, 1, 0]]).T, name=np.array([0]), texts=("aten::mm",), kind="PyTorch")
    driver = MemoryEvents(*np.array([[9, 50, 1, 0]]).T, name=np.array([1]), texts=("x", "cudaMalloc"), level=Level.RESERVED)
    found = allocations_of([pool, driver], 9, [])
    assert (found.names, found.kinds, found.level.tolist(), found.start_ns.tolist()) == (
        ["cudaMalloc", "aten::mm"],
        ["", "PyTorch"],
        [1, 0],
        [0, 1],
    )


@pytest.mark.parametrize("event", [(2**60, 5, 1, 0, -1, -1), (1, 2**50, 1, 0, -1, -1), (1, 5, 1, -2, -1, -1)])
def test_impossible_events_are_left_out_by_count(event):
    found, said = tabled([event, (10, 5, 1, 0, -1, -1)])
    assert len(found) == 1
    assert said == ["left out: 1 event of memory at impossible times, of impossible sizes or GPUs"]


def test_the_smallest_are_left_out_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr(Allocations, "MOST", 2)
    found, said = tabled([(10, 5, 1, 0, -1, -1), (20, 3, 2, 0, -1, -1), (30, 4, 3, 0, -1, -1), (40, 9, 4, 0, -1, -1)])
    assert found.bytes.tolist() == [5, 9]
    assert said == ["left out: 2 allocations, the smallest, which held 7 bytes together at most, since a trace keeps 2"]


def test_no_event_is_no_allocation():
    assert len(tabled([])[0]) == 0
