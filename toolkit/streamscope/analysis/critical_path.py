"""The critical path: the one chain of stretches, without a gap, that made a run as long as it was."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from streamscope.analysis.gpus import collective_times
from streamscope.analysis.launches import launch_overhead_ns, shortest_launch_ns
from streamscope.analysis.overlap import ASIDE, run_of, span_ns
from streamscope.arrays import IntArray
from streamscope.trace.joins import blocking_copies, call_rows
from streamscope.trace.spans import DEVICE_KINDS, HOST_KINDS, MEMORY_KINDS, SpanKind, SpanTable
from streamscope.trace.trace import Trace
from streamscope.words import listed, percent


class Bound(IntEnum):
    """Bound of a stretch of the critical path."""

    HOST = 0
    """The host: a call, a host function, time between two calls, or noticing that the device is done."""
    LAUNCH = 1
    """From the start of a launch call until its work begins, where nothing but the launch held it up."""
    KERNEL = 2
    COPY = 3
    GAP = 4
    """From the end of one kernel or copy to the start of the next one, on the same stream or behind an event."""


_WORTH_SAYING = 0.005
"""A smaller share of the run that is not explained is not told."""
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
    whole_ns : int
        `span_ns` of the run.
    """

    start_ns: IntArray
    end_ns: IntArray
    bound: IntArray
    span: IntArray
    complete: bool
    whole_ns: int = 0

    @property
    def length_ns(self) -> int:
        """From the start of its first stretch to the end of its last, in ns."""
        return int((self.end_ns - self.start_ns).sum())

    @property
    def unexplained_ns(self) -> int:
        """Time of the run before the path begins, in ns: more than 0 where the path stops at a span without a predecessor."""
        return self.whole_ns - self.length_ns

    def time_ns(self, bound: Bound) -> int:
        """Return how much of it is spent on one thing, in ns."""
        return int((self.end_ns - self.start_ns)[self.bound == bound].sum())

    @property
    def words(self) -> str:
        """Its bounds, the longest first: ``"kernels 61 %, host 30 % and launches 9 %"``; empty where there is no path."""
        shares = sorted(((self.time_ns(bound), -bound) for bound in Bound), reverse=True)
        told = [f"{BOUND_WORDS[Bound(-bound)]} {percent(ns / self.length_ns)}" for ns, bound in shares if ns]
        notes = ["" if self.complete else "; this trace does not tell event waits"]
        if self.whole_ns and self.unexplained_ns / self.whole_ns >= _WORTH_SAYING:
            notes.append(f"; what came before it, {percent(self.unexplained_ns / self.whole_ns)} of the run, nothing in the trace explains")
        return listed(told) + "".join(notes) if told else ""


def critical_path(trace: Trace) -> CriticalPath:
    """Return the bounds of a run, from its last end back to its first start.

    Formula: a kernel or copy begins after the last of these: the end of what came before it on its stream, the end of what its stream
    waited for, the start of its launch call and the shortest latency of a launch into an empty queue. The path goes on with that one. From
    a call, it goes to the call before on its thread, or to the last call of another thread if that ended later and did not wait. From a
    wait of the host, it goes to the kernel or copy whose end the host noticed: the last one within the wait, on its stream if that is
    named. From a blocking copy, it goes to that copy; from a host function, to the launch that it waited for, if the host was there
    before. From a part of a collective that waited for other GPUs, it goes to the part that began last. Unit: ns.

    Ranges, and calls of CUDA that neither launch nor wait, are part of the time between two calls. The path stops at a span that began
    after nothing, or where clocks that disagree would lead it round in a ring. If that is later than the run's first start, the path is
    shorter than the run. `CriticalPath.unexplained_ns` is the rest: both add up to `span_ns`. The definition is ours. Holistic Trace
    Analysis takes the longest path through the begins and ends of all spans. Here the last cause is followed back, and waits are those of
    the engine's plan or of the recording, not inferred.

    Parameters
    ----------
    trace : Trace
        Its `Trace.origins` say which launch waited for which.

    Examples
    --------
    >>> from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3_000, 0), ("kernel", "a", "main", 5_000, 25_000, 0),
    ...                      ("sync", "wait", "host", 3_000, 27_000))
    >>> path = ss.analysis.critical_path(Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200"))))
    >>> [(int(start), int(end), ss.analysis.Bound(bound).name) for start, end, bound in zip(path.start_ns, path.end_ns, path.bound)]
    [(0, 5000, 'LAUNCH'), (5000, 25000, 'KERNEL'), (25000, 27000, 'HOST')]
    """
    spans, kept, before = predecessors(trace)
    complete = trace.origins.complete or len(np.unique(spans.stream_lanes[spans.lane[spans.is_kind(DEVICE_KINDS)]])) <= 1
    work = np.flatnonzero(spans.kind != SpanKind.GRAPH)
    if not len(work):
        none = np.zeros(0, np.int64)
        return CriticalPath(none, none, none, none, complete)
    before.follow_collectives(spans, *_held_up(trace, kept))
    last = int(work[np.flatnonzero(spans.end_ns[work] == spans.end_ns[work].max())[-1]])
    path = stretches(spans.kind, spans.end_ns, before, followed(before.row, last), complete=complete)
    return replace(path, span=kept[path.span], whole_ns=span_ns(spans.select(work)))


