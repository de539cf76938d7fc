"""Why a stream, or the whole device, had nothing to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from streamscope.trace.joins import call_rows
from streamscope.trace.spans import DEVICE_KINDS, IntArray, SpanTable

KERNEL_WAIT_BELOW_NS = 30_000
"""Longest gap that is still called a kernel wait. Holistic Trace Analysis documents 30 ns but compares 30 µs; this is what it compares."""


class IdleCause(IntEnum):
    """What a gap was spent on."""

    HOST_WAIT = 0
    """What came next had not reached the device when the previous work ended: its call had not begun, or begun less than a launch's time
    before. So a program that is launch-bound waits for the host also where it launches one kernel while the one before is on its way."""
    KERNEL_WAIT = 1
    """It had reached the device and the gap is short: the device's own delay between two kernels."""
    OTHER = 2
    """It had reached the device (or its launch is unknown) and the gap is long: an event of another stream, a dependency."""


@dataclass(frozen=True)
class Gaps:
    """Stretches without work, as equally long columns.

    Attributes
    ----------
    lane : integer array
        Index into the trace's lanes; -1 for gaps of the device as a whole.
    start_ns, end_ns : int64 arrays
    cause : integer array
        `IdleCause` of each.
    """

    lane: IntArray
    start_ns: IntArray
    end_ns: IntArray
    cause: IntArray


@dataclass(frozen=True)
class IdleSplit:
    """Idle time by cause, in ns; `IdleCause` says what each means."""

    host_wait_ns: int
    kernel_wait_ns: int
    other_ns: int

    @property
    def total_ns(self) -> int:
        """Sum of the three, in ns."""
        return self.host_wait_ns + self.kernel_wait_ns + self.other_ns


def stream_gaps(spans: SpanTable, *, kernel_wait_below_ns: int = KERNEL_WAIT_BELOW_NS, launch_ns: int | None = None) -> Gaps:
    """Gaps between consecutive kernels and copies of each stream.

    Formula: gap = start - latest end of what came before on the stream, where positive. Cause: *host wait* where the start of the launch
    call + ``launch_ns`` is at or after that end; *kernel wait* where it is not and the gap is below ``kernel_wait_below_ns``; *other* the
    rest. Unit: ns. Time before a stream's first span and after its last is not a gap. Source: the idle time breakdown of Holistic Trace
    Analysis, which is that of ``launch_ns=0``: there a kernel whose call has just begun counts as launched in time.

    Parameters
    ----------
    spans : SpanTable
    kernel_wait_below_ns : int
    launch_ns : int, optional
        From the start of a call until its work is on the device, if nothing holds it up. By default the shortest such time in the trace.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 7, 1),
    ...                       ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    >>> gaps = ss.analysis.stream_gaps(spans)  # b was launched while a ran
    >>> [(int(start), int(end), ss.analysis.IdleCause(cause).name) for start, end, cause in zip(gaps.start_ns, gaps.end_ns, gaps.cause)]
    [(25, 30, 'KERNEL_WAIT')]
    """
    device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))  # The table is in the order of starts.
    work = _work(spans, device, launch_ns)
    order = np.argsort(work.lane, kind="stable")
    cuts = np.flatnonzero(np.diff(work.lane[order])) + 1
    return _joined([_gaps(work.rows(rows), None, kernel_wait_below_ns) for rows in np.split(order, cuts) if len(rows)])


def device_gaps(
    spans: SpanTable, *, kernel_wait_below_ns: int = KERNEL_WAIT_BELOW_NS, launch_ns: int | None = None, begin_ns: int = 0
) -> Gaps:
    """Gaps in which no stream runs anything, from the trace's zero to its last end.

    Formula: as for one stream, over the kernels and copies of all streams as if they were one. The time before the first is a gap that
    began at ``begin_ns`` (the host has not launched yet: host wait). The time after the last is *other* (the host notices that all is
    done). Unit: ns.

    Parameters
    ----------
    spans : SpanTable
    kernel_wait_below_ns : int
    launch_ns : int, optional
        As in `stream_gaps`.
    begin_ns : int
        Where the run begins: the trace's zero.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 7, 1),
    ...                       ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    >>> gaps = ss.analysis.device_gaps(spans)  # the host has launched nothing before 5 ns
    >>> [(int(start), int(end), ss.analysis.IdleCause(cause).name) for start, end, cause in zip(gaps.start_ns, gaps.end_ns, gaps.cause)]
    [(0, 5, 'HOST_WAIT'), (25, 30, 'KERNEL_WAIT')]
    """
    work = _work(spans, np.flatnonzero(spans.is_kind(DEVICE_KINDS)), launch_ns)
    between = _gaps(work, begin_ns, kernel_wait_below_ns)
    last_ns, end_ns = (int(table.end_ns.max(initial=begin_ns)) for table in (work, spans))
    tail = Gaps(*(np.full(int(end_ns > last_ns), value) for value in (-1, last_ns, end_ns, int(IdleCause.OTHER))))
    joined = _joined([between, tail])
    return Gaps(np.full_like(joined.lane, -1), joined.start_ns, joined.end_ns, joined.cause)


