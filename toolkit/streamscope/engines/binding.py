"""Binding the steps of a plan to a device, carrying them out, capturing them, and cleaning up after failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from streamscope.devices.protocol import Buffer, Call, Device, Event, Graph, Stream
from streamscope.engines.plan import AUXILIARY, MAIN, CallHost, HostWait, Issue, Plan, RecordEvent, Replay, Step, Synchronize, WaitEvent
from streamscope.errors import EngineError, OutOfMemoryError, StreamscopeError
from streamscope.interrupts import deferred
from streamscope.program.launch import HostCall, Launch
from streamscope.program.operation import Program, Variable

NO_STEP = -1
"""The step of an empty node of captured code."""


@dataclass
class BoundStep:
    """A step, and the function that carries it out."""

    step: Step
    call: Call
    """Carries the step out; for a `Replay`, launches the graph once there is one."""
    stream: Stream | None = None
    """The stream it concerns; None for host functions and host waits."""
    inner: tuple[BoundStep, ...] = ()
    """The steps that a `Replay` captures."""
    graph: Graph | None = None
    """The captured graph of a `Replay`."""
    owners: tuple[int, ...] = ()
    """For each node of the graph, the index in ``inner`` of the step that made it, or `NO_STEP`."""
    why_not: str = ""
    """Why a `Replay` could not be captured, where that was tried."""


_Describe = Callable[[BoundStep], str]


class Binder:
    """Binds the steps of one plan."""

    def __init__(self, plan: Plan, device: Device, streams: dict[int, Stream]) -> None:
        self.plan = plan
        self.device = device
        self.streams = streams
        """The stream of each lane; those that are needed and not there are added."""
        self.buffers: dict[int, Buffer] = {}
        """The memory of each variable."""
        self._events: dict[int, Event] = {}
        recorded = (step for step in plan.flat() if isinstance(step, RecordEvent)) if plan.gpus else ()
        self._recorded_on = {step.event: plan.gpu(step.lane) for step in recorded}
        """The GPU of each event; empty where all are GPU 0's."""
        self._parts: list[tuple[Launch, Stream]] = []
        """The parts of a collective that are bound so far."""

    def allocate(self) -> None:
        """Allocate the memory of all variables."""
        for variable in self.plan.program.variables:
            self.buffers[variable.id] = self._allocate(variable)
        # The simulated device gives this memory back within a run; CUDA's graphs hold addresses, so it stays there.
        for intermediate, works in self._intermediates():
            self.device.let_go_after(self.buffers[intermediate], works[0], len(works))

    def _intermediates(self) -> Iterator[tuple[int, list[Launch | HostCall]]]:
        """Yield the variables that a run computes for itself, each with all that uses it, in order."""
        uses: dict[int, list[Launch | HostCall]] = {}
        for step in self.plan.flat():
            if isinstance(step, Issue | CallHost):
                work = step.launch if isinstance(step, Issue) else step.call
                for variable in {*work.reads, *work.writes}:
                    uses.setdefault(variable, []).append(work)
        program = self.plan.program
        kept = {*program.inputs, *program.outputs}
        for variable, works in uses.items():
            # Written before it is read: no run sees what the one before left there.
            if variable not in kept and variable in works[0].writes and variable not in works[0].reads:
                yield variable, works

    def pair_scopes(self) -> None:
        """Make the main streams; let scopes that a user's operator opens on one use an auxiliary one, where the plan says so."""
        self.stream(0)
        if self.plan.scopes:
            for gpu in sorted({0, *self.plan.gpus}):
                main, lane = self.plan.first_lane(MAIN, gpu), self.plan.first_lane(AUXILIARY, gpu)
                assert main is not None
                auxiliary = self._made(AUXILIARY, gpu) if lane is None else self.stream(lane)
                self.device.pair(self.stream(main), auxiliary)

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
            # Said only where there are several: devices of other packages may have one.
            if variable.gpu:
                return self.device.allocate(variable.spec, variable.place, gpu=variable.gpu)
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
        reads, writes = [self.buffers[v] for v in launch.reads], [self.buffers[v] for v in launch.writes]
        try:
            return self.device.bind(launch, reads, writes, stream)
        except OutOfMemoryError as error:
            operation = self.plan.program.operations[launch.operation]
            raise OutOfMemoryError(f"{operation} cannot be prepared: {error.message}", hint=error.hint) from error

    def _bind_part(self, launch: Launch, stream: Stream) -> Call:
        """Bind a part of a collective: the call of the last part puts all of them on their streams, those of the others do nothing."""
        self._parts.append((launch, stream))
        assert launch.collective is not None
        if len(self._parts) < len(launch.collective.gpus):
            return do_nothing
        parts, self._parts = self._parts, []
        reads, writes = (
            [[self.buffers[variable] for variable in getattr(part, role)] for part, _ in parts] for role in ("reads", "writes")
        )
        return self.device.bind_collective([part for part, _ in parts], reads, writes, [stream for _, stream in parts])

    def stream(self, lane: int) -> Stream:
        """Return the stream of a lane."""
        if lane not in self.streams:
            self.streams[lane] = self._made(self.plan.lanes[lane], self.plan.gpu(lane))
        return self.streams[lane]

    def _made(self, name: str, gpu: int) -> Stream:
        return self.device.stream(name, gpu=gpu) if gpu else self.device.stream(name)

    def _event(self, number: int) -> Event:
        # One event each for as long as the plan lives: none is ever recorded for something else while somebody may still wait for it.
        if number not in self._events:
            gpu = self._recorded_on.get(number, 0)
            self._events[number] = self.device.event(gpu=gpu) if gpu else self.device.event()
        return self._events[number]

    def bind(self, step: Step) -> BoundStep:
        """Bind a step to the memory there is now."""
        match step:
            case Issue(launch, lane):
                stream = self.stream(lane)
                bind = self._bind_launch if launch.collective is None else self._bind_part
                return BoundStep(step, bind(launch, stream), stream)
            case RecordEvent(event, lane):
                return BoundStep(step, partial(self.stream(lane).record, self._event(event)), self.stream(lane))
            case WaitEvent(event, lane):
                return BoundStep(step, partial(self.stream(lane).wait, self._event(event)), self.stream(lane))
            case HostWait(event):
                return BoundStep(step, self._event(event).synchronize)
            case Synchronize(lane):
                return BoundStep(step, self.stream(lane).synchronize, self.stream(lane))
            case CallHost(call):
                reads, writes = ([self.buffers[v] for v in ids] for ids in (call.reads, call.writes))
                return BoundStep(step, self.device.bind_host(call, reads, writes))
            case Replay(steps):
                inner = tuple(self.bind(step) for step in steps)
                return BoundStep(step, partial(run_all, inner), self.streams[0], inner)