def predecessors(trace: Trace) -> tuple[SpanTable, IntArray, Predecessors]:
    """Return the spans of a run, their rows in the trace, and the predecessor of each, but for what a collective waits for."""
    spans, kept = _with_blocking_copies(run_of(trace.spans), np.flatnonzero(~trace.spans.is_kind(ASIDE)))
    return spans, kept, Predecessors.of(spans, _last_awaited(trace, kept))


@dataclass(frozen=True)
class Predecessors:
    """For each span, its predecessor."""

    row: IntArray
    """int64: the row of that span, -1 for none."""
    leave_ns: IntArray
    arrive_ns: IntArray
    """int64: when the path leaves the span, and when it arrives at that one."""
    bound: IntArray
    """int64: bound of the time between the two."""

    @classmethod
    def of(cls, spans: SpanTable, waited: IntArray) -> Predecessors:
        """Find them; ``waited`` has the row that each span waited for and that ended last, -1 for none."""
        found = cls(
            np.full(len(spans), -1), spans.start_ns.copy(), spans.start_ns.copy(), np.full(len(spans), int(Bound.HOST), np.int64)
        )  # fmt: skip
        found.follow_host(spans, waited)
        found.follow_device(spans, waited)
        return found

    def follow_collectives(self, spans: SpanTable, held_up: IntArray, by: IntArray) -> None:
        """Lead the path from parts of collectives that waited to the part that began last: what they did until then was waiting."""
        began_ns = np.minimum(spans.start_ns[by], spans.end_ns[held_up])
        self._take(held_up, by, began_ns, Bound.GAP, leave_ns=began_ns)

    def follow_host(self, spans: SpanTable, waited: IntArray) -> None:
        """Set the predecessors of host spans: the one before on the thread; of a wait, the device; of a host function, its launch."""
        host = np.flatnonzero(spans.is_kind(HOST_KINDS))
        earlier = _handed_over(spans, host, _before_on_lane(spans, host))
        self._take(host, earlier, np.where(earlier >= 0, spans.end_ns[earlier], spans.start_ns[host]))
        waits, noticed = _noticed(spans)
        self._take(waits, noticed, spans.end_ns[noticed], leave_ns=spans.end_ns[noticed])
        functions = np.flatnonzero((spans.kind == SpanKind.HOST) & (waited >= 0))
        before = self.row[functions]
        # The wait itself stands before the function: it was held up if the launch ended after the wait began.
        came_ns = np.where(before >= 0, np.where(spans.kind[before] == SpanKind.SYNC, spans.start_ns[before], spans.end_ns[before]), 0)
        held = functions[spans.end_ns[waited[functions]] > came_ns]
        self._take(held, waited[held], spans.end_ns[waited[held]])

    def follow_device(self, spans: SpanTable, waited: IntArray) -> None:
        """Set the predecessors of kernels and copies: the call, the stream's last work, or the awaited event; whichever came last."""
        device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
        call = call_rows(spans, device)
        launch_ns = shortest_launch_ns(launch_overhead_ns(spans))
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
    """Return for each row the one before it among these rows on its thread or stream, -1 for none."""
    lane = spans.stream_lanes[spans.lane]
    order = np.lexsort((spans.end_ns[rows], spans.start_ns[rows], lane[rows]))
    ordered = rows[order]
    before = np.concatenate([[-1], ordered[:-1]])[: len(rows)]
    before[np.diff(lane[ordered], prepend=-1) != 0] = -1
    found = np.empty(len(rows), np.int64)
    found[order] = before
    return found


def _handed_over(spans: SpanTable, host: IntArray, before: IntArray) -> IntArray:
    """Return the predecessors of host spans: the one before on their thread, or a later end on another thread that is no wait."""
    if len(np.unique(spans.lane[host])) < 2:
        return before
    calls = host[spans.kind[host] != SpanKind.SYNC]
    calls = calls[np.argsort(spans.end_ns[calls], kind="stable")]
    other = np.append(calls, -1)[np.searchsorted(spans.end_ns[calls], spans.start_ns[host], side="right") - 1]
    other[other == host] = -1  # A call of no length ends when it begins.
    later = (other >= 0) & ((before < 0) | (spans.end_ns[other] > spans.end_ns[before]))
    return np.where(later, other, before)


