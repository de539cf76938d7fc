"""The protocol of a device: streams, events, memory, launches, graphs and a clock.

The two devices are `streamscope.devices.cuda` and `streamscope.devices.simulated`. Everything an engine does to a device goes
through these protocols, so an engine cannot tell them apart.

The rules are CUDA's. Work on one stream runs in order. A stream's wait takes the event's latest record *at the time of the call*; a wait
for an event that was never recorded does nothing. While a stream is captured, work that is put on it becomes nodes of a graph instead of
running, and so does work on every stream that waits for an event recorded there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import RLock
from typing import Any, Protocol

from streamscope.arrays import Array
from streamscope.devices.graph_node import GraphNode
from streamscope.devices.log import DeviceLog
from streamscope.program.collective import Collective
from streamscope.program.launch import HostCall, Launch
from streamscope.program.operation import Program
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.progress import Progress
from streamscope.trace.info import DeviceInfo

Call = Callable[[], None]


class Buffer(Protocol):
    """Memory of one variable."""

    @property
    def spec(self) -> ArraySpec:
        """Shape and dtype."""

    @property
    def place(self) -> MemoryPlace:
        """Host (page-locked) or device memory."""


class MemoryBlock(Protocol):
    """Memory without a shape; the device takes it back when nobody holds it, or a buffer on it, any more."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""

    @property
    def place(self) -> MemoryPlace:
        """Host (page-locked) or device memory."""


class Event(Protocol):
    """A point in a stream that can be waited for and, where made with timing, timed."""

    @property
    def timing(self) -> bool:
        """Whether `Device.elapsed_ns` accepts it."""

    def synchronize(self) -> None:
        """Block the host until the latest record is done."""

    def comes_within(self, timeout_s: float) -> bool:
        """Block the host until the latest record is done, so many seconds at most; tell whether it is."""

    def done(self) -> bool:
        """Tell whether the latest record is done (true if never recorded)."""


class Stream(Protocol):
    """An in-order queue of device work."""

    @property
    def name(self) -> str:
        """Name of the stream's lane, for example ``"main"``."""

    def record(self, event: Event) -> None:
        """Record an event. Inside a capture, an event with timing becomes an event-record node that can be timed."""

    def bound_record(self, event: Event) -> Call:
        """Return a function that records an event outside of captures. All is looked up before, so a call is short."""

    def wait(self, event: Event) -> None:
        """Let the stream, not the host, wait for the event's latest record."""

    def synchronize(self) -> None:
        """Block the host until the stream is empty."""


class Graph(Protocol):
    """An instantiated graph."""

    @property
    def node_count(self) -> int:
        """Number of nodes."""

    @property
    def nodes(self) -> tuple[GraphNode, ...]:
        """The nodes in the order of capture, each after those that it depends on; their operations are not known to a device."""

    @property
    def refused(self) -> str:
        """Why an update of another graph was refused, so that this one was instantiated; empty where none was tried."""

    @property
    def lost(self) -> bool:
        """Whether it cannot be launched any more, since collectives in it were aborted."""

    def launch(self, stream: Stream) -> None:
        """Put one replay on a stream."""

    def calls(self, stream: Stream) -> Sequence[tuple[GraphNode, Call]]:
        """Return each node with a call that launches it alone, in an order in which they can run, or nothing where the device cannot.

        Empty nodes are left out; ``after`` of the others counts without them.
        """


class Gate(Protocol):
    """Holds streams back until the host opens it, so that the device can work without waiting for the host."""

    def hold(self, stream: Stream) -> None:
        """Let everything put on the stream from now on wait for `open`."""

    def open(self) -> None:
        """Let the held streams go; to open it again does nothing."""


