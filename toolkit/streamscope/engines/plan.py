"""Plans: one run of a program under an engine, as a list of steps.

A plan is made once, from the program and the engine's rules, without a device. Lanes and events are numbers in it; `Prepared` binds it
to a device. Because a plan is data, a test can take a step out and show that the results are then wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from streamscope.arguments import whole_number
from streamscope.engine_entry import ENGINES
from streamscope.errors import EngineError, described
from streamscope.program.captured_graph import Edges
from streamscope.program.launch import HostCall, Launch, LaunchKind
from streamscope.program.operation import Operation, Program
from streamscope.words import a_kind, lane_prefix

MAIN = "main"
AUXILIARY = "aux"
COPY_IN = "copy in"
COPY_OUT = "copy out"
COMMUNICATION = "comm"
"""The stream of collectives, where an engine has one beside the main stream of each GPU."""
PEER_COPY = "peer copy"
_COPY_LANES = {LaunchKind.COPY_IN: COPY_IN, LaunchKind.COPY_OUT: COPY_OUT, LaunchKind.COPY_PEER: PEER_COPY}
MOST_STREAMS = 128
USUAL_STREAMS, _CAPTURED_STREAMS = 2, 12
"""Compute streams where nobody says how many: of programs of our own, and at most of captured code; see `most_streams`."""
FEWEST_EDGES, OWN_ORDER = "fewest edges", "the capture's own order"
"""Orders of captured code that are graphs on no streams: CUDA places their branches by itself."""

Estimate = Callable[[Launch], float]
"""How long a launch is expected to run, in ns."""

StreamOf = Callable[[Launch], int]
"""The compute stream of a kernel; 0 is the main one."""


@dataclass(frozen=True)
class Issue:
    """Put a launch on a lane. The parts of a collective stand one behind the other, and are put there together."""

    launch: Launch
    lane: int


@dataclass(frozen=True)
class RecordEvent:
    """Record an event on a lane."""

    event: int
    lane: int


@dataclass(frozen=True)
class WaitEvent:
    """Let a lane wait for an event; the host does not."""

    event: int
    lane: int


@dataclass(frozen=True)
class HostWait:
    """Let the host wait for an event."""

    event: int


@dataclass(frozen=True)
class Synchronize:
    """Let the host wait until a lane is empty."""

    lane: int


@dataclass(frozen=True)
class CallHost:
    """Call a host function."""

    call: HostCall


@dataclass(frozen=True)
class Replay:
    """Launch the graph that was captured from ``steps``, on lane 0."""

    steps: tuple[Step, ...]
    """Captured steps. Lane 0 is the capture's origin; every other lane forks from it and is joined back."""
    edges: Edges | None = None
    """Of captured code: for each operation those that it comes directly after. Where there is the raw graph of the capture, it is replayed
    with these edges. They order no more than the steps do."""

    @property
    def by_lanes(self) -> tuple[int, ...]:
        """The operations, lane by lane: in this order, a graph of captured code gets its nodes, so that each lane stays on a stream."""
        issued = [(step.lane, step.launch.operation) for step in self.steps if isinstance(step, Issue)]
        return tuple(operation for _, operation in sorted(issued, key=lambda one: one[0]))


Step = Issue | RecordEvent | WaitEvent | HostWait | Synchronize | CallHost | Replay


def predecessors(steps: Iterable[Step]) -> Iterator[tuple[int, Issue | CallHost, list[int]]]:
    """Yield each launch and host function with the launches that it comes right after: positions in ``steps``.

    Those are the last one of its lane, and those that its lane, or the host, has waited for through events since. Planners, predictions and
    recorders read plans by this walk. `kept_orders` and `auditing` check plans, and have walks of their own, so that no fault is shared.
    """
    ends: dict[int, list[int]] = {}  # For each lane, the predecessors of its next launch.
    recorded: dict[int, list[int]] = {}
    host: list[int] = []
    for position, step in enumerate(steps):
        match step:  # Patterns without fields: planners walk thousands of steps, and a pattern with fields takes twice as long.
            case Issue():
                yield position, step, ends.get(step.lane, [])
                ends[step.lane] = [position]
            case RecordEvent():
                # With the waits of the lane that no launch has followed: a wait for this event implies them.
                recorded[step.event] = ends.get(step.lane, [])
            case WaitEvent():
                ends[step.lane] = [*ends.get(step.lane, []), *recorded.get(step.event, [])]
            case HostWait():
                host += recorded.get(step.event, [])
            case CallHost():
                yield position, step, host
                host = []
            case _:  # A graph's own steps are another walk; a synchronisation orders the host alone.
                continue


