"""Tasks: the launches and host functions of a recorded run, with durations, costs of calls and predecessors; no engine in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.devices.launch_costs import KernelCost
from streamscope.errors import TraceError
from streamscope.program.collective import Collective
from streamscope.program.launch import Cost, LaunchKind
from streamscope.trace.origins import Trait
from streamscope.trace.spans import DEVICE_KINDS, SpanKind, SpanTable
from streamscope.trace.trace import Trace

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
        kind, op, nbytes = parts[own[0].rows[0]]
        members = tuple(gpus[spans.lane[task.rows[0]]] for task in own)
        collective = Collective(kind, members, nbytes, op)  # type: ignore[arg-type]
        piece = min((task.pieces[0] for task in own), key=lambda one: one.alone_ns)
        joined.update({task.place: (collective, piece) for task in own})
    found = []
    for task in tasks:
        part = joined.get(task.place)
        gpu, to_gpu = ways.get(task.rows[0], (gpus[spans.lane[task.rows[0]]], None)) if task.rows else (0, None)
        there = replace(task, gpu=gpu, to_gpu=to_gpu)
        found.append(there if part is None else replace(there, collective=part[0], pieces=(part[1],)))
    return found


def _rows_of_collectives(trace: Trace) -> dict[int, tuple[str, str, int]]:
    """Return kind, reduction and bytes of the collective that a row is a part of."""
    found = trace.collectives
    return dict(zip(found.span.tolist(), zip(found.words("kind"), found.words("op"), found.nbytes.tolist(), strict=True), strict=True))


def _usual_calls(tasks: Sequence[Task]) -> list[Task]:
    """Return tasks whose launches cost the host the median of their name: one call in one run may meet anything."""
    by_name: dict[str, list[float]] = {}
    for task in tasks:
        if _has_call(task):
            by_name.setdefault(task.name, []).append(task.call_ns)
    median = {name: float(np.median(calls)) for name, calls in by_name.items()}
    return [replace(task, call_ns=median[task.name]) if _has_call(task) else task for task in tasks]


def _has_call(task: Task) -> bool:
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
