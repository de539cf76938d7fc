"""How much of the time kernels and copies run, how much of it side by side, and how far both may be off."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from streamscope.analysis.gpus import of_busiest, of_one_gpu
from streamscope.analysis.intervals import Intervals, Steps, count_steps, intersection_ns, union
from streamscope.arrays import IntArray
from streamscope.trace.spans import DEVICE_KINDS, MEMORY_KINDS, SpanKind, SpanTable
from streamscope.trace.trace import Trace

ASIDE = frozenset({SpanKind.API, SpanKind.RANGE})
"""Host spans that name parts of a program, and neither launch nor wait: they may begin long before the first launch."""


@dataclass(frozen=True)
class StreamPair:
    """How two streams overlap; see `stream_overlap`.

    Attributes
    ----------
    first, second : str
        Names of the lanes.
    overlap_ns : int
    fraction : float
        0 to 1; 0 where one of the two runs nothing.
    """

    first: str
    second: str
    overlap_ns: int
    fraction: float


def occupied(spans: SpanTable, *kinds: SpanKind) -> Intervals:
    """Return the union of all spans of the given kinds."""
    chosen = spans.is_kind(kinds)
    return union(spans.start_ns[chosen], spans.end_ns[chosen])


def run_of(spans: SpanTable) -> SpanTable:
    """Return the spans of a program's run: all but ranges, and calls of CUDA that neither launch nor wait."""
    aside = spans.is_kind(ASIDE)
    return spans.select(~aside) if aside.any() else spans


def span_ns(spans: SpanTable) -> int:
    """From the first call of the program to the last end on the host or the device.

    Formula: latest end - earliest start, over launches, event calls, waits, host functions, and all that runs on the device. Other calls
    of CUDA (allocations, module loads) and named ranges do not count: they may begin long before the first launch. Unit: ns. 0 for an
    empty trace. The definition is ours: Holistic Trace Analysis and TraceLens count from the first to the last end on the device, so what
    the host does before and after is no idle time there.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 2, 4, 0), ("kernel", "a", "main", 5, 25, 0))
    >>> ss.analysis.span_ns(spans)
    23
    """
    spans = run_of(spans)
    return int(spans.end_ns.max() - spans.start_ns.min()) if len(spans) else 0


@of_one_gpu
def gpu_busy_ns(spans: SpanTable) -> int:
    """Time with at least one kernel running.

    Formula: length of the union of all kernels; copies do not count. Unit: ns.
    Source: Holistic Trace Analysis (temporal breakdown).

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 30), ("kernel", "b", "aux", 20, 60))
    >>> ss.analysis.gpu_busy_ns(spans)
    60
    """
    return occupied(spans, SpanKind.KERNEL).length_ns


@of_one_gpu
def copy_busy_ns(spans: SpanTable) -> int:
    """Time with at least one copy or memory set running.

    Formula: length of the union of all copies and sets. Unit: ns.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 30), ("copy", "x", "copies", 20, 60))
    >>> ss.analysis.copy_busy_ns(spans)
    40
    """
    return occupied(spans, *MEMORY_KINDS).length_ns


@of_one_gpu
def exposed_copy_ns(spans: SpanTable) -> int:
    """Time in which a copy or a memory set runs and no kernel does.

    Formula: |∪copies and sets| - |∪copies and sets ∩ ∪kernels|. Unit: ns.
    Source: the exposed communication of TraceLens and Holistic Trace Analysis, for copies.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 30), ("copy", "x", "copies", 20, 60))
    >>> ss.analysis.exposed_copy_ns(spans)
    30
    """
    copies, kernels = occupied(spans, *MEMORY_KINDS), occupied(spans, SpanKind.KERNEL)
    return copies.length_ns - intersection_ns(copies, kernels)


@of_one_gpu
def copy_compute_overlap(spans: SpanTable) -> float:
    """Share of the copying time that kernels hide.

    Formula: |∪copies ∩ ∪kernels| / |∪copies|. Unit: fraction, 0 to 1. Denominator: time with a copy running (0 if there is none).
    Memory sets count as copies. Source: Holistic Trace Analysis, communication-computation overlap, for copies.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 30), ("copy", "x", "copies", 20, 60))
    >>> ss.analysis.copy_compute_overlap(spans)
    0.25
    """
    copied_ns = copy_busy_ns(spans)
    return (copied_ns - exposed_copy_ns(spans)) / copied_ns if copied_ns else 0.0


