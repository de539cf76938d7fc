"""The critical path: the one chain of stretches, without a gap, that made a run as long as it was."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from streamscope.analysis.idle import shortest_launch_ns
from streamscope.analysis.intervals import IntArray
from streamscope.analysis.launches import call_rows
from streamscope.trace.spans import DEVICE_KINDS, HOST_KINDS, MEMORY_KINDS, SpanKind, SpanTable
from streamscope.trace.trace import Trace
from streamscope.words import listed, percent


class Bound(IntEnum):
    """What a stretch of the critical path is spent on."""

    HOST = 0
    """The host: a call, a host function, what lies between two calls, or noticing that the device is done."""
    LAUNCH = 1
    """From the start of a launch call until its work begins, where nothing but the launch held it up."""
    KERNEL = 2
    COPY = 3
    GAP = 4
    """From the end of one kernel or copy to the start of the next one, on the same stream or behind an event."""


BOUND_WORDS = {Bound.HOST: "host", Bound.LAUNCH: "launches", Bound.KERNEL: "kernels", Bound.COPY: "copies", Bound.GAP: "gaps"}


@dataclass(frozen=True)
class CriticalPath:
    """Stretches that follow each other from the first to the last end, as equally long columns.

    Attributes
    ----------
    start_ns, end_ns : int64 arrays
        ``end_ns[i] == start_ns[i + 1]``; none is empty.
    bound : int64 array
        `Bound` of each.
    span : int64 array
        The span that each belongs to, as a row of the trace; of a gap or a launch, the span that begins at its end.
    complete : bool
        Whether the trace says which streams waited for which, or has one only. Where it does not, the path follows streams and launches.
    """

    start_ns: IntArray
    end_ns: IntArray
    bound: IntArray
    span: IntArray
    complete: bool

    @property
    def length_ns(self) -> int:
        """From the start of its first stretch to the end of its last, in ns."""
        return int((self.end_ns - self.start_ns).sum())

    def time_ns(self, bound: Bound) -> int:
        """Return how much of it is spent on one thing, in ns."""
        return int((self.end_ns - self.start_ns)[self.bound == bound].sum())

    @property
    def words(self) -> str:
        """What it is bound by, the most first: ``"kernels 61 %, host 30 % and launches 9 %"``; empty where there is no path."""
        shares = sorted(((self.time_ns(bound), -bound) for bound in Bound), reverse=True)
        told = [f"{BOUND_WORDS[Bound(-bound)]} {percent(ns / self.length_ns)}" for ns, bound in shares if ns]
        return listed(told) + ("" if self.complete or not told else "; this trace does not tell event waits")


def critical_path(trace: Trace) -> CriticalPath:
    """Return what bounded a run, from its last end back to its first start.

    Formula: a kernel or copy begins after the last of these: the end of what came before it on its stream, the end of what its stream
    waited for, the start of its launch call and the shortest launch latency of the trace. The path goes on with that one. From a call, it
    goes to what the host did before; from a wait of the host, to the kernel or copy whose end it noticed: the last one within the wait;
    from a host function, to the launch that it waited for, if the host was there before. Unit: ns. The path
    stops at what began after nothing, or where clocks that disagree would lead it round in a ring; where that is not the run's first start,
    the path is shorter than the run. The definition is ours. Holistic Trace Analysis takes the longest path through the begins and ends of
    all spans; here the last cause is followed back, and waits are those of the engine's plan, not inferred.

    Parameters
    ----------
    trace : Trace
        Its `Trace.origins` say which launch waited for which.

    Examples
    --------
    >>> from streamscope.trace import DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo
    >>> builder = SpanBuilder(["host", "main"])
    >>> builder.add(SpanKind.LAUNCH, "a", "host", 0, 3_000, operation=0, correlation=0)
    >>> builder.add(SpanKind.KERNEL, "a", "main", 5_000, 25_000, operation=0, correlation=0)
    >>> builder.add(SpanKind.SYNC, "wait", "host", 3_000, 27_000)
    >>> path = ss.analysis.critical_path(Trace(builder.build(), TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200"))))
    >>> [(int(start), int(end), ss.analysis.Bound(bound).name) for start, end, bound in zip(path.start_ns, path.end_ns, path.bound)]
    [(0, 5000, 'LAUNCH'), (5000, 25000, 'KERNEL'), (25000, 27000, 'HOST')]
    """
    spans = trace.spans
    complete = trace.origins.complete or len(np.unique(spans.lane[spans.is_kind(DEVICE_KINDS)])) <= 1
    work = np.flatnonzero(spans.kind != SpanKind.GRAPH)
    if not len(work):
        none = np.zeros(0, np.int64)
        return CriticalPath(none, none, none, none, complete)
    before = _Before.of(trace)
    last = int(work[np.flatnonzero(spans.end_ns[work] == spans.end_ns[work].max())[-1]])
    rows = _followed(before.row, last)
    return _stretches(spans, before, rows, complete=complete)


@dataclass(frozen=True)
class _Before:
    """For each span, what it began after.

    Attributes
    ----------
    row : int64 array
        The row of that span, -1 for none.
    leave_ns, arrive_ns : int64 arrays
        When the path leaves the span, and when it arrives at that one.
    bound : int64 array
        What the time between the two is spent on.
    """

    row: IntArray
    leave_ns: IntArray
    arrive_ns: IntArray
    bound: IntArray

    @classmethod
    def of(cls, trace: Trace) -> _Before:
        spans = trace.spans
        found = cls(
            np.full(len(spans), -1), spans.start_ns.copy(), spans.start_ns.copy(), np.full(len(spans), int(Bound.HOST), np.int64)
        )  # fmt: skip
        waited = _last_awaited(trace)
        found.follow_host(spans, waited)
        found.follow_device(spans, waited)
        return found

    def follow_host(self, spans: SpanTable, waited: IntArray) -> None:
        """Say what host spans follow: the one before on the thread; a wait, the device; a host function, the launch that it waited for."""
        host = np.flatnonzero(spans.is_kind(HOST_KINDS))
        self._take(host, (earlier := _before_on_lane(spans, host)), np.where(earlier >= 0, spans.end_ns[earlier], spans.start_ns[host]))
        device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
        device = device[np.argsort(spans.end_ns[device], kind="stable")]
        syncs = np.flatnonzero(spans.kind == SpanKind.SYNC)
        at = np.searchsorted(spans.end_ns[device], spans.end_ns[syncs], side="right") - 1
        noticed = device[at] if len(device) else at
        ends = (at >= 0) & (spans.end_ns[noticed] > spans.start_ns[syncs]) if len(device) else np.zeros(len(syncs), bool)
        self._take(syncs[ends], noticed[ends], spans.end_ns[noticed[ends]], leave_ns=spans.end_ns[noticed[ends]])
        functions = np.flatnonzero((spans.kind == SpanKind.HOST) & (waited >= 0))
        before = self.row[functions]
        # The wait itself stands before the function: it was held up if the launch ended after the wait began.
        came_ns = np.where(before >= 0, np.where(spans.kind[before] == SpanKind.SYNC, spans.start_ns[before], spans.end_ns[before]), 0)
        held = functions[spans.end_ns[waited[functions]] > came_ns]
        self._take(held, waited[held], spans.end_ns[waited[held]])

    def follow_device(self, spans: SpanTable, waited: IntArray) -> None:
        """Say what kernels and copies follow: the call, the stream's last, or what it waited for; whichever made it ready last."""
        device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
        call = call_rows(spans, device)
        launch_ns = shortest_launch_ns(spans, device, call)
        ready_ns = np.full(len(device), np.iinfo(np.int64).min)
        for earlier, gap in ((call, Bound.LAUNCH), (_before_on_lane(spans, device), Bound.GAP), (waited[device], Bound.GAP)):
            arrive_ns = spans.start_ns[earlier] if gap is Bound.LAUNCH else spans.end_ns[earlier]
            when_ns = arrive_ns + launch_ns if gap is Bound.LAUNCH else arrive_ns
            later = (earlier >= 0) & (when_ns >= ready_ns)
            ready_ns[later] = when_ns[later]
            self._take(device[later], earlier[later], arrive_ns[later], gap)

    def _take(
        self, rows: IntArray, earlier: IntArray, arrive_ns: IntArray, bound: Bound = Bound.HOST, leave_ns: IntArray | None = None
    ) -> None:
        self.row[rows], self.arrive_ns[rows], self.bound[rows] = earlier, arrive_ns, bound
        if leave_ns is not None:
            self.leave_ns[rows] = leave_ns


def _before_on_lane(spans: SpanTable, rows: IntArray) -> IntArray:
    """Return for each row the one before it among these rows on its lane, -1 for none."""
    order = np.lexsort((spans.end_ns[rows], spans.start_ns[rows], spans.lane[rows]))
    ordered = rows[order]
    before = np.concatenate([[-1], ordered[:-1]])[: len(rows)]
    before[np.diff(spans.lane[ordered], prepend=-1) != 0] = -1
    found = np.empty(len(rows), np.int64)
    found[order] = before
    return found


def _last_awaited(trace: Trace) -> IntArray:
    """Return for each span the one that it waited for and that ended last, -1 for none."""
    earlier, later = trace.origins.wait_rows(trace.spans)
    order = np.argsort(trace.spans.end_ns[earlier], kind="stable")
    found = np.full(len(trace.spans), -1)
    found[later[order]] = earlier[order]
    return found


def _followed(before: IntArray, last: int) -> npt.NDArray[np.int64]:
    """Follow what came before from the last row back; a ring, which clocks that disagree can make, ends it."""
    chain, seen, row = [], set[int](), last
    earlier = before.tolist()
    while row >= 0 and row not in seen:
        chain.append(row)
        seen.add(row)
        row = earlier[row]
    return np.array(chain)


def _stretches(spans: SpanTable, before: _Before, rows: npt.NDArray[np.int64], *, complete: bool) -> CriticalPath:
    """Return the stretches in and between the spans of the path; ``rows`` runs from its end to its start."""
    of_kind = np.full(max(SpanKind) + 1, int(Bound.HOST))
    of_kind[[SpanKind.KERNEL, *MEMORY_KINDS]] = Bound.KERNEL, *[Bound.COPY] * len(MEMORY_KINDS)
    # Times at which the path passes, backwards: it leaves a span, arrives at the next one, and so on.
    passes_ns = np.concatenate([[spans.end_ns[rows[0]]], np.stack([before.leave_ns[rows], before.arrive_ns[rows]], axis=1).ravel()])
    passes_ns[-1] = passes_ns[-2]
    passes_ns = np.minimum.accumulate(passes_ns)
    bound = np.stack([of_kind[spans.kind[rows]], before.bound[rows]], axis=1).ravel()
    # What lies between two calls belongs to the second.
    kept = np.flatnonzero(passes_ns[:-1] > passes_ns[1:])[::-1]
    return CriticalPath(passes_ns[1:][kept], passes_ns[:-1][kept], bound[kept], np.repeat(rows, 2)[kept], complete)
