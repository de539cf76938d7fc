"""Who made collectives late, and why: the planted cause is named, and none where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ranks.jobs import planted, rows_of, with_rows

from streamscope.ranks.job import Job

CASES = {
    "always": (lambda step, at: (1, 310) if at == 2 else None, "kernel", "k2", "persistent", 12),
    "every kernel": (lambda step, at: (1, 60), "slow GPU", "", "persistent", 36),
    "once": (lambda step, at: (1, 4_000) if (step, at) == (5, 1) else None, "kernel", "k1", "once", 1),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [2, 4])
def test_the_planted_cause_is_named_first(case, count):
    slow, cause, where, pattern, times = CASES[case]
    found = Job.of(planted(count, slow=slow).ranks).late
    assert [(late.rank, late.cause, late.where, late.pattern, late.times) for late in found] == [(1, cause, where, pattern, times)]


def test_one_that_moves_is_named_on_each_rank():
    found = Job.of(planted(4, slow=lambda step, at: (step % 4, 400) if at == 1 else None).ranks).late
    assert sorted(late.rank for late in found) == [0, 1, 2, 3]
    assert {(late.cause, late.where, late.pattern, late.times) for late in found} == {("kernel", "k1", "moving", 3)}


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32), st.sampled_from([1.0, 5.0, 20.0]))
def test_no_cause_is_named_where_there_is_none(count, seed, jitter_us):
    assert Job.of(planted(count, seed=seed, jitter_us=jitter_us).ranks).late == ()


def with_calls(rank, *calls):
    """Return a rank with calls of the host before each ``k1``: name, and how long before it they begin and end."""
    rows = rows_of(rank)
    begins = [row[3] for row in rows if row[1] == "k1"]
    return with_rows(
        rank, rows + [("HOST", name, "host", begin - before, begin - after) for begin in begins for name, before, after in calls]
    )


def test_a_late_host_is_the_cause_with_its_call_where_one_explains_it():
    job = planted(3, idle=lambda step, at: (2, 300) if at == 1 else None)
    (late,) = Job.of(job.ranks).late
    assert (late.rank, late.cause, late.where) == (2, "host late", "k1")
    (late,) = Job.of([*job.ranks[:2], with_calls(job.ranks[2], ("load batch", 290_000, 10_000))]).late
    assert (late.rank, late.cause, late.where) == (2, "host call", "load batch")
    assert "the cause is load batch on the host" in late.words


def test_more_work_is_told_from_slower_work():
    job = planted(3, slow=lambda step, at: (0, 250) if at == 0 else None)
    rows = []
    for kind, name, lane, begin, end in rows_of(job.ranks[0]):
        middle = begin + 200_000 if name == "k0" else end
        rows += [(kind, name, lane, begin, middle), *([(kind, "augment", lane, middle, end)] if middle < end else [])]
    more = with_rows(job.ranks[0], rows)
    (late,) = Job.of([more, *job.ranks[1:]]).late
    assert (late.rank, late.cause, late.where) == (0, "more work", "augment")
    assert late.share_of_step == pytest.approx(250 / 1250, abs=0.03)


def test_a_rank_that_waited_for_another_one_is_not_named():
    """Ranks 0 and 1, and 2 and 3, reduce together; then all do. Rank 3 is slow, and rank 2 is late for all because of it."""
    pairs = planted(4, 10, groups=((0, 1), (2, 3)), offset_s=0, ppm=0, slow=lambda step, at: (3, 300) if at == 1 else None)
    found = Job.of([replace(rank, host="a") for rank in pairs.ranks])
    (late,) = found.late
    assert (late.rank, late.cause, late.where, late.times) == (3, "kernel", "k1", 10)


def test_the_cost_is_what_the_others_wait():
    job = Job.of(planted(3, slow=lambda step, at: (2, 300) if at == 1 else None).ranks)
    assert job.late[0].cost_us == pytest.approx(12 * 300, rel=0.05)
    assert job.late[0].share_of_step == pytest.approx(300 / 1330, abs=0.03)


def test_the_range_that_launched_the_kernel_is_named():
    job = planted(3, slow=lambda step, at: (2, 310) if at == 1 else None)
    rank = job.ranks[2]
    launched, calls = [], []
    for number, (kind, name, lane, begin, end) in enumerate(rows_of(rank)):
        launched.append((kind, name, lane, begin, end, number))
        calls.append(("LAUNCH", "cudaLaunchKernel", "host", begin - 400, begin - 300, number))
        if name == "k1":
            calls.append(("RANGE", "augment", "host ranges", begin - 450, begin - 250))
            calls.append(("RANGE", "step 3", "host ranges", begin - 460, begin + 30_000))
    (late,) = Job.of([*job.ranks[:2], with_rows(rank, launched + calls)]).late
    assert (late.cause, late.where, late.under) == ("kernel", "k1", "augment")
    assert "the kernel k1 under augment" in late.words
