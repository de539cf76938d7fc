"""A plan bound to a device: memory allocated, arguments packed, graphs captured; prepared once, run many times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.devices import open_device
from streamscope.devices.protocol import Buffer, Call, Device, Event, Graph, Stream
from streamscope.engines import PLANNERS, engine_names
from streamscope.engines.lanes import checked_streams
from streamscope.engines.plan import AUXILIARY, CallHost, HostWait, Issue, Plan, RecordEvent, Replay, Step, Synchronize, WaitEvent
from streamscope.errors import EngineError, ProgramError, StreamscopeError
from streamscope.program.operation import Program

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
    """

    step: Step
    call: Call
    stream: Stream | None = None
    inner: tuple[Bound, ...] = ()
    graph: Graph | None = None


@dataclass
class Prepared:
    """A program prepared for one engine on one device.

    The first run is warm: graphs are not captured yet. The second captures them; from then on they are replayed.

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
    """

    plan: Plan
    device: Device
    bound: list[Bound] = field(default_factory=list)
    streams: dict[int, Stream] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _buffers: dict[int, Buffer] = field(default_factory=dict)
    _events: dict[int, Event] = field(default_factory=dict)
    _calls: list[Call] = field(default_factory=list)
    _runs: int = 0

    def __post_init__(self) -> None:
        for variable in self.plan.program.variables:
            self._buffers[variable.id] = self.device.allocate(variable.spec, variable.place)
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
        self.wait()
        for variable, values in zip(program.inputs, inputs, strict=True):
            declared = program.variables[variable]
            array = host_array(values)
            if array.shape != declared.spec.shape or array.dtype != declared.spec.dtype:
                raise ProgramError(f"input {declared.name!r} is {array.dtype.name}{list(array.shape)}, but was traced as {declared.spec}")
            self.device.write(self._buffers[variable], array)

    def run(self) -> None:
        """Issue one run; returns when all is issued, which for most engines is before it is done."""
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
        self.wait()
        return [self.device.read(self._buffers[variable]) for variable in self.plan.program.outputs]

    def capture(self) -> None:
        """Capture and instantiate the graphs that are not yet. A segment that cannot be captured runs on uncaptured, with a note."""
        for bound in self.bound:
            if isinstance(bound.step, Replay) and bound.graph is None:
                try:
                    bound.graph = self.captured(bound.inner)
                except EngineError as error:
                    self.notes.append(f"a segment of {len(bound.inner)} steps runs uncaptured: {error}")
                else:
                    bound.call = partial(bound.graph.launch, self.streams[0])
        self._calls = [bound.call for bound in self.bound]

    def captured(self, steps: Sequence[Bound]) -> Graph:
        """Capture bound steps on lane 0 and return the graph.

        Raises
        ------
        EngineError
            An operation cannot be captured; the message names it, and the streams are usable again.
        """
        with self.capturing() as graphs:
            for bound in steps:
                try:
                    bound.call()
                except StreamscopeError as error:
                    raise EngineError(f"{self._describe(bound)} cannot be captured: {error.message}", hint=error.hint) from error
                except Exception as error:
                    raise EngineError(f"{self._describe(bound)} cannot be captured: {error}") from error
        return graphs[0]

    @contextmanager
    def capturing(self) -> Iterator[list[Graph]]:
        """Capture what the block puts on lane 0; the list then holds the graph. Whatever happens, no stream is left capturing."""
        graphs: list[Graph] = []
        self.device.begin_capture(self.streams[0])
        try:
            yield graphs
        except BaseException:
            self.device.abandon_capture(self.streams[0])
            raise
        graphs.append(self.device.end_capture(self.streams[0]))

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
                reads, writes = ([self._buffers[v] for v in ids] for ids in (launch.reads, launch.writes))
                return Bound(step, self.device.bind(launch, reads, writes, stream), stream)
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
    if not isinstance(program, Program):
        raise ProgramError(f"prepare wants a traced program, not a {type(program).__name__}", hint="call .trace(*inputs) on it")
    opened = open_device(device)
    return Prepared(PLANNERS[name](program, opened.estimate_ns, streams=checked_streams(streams)), opened)


def host_array(values: Any) -> Array:
    """Return an array's values on the host: NumPy as it is, CuPy copied."""
    return np.asarray(values.get() if hasattr(values, "__cuda_array_interface__") and hasattr(values, "get") else values)


def _run_all(steps: Sequence[Bound]) -> None:
    for bound in steps:
        bound.call()
