"""How much of the time kernels and copies run, and how much of it side by side."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from streamscope.analysis.intervals import Intervals, Steps, count_steps, intersection_ns, union
from streamscope.trace.spans import SpanKind, SpanTable


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
    chosen = np.isin(spans.kind, kinds)
    return union(spans.start_ns[chosen], spans.end_ns[chosen])


def gpu_busy_ns(spans: SpanTable) -> int:
    """Time with at least one kernel running.

    Formula: length of the union of all kernels; copies do not count. Unit: ns.
    Source: Holistic Trace Analysis (temporal breakdown).
    """
    return occupied(spans, SpanKind.KERNEL).length_ns


def copy_busy_ns(spans: SpanTable) -> int:
    """Time with at least one copy between host and device running.

    Formula: length of the union of all copies. Unit: ns.
    """
    return occupied(spans, SpanKind.COPY).length_ns


def exposed_copy_ns(spans: SpanTable) -> int:
    """Time in which a copy runs and no kernel does.

    Formula: |∪copies| - |∪copies ∩ ∪kernels|. Unit: ns.
    Source: the exposed communication of TraceLens and Holistic Trace Analysis, for copies.
    """
    copies, kernels = occupied(spans, SpanKind.COPY), occupied(spans, SpanKind.KERNEL)
    return copies.length_ns - intersection_ns(copies, kernels)


def copy_compute_overlap(spans: SpanTable) -> float:
    """Share of the copying time that kernels hide.

    Formula: |∪copies ∩ ∪kernels| / |∪copies|. Unit: fraction, 0 to 1. Denominator: time with a copy running (0 if there is none).
    Source: Holistic Trace Analysis, communication-computation overlap, for copies.
    """
    copied_ns = copy_busy_ns(spans)
    return (copied_ns - exposed_copy_ns(spans)) / copied_ns if copied_ns else 0.0


def exposed_host_ns(spans: SpanTable) -> int:
    """Time in which a host function of the program runs and neither a kernel nor a copy does.

    Formula: |∪host functions| - |∪host functions ∩ ∪(kernels and copies)|. Unit: ns.
    """
    host, device = occupied(spans, SpanKind.HOST), occupied(spans, SpanKind.KERNEL, SpanKind.COPY)
    return host.length_ns - intersection_ns(host, device)


def concurrency(spans: SpanTable) -> Steps:
    """Count the kernels running at each time.

    A stream runs its kernels one after the other. Where times were derived or placed, and not read from a clock, kernels of one stream
    may seem to overlap. They are counted once: an error of half a microsecond must not look like a second stream.
    """
    kernels = spans.of_kind([SpanKind.KERNEL])
    busy = [_on_lane(kernels, lane) for lane in np.unique(kernels.lane)]
    none = np.zeros(0, np.int64)
    return count_steps(np.concatenate([none, *(lane.start_ns for lane in busy)]), np.concatenate([none, *(lane.end_ns for lane in busy)]))


def overlap_ns(spans: SpanTable) -> int:
    """Time with two or more kernels running.

    Formula: length of the time in which `concurrency` is at least 2. Unit: ns.
    """
    return int(concurrency(spans).time_at_ns()[2:].sum())


def overlap_fraction(spans: SpanTable) -> float:
    """Share of the GPU-busy time in which two or more kernels run.

    Formula: time with two or more kernels running / GPU busy. Unit: fraction. Denominator: GPU busy (0 if it is 0).
    """
    busy_ns = gpu_busy_ns(spans)
    return overlap_ns(spans) / busy_ns if busy_ns else 0.0


def stream_overlap(spans: SpanTable) -> tuple[StreamPair, ...]:
    """Overlap of each pair of streams.

    Formula: |∪kernels of A ∩ ∪kernels of B| / min(|∪kernels of A|, |∪kernels of B|). Unit: fraction, 0 to 1.
    Denominator: the shorter of the two unions, so 1 means that the shorter one is hidden completely.
    """
    kernels = spans.of_kind([SpanKind.KERNEL])
    busy = {int(lane): _on_lane(kernels, lane) for lane in np.unique(kernels.lane)}
    pairs = []
    for first, second in combinations(busy, 2):
        common_ns = intersection_ns(busy[first], busy[second])
        shorter_ns = min(busy[first].length_ns, busy[second].length_ns)
        fraction = common_ns / shorter_ns if shorter_ns else 0.0
        pairs.append(StreamPair(spans.lanes[first], spans.lanes[second], common_ns, fraction))
    return tuple(pairs)


def kernel_count(spans: SpanTable) -> int:
    """Count the kernels; a library call of several kernels that was recorded as one span counts once. Unit: 1."""
    return int((spans.kind == SpanKind.KERNEL).sum())


def kernel_time_ns(spans: SpanTable) -> int:
    """Sum of the durations of all kernels, those side by side counted each. Unit: ns."""
    return int(spans.duration_ns[spans.kind == SpanKind.KERNEL].sum())


def _on_lane(spans: SpanTable, lane: int) -> Intervals:
    mask = spans.lane == lane
    return union(spans.start_ns[mask], spans.end_ns[mask])
