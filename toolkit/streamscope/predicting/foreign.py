"""Tasks of traces of code that is not ours: the order of its streams, its event waits, and where its host waited. Nothing is guessed.

A prediction is never made too fast: where event waits are missing, and between the nodes of a graph, whatever had ended before a kernel
began stays before it. Work without a launch call waits as long as it did: the host, or the device, may have been why.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from streamscope.analysis.idle import KERNEL_WAIT_BELOW_NS
from streamscope.analysis.launch_delays import launch_overhead_ns
from streamscope.analysis.overlap import run_of
from streamscope.arrays import IntArray
from streamscope.errors import TraceError
from streamscope.predicting.tasks import Task, pieces_of
from streamscope.trace.joins import CALL_KINDS, call_rows
from streamscope.trace.origins import Trait
from streamscope.trace.spans import DEVICE_KINDS, MEMORY_KINDS, SpanKind, SpanTable
from streamscope.trace.symbols import copy_way
from streamscope.trace.trace import Trace
from streamscope.words import counted, time_text

_TRAITS = {1: Trait.CAPTURED | Trait.COPY_IN, -1: Trait.CAPTURED | Trait.COPY_OUT, 0: Trait.CAPTURED}
"""By which way a copy goes."""
SEVERAL = "the trace holds"
"""Begin of the note on the number of steps."""
_WAITS_STAY = "{} of 30 µs or more, {} in all, stay as long: nothing in the trace tells what for (an event, another stream or GPU)"
GAPS_STAY = (
    "what has no launch call stays as long after what came before it: why the device waited is not known, so no engine makes it shorter"
)


def is_foreign(trace: Trace) -> bool:
    """Tell whether a trace lacks the dependencies of its launches."""
    return not len(trace.origins.launches)


def check_foreign(trace: Trace) -> None:
    """Raise a TraceError if a trace is one of ours, from a version that did not keep dependencies."""
    if (trace.spans.operation >= 0).any():
        raise TraceError(
            f"the trace of {trace.info.program!r} does not say what its launches depend on: "
            "it is from an older version, too long, or of a table of spans",
            hint="record the program again",
        )


def tasks_of_foreign(trace: Trace, *, waits: bool = True) -> list[Task]:
    """Return the tasks of a trace without dependencies, in the order of their launches, for an engine that is not the trace's own.

    Long waits that nothing in the trace explains stay where ``waits`` is true.
    """
    spans = trace.spans
    rows, call_rows = launch_order(spans)
    before = orders_of(trace, rows)
    blocking = blocking_copies(spans, rows, call_rows)
    breaks = breaks_of(spans, rows, call_rows, blocking)
    launching_ns = usual_launch_ns(spans, call_rows, blocking)
    gaps_ns = unexplained_ns(spans, rows, call_rows, before, waits=waits)
    tasks: list[Task] = []
    number: dict[int, int] = {}
    previous_ns = float(run_of(spans).start_ns.min()) if len(rows) else 0.0
    begins_ns, ends_ns = (np.where(call_rows >= 0, times[call_rows], spans.start_ns[rows]) for times in (spans.start_ns, spans.end_ns))
    launched = (call_rows >= 0) & (spans.kind[call_rows] == SpanKind.LAUNCH)
    took_ns = np.where(blocking, np.minimum(launching_ns, ends_ns - begins_ns), ends_ns - begins_ns)
    times_ns = (times.astype(float) for times in (begins_ns, ends_ns, took_ns))
    columns = (rows, *times_ns, launched, spans.name[rows])
    each = zip(*(column.tolist() for column in columns), task_traits(spans, rows), pieces_of(spans, rows), strict=True)
    for index, (row, begin_ns, end_ns, call_took_ns, is_launch, name, trait, piece) in enumerate(each):
        if index in breaks:
            tasks.append(Task((-1, 0), "host", Trait.HOST | Trait.CAPTURED, newest(tasks), call_ns=breaks[index]))
            previous_ns = begin_ns
        call_ns = 0.0 if call_rows[index] < 0 else math.nan  # The gap before it has whatever the call took.
        if is_launch:
            # What the host does between two calls is the caller's way to the next one: a graph has none of it.
            call_ns = begin_ns - min(previous_ns, begin_ns) + call_took_ns
            previous_ns = end_ns
        number[index] = len(tasks)
        after = tuple(sorted(number[earlier] for earlier in before[index]))
        tasks.append(Task((-1, 0), spans.names[name], trait, after, (row,), (piece,), call_ns=call_ns, gap_ns=gaps_ns[index]))
    return tasks


def notes_of_foreign(trace: Trace, tasks: list[Task], *, in_graphs: bool) -> tuple[str, ...]:
    """Return notes on the tasks of a trace without dependencies; ``in_graphs``: they are replayed from graphs."""
    rows = [row for task in tasks for row in task.rows]
    complete = trace.origins.complete
    notes = [] if complete else ["event waits are not known, so what had ended before a kernel began stays before it"]
    if (call_rows(trace.spans, np.array(rows, np.int64)) < 0).any():
        notes.append(GAPS_STAY)
    if breaks := sum(task.on_host for task in tasks):
        graphs = f"so there are {breaks + 1} graphs with its work between" if in_graphs else "and its work between stays"
        notes.append(f"the host waits {counted(breaks, 'time')} in the middle, {graphs}")
    if waits_ns := [task.gap_ns for task in tasks if task.gap_ns >= KERNEL_WAIT_BELOW_NS]:
        notes.append(_WAITS_STAY.format(counted(len(waits_ns), "wait"), time_text(sum(waits_ns))))
    return (*notes, *_repeated(trace.spans))


def _repeated(spans: SpanTable) -> list[str]:
    """Say that the trace holds several ranges of one name one after the other, in which all launches lie: it is of several steps."""
    launches_ns = spans.start_ns[spans.is_kind(CALL_KINDS)]
    ranges = np.flatnonzero(spans.is_kind([SpanKind.RANGE]))
    for name, count in zip(*np.unique(spans.name[ranges], return_counts=True), strict=True):
        rows = ranges[spans.name[ranges] == name]
        within = np.searchsorted(spans.start_ns[rows], launches_ns, side="right") - 1
        apart = (spans.start_ns[rows[1:]] >= spans.end_ns[rows[:-1]]).all()
        if count > 1 and apart and len(launches_ns) and (within >= 0).all() and (launches_ns < spans.end_ns[rows[within]]).all():
            steps = f"{SEVERAL} {count} ranges {spans.names[name]!r}"
            return [f"{steps}: all of them are predicted as one run, and measured_us is the time of all"]
    return []


def launch_order(spans: SpanTable) -> tuple[IntArray, IntArray]:
    """Return the rows of kernels, copies and sets in the order in which the host launched them, and the row of the call of each or -1."""
    rows = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    found = call_rows(spans, rows)
    called_ns = np.where(found >= 0, spans.start_ns[found], spans.start_ns[rows])
    order = np.lexsort((spans.start_ns[rows], called_ns))
    return rows[order], found[order]


def orders_of(trace: Trace, rows: IntArray) -> list[set[int]]:
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


def unexplained_ns(spans: SpanTable, rows: IntArray, call_rows: IntArray, before: list[set[int]], *, waits: bool) -> list[float]:
    """Return the unexplained wait of each task after its predecessors had ended.

    Of an unknown call that is all the time since then, or since the first began. Else, with ``waits``, it is the time since its call had
    ended and its launch had arrived, too, where that is 30 µs or more: shorter waits are the device's own delays, which each engine has of
    its own.
    """
    first_ns = int(spans.start_ns[rows].min(initial=np.iinfo(np.int64).max))
    overhead_ns = launch_overhead_ns(spans)
    usual_ns = float(np.median(overhead_ns)) if len(overhead_ns) else 0.0
    known = call_rows >= 0
    arrived_ns = np.where(known, np.maximum(spans.start_ns[call_rows] + usual_ns, spans.end_ns[call_rows]), first_ns).tolist()
    start_ns, end_ns = spans.start_ns[rows].tolist(), spans.end_ns[rows].tolist()
    found: list[float] = []
    for index, earlier in enumerate(before):
        ended_ns = max((end_ns[one] for one in earlier), default=first_ns)
        waited_ns = float(start_ns[index] - (max(ended_ns, arrived_ns[index]) if known[index] else ended_ns))
        found.append(max(0.0, waited_ns if not known[index] or (waits and waited_ns >= KERNEL_WAIT_BELOW_NS) else 0.0))
    return found


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


def blocking_copies(spans: SpanTable, rows: IntArray, call_rows: IntArray) -> npt.NDArray[np.bool_]:
    """Tell of each task whether it is a copy whose call returned after it had ended: the host waited for it, as `critical_path` has it."""
    found: npt.NDArray[np.bool_] = spans.is_kind(MEMORY_KINDS)[rows] & (call_rows >= 0)
    found &= spans.is_kind([SpanKind.LAUNCH])[call_rows] & (spans.end_ns[call_rows] >= spans.end_ns[rows])
    copying = np.array([*("emcpy" in name for name in spans.names), False])
    found &= copying[spans.name[call_rows]]
    return found


def usual_launch_ns(spans: SpanTable, call_rows: IntArray, blocking: npt.NDArray[np.bool_]) -> float:
    """Return how long a launch call takes that does not wait: a call that waits does not tell how long it took to launch."""
    calls = call_rows[(call_rows >= 0) & ~blocking]
    return float(np.median(spans.duration_ns[calls])) if len(calls) else float("inf")


def breaks_of(spans: SpanTable, rows: IntArray, call_rows: IntArray, blocking: npt.NDArray[np.bool_]) -> dict[int, float]:
    """Return where the host waited in the middle of the run: the first task launched after, and for how long the host worked before that.

    Where it waited several times in a row, that is all its time between these waits and after the last.
    """
    waits = np.concatenate([np.flatnonzero(spans.kind == SpanKind.SYNC), call_rows[blocking]])
    waits = waits[np.argsort(spans.end_ns[waits], kind="stable")]
    called_ns = np.where(call_rows >= 0, spans.start_ns[call_rows], spans.start_ns[rows])
    found: dict[int, float] = {}
    ended_ns: dict[int, int] = {}
    for row in waits.tolist():
        begin_ns, end_ns = int(spans.start_ns[row]), int(spans.end_ns[row])
        index = int(np.searchsorted(called_ns, end_ns))
        if 0 < index < len(rows):
            between_ns = max(0, begin_ns - ended_ns[index]) if index in ended_ns else 0
            found[index] = found.get(index, 0.0) + between_ns
            ended_ns[index] = end_ns
    return {index: host_ns + max(0, int(called_ns[index]) - ended_ns[index]) for index, host_ns in found.items()}


def newest(tasks: list[Task]) -> tuple[int, ...]:
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


def task_traits(spans: SpanTable, rows: IntArray) -> list[Trait]:
    """Return the traits of each task: a copy has its way."""
    ways = np.array([*(copy_way(name) for name in spans.names), 0])
    return [_TRAITS[way] for way in np.where(spans.kind[rows] == SpanKind.COPY, ways[spans.name[rows]], 0).tolist()]
