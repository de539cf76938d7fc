"""From tasks to a predicted trace: an engine's own plan of them, carried out by the simulated device at the trace's prices.

Kernels of recorded code that take longer or shorter keep the order and the neighbours that they have without that. Simulated anew, a kernel
that ends earlier could let another one start beside a third, which is then slower, and a whole run might get longer by faster kernels.
So whatever begins does so as long after what it waits for as before, and never later where something takes less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.devices.cost_model import KernelCost, Residency
from streamscope.devices.product_times import HOPPER_THREADS
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import DEFAULT_ENGINE, ENGINES, GRAPH
from streamscope.engines.issuing import repeating_steps
from streamscope.engines.plan import Plan, lanes_in_use, own_branches, plan_for
from streamscope.measuring.simulation import LEAST_NS, logged_without_data
from streamscope.predicting.calls import Host
from streamscope.predicting.issued import as_issued, last_wait_ns
from streamscope.predicting.tasks import Task, is_foreign
from streamscope.program.collective import Collective
from streamscope.program.launch import Cost, HostCall, Launch
from streamscope.program.operation import Operation, Program, Variable
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.recording.communication import communication_of
from streamscope.recording.origins import origins_of
from streamscope.trace.joins import call_rows, correlated
from streamscope.trace.origins import Origins, Trait
from streamscope.trace.spans import DEVICE_KINDS, HOST_KINDS, SpanKind, SpanTable
from streamscope.trace.trace import Trace

_TOKEN = ArraySpec((1,), np.dtype(np.uint8))
_AUXILIARY, _FIXED, _LIBRARY = Trait.AUXILIARY, Trait.FIXED, Trait.LIBRARY  # Named, a flag takes as long to find as to look at.


@dataclass(frozen=True)
class TakenPrices:
    """Costs of tasks, for the simulated device; by the task's position, which is the only variable that its launch writes.

    ``sharing`` says whether kernels beside each other slow each other: those whose times are of a run beside these very neighbours do not.
    """

    tasks: Sequence[Task]
    places: dict[tuple[int, int], int]
    host: Host
    sharing: bool = True

    def call_ns(self, launch: Launch) -> float:
        """Return the host's time for launching it: the trace's, else the model's."""
        call_ns = self.task(launch).call_ns
        if launch.collective is not None and math.isnan(call_ns):
            known = self._call_of_last(launch.collective, launch.operation)
            count = len(launch.collective.gpus)
            return 0.0 if known else self.host.links.call_ns(count) / count
        return self.host.model.call_ns(launch) if math.isnan(call_ns) else call_ns

    def _call_of_last(self, collective: Collective, operation: int) -> bool:
        """Tell whether the trace has the call that issued a collective: the last part's."""
        last = self.tasks[self.places[operation, len(collective.gpus) - 1]]
        return not math.isnan(last.call_ns)

    def tail_ns(self, launch: Launch) -> float:
        """Return how much of that is left when it is on the stream."""
        if not math.isnan(tail_ns := self.task(launch).tail_ns):
            return tail_ns
        return min(self.host.tails_ns.get(launch.name, 0.0), self.call_ns(launch))

    def pieces(self, launch: Launch) -> Sequence[KernelCost]:
        """Return its kernels as the trace has them."""
        task = self.task(launch)
        return [self._priced(piece, task.factor, library=task.has(_LIBRARY)) for piece in task.pieces]

    def _priced(self, piece: KernelCost, factor: float, *, library: bool) -> KernelCost:
        alone_ns = max(piece.alone_ns * factor, LEAST_NS)
        if not self.sharing:
            return KernelCost(alone_ns, piece.cost, Residency(0.0, 0.0))
        # A kernel's time is what the shortest takes, in which others can run beside it, and what it works.
        busy = max(0.0, 1 - self.host.model.working_kernel_ns / alone_ns)
        return KernelCost(alone_ns, piece.cost, self._held(piece, busy, library=library))

    def _held(self, piece: KernelCost, busy: float, *, library: bool) -> Residency:
        model = self.host.model
        if not library:
            return model.residency(piece.cost, busy)
        # Either holds what it holds until it ends. Else wide products beside each other would come out 18 % short.
        if piece.cost.threads < HOPPER_THREADS:
            return model.residency(piece.cost, 1.0)
        multiprocessors = min(piece.cost.blocks, model.multiprocessors)
        return Residency(multiprocessors, multiprocessors * model.threads_per_multiprocessor, whole=True)

    def task(self, launch: Launch) -> Task:
        """Return the task of a launch."""
        return self.tasks[self.places[launch.operation, launch.part]]


