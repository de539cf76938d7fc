"""Scheduling: independent operations spread over N streams, so that nothing holds up the critical path.

List scheduling after HEFT (Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
computing", IEEE TPDS 13(3), 2002): tasks by upward rank, each where it is done first, with what a wait costs. Two things differ for
streams: a chain is one task, because a change of stream within it can win nothing and needs an event; and the host, which issues
everything, is a resource like a stream. Several schedules are made in this way, and the plan with the shortest predicted makespan is taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamscope.devices.cost_model import CostModel
from streamscope.engines.communication_order import by_priority, has_priorities
from streamscope.engines.makespan_estimate import makespan_ns, reference_model
from streamscope.engines.plan import Estimate, Plan, StreamOf, main_stream, most_streams
from streamscope.engines.transitive_reduction import with_fewer_waits
from streamscope.order.graph import DependencyGraph
from streamscope.program.captured_graph import COMMUNICATION, Edges
from streamscope.program.launch import HostCall, Launch, LaunchKind
from streamscope.program.operation import Operation, Program

_WORTH = 0.01
"""A gain below this share of the makespan is not worth a stream: the prediction is not that good."""

_MakePlan = Callable[[Sequence[Operation], StreamOf], Plan]
"""Makes a plan of operations, in the order of their issue, and the stream of each kernel."""


@dataclass(frozen=True)
class Schedule:
    """In which order operations are issued, and where."""

    order: tuple[int, ...]
    """Positions of operations in the program."""
    streams: Mapping[tuple[int, int], int]
    """The compute stream of each launch; that of a copy does not count."""

    def stream_of(self, launch: Launch) -> int:
        """Return the compute stream of a launch."""
        return self.streams[launch.operation, launch.part]

    @property
    def width(self) -> int:
        """Number of compute streams."""
        return max(self.streams.values(), default=0) + 1


@dataclass(frozen=True)
class OrderingCosts:
    """Times that ordering costs beside the kernels themselves, in ns.

    The host's calls do not count, or short kernels would never be spread.
    """

    gap_ns: float
    """From the end of the work before a kernel to its start."""
    crossing_ns: float
    """On top of that, where that work is on another stream."""


def on_streams(model: CostModel) -> OrderingCosts:
    """Return the costs of work on streams."""
    return OrderingCosts(model.kernel_gap_ns, model.drain_ns)


def in_a_graph(model: CostModel) -> OrderingCosts:
    """Return the costs of work in a graph, where an edge costs the same within a stream and across."""
    return OrderingCosts(model.graph_node_gap_ns, 0.0)


def best_plan(
    program: Program, estimate: Estimate, streams: int | None, costs: Callable[[CostModel], OrderingCosts], make: _MakePlan
) -> Plan:
    """Return the plan with the shortest predicted makespan of those that use the most of ``streams`` compute streams.

    The user asked for streams in order to see their effect, slower or faster, so they are used wherever the program has independent
    work. Where nobody asked, captured code takes as many as are the fastest, at least two. Of plans that are as good (see `_WORTH`) it is
    the one with the fewest waits.

    Tried are one stream and then two, four and so on, each with the operations in program order and by rank. With two streams or more,
    auxiliary scopes are on an auxiliary stream in all of them.
    """
    most = most_streams(program, streams)
    prioritised = has_priorities(program)
    if most == 1 and not prioritised:
        return make(program.operations, main_stream)
    model = reference_model()
    # All orders are of the same launches.
    known_ns = {(launch.operation, launch.part): estimate(launch) for launch in program.launches()}

    def alone_ns(launch: Launch) -> float:
        return known_ns[launch.operation, launch.part]

    tried = _schedules(program, alone_ns, most, costs(model))
    if prioritised:
        tried = [replace(one, order=by_priority(program, one.order, one.streams, alone_ns)) for one in tried]
    plans = [make([program.operations[position] for position in schedule.order], schedule.stream_of) for schedule in tried]
    times_ns = [makespan_ns(plan, alone_ns, model) for plan in plans]
    widest = max(plan.streams for plan in plans)
    least = min(2, widest) if streams is None else widest
    asked = [(plan, time_ns) for plan, time_ns in zip(plans, times_ns, strict=True) if plan.streams >= least]
    # Within this share, predictions do not tell plans apart.
    enough_ns = min(time_ns for _, time_ns in asked) * (1 + _WORTH)
    return min((plan for plan, time_ns in asked if time_ns <= enough_ns), key=lambda plan: plan.waits)


def schedules_in_a_graph(program: Program, estimate: Estimate, counts: Sequence[int]) -> Iterator[tuple[str, Schedule, Edges]]:
    """Yield schedules of captured code on at most so many compute streams, two or more: by rank, and in program order.

    Either is made with streams that may begin together, and with streams that begin one after another.
    Each comes with what it is called and with the edges of its graph, which has the fewest waits between streams that take no time.
    """
    model = reference_model()
    found = in_a_graph(model)

    def launch_ns(launch: Launch) -> float:
        return estimate(launch) + found.gap_ns

    needed = tuple(operation.reads for operation in program.operations)
    launches = [next(iter(operation.launches)) for operation in program.operations]
    durations_ns = [estimate(launch) for launch in launches]
    graph = DependencyGraph(program.operations, [duration_ns + found.gap_ns for duration_ns in durations_ns])
    orders = {"": tuple(graph.by_rank()), " in program order": tuple(range(len(program.operations)))}
    tried: list[tuple[str, Mapping[tuple[int, int], int]]] = []
    links = [int(COMMUNICATION in operation.attributes) for operation in program.operations]
    if any(links):
        lanes = {(launch.operation, launch.part): link for launch, link in zip(launches, links, strict=True)}
        beside = Schedule(orders[" in program order"], lanes)
        spread = with_fewer_waits(beside.order, links, needed, durations_ns, found.gap_ns, found.gap_ns + model.graph_crossing_ns)
        yield "collectives beside kernels", replace(beside, order=spread.order), spread.edges
    for count in counts:
        # A graph's roots begin one after another, and what runs on another stream is waited for. Both shapes are worth a try.
        later_ns = [0.0, *(model.graph_crossing_ns + stream * model.graph_root_ns for stream in range(1, count))]
        for begun, begin_ns in (("", [0.0] * count), (" begun in turn", later_ns)):
            for name, order in orders.items():
                made = _Placing(graph, launch_ns, found, list(begin_ns)).schedule(order)
                if (name, made.streams) in tried:
                    continue
                tried.append((name, made.streams))
                streams = [made.stream_of(launch) for launch in launches]
                spread = with_fewer_waits(made.order, streams, needed, durations_ns, found.gap_ns, found.gap_ns + model.graph_crossing_ns)
                yield f"{count} streams{name}{begun}", replace(made, order=spread.order), spread.edges


def may_open_scopes(program: Program) -> bool:
    """Tell whether a function of the user's own may open an auxiliary scope when it is called; our own kernels cannot."""
    return any(launch.library for launch in program.launches())


