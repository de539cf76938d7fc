"""A plan bound to a device: memory allocated, arguments packed, graphs captured; prepared once, run many times."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.devices import open_device
from streamscope.devices.protocol import Buffer, Call, Device, Event, Graph, Stream
from streamscope.engines import PLANNERS, engine_names
from streamscope.engines.capture import captured, capturing
from streamscope.engines.lanes import checked_streams
from streamscope.engines.plan import AUXILIARY, CallHost, HostWait, Issue, Plan, RecordEvent, Replay, Step, Synchronize, WaitEvent
from streamscope.errors import EngineError, OutOfMemoryError, ProgramError, StreamscopeError
from streamscope.graphs.counts import GraphCounts
from streamscope.graphs.segment import Segment, segments_of
from streamscope.graphs.view import GraphView
from streamscope.program.launch import Launch
from streamscope.program.operation import Program, Variable
from streamscope.program.variable import Place

Array = npt.NDArray[Any]


@dataclass
class Bound:
    """A step with what carries it out.

    Attributes
    ----------
    step : Step
    call : callable
        Carries the step out; for a `Replay`, launches the graph once there is one.
    stream : Stream, optional
        The stream it concerns; None for host functions and host waits.
    inner : tuple of Bound
        The steps that a `Replay` captures.
    graph : Graph, optional
        The captured graph of a `Replay`.
    owners : tuple of int
        For each node of the graph, the index in ``inner`` of the step that made it.
    why_not : str
        Why a `Replay` could not be captured, where that was tried.
    """

    step: Step
    call: Call
    stream: Stream | None = None
    inner: tuple[Bound, ...] = ()
    graph: Graph | None = None
    owners: tuple[int, ...] = ()
    why_not: str = ""


@dataclass
class Prepared:
    """A program prepared for one engine on one device.

    The first run is warm: graphs are not captured yet. The second captures them; from then on they are replayed. Several threads may use
    it, each after ``device.use()``; they take turns.

    Attributes
    ----------
    plan : Plan
    device : Device
    bound : list of Bound
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
        Held while one thread loads, runs or reads; a thread that holds it keeps a load, a run and what they leave together.
    """

    plan: Plan
    device: Device
    bound: list[Bound] = field(default_factory=list)
    streams: dict[int, Stream] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    compute_streams: int = 2
    graph_counts: GraphCounts = field(default_factory=GraphCounts)
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _buffers: dict[int, Buffer] = field(default_factory=dict)
    _events: dict[int, Event] = field(default_factory=dict)
    _calls: list[Call] = field(default_factory=list)
    _runs: int = 0
    _former: dict[int, Graph] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for variable in self.plan.program.variables:
            self._buffers[variable.id] = self._allocate(variable)
        self._stream(0)
        if self.plan.scopes:
            lane = self.plan.auxiliary
            self.device.pair(self._stream(0), self.device.stream(AUXILIARY) if lane is None else self._stream(lane))
        self.bound = [self._bind(step) for step in self.plan.steps]
        self._calls = [bound.call for bound in self.bound]
        self._waited = [self.streams[lane] for lane in sorted(self._top_lanes())]

    @property
    def program(self) -> Program:
        """The program."""
        return self.plan.program

    @property
    def memory(self) -> dict[str, int]:
        """Memory held for the program, in bytes, by what it is for (see `TraceInfo.memory`); empty for captured code, which has its own."""
        if self.program.runs_apart:
            return {}
        sizes = {place: sum(buffer.spec.nbytes for buffer in self._buffers.values() if buffer.place is place) for place in Place}
        held = {"variables_bytes": sizes[Place.DEVICE], **self.device.memory_of(self.streams.values())}
        return {**held, "device_bytes": sum(held.values()), "host_bytes": sizes[Place.HOST]}

    def load(self, inputs: Sequence[Any]) -> None:
        """Fill the program's inputs, blocking, after all that was issued is done.

        Raises
        ------
        ProgramError
            The number, a shape or a dtype does not fit.
        """
        program = self.plan.program
        if len(inputs) != len(program.inputs):
            raise ProgramError(f"program {program.name!r} takes {len(program.inputs)} inputs, got {len(inputs)}")
        with self.lock:
            self.wait()
            for variable, values in zip(program.inputs, inputs, strict=True):
                array = host_array(values)
                _check_spec(program.variables[variable], array.shape, array.dtype)
                self.device.write(self._buffers[variable], array)

    def rebind(self, inputs: Mapping[str, Any]) -> None:
        """Let memory of the user's take the place of inputs, without a copy; blocking, after all that was issued is done.

        Launches that use it are prepared again, and graphs that have them are captured again and updated, not instantiated.

        Parameters
        ----------
        inputs : mapping of str to array
            For each input, by name, an array in device memory (CuPy on CUDA, NumPy on the simulated device), or a buffer of the device;
            for inputs in host memory, a buffer. It must not overlap with other inputs that the program writes to, and is changed only
            while no run is under way.

        Raises
        ------
        ProgramError
            There is no such input, or shape or dtype do not fit.
        DeviceError
            The memory cannot be used in place.
        """
        with self.lock:
            buffers = dict(self._adopted(name, memory) for name, memory in inputs.items())
            self.wait()
            before, self._buffers = self._buffers, self._buffers | buffers
            touched = [bound for bound in self._flat() if not buffers.keys().isdisjoint(_variables(bound.step))]
            try:
                calls = [self._bind(bound.step).call for bound in touched]
            except BaseException:
                self._buffers = before
                raise
            for bound, call in zip(touched, calls, strict=True):
                bound.call = call
            for index, bound in self._replays():
                if bound.graph is not None and any(one in touched for one in bound.inner):
                    self._former[index], bound.graph = bound.graph, None
            if self._runs > 1:
                self.capture()
            self._calls = [bound.call for bound in self.bound]

    def retrace(self, program: Program) -> None:
        """Prepare another trace of the same function in place of this one, for example with other shapes; blocking, like `rebind`.

        Memory and arguments are made anew, streams are kept, and the second run from now on captures the graphs again and updates those that
        there were, where the device accepts that. What was loaded is gone. Until it succeeds, the memory of both traces is held, and on
        an error nothing has changed.

        Raises
        ------
        ProgramError
            It is no program.
        DeviceError
            An operation cannot run on the device, or memory is too small.
        """
        _check_program(program)
        with self.lock:
            self.wait()
            plan = PLANNERS[self.plan.engine](program, self.device.estimate_ns, streams=self.compute_streams)
            named = {self.plan.lanes[lane]: stream for lane, stream in self.streams.items()}
            streams = {lane: named[name] for lane, name in enumerate(plan.lanes) if name in named}
            former = self._former | {index: bound.graph for index, bound in self._replays() if bound.graph is not None}
            fresh = Prepared(plan, self.device, streams=streams, compute_streams=self.compute_streams)
            fresh.lock, fresh.graph_counts, fresh._former = self.lock, self.graph_counts, former
            vars(self).update(vars(fresh))

    def run(self) -> None:
        """Issue one run; returns when all is issued, which for most engines is before it is done."""
        with self.lock:
            if self._runs == 1:
                self.capture()
            try:
                for call in self._calls:
                    call()
            except BaseException:
                # The waits of a plan rest on runs being whole; after one that was not, nothing may be pending.
                self.device.synchronize()
                raise
            self._runs += 1

    def wait(self) -> None:
        """Block the host until all that was issued is done."""
        for stream in self._waited:
            stream.synchronize()

    def outputs(self) -> list[Array]:
        """Return copies of the program's outputs, after all that was issued is done."""
        with self.lock:
            self.wait()
            return [self.device.read(self._buffers[variable]) for variable in self.plan.program.outputs]

    def capture(self) -> None:
        """Capture the graphs that are not yet; update one that was there before, where that is possible, else instantiate.

        A segment that cannot be captured runs on uncaptured, with a note.
        """
        with self.lock:
            for index, bound in self._replays():
                if bound.graph is None:
                    self._capture_segment(bound, self._former.pop(index, None))
            self._calls = [bound.call for bound in self.bound]

    def capturing(self) -> AbstractContextManager[list[Graph]]:
        """Capture what the block puts on lane 0; the list then holds the graph. Whatever happens, no stream is left capturing."""
        return capturing(self.device, self.streams[0])

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Which operations are in which graph, and why others are in none. Graphs are captured by the second run."""
        return segments_of(self)

    @property
    def graphs(self) -> tuple[GraphView, ...]:
        """The graphs that were captured, each with its nodes; they are captured by the second run."""
        return tuple(segment.graph for segment in self.segments if segment.graph is not None)

    def _capture_segment(self, bound: Bound, former: Graph | None) -> None:
        try:
            graph, bound.owners = captured(self.device, self.streams[0], bound.inner, self._describe, former)
        except EngineError as error:
            bound.call, bound.why_not = partial(_run_all, bound.inner), error.message
            self.notes.append(f"a segment of {len(bound.inner)} steps runs uncaptured: {error}")
            return
        bound.graph, bound.call = graph, partial(graph.launch, self.streams[0])
        refused = "" if graph is former else graph.refused
        self.graph_counts = self.graph_counts.after(updated=graph is former, refused=refused)
        if refused:
            self.notes.append(f"a graph of {graph.node_count} nodes was instantiated anew, since its update was refused: {refused}")

    def _replays(self) -> Iterator[tuple[int, Bound]]:
        return enumerate(bound for bound in self.bound if isinstance(bound.step, Replay))

    def _flat(self) -> Iterator[Bound]:
        for bound in self.bound:
            yield from bound.inner or (bound,)

    def _adopted(self, name: str, memory: Any) -> tuple[int, Buffer]:
        """Return the variable of an input, and the user's memory as its buffer."""
        inputs = {self.program.variables[variable].name: variable for variable in self.program.inputs}
        if name not in inputs:
            raise ProgramError(f"program {self.program.name!r} has no input {name!r}", hint=f"its inputs are {', '.join(inputs)}")
        declared = self.program.variables[inputs[name]]
        buffer = self.device.adopt(memory, declared.place)
        _check_spec(declared, buffer.spec.shape, buffer.spec.dtype)
        if buffer.place is not declared.place:
            raise ProgramError(f"input {name!r} lies in {declared.place.value} memory, and the buffer in {buffer.place.value} memory")
        return declared.id, buffer

    def _describe(self, bound: Bound) -> str:
        if isinstance(bound.step, Issue):
            return str(self.plan.program.operations[bound.step.launch.operation])
        return type(bound.step).__name__

    def _top_lanes(self) -> set[int]:
        lanes = {0}
        for step in self.plan.steps:
            if isinstance(step, Issue | RecordEvent | WaitEvent | Synchronize):
                lanes.add(step.lane)
        return lanes

    def _allocate(self, variable: Variable) -> Buffer:
        try:
            return self.device.allocate(variable.spec, variable.place)
        except OutOfMemoryError as error:
            makers = (str(operation) for operation in self.program.operations if variable.id in operation.writes)
            maker = f"input {variable.name!r}" if variable.id in self.program.inputs else next(makers, variable.name)
            held = sum(buffer.spec.nbytes for buffer in self._buffers.values() if buffer.place is variable.place)
            raise OutOfMemoryError(
                f"{maker} needs {variable.spec.nbytes:,} bytes of {variable.place.value} memory for {variable.spec}, "
                f"after {held:,} for the variables before it: {error.message}",
                hint=error.hint,
            ) from error

    def _bind_launch(self, launch: Launch, stream: Stream) -> Call:
        reads, writes = ([self._buffers[v] for v in ids] for ids in (launch.reads, launch.writes))
        try:
            return self.device.bind(launch, reads, writes, stream)
        except OutOfMemoryError as error:
            operation = self.program.operations[launch.operation]
            raise OutOfMemoryError(f"{operation} cannot be prepared: {error.message}", hint=error.hint) from error

    def _stream(self, lane: int) -> Stream:
        if lane not in self.streams:
            self.streams[lane] = self.device.stream(self.plan.lanes[lane])
        return self.streams[lane]

    def _event(self, number: int) -> Event:
        # One event each for as long as the plan lives: none is ever recorded for something else while somebody may still wait for it.
        if number not in self._events:
            self._events[number] = self.device.event()
        return self._events[number]

    def _bind(self, step: Step) -> Bound:
        self._stream(0)
        match step:
            case Issue(launch, lane):
                stream = self._stream(lane)
                return Bound(step, self._bind_launch(launch, stream), stream)
            case RecordEvent(event, lane):
                return Bound(step, partial(self._stream(lane).record, self._event(event)), self._stream(lane))
            case WaitEvent(event, lane):
                return Bound(step, partial(self._stream(lane).wait, self._event(event)), self._stream(lane))
            case HostWait(event):
                return Bound(step, self._event(event).synchronize)
            case Synchronize(lane):
                return Bound(step, self._stream(lane).synchronize, self._stream(lane))
            case CallHost(call):
                reads, writes = ([self._buffers[v] for v in ids] for ids in (call.reads, call.writes))
                return Bound(step, self.device.bind_host(call, reads, writes))
            case Replay(steps):
                inner = tuple(self._bind(step) for step in steps)
                return Bound(step, partial(_run_all, inner), self.streams[0], inner)


