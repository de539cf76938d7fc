"""A plan bound to a device: memory allocated, arguments packed, graphs captured; prepared once, run many times."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import InitVar, dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from streamscope.arrays import Array
from streamscope.devices import device_for
from streamscope.devices.protocol import Buffer, Call, Device, Event, Graph, Stream
from streamscope.engines import engine_names
from streamscope.engines.binding import (
    NO_STEP,
    Binder,
    BoundStep,
    captured,
    capturing,
    do_nothing,
    name_launch,
    run_all,
    settle,
    variables_of,
)
from streamscope.engines.collective_order import check_collectives, check_gpus
from streamscope.engines.graph_dual import fastest
from streamscope.engines.graphs import GraphCounts, GraphView, Segment, segments_of
from streamscope.engines.host_totals import HostSums, HostTotals
from streamscope.engines.nvtx_ranges import RANGES
from streamscope.engines.plan import Issue, Plan, RecordEvent, Replay, Synchronize, WaitEvent, checked_streams, plan_for
from streamscope.engines.race_check import check_orders
from streamscope.engines.watched_runs import WatchedSteps
from streamscope.errors import DeviceError, EngineError, ProgramError
from streamscope.forks import foreign_lock, tell_children
from streamscope.interrupts import when_gone
from streamscope.program.aliasing import check_memory
from streamscope.program.operation import Program, Variable
from streamscope.program.variable import MemoryPlace, host_array, spec_of
from streamscope.progress import Progress
from streamscope.words import a_kind, counted


@dataclass(repr=False)
class Prepared:
    """A program prepared for one engine on one device.

    The first run is warm: graphs are not captured yet. The second captures them; from then on they are replayed. Several threads may use
    it, each after ``device.use()``; they take turns.

    Attributes
    ----------
    plan : Plan
    device : Device
    bound : list of BoundStep
        The plan's steps, bound.
    streams : dict of int to Stream
        The stream of each lane in use.
    notes : list of str
        What went another way than planned, for example a segment that could not be captured and so runs uncaptured.
    compute_streams : int
        How many compute streams the plan was allowed.
    graph_counts : GraphCounts
        How often graphs were instantiated and updated.
    lock : RLock
        Held while one thread loads, runs, waits or reads; a thread that holds it keeps a load, a run and what they leave together.
    """

    plan: Plan
    device: Device
    bound: list[BoundStep] = field(default_factory=list)
    streams: dict[int, Stream] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    compute_streams: int | None = None
    graph_counts: GraphCounts = field(default_factory=GraphCounts)
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _calls: list[Call] = field(default_factory=list)
    _runs: int = 0
    _unfilled: set[int] = field(default_factory=set)
    _to_capture: bool = True
    _aborts: int = 0
    """How often the device had aborted collectives when the latest run began; counted for a program that has some."""
    _filled: dict[int, int] = field(default_factory=dict)
    """The same count when inputs were filled, of those that such a program writes in place: a run that is aborted leaves anything there."""
    _former: dict[int, Graph] = field(default_factory=dict)
    _watched: WatchedSteps | None = None
    progress: InitVar[Progress | None] = None

    def __repr__(self) -> str:
        return f"<{self.program.name} prepared for {self.plan.engine} on {self.device.info.name}>"

    def __post_init__(self, progress: Progress | None) -> None:
        # First: a plan that misses an order gets no memory and never runs.
        check_orders(self.plan)
        check_gpus(self.program, self.device)
        check_collectives(self.plan, self.device)
        self._binder = Binder(self.plan, self.device, self.streams)
        self._binder.allocate()
        self._unfilled = set(self.program.inputs)
        self.host_sums = HostSums(f"{self.program.name}, {self.plan.engine}")
        self._communicates = self.program.gpus > 1 and any(operation.collective is not None for operation in self.program.operations)
        self._binder.pair_scopes()
        # Before the steps are bound, which would compile each kernel by itself.
        self.device.make_ready(self.program, progress)
        self.bound = [self._binder.bind(step) for step in self.plan.steps]
        self._calls = [bound.call for bound in self.bound]
        self._waited = [self.streams[lane] for lane in sorted(self._top_lanes())]
        self.notes += [self.plan.chosen] if self.plan.chosen else []
        self._outlive_runs()
        tell_children(self)

    @property
    def program(self) -> Program:
        """The program."""
        return self.plan.program

    @property
    def host_totals(self) -> HostTotals:
        """Running totals of the host's time by operation, over its runs; off until ``host_totals.start()``."""
        return HostTotals(self.host_sums)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The memory of its variables."""
        return tuple(self._binder.buffers.values())

    @property
    def memory(self) -> dict[str, int]:
        """Memory held for the program, in bytes, by purpose (see `TraceInfo.memory`); empty for captured code, which has its own."""
        if self.program.captured:
            return {}
        sizes = {
            place: sum(buffer.spec.nbytes for buffer in self._binder.buffers.values() if buffer.place is place) for place in MemoryPlace
        }
        held = {"variables_bytes": sizes[MemoryPlace.DEVICE], **self.device.memory_of(self.streams.values())}
        return {**held, "device_bytes": sum(held.values()), "host_bytes": sizes[MemoryPlace.HOST]}

    def load(self, inputs: Sequence[Any]) -> None:
        """Fill the program's inputs, blocking, after all that was issued is done.

        Raises
        ------
        ProgramError
            The number, a shape or a dtype does not fit. Where the program writes in place: an array that it writes is read-only, or shares
            memory with itself or with another one; or the program reshapes, and an array does not lie last axis fastest.
        """
        program = self.plan.program
        if not isinstance(inputs, Sequence):  # An array is not one: its rows are not meant.
            raise ProgramError(f"load wants a list of arrays, not {a_kind(inputs)}", hint="for one input: load([array])")
        if len(inputs) != len(program.inputs):
            raise ProgramError(f"program {program.name!r} takes {counted(len(program.inputs), 'input')}, got {len(inputs)}")
        check_memory(program, inputs)
        with self.lock:
            self.wait()
            for variable, values in zip(program.inputs, inputs, strict=True):
                array = host_array(values)
                _check_spec(program.variables[variable], array.shape, array.dtype)
                self.device.write(self._binder.buffers[variable], array)
            self._note_filled(program.inputs)

    def _note_filled(self, inputs: Iterable[int]) -> None:
        self._unfilled.difference_update(inputs)
        if self._communicates:
            self._filled.update(dict.fromkeys(self.program.written_inputs.intersection(inputs), self.device.collective_aborts))

    def rebind(self, inputs: Mapping[str, Any]) -> None:
        """Let memory of the user's take the place of inputs, without a copy; blocking, after all that was issued is done.

        Launches that use it are prepared again, and graphs that have them are captured again and updated, not instantiated.

        Parameters
        ----------
        inputs : mapping of str to array
            For each input, by name, an array in device memory (CuPy on CUDA, NumPy on the simulated device), or a buffer of the device;
            for inputs in host memory, a buffer. It must not overlap with other inputs that the program writes to, and is changed only
            while no run is under way; `load` writes there from now on.

        Raises
        ------
        ProgramError
            There is no such input, or shape or dtype do not fit.
        DeviceError
            The memory cannot be used in place.
        """
        if not isinstance(inputs, Mapping):
            names = ", ".join(repr(self.program.variables[variable].name) for variable in self.program.inputs)
            raise ProgramError(f"rebind wants arrays by the names of inputs, not {a_kind(inputs)}", hint=f"a dict with some of {names}")
        with self.lock:
            buffers = dict(self._adopted(name, memory) for name, memory in inputs.items())
            self.wait()
            touched = [bound for bound in self._flat() if not buffers.keys().isdisjoint(variables_of(bound.step, self.program))]
            with self._binder.replacing(buffers):
                # All are bound before any takes effect, so an error leaves calls and memory as they were.
                calls = [self._binder.bind(bound.step).call for bound in touched]
            self._note_filled(buffers)
            for bound, call in zip(touched, calls, strict=True):
                bound.call = call
            for index, bound in self._replays():
                if bound.graph is not None and not {id(one) for one in bound.inner}.isdisjoint(map(id, touched)):
                    # The next capture updates it, which is cheaper than to instantiate; until then the steps run uncaptured.
                    self._former[index] = bound.graph
                    bound.graph, bound.call, self._to_capture = None, partial(run_all, bound.inner), True
            self._calls = [bound.call for bound in self.bound]
            if self._runs > 1:
                self.capture()

    def retrace(self, program: Program) -> None:
        """Prepare another trace of the same function in place of this one, for example with other shapes; blocking, like `rebind`.

        Memory and arguments are made anew, and streams are kept. The second run from now on captures the graphs again, and updates those
        that there were where the device accepts that. What was loaded is gone. Until it succeeds, the memory of both traces is held; on an
        error nothing has changed.

        Raises
        ------
        ProgramError
            It is not a program.
        DeviceError
            An operation cannot run on the device, or memory is too small.
        """
        _check_program(program)
        with self.lock:
            self.wait()
            plan = planned(program, self.plan.engine, self.device, self.compute_streams)
            named = {self.plan.lanes[lane]: stream for lane, stream in self.streams.items()}
            streams = {lane: named[name] for lane, name in enumerate(plan.lanes) if name in named}
            former = self._former | {index: bound.graph for index, bound in self._replays() if bound.graph is not None}
            fresh = Prepared(plan, self.device, streams=streams, compute_streams=self.compute_streams)
            fresh.lock, fresh.graph_counts, fresh._former = self.lock, self.graph_counts, former
            fresh.host_sums = self.host_sums
            # It holds the memory of the former trace for as long as this object lives.
            self._finaliser.cancel()
            # All at once, when nothing can fail any more: an error above leaves this object as it was.
            vars(self).update(vars(fresh))
            self._outlive_runs()

    def twin(self) -> Prepared:
        """Return the same plan in the same memory and on the same streams, with launches that are bound anew.

        Its first run is warm and the second captures, as of any other. Run the two one after the other.
        """
        with self.lock:
            other: Prepared = copy(self)
            other.bound = [self._binder.bind(step) for step in self.plan.steps]
            other.notes, other.graph_counts, other._former = [], GraphCounts(), {}
            other._calls, other._runs, other._to_capture = [bound.call for bound in other.bound], 0, True
            other._outlive_runs()
        tell_children(other)
        return other

    def _leave_behind(self) -> None:
        """Refuse all that takes turns: this is a forked child (see `forks`)."""
        self.lock = foreign_lock(f"the prepared {self.program.name!r}")

    def _outlive_runs(self) -> None:
        """See to it that who lets this go while it runs gives the memory to others only when that is over."""
        self._finaliser = when_gone(self, partial(_let_finish, self.device, tuple(self.streams.values()), (self._binder, self.bound)))

    def run(self) -> None:
        """Issue one run; returns when all is issued, which for most engines is before it is done."""
        with self.lock:
            if self._to_capture and self._runs:
                self.capture()
            if self._communicates:
                self._aborts = self.device.collective_aborts
            call: Call | None = None
            try:
                if self.host_sums.counting or RANGES.on:
                    self._run_watched()
                else:
                    for call in self._calls:
                        call()
            except BaseException as error:
                name_launch(error, self.bound, call)
                settle(self.streams.values(), error)
                raise
            self._runs += 1

    def _run_watched(self) -> None:
        if self._watched is None or self._watched.of is not self._calls:
            self._watched = WatchedSteps.made(self._calls, self.bound, self.program)
        self._watched.run(self.host_sums, RANGES.opened())

    def ran(self) -> None:
        """Count a run whose steps a recorder carried out."""
        with self.lock:
            self._runs += 1
            if self._communicates:
                self._aborts = self.device.collective_aborts

    def put_back(self) -> None:
        """Undo the changes of captured code's runs, so that the next one begins as they did; blocking. Other programs are left."""
        if self.program.raw is not None:
            with self.lock:
                self.wait()
                self.program.raw.put_back()

    def wait(self) -> None:
        """Block the host until all that was issued is done; other threads issue nothing meanwhile."""
        with self.lock:
            for stream in self._waited:
                stream.synchronize()

    def abandon(self) -> None:
        """Never wait for it again, even when it goes: its work on the device does not end."""
        self._finaliser.cancel()

    def outputs(self) -> list[Array]:
        """Return copies of the program's outputs, after all that was issued is done.

        Raises
        ------
        EngineError
            It has not run yet, or an input was never filled.
        DeviceError
            Its collectives were aborted, in the latest run or since; or before that, and what it writes in place was not loaded since.
        """
        with self.lock:
            if not self._runs:
                raise EngineError(f"{self.program.name!r} has not run yet, so it has no results", hint="call run() first")
            if self._unfilled:
                raise EngineError(
                    f"{self.program.name!r} ran, but nothing was loaded into {self._names(self._unfilled)}",
                    hint="call load([...]) before run()",
                )
            self.wait()
            if self._communicates:
                self._check_whole()
            program, buffers = self.plan.program, self._binder.buffers
            return [program.result(variable, self.device.read(buffers[variable])) for variable in program.outputs]

    def _check_whole(self) -> None:
        """Raise a DeviceError if collectives were aborted: whoever waited has the error, and what was written meanwhile is undefined."""
        aborts, name = self.device.collective_aborts, self.program.name
        if aborts != self._aborts:
            raise DeviceError(f"collectives were aborted, so {name!r} has no results", hint="load its inputs, and run it again")
        lost = [variable for variable, before in self._filled.items() if before != aborts]
        if lost:
            raise DeviceError(
                f"collectives were aborted since {self._names(lost)} was loaded, which {name!r} writes in place, so it has no results",
                hint="load its inputs again, and run it",
            )

    def _names(self, variables: Iterable[int]) -> str:
        return ", ".join(sorted(self.program.variables[variable].name for variable in variables))

    def capture(self) -> None:
        """Capture the graphs that are not yet; update one that was there before, where that is possible, else instantiate.

        A segment that cannot be captured runs on uncaptured, with a note. A graph that is lost is captured again.
        """
        with self.lock:
            replays = list(self._replays())
            for index, bound in replays:
                if (bound.graph is None or bound.graph.lost) and not bound.why_not:
                    self._capture_segment(bound, self._former.get(index))
                self._former.pop(index, None)
            self._calls = [bound.call for bound in self.bound]
            # Whoever aborts collectives loses graphs that hold some.
            self._to_capture = self.program.gpus > 1 and bool(replays)

    def capturing(self) -> AbstractContextManager[list[Graph]]:
        """Capture the launches of the block on lane 0; the list then holds the graph. Whatever happens, no stream is left capturing."""
        return capturing(self.device, self.streams[0])

    def graph_with(self, replay: BoundStep, events: Mapping[int, Event], begins: Mapping[int, Event] = MappingProxyType({})) -> Graph:
        """Return another graph of a replay's steps with an event recorded behind some of them, by their index.

        ``begins`` are recorded ahead of parts of collectives. These are issued by the call of the last part, so what is recorded behind
        them comes behind that.
        """
        if (raw := self._raw_graph(replay, events)) is not None:
            return raw[0]
        late: list[int] = []
        with self.capturing() as graphs:
            for index, bound in enumerate(replay.inner):
                if index in begins and bound.stream is not None:
                    bound.stream.record(begins[index])
                bound.call()
                late.append(index)
                if bound.call is do_nothing:
                    continue
                for each in late:
                    stream = replay.inner[each].stream
                    if each in events and stream is not None:
                        stream.record(events[each])
                late = []
        return graphs[0]

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Which operations are in which graph, and why others are in none. Graphs are captured by the second run."""
        with self.lock:
            return segments_of(self)

    @property
    def graphs(self) -> tuple[GraphView, ...]:
        """The graphs that were captured, each with its nodes; they are captured by the second run."""
        return tuple(segment.graph for segment in self.segments if segment.graph is not None)

    def _capture_segment(self, bound: BoundStep, former: Graph | None) -> None:
        try:
            graph, bound.owners = self._raw_graph(bound) or captured(self.device, self.streams[0], bound.inner, self._describe, former)
        except EngineError as error:
            bound.why_not = error.message
            self.notes.append(f"a segment of {counted(len(bound.inner), 'step')} runs uncaptured: {error}")
            return
        # Operators of the user's may have launched nothing; then there is nothing to replay.
        bound.graph, bound.call = graph, partial(graph.launch, self.streams[0]) if graph.node_count else do_nothing
        refused = "" if graph is former else graph.refused
        self.graph_counts = self.graph_counts.after(updated=graph is former, refused=refused)
        if refused:
            self.notes.append(
                f"a graph of {counted(graph.node_count, 'node')} was instantiated anew, since its update was refused: {refused}"
            )

    def _raw_graph(self, bound: BoundStep, events: Mapping[int, Event] = MappingProxyType({})) -> tuple[Graph, tuple[int, ...]] | None:
        """Return the captured graph itself with the edges of a replay, and the step of each of its nodes; None where there is none.

        ``events`` are recorded behind the steps with these indices.
        """
        replay = bound.step if isinstance(bound.step, Replay) else None
        if self.program.raw is None or replay is None or replay.edges is None or self.device.info.simulated:
            return None
        steps = {inner.step.launch.operation: index for index, inner in enumerate(bound.inner) if isinstance(inner.step, Issue)}
        recorded = {one: events[index] for one, index in steps.items() if index in events}
        graph, operations = self.program.raw.graph(replay.edges, recorded, replay.by_lanes)
        return graph, tuple(steps.get(operation, NO_STEP) for operation in operations)

    def _replays(self) -> Iterator[tuple[int, BoundStep]]:
        return enumerate(bound for bound in self.bound if isinstance(bound.step, Replay))

    def _flat(self) -> Iterator[BoundStep]:
        for bound in self.bound:
            yield from bound.inner or (bound,)

    def _adopted(self, name: str, memory: Any) -> tuple[int, Buffer]:
        """Return the variable of an input, and the user's memory as its buffer."""
        inputs = {self.program.variables[variable].name: variable for variable in self.program.inputs}
        if name not in inputs:
            raise ProgramError(f"program {self.program.name!r} has no input {name!r}", hint=f"its inputs are {', '.join(inputs)}")
        declared = self.program.variables[inputs[name]]
        if hasattr(memory, "shape") and hasattr(memory, "dtype"):
            spec_of(memory, name)  # Devices look at bytes, which an array of objects does not have.
        buffer = self.device.adopt(memory, declared.place)
        _check_spec(declared, buffer.spec.shape, buffer.spec.dtype)
        gpu = getattr(buffer, "gpu", None)  # None: of a device with one GPU, or memory that any GPU may use.
        if gpu not in (None, declared.gpu) and buffer.spec.size:
            raise ProgramError(f"input {name!r} lies on GPU {declared.gpu}, the array on GPU {gpu}", hint="copy it there, or use load")
        if buffer.place is not declared.place:
            raise ProgramError(f"input {name!r} lies in {declared.place.value} memory, the buffer does not", hint="see device.allocate")
        return declared.id, buffer

    def _describe(self, bound: BoundStep) -> str:
        if isinstance(bound.step, Issue):
            return str(self.plan.program.operations[bound.step.launch.operation])
        return type(bound.step).__name__

    def _top_lanes(self) -> set[int]:
        lanes = {0}
        for step in self.plan.steps:
            if isinstance(step, Issue | RecordEvent | WaitEvent | Synchronize):
                lanes.add(step.lane)
        return lanes


