"""Origins of a trace's operations, from a program and an engine's plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

import numpy as np

from streamscope.arrays import IntArray
from streamscope.devices.protocol import Stream
from streamscope.engines.makespan_estimate import reference_model
from streamscope.engines.plan import Estimate, Issue, Plan, Step, predecessors
from streamscope.engines.prepared import Prepared
from streamscope.order.graph import dependencies_of_work
from streamscope.program.launch import HostCall, Launch, LaunchKind
from streamscope.program.operation import LONGEST_SOURCE, Operation, Program
from streamscope.program.variable import MemoryPlace
from streamscope.trace.info import TraceInfo
from streamscope.trace.memory import Allocation, Allocations
from streamscope.trace.origins import MOST_DEPENDENCIES, MOST_NS, MOST_OPERATIONS, MOST_WAITS, Origins, Trait, site_of
from streamscope.words import shortened

_HOST = -1


def origins_of(plan: Plan, estimate: Estimate | None = None) -> Origins:
    """Return where the operations of a plan's program come from, its event waits, and the order that dependencies need.

    ``estimate`` says how long the planner took each launch to run; the built-in cost model's, by default.
    """
    return with_waits(origins_of_program(plan.program, estimate), plan)


def with_waits(origins: Origins, plan: Plan) -> Origins:
    """Return `origins_of_program` of a plan's program, with the plan's event waits."""
    waits = sorted(set(_waits(list(plan.flat()))))
    complete = len(waits) <= MOST_WAITS
    return replace(origins, waits=np.array(waits if complete else [], np.int64).reshape(-1, 4), complete=complete)


def origins_of_program(program: Program, estimate: Estimate | None = None) -> Origins:
    """Return `origins_of` without the waits, which is the same under every engine."""
    launches, dependencies = _order(program, estimate or reference_model().estimate_ns)
    edges = [(earlier, number) for number, after in enumerate(program.captured) for earlier in after] if len(launches) else []
    captured = np.array(edges if len(edges) <= MOST_DEPENDENCIES else [], np.int64).reshape(-1, 2)
    if len(program.operations) > MOST_OPERATIONS:
        return Origins(launches=launches, dependencies=dependencies, captured=captured)
    texts: dict[str, int] = {"": -1}
    label, line, arguments = (
        np.array([texts.setdefault(text, len(texts) - 1) for text in column], np.int64)
        for column in (
            [operation.label for operation in program.operations],
            [_line(operation) for operation in program.operations],
            [_arguments(operation, program) for operation in program.operations],
        )
    )
    return Origins(tuple(texts)[1:], label, line, arguments, launches=launches, dependencies=dependencies, captured=captured)


def info_of(
    prepared: Prepared,
    recorder: str,
    ledger: Mapping[str, float],
    notes: Iterable[str],
    calibration: Mapping[str, float] | None = None,
) -> TraceInfo:
    """Return the facts about a recorded run: program, engine, device, and the recorder's findings (see `TraceInfo`)."""
    return TraceInfo(
        prepared.plan.engine,
        prepared.program.name,
        prepared.device.info,
        recorder,
        calibration or {},
        ledger,
        tuple(notes),
        plan=prepared.plan.counts | prepared.graph_counts.to_dict(),
        memory=prepared.memory,
    )


def memory_of(prepared: Prepared, of_program: Sequence[Allocation] | None = None) -> Allocations:
    """Return the memory that is held for a program as long as it is prepared: of its variables, of its streams, and of a capture.

    On the device it adds up to `TraceInfo.memory`. Scratch memory of libraries is of no operation: those on one stream share it. CUDA does
    not tell what a graph takes. ``of_program``: `memory_of_program`, if it is known.
    """
    program = prepared.program
    rows = memory_of_program(program) if of_program is None else of_program
    return Allocations.of([*rows, *(() if program.captured else _of_streams(prepared))])


def memory_of_program(program: Program) -> list[Allocation]:
    """Return `memory_of` without the streams, which is the same under every engine. A variable is of the operation that writes it first."""
    written: dict[int, Operation] = {}
    for operation in reversed(program.operations):
        written.update(dict.fromkeys(operation.writes, operation))
    inputs, outputs = set(program.inputs), set(program.outputs)
    rows = [_held(nbytes, 0, "capture", program.operations[number] if number >= 0 else None) for nbytes, number in program.held]
    for variable in program.variables:
        one, nbytes = variable.id, variable.spec.nbytes
        kind = "input" if one in inputs else "output" if one in outputs else "intermediate"
        gpu = variable.gpu if variable.place is MemoryPlace.DEVICE else _HOST
        if nbytes:  # Variables of captured code have no elements.
            rows.append(_held(nbytes, gpu, kind, None if one in inputs else written.get(one), variable.name))
    return rows


