"""Why a stream, or the whole device, had nothing to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from streamscope.analysis.gpus import of_one_gpu
from streamscope.analysis.launches import launch_overhead_ns, shortest_launch_ns
from streamscope.arrays import IntArray
from streamscope.trace.joins import call_rows
from streamscope.trace.spans import DEVICE_KINDS, SpanTable

KERNEL_WAIT_BELOW_NS = 30_000
"""Longest gap that is still called a kernel wait. Holistic Trace Analysis documents 30 ns but compares 30 µs, as here."""


class IdleCause(IntEnum):
    """Causes of idle time. A gap between two kernels or copies is divided in this order."""

    HOST_WAIT = 0
    """The launch call of the next work had not begun."""
    LAUNCH = 1
    """That call had begun, and its work was on the way: at most as long as the quickest launch into an empty queue of the trace."""
    KERNEL_WAIT = 2
    """The rest, where the call began before the gap did and the gap is short: the device's own delay between two kernels."""
    OTHER = 3
    """The rest of all others, and gaps before work of an unknown launch: an event, another stream, another GPU."""


@dataclass(frozen=True)
class Gaps:
    """Stretches without work, as equally long columns.

    Attributes
    ----------
    lane : integer array
        Index into the trace's lanes; -1 for gaps of the device as a whole.
    start_ns, end_ns : int64 arrays
    cause : integer array
        `IdleCause` of each. A gap of several causes is several rows, one after the other.
    """

    lane: IntArray
    start_ns: IntArray
    end_ns: IntArray
    cause: IntArray


@dataclass(frozen=True)
class IdleSplit:
    """Idle time by cause, in ns; `IdleCause` defines them."""

    host_wait_ns: int
    launch_ns: int
    kernel_wait_ns: int
    other_ns: int

    @property
    def total_ns(self) -> int:
        """Sum of the four, in ns."""
        return self.host_wait_ns + self.launch_ns + self.kernel_wait_ns + self.other_ns


def stream_gaps(spans: SpanTable, *, kernel_wait_below_ns: int = KERNEL_WAIT_BELOW_NS, launch_ns: int | None = None) -> Gaps:
    """Gaps between consecutive kernels and copies of each stream, divided by cause.

    Formula: gap = start - latest end of what came before on the stream, where positive. It is *host wait* until the call that launched
    what comes next began. Then *launch*, until ``launch_ns`` after the start of that call. The rest is *kernel wait* where the call began
    no later than the gap and the gap is below ``kernel_wait_below_ns``, and else *other*. A gap before work of an unknown launch is
    *other*. Of several that begin at once, the call that began first counts. Unit: ns. Time before a stream's first span and after its
    last is not a gap.

    ``launch_ns=0`` gives the idle time breakdown of Holistic Trace Analysis, which divides no gap: all of it is *host wait* where the
    call began after the gap did, else *kernel wait* where it is short, else *other*.

    Parameters
    ----------
    spans : SpanTable
    kernel_wait_below_ns : int
    launch_ns : int, optional
        From the start of a call until its work is on the device, if nothing holds it up. By default the shortest of
        `launch_overhead_ns`, of those that are not negative.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 7, 1),
    ...                       ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    >>> gaps = ss.analysis.stream_gaps(spans)  # b was launched while a ran
    >>> [(int(start), int(end), ss.analysis.IdleCause(cause).name) for start, end, cause in zip(gaps.start_ns, gaps.end_ns, gaps.cause)]
    [(25, 30, 'KERNEL_WAIT')]
    """
    work, causes = _work(spans), _Causes.of(spans, kernel_wait_below_ns, launch_ns)
    order = np.argsort(work.lane, kind="stable")  # Of a stream, they stay in the order of starts.
    cuts = np.flatnonzero(np.diff(work.lane[order])) + 1
    return _joined([causes.of_gaps(work.rows(rows), None) for rows in np.split(order, cuts) if len(rows)])


