"""The bounds of clocks hold what was planted, and are the tightest that there are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from tests.ranks.jobs import planted, with_info

from streamscope.errors import TraceError
from streamscope.ranks.clocks import FASTEST_DRIFT
from streamscope.ranks.job import Job
from streamscope.trace import Collectives


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32), st.sampled_from([0.0, 3_000.0]), st.booleans())
def test_bounds_hold_the_planted_offset_and_the_estimate_lies_near(count, seed, pause_us, late):
    job = planted(count, 8, seed=seed, pause_us=pause_us, buffered_us=2.4, slow=lambda step, at: (1, 100) if late and at == 1 else None)
    clocks = Job.of(job.ranks).clocks
    true_ns = job.off_by_ns(clocks.middle_ns)
    assert (clocks.low_ns - 2 <= true_ns).all()
    assert (true_ns <= clocks.high_ns + 2).all()
    assert (np.abs(clocks.offset_ns - true_ns) <= np.minimum(clocks.error_ns + 2, 2_000)).all()


def brute_force(ranks, clocks):
    """Return the bounds by one linear program over all pairs of parts, in ns around the estimate and in its units."""
    count = len(ranks)
    reach = clocks.reach_ns
    rows, most = [], []
    columns = [(rank.trace.spans, rank.trace.collectives) for rank in ranks]
    for number in range(max(len(found) for _, found in columns)):
        parts = [(at, spans, np.flatnonzero(found.sequence == number)) for at, (spans, found) in enumerate(columns)]
        there = [(at, int(columns[at][1].span[rows_[0]])) for at, _, rows_ in parts if len(rows_)]
        for one, begin in there:
            for other, end in there:
                if one == other:
                    continue
                start, stop = float(columns[one][0].start_ns[begin]), float(columns[other][0].end_ns[end])
                row = np.zeros(2 * count)
                row[one], row[count + one] = 1, (start - clocks.middle_ns[one]) / reach
                row[other], row[count + other] = -1, -(stop - clocks.middle_ns[other]) / reach
                rows.append(row)
                most.append((clocks.job_ns(other, stop) - clocks.job_ns(one, start)) / 1e3)
    steep = FASTEST_DRIFT * reach / 1e3
    own = clocks.drift * reach / 1e3
    box = [(0, 0), *[(None, None)] * (count - 1), (0, 0), *[(-steep - each, steep - each) for each in own[1:]]]
    found = []
    for at in range(1, count):
        goal = np.zeros(2 * count)
        goal[at] = 1
        found.append([sign * linprog(sign * goal, A_ub=np.array(rows), b_ub=most, bounds=box).fun * 1e3 for sign in (1, -1)])
    return np.array(found) + clocks.offset_ns[1:, None]


@pytest.mark.parametrize(("count", "groups"), [(2, ()), (3, ()), (4, ((0, 1), (2, 3)))])
def test_bounds_are_those_of_brute_force(count, groups):
    job = planted(count, 4, seed=count, groups=groups)
    if groups:  # Joined by all-reduces of ranks 1 and 2.
        whole = planted(count, 4, seed=count)
        job = replace(job, ranks=whole.ranks)
    clocks = Job.of(job.ranks).clocks
    assert np.stack([clocks.low_ns[1:], clocks.high_ns[1:]], axis=1) == pytest.approx(brute_force(job.ranks, clocks), abs=5)


def test_drift_is_fitted_over_a_long_recording():
    job = planted(3, 60, pause_us=50_000, seed=5)
    clocks = Job.of(job.ranks).clocks
    assert clocks.drift * 1e6 == pytest.approx(job.drift * 1e6, abs=0.5)


def test_groups_that_nothing_joins_are_named_and_a_host_joins_them():
    job = planted(4, 4, groups=((0, 1), (2, 3)), offset_s=0, ppm=0)
    found = Job.of(job.ranks)
    assert found.warnings[0].startswith("nothing joins the clocks of ranks 0, 1 and ranks 2, 3")
    assert [rank["offset_us"] is None for rank in found.to_dict()["ranks"]] == [False, False, True, True]
    together = Job.of([replace(rank, host="a") for rank in job.ranks])
    assert not together.warnings
    assert (together.clocks.error_ns[1:] <= 20_000).all()


def test_ranks_on_several_clocks_are_not_compared():
    """An all-to-all of unknown sizes bounds nothing: which ranks exchanged data is not known."""
    job = planted(2, 4)
    found = []
    for rank in job.ranks:
        collectives = Collectives.from_columns(
            rank.trace.collectives.span, "all_to_all", communicator="w", sequence=rank.trace.collectives.sequence
        )
        found.append(replace(rank, trace=replace(rank.trace, collectives=collectives)))
    apart = Job.of(found)
    assert apart.matched.whole.all()
    assert not apart.waits.known.any()
    assert apart.late == ()
    assert apart.to_dict()["ranks"][1]["waiting_us"] == 0
    assert apart.warnings[0].startswith("nothing joins the clocks of rank 0 and rank 1")


def test_an_empty_interval_names_the_collective():
    job = planted(2, 6)
    spans = job.ranks[1].trace.spans
    moved = np.where(spans.start_ns > np.median(spans.start_ns), 10_000_000, 0)  # The clock was set in the middle.
    table = replace(spans, start_ns=spans.start_ns + moved, end_ns=spans.end_ns + moved)
    broken = replace(job.ranks[1], trace=replace(job.ranks[1].trace, spans=table))
    with pytest.raises(TraceError, match=r"no clocks fit the times of the ranks: all_reduce number \d+ of communicator '\[0, 1\]'"):
        Job.of([job.ranks[0], broken])
    with pytest.raises(TraceError, match=r"rank 0 and rank 1 are said to share a host, and their clocks are \d+ ms apart"):
        Job.of([replace(rank, host="a") for rank in planted(2, 4, seed=3).ranks])


def test_a_clock_that_is_ahead_has_a_positive_offset():
    job = planted(2, 4, offset_s=0, ppm=0, buffered_us=2.4)
    ahead = with_info(job.ranks[1], zero_ns=250_000)
    rank = Job.of([job.ranks[0], ahead]).to_dict()["ranks"][1]
    assert rank["offset_us"] == pytest.approx(250, abs=2)
    assert 0 < rank["offset_error_us"] < 60
