"""Tasks: the launches and host functions of a recorded run, with durations, costs of calls and predecessors; no engine in them.

Code that is not ours has the order of its streams, its event waits, and the places where its host waited. Nothing is guessed, and a
prediction is never made too fast: where event waits are missing, and between the nodes of a graph, whatever had ended before a kernel
began stays before it. Work without a launch call waits as long as it did: the host, or the device, may have been why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamscope.analysis.idle import KERNEL_WAIT_BELOW_NS
from streamscope.analysis.launches import launch_overhead_ns
from streamscope.analysis.overlap import run_of
from streamscope.arrays import IntArray
from streamscope.devices.cost_model import KernelCost
from streamscope.errors import TraceError
from streamscope.program.collective import Collective
from streamscope.program.launch import Cost, LaunchKind
from streamscope.recording.communication import priority_of
from streamscope.trace.joins import CALL_KINDS, blocking_copies, call_rows
from streamscope.trace.origins import Trait
from streamscope.trace.spans import DEVICE_KINDS, SpanKind, SpanTable
from streamscope.trace.symbols import copy_way
from streamscope.trace.trace import Trace
from streamscope.words import counted, time_text

LaunchKey = tuple[int, int]
"""An operation and which of its launches."""
# Each time that a flag is named, it is looked for, which takes as long as all else here.
_HOST, _COPY_IN, _COPY_OUT, _KERNEL = Trait.HOST, Trait.COPY_IN, Trait.COPY_OUT, LaunchKind.KERNEL


@dataclass(frozen=True)
class Task:
    """One launch, or one host function.

    ``after`` are the positions of the tasks that it comes after, all before its own; ``rows`` are those of its kernels in the trace, or
    of its copy, and ``pieces`` say how long each takes alone. ``expected_ns`` is how long the engine took it to run when it planned,
    ``call_ns`` the host's call, or its function; NaN where that is not known. ``tail_ns`` is how long the call goes on after it has put
    the work on the stream; NaN leaves that to the host's other calls. ``gap_ns`` is how long the device waits before it, at least, after
    what it comes after: where nothing in the trace says why it waited. ``factor`` is by how much changes made it longer; ``call_ns`` of a
    host function has that in it, ``pieces`` have not.
    """

    place: LaunchKey
    name: str
    trait: Trait
    after: tuple[int, ...]
    rows: tuple[int, ...] = ()
    pieces: tuple[KernelCost, ...] = ()
    expected_ns: float = float("nan")
    call_ns: float = float("nan")
    gap_ns: float = 0.0
    tail_ns: float = float("nan")
    factor: float = 1.0
    gpu: int = 0
    to_gpu: int | None = None
    """The GPU that it ran on, and that a copy between GPUs went to."""
    collective: Collective | None = None
    """The collective that it is a part of; its piece is the transfer, without waiting."""

    @property
    def kind(self) -> LaunchKind:
        """Which part of a device does the work."""
        if self.collective is not None:
            return LaunchKind.COLLECTIVE
        if self.to_gpu is not None:
            return LaunchKind.COPY_PEER
        if self.has(_COPY_IN):
            return LaunchKind.COPY_IN
        return LaunchKind.COPY_OUT if self.has(_COPY_OUT) else _KERNEL

    @property
    def on_host(self) -> bool:
        """Whether it is a host function."""
        return self.has(_HOST)

    def has(self, traits: Trait) -> bool:
        """Tell whether it has one of some traits."""
        return int(self.trait) & int(traits) != 0  # As flags, this takes ten times as long.

    @property
    def planned_ns(self) -> float:
        """How long a planner takes it to run."""
        return self.alone_ns if math.isnan(self.expected_ns) else self.expected_ns

    @property
    def alone_ns(self) -> float:
        """How long its kernels take alone, without gaps between them."""
        return sum(piece.alone_ns for piece in self.pieces) * self.factor


def tasks_of_program(trace: Trace, *, as_captured: bool = False) -> list[Task]:
    """Return the tasks of a trace that knows its program's launches and dependencies; a TraceError where launches have no kernel in it.

    ``as_captured`` keeps the order of the capture, where that is known, instead of the order that memory asks for.
    """
    spans, origins = trace.spans, trace.origins
    kernels = _rows_by_place(spans, spans.is_kind(DEVICE_KINDS))
    calls = _rows_by_place(spans, spans.is_kind([SpanKind.LAUNCH, SpanKind.HOST]))
    position = {(operation, part): index for index, (operation, part, *_) in enumerate(origins.launches.tolist())}
    after: list[list[int]] = [[] for _ in position]
    pairs = origins.dependencies.tolist()
    if as_captured and len(origins.captured):
        pairs = [(earlier, 0, later, 0) for earlier, later in origins.captured.tolist()]
    for before_operation, before_part, operation, part in pairs:
        after[position[operation, part]].append(position[before_operation, before_part])
    tasks: list[Task] = []
    missing: list[LaunchKey] = []
    for (place, index), (_, _, bits, expected) in zip(position.items(), origins.launches.tolist(), strict=True):
        trait, expected_ns = Trait(bits), float(expected or "nan")
        called, rows = calls.get(place, []), kernels.get(place, [])
        if not (called if trait & Trait.HOST else rows):
            missing.append(place)
            continue
        call_ns = float(spans.duration_ns[called[0]]) if called else float("nan")
        name = spans.names[spans.name[(rows or called)[0]]]
        tasks.append(Task(place, name, trait, tuple(after[index]), tuple(rows), pieces_of(spans, rows), expected_ns, call_ns))
    if missing:
        operation, part = missing[0]
        raise TraceError(
            f"{len(missing)} of the program's {len(position)} launches have no times in this trace, the first is launch {part} of "
            f"operation {operation}",
            hint="record the program again: launches without times cannot be predicted",
        )
    return _usual_calls(_on_gpus(trace, tasks) if len(trace.gpus) > 1 else tasks)


def _on_gpus(trace: Trace, tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks of a trace of several GPUs with the GPU of each; the time of a collective is that of the last part to begin."""
    spans, gpus = trace.spans, trace.spans.gpus
    ways = {row: way for row, *way in zip(*(getattr(trace.peers, name).tolist() for name in ("span", "from_gpu", "to_gpu")), strict=True)}
    parts = _rows_of_collectives(trace)
    by_operation: dict[int, list[Task]] = {}
    for task in tasks:
        if task.rows and task.rows[0] in parts:
            by_operation.setdefault(task.place[0], []).append(task)
    joined: dict[LaunchKey, tuple[Collective, KernelCost]] = {}
    for own in by_operation.values():
        kind, op, nbytes, communicator = parts[own[0].rows[0]]
        members = tuple(gpus[spans.lane[task.rows[0]]] for task in own)
        root = next((part for part, task in enumerate(own) if task.has(Trait.ROOT)), 0)  # None in traces of earlier versions.
        collective = Collective(kind, members, nbytes, op, root, priority_of(communicator))  # type: ignore[arg-type]
        piece = min((task.pieces[0] for task in own), key=lambda one: one.alone_ns)
        joined.update({task.place: (collective, piece) for task in own})
    found = []
    for task in tasks:
        part = joined.get(task.place)
        gpu, to_gpu = ways.get(task.rows[0], (gpus[spans.lane[task.rows[0]]], None)) if task.rows else (0, None)
        there = replace(task, gpu=gpu, to_gpu=to_gpu)
        found.append(there if part is None else replace(there, collective=part[0], pieces=(part[1],)))
    return found


