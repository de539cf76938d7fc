"""Binding the steps of a plan to a device: memory, streams and events, and arguments packed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from streamscope.devices.protocol import Buffer, Call, Device, Event, Graph, Stream
from streamscope.engines.faults import name_launch
from streamscope.engines.plan import AUXILIARY, CallHost, HostWait, Issue, Plan, RecordEvent, Replay, Step, Synchronize, WaitEvent
from streamscope.errors import OutOfMemoryError
from streamscope.program.launch import Launch
from streamscope.program.operation import Variable


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


class Binder:
    """Binds the steps of one plan.

    Parameters
    ----------
    plan : Plan
    device : Device
    streams : dict of int to Stream
        The stream of each lane; those that are needed and not there are added.

    Attributes
    ----------
    buffers : dict of int to Buffer
        The memory of each variable.
    """

    def __init__(self, plan: Plan, device: Device, streams: dict[int, Stream]) -> None:
        self.plan = plan
        self.device = device
        self.streams = streams
        self.buffers: dict[int, Buffer] = {}
        self._events: dict[int, Event] = {}

    def allocate(self) -> None:
        """Allocate the memory of all variables.

        Raises
        ------
        OutOfMemoryError
            The message names the operation whose result did not fit, and the bytes.
        """
        for variable in self.plan.program.variables:
            self.buffers[variable.id] = self._allocate(variable)

    def pair_scopes(self) -> None:
        """Make the main stream; let scopes that a user's operator opens on it use an auxiliary one, where the plan says so."""
        main = self.stream(0)
        if self.plan.scopes:
            lane = self.plan.auxiliary
            self.device.pair(main, self.device.stream(AUXILIARY) if lane is None else self.stream(lane))

    @contextmanager
    def replacing(self, buffers: Mapping[int, Buffer]) -> Iterator[None]:
        """Put other memory in the place of variables; on an error in the block, take it back."""
        before, self.buffers = self.buffers, {**self.buffers, **buffers}
        try:
            yield
        except BaseException:
            self.buffers = before
            raise

    def _allocate(self, variable: Variable) -> Buffer:
        try:
            return self.device.allocate(variable.spec, variable.place)
        except OutOfMemoryError as error:
            makers = (str(operation) for operation in self.plan.program.operations if variable.id in operation.writes)
            maker = f"input {variable.name!r}" if variable.id in self.plan.program.inputs else next(makers, variable.name)
            held = sum(buffer.spec.nbytes for buffer in self.buffers.values() if buffer.place is variable.place)
            raise OutOfMemoryError(
                f"{maker} needs {variable.spec.nbytes:,} bytes of {variable.place.value} memory for {variable.spec}, "
                f"after {held:,} for the variables before it: {error.message}",
                hint=error.hint,
            ) from error

    def _bind_launch(self, launch: Launch, stream: Stream) -> Call:
        reads, writes = ([self.buffers[v] for v in ids] for ids in (launch.reads, launch.writes))
        try:
            return self.device.bind(launch, reads, writes, stream)
        except OutOfMemoryError as error:
            operation = self.plan.program.operations[launch.operation]
            raise OutOfMemoryError(f"{operation} cannot be prepared: {error.message}", hint=error.hint) from error

    def stream(self, lane: int) -> Stream:
        """Return the stream of a lane."""
        if lane not in self.streams:
            self.streams[lane] = self.device.stream(self.plan.lanes[lane])
        return self.streams[lane]

    def _event(self, number: int) -> Event:
        # One event each for as long as the plan lives: none is ever recorded for something else while somebody may still wait for it.
        if number not in self._events:
            self._events[number] = self.device.event()
        return self._events[number]

    def bind(self, step: Step) -> Bound:
        """Bind a step to the memory there is now.

        Raises
        ------
        DeviceError
            An operation cannot run on the device, or memory for its arguments is too small.
        """
        self.stream(0)
        match step:
            case Issue(launch, lane):
                stream = self.stream(lane)
                return Bound(step, self._bind_launch(launch, stream), stream)
            case RecordEvent(event, lane):
                return Bound(step, partial(self.stream(lane).record, self._event(event)), self.stream(lane))
            case WaitEvent(event, lane):
                return Bound(step, partial(self.stream(lane).wait, self._event(event)), self.stream(lane))
            case HostWait(event):
                return Bound(step, self._event(event).synchronize)
            case Synchronize(lane):
                return Bound(step, self.stream(lane).synchronize, self.stream(lane))
            case CallHost(call):
                reads, writes = ([self.buffers[v] for v in ids] for ids in (call.reads, call.writes))
                return Bound(step, self.device.bind_host(call, reads, writes))
            case Replay(steps):
                inner = tuple(self.bind(step) for step in steps)
                return Bound(step, partial(run_all, inner), self.streams[0], inner)


def run_all(steps: Sequence[Bound]) -> None:
    """Carry out bound steps one after the other."""
    for bound in steps:
        try:
            bound.call()
        except Exception as error:
            name_launch(error, (bound,), bound.call)
            raise


def variables_of(step: Step) -> frozenset[int]:
    """Return the variables whose memory a step uses, itself: none for a `Replay`, whose steps are bound one by one."""
    match step:
        case Issue(launch):
            return frozenset(launch.reads + launch.writes)
        case CallHost(call):
            return frozenset(call.reads + call.writes)
        case _:
            return frozenset()
