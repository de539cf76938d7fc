"""Medians with intervals, and when two of them differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.errors import TraceError

_CONFIDENCE = 0.95
FEWEST_FOR_INTERVAL = 6
"""With fewer samples even the interval from the smallest to the largest holds the median with less than 95 % confidence.

Of two medians that are the same, intervals of six samples lie apart once in 460 times, those of three once in ten."""
SAME_WITHIN = 0.01
"""Medians closer than this count as the same, however narrow their intervals are."""


@dataclass(frozen=True)
class MedianInterval:
    """A median with its interval, in the unit of the samples.

    Attributes
    ----------
    median, low, high : float
    count : int
        Number of samples.
    basis : str
        Kind of the interval: ``"95 % interval of the median"``, or ``"minimum and maximum"`` for fewer than 6 samples.
    """

    median: float
    low: float
    high: float
    count: int
    basis: str


class Ranking(Enum):
    """How a time compares with another."""

    FASTER = "faster"
    SLOWER = "slower"
    WITHIN_NOISE = "within the noise"
    """The intervals overlap."""
    SAME = "the same"
    """The intervals do not overlap, but the medians differ by less than `SAME_WITHIN`."""
    UNKNOWN = "too few repeats to tell"
    """Fewer than `FEWEST_FOR_INTERVAL` were measured."""


def median_interval(samples: npt.ArrayLike) -> MedianInterval:
    """Median of the repeats, with its 95 % confidence interval.

    With fewer than 6 repeats the interval is the minimum and the maximum. Nothing is assumed about the distribution.
    Formula: from the k-th shortest to the k-th longest of n repeats, with the largest k for which P(Binomial(n, 1/2) < k) is at most 2.5 %.
    Unit: that of the samples.
    Source: David and Nagaraja, Order Statistics, section 7.1.

    Raises
    ------
    TraceError
        There are no samples, or one is negative or not finite.

    Examples
    --------
    >>> ss.analysis.median_interval([10, 11, 12, 13, 14, 100])
    MedianInterval(median=12.5, low=10.0, high=100.0, count=6, basis='95 % interval of the median')
    >>> ss.analysis.median_interval([10, 12, 11]).basis
    'minimum and maximum'
    """
    values = np.sort(np.asarray(samples, np.float64).ravel())
    if len(values) == 0:
        raise TraceError("there are no repeats to take a median of", hint="run with repeats of at least 1")
    if not np.isfinite(values).all() or values[0] < 0:
        raise TraceError(f"repeats hold {values[~np.isfinite(values) | (values < 0)][0]}, which is not a time")
    rank = _interval_rank(len(values))
    low, high = values[max(rank - 1, 0)], values[-max(rank, 1)]
    return MedianInterval(float(np.median(values)), float(low), float(high), len(values), interval_basis(len(values)))


def median_intervals(values: npt.NDArray[Any], group: npt.NDArray[Any], groups: int) -> npt.NDArray[np.float64]:
    """Return median, low and high of each group as `median_interval` defines them, float64, shape (3, groups); NaN for an empty one.

    ``values``: finite; they may be negative.
    ``group``: of each value, from 0 to ``groups - 1``.
    """
    ordered = np.append(values[np.lexsort((values, group))].astype(np.float64), np.nan)
    size = np.bincount(group, minlength=groups)
    sizes, at = np.unique(size, return_inverse=True)
    rank = np.array([_interval_rank(int(one)) for one in sizes], np.int64)[at]
    first, last = np.cumsum(size) - size, np.cumsum(size) - 1
    middle = (ordered[first + np.maximum(size - 1, 0) // 2] + ordered[first + size // 2]) / 2
    found = np.stack([middle, ordered[first + np.maximum(rank - 1, 0)], ordered[last - np.maximum(rank, 1) + 1]])
    return np.where(size > 0, found, np.nan)


def interval_basis(count: int) -> str:
    """Name the kind of interval that so many samples allow."""
    return "minimum and maximum" if _interval_rank(count) == 0 else "95 % interval of the median"


def compare_times(median: float, low: float, high: float, base_median: float, base_low: float, base_high: float) -> Ranking:
    """Tell how a time compares with a base, each given as median and interval in one unit."""
    if low <= base_high and base_low <= high and not (low == high == base_low == base_high):
        return Ranking.WITHIN_NOISE
    if abs(median - base_median) < SAME_WITHIN * max(median, base_median) or median == base_median:
        return Ranking.SAME
    return Ranking.FASTER if median < base_median else Ranking.SLOWER


def quantiles(values: npt.NDArray[Any], *probabilities: float) -> tuple[float, ...]:
    """Return quantiles by linear interpolation, in the unit of the values; ``values`` must not be empty."""
    return tuple(float(value) for value in np.quantile(values, probabilities))


def _interval_rank(count: int) -> int:
    """Largest k with 2 P(Binomial(count, 1/2) < k) <= 1 - CONFIDENCE; 0 where there is none."""
    first = max(0, count // 2 - math.ceil(6 * math.sqrt(count)))  # What lies below has a probability of less than 1e-30.
    successes = np.arange(first + 1, count // 2 + 1)
    ratios = (count - successes + 1) / successes
    logarithm = math.lgamma(count + 1) - math.lgamma(first + 1) - math.lgamma(count - first + 1) - count * math.log(2)
    probability = math.exp(logarithm) * np.cumprod(np.concatenate([[1.0], ratios]))
    return first + int((2 * np.cumsum(probability) <= 1 - _CONFIDENCE).sum())