def idle_by_stream(
    spans: SpanTable, *, kernel_wait_below_ns: int = KERNEL_WAIT_BELOW_NS, launch_ns: int | None = None
) -> dict[str, IdleSplit]:
    """Idle time of each stream that ran anything, split as `stream_gaps` defines it. Unit: ns. Keys: lane names.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 7, 1),
    ...                       ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    >>> ss.analysis.idle_by_stream(spans)
    {'main': IdleSplit(host_wait_ns=0, kernel_wait_ns=5, other_ns=0)}
    """
    gaps = stream_gaps(spans, kernel_wait_below_ns=kernel_wait_below_ns, launch_ns=launch_ns)
    length = len(IdleCause)
    # Up to 2**53 ns in all, so sums of floats are exact.
    by_cause = np.bincount(gaps.lane * length + gaps.cause, gaps.end_ns - gaps.start_ns, len(spans.lanes) * length).astype(np.int64)
    present = np.bincount(spans.stream_lanes[spans.lane[spans.is_kind(DEVICE_KINDS)]], minlength=len(spans.lanes)) > 0
    return {spans.lanes[lane]: IdleSplit(*by_cause[lane * length :][:length].tolist()) for lane in np.flatnonzero(present)}


def device_idle(
    spans: SpanTable, *, kernel_wait_below_ns: int = KERNEL_WAIT_BELOW_NS, launch_ns: int | None = None, begin_ns: int = 0
) -> IdleSplit:
    """Time in which no stream runs anything, split as `device_gaps` defines it. Unit: ns.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 7, 1),
    ...                       ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    >>> ss.analysis.device_idle(spans)
    IdleSplit(host_wait_ns=5, kernel_wait_ns=5, other_ns=0)
    """
    gaps = device_gaps(spans, kernel_wait_below_ns=kernel_wait_below_ns, launch_ns=launch_ns, begin_ns=begin_ns)
    return _split(gaps, np.ones(len(gaps.lane), bool))


def host_wait_ns(spans: SpanTable) -> int:
    """Idle time of the device in which what comes next had not reached it when the last work ended (`IdleCause.HOST_WAIT`). Unit: ns."""
    return device_idle(spans).host_wait_ns


def kernel_wait_ns(spans: SpanTable) -> int:
    """Idle time of the device in gaps below 30 µs before what had reached it (`IdleCause.KERNEL_WAIT`). Unit: ns."""
    return device_idle(spans).kernel_wait_ns


def other_idle_ns(spans: SpanTable) -> int:
    """Idle time of the device in longer gaps, before work of an unknown launch, and at the end (`IdleCause.OTHER`). Unit: ns."""
    return device_idle(spans).other_ns


@dataclass(frozen=True)
class _Work:
    """Kernels and copies in the order of their starts, with the time at which each reached the device and whether that is known."""

    lane: IntArray
    start_ns: IntArray
    end_ns: IntArray
    arrival_ns: IntArray
    known: npt.NDArray[np.bool_]

    def rows(self, rows: IntArray) -> _Work:
        return _Work(self.lane[rows], self.start_ns[rows], self.end_ns[rows], self.arrival_ns[rows], self.known[rows])


def shortest_launch_ns(spans: SpanTable, device: IntArray, call: IntArray) -> int:
    """Return the shortest time from the start of a launch call to that of its kernel or copy, at least 0; 0 where no call is known.

    ``device``, ``call``: rows of kernels and copies, and of their calls, -1 where there is none, as `call_rows` returns them.
    """
    latency_ns = (spans.start_ns[device] - spans.start_ns[call])[call >= 0]
    return max(0, int(latency_ns.min())) if len(latency_ns) else 0


def _work(spans: SpanTable, device: IntArray, launch_ns: int | None) -> _Work:
    call = call_rows(spans, device)
    known = call >= 0
    shortest_ns = shortest_launch_ns(spans, device, call) if launch_ns is None else launch_ns
    arrival_ns = np.where(known, spans.start_ns[call] + shortest_ns, 0)
    return _Work(spans.stream_lanes[spans.lane[device]], spans.start_ns[device], spans.end_ns[device], arrival_ns, known)


def _gaps(work: _Work, begin_ns: int | None, kernel_wait_below_ns: int) -> Gaps:
    """Return the gaps of ``work`` taken as one stream; with ``begin_ns``, also the one from there to its first span."""
    start_ns = work.start_ns
    opening_ns = start_ns[:1] if begin_ns is None else np.full(min(1, len(start_ns)), begin_ns)
    before_ns = np.maximum.accumulate(np.concatenate([opening_ns, work.end_ns[:-1]]))
    host = work.known & (work.arrival_ns >= before_ns)
    short = work.known & (start_ns - before_ns < kernel_wait_below_ns)
    cause = np.where(host, IdleCause.HOST_WAIT, np.where(short, IdleCause.KERNEL_WAIT, IdleCause.OTHER))
    idle = start_ns > before_ns
    return Gaps(work.lane[idle], before_ns[idle], start_ns[idle], cause[idle])


def _joined(parts: list[Gaps]) -> Gaps:
    empty = np.zeros(0, np.int64)
    columns = ("lane", "start_ns", "end_ns", "cause")
    return Gaps(*(np.concatenate([empty, *(getattr(part, column) for part in parts)]) for column in columns))


def _split(gaps: Gaps, mask: IntArray) -> IdleSplit:
    length_ns = (gaps.end_ns - gaps.start_ns)[mask]
    return IdleSplit(*(int(length_ns[gaps.cause[mask] == cause].sum()) for cause in IdleCause))
