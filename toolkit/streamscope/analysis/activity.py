"""Activity of the device over a run: concurrency, fullness, causes of idleness; the lane "at once" of a timeline."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from streamscope.analysis.gpus import of_one_gpu
from streamscope.analysis.idle import Gaps, device_gaps
from streamscope.analysis.intervals import Intervals, UpAndDown, sums_over_time
from streamscope.analysis.overlap import busy_on_lanes, occupied
from streamscope.arrays import FloatArray, IntArray
from streamscope.trace.spans import MEMORY_KINDS, SpanKind, SpanTable


class Occupation(IntEnum):
    """Activity in a stretch of a run."""

    RUNNING = 0
    """A kernel or a copy runs."""
    HOST_FUNCTION = 1
    """Nothing runs on the device; a host function of the program does."""
    HOST_WAIT = 2
    """Nothing runs; `IdleCause.HOST_WAIT`."""
    LAUNCH = 3
    """Nothing runs; `IdleCause.LAUNCH`."""
    KERNEL_WAIT = 4
    """Nothing runs; `IdleCause.KERNEL_WAIT`."""
    OTHER = 5
    """Nothing runs; `IdleCause.OTHER`."""


@dataclass(frozen=True)
class Activity:
    """A run in stretches that follow each other without gaps, as equally long columns.

    Attributes
    ----------
    start_ns, end_ns : int64 arrays
        ``end_ns[i] == start_ns[i + 1]``. Neighbours differ in at least one of the other columns.
    kernels, copies : int64 arrays
        Lanes that run a kernel, and lanes that run a copy: streams, and once more those whose own kernels overlap (`concurrency`).
    occupation : int64 array
        `Occupation` of each stretch.
    fullness : float64 array
        `fullness` of each stretch, 0 to 1; NaN where unknown.
    """

    start_ns: IntArray
    end_ns: IntArray
    kernels: IntArray
    copies: IntArray
    occupation: IntArray
    fullness: FloatArray

    def time_ns(self, chosen: npt.NDArray[np.bool_]) -> int:
        """Return how long the stretches take that a mask picks, in ns."""
        return int((self.end_ns - self.start_ns)[chosen].sum())


@of_one_gpu
def activity(spans: SpanTable, multiprocessors: int | None = None) -> Activity:
    """Return the device's activity over time, from the trace's zero (or its first kernel, if that is earlier) to its last end.

    Formula: `concurrency` of kernels and of copies, `fullness`, and where neither a kernel nor a copy runs, the cause by `device_gaps`;
    of that time, host functions of the program take what they cover. Units: ns, 1, fraction.

    Parameters
    ----------
    spans : SpanTable
    multiprocessors : int, optional
        How many the device has; None where that is unknown.

    Examples
    --------
    >>> from streamscope.trace import SpanBuilder, SpanKind
    >>> builder = SpanBuilder(["host", "main", "copy in"])
    >>> builder.add(SpanKind.LAUNCH, "a", "host", 0, 3, correlation=0)
    >>> builder.add(SpanKind.KERNEL, "a", "main", 5, 25, correlation=0, blocks=33)
    >>> builder.add(SpanKind.COPY, "x", "copy in", 20, 30)
    >>> found = ss.analysis.activity(builder.build(), multiprocessors=132)
    >>> list(zip(found.start_ns.tolist(), found.kernels.tolist(), found.copies.tolist(), found.fullness.tolist()))
    [(0, 0, 0, 0.0), (5, 1, 0, 0.25), (20, 1, 1, 0.25), (25, 0, 1, 0.0)]
    >>> ss.analysis.Occupation(found.occupation[0]).name
    'LAUNCH'
    """
    gaps, host_functions = device_gaps(spans), occupied(spans, SpanKind.HOST)
    # A cause divides a gap from the next one, and so does a kernel of no length.
    divided_ns = gaps.start_ns[1:][gaps.start_ns[1:] == gaps.end_ns[:-1]]
    marks_ns = np.append(divided_ns, [0, max(0, int(spans.end_ns.max(initial=0)))])
    copying = busy_on_lanes(spans, MEMORY_KINDS)
    others = [(each.start_ns, each.end_ns, 1) for each in (copying, host_functions, Intervals(marks_ns, marks_ns))]
    time_ns, (kernels, known, blocks, copies, host, _) = sums_over_time(*_filling(spans), *others)
    running = (kernels > 0) | (copies > 0)
    occupation = np.where(running, Occupation.RUNNING, Occupation.HOST_FUNCTION)
    idle = np.flatnonzero(~running & (host == 0))
    occupation[idle] = _causes_at(time_ns[idle], gaps)
    return _merged(time_ns, kernels, copies, occupation, _fullness(kernels, known, blocks, multiprocessors))


@of_one_gpu
def fullness(spans: SpanTable, multiprocessors: int | None) -> tuple[IntArray, FloatArray]:
    """Return how full the GPU is over time: the multiprocessors that have a block of a running kernel, at most, over all of them.

    Formula: min(1, blocks of the kernels that run / multiprocessors). Unit: fraction, 0 to 1. Denominator: the device's multiprocessors.
    An upper bound: blocks of a kernel end one by one, and two may share a multiprocessor. At 1, a second stream shares multiprocessors,
    and gains less the more threads they already hold. NaN where the number of multiprocessors, or a running kernel's blocks, are unknown
    (unless those that are known fill them all).

    Returns
    -------
    time_ns : int64 array
        Strictly increasing.
    share : float64 array
        From each time up to the next; 0 before the first.

    Examples
    --------
    >>> from streamscope.trace import SpanBuilder, SpanKind
    >>> builder = SpanBuilder(["main", "aux"])
    >>> builder.add(SpanKind.KERNEL, "a", "main", 0, 30, blocks=66)
    >>> builder.add(SpanKind.KERNEL, "b", "aux", 20, 60, blocks=33)
    >>> time_ns, share = ss.analysis.fullness(builder.build(), 132)
    >>> list(zip(time_ns.tolist(), share.tolist()))
    [(0, 0.5), (20, 0.75), (30, 0.25), (60, 0.0)]
    """
    time_ns, (kernels, known, blocks) = sums_over_time(*_filling(spans))
    return time_ns, _fullness(kernels, known, blocks, multiprocessors)


def _filling(spans: SpanTable) -> list[UpAndDown]:
    """Return the arguments of `sums_over_time`: streams with kernels, kernels whose blocks are known, and these blocks."""
    busy, (launched, blocks) = busy_on_lanes(spans, [SpanKind.KERNEL]), _one_at_a_time(spans)
    return [(each.start_ns, each.end_ns, weight) for each, weight in ((busy, 1), (launched, 1), (launched, blocks))]


def _fullness(kernels: IntArray, known: IntArray, blocks: IntArray, multiprocessors: int | None) -> FloatArray:
    """Return `fullness` where so many streams run kernels, so many of these have known blocks, and so many blocks."""
    if not multiprocessors:
        return np.where(kernels > 0, np.nan, 0.0)
    share = np.minimum(blocks / multiprocessors, 1.0)
    unknown = (known < kernels) & (share < 1)
    return np.where(kernels == 0, 0.0, np.where(unknown, np.nan, share))


def _one_at_a_time(spans: SpanTable) -> tuple[Intervals, IntArray]:
    """Return when each kernel whose blocks are known runs, and its blocks.

    A stream runs one kernel at a time, whatever estimated times say: a kernel ends where the next begins.
    """
    rows = np.flatnonzero(spans.kind == SpanKind.KERNEL)
    rows = rows[np.argsort(spans.lane[rows], kind="stable")]  # The table is in the order of starts.
    start_ns, end_ns, lane = spans.start_ns[rows], spans.end_ns[rows], spans.lane[rows]
    following_ns = np.where(lane[1:] == lane[:-1], start_ns[1:], end_ns[:-1])
    end_ns[:-1] = np.minimum(end_ns[:-1], following_ns)
    known = spans.blocks[rows] > 0
    return Intervals(start_ns[known], end_ns[known]), spans.blocks[rows[known]]


def _causes_at(time_ns: IntArray, gaps: Gaps) -> IntArray:
    """Return the cause of the gap at each time; times in none lie before the trace's zero."""
    row = np.searchsorted(gaps.start_ns, time_ns, side="right") - 1
    inside = (row >= 0) & (time_ns < np.append(gaps.end_ns, 0)[row])
    return np.where(inside, np.append(_OF_CAUSE[gaps.cause], Occupation.OTHER)[row], Occupation.OTHER)


_OF_CAUSE = np.array([Occupation.HOST_WAIT, Occupation.LAUNCH, Occupation.KERNEL_WAIT, Occupation.OTHER])
"""By `IdleCause`."""


def _merged(time_ns: IntArray, kernels: IntArray, copies: IntArray, occupation: IntArray, share: FloatArray) -> Activity:
    """Return the stretches between times; neighbours that are alike are one."""
    columns = (kernels[:-1], copies[:-1], occupation[:-1], share[:-1])
    opens = np.ones(len(time_ns) - 1, bool)
    opens[1:] = np.any([column[1:] != column[:-1] for column in (*columns[:3], np.nan_to_num(columns[3], nan=-1))], axis=0)
    rows = np.flatnonzero(opens)
    end_ns = np.append(time_ns[rows[1:]], time_ns[-1:]) if len(rows) else time_ns[:0]
    return Activity(time_ns[rows], end_ns, *(column[rows] for column in columns))  # type: ignore[arg-type]