def prepare_traced(
    program: Program,
    engine: str,
    device: str | Device,
    *,
    gpus: int | Sequence[int] | None = None,
    inputs: Sequence[object] = (),
    streams: int | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Plan a program for an engine and bind the plan to a device.

    ``program``: the result of ``trace`` of a program function.
    ``gpus``, ``inputs``: see `device_for`.
    ``streams``: compute streams that ``dual`` and ``graph-dual`` may use; see `most_streams`.
    ``progress``: is told how far it is.
    """
    (name,) = engine_names([engine])
    _check_program(program)
    opened = device_for(program, device, gpus=gpus, inputs=inputs)
    allowed = checked_streams(streams)
    if progress is not None:
        progress(f"preparing {name}", 0, 1)
    return Prepared(planned(program, name, opened, allowed), opened, compute_streams=allowed, progress=progress)


def planned(program: Program, engine: str, device: Device, streams: int | None) -> Plan:
    """Plan a program for an engine; of several orders of captured code, take the one that is the fastest on the device."""
    plan = plan_for(program.with_reuse if device.info.simulated else program, engine, device.estimate_ns, streams)
    return fastest(plan, device) if plan.others else plan


def _let_finish(device: Device, streams: Sequence[Stream], memory: object) -> None:
    """Wait for streams whose work uses memory, which is kept until then."""
    device.let_finish(streams)


def _check_program(program: object) -> None:
    if not isinstance(program, Program):
        raise ProgramError(f"prepare wants a traced program, not {a_kind(program)}", hint="call .trace(*inputs) on it")


def _check_spec(declared: Variable, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if shape != declared.spec.shape or dtype != declared.spec.dtype:
        raise ProgramError(f"input {declared.name!r} is {dtype.name}{list(shape)}, but was traced as {declared.spec}")
