"""Which launches are not worth their call, which come late, and how long the host runs into a full queue."""

from __future__ import annotations

import numpy as np

from streamscope.analysis.launches import join_launches
from streamscope.analysis.overlap import rows_by_stream
from streamscope.trace.joins import call_rows
from streamscope.trace.spans import DEVICE_KINDS, IntArray, SpanKind, SpanTable

LATE_ABOVE_NS = 100_000
"""From this queue time on, Holistic Trace Analysis calls the delay of a launch an outlier."""
QUEUE_LIMIT = 1_024
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


def late_kernels(spans: SpanTable, *, above_ns: int = LATE_ABOVE_NS) -> IntArray:
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
    another stream or another GPU, so their queues were not empty. Unit: ns. For a CUDA graph: to the first kernel of the replay, if it
    begins with a kernel. Source: the launch edges of the critical path of Holistic Trace Analysis, and its limit for launch delays.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 7, 1),
    ...                       ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    >>> ss.analysis.launch_overhead_ns(spans).tolist()  # b was called while a was under way
    [5]
    """
    device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    by_stream = [rows for _, rows in rows_by_stream(spans, device)]
    # A stream may be busy with several, so the latest end of all before counts.
    before_ns = np.full(len(spans), np.iinfo(np.int64).min)
    for rows in by_stream:
        before_ns[rows[1:]] = np.maximum.accumulate(spans.end_ns[rows])[:-1]
    call = call_rows(spans, device)
    launched, first = np.unique(call, return_index=True)  # Of a graph's replay, what begins first.
    launched, first = launched[launched >= 0], device[first[launched >= 0]]
    free = (spans.kind[first] == SpanKind.KERNEL) & (before_ns[first] <= spans.start_ns[launched])
    launched, first = launched[free], first[free]
    queued_ns = spans.start_ns[first] - spans.end_ns[launched]
    at_once = queued_ns - queued_ns.min(initial=np.iinfo(np.int64).max) <= LATE_ABOVE_NS
    latency_ns: IntArray = (spans.start_ns[first] - spans.start_ns[launched])[at_once]
    return latency_ns


def queue_full_ns(spans: SpanTable, *, limit: int = QUEUE_LIMIT) -> dict[str, int]:
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