def program_of(name: str, tasks: Sequence[Task]) -> tuple[Program, dict[tuple[int, int], int]]:
    """Return a program of tasks, and the position of the task of each operation and part.

    Every task writes a variable of its own and reads those of the tasks that it comes after, so that the program's order is theirs.
    """
    operations: list[Operation] = []
    places: dict[tuple[int, int], int] = {}
    for _, group in groupby(enumerate(tasks), key=lambda item: item[1].place[0] if item[1].place[0] >= 0 else -1 - item[0]):
        members, number = list(group), len(operations)
        works = tuple(_work(task, number, part, position) for part, (position, task) in enumerate(members))
        places.update({(number, part): position for part, (position, _) in enumerate(members)})
        own = {position for position, _ in members}
        reads = sorted({variable for work in works for variable in work.reads} - own)
        work = works[0] if isinstance(works[0], HostCall) else tuple(one for one in works if isinstance(one, Launch))
        operations.append(Operation(number, members[0][1].name, tuple(reads), tuple(sorted(own)), {}, "", work))
    variables = tuple(Variable(position, task.name, _TOKEN, MemoryPlace.DEVICE) for position, task in enumerate(tasks))
    captured: tuple[tuple[int, ...], ...] = ()
    if all(task.has(Trait.CAPTURED) for task in tasks):
        number_of = {position: number for (number, _), position in places.items()}
        captured = tuple(tuple(sorted({number_of[position] for position in operation.reads})) for operation in operations)
    return Program(name, variables, tuple(operations), (), (), captured=captured), places


def _work(task: Task, operation: int, part: int, position: int) -> Launch | HostCall:
    if task.on_host:
        return HostCall(operation, task.name, task.after, (position,), tuple, task.call_ns)
    cost = task.pieces[0].cost if task.pieces else Cost(0)
    return Launch(
        operation, part, task.name, task.kind, task.after, (position,), cost, None,
        auxiliary=task.has(_AUXILIARY), capturable=not task.has(_FIXED), library=task.has(_LIBRARY),
        why_not="it could not in the trace", gpu=task.gpu, to_gpu=task.to_gpu or 0, collective=task.collective,
    )  # fmt: skip