@of_one_gpu
def device_gaps(
    spans: SpanTable, *, kernel_wait_below_ns: int = KERNEL_WAIT_BELOW_NS, launch_ns: int | None = None, begin_ns: int = 0
) -> Gaps:
    """Gaps in which no stream runs anything, from the run's begin to its last end, divided by cause.

    Formula: as for one stream, over the kernels and copies of all streams as if they were one. The time before the first of them is a gap
    that began at ``begin_ns``: host wait until the call of the first, and so on. The time after the last is *other* (the host notices
    that all is done). Unit: ns.

    Parameters
    ----------
    spans : SpanTable
    kernel_wait_below_ns : int
    launch_ns : int, optional
        As in `stream_gaps`.
    begin_ns : int
        Where the run begins, by default at the trace's zero. `summary` takes the start of the first call.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("launch", "b", "host", 4, 7, 1),
    ...                       ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 30, 50, 1))
    >>> gaps = ss.analysis.device_gaps(spans)  # a is on its way until 5
    >>> [(int(start), int(end), ss.analysis.IdleCause(cause).name) for start, end, cause in zip(gaps.start_ns, gaps.end_ns, gaps.cause)]
    [(0, 5, 'LAUNCH'), (25, 30, 'KERNEL_WAIT')]
    """
    work = _work(spans)
    between = _Causes.of(spans, kernel_wait_below_ns, launch_ns).of_gaps(work, begin_ns)
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
    {'main': IdleSplit(host_wait_ns=0, launch_ns=0, kernel_wait_ns=5, other_ns=0)}
    """
    gaps = stream_gaps(spans, kernel_wait_below_ns=kernel_wait_below_ns, launch_ns=launch_ns)
    length = len(IdleCause)
    # Up to 2**53 ns in all, so sums of floats are exact.
    by_cause = np.bincount(gaps.lane * length + gaps.cause, gaps.end_ns - gaps.start_ns, len(spans.lanes) * length).astype(np.int64)
    present = np.bincount(spans.stream_lanes[spans.lane[spans.is_kind(DEVICE_KINDS)]], minlength=len(spans.lanes)) > 0
    return {spans.lanes[lane]: IdleSplit(*by_cause[lane * length :][:length].tolist()) for lane in np.flatnonzero(present)}


@of_one_gpu
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
    IdleSplit(host_wait_ns=0, launch_ns=5, kernel_wait_ns=5, other_ns=0)
    """
    gaps = device_gaps(spans, kernel_wait_below_ns=kernel_wait_below_ns, launch_ns=launch_ns, begin_ns=begin_ns)
    length_ns = gaps.end_ns - gaps.start_ns
    return IdleSplit(*(int(length_ns[gaps.cause == cause].sum()) for cause in IdleCause))


def host_wait_ns(spans: SpanTable) -> int:
    """Idle time of the device before the launch call of the next work began (`IdleCause.HOST_WAIT`). Unit: ns."""
    return device_idle(spans).host_wait_ns


def launch_wait_ns(spans: SpanTable) -> int:
    """Idle time of the device in which the next work was on its way from the host (`IdleCause.LAUNCH`). Unit: ns."""
    return device_idle(spans).launch_ns


def kernel_wait_ns(spans: SpanTable) -> int:
    """Idle time of the device in gaps below 30 µs before work that was launched already (`IdleCause.KERNEL_WAIT`). Unit: ns."""
    return device_idle(spans).kernel_wait_ns


def other_idle_ns(spans: SpanTable) -> int:
    """Idle time of the device with all launched: waits for events, other streams or GPUs, and the end (`IdleCause.OTHER`). Unit: ns."""
    return device_idle(spans).other_ns