def run_all(steps: Sequence[BoundStep]) -> None:
    """Carry out bound steps one after the other."""
    for bound in steps:
        try:
            bound.call()
        except Exception as error:
            name_launch(error, (bound,), bound.call)
            raise


def do_nothing() -> None:
    """Do nothing: another call does it."""


def variables_of(step: Step, program: Program) -> frozenset[int]:
    """Return the variables whose memory a step uses, itself: none for a `Replay`, whose steps are bound one by one."""
    match step:
        case Issue(launch):
            if launch.collective is not None:  # The parts are bound together.
                return program.operations[launch.operation].touched
            return frozenset(launch.reads + launch.writes)
        case CallHost(call):
            return frozenset(call.reads + call.writes)
        case _:
            return frozenset()


def settle(streams: Iterable[Stream], error: BaseException) -> None:
    """Wait until nothing is pending on a plan's streams, after an error in the middle of a run: the waits rest on runs being whole.

    Not for the whole device, which CUDA forbids while another thread captures. What goes wrong meanwhile becomes a note on the error.
    """
    with deferred():
        for stream in streams:
            try:
                stream.synchronize()
            except StreamscopeError as other:
                error.add_note(f"meanwhile {other}")


@contextmanager
def settled(streams: Iterable[Stream]) -> Iterator[None]:
    """Carry out a run's steps in a block; where it breaks off, see `settle`."""
    try:
        yield
    except BaseException as error:
        settle(streams, error)
        raise


def name_launch(error: BaseException, steps: Iterable[BoundStep], call: Call | None) -> None:
    """Add a note to an error that a call of one of the steps raised, which names the operation and the user's line.

    Host functions do so themselves, and an interrupt is nobody's fault.
    """
    if isinstance(error, Exception):
        for bound in steps:
            if bound.call is call and isinstance(bound.step, Issue):
                error.add_note(f"while {bound.step.launch} was issued")


@contextmanager
def capturing(device: Device, stream: Stream, update: Graph | None = None) -> Iterator[list[Graph]]:
    """Capture the launches of the block on a stream; the list then holds the graph.

    Whatever happens, no stream is left capturing: Ctrl-C waits for the end.

    ``update``: updated, where the device accepts it, instead of making a new one.
    """
    graphs: list[Graph] = []
    with deferred():
        try:
            device.begin_capture(stream)
            yield graphs
        except BaseException:
            device.abandon_capture(stream)
            raise
        graphs.append(device.end_capture(stream, update))


class _StepFailedError(EngineError):
    """A step cannot be captured; the message names it."""


def captured(
    device: Device, stream: Stream, steps: Sequence[BoundStep], describe: _Describe, update: Graph | None = None
) -> tuple[Graph, tuple[int, ...]]:
    """Capture bound steps and return the graph, and for each of its nodes the index of the step that made it."""
    owners: list[int] = []
    try:
        with capturing(device, stream, update) as graphs:
            for index, bound in enumerate(steps):
                try:
                    bound.call()
                    # Counted after each step, since a step may be several nodes; this also meets a break that the step kept to itself.
                    nodes = device.captured_nodes(stream) - len(owners)
                    owners += [index] * nodes if nodes <= 1 else _makers(steps, index, nodes)
                except Exception as error:
                    raise _blamed(bound, describe, error) from error
    except _StepFailedError:
        raise
    except EngineError as error:
        # Some faults show only at the end, for example a stream that was not joined.
        raise _culprit(device, steps, describe) or error from error
    return graphs[0], tuple(owners)


def _makers(steps: Sequence[BoundStep], index: int, nodes: int) -> list[int]:
    """Return the step that made each of the nodes that a step's call added: of a collective, each part one."""
    step = steps[index].step
    parts = step.launch.collective.gpus if isinstance(step, Issue) and step.launch.collective is not None else ()
    return [index - nodes + 1 + number for number in range(nodes)] if nodes == len(parts) else [index] * nodes


def _blamed(bound: BoundStep, describe: _Describe, error: Exception) -> _StepFailedError:
    """Return an error that says which step it comes from."""
    message, hint = (error.message, error.hint) if isinstance(error, StreamscopeError) else (str(error), "")
    return _StepFailedError(f"{describe(bound)} cannot be captured: {message}", hint=hint)


def _culprit(device: Device, steps: Sequence[BoundStep], describe: _Describe) -> EngineError | None:
    """Capture each launch by itself and return the error of the first that fails."""
    for bound in steps:
        if isinstance(bound.step, Issue) and bound.stream is not None:
            try:
                with capturing(device, bound.stream):
                    bound.call()
            except Exception as error:  # noqa: BLE001 — whatever it is, it is raised by the caller
                return _blamed(bound, describe, error)
    return None
