"""What the device does at each time of a run: how much runs at once, how full it is, and why it idles. What a timeline's lane shows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.analysis.idle import Gaps, device_gaps
from streamscope.analysis.overlap import IntArray, Steps, concurrency, occupied
from streamscope.trace.spans import SpanKind, SpanTable

FloatArray = npt.NDArray[np.floating[Any]]


class Occupation(IntEnum):
    """What a stretch of a run is spent on."""

    RUNNING = 0
    """A kernel or a copy runs."""
    HOST_FUNCTION = 1
    """Nothing runs on the device; a host function of the program does."""
    HOST_WAIT = 2
    """Nothing runs; `IdleCause.HOST_WAIT`."""
    KERNEL_WAIT = 3
    """Nothing runs; `IdleCause.KERNEL_WAIT`."""
    OTHER = 4
    """Nothing runs; `IdleCause.OTHER`."""


@dataclass(frozen=True)
class Activity:
    """A run in stretches that follow each other without gaps, as equally long columns.

    Attributes
    ----------
    start_ns, end_ns : int64 arrays
        ``end_ns[i] == start_ns[i + 1]``. Neighbours differ in at least one of the other columns.
    kernels, copies : int64 arrays
        Streams that run a kernel, and streams that run a copy. Their sum is the number of streams that overlap.
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


def activity(spans: SpanTable, multiprocessors: int | None = None) -> Activity:
    """Say what the device does at each time, from the trace's zero (or its first kernel, if that is earlier) to its last end.

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
    'HOST_WAIT'
    """
    kernels, copies = concurrency(spans), concurrency(spans, [SpanKind.COPY])
    gaps, host = device_gaps(spans), occupied(spans, SpanKind.HOST)
    blocks = _BlocksRunning.of(spans)
    begin_ns = min(0, *(int(steps.time_ns[0]) for steps in (kernels, copies) if len(steps.time_ns)), 0)
    end_ns = int(spans.end_ns.max(initial=begin_ns))
    edges = (kernels.time_ns, copies.time_ns, gaps.start_ns, gaps.end_ns, host.start_ns, host.end_ns, blocks.blocks.time_ns)
    edges_ns = np.sort(np.concatenate([[begin_ns, end_ns], *edges]), kind="stable")
    edges_ns = edges_ns[(edges_ns >= begin_ns) & (edges_ns <= end_ns) & (np.diff(edges_ns, prepend=begin_ns - 1) > 0)]
    at_ns, until_ns = edges_ns[:-1], edges_ns[1:]
    running, copying = _value_at(kernels, at_ns), _value_at(copies, at_ns)
    found = Activity(
        at_ns,
        until_ns,
        running,
        copying,
        np.where(running + copying > 0, Occupation.RUNNING, _idle_at(at_ns, gaps, _inside(at_ns, host.start_ns, host.end_ns))),
        blocks.fullness_at(at_ns, running, multiprocessors),
    )
    return _merged(found)


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
    kernels, blocks = concurrency(spans), _BlocksRunning.of(spans)
    time_ns = np.sort(np.concatenate([kernels.time_ns, blocks.blocks.time_ns]), kind="stable")
    time_ns = time_ns[np.diff(time_ns, prepend=time_ns[:1] - 1) > 0]
    return time_ns, blocks.fullness_at(time_ns, _value_at(kernels, time_ns), multiprocessors)


@dataclass(frozen=True)
class _BlocksRunning:
    """Blocks of the kernels that run, and how many of these kernels are known by their blocks."""

    blocks: Steps
    known: Steps

    @classmethod
    def of(cls, spans: SpanTable) -> _BlocksRunning:
        """Count over all streams. A stream runs one kernel at a time, whatever estimated times say: a kernel ends where the next begins."""
        kernels = spans.select(spans.kind == SpanKind.KERNEL)
        order = np.lexsort((kernels.start_ns, kernels.lane))
        start_ns, end_ns, lane = kernels.start_ns[order], kernels.end_ns[order].copy(), kernels.lane[order]
        same = lane[1:] == lane[:-1]
        end_ns[:-1][same] = np.minimum(end_ns[:-1][same], start_ns[1:][same])
        blocks = kernels.blocks[order]
        return cls(_summed(start_ns, end_ns, blocks), _summed(start_ns, end_ns, (blocks > 0).astype(np.int64)))

    def fullness_at(self, time_ns: IntArray, running: IntArray, multiprocessors: int | None) -> FloatArray:
        if not multiprocessors:
            return np.where(running > 0, np.nan, 0.0)
        share = np.minimum(_value_at(self.blocks, time_ns) / multiprocessors, 1.0)
        unknown = (_value_at(self.known, time_ns) < running) & (share < 1)
        return np.where(running == 0, 0.0, np.where(unknown, np.nan, share))


def _summed(start_ns: IntArray, end_ns: IntArray, weight: IntArray) -> Steps:
    """Return the sum of the weights of what runs, at each time."""
    time_ns = np.concatenate([start_ns, end_ns])
    order = np.argsort(time_ns, kind="stable")
    time_ns, total = time_ns[order], np.cumsum(np.concatenate([weight, -weight])[order])
    last = np.diff(time_ns, append=time_ns[-1:] + 1) > 0
    return Steps(time_ns[last], total[last])


def _value_at(steps: Steps, time_ns: IntArray) -> IntArray:
    row = np.searchsorted(steps.time_ns, time_ns, side="right")
    return np.concatenate([[0], steps.value])[row]


def _inside(time_ns: IntArray, start_ns: IntArray, end_ns: IntArray) -> npt.NDArray[np.bool_]:
    """Tell of each time whether one of the disjoint intervals holds it."""
    row = np.searchsorted(start_ns, time_ns, side="right") - 1
    return (row >= 0) & (time_ns < np.concatenate([end_ns, [0]])[row])


_OF_CAUSE = np.array([Occupation.HOST_WAIT, Occupation.KERNEL_WAIT, Occupation.OTHER])
"""By `IdleCause`."""


def _idle_at(time_ns: IntArray, gaps: Gaps, host: npt.NDArray[np.bool_]) -> IntArray:
    row = np.searchsorted(gaps.start_ns, time_ns, side="right") - 1
    cause = np.concatenate([_OF_CAUSE[gaps.cause], [Occupation.OTHER]])
    return np.where(host, Occupation.HOST_FUNCTION, np.where(_inside(time_ns, gaps.start_ns, gaps.end_ns), cause[row], Occupation.OTHER))


def _merged(found: Activity) -> Activity:
    """Join neighbours that are alike."""
    columns = (found.kernels, found.copies, found.occupation, np.nan_to_num(found.fullness, nan=-1))
    opens = np.ones(len(found.start_ns), bool)
    opens[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    closes = np.append(opens[1:], True)[: len(opens)]
    return Activity(
        found.start_ns[opens],
        found.end_ns[closes],
        found.kernels[opens],
        found.copies[opens],
        found.occupation[opens],
        found.fullness[opens],
    )