class Device(Protocol):
    """A place where operations run."""

    lock: RLock
    """Held by pushed engines, which share the device, while they issue; a simulated device holds it in its own calls, too."""

    @property
    def info(self) -> DeviceInfo:
        """Name of the device, and whether its times are real (``simulated``) and repeat (``exact``)."""

    @property
    def single_threaded(self) -> bool:
        """Whether all threads share one clock that their calls move, so that the order of calls decides the times."""

    @property
    def repeats_exactly(self) -> bool:
        """Whether every run of a prepared program takes as long as the first, to the nanosecond, and computes the same.

        Such a device keeps a log, and is run once: that run is timed, recorded and checked.
        """

    @property
    def log(self) -> DeviceLog | None:
        """The device's own log of true times; None where it keeps none and recording takes events."""

    @property
    def working_kernel_ns(self) -> float:
        """How long an addition of 4,096 float32 runs, in ns, by an independent clock (CUPTI, or the cost model)."""

    def estimate_ns(self, launch: Launch) -> float:
        """Return about how long a launch runs alone, in ns, by the cost model (a scheduler's guess, never shown as a time)."""

    def use(self) -> None:
        """Make this device the calling thread's; a thread calls it once before it does anything else with the device."""

    def let_finish(self, streams: Sequence[Stream]) -> None:
        """Wait for streams whose memory goes, from whichever thread and whatever that is doing; failures are ignored."""

    @property
    def gpus(self) -> int:
        """Number of GPUs, 1 for most devices. Where a device has no such attribute, it has one."""

    @property
    def room(self) -> int:
        """Multiprocessors that collectives have on each GPU."""

    def link(self, source: int, target: int) -> str:
        """Return how copies go from one GPU to another: ``"nvlink"``, ``"pcie"``, or ``"host"`` where there is no way between them."""

    def channels(self, collective: Collective) -> int:
        """Return how many multiprocessors of each GPU a collective holds while it runs, at most."""

    def stream(self, name: str, *, priority: int = 0, gpu: int = 0) -> Stream:
        """Make a stream of a GPU. Of two kernels that are ready, the one with the higher ``priority`` gets multiprocessors first.

        0 is the ordinary priority; more than the device has levels counts as its highest.
        """

    def watched(self, each: Callable[[Launch], None]) -> AbstractContextManager[None]:
        """Call a function before each launch that the block computes, where the device computes them itself, which takes long.

        An error of the function ends the run that is under way, between two launches. Only the thread that opened the block calls it.
        """

    def pair(self, stream: Stream, auxiliary: Stream) -> None:
        """Let scopes that a user's operator opens on ``stream`` use ``auxiliary``."""

    def event(self, *, timing: bool = False, gpu: int = 0) -> Event:
        """Make an event, for streams of a GPU to record; streams of any GPU may wait for it."""

    def allocate(self, spec: ArraySpec, place: MemoryPlace, *, gpu: int = 0) -> Buffer:
        """Allocate memory of the host or of a GPU, or raise an `OutOfMemoryError`.

        Its contents are undefined; the simulated device fills it with poison.
        """

    def allocate_block(self, nbytes: int, place: MemoryPlace, *, gpu: int = 0) -> MemoryBlock:
        """Allocate memory that can hold one array after the other, or raise an `OutOfMemoryError`."""

    def buffer_on(self, block: MemoryBlock, spec: ArraySpec, stream: Stream | None = None) -> Buffer:
        """Use a block for an array; its contents are undefined from here on in the order of ``stream`` or, without one, of the host.

        Buffers that were on the block before stay valid for work that was issued on them. A block that is smaller is a `DeviceError`.
        """

    def let_go_after(self, buffer: Buffer, first: Launch | HostCall, uses: int) -> None:
        """Say that a run uses the values of a buffer so often, from their first write on, and that nobody reads them afterwards.

        A device whose memory is this machine's may give it back then.
        """

    def memory_of(self, streams: Iterable[Stream]) -> Mapping[str, int]:
        """Return the bytes of device memory that streams hold for themselves, by purpose.

        On CUDA ``workspaces_bytes`` (scratch memory of libraries) and ``temporaries_bytes`` (what users' operators allocate through CuPy).
        Streams cannot share either, since they run side by side. Empty where it is not known.
        """

    def free_share(self) -> float:
        """Return the share of the device's memory that is free, from 0 to 1."""

    def write(self, buffer: Buffer, values: Array) -> None:
        """Fill a buffer from the host, blocking, outside any stream. The device must be idle."""

    def read(self, buffer: Buffer) -> Array:
        """Return a copy of a buffer's values, blocking, outside any stream. Does not wait for work that is pending."""

    def make_ready(self, program: Program, progress: Progress | None = None) -> None:
        """Prepare the launches of a program before they are bound: on CUDA, its generated kernels, compiled in one batch.

        ``progress`` is told how many of them are there. A kernel that does not compile is a `CompilationError`.
        """

    def bind(self, launch: Launch, reads: Sequence[Buffer], writes: Sequence[Buffer], stream: Stream) -> Call:
        """Prepare a launch once, arguments packed; each call of the result puts it on the stream.

        One that cannot run on this device is a `DeviceError`: a user's operator without a reference on the simulated one.
        """

    def bind_collective(
        self, parts: Sequence[Launch], reads: Sequence[Sequence[Buffer]], writes: Sequence[Sequence[Buffer]], streams: Sequence[Stream]
    ) -> Call:
        """Prepare a collective; each call of the result puts all its parts on their streams, as one.

        ``reads``, ``writes``: the buffers of each part. One that cannot run on this device is a `DeviceError`.
        """

    def abort_collectives(self) -> None:
        """End all collectives that are under way, whose results are undefined; those that follow are whole again."""

    @property
    def collective_aborts(self) -> int:
        """How often collectives were aborted, by `abort_collectives`, by Ctrl-C in a wait, or by an error."""

    def bind_host(self, call: HostCall, reads: Sequence[Buffer], writes: Sequence[Buffer]) -> Call:
        """Prepare a host function; each call of the result runs it on the calling thread, on the values in memory by then."""

    def adopt(self, memory: Any, place: MemoryPlace) -> Buffer:
        """Use memory of the user's as a buffer, without a copy: an array (CuPy on CUDA, NumPy on the simulated device) or a buffer.

        Blocks until CuPy's current stream is done with it. Whoever changes it later must do so when the device is idle.
        What does not lie in such memory, or not in one piece, is a `DeviceError`.
        """

    def begin_capture(self, stream: Stream) -> None:
        """Start to capture a stream. The capture is the calling thread's, and other threads may go on using the device."""

    def captured_nodes(self, stream: Stream) -> int:
        """Return how many nodes the capture that began on ``stream`` has by now; without one, or a broken one, raise an `EngineError`."""

    def end_capture(self, stream: Stream, update: Graph | None = None) -> Graph:
        """End the capture that began on ``stream``, and make an instantiated graph of it.

        ``update`` is a graph of this device, to which the captured one is applied if it has the same nodes and edges. It has the new
        parameters from the next launch on, and is returned; else the `refused` of a new one says why.

        A capture that was broken is an `EngineError`: by an operation that cannot be captured, or by a forked stream that was not joined.
        The streams are usable again.
        """

    def abandon_capture(self, stream: Stream) -> None:
        """End a capture and discard it; leave every stream usable. Never raises."""

    def gate(self) -> Gate:
        """Make a closed gate."""

    def now_ns(self) -> int:
        """Return the host clock: monotonic, in ns; virtual on the simulated device."""

    def elapsed_ns(self, start: Event, end: Event) -> float:
        """Return the time from one timed event's latest record to another's, in ns. Both must be done, and of one GPU."""

    def synchronize(self) -> None:
        """Block the host until all streams are empty."""