def dependencies(steps: Iterable[Step]) -> dict[int, list[int]]:
    """Return the `predecessors` of each launch."""
    return {position: earlier for position, step, earlier in predecessors(steps) if isinstance(step, Issue)}


@dataclass(frozen=True)
class Plan:
    """Everything an engine does in one run of a program."""

    engine: str
    program: Program
    lanes: tuple[str, ...]
    """Names of the streams; lane numbers index it. Lane 0 is ``"main"``."""
    steps: tuple[Step, ...]
    events: int
    """How many events the steps use; those inside graphs become edges there."""
    scopes: bool = False
    """A user's operator that opens an auxiliary-stream scope gets an auxiliary stream; else its scope costs nothing."""
    order: str = ""
    """Of captured code: name of its order, ``"fewest edges"`` or ``"4 streams"``."""
    others: tuple[Plan, ...] = ()
    """Plans of other orders, of which a device that can measure them takes the fastest."""
    chosen: str = ""
    """Why it was taken of several: its time, those of the next fastest, and that of the capture's own order."""
    gpus: tuple[int, ...] = ()
    """The GPU of each lane; empty: all are GPU 0's."""

    def gpu(self, lane: int) -> int:
        """Return the GPU of a lane."""
        return self.gpus[lane] if self.gpus else 0

    def flat(self) -> Iterator[Step]:
        """Yield every step, those inside graphs among them."""
        for step in self.steps:
            yield step
            if isinstance(step, Replay):
                yield from step.steps

    @property
    def streams(self) -> int:
        """Number of streams with kernels on them; those that carry nothing but copies come on top."""
        return sum(not self.lanes[lane].endswith(_COPIES) for lane in self._lanes_of_launches)

    @property
    def streams_of_a_gpu(self) -> int:
        """Number of streams with kernels on the GPU that has the most of them; that of collectives alone comes on top."""
        lanes = [lane for lane in self._lanes_of_launches if not self.lanes[lane].endswith((*_COPIES, COMMUNICATION))]
        return max(Counter(map(self.gpu, lanes)).values(), default=0)

    @property
    def _lanes_of_launches(self) -> set[int]:
        return {step.lane for step in self.flat() if isinstance(step, Issue)}

    @property
    def communicates(self) -> bool:
        """Whether collectives have a stream of their own."""
        return any(name.endswith(COMMUNICATION) for name in self.lanes)

    def first_lane(self, role: str, gpu: int = 0) -> int | None:
        """Return the first lane of a GPU with a role, such as ``"aux"``, if there is one."""
        start = lane_prefix(gpu, several=bool(self.gpus)) + role
        return next((lane for lane, name in enumerate(self.lanes) if name.startswith(start)), None)

    @property
    def waits(self) -> int:
        """Number of event waits, of streams and of the host; those inside graphs are edges there."""
        return sum(isinstance(step, WaitEvent | HostWait) for step in self.flat())

    @property
    def counts(self) -> dict[str, int]:
        """Counts for a trace: streams of a GPU, events and waits; branches where its lanes are those of a graph on no streams.

        Of several GPUs their number, too, and 1 for a stream of communication.
        """
        streams = self.streams_of_a_gpu
        counts = {"streams": streams, "events": self.events, "waits": self.waits}
        if self.gpus:
            counts |= {"gpus": len({*self.gpus}), "communication": int(self.communicates)}
        return counts | {"branches": streams} if self.order in (FEWEST_EDGES, OWN_ORDER) else counts

    def without_wait(self, index: int) -> Plan:
        """Return the plan without its ``index``-th event wait: a race, for tests to find."""
        counter = iter(range(self.waits))

        def keep(step: Step) -> bool:
            return not isinstance(step, WaitEvent | HostWait) or next(counter) != index

        steps: list[Step] = []
        for step in self.steps:
            if isinstance(step, Replay):
                steps.append(Replay(tuple(inner for inner in step.steps if keep(inner))))
            elif keep(step):
                steps.append(step)
        return replace(self, steps=tuple(steps))