@dataclass(frozen=True)
class _Work:
    """Kernels and copies in the order of their starts, with the start of the call of each and whether that is known."""

    lane: IntArray
    start_ns: IntArray
    end_ns: IntArray
    call_ns: IntArray
    known: npt.NDArray[np.bool_]

    def rows(self, rows: IntArray) -> _Work:
        return _Work(self.lane[rows], self.start_ns[rows], self.end_ns[rows], self.call_ns[rows], self.known[rows])

    def joined(self) -> _Work:
        """Return one row for all that begins at once: it ends with the last of them, and its call is the first that is known."""
        rows = np.flatnonzero(np.diff(self.start_ns, prepend=self.start_ns[:1] - 1))
        call_ns = np.minimum.reduceat(np.where(self.known, self.call_ns, np.iinfo(np.int64).max), rows)
        known = np.logical_or.reduceat(self.known, rows)
        return _Work(self.lane[rows], self.start_ns[rows], np.maximum.reduceat(self.end_ns, rows), np.where(known, call_ns, 0), known)


def _work(spans: SpanTable) -> _Work:
    device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    call = call_rows(spans, device)
    return _Work(spans.stream_lanes[spans.lane[device]], spans.start_ns[device], spans.end_ns[device], spans.start_ns[call], call >= 0)


@dataclass(frozen=True)
class _Causes:
    """How gaps are divided: which are short, how long a launch takes, and whether they are left whole, as in Holistic Trace Analysis."""

    short_below_ns: int
    launch_ns: int
    whole: bool

    @classmethod
    def of(cls, spans: SpanTable, short_below_ns: int, launch_ns: int | None) -> _Causes:
        return cls(short_below_ns, shortest_launch_ns(launch_overhead_ns(spans)) if launch_ns is None else launch_ns, whole=launch_ns == 0)

    def of_gaps(self, work: _Work, begin_ns: int | None) -> Gaps:
        """Return the gaps of ``work`` taken as one stream; with ``begin_ns``, also the one from there to its first span."""
        work = work.joined()
        opening_ns = work.start_ns[:1] if begin_ns is None else np.full(min(1, len(work.start_ns)), begin_ns)
        before_ns = np.maximum.accumulate(np.concatenate([opening_ns, work.end_ns[:-1]]))
        idle = work.start_ns > before_ns
        return (self._whole if self.whole else self._divided)(work.rows(np.flatnonzero(idle)), before_ns[idle])

    def _divided(self, work: _Work, begin_ns: IntArray) -> Gaps:
        """Return the gaps before ``work``, each in up to three parts."""
        end_ns = work.start_ns
        called_ns, arrived_ns = (
            np.where(work.known, np.clip(work.call_ns + later_ns, begin_ns, end_ns), begin_ns) for later_ns in (0, self.launch_ns)
        )
        edges_ns = np.stack([begin_ns, called_ns, arrived_ns, end_ns], axis=1)
        rest = self._rest(work, begin_ns)
        cause = np.stack([np.full_like(rest, IdleCause.HOST_WAIT), np.full_like(rest, IdleCause.LAUNCH), rest], axis=1).ravel()
        start_ns, stop_ns = edges_ns[:, :-1].ravel(), edges_ns[:, 1:].ravel()
        parts = stop_ns > start_ns
        return Gaps(np.repeat(work.lane, 3)[parts], start_ns[parts], stop_ns[parts], cause[parts])

    def _whole(self, work: _Work, begin_ns: IntArray) -> Gaps:
        late = work.known & (work.call_ns > begin_ns)
        return Gaps(work.lane, begin_ns, work.start_ns, np.where(late, IdleCause.HOST_WAIT, self._rest(work, begin_ns)))

    def _rest(self, work: _Work, begin_ns: IntArray) -> IntArray:
        """Return why work that has been launched does not run."""
        queued = work.known & (work.call_ns <= begin_ns)
        return np.where(queued & (work.start_ns - begin_ns < self.short_below_ns), IdleCause.KERNEL_WAIT, IdleCause.OTHER)


def _joined(parts: list[Gaps]) -> Gaps:
    empty = np.zeros(0, np.int64)
    columns = ("lane", "start_ns", "end_ns", "cause")
    return Gaps(*(np.concatenate([empty, *(getattr(part, column) for part in parts)]) for column in columns))