def _rows_of_collectives(trace: Trace) -> dict[int, tuple[str, str, int, str]]:
    """Return kind, reduction, bytes and communicator of the collective that a row is a part of."""
    found = trace.collectives
    kinds, ops, communicators = (found.words(name) for name in ("kind", "op", "communicator"))
    return dict(zip(found.span.tolist(), zip(kinds, ops, found.nbytes.tolist(), communicators, strict=True), strict=True))


def _usual_calls(tasks: Sequence[Task]) -> list[Task]:
    """Return tasks whose launches cost the host the median of their name: one call in one run may meet anything."""
    by_name: dict[str, list[float]] = {}
    for task in tasks:
        if has_call(task):
            by_name.setdefault(task.name, []).append(task.call_ns)
    median = {name: float(np.median(calls)) for name, calls in by_name.items()}
    return [replace(task, call_ns=median[task.name]) if has_call(task) else task for task in tasks]


def has_call(task: Task) -> bool:
    """Tell whether a call of the host is a launch's own: of a collective, one call issues all parts, as that of the last."""
    return not task.on_host and (task.collective is None or not math.isnan(task.call_ns))


def pieces_of(spans: SpanTable, rows: Sequence[int] | IntArray) -> tuple[KernelCost, ...]:
    """Return the kernels in these rows as pieces of launches."""
    at = np.asarray(rows, np.int64)
    lengths_ns = (spans.end_ns[at] - spans.start_ns[at]).astype(np.float64)
    sizes = (spans.bytes[at], spans.flops[at], np.maximum(1, spans.blocks[at]), np.maximum(1, spans.threads[at]))
    return tuple(map(KernelCost, lengths_ns.tolist(), map(Cost, *(column.tolist() for column in sizes))))


def _rows_by_place(spans: SpanTable, mask: npt.NDArray[np.bool_]) -> dict[LaunchKey, list[int]]:
    """Return the rows of spans of operations, by operation and part, in order of their starts."""
    found: dict[LaunchKey, list[int]] = {}
    rows = np.flatnonzero(mask & (spans.operation >= 0))
    for row, operation, part in zip(rows.tolist(), spans.operation[rows].tolist(), spans.part[rows].tolist(), strict=True):
        found.setdefault((operation, part), []).append(row)
    return found


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