@dataclass(frozen=True)
class Lanes:
    """The lanes in use."""

    names: tuple[str, ...]
    """The main stream's first, then those of auxiliary streams, then those of copy streams."""
    numbers: Mapping[tuple[int, int], int]
    """The lane of each launch."""
    gpus: tuple[int, ...] = ()
    """The GPU of each; empty where all are GPU 0's."""

    def of(self, launch: Launch) -> int:
        """Return the lane of a launch."""
        return self.numbers[launch.operation, launch.part]


def lanes_in_use(operations: Sequence[Operation], stream_of: StreamOf, *, communication: bool = False) -> Lanes:
    """Give a lane to each compute stream that carries something, and to each direction of copies; main streams have one always.

    ``communication``: collectives are on a stream of their own on each GPU, not on its main stream.
    """
    launches = [launch for operation in operations for launch in operation.launches]
    several = any(launch.gpu for launch in launches)
    roles = _ROLE_OF | {LaunchKind.COLLECTIVE: _ROLES.index(COMMUNICATION) if communication else _COMPUTE}
    keyed = [
        (launch.gpu, _COMPUTE, stream_of(launch)) if launch.kind is LaunchKind.KERNEL else (launch.gpu, roles[launch.kind], 0)
        for launch in launches
    ]
    # Before all others those of GPU 0, whose main stream is lane 0.
    mains = {(gpu, _COMPUTE, 0) for gpu in ({0, *(launch.gpu for launch in launches)} if several else (0,))}
    keys = sorted(mains.union(keyed))
    number = {key: lane for lane, key in enumerate(keys)}
    further = Counter(gpu for gpu, role, stream in keys if role == _COMPUTE and stream)
    names, counts = list[str](), Counter[int]()
    for gpu, role, stream in keys:
        counts[gpu] += bool(role == _COMPUTE and stream)
        name = _ROLES[role] if role != _COMPUTE else _compute_name(counts[gpu] if stream else 0, further[gpu])
        names.append(lane_prefix(gpu, several=several) + name)
    numbers = {(launch.operation, launch.part): number[key] for launch, key in zip(launches, keyed, strict=True)}
    return Lanes(tuple(names), numbers, tuple(gpu for gpu, *_ in keys) if several else ())


