"""The simulated device: the Device protocol over the discrete-event model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakSet

import numpy as np

from streamscope.arguments import whole_number
from streamscope.arrays import Array
from streamscope.device_entry import MOST_GPUS
from streamscope.devices.cost_model import CostModel, Prices, Residency
from streamscope.devices.link_model import LinkModel, part_begins_ns
from streamscope.devices.log import DeviceLog
from streamscope.devices.protocol import Buffer, Call, Event, Graph, MemoryBlock, Stream
from streamscope.devices.simulated.core import Core, Delays
from streamscope.devices.simulated.execution import BoundLaunch, Execution
from streamscope.devices.simulated.graphs import UPDATE_SHARE, Capture, Node, OverGpus, SimulatedGraph
from streamscope.devices.simulated.host import BoundCollective, PeerLinks
from streamscope.devices.simulated.memory import Memory, SimulatedBlock, SimulatedBuffer, outcome
from streamscope.devices.simulated.streams import SimulatedEvent, SimulatedGate, SimulatedStream
from streamscope.errors import DeviceError, EngineError
from streamscope.forks import foreign_lock, tell_children
from streamscope.interrupts import deferred
from streamscope.program.collective import Collective
from streamscope.program.launch import HostCall, Launch, LaunchKind, Reference, call_host_function
from streamscope.program.operation import Program
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.progress import Progress
from streamscope.trace.info import DeviceInfo
from streamscope.words import a_kind, counted

_COLLECTIVE, _COPY_PEER = LaunchKind.COLLECTIVE, LaunchKind.COPY_PEER


class SimulatedDevice:
    """A GPU and its host calls as a discrete-event model; `streamscope.devices.protocol.Device`.

    Numbers really flow: a launch reads at its simulated start and commits at its simulated end, so a missing wait gives wrong numbers.
    Deterministic. The host's clock is virtual: each call moves it by the call's cost. Several threads may use the device; their calls take
    turns on that one clock.

    ``model``: what everything costs; the built-in ``h200`` by default.
    ``prices``: what each launch costs; by the model, by default.
    ``delays``: ``delays(launch, stream name) -> (ns to start later, factor on the duration)``, for tests that want a certain schedule.
    ``gpus``: number of GPUs of the host, which are all alike.
    ``links``: what copies between them and collectives cost; as measured on hosts with H100, by default.
    """

    single_threaded = True
    """Calls of all threads move one virtual clock."""

    def __init__(
        self,
        model: CostModel | None = None,
        *,
        prices: Prices | None = None,
        delays: Delays | None = None,
        measured_on: str = "",
        gpus: int = 1,
        links: LinkModel | None = None,
    ) -> None:
        self.model = model or CostModel.load()
        self.gpus = whole_number("gpus", gpus, 1, MOST_GPUS, error=DeviceError)
        self.links = links or LinkModel.load()
        self._prices = prices or self.model
        self._measured = prices is not None
        self._measured_on = measured_on
        """The GPU whose kernels' durations the launches bring along; the name says so where the model is not that GPU's."""
        self._core = Core(self.model, delays)
        log, peers = DeviceLog(), PeerLinks(self._core)
        self._executions = [Execution(self._core, log, peers) for _ in range(self.gpus)]
        self.lock = self._core.lock
        tell_children(self)
        self._memories = [Memory(self.model, gpu) for gpu in range(self.gpus)]
        self.collective_aborts = 0
        """How often collectives were aborted."""
        self._collectives: WeakSet[BoundCollective] = WeakSet()
        self._streams: WeakSet[SimulatedStream] = WeakSet()  # One with work on it stays: what is due next there holds it.

    def _leave_behind(self) -> None:
        """Refuse all calls: this is a forked child, and a thread of the parent may have held the lock (see `forks`)."""
        self._core.lock = self.lock = foreign_lock("the simulated device")

    @property
    def info(self) -> DeviceInfo:
        """Kind ``"simulated"``, and in the details where the cost model comes from."""
        origin = self.model.provenance
        details = {
            "multiprocessors": self.model.multiprocessors,
            "cost_model": {"device": origin.device, "driver": origin.driver, "date": origin.date, "versions": dict(origin.versions)},
        }
        elsewhere = self._measured_on not in ("", origin.device)
        name = f"simulated {origin.device}" + (f", kernels as measured on {self._measured_on}" if elsewhere else "")
        if self.gpus > 1 and self.links.speed != 1:
            name += f", links {self.links.speed:.2g}× as fast"
        return DeviceInfo("simulated", name, details)

    @property
    def repeats_exactly(self) -> bool:
        """Whether nobody delays launches: delays may differ from run to run."""
        return not self._core.delayed

    @property
    def log(self) -> DeviceLog:
        """Launches that have run up to now, on the virtual clock, while the log was enabled."""
        self._core.catch_up()
        return self._executions[0].log

    @property
    def working_kernel_ns(self) -> float:
        """How long the shortest kernel that works on memory runs, in ns, by the cost model."""
        return self.model.working_kernel_ns

    def estimate_ns(self, launch: Launch) -> float:
        """Return how long a launch runs alone, in ns: the sum of its pieces' prices, each in whole ns."""
        if launch.kind is _COLLECTIVE or launch.kind is _COPY_PEER:
            return self._on_links(launch)[0]
        return sum(_whole(piece.alone_ns) for piece in self._prices.pieces(launch))

    def _on_links(self, launch: Launch) -> tuple[float, Residency]:
        """Return how long a part of a collective, or a copy between GPUs, takes alone, in whole ns, and its share of the chip."""
        measured_ns = self._prices.pieces(launch)[0].alone_ns if self._measured else None
        collective = launch.collective
        if collective is None:
            modelled_ns = self.links.peer_copy_ns(launch.cost.bytes, self.link(launch.gpu, launch.to_gpu))
            held = Residency(0.0, 0.0)
        else:
            modelled_ns = self.links.collective_ns(collective.kind, collective.nbytes, len(collective.gpus))
            channels = self.channels(collective)
            held = Residency(float(channels), float(channels * self.links.channel_threads), whole=False)
        return _whole(modelled_ns if measured_ns is None else measured_ns), held

    @property
    def room(self) -> int:
        """All multiprocessors of a GPU."""
        return self.model.multiprocessors

    def link(self, source: int, target: int) -> str:
        """Return ``"nvlink"``: the simulated GPUs are all connected to each other."""
        return "nvlink"

    def channels(self, collective: Collective) -> int:
        """Return how many multiprocessors a collective holds on each of its GPUs."""
        return self.links.channels(collective.kind, collective.nbytes, len(collective.gpus))

    def use(self) -> None:
        """Do nothing: a simulated device belongs to no thread."""

    def stream(self, name: str, *, priority: int = 0, gpu: int = 0) -> SimulatedStream:
        """Make a stream. Priorities change nothing: the model shares the multiprocessors evenly."""
        stream = SimulatedStream(self._core, name, self._checked_gpu(gpu))
        with self.lock:
            self._streams.add(stream)
        return stream

    def let_finish(self, streams: Sequence[Stream]) -> None:
        """Do nothing: pending work holds its memory."""

    def make_ready(self, program: Program, progress: Progress | None = None) -> None:
        """Do nothing: the references of operators are ready."""

    def watched(self, each: Callable[[Launch], None]) -> AbstractContextManager[None]:
        """Call a function before each launch that the block computes; its error ends the wait that is under way."""
        return self._core.watched(each)

    def pair(self, stream: Stream, auxiliary: Stream) -> None:
        """Do nothing: functions of the user's own, which open scopes, do not run here."""

    def event(self, *, timing: bool = False, gpu: int = 0) -> SimulatedEvent:
        """Make an event."""
        self._checked_gpu(gpu)
        self._core.spend(self.model.event_create_ns)
        return SimulatedEvent(self._core, timing=timing, gpu=gpu)

    def gate(self) -> SimulatedGate:
        """Make a closed gate."""
        return SimulatedGate(self._core)

    def allocate(self, spec: ArraySpec, place: MemoryPlace, *, gpu: int = 0) -> SimulatedBuffer:
        """Allocate memory full of poison."""
        return self.buffer_on(self.allocate_block(spec.nbytes, place, gpu=gpu), spec)

    def allocate_block(self, nbytes: int, place: MemoryPlace, *, gpu: int = 0) -> SimulatedBlock:
        """Allocate memory that can hold one array after the other."""
        self._core.forbid_in_capture("allocating memory")
        return self._memories[self._checked_gpu(gpu) if gpu else 0].allocate(nbytes, place)

    def _checked_gpu(self, gpu: int) -> int:
        if not 0 <= gpu < self.gpus:
            raise DeviceError(
                f"there is no GPU {gpu}: the simulated host has {counted(self.gpus, 'GPU')}", hint=f"open it with gpus={gpu + 1}"
            )
        return gpu

    def buffer_on(self, block: MemoryBlock, spec: ArraySpec, stream: Stream | None = None) -> SimulatedBuffer:
        """Use a block for an array; it is poison from where the stream has got to or, without one, at once."""
        self._core.forbid_in_capture("allocating memory")
        buffer = SimulatedBuffer(self._core.own(SimulatedBlock, block), spec)
        with self.lock:
            newest = None if stream is None else self._core.own(SimulatedStream, stream).last
            if newest is None:
                buffer.poison()
            else:
                newest.then(buffer.poison)
        return buffer

    def adopt(self, memory: Any, place: MemoryPlace) -> SimulatedBuffer:
        """Use a NumPy array of the user's as memory of the device or the host, without a copy; or a buffer, as it is."""
        if isinstance(memory, SimulatedBuffer):
            return memory
        if not isinstance(memory, np.ndarray) or not memory.flags.c_contiguous or not memory.flags.writeable:
            raise DeviceError(
                f"{a_kind(memory)} cannot be used as memory in place", hint="pass a NumPy array that is in one piece and writeable"
            )
        return SimulatedBuffer(
            SimulatedBlock(memory.nbytes, place, memory.reshape(-1).view(np.uint8)), ArraySpec(memory.shape, memory.dtype)
        )

    def let_go_after(self, buffer: Buffer, first: Launch | HostCall, uses: int) -> None:
        """Give the memory of an intermediate back when a run has used it so often, from its first write on."""
        self._core.own(SimulatedBuffer, buffer).expect(first, uses)

    def memory_of(self, streams: Iterable[Stream]) -> dict[str, int]:
        """Return nothing: operators do not say how much workspace a library would take for them, so the model counts none."""
        return {}

    def free_share(self) -> float:
        """Return the share of the model's memory that is free."""
        return min(memory.free_share for memory in self._memories)

    def write(self, buffer: Buffer, values: Array) -> None:
        """Fill a buffer from the host, at once and at no cost, whatever the device is doing."""
        self._core.forbid_in_capture("writing to memory")
        own = self._core.own(SimulatedBuffer, buffer)
        array = np.asarray(values)
        own.check(array)
        with self.lock:
            self._core.catch_up()
            own.store(array)

    def read(self, buffer: Buffer) -> Array:
        """Return a copy of a buffer's current values, at no cost; pending work is not waited for."""
        self._core.forbid_in_capture("reading memory")
        with self.lock:
            self._core.catch_up()
            return self._core.own(SimulatedBuffer, buffer).values.copy()

    def bind(self, launch: Launch, reads: Sequence[Buffer], writes: Sequence[Buffer], stream: Stream) -> Call:
        """Prepare a launch; each call of the result puts it on the stream."""
        own = self._core.own(SimulatedStream, stream)
        sources, targets = self._buffers(launch, "reads", reads), self._buffers(launch, "writes", writes)
        if launch.kind is _COPY_PEER:
            pieces = [self._on_links(launch)]
        else:
            priced = self._prices.pieces(launch)
            pieces = [(_whole(piece.alone_ns), piece.held or self.model.residency(piece.cost)) for piece in priced]
        work = BoundLaunch(self._executions[own.gpu], launch, self._reference(launch), sources, targets, tuple(pieces))
        call_ns, tail_ns = self._prices.call_ns(launch), self._prices.tail_ns(launch)
        return lambda: own.launch(work, call_ns, tail_ns)

    def bind_collective(
        self, parts: Sequence[Launch], reads: Sequence[Sequence[Buffer]], writes: Sequence[Sequence[Buffer]], streams: Sequence[Stream]
    ) -> Call:
        """Prepare a collective; each call of the result puts all its parts on their streams."""
        own = [self._core.own(SimulatedStream, stream) for stream in streams]
        joined = BoundCollective(self._core, self.estimate_ns(parts[0]), parts, self.links)
        with self.lock:
            self._collectives.add(joined)
        works = [
            BoundLaunch(
                self._executions[stream.gpu],
                part,
                list,
                self._buffers(part, "reads", sources),
                self._buffers(part, "writes", targets),
                (self._on_links(part),),
                joined,
            )
            for part, stream, sources, targets in zip(parts, own, reads, writes, strict=True)
        ]
        modelled_ns = self.links.call_ns(len(parts)) / len(parts)
        call_ns = sum(self._prices.call_ns(part) if self._measured else modelled_ns for part in parts)
        # One call launches all parts; what is left of it then.
        tails_ns = [min(call_ns, max(0.0, self.model.launch_latency_ns - part_begins_ns(number, call_ns))) for number in range(len(parts))]

        def run() -> None:
            # Nothing that can fail stands between the parts: one alone would wait for ever.
            with self.lock:
                _forbid_mixture(parts[0], own)
                for stream in own:
                    stream.make_room()
                with deferred():
                    self._core.spend(call_ns)
                    for stream, work, tail_ns in zip(own, works, tails_ns, strict=True):
                        stream.launch(work, 0.0, tail_ns)

        return run

    def abort_collectives(self) -> None:
        """End all collectives that are under way, which leave poison; those that have not begun on any GPU are as they were."""
        with self.lock, deferred():
            self._core.catch_up()
            self.collective_aborts += 1
            for each in list(self._collectives):
                each.abort()

    def bind_host(self, call: HostCall, reads: Sequence[Buffer], writes: Sequence[Buffer]) -> Call:
        """Prepare a host function: it reads memory when it is called, and has written after ``duration_ns``."""
        sources = self._buffers(call, "reads", reads)
        targets = self._buffers(call, "writes", writes)

        def run() -> None:
            self._core.catch_up()
            arrays = [source.values for source in sources]
            results = call_host_function(call, arrays)  # Without the lock: others may go on meanwhile.
            kept = outcome(f"host function {call.name!r}", results, arrays, targets) if targets else []
            with self.lock:
                # The device moves on while the function runs; its results count only from the end.
                self._core.spend(call.duration_ns)
                self._core.catch_up()
                for target, result in zip(targets, kept, strict=True):
                    target.store(result)
                for buffer in {*sources, *targets}:
                    buffer.used(call)

        return run

    def begin_capture(self, stream: Stream) -> None:
        """Start to capture a stream."""
        own = self._core.own(SimulatedStream, stream)
        if own.capture is not None:
            raise own.capture.fail(f"stream {own.name!r} is being captured already", hint="end or abandon that capture first")
        Capture(own)

    def captured_nodes(self, stream: Stream) -> int:
        """Return how many nodes the capture of a stream has by now."""
        return self._capture(stream).size()

    def end_capture(self, stream: Stream, update: Graph | None = None) -> SimulatedGraph:
        """End the capture that began on a stream, and update a graph with it where nodes and edges are the same, else instantiate it."""
        own = self._core.own(SimulatedStream, stream)
        capture = self._capture(own)
        if capture.origin is not own:
            capture.leave()
            raise EngineError(f"the capture did not begin on stream {own.name!r}", hint=f"end it on {capture.origin.name!r}")
        nodes = capture.end()
        instantiate_ns = self.model.graph_instantiate_ns(len(nodes))
        refused = ""
        if update is not None:
            graph = self._core.own(SimulatedGraph, update)
            self._core.spend(UPDATE_SHARE * instantiate_ns)
            refused = graph.update(nodes)
            if not refused:
                return graph
        self._core.spend(instantiate_ns)
        return SimulatedGraph(self._core, nodes, refused, self._over_gpus(nodes))

    def _over_gpus(self, nodes: Sequence[Node]) -> OverGpus:
        """Return the cost of a graph for the GPUs that it is on."""
        launches = [node.content.launch for node in nodes if isinstance(node.content, BoundLaunch)] if self.gpus > 1 else []
        gpus = len({launch.gpu for launch in launches})
        if gpus < 2:
            return OverGpus()
        parts = sum(launch.collective is not None for launch in launches)
        links = self.links
        later = (links.graph_collective_ns, links.graph_behind_ns, links.graph_copy_ns, links.graph_arrival_ns)
        return OverGpus(links.graph_launch_ns(gpus, parts), links.graph_tail_ns(gpus, parts), links.graph_join_ns, *later)

    def _capture(self, stream: Stream) -> Capture:
        own = self._core.own(SimulatedStream, stream)
        if own.capture is None:
            raise EngineError(f"stream {own.name!r} is not being captured", hint="call begin_capture first")
        return own.capture

    def abandon_capture(self, stream: Stream) -> None:
        """End a capture that a stream takes part in, and throw it away; every stream is usable afterwards. Never raises."""
        if isinstance(stream, SimulatedStream) and stream.capture is not None:
            stream.capture.leave()

    def now_ns(self) -> int:
        """Return the host's virtual clock, in ns."""
        return round(self._core.host_ns)

    def elapsed_ns(self, start: Event, end: Event) -> float:
        """Return the time from one timed event's latest record to another's, in ns."""
        first, last = self._core.own(SimulatedEvent, start), self._core.own(SimulatedEvent, end)
        if first.gpu != last.gpu:  # As on CUDA, so that no recorder rests on more than there is.
            raise DeviceError(
                f"there is no time between events of GPU {first.gpu} and GPU {last.gpu}", hint="tie each GPU's events to the host's clock"
            )
        return last.time_ns() - first.time_ns()

    def synchronize(self) -> None:
        """Block the host until all streams are empty."""
        with self.lock:
            streams = list(self._streams)
        self._core.synchronize([stream.last for stream in streams], "synchronizing the device", streams)

    def _reference(self, launch: Launch) -> Reference:
        if launch.reference is not None:
            return launch.reference
        if launch.kind is LaunchKind.KERNEL:
            raise DeviceError(
                f"operator {launch.name!r} {launch.without_reference}, so it runs on CUDA only",
                hint="give it one with reference=..., a NumPy function of the arrays it reads that returns those it writes",
            )
        return list

    def _buffers(self, work: Launch | HostCall, role: str, buffers: Sequence[Buffer]) -> tuple[SimulatedBuffer, ...]:
        expected = len(getattr(work, role))
        if len(buffers) != expected:
            raise DeviceError(f"{work.name!r} {role} {counted(expected, 'variable')} and was bound to {counted(len(buffers), 'buffer')}")
        return tuple([self._core.own(SimulatedBuffer, buffer) for buffer in buffers])


def _forbid_mixture(launch: Launch, streams: Sequence[SimulatedStream]) -> None:
    """Refuse a collective of which some streams are captured and others are not, as NCCL does; that breaks the capture."""
    captures = {stream.capture for stream in streams}
    if len(captures) > 1:
        left = ", ".join(repr(stream.name) for stream in streams if stream.capture is None) or "another capture's stream"
        message, hint = f"{launch} has a part on {left}", "let that stream wait for an event recorded in the capture"
        errors = [capture.fail(message, hint=hint) for capture in captures if capture is not None]
        raise errors[0]


def _whole(duration_ns: float) -> float:
    """Return a duration in whole ns, as traces have them, so that a trace tells all of it; very short ones stay as they are."""
    return float(round(duration_ns)) if duration_ns >= 1 else duration_ns