def simulated(source: Trace, tasks: Sequence[Task], engine: str, streams: int | None, host: Host) -> Trace:
    """Simulate tasks under an engine; the spans have the origins of the ``source``.

    Times, order and calls are the simulated device's; names, sizes and costs of kernels are the source's. Code that is not ours is issued
    under "async" as it was. Under other engines, its kernels keep their order and what they lose to neighbours, however long they take, and
    those with a factor of 0 are left out.
    """
    program, places = program_of(source.info.program, tasks)
    issued = engine == DEFAULT_ENGINE and is_foreign(source)
    host = replace(host, model=as_issued(host.model, source.spans), last_wait_ns=last_wait_ns(source)) if issued else host
    kept = is_foreign(source) and not issued and any(task.factor != 1 for task in tasks)
    prices = TakenPrices([replace(task, factor=1.0) for task in tasks] if kept else tasks, places, host, sharing=not issued)

    def planned_ns(launch: Launch) -> float:
        return prices.task(launch).planned_ns

    plan = _own_streams(program) if issued else plan_for(program, engine, planned_ns, streams)
    usual_ns = 0.0 if issued else host.model.graph_node_gap_ns if ENGINES[engine].traits == {GRAPH} else host.model.kernel_gap_ns

    def waits(launch: Launch, _: str) -> tuple[float, float]:
        return max(0.0, prices.task(launch).gap_ns - usual_ns), 1.0

    device = SimulatedDevice(host.model, prices=prices, delays=waits, gpus=program.gpus, links=host.links)
    recorded, info = logged_without_data(plan, device, streams)
    if kept:
        rows = np.flatnonzero(recorded.is_kind(DEVICE_KINDS))
        of_rows = zip(recorded.operation[rows].tolist(), recorded.part[rows].tolist(), strict=True)
        recorded = retimed(recorded, {row: places[place] for row, place in zip(rows.tolist(), of_rows, strict=True)}, tasks)
    named, here, there = _named(recorded, source.spans, tasks, places)
    spans = _with_last_wait(named, round(host.last_wait_ns))
    collectives, peers = communication_of(program, recorded)
    sites = source.sites.copied(here, there)
    return Trace(spans, info, _origins(source, plan, tasks, places), collectives=collectives, peers=peers, sites=sites)


def _own_streams(program: Program) -> Plan:
    """Return a plan that issues code that is not ours as it was issued: each branch on a stream of its own."""
    lanes = lanes_in_use(program.operations, own_branches(program.operations, program.captured))
    steps, events = repeating_steps(program.operations, len(lanes.names), lanes.of, runs_apart=True)
    return Plan(DEFAULT_ENGINE, program, lanes.names, tuple(steps), events)


def _with_last_wait(spans: SpanTable, longer_ns: int) -> SpanTable:
    """Return spans of a run whose last wait takes so much longer."""
    end_ns = np.array(spans.end_ns)
    last = int(np.flatnonzero(spans.kind == SpanKind.SYNC)[-1])
    end_ns[last] += longer_ns
    return replace(spans, end_ns=end_ns)


def _named(
    spans: SpanTable, source: SpanTable, tasks: Sequence[Task], places: dict[tuple[int, int], int]
) -> tuple[SpanTable, list[int], list[int]]:
    """Return predicted spans with kinds, operations, parts, names, symbols and sizes as in the source; their rows, and those there."""
    kept = ("kind", "operation", "part", "symbol", "blocks", "threads", "bytes", "flops")
    columns = {name: np.array(getattr(spans, name)) for name in kept}
    names = list(spans.names)
    symbols: dict[int, int] = {}
    pieces: dict[int, int] = {}
    here, there = list[int](), list[int]()
    device = spans.is_kind(DEVICE_KINDS)
    for row in np.flatnonzero(spans.operation >= 0).tolist():
        position = places[int(spans.operation[row]), int(spans.part[row])]
        task = tasks[position]
        columns["operation"][row], columns["part"][row] = task.place
        if not device[row] or not task.rows:
            continue
        nth = pieces[position] = pieces.get(position, -1) + 1
        origin = task.rows[min(nth, len(task.rows) - 1)]
        here.append(row)
        there.append(origin)
        cost = task.pieces[nth].cost
        columns["bytes"][row], columns["flops"][row] = cost.bytes, cost.flops
        columns["blocks"][row], columns["threads"][row] = source.blocks[origin], source.threads[origin]
        columns["kind"][row] = source.kind[origin]
        if (symbol := int(source.symbol[origin])) >= 0:
            if symbol not in symbols:
                text = source.names[symbol]
                symbols[symbol] = names.index(text) if text in names else len(names)
                names += [text] if symbols[symbol] == len(names) else []
            columns["symbol"][row] = symbols[symbol]
    return replace(spans, names=tuple(names), **columns), here, there  # type: ignore[arg-type]


