"""What ends tell of clocks: of ranks that begin together, in turns, or one always last."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ranks.jobs import REDUCE, planted

from streamscope.ranks.job import Job
from streamscope.ranks.rank import Rank
from streamscope.trace import Collectives, DeviceInfo, SpanTable, Trace, TraceInfo


@pytest.mark.parametrize("often", [2, 3])
def test_the_last_one_to_begin_ends_later_and_that_moves_no_clock(often):
    """Rank 1 is late in half of the operations, or in a third: their ends alone would put its clock 10 µs off."""
    job = planted(2, 30, seed=3, buffered_us=11, kernels_us=(300,), slow=lambda step, at: (int(step % often == 0), 60))
    clocks = Job.of(job.ranks).clocks
    assert abs(clocks.offset_ns[1] - job.off_by_ns(clocks.middle_ns)[1]) < 1_500


@settings(max_examples=12)
@given(st.integers(2, 5), st.integers(0, 2**32), st.floats(0, 6))
def test_a_rank_that_is_always_last_is_taken_to_end_later_by_8_percent_of_the_transfer(count, seed, buffered_us):
    """Of 30 µs: what it really ends later by is not known. The others wait for it together, and are off by nothing."""
    job = planted(count, 40, seed=seed, buffered_us=buffered_us, kernels_us=(300,), slow=lambda step, at: (1, 60))
    clocks = Job.of(job.ranks).clocks
    off_us = (clocks.offset_ns - job.off_by_ns(clocks.middle_ns)) / 1000
    assert off_us[1] == pytest.approx(0.08 * (30 + buffered_us / 2) - buffered_us, abs=0.8)
    assert np.abs(np.delete(off_us, 1)).max() < 0.6


AHEAD_US = np.array([[0], [123_456]])
LENGTHS = pytest.mark.parametrize("transfer_us", [30, 250, 1_000, 5_000])


def off_us(late_us, transfer_us, lag_us, seed=0):
    """Return by how much the clock of the second of two ranks is off, which begins its collectives so much later than the first one."""
    rng = np.random.default_rng(seed)
    begin_us = 10_000.0 * np.arange(len(late_us)) + np.stack([np.zeros(len(late_us)), late_us])
    end_us = begin_us.max(axis=0) + transfer_us + rng.normal(0, 0.4, begin_us.shape)
    end_us[begin_us.argmax(axis=0), np.arange(len(late_us))] += np.minimum(np.abs(late_us), lag_us)
    ranks = []
    for number, (begins, ends) in enumerate(zip(begin_us + AHEAD_US, end_us + AHEAD_US, strict=True)):
        spans = SpanTable.of(
            *(("kernel", REDUCE, "comm", round(1000 * one), round(1000 * other)) for one, other in zip(begins, ends, strict=True))
        )
        facts = Collectives.from_columns(range(len(begins)), "all_reduce", ranks=2, communicator="w", sequence=range(len(begins)))
        info = TraceInfo("kineto", "r", DeviceInfo("cuda", "NVIDIA H100"), "kineto", rank=number, zero_ns=0)
        ranks.append(Rank(number, f"{number}.json", Trace(spans, info, collectives=facts)))
    return Job.of(ranks).clocks.offset_ns[1] / 1000 + AHEAD_US[1, 0]


@LENGTHS
@pytest.mark.parametrize("share", [0, 0.08, 0.2])
@pytest.mark.parametrize("seed", range(3))
def test_ranks_that_begin_together_stay_together(transfer_us, share, seed):
    """A lag and an offset would explain their ends, too: then it would always be the same rank that is the last one."""
    late_us = np.random.default_rng(seed).normal(0, 4, 60)
    assert abs(off_us(late_us, transfer_us, share * transfer_us, seed)) < 2


@LENGTHS
@pytest.mark.parametrize("share", [0, 0.08, 0.2])
@pytest.mark.parametrize("often", [2, 3])
def test_of_ranks_that_are_late_in_turns_the_ends_tell_the_lag(transfer_us, share, often):
    """If the lag is longer than what they are late by, ends follow begins, and tell the offset within what begins scatter by."""
    late_us = np.where(np.arange(60) % often == 0, 60, -60) + np.random.default_rng(0).normal(0, 4, 60)
    assert abs(off_us(late_us, transfer_us, share * transfer_us)) < 6


@LENGTHS
@pytest.mark.parametrize("lag_us", [0, 10, 25])
def test_a_rank_that_is_late_each_time_is_named_however_long_transfers_are(transfer_us, lag_us):
    made = planted(2, 40, kernels_us=(300,), transfer_us=transfer_us, buffered_us=lag_us, slow=lambda step, at: (1, 100))
    (late,) = Job.of(made.ranks).late
    assert (late.rank, late.pattern) == (1, "persistent")
    assert late.median_us == pytest.approx(100, abs=27)


def test_of_messages_that_no_receiver_waited_for_nothing_is_assumed():
    """One direction only; both ends of each are the same moment."""
    made = planted(2, 20, kernels_us=(300,), transfer_us=100, slow=lambda step, at: (1, 60))
    found = []
    for rank, kind in zip(made.ranks, ("send", "recv"), strict=True):
        facts = rank.trace.collectives
        messages = Collectives.from_columns(facts.span, kind, peer=1 - rank.number, communicator="w", sequence=facts.sequence)
        found.append(replace(rank, trace=replace(rank.trace, collectives=messages)))
    clocks = Job.of(found).clocks
    assert abs(clocks.offset_ns - made.off_by_ns(clocks.middle_ns))[1] < 1_500


def test_where_one_rank_is_always_last_the_clock_of_the_host_counts():
    """It ends later by half of a transfer, so the ends of rank 2 alone would put its clock 10 µs off."""
    job = planted(3, 20, buffered_us=15, offset_s=0, ppm=0, slow=lambda step, at: (2, 60))
    apart, together = (Job.of([replace(rank, host=host) for rank in job.ranks]).clocks for host in (None, "a"))
    assert abs(apart.offset_ns[2]) > 8_000
    assert together.offset_ns[2] == 0
