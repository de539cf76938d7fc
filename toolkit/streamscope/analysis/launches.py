"""From the launch call on the host to the kernel on the device.

A launch call and its work on the device share a correlation. A CUDA graph's launch has one correlation for all its nodes. Metrics from
a call to *a* kernel then take the first node of the replay, kernel or copy, and each replay counts as one launch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamscope.analysis.intervals import Steps, count_steps
from streamscope.analysis.overlap import rows_by_stream
from streamscope.arrays import IntArray
from streamscope.trace.joins import CALL_KINDS, call_rows, correlated
from streamscope.trace.spans import DEVICE_KINDS, SpanKind, SpanTable


@dataclass(frozen=True)
class Launches:
    """Launch calls with the first thing that each put on the device, as equally long columns in the order of correlation.

    Attributes
    ----------
    call_start_ns, call_end_ns : int64 arrays
        The call on the host.
    device_start_ns : int64 array
        Start of the first span on the device.
    lane, operation, part : integer arrays
        Of that first span.
    """

    call_start_ns: IntArray
    call_end_ns: IntArray
    device_start_ns: IntArray
    lane: IntArray
    operation: IntArray
    part: IntArray

    @property
    def latency_ns(self) -> IntArray:
        """`launch_latency_ns` of the launches."""
        return self.device_start_ns - self.call_start_ns

    @property
    def queue_time_ns(self) -> IntArray:
        """`queue_time_ns` of the launches."""
        waits_ns = self.device_start_ns - self.call_end_ns
        return waits_ns[waits_ns > 0]

    def queue_length(self, chosen: npt.NDArray[np.bool_] | slice) -> Steps:
        """Return `queue_length` of some of the launches."""
        up_ns = self.call_start_ns[chosen]
        # Clocks are joined by calibration: a kernel that seems to start before its call leaves the queue at once, not before it entered.
        return count_steps(up_ns, np.maximum(self.device_start_ns[chosen], up_ns))


@dataclass(frozen=True)
class MissingRecords:
    """Halves without the other: a sign that records were lost.

    Attributes
    ----------
    calls : int
        Launch calls that put nothing on the device, as far as the trace knows.
    device : int
        Kernels and copies whose launch call is not in the trace.
    """

    calls: int
    device: int


def join_launches(spans: SpanTable, kinds: Iterable[SpanKind] | None = None) -> Launches:
    """Join each launch call with the first span that it put on the device; calls without one are left out.

    Parameters
    ----------
    spans : SpanTable
    kinds : iterable of SpanKind, optional
        Of which kinds that span is. By default a kernel or, for a graph, a kernel or a copy: a replay begins with its first node, whatever
        that is, while the launch of a copy is none of a kernel.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 7, 1),
    ...                       ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    >>> found = ss.analysis.join_launches(spans)
    >>> found.call_start_ns.tolist(), found.device_start_ns.tolist()
    ([0, 4], [5, 30])
    """
    calls, device = _call_rows(spans), _kernels_and_nodes(spans) if kinds is None else np.flatnonzero(spans.is_kind(kinds))
    first = correlated(spans, calls, device)  # The table is in the order of starts.
    calls, first = calls[first >= 0], first[first >= 0]
    of_device = (getattr(spans, name)[first] for name in ("start_ns", "lane", "operation", "part"))
    return Launches(spans.start_ns[calls], spans.end_ns[calls], *of_device)


def launch_latency_ns(spans: SpanTable) -> IntArray:
    """From the start of the launch call to the start of the kernel, for each launch; the metric is the median.

    Formula: kernel start - call start. Unit: ns. For a CUDA graph: to the first kernel or copy of the replay, one value a replay.
    It holds the waiting in the stream's queue too, so it grows where the host runs ahead. Source: NVIDIA's blog on Nsight Systems.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 7, 1),
    ...                       ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    >>> ss.analysis.launch_latency_ns(spans).tolist()  # 5 - 0 and 30 - 4
    [5, 26]
    """
    return join_launches(spans).latency_ns


def queue_time_ns(spans: SpanTable) -> IntArray:
    """From the end of the launch call to the start of the kernel, where that is positive; the metric is the median of those.

    Formula: kernel start - call end, values above 0 only. Unit: ns. For a CUDA graph: to the first kernel or copy of the replay.
    Source: Nsight Systems (cuda_kern_exec_trace).

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 7, 1),
    ...                       ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    >>> ss.analysis.queue_time_ns(spans).tolist()  # 5 - 3 and 30 - 7
    [2, 23]
    """
    return join_launches(spans).queue_time_ns


def api_time_ns(spans: SpanTable) -> int:
    """Time the host spends in launch calls.

    Formula: sum of the durations of launches (of kernels and copies) and of graph launches; events and waits do not count. Unit: ns.
    Source: Nsight Systems (API time).

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 7, 1),
    ...                       ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    >>> ss.analysis.api_time_ns(spans)  # two calls of 3 ns
    6
    """
    return int(call_times_ns(spans).sum())


def call_times_ns(spans: SpanTable) -> IntArray:
    """Duration of one launch call on the host (the table of engines has their sum); the metric is the median.

    Formula: call end - call start, of launches (of kernels, copies and sets) and of graph launches. Unit: ns.
    Source: Nsight Systems (API time).

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 9, 1))
    >>> ss.analysis.call_times_ns(spans).tolist()
    [3, 5]
    """
    return spans.duration_ns[spans.is_kind(CALL_KINDS)]


def queue_length(spans: SpanTable, lane: str | None = None) -> Steps:
    """Count the launches that have been called and have not begun to run, at each time.

    Formula: +1 at the start of the launch call, -1 at the start of the kernel or copy; a graph replay counts once, until its first node
    begins. Unit: 1. At about 1,024 the host blocks. Source: Holistic Trace Analysis (queue length).

    Parameters
    ----------
    spans : SpanTable
    lane : str, optional
        Only launches that went to this stream; None for all streams.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 7, 1),
    ...                       ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    >>> queue = ss.analysis.queue_length(spans)
    >>> list(zip(queue.time_ns.tolist(), queue.value.tolist()))
    [(0, 1), (4, 2), (5, 1), (30, 0)]
    """
    launches = join_launches(spans, DEVICE_KINDS)
    return launches.queue_length(slice(None) if lane is None else launches.lane == _lane_code(spans, lane))


def missing_records(spans: SpanTable) -> MissingRecords:
    """Count launch calls without anything on the device, and kernels and copies without a call.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("kernel", "b", "main", 5, 25, 1))
    >>> ss.analysis.missing_records(spans)
    MissingRecords(calls=1, device=1)
    """
    calls, device = _call_rows(spans), np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    return MissingRecords(
        calls=int((correlated(spans, calls, device) < 0).sum()),
        device=int((call_rows(spans, device) < 0).sum()),
    )


def incomplete_replays(spans: SpanTable) -> int:
    """Count the replays of CUDA graphs with fewer nodes recorded than other replays of the same graph: a sign that records were lost.

    Formula: replays (launch calls of graphs, by correlation) that share a node are of one graph; one is incomplete if it has fewer nodes
    than the graph has in all of them. Unit: 1. Replays whose nodes have no ids are taken as complete, and so is a graph's only replay.

    Examples
    --------
    >>> from streamscope.trace import SpanBuilder, SpanKind
    >>> builder = SpanBuilder(["host", "main"])
    >>> for replay, nodes in ((0, (7, 8, 9)), (1, (7, 8))):
    ...     builder.add(SpanKind.GRAPH_LAUNCH, "graph", "host", 100 * replay, 100 * replay + 5, correlation=replay)
    ...     for node in nodes:
    ...         start_ns = 100 * replay + 10 * node
    ...         builder.add(SpanKind.KERNEL, "a", "main", start_ns, start_ns + 5, correlation=replay, graph_node=node)
    >>> ss.analysis.incomplete_replays(builder.build())
    1
    """
    rows = np.flatnonzero(spans.is_kind(DEVICE_KINDS) & (spans.graph_node >= 0) & (spans.correlation >= 0))
    if not len(rows):
        return 0
    replay = np.unique(spans.correlation[rows], return_inverse=True)[1]
    node = np.unique(spans.graph_node[rows], return_inverse=True)[1]
    pairs = np.unique(np.stack([replay, node], axis=1), axis=0)
    graph = _graphs(*pairs.T)
    of_node = np.unique(np.stack([graph[pairs[:, 0]], pairs[:, 1]], axis=1), axis=0)
    in_all, in_replay = np.bincount(of_node[:, 0]), np.bincount(pairs[:, 0])
    return int((in_replay < in_all[graph]).sum())


def _graphs(replay: IntArray, node: IntArray) -> IntArray:
    """Return a number for the graph of each replay: replays are of one graph that have nodes in common, also by others in between."""
    from scipy.sparse import coo_array  # takes long to import
    from scipy.sparse.csgraph import connected_components

    first_node = replay.max() + 1
    size = first_node + node.max() + 1
    joined = coo_array((np.ones(len(node), bool), (replay, first_node + node)), (size, size))
    return np.asarray(connected_components(joined, directed=False)[1][:first_node], np.int64)


def _kernels_and_nodes(spans: SpanTable) -> IntArray:
    """Return the rows of kernels, and of the copies and sets of graph replays."""
    kernels, device = spans.kind == SpanKind.KERNEL, spans.is_kind(DEVICE_KINDS)
    others = np.flatnonzero(device & ~kernels)
    replays = np.flatnonzero(spans.kind == SpanKind.GRAPH_LAUNCH)
    kernels[others[correlated(spans, others, replays) >= 0]] = True
    return np.flatnonzero(kernels)


def _call_rows(spans: SpanTable) -> IntArray:
    """Return the rows of launch calls with a correlation, by correlation, one each."""
    rows = np.flatnonzero(spans.is_kind(CALL_KINDS) & (spans.correlation >= 0))
    rows = rows[np.argsort(spans.correlation[rows], kind="stable")]
    return rows[np.diff(spans.correlation[rows], prepend=-1) > 0]


def _lane_code(spans: SpanTable, lane: str) -> int:
    return spans.lanes.index(lane) if lane in spans.lanes else -1


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