def _row(task: Task) -> tuple[int, int, int, int]:
    return (*task.place, int(task.trait), 0 if math.isnan(task.expected_ns) else int(task.expected_ns))


def _origins(source: Trace, plan: Plan, tasks: Sequence[Task], places: dict[tuple[int, int], int]) -> Origins:
    of_source = replace(source.origins, row_waits=source.origins.row_waits[:0])
    nothing = Origins()
    if any(task.place[0] < 0 for task in tasks):
        return replace(of_source, waits=nothing.waits, complete=False, launches=nothing.launches, dependencies=nothing.dependencies)
    made = origins_of(plan, lambda launch: 0.0)
    old = np.array([tasks[places[place]].place for place in sorted(places)], np.int64).reshape(-1, 2)
    index = {place: row for row, place in enumerate(sorted(places))}

    def renamed(table: IntArray) -> IntArray:
        pairs = [old[[index[operation, part] for operation, part in table[:, side : side + 2].tolist()]] for side in (0, 2)]
        return np.hstack([pair.reshape(-1, 2) for pair in pairs]) if len(table) else table

    known = len(made.launches) > 0
    return replace(
        of_source,
        waits=renamed(made.waits) if known else made.waits[:0],
        complete=made.complete and known,
        launches=np.array([_row(task) for task in tasks], np.int64).reshape(-1, 4) if known else made.launches,
        dependencies=renamed(made.dependencies) if known else made.dependencies,
    )


def retimed(spans: SpanTable, position_of: Mapping[int, int], tasks: Sequence[Task]) -> SpanTable:
    """Return a simulated run in which tasks take their factors as long, and those with a factor of 0 are left out.

    ``position_of`` says of rows on the device which task they are.
    """
    run = _Run(spans, position_of, tasks)
    for row, is_end in _moments(spans):
        run.end(row) if is_end else run.start(row)
    start_ns, end_ns = np.array(run.start_ns, np.int64), np.array(run.end_ns, np.int64)
    graphs = np.flatnonzero(spans.kind == SpanKind.GRAPH)
    left = np.array([row not in position_of or tasks[position_of[row]].factor > 0 for row in range(len(spans))], bool)
    start_ns[graphs], end_ns[graphs] = graph_extents(spans, start_ns, end_ns, left)
    order = np.lexsort((end_ns, start_ns))
    order = order[left[order]]
    return replace(spans.select(order), start_ns=start_ns[order], end_ns=end_ns[order])