def _is_plain(operation: Operation) -> bool:
    """Tell whether an operation is kernels only, none of them in an auxiliary scope."""
    return bool(operation.launches) and all(one.kind is LaunchKind.KERNEL and not one.auxiliary for one in operation.launches)


def _schedules(program: Program, estimate: Estimate, most: int, costs: OrderingCosts) -> list[Schedule]:
    """Return the schedules worth a try, from one stream on; auxiliary scopes are on a second one in all of them."""

    def launch_ns(launch: Launch) -> float:
        return estimate(launch) + costs.gap_ns

    graph = DependencyGraph(program.operations, [_duration_ns(operation, launch_ns) for operation in program.operations])
    orders = (tuple(range(len(program.operations))), tuple(graph.by_rank()))
    found = [Schedule(orders[0], {(launch.operation, launch.part): int(launch.auxiliary) for launch in program.launches()})]
    for count in _counts(most):
        made = [_Placing(graph, launch_ns, costs, [0.0] * count).schedule(order) for order in orders]
        found += [schedule for index, schedule in enumerate(made) if schedule not in (*found, *made[:index])]
        if max(schedule.width for schedule in made) < count:
            break  # The program has no use for more.
    return found


def _counts(most: int) -> list[int]:
    """Return 2, 4, 8 and so on up to ``most``, and that."""
    return [*(1 << exponent for exponent in range(1, (most - 1).bit_length())), most]


def _duration_ns(operation: Operation, launch_ns: Estimate) -> float:
    if isinstance(operation.work, HostCall):
        return operation.work.duration_ns
    durations_ns = [launch_ns(launch) for launch in operation.launches]
    return sum(durations_ns) if operation.collective is None else max(durations_ns)


_Place = tuple[int, int]
"""A GPU and one of its streams."""
_COPY, _COMMUNICATION = -1, -2
"""The stream of work on no compute stream, and that of collectives: the last two of each GPU."""


