"""Sets of time intervals, and counts that go up and down in time: the arithmetic under the metrics.

Times are whole nanoseconds, so all sums are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamscope.arrays import IntArray

UpAndDown = tuple[IntArray, IntArray, IntArray | int]
"""At which times a sum goes up, at which it goes down, and by how much: one number for all, or one for each time up and each down."""


@dataclass(frozen=True)
class Intervals:
    """Disjoint intervals in order, none empty, no two touching."""

    start_ns: IntArray
    end_ns: IntArray
    """int64: half-open: an interval holds its start and not its end."""

    @property
    def length_ns(self) -> int:
        """Sum of the lengths, in ns."""
        return int((self.end_ns - self.start_ns).sum())


@dataclass(frozen=True)
class Steps:
    """A step function of time: ``value[i]`` from ``time_ns[i]`` up to ``time_ns[i + 1]``; 0 before the first."""

    time_ns: IntArray
    """int64: strictly increasing."""
    value: IntArray
    """int64."""

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
    time_ns, (count,) = sums_over_time((up_ns, down_ns, 1))
    return Steps(time_ns, count)


def sums_over_time(*columns: UpAndDown) -> tuple[IntArray, list[IntArray]]:
    """Return the times, which increase, at which any of some sums may change, and each sum from there up to the next, all int64."""
    time_ns = np.concatenate([times for up_ns, down_ns, _ in columns for times in (up_ns, down_ns)])
    # A stable sort is quick on what is nearly sorted, as traces are; np.unique hashes, which is not.
    order = np.argsort(time_ns, kind="stable")
    time_ns = time_ns[order]
    last, first = np.flatnonzero(np.diff(time_ns, append=time_ns[-1:] + 1)), 0
    sums: list[IntArray] = []
    for up_ns, down_ns, weight in columns:
        middle, end = first + len(up_ns), first + len(up_ns) + len(down_ns)
        change = np.zeros(len(time_ns), np.int64)
        change[first:middle], change[middle:end] = weight, -weight
        sums.append(np.cumsum(change[order])[last])
        first = end
    return time_ns[last], sums
