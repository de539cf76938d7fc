"""Cost of neighbours: how much kernels that run side by side slow each other, and the net gain of overlap."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamscope.analysis.gpus import busiest_gpu, of_busiest, several_gpus
from streamscope.analysis.matching import join, packed
from streamscope.analysis.overlap import concurrency, gpu_busy_ns
from streamscope.arrays import FloatArray, IntArray
from streamscope.trace.spans import Basis, SpanKind, SpanTable
from streamscope.trace.trace import Trace

_ALIKE_WITHIN = 0.1
"""Runs of one kernel alone tell its time alone where the middle half of them lies within this share of their median."""


@dataclass(frozen=True)
class Neighbours:
    """Result of `neighbours`.

    Attributes
    ----------
    row : int64 array
        The kernels that run beside another kernel for part of their time, as rows of the trace.
    beside_ns : int64 array
        For how long.
    duration_ns : int64 array
        How long each takes.
    alone_ns : float64 array
        How long each takes alone; NaN where that is not known.
    kernel_ns : int
        Sum of the durations of all kernels.
    busy_ns : int
        `gpu_busy_ns`.
    """

    row: IntArray
    beside_ns: IntArray
    duration_ns: IntArray
    alone_ns: FloatArray
    kernel_ns: int
    busy_ns: int

    @property
    def slowdown(self) -> FloatArray:
        """Duration over the time alone, of each: 1 is unhindered, 1.4 took 40 % longer. NaN where the time alone is not known, or 0."""
        found: FloatArray = np.divide(self.duration_ns, self.alone_ns, out=np.full(len(self.row), np.nan), where=self.alone_ns > 0)
        return found

    @property
    def known(self) -> int:
        """Of how many the time alone is known."""
        return int((~np.isnan(self.alone_ns)).sum())

    @property
    def gross_ns(self) -> int:
        """Gross gain of overlap: kernel time - GPU busy, in ns."""
        return self.kernel_ns - self.busy_ns

    @property
    def cost_ns(self) -> float | None:
        """Cost of neighbours: sum over `row` of duration - time alone, in ns; None where one is not known."""
        return float((self.duration_ns - self.alone_ns).sum()) if self.known == len(self.row) else None

    @property
    def net_ns(self) -> float | None:
        """Net gain of overlap: time of all kernels, each alone, - GPU busy, in ns; below 0 where it costs more than it saves."""
        return None if self.cost_ns is None else self.gross_ns - self.cost_ns


def neighbours(trace: Trace, alone: Trace | None = None) -> Neighbours:
    """Compare how long kernels take beside others with how long they take alone.

    Formula: slow-down = duration / duration alone; net gain of overlap = sum of durations alone - GPU busy, where a kernel that runs beside
    no other counts with its duration. Unit: ns. A kernel runs alone where no other kernel runs for any of its time; copies do not count.

    The time alone comes from ``alone`` if it is given: the same operation there, where it has no neighbour. Else it comes from the trace
    itself: the median over the runs of a kernel of the same name, symbol, blocks and threads that are alone, if the middle half of them
    lies within 10 % of it. It stays unknown where there is neither, and where the kernel's times are estimates: a kernel that was timed by
    itself says nothing of its neighbours. Nothing is guessed.

    Parameters
    ----------
    trace : Trace
    alone : Trace, optional
        Of the same program, without overlap: the *sync* engine's.

    Examples
    --------
    >>> from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
    >>> spans = SpanTable.of(("kernel", "a", "stream 7", 0, 10_000), ("kernel", "b", "stream 20", 10_000, 30_000),
    ...                       ("kernel", "a", "stream 7", 40_000, 52_000), ("kernel", "b", "stream 20", 40_000, 65_000))
    >>> trace = Trace(spans, TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200"), "kineto"))
    >>> found = ss.analysis.neighbours(trace)
    >>> found.slowdown.tolist()  # 12 for 10, and 25 for 20
    [1.2, 1.25]
    >>> found.gross_ns, found.cost_ns, found.net_ns
    (12000, 7000.0, 5000.0)
    """
    spans, gpu, own = trace.spans, busiest_gpu(trace), of_busiest(trace)
    if alone is not None and several_gpus(alone.spans) and gpu in alone.gpus:
        alone = alone.of_gpu(gpu)
    kernels = np.flatnonzero((spans.kind == SpanKind.KERNEL) & (spans.gpu == gpu))
    beside_ns = _beside_ns(own, spans.start_ns[kernels], spans.end_ns[kernels])
    lonely, rows = kernels[beside_ns == 0], kernels[beside_ns > 0]
    alone_ns, measured = np.full(len(rows), np.nan), spans.basis[rows] == Basis.MEASURED
    if measured.any():
        wanted = rows[measured]
        alone_ns[measured] = _from_itself(spans, lonely, wanted) if alone is None else _from_another(trace, alone, wanted)
    duration_ns = spans.duration_ns
    kernel_ns = int(duration_ns[kernels].sum())
    return Neighbours(rows, beside_ns[beside_ns > 0], duration_ns[rows], alone_ns, kernel_ns, gpu_busy_ns(own))


def net_overlap_ns(trace: Trace, alone: Trace | None = None) -> float | None:
    """Time that overlap saves in the end: that of all kernels one after the other, each alone, less GPU busy.

    Formula: `Neighbours.net_ns`. Unit: ns. None where no kernels run side by side, or where the time of one alone is not known.
    """
    found = neighbours(trace, alone)
    return found.net_ns if len(found.row) else None


def _beside_ns(spans: SpanTable, start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return for how long each kernel of one GPU runs while another stream runs one, too; ``spans`` are those of the GPU."""
    running = concurrency(spans)
    if not len(running.time_ns):
        return np.zeros(len(start_ns), np.int64)
    length_ns = np.where(running.value[:-1] > 1, np.diff(running.time_ns), 0)
    shared_ns = np.concatenate([[0], np.cumsum(length_ns)])

    def until(time_ns: IntArray) -> IntArray:
        """Shared time up to some times."""
        at = np.searchsorted(running.time_ns, time_ns, side="right") - 1
        inside = np.append(running.value[:-1] > 1, False)[at]
        found: IntArray = shared_ns[at] + np.where(inside, time_ns - running.time_ns[at], 0)
        return found

    # A kernel of no length is in no step.
    lasting = end_ns > start_ns
    found = np.zeros(len(start_ns), np.int64)
    found[lasting] = until(end_ns[lasting]) - until(start_ns[lasting])
    return found


def _from_itself(spans: SpanTable, lonely: IntArray, wanted: IntArray) -> FloatArray:
    """Return the median duration of the same kernel alone; NaN where there is none, or they differ too much."""
    rows = np.concatenate([lonely, wanted])
    names = ("name", "symbol", "blocks", "threads", "operation", "part")
    key = np.unique(packed(*(getattr(spans, name)[rows].astype(np.int64) for name in names)), return_inverse=True)[1]
    groups, of_lonely = int(key.max(initial=-1)) + 1, key[: len(lonely)]
    length_ns = spans.duration_ns[lonely].astype(np.float64)
    ordered = np.append(length_ns[np.lexsort((length_ns, of_lonely))], np.nan)
    size = np.bincount(of_lonely, minlength=groups)
    first = np.cumsum(size) - size

    def at(quarters: int) -> FloatArray:
        """Quantile of each group, the lower one of two."""
        found: FloatArray = ordered[first + np.maximum(size - 1, 0) * quarters // 4]
        return found

    alike = (size > 0) & (at(3) - at(1) <= _ALIKE_WITHIN * at(2))
    return np.where(alike, at(2), np.nan)[key[len(lonely) :]]


def _from_another(trace: Trace, alone: Trace, wanted: IntArray) -> FloatArray:
    """Return how long each wanted kernel takes in another trace of the same operations, where no other runs beside it; else NaN."""
    joined = join(trace, replace(alone, info=replace(alone.info, program=trace.info.program)))
    found = np.full(len(trace.spans), np.nan)
    if joined.by == "operation":
        ours, theirs = joined.row[joined.pairs].T
        lonely = _beside_ns(alone.spans, alone.spans.start_ns[theirs], alone.spans.end_ns[theirs]) == 0
        found[ours[lonely]] = alone.spans.duration_ns[theirs[lonely]]
    return found[wanted]