@dataclass
class _Placing:
    """The state of list scheduling: until when the host and each stream are taken; when each operation is done, and on which stream."""

    graph: DependencyGraph
    launch_ns: Estimate
    costs: OrderingCosts
    begin_ns: list[float]
    """When each compute stream of a GPU can begin."""
    host_ns: float = 0.0
    taken_ns: defaultdict[int, list[float]] = field(init=False)
    """Of each GPU, until when each of its streams is taken."""
    used: dict[int, int] = field(default_factory=dict)
    """How many streams of each GPU carry something."""
    done_ns: dict[int, float] = field(default_factory=dict)
    made_on: dict[int, _Place] = field(default_factory=dict)
    streams: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.taken_ns = defaultdict(lambda: [*self.begin_ns, 0.0, 0.0])

    def schedule(self, order: tuple[int, ...]) -> Schedule:
        """Place all operations, in a topological order."""
        for position in order:
            self.put(position)
        return Schedule(order, self.streams)

    def put(self, position: int) -> None:
        """Place an operation and, with the first of a chain, the whole chain."""
        operation = self.graph.operations[position]
        if position in self.done_ns:
            return
        if isinstance(operation.work, HostCall):
            self.host_ns = max(self.host_ns, self._ready_ns(position, (0, _COPY))) + operation.work.duration_ns
            self.done_ns[position] = self.host_ns
        elif _is_plain(operation):
            self._put_chain(self.graph.chain(position, _is_plain))
        elif operation.collective is not None:
            self._put_collective(position, operation.launches)
        else:
            self._put_fixed(position)

    def _put_chain(self, chain: Sequence[int]) -> None:
        """Put a chain where it is done first; where that is the same, on the stream of its predecessor, else on the first."""
        launches = [launch for position in chain for launch in self.graph.operations[position].launches]
        gpu, home = launches[0].gpu, self._home(chain[0])
        # Streams that nothing is on yet are all alike, so one of them is enough to try.
        used = self.used.get(gpu, 1)
        choices = range(min(used + 1, len(self.begin_ns)))
        durations = [self.graph.duration_ns[position] for position in chain]
        ends = ((self._end_ns(chain[0], durations, (gpu, stream)), (gpu, stream) != home, stream) for stream in choices)
        end_ns, _, stream = min(ends)
        self.streams.update({(launch.operation, launch.part): stream for launch in launches})
        self.taken_ns[gpu][stream] = end_ns
        self.used[gpu] = max(used, stream + 1)
        self.done_ns.update(dict.fromkeys(chain, end_ns))
        self.made_on.update(dict.fromkeys(chain, (gpu, stream)))

    def _put_collective(self, position: int, parts: Sequence[Launch]) -> None:
        """Place a collective: it begins when the communication streams of all its GPUs are free."""
        free_ns = max(self.taken_ns[part.gpu][_COMMUNICATION] for part in parts)
        place = parts[0].gpu, _COMMUNICATION
        end_ns = max(self._ready_ns(position, place), free_ns, self.host_ns) + max(map(self.launch_ns, parts))
        self.streams.update({(part.operation, part.part): 0 for part in parts})
        for part in parts:
            self.taken_ns[part.gpu][_COMMUNICATION] = end_ns
        self.done_ns[position], self.made_on[position] = end_ns, place

    def _end_ns(self, first: int, durations: Sequence[float], place: _Place) -> float:
        """Return when a chain would be done on a stream: when the device is through with it, but not before the host has issued it."""
        gpu, stream = place
        on_device_ns = max(self._ready_ns(first, place), self.taken_ns[gpu][stream]) + sum(durations)
        return max(on_device_ns, self.host_ns + durations[-1])

    def _ready_ns(self, position: int, place: _Place) -> float:
        """Return when all is done that an operation follows on."""
        earlier = self.graph.before[position]
        crossing_ns = self.costs.crossing_ns
        return max((self.done_ns[one] + (0.0 if self.made_on.get(one, place) == place else crossing_ns) for one in earlier), default=0.0)

    def _home(self, position: int) -> _Place:
        """Return the stream of the latest operation that this one follows on."""
        latest = max(self.graph.before[position], key=self.done_ns.__getitem__, default=None)
        return (0, 0) if latest is None else self.made_on.get(latest, (0, 0))

    def _put_fixed(self, position: int) -> None:
        """Place an operation that has no choice: copies, and kernels on the main stream with a scope beside them."""
        launches = self.graph.operations[position].launches
        gpu = launches[0].gpu if launches else 0
        taken_ns = self.taken_ns[gpu]
        beside = min(range(1, len(self.begin_ns)), key=taken_ns.__getitem__)
        ready_ns = self._ready_ns(position, (gpu, 0))
        self.done_ns[position], self.made_on[position] = ready_ns, (gpu, _COPY)
        for launch in launches:
            stream = beside if launch.auxiliary else 0
            self.streams[launch.operation, launch.part] = stream
            end_ns = max(ready_ns, self.host_ns) + self.launch_ns(launch)
            if launch.kind is LaunchKind.KERNEL:
                end_ns = max(end_ns, taken_ns[stream] + self.launch_ns(launch))
                self.made_on[position] = gpu, 0
                taken_ns[stream], self.used[gpu] = end_ns, max(self.used.get(gpu, 1), stream + 1)
            self.done_ns[position] = max(self.done_ns[position], end_ns)