def graph_extents(spans: SpanTable, start_ns: IntArray, end_ns: IntArray, left: npt.NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """Return when the replays of graphs begin and end: with their nodes."""
    graphs, nodes = np.flatnonzero(spans.kind == SpanKind.GRAPH), np.flatnonzero(spans.is_kind(DEVICE_KINDS) & left)
    replay = correlated(spans, nodes, graphs)
    nodes, replay = nodes[replay >= 0], replay[replay >= 0]
    first_ns, last_ns = end_ns.copy(), start_ns.copy()  # Of a replay without nodes, nothing.
    first_ns[graphs], last_ns[graphs] = np.iinfo(np.int64).max, 0
    np.minimum.at(first_ns, replay, start_ns[nodes])
    np.maximum.at(last_ns, replay, end_ns[nodes])
    return np.minimum(first_ns, last_ns)[graphs], last_ns[graphs]


def _moments(spans: SpanTable) -> list[tuple[int, bool]]:
    """Return starts of spans, and ends of the host's waits, in the order in which they came, those of causes in front."""
    waits = spans.kind == SpanKind.SYNC
    rows = np.concatenate([np.arange(len(spans)), np.flatnonzero(waits)])
    is_end = np.arange(len(rows)) >= len(spans)
    when_ns = np.where(is_end, spans.end_ns[rows], spans.start_ns[rows])
    # At one time: work on the device, then the wait that notices its end, then the host's next call.
    rank = np.where(is_end, 1, np.where(spans.is_kind(HOST_KINDS)[rows], 2, 0))
    order = np.lexsort((rows, rank, when_ns))
    return list(zip(rows[order].tolist(), is_end[order].tolist(), strict=True))


class _Run:
    """Old and new times of spans; ``start`` and ``end`` are called in the order of the old ones."""

    def __init__(self, spans: SpanTable, position_of: Mapping[int, int], tasks: Sequence[Task]) -> None:
        device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
        self._old_start_ns, self._old_end_ns = spans.start_ns.tolist(), spans.end_ns.tolist()
        self.start_ns, self.end_ns = list(self._old_start_ns), list(self._old_end_ns)
        self._lane, self._waits = spans.lane.tolist(), (spans.kind == SpanKind.SYNC).tolist()
        self._on_device, self._on_host = spans.is_kind(DEVICE_KINDS).tolist(), spans.is_kind(HOST_KINDS).tolist()
        self._call: Mapping[int, int] = dict(zip(device.tolist(), call_rows(spans, device).tolist(), strict=True))
        self._position_of, self._tasks = position_of, tasks
        self._row_of: dict[int, int] = {}  # The last row of a task up to now.
        self._last_on: dict[int, int] = {}  # The last row on a lane.
        self._by_end: IntArray = device[np.argsort(spans.end_ns[device], kind="stable")]
        self._noticed = 0
        self._old_done_ns, self._done_ns = [], []  # type: tuple[list[int], list[int]]

    def start(self, row: int) -> None:
        """Let a span begin as long after its predecessors as before."""
        if self._on_device[row]:
            position = self._position_of[row]
            task = self._tasks[position]
            earlier = [self._row_of[one] for one in task.after if one in self._row_of]
            self._begin(row, [*earlier, *self._before_on_lane(row)], self._call[row])
            length_ns = round((self._old_end_ns[row] - self._old_start_ns[row]) * task.factor)
            self._row_of[position] = row
            if not task.factor:  # What comes after it comes after what it came after.
                self.start_ns[row] = max((self.end_ns[one] for one in (*earlier, *self._before_on_lane(row))), default=0)
        elif self._on_host[row]:
            self._begin(row, self._before_on_lane(row), -1)
            length_ns = self._old_end_ns[row] - self._old_start_ns[row]
        else:
            return
        self.end_ns[row] = self.start_ns[row] + length_ns
        self._last_on[self._lane[row]] = row

    def end(self, row: int) -> None:
        """Let a wait of the host end as long after the last work before it as before."""
        while self._noticed < len(self._by_end) and self._old_end_ns[self._by_end[self._noticed]] <= self._old_end_ns[row]:
            ended = int(self._by_end[self._noticed])
            self._old_done_ns.append(self._old_end_ns[ended])
            self._done_ns.append(max(self.end_ns[ended], self._done_ns[-1] if self._done_ns else 0))
            self._noticed += 1
        if not self._done_ns:
            return
        returned_ns = self._old_end_ns[row] - max(self._old_start_ns[row], self._old_done_ns[-1])
        self.end_ns[row] = max(self.start_ns[row], self._done_ns[-1]) + returned_ns

    def _before_on_lane(self, row: int) -> list[int]:
        return [self._last_on[self._lane[row]]] if self._lane[row] in self._last_on else []

    def _begin(self, row: int, earlier: Sequence[int], call: int) -> None:
        """Begin after the ends of earlier spans and the start of the call."""
        old_ns, new_ns = [0], [0]
        for one in earlier:
            if self._old_end_ns[one] <= self._old_start_ns[row]:
                old_ns.append(self._old_end_ns[one])
                new_ns.append(self.end_ns[one])
        if call >= 0:
            old_ns.append(self._old_start_ns[call])
            new_ns.append(self.start_ns[call])
        self.start_ns[row] = max(new_ns) + self._old_start_ns[row] - max(old_ns)