@of_one_gpu
def exposed_host_ns(spans: SpanTable) -> int:
    """Time in which a host function of the program runs and neither a kernel nor a copy does.

    Formula: |∪host functions| - |∪host functions ∩ ∪(kernels and copies)|. Unit: ns. Memory sets count as copies.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("host", "read", "host", 0, 50), ("kernel", "a", "main", 30, 80))
    >>> ss.analysis.exposed_host_ns(spans)
    30
    """
    host, device = occupied(spans, SpanKind.HOST), occupied(spans, *DEVICE_KINDS)
    return host.length_ns - intersection_ns(host, device)


@of_one_gpu
def host_device_overlap(spans: SpanTable) -> float:
    """Share of the host functions' time in which the device works, too.

    Formula: |∪host functions ∩ ∪(kernels and copies)| / |∪host functions|. Unit: fraction, 0 to 1.
    Denominator: time with a host function of the program running (0 if there is none). Launches, events and waits of the host do not
    count.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("host", "read", "host", 0, 50), ("kernel", "a", "main", 30, 80))
    >>> ss.analysis.host_device_overlap(spans)  # 20 of 50 ns
    0.4
    """
    host_ns = occupied(spans, SpanKind.HOST).length_ns
    return (host_ns - exposed_host_ns(spans)) / host_ns if host_ns else 0.0


@of_one_gpu
def concurrency(spans: SpanTable, kinds: Iterable[SpanKind] = (SpanKind.KERNEL,)) -> Steps:
    """Count the kernels running at each time.

    A stream runs its kernels one after the other. Where times were derived or placed, and not read from a clock, kernels of one lane
    may seem to overlap. They are counted once: an error of half a microsecond must not look like a second stream. Kernels of one stream
    whose measured times overlap, as programmatic launches do, have lanes of their own, and count each.

    Parameters
    ----------
    spans : SpanTable
    kinds : iterable of SpanKind
        Kinds to count: kernels, copies, or both.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 30), ("kernel", "b", "aux", 20, 60))
    >>> running = ss.analysis.concurrency(spans)
    >>> list(zip(running.time_ns.tolist(), running.value.tolist()))
    [(0, 1), (20, 2), (30, 1), (60, 0)]
    """
    busy = busy_on_lanes(spans, kinds)
    return count_steps(busy.start_ns, busy.end_ns)


def busy_on_lanes(spans: SpanTable, kinds: Iterable[SpanKind]) -> Intervals:
    """Return when each lane is busy with some kinds, one lane after the other: intervals of one lane are disjoint."""
    busy = [union(spans.start_ns[rows], spans.end_ns[rows]) for _, rows in _rows_by(spans.lane, np.flatnonzero(spans.is_kind(kinds)))]
    none = np.zeros(0, np.int64)
    return Intervals(np.concatenate([none, *(one.start_ns for one in busy)]), np.concatenate([none, *(one.end_ns for one in busy)]))


def rows_by_stream(spans: SpanTable, rows: IntArray) -> list[tuple[int, IntArray]]:
    """Return the first lanes of the streams of some rows, each with its rows as they were ordered.

    A stream whose work overlaps has several lanes.
    """
    return _rows_by(spans.stream_lanes[spans.lane], rows)


def _rows_by(lane: IntArray, rows: IntArray) -> list[tuple[int, IntArray]]:
    ordered = rows[np.argsort(lane[rows], kind="stable")]
    cuts = np.flatnonzero(np.diff(lane[ordered])) + 1
    return [(int(lane[part[0]]), part) for part in np.split(ordered, cuts) if len(part)]


@of_one_gpu
def overlap_ns(spans: SpanTable) -> int:
    """Time with two or more kernels running.

    Formula: length of the time in which `concurrency` is at least 2. Unit: ns.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 30), ("kernel", "b", "aux", 20, 60))
    >>> ss.analysis.overlap_ns(spans)
    10
    """
    return int(concurrency(spans).time_at_ns()[2:].sum())


@of_one_gpu
def overlap_fraction(spans: SpanTable) -> float:
    """Share of the GPU-busy time in which two or more kernels run.

    Formula: time with two or more kernels running / GPU busy. Unit: fraction. Denominator: GPU busy (0 if it is 0).

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 30), ("kernel", "b", "aux", 20, 40))
    >>> ss.analysis.overlap_fraction(spans)  # 10 of 40 ns
    0.25
    """
    busy_ns = gpu_busy_ns(spans)
    return overlap_ns(spans) / busy_ns if busy_ns else 0.0


@of_one_gpu
def average_concurrency(spans: SpanTable) -> float | None:
    """Count the streams that run a kernel at once, on average over the time in which any does.

    Formula: sum over streams of the time with a kernel running / GPU busy. Unit: 1. Denominator: GPU busy. None where no kernel runs.
    Kernels of one stream that overlap, as programmatic launches do, count once.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 30), ("kernel", "b", "aux", 20, 40))
    >>> ss.analysis.average_concurrency(spans)  # 30 + 20 in 40 ns
    1.25
    """
    busy_ns = gpu_busy_ns(spans)
    streams = rows_by_stream(spans, np.flatnonzero(spans.kind == SpanKind.KERNEL))
    return sum(union(spans.start_ns[rows], spans.end_ns[rows]).length_ns for _, rows in streams) / busy_ns if busy_ns else None


