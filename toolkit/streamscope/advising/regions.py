"""Regions: which engine wins over kernel length and number of kernels, on a device with given costs, as arrays to draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamscope.advising.break_even import BRANCHED, WORTH, branched_ns, chain_async_ns, chain_graph_ns, second_stream_pays
from streamscope.advising.device_costs import DeviceCosts

SHORTEST_US, LONGEST_US = 0.5, 100.0
LENGTHS = 72
"""Kernel lengths from the shortest to the longest, evenly spaced in their logarithm."""
CHAINS = tuple(sorted({round(10 ** (step / 18)) for step in range(3 * 18 + 1)}))
"""Numbers of kernels, 1 to 1,000."""
BRANCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Kernels in each of two branches."""


@dataclass(frozen=True)
class Regions:
    """Which engine wins where.

    Attributes
    ----------
    engines : tuple of str
        The engines that compete, the simplest first; the first is what the others are compared with.
    lengths_us : float64 array
        Kernel lengths, in µs: columns.
    counts : int64 array
        Numbers of kernels: rows.
    winner : int64 array, counts x lengths
        Index of the simplest engine that is within `WORTH` of the fastest.
    speedup : float64 array, counts x lengths
        Makespan under the first engine over that under the winner.
    dual_from_us : float64 array, counts
        From which length on a second stream pays with launches one by one, in µs; NaN where it never does. Empty where there is none.
    """

    engines: tuple[str, ...]
    lengths_us: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]
    winner: npt.NDArray[np.int64]
    speedup: npt.NDArray[np.float64]
    dual_from_us: npt.NDArray[np.float64]


def chain_regions(costs: DeviceCosts) -> Regions:
    """Return where a graph beats launches one by one, for kernels that each depend on the one before."""

    def times_ns(count: int, length_ns: float) -> tuple[float, ...]:
        return chain_async_ns(costs, count, length_ns), chain_graph_ns(costs, count, length_ns)

    return _regions(("async", "graph"), CHAINS, LENGTHS, times_ns, ())


def branch_regions(costs: DeviceCosts) -> Regions:
    """Return where a second stream, a graph, or both win, for two independent branches that leave each other room."""

    def times_ns(count: int, length_ns: float) -> tuple[float, ...]:
        return tuple(branched_ns(costs, engine, count, length_ns) for engine in BRANCHED)

    dual_from_us = [second_stream_pays(costs, count, in_graph=False).low_ns / 1e3 for count in BRANCHES]
    return _regions(BRANCHED, BRANCHES, LENGTHS // 2, times_ns, dual_from_us)


def _regions(
    engines: tuple[str, ...],
    counts: tuple[int, ...],
    columns: int,
    times_ns: Callable[[int, float], tuple[float, ...]],
    dual_from_us: Sequence[float],
) -> Regions:
    lengths_us = np.geomspace(SHORTEST_US, LONGEST_US, columns)
    times = np.array([[times_ns(count, length_us * 1e3) for length_us in lengths_us] for count in counts], np.float64)
    good = times <= times.min(axis=2, keepdims=True) * (1 + WORTH)
    winner = good.argmax(axis=2)
    speedup = times[:, :, 0] / np.take_along_axis(times, winner[:, :, None], axis=2)[:, :, 0]
    return Regions(engines, lengths_us, np.asarray(counts, np.int64), winner, speedup, np.asarray(dual_from_us, np.float64))
