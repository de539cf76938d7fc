"""Medians, their intervals, and when two differ."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.analysis import Ranking, median_interval
from streamscope.analysis.statistics import compare_times
from streamscope.errors import TraceError


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(1, 1, 1), (2, 1, 2), (5, 1, 5), (6, 1, 6), (8, 1, 8), (9, 2, 8), (11, 2, 10), (12, 3, 10), (20, 6, 15), (25, 8, 18), (100, 40, 61)],
)
def test_ranks_are_those_of_published_tables(count, low, high):
    found = median_interval(np.arange(count, 0, -1))
    assert (found.low, found.high, found.count) == (low, high, count)
    assert found.basis == ("minimum and maximum" if count < 6 else "95 % interval of the median")


@given(st.integers(6, 400) | st.sampled_from([10_007, 300_000, 1_000_000]))
def test_the_interval_is_the_narrowest_that_holds_the_median_with_95_percent(count):
    from scipy import stats  # It takes longer than all tests here, and each worker of pytest imports this file.

    rank = int(median_interval(np.arange(1, count + 1)).low)
    assert 1 - 2 * stats.binom.cdf(rank - 1, count, 0.5) >= 0.95
    assert 1 - 2 * stats.binom.cdf(rank, count, 0.5) < 0.95


def test_a_95_percent_interval_holds_the_median_that_often():
    random = np.random.default_rng(0)
    intervals = [median_interval(random.lognormal(3, 1, 15)) for _ in range(2000)]
    assert np.mean([interval.low <= np.exp(3) <= interval.high for interval in intervals]) == pytest.approx(0.965, abs=0.015)


@pytest.mark.parametrize(("samples", "message"), [([], "no repeats"), ([1.0, np.nan], "nan"), ([1.0, np.inf], "inf"), ([3.0, -1.0], "-1")])
def test_what_is_no_time_is_refused(samples, message):
    with pytest.raises(TraceError, match=message):
        median_interval(samples)


@pytest.mark.parametrize(
    ("time", "base", "expected"),
    [
        ((10, 9, 11), (20, 19, 21), Ranking.FASTER),
        ((20, 19, 21), (10, 9, 11), Ranking.SLOWER),
        ((10, 9, 12), (13, 12, 14), Ranking.WITHIN_NOISE),
        ((13, 12, 14), (10, 9, 12), Ranking.WITHIN_NOISE),
        ((10, 9, 11.9), (13, 12, 14), Ranking.FASTER),
        ((10, 5, 30), (13, 12, 14), Ranking.WITHIN_NOISE),
        ((1000, 1000, 1000), (1005, 1005, 1005), Ranking.SAME),
        ((1000, 1000, 1000), (1011, 1011, 1011), Ranking.FASTER),
        ((7, 7, 7), (7, 7, 7), Ranking.SAME),
        ((0, 0, 0), (0, 0, 0), Ranking.SAME),
    ],
)
def test_times_are_ranked_only_where_they_differ(time, base, expected):
    assert compare_times(*time, *base) is expected
