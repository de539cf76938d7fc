"""Tasks of traces of code that is not ours: the order of its streams, its event waits, and where its host waited. Nothing is guessed.

What would make a prediction too fast is not taken as known: where event waits are missing, and between the nodes of a graph, whatever had
ended before a kernel began stays before it.
"""

from __future__ import annotations

import numpy as np

from streamscope.errors import TraceError
from streamscope.predicting.tasks import Task, pieces_of
from streamscope.trace.origins import Trait
from streamscope.trace.spans import DEVICE_KINDS, IntArray, SpanKind, SpanTable
from streamscope.trace.trace import Trace
from streamscope.words import counted

_LAUNCHES = frozenset({SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH})


def is_foreign(trace: Trace) -> bool:
    """Tell whether a trace does not know what its launches depend on."""
    return not len(trace.origins.launches)


def tasks_of_foreign(trace: Trace) -> tuple[list[Task], tuple[str, ...]]:
    """Return the tasks of a trace without dependencies, in the order of their launches, and what a reader must know of them.

    Raises
    ------
    TraceError
        It is a trace of ours from a version that did not keep dependencies.
    """
    spans = trace.spans
    if (spans.operation >= 0).any():
        raise TraceError(
            f"the trace of {trace.info.program!r} does not say what its launches depend on: it is from an older version, or too long",
            hint="record the program again",
        )
    rows, call_rows = _launch_order(spans)
    known = trace.origins.complete
    before = _orders(trace, rows)
    breaks = _breaks(spans, rows, call_rows)
    tasks: list[Task] = []
    number: dict[int, int] = {}
    previous_ns = float(spans.start_ns.min(initial=0))
    for index, row in enumerate(rows.tolist()):
        call = int(call_rows[index])
        if index in breaks:
            begin_ns, end_ns = breaks[index]
            tasks.append(Task((-1, 0), "host", Trait.HOST | Trait.CAPTURED, _newest(tasks), call_ns=max(0.0, end_ns - begin_ns)))
            previous_ns = end_ns
        call_ns = float("nan")
        if call >= 0 and spans.kind[call] == SpanKind.LAUNCH:
            # What the host does between two calls is the caller's way to the next one: a graph has none of it.
            call_ns = float(spans.end_ns[call]) - min(previous_ns, float(spans.start_ns[call]))
            previous_ns = float(spans.end_ns[call])
        number[index] = len(tasks)
        after = tuple(sorted(number[earlier] for earlier in before[index]))
        name = spans.names[spans.name[row]]
        tasks.append(Task((-1, 0), name, _trait(spans, row), after, (row,), pieces_of(spans, [row]), call_ns=call_ns))
    notes = [] if known else ["event waits are not known, so what had ended before a kernel began stays before it"]
    if breaks:
        notes.append(
            f"the host waits {counted(len(breaks), 'time')} in the middle, so there are {len(breaks) + 1} graphs with its work between"
        )
    return tasks, tuple(notes)


def _launch_order(spans: SpanTable) -> tuple[IntArray, IntArray]:
    """Return the rows of kernels, copies and sets in the order in which the host launched them, and the row of the call of each or -1."""
    calls = np.flatnonzero(spans.is_kind(_LAUNCHES) & (spans.correlation >= 0))
    calls = calls[np.argsort(spans.correlation[calls], kind="stable")]
    rows = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    at = np.searchsorted(spans.correlation[calls], spans.correlation[rows])
    found = np.full(len(rows), -1)
    there = at < len(calls)
    there[there] = spans.correlation[calls[at[there]]] == spans.correlation[rows[there]]
    found[there] = calls[at[there]]
    called_ns = np.where(found >= 0, spans.start_ns[found], spans.start_ns[rows])
    order = np.lexsort((spans.start_ns[rows], called_ns))
    return rows[order], found[order]


def _orders(trace: Trace, rows: IntArray) -> list[set[int]]:
    """Return for each task the tasks that it comes after, by their positions."""
    spans, known = trace.spans, trace.origins.complete
    position = {row: index for index, row in enumerate(rows.tolist())}
    streams = spans.stream_lanes[spans.lane[rows]].tolist()
    in_graph = spans.graph_node[rows] >= 0
    last: dict[int, int] = {}
    before: list[set[int]] = []
    for index, stream in enumerate(streams):
        before.append({last[stream]} if stream in last else set())
        last[stream] = index
    for earlier, later in trace.origins.row_waits.tolist():
        if earlier in position and later in position and position[earlier] < position[later]:
            before[position[later]].add(position[earlier])
    if (not known and len(last) > 1) or in_graph.any():
        for index, seen in enumerate(_seen_before(spans, rows)):
            if not known or in_graph[index]:
                before[index] = seen | (set() if in_graph[index] else before[index])
    return before


def _seen_before(spans: SpanTable, rows: IntArray) -> list[set[int]]:
    """Return for each task, on each lane, the last that had ended before it began and was launched before it."""
    start_ns, end_ns, lane = spans.start_ns[rows], spans.end_ns[rows], spans.lane[rows]
    found: list[set[int]] = [set() for _ in rows]
    for each in np.unique(lane).tolist():
        members = np.flatnonzero(lane == each)
        members = members[np.argsort(end_ns[members], kind="stable")]
        at = np.searchsorted(end_ns[members], start_ns, side="right") - 1
        for index in np.flatnonzero(at >= 0).tolist():
            earlier = int(members[at[index]])
            if earlier < index:
                found[index].add(earlier)
    return found


def _breaks(spans: SpanTable, rows: IntArray, call_rows: IntArray) -> dict[int, tuple[float, float]]:
    """Return where the host waited in the middle of the run: the first task launched after, when the wait ended, when that was called."""
    waits = np.flatnonzero(spans.kind == SpanKind.SYNC)
    called_ns = np.where(call_rows >= 0, spans.start_ns[call_rows], spans.start_ns[rows])
    found: dict[int, tuple[float, float]] = {}
    for row in waits.tolist():
        index = int(np.searchsorted(called_ns, spans.end_ns[row]))
        if 0 < index < len(rows):
            found[index] = (float(spans.end_ns[row]), float(called_ns[index]))
    return found


def _newest(tasks: list[Task]) -> tuple[int, ...]:
    """Return the tasks that nothing comes after yet, up to the last stretch of the host."""
    followed: set[int] = set()
    newest: list[int] = []
    for index in range(len(tasks) - 1, -1, -1):
        if index not in followed:
            newest.append(index)
        followed.update(tasks[index].after)
        if tasks[index].on_host:
            break
    return tuple(sorted(newest))


def _trait(spans: SpanTable, row: int) -> Trait:
    text = f"{spans.names[spans.name[row]]} {spans.names[spans.symbol[row]] if spans.symbol[row] >= 0 else ''}"
    if spans.kind[row] == SpanKind.COPY:
        if "HtoD" in text or "HostToDevice" in text:
            return Trait.CAPTURED | Trait.COPY_IN
        if "DtoH" in text or "DeviceToHost" in text:
            return Trait.CAPTURED | Trait.COPY_OUT
    return Trait.CAPTURED
