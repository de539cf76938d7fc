"""Sets of time intervals and step functions: the arithmetic under every metric. Whole nanoseconds, so all sums are exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Intervals:
    """Disjoint intervals in order, none empty, no two touching.

    Attributes
    ----------
    start_ns, end_ns : int64 arrays
        Half-open: an interval holds its start and not its end.
    """

    start_ns: IntArray
    end_ns: IntArray

    @property
    def length_ns(self) -> int:
        """Sum of the lengths, in ns."""
        return int((self.end_ns - self.start_ns).sum())


@dataclass(frozen=True)
class Steps:
    """A step function of time: ``value[i]`` from ``time_ns[i]`` up to ``time_ns[i + 1]``; 0 before the first.

    Attributes
    ----------
    time_ns : int64 array
        Strictly increasing.
    value : int64 array
    """

    time_ns: IntArray
    value: IntArray

    def time_at_ns(self) -> IntArray:
        """Return how long each value held, between the first and the last step: int64 array, index = value, in ns."""
        return np.bincount(self.value[:-1], weights=np.diff(self.time_ns)).astype(np.int64)


def union(start_ns: IntArray, end_ns: IntArray) -> Intervals:
    """Return the union of half-open intervals given in any order; empty ones vanish, touching ones join."""
    kept = end_ns > start_ns
    start_ns, end_ns = start_ns[kept], end_ns[kept]
    if len(start_ns) == 0:
        return Intervals(start_ns, end_ns)
    order = np.argsort(start_ns, kind="stable")
    start_ns, reach_ns = start_ns[order], np.maximum.accumulate(end_ns[order])
    opens = np.concatenate([[True], start_ns[1:] > reach_ns[:-1]])
    closes = np.concatenate([opens[1:], [True]])
    return Intervals(start_ns[opens], reach_ns[closes])


def intersection_ns(first: Intervals, second: Intervals) -> int:
    """Return the length that two sets have in common, |A| + |B| - |A ∪ B|, in ns."""
    both = union(np.concatenate([first.start_ns, second.start_ns]), np.concatenate([first.end_ns, second.end_ns]))
    return first.length_ns + second.length_ns - both.length_ns


def count_steps(up_ns: IntArray, down_ns: IntArray) -> Steps:
    """Return the count that goes up by one at each time of ``up_ns`` and down by one at each of ``down_ns``."""
    # Stable sorts are quick on what is nearly sorted, as traces are; np.unique hashes, which is not.
    up_ns, down_ns = np.sort(up_ns, kind="stable"), np.sort(down_ns, kind="stable")
    time_ns = np.sort(np.concatenate([up_ns, down_ns]), kind="stable")
    time_ns = time_ns[np.diff(time_ns, prepend=time_ns[:1] - 1) > 0]
    return Steps(time_ns, np.searchsorted(up_ns, time_ns, side="right") - np.searchsorted(down_ns, time_ns, side="right"))