def main_lanes(gpus: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names of one main stream for each GPU, and their GPUs as `Plan.gpus` has them."""
    if gpus == 1:
        return (MAIN,), ()
    return tuple(lane_prefix(gpu) + MAIN for gpu in range(gpus)), tuple(range(gpus))


_COMPUTE = 0
_ROLES = ("", COMMUNICATION, *_COPY_LANES.values())
"""Names of lanes by their role, after the compute streams."""
_COPIES = tuple(_COPY_LANES.values())
_ROLE_OF = {kind: _ROLES.index(name) for kind, name in _COPY_LANES.items()}


def _compute_name(number: int, further: int) -> str:
    if not number:
        return MAIN
    return AUXILIARY if further == 1 else f"{AUXILIARY} {number}"


def main_stream(launch: Launch) -> int:
    """Put every kernel on the main stream."""
    return 0


def own_branches(operations: Sequence[Operation], edges: Edges) -> StreamOf:
    """Put the kernels of captured code on as many streams as it takes to order nothing that the edges do not order.

    A kernel goes on the stream that ends with one of its predecessors, else on one that ends with something it comes after anyway, else on
    a new one. Beyond `MOST_STREAMS`, which is how many kernels a GPU runs at a time, it goes on the one that was used longest ago.
    """
    known: dict[int, dict[int, int]] = {}  # Of each operation: up to which place it comes after each stream's.
    ends: list[int] = []
    lengths: list[int] = []
    streams: dict[int, int] = {}
    for operation, earlier_ones in zip(operations, edges, strict=True):
        before = dict(known[earlier_ones[0]]) if earlier_ones else {}
        for earlier in earlier_ones[1:]:
            for stream, place in known[earlier].items():
                if place > before.get(stream, 0):
                    before[stream] = place
        known[operation.id] = before
        if all(launch.kind is LaunchKind.KERNEL for launch in operation.launches):
            follows = (stream for stream, end in enumerate(ends) if end in earlier_ones)
            implied = (stream for stream, length in enumerate(lengths) if before.get(stream) == length)
            another = len(ends) if len(ends) < MOST_STREAMS else ends.index(min(ends))
            stream = next(follows, next(implied, another))
            if stream == len(ends):
                ends.append(-1)
                lengths.append(0)
            ends[stream], lengths[stream] = operation.id, lengths[stream] + 1
            before[stream], streams[operation.id] = lengths[stream], stream
    return lambda launch: streams.get(launch.operation, 0)


def plan_for(program: Program, engine: str, estimate: Estimate, streams: int | None) -> Plan:
    """Let the engine of that name plan a program.

    Raises
    ------
    EngineError
        An engine of another package failed, or its plan is no plan of that engine.
    """
    try:
        plan: Plan = ENGINES[engine].plan(program, estimate, streams=streams)
        mistake = "" if engine in ENGINES.own else _mistake(plan, engine)
    except Exception as error:
        if engine in ENGINES.own:
            raise
        raise _no_plan(program, engine, described(error)) from error
    if mistake:
        raise _no_plan(program, engine, mistake)
    return plan


def _no_plan(program: Program, engine: str, why: str) -> EngineError:
    return EngineError(f"{ENGINES.named(engine)} failed to plan {program.name!r}: {why}", hint="choose other engines")


def _mistake(plan: object, engine: str) -> str:
    """Return a reason why a guest's plan cannot be run; empty where there is none."""
    if not isinstance(plan, Plan):
        return f"it returned {a_kind(plan)}, not a Plan"
    if plan.engine != engine:  # Results would be told and stored as another engine's.
        return f"its plan names {plan.engine!r} as its engine"
    if len(plan.gpus) not in (0, len(plan.lanes)):
        return f"it names the GPUs of {len(plan.gpus)} of its {len(plan.lanes)} lanes"
    for step in plan.flat():
        if not isinstance(step, Step):
            return f"{a_kind(step)} is no step"
        if getattr(step, "lane", 0) not in range(len(plan.lanes)):
            return f"{type(step).__name__} names lane {step.lane!r} of {len(plan.lanes)}"  # type: ignore[union-attr]
        # Parts of collectives are looked at by `check_collectives`.
        if isinstance(step, Issue) and step.launch.collective is None and step.launch.gpu != plan.gpu(step.lane):
            return f"it puts {step.launch}, which is GPU {step.launch.gpu}'s, on a stream of GPU {plan.gpu(step.lane)}"
    for step in plan.steps:  # Events inside graphs become edges.
        if isinstance(step, RecordEvent | WaitEvent | HostWait) and step.event not in range(plan.events):
            return f"{type(step).__name__} names event {step.event!r} of {plan.events}"
    return ""


def checked_streams(streams: int | None) -> int | None:
    """Return a number of compute streams that was asked for; None leaves it to `most_streams`."""
    return None if streams is None else whole_number("streams", streams, 1, MOST_STREAMS)


def most_streams(program: Program, streams: int | None) -> int:
    """Return how many compute streams a plan may use: as many as were asked for, else 2, and up to 12 of captured code."""
    asked = checked_streams(streams)
    return asked or (_CAPTURED_STREAMS if program.captured else USUAL_STREAMS)