def _held(nbytes: int, gpu: int, kind: str, operation: Operation | None, name: str = "") -> Allocation:
    if operation is None:
        return Allocation(nbytes, gpu=gpu, kind=kind, name=name)
    site = site_of(_line(operation), operation.label)
    return Allocation(nbytes, gpu=gpu, kind=kind, name=operation.name, site=site, operation=operation.id)


def _of_streams(prepared: Prepared) -> list[Allocation]:
    """Return the memory that streams hold for themselves, of each GPU by its purpose."""
    by_gpu: dict[int, list[Stream]] = {}
    for lane, stream in prepared.streams.items():
        by_gpu.setdefault(prepared.plan.gpu(lane), []).append(stream)
    return [
        Allocation(nbytes, gpu=gpu, kind=purpose.removesuffix("_bytes"))
        for gpu, streams in by_gpu.items()
        for purpose, nbytes in prepared.device.memory_of(streams).items()
        if nbytes
    ]


def _order(program: Program, estimate: Estimate) -> tuple[IntArray, IntArray]:
    """Return the launches and host functions of a program, and their dependencies: neither where there are too many."""
    works = [work for operation in program.operations for work in operation.works]
    places = [(work.operation, 0 if isinstance(work, HostCall) else work.part) for work in works]
    pairs: list[tuple[int, int, int, int]] = []
    if len(works) <= MOST_DEPENDENCIES:
        pairs = [(*places[other], *places[index]) for index, earlier in enumerate(dependencies_of_work(works)) for other in earlier]
    if max(len(works), len(pairs)) > MOST_DEPENDENCIES:
        works, pairs = [], []
    rows = [(*place, _traits(work, program), _expected_ns(work, estimate)) for place, work in zip(places, works, strict=False)]
    return np.array(rows, np.int64).reshape(-1, 4), np.array(pairs, np.int64).reshape(-1, 4)


def _expected_ns(work: Launch | HostCall, estimate: Estimate) -> int:
    return 0 if isinstance(work, HostCall) else min(round(estimate(work)), MOST_NS)


def _traits(work: Launch | HostCall, program: Program) -> Trait:
    captured = Trait.CAPTURED if program.captured else Trait(0)
    if isinstance(work, HostCall):
        return Trait.HOST | captured
    held = (
        (work.auxiliary, Trait.AUXILIARY),
        (work.library, Trait.LIBRARY),
        (not work.capturable, Trait.FIXED),
        (work.kind is LaunchKind.COPY_IN, Trait.COPY_IN),
        (work.kind is LaunchKind.COPY_OUT, Trait.COPY_OUT),
        (work.collective is not None and work.collective.root == work.part, Trait.ROOT),
    )
    return reduce(or_, (trait for has, trait in held if has), captured)


def _line(operation: Operation) -> str:
    """Return the user's line with its text: ``model.py:12: h = x @ w``."""
    return f"{operation.where}: {shortened(operation.source, LONGEST_SOURCE)}" if operation.source else operation.where


def _arguments(operation: Operation, program: Program) -> str:
    """Return shapes and dtypes: ``float32[64, 256], float32[256, 256] → float32[64, 256]``; of captured code the operator's name."""
    if program.captured:  # Its variables have no elements.
        return operation.name if operation.name not in [launch.name for launch in operation.launches] else ""
    written = [program.variables[variable].spec if part is None else part.spec for variable, part in operation.results]
    reads, writes = (", ".join(map(str, specs)) for specs in (program.read_specs(operation), written))
    return shortened(f"{reads} → {writes}", 2 * LONGEST_SOURCE)


def _waits(steps: Sequence[Step]) -> Iterator[tuple[int, int, int, int]]:
    """Yield each wait of a launch, or of a host function, for a launch on another lane."""
    for _, step, earlier in predecessors(steps):
        place = (step.launch.operation, step.launch.part) if isinstance(step, Issue) else (step.call.operation, 0)
        for other in (steps[position] for position in earlier):
            if isinstance(other, Issue) and not (isinstance(step, Issue) and other.lane == step.lane):
                yield other.launch.operation, other.launch.part, *place