def prepare(program: Program, engine: str, device: str | Device, *, streams: int = 2) -> Prepared:
    """Plan a program for an engine and bind the plan to a device.

    Parameters
    ----------
    program : Program
        What ``trace`` of a program function returns.
    engine : str
    device : {"auto", "cuda", "simulated"} or Device
    streams : int
        Compute streams that ``dual`` and ``graph-dual`` may use.

    Raises
    ------
    ProgramError
        ``program`` is not one.
    EngineError
        The engine is unknown, or ``streams`` is out of range.
    DeviceError
        An operation cannot run on the device, or its memory is too small.
    """
    (name,) = engine_names([engine])
    _check_program(program)
    opened = open_device(device)
    allowed = checked_streams(streams)
    return Prepared(PLANNERS[name](program, opened.estimate_ns, streams=allowed), opened, compute_streams=allowed)


def host_array(values: Any) -> Array:
    """Return an array's values on the host: NumPy as it is, CuPy copied."""
    return np.asarray(values.get() if hasattr(values, "__cuda_array_interface__") and hasattr(values, "get") else values)


def _run_all(steps: Sequence[Bound]) -> None:
    for bound in steps:
        bound.call()


def _check_program(program: object) -> None:
    if not isinstance(program, Program):
        raise ProgramError(f"prepare wants a traced program, not a {type(program).__name__}", hint="call .trace(*inputs) on it")


def _check_spec(declared: Variable, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if shape != declared.spec.shape or dtype != declared.spec.dtype:
        raise ProgramError(f"input {declared.name!r} is {dtype.name}{list(shape)}, but was traced as {declared.spec}")


def _variables(step: Step) -> frozenset[int]:
    """Return the variables whose memory a step uses."""
    match step:
        case Issue(launch):
            return frozenset(launch.reads + launch.writes)
        case CallHost(call):
            return frozenset(call.reads + call.writes)
        case _:
            return frozenset()