def stream_overlap(spans: SpanTable, kinds: Iterable[SpanKind] = (SpanKind.KERNEL,)) -> tuple[StreamPair, ...]:
    """Overlap of each pair of streams of one GPU.

    Formula: |∪kernels of A ∩ ∪kernels of B| / min(|∪kernels of A|, |∪kernels of B|). Unit: fraction, 0 to 1.
    Denominator: the shorter of the two unions, so 1 means that the shorter one is hidden completely.

    Parameters
    ----------
    spans : SpanTable
    kinds : iterable of SpanKind
        Kinds that count as work: kernels, copies, or both. With copies, streams that carry nothing else are among the pairs.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 30), ("kernel", "b", "aux", 20, 40))
    >>> ss.analysis.stream_overlap(spans)  # 10 ns of the 20 on aux
    (StreamPair(first='main', second='aux', overlap_ns=10, fraction=0.5),)
    """
    lanes = rows_by_stream(spans, np.flatnonzero(spans.is_kind(kinds)))
    busy = [(lane, union(spans.start_ns[rows], spans.end_ns[rows])) for lane, rows in lanes]
    pairs = []
    for (first, ours), (second, theirs) in combinations(busy, 2):
        if spans.gpus[first] == spans.gpus[second]:
            both_ns, shorter_ns = intersection_ns(ours, theirs), min(ours.length_ns, theirs.length_ns)
            pairs.append(StreamPair(spans.lanes[first], spans.lanes[second], both_ns, both_ns / shorter_ns if shorter_ns else 0.0))
    return tuple(pairs)


def kernel_count(spans: SpanTable) -> int:
    """Count the kernels; a library call of several kernels that was recorded as one span counts once. Unit: 1.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 30), ("kernel", "b", "aux", 20, 60))
    >>> ss.analysis.kernel_count(spans)
    2
    """
    return int((spans.kind == SpanKind.KERNEL).sum())


def kernel_time_ns(spans: SpanTable) -> int:
    """Sum of the durations of all kernels, those side by side counted each. Unit: ns.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 30), ("kernel", "b", "aux", 20, 60))
    >>> ss.analysis.kernel_time_ns(spans)  # 30 + 40
    70
    """
    return int(spans.duration_ns[spans.kind == SpanKind.KERNEL].sum())


def busy_error_ns(trace: Trace) -> float | None:
    """How far GPU busy may be off.

    Formula: GPU busy * (sum of the errors of all kernels' durations) / (sum of the durations). The recorder says how far one may be off:
    by a time, and by a share of its duration (``kernel_error_ns`` and ``kernel_error_share`` of the trace's calibration). All errors are
    those of one calibration, so they do not average out. Unit: ns. None where the recorder says nothing.

    Examples
    --------
    >>> from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 1_000), ("kernel", "b", "main", 2_000, 3_000))
    >>> info = TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200"), calibration={"kernel_error_ns": 80.0})
    >>> ss.analysis.busy_error_ns(Trace(spans, info))
    160.0
    """
    error_ns, share = (float(trace.info.calibration.get(f"kernel_error_{what}", 0)) for what in ("ns", "share"))
    spans = of_busiest(trace)
    lengths_ns = spans.of_kind([SpanKind.KERNEL]).duration_ns
    if not (error_ns or share) or not lengths_ns.any():
        return None
    return float(gpu_busy_ns(spans) * (error_ns * len(lengths_ns) / lengths_ns.sum() + share))


def overlap_error(trace: Trace) -> float | None:
    """How far the overlap may be off.

    Formula: the recorder's bound (``overlap_error`` of the trace's calibration); 0 where all kernels are on one stream. Unit: fraction.
    None where the recorder says nothing.

    Examples
    --------
    >>> from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
    >>> spans = SpanTable.of(("kernel", "a", "main", 0, 1_000), ("kernel", "b", "aux", 0, 1_000))
    >>> info = TraceInfo("dual", "step", DeviceInfo("cuda", "NVIDIA H200"), calibration={"overlap_error": 0.1})
    >>> ss.analysis.overlap_error(Trace(spans, info))
    0.1
    """
    error = trace.info.calibration.get("overlap_error")
    if error is None:
        return None
    return float(error) if len(np.unique(of_busiest(trace).of_kind([SpanKind.KERNEL]).lane)) > 1 else 0.0
