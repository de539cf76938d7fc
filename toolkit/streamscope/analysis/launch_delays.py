"""Which launches are not worth their call, which come late, and how long the host runs into a full queue."""

from __future__ import annotations

import numpy as np

from streamscope.analysis.launches import join_launches
from streamscope.analysis.overlap import rows_by_stream
from streamscope.arrays import IntArray
from streamscope.trace.joins import call_rows
from streamscope.trace.spans import DEVICE_KINDS, SpanKind, SpanTable

_LATE_ABOVE_NS = 100_000
"""From this queue time on, Holistic Trace Analysis calls the delay of a launch an outlier."""
_QUEUE_LIMIT = 1_024
"""So many launches of one stream may be under way; then the next call blocks."""


def short_kernels(spans: SpanTable) -> IntArray:
    """Return the kernels that took no longer than the host took to launch them; the metric is their number.

    Formula: kernel duration < duration of its launch call. Unit of the result: rows of the trace. Kernels of a graph's replay are left
    out, since one call launched them all, and so are those whose call is unknown. Source: Holistic Trace Analysis (short kernels).

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("kernel", "a", "main", 5, 7, 0))
    >>> ss.analysis.short_kernels(spans).tolist()
    [1]
    """
    kernels, calls = _kernels_with_calls(spans)
    duration_ns = spans.duration_ns
    return kernels[duration_ns[kernels] < duration_ns[calls]]


def late_kernels(spans: SpanTable, *, above_ns: int = _LATE_ABOVE_NS) -> IntArray:
    """Return the kernels that started long after their launch call had ended; the metric is their number.

    Formula: kernel start - call end > ``above_ns``. Unit of the result: rows of the trace. Kernels of a graph's replay are left out. They
    are late because others ran before them on their stream, or because of an event: the host is far ahead.
    Source: Holistic Trace Analysis (launch delay outliers).

    Parameters
    ----------
    spans : SpanTable
    above_ns : int

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3_000, 0), ("kernel", "a", "main", 105_000, 110_000, 0))
    >>> ss.analysis.late_kernels(spans).tolist()
    [1]
    """
    kernels, calls = _kernels_with_calls(spans)
    return kernels[spans.start_ns[kernels] - spans.end_ns[calls] > above_ns]


def launch_overhead_ns(spans: SpanTable) -> IntArray:
    """From the start of the launch call to the start of the kernel, where nothing else held the kernel up.

    Formula: kernel start - call start, of launches whose stream's previous kernel, copy or set had ended when the call began. Those whose
    kernel began more than 100 µs later after the call's end than the quickest of them are left out: their streams waited for an event,
    another stream or another GPU, so their queues were not empty. A kernel that clocks place before its call is not the quickest; its
    latency is negative. Unit: ns. For a CUDA graph: to the first kernel of the replay, if it begins with a kernel. Source: the launch
    edges of the critical path of Holistic Trace Analysis, and its limit for launch delays.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 7, 1),
    ...                       ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    >>> ss.analysis.launch_overhead_ns(spans).tolist()  # b was called while a was under way
    [5]
    """
    device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    call = call_rows(spans, device)
    # Rows are in the order of starts, so of a graph's replay its first is written last, and stays.
    first_ns = np.zeros(len(spans) + 1, np.int64)  # The last is of no call.
    first_ns[call[::-1]] = spans.start_ns[device[::-1]]
    kernel = (call >= 0) & (spans.kind[device] == SpanKind.KERNEL) & (spans.start_ns[device] == first_ns[call])
    free = kernel & (_before_ns(spans, device)[device] <= spans.start_ns[call])
    at_free = np.zeros(len(spans), bool)
    at_free[call[free]] = True
    launched = np.flatnonzero(at_free)
    latency_ns = first_ns[launched] - spans.start_ns[launched]
    # A kernel may begin within a long call. That is no time after it, and others are not late by its length.
    queued_ns = np.maximum(first_ns[launched] - spans.end_ns[launched], 0)
    quickest_ns = queued_ns[latency_ns >= 0].min(initial=np.iinfo(np.int64).max)
    at_once: IntArray = latency_ns[queued_ns - quickest_ns <= _LATE_ABOVE_NS]
    return at_once


def shortest_launch_ns(overhead_ns: IntArray) -> int:
    """Return the shortest of the values of `launch_overhead_ns`, in ns; 0 where there is none.

    Clocks are joined by calibration, so a kernel may seem to begin before its call. Such a launch says nothing of how long others take.
    """
    possible_ns = overhead_ns[overhead_ns >= 0]
    return int(possible_ns.min()) if len(possible_ns) else 0


def _before_ns(spans: SpanTable, device: IntArray) -> IntArray:
    """Return for each row of the device the latest end of earlier work on its stream, which may run several kernels at once."""
    before_ns = np.full(len(spans), np.iinfo(np.int64).min)
    for _, rows in rows_by_stream(spans, device):
        # What begins at the same time has no order.
        earlier = np.searchsorted(spans.start_ns[rows], spans.start_ns[rows])
        before_ns[rows] = np.append(before_ns[rows[0]], np.maximum.accumulate(spans.end_ns[rows]))[earlier]
    return before_ns


def queue_full_ns(spans: SpanTable, *, limit: int = _QUEUE_LIMIT) -> dict[str, int]:
    """Time with a full queue of launches, of each stream that had one: there the host's next call blocks. Keys: lane names.

    Formula: length of the time in which `queue_length` of the stream is at least ``limit``. Unit: ns. The limit of CUDA is about 1,024.
    Source: Holistic Trace Analysis (time blocked on a full queue).

    Parameters
    ----------
    spans : SpanTable
    limit : int

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 7, 1),
    ...                       ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    >>> ss.analysis.queue_full_ns(spans, limit=2)  # two are under way from 4 to 5
    {'main': 1}
    """
    launches = join_launches(spans, DEVICE_KINDS)
    stream = spans.stream_lanes[launches.lane]
    launched = np.bincount(stream, minlength=len(spans.lanes))
    full_ns = {}
    for lane in np.flatnonzero(launched >= limit):  # A queue never holds more than its stream's launches.
        full_ns[spans.lanes[lane]] = int(launches.queue_length(stream == lane).time_at_ns()[limit:].sum())
    return {name: time_ns for name, time_ns in full_ns.items() if time_ns}


def _kernels_with_calls(spans: SpanTable) -> tuple[IntArray, IntArray]:
    """Return the kernels that a launch of their own put on the device, and the rows of these launches."""
    kernels = np.flatnonzero(spans.kind == SpanKind.KERNEL)
    call = call_rows(spans, kernels)
    own = (call >= 0) & (spans.kind[call] == SpanKind.LAUNCH)
    return kernels[own], call[own]