def _noticed(spans: SpanTable) -> tuple[IntArray, IntArray]:
    """Return the calls of the host that waited for the device, and the kernel or copy whose end each noticed."""
    device, names = np.flatnonzero(spans.is_kind(DEVICE_KINDS)), np.array([*spans.names, ""], object)
    device = device[np.argsort(spans.end_ns[device], kind="stable")]
    syncs = np.flatnonzero(spans.kind == SpanKind.SYNC)
    waits, noticed = [], []
    for name in np.unique(spans.name[syncs]).tolist():
        of_name = syncs[spans.name[syncs] == name]
        stream = next((lane for lane, text in enumerate(spans.lanes) if str(names[name]).endswith(f" {text}")), None)
        ended = device if stream is None else device[spans.stream_lanes[spans.lane[device]] == stream]
        at = np.searchsorted(spans.end_ns[ended], spans.end_ns[of_name], side="right") - 1
        within = at >= 0
        within[within] = spans.end_ns[ended[at[within]]] > spans.start_ns[of_name[within]]
        waits.append(of_name[within])
        noticed.append(ended[at[within]])
    empty = np.zeros(0, np.int64)
    return np.concatenate([empty, *waits]), np.concatenate([empty, *noticed])


def _with_blocking_copies(spans: SpanTable, kept: IntArray) -> tuple[SpanTable, IntArray]:
    """Divide each call that returned after its own copy had ended into a launch and a wait.

    ``kept`` are rows of the trace; those of the new table are returned with it. Calls of our own programs are named after operations, and
    do not block.
    """
    copies = np.flatnonzero(spans.is_kind(MEMORY_KINDS))
    call = call_rows(spans, copies)
    blocks = blocking_copies(spans, copies, call)
    call, copies = call[blocks], copies[blocks]
    if not len(call):
        return spans, kept
    rows, added = np.concatenate([np.arange(len(spans)), call]), np.arange(len(spans), len(spans) + len(call))
    columns = {name: getattr(spans, name)[rows] for name in ("kind", "start_ns", "end_ns")}
    within_ns = np.clip(spans.start_ns[copies], spans.start_ns[call], spans.end_ns[call])
    columns["kind"][added], columns["start_ns"][added], columns["end_ns"][call] = SpanKind.SYNC, within_ns, within_ns
    order = np.argsort(columns["start_ns"], kind="stable")
    return replace(spans.select(rows[order]), **{name: values[order] for name, values in columns.items()}), kept[rows[order]]


def _last_awaited(trace: Trace, kept: IntArray) -> IntArray:
    """Return for each span of the run the one that it waited for and that ended last, -1 for none."""
    earlier, later = trace.origins.wait_rows(trace.spans)
    order = np.argsort(trace.spans.end_ns[earlier], kind="stable")
    of_trace = np.full(len(trace.spans), -1)
    of_trace[later[order]] = earlier[order]
    at = np.full(len(trace.spans) + 1, -1)
    at[kept[::-1]] = np.arange(len(kept))[::-1]  # Of a call that was divided, the first part.
    found: IntArray = at[of_trace[kept]]
    return found


def _held_up(trace: Trace, kept: IntArray) -> tuple[IntArray, IntArray]:
    """Return parts of collectives that waited for another GPU, and of each the part that began last, as rows of the run."""
    times = collective_times(trace)
    at = np.full(len(trace.spans), -1)
    at[kept] = np.arange(len(kept))
    held = times.waiting_ns > 0
    return at[trace.collectives.span[held]], at[times.last[held]]


def followed(before: IntArray, last: int) -> npt.NDArray[np.int64]:
    """Follow predecessors from the last row back; a ring, which clocks that disagree can make, ends it."""
    chain, earlier, row, seen = [], before.astype(np.int64).data, last, -2
    while row >= 0 and (follows := earlier[row]) != seen:
        chain.append(row)
        earlier[row], row = seen, follows
    return np.array(chain)


def stretches(kind: IntArray, end_ns: IntArray, before: Predecessors, rows: npt.NDArray[np.int64], *, complete: bool) -> CriticalPath:
    """Return the stretches in and between the spans of the path; ``rows`` runs from its end to its start.

    ``kind``, ``end_ns``: of all spans.
    """
    of_kind = np.full(max(SpanKind) + 1, int(Bound.HOST))
    of_kind[[SpanKind.KERNEL, *MEMORY_KINDS]] = Bound.KERNEL, *[Bound.COPY] * len(MEMORY_KINDS)
    # Times at which the path passes, backwards: it leaves a span, arrives at the next one, and so on.
    passes_ns = np.concatenate([[end_ns[rows[0]]], np.stack([before.leave_ns[rows], before.arrive_ns[rows]], axis=1).ravel()])
    passes_ns[-1] = passes_ns[-2]
    passes_ns = np.minimum.accumulate(passes_ns)
    bound = np.stack([of_kind[kind[rows]], before.bound[rows]], axis=1).ravel()
    # What lies between two calls belongs to the second.
    kept = np.flatnonzero(passes_ns[:-1] > passes_ns[1:])[::-1]
    return CriticalPath(passes_ns[1:][kept], passes_ns[:-1][kept], bound[kept], np.repeat(rows, 2)[kept], complete)
