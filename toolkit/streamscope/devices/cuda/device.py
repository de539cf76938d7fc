"""The CUDA device."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import numpy as np

from streamscope.arrays import Array
from streamscope.devices.cuda.bench import CudaBench
from streamscope.devices.cuda.gate import CudaGate, gate_word
from streamscope.devices.cuda.graph import CAPTURES, CudaGraph, relaxed_captures
from streamscope.devices.cuda.graph_nodes import node_count
from streamscope.devices.cuda.memory import CudaBlock, CudaBuffer, allocate_block, buffer_on
from streamscope.devices.cuda.stamps import StampMemory
from streamscope.devices.cuda.streams import CudaEvent, CudaStream
from streamscope.devices.measured_models import model_of
from streamscope.errors import DeviceError, EngineError
from streamscope.forks import foreign_lock, tell_children
from streamscope.interrupts import Alive, when_gone
from streamscope.kernels.compile.batch import compile_batch, compile_kernel
from streamscope.kernels.compile.compilation_log import CompilationLog, CompileStage, compilations
from streamscope.kernels.compile.cubin import Cubin
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.kernels.compile.tuned_variants import tuned_variants
from streamscope.kernels.library.libraries import checked, cuda_errors, libraries
from streamscope.kernels.source import KernelSource, stamped
from streamscope.program.launch import HostCall, Launch, LaunchKind, call_host_function
from streamscope.program.operation import Program
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.progress import Progress
from streamscope.trace.info import DeviceInfo
from streamscope.words import a_kind

_Call = Callable[[], None]

_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2  # cudaMemcpyKind
_CAPTURE_HINT = "an operation synchronised, allocated memory, or used a stream that was not joined; mark it capturable=False"


class CudaDevice:
    """One NVIDIA GPU.

    ``index``: which of the machine's GPUs.
    """

    def __init__(self, index: int = 0) -> None:
        lib = libraries()
        with cuda_errors(f"opening CUDA device {index}"):
            self._device = lib.cupy.cuda.Device(index)
            self._device.use()
            self.properties = lib.runtime.getDeviceProperties(index)
        self.lock = threading.RLock()
        tell_children(self)
        self.captures = CAPTURES
        self._runtime = lib.runtime
        self._cache: dict[Any, Any] = {}
        self._cache_lock = threading.RLock()
        self._modules: dict[KernelSource, Any] = {}
        self._ready = Alive[int, Program]()
        self._cubins: dict[str, Any] = {}
        # Machine code is unloaded with its last reference: each takes a megabyte of the device. That waits for all that runs there.
        when_gone(self, partial(self.captures.destroy, self._cubins.clear))
        self._loading: dict[str, threading.Lock] = {}
        self._gates = gate_word(self)
        self._of_thread = threading.local()
        self._model = model_of(self.properties["name"].decode())
        self.tuned = tuned_variants(self.properties["name"].decode())

    def _leave_behind(self) -> None:
        """Refuse engines: this is a forked child (see `forks`)."""
        self.lock = foreign_lock("an engine on this device")

    @property
    def info(self) -> DeviceInfo:
        """Name, driver and chip."""
        properties = self.properties
        details = {
            "driver": self._runtime.driverGetVersion(),
            "runtime": self._runtime.runtimeGetVersion(),
            "compute_capability": f"{properties['major']}.{properties['minor']}",
            "multiprocessors": properties["multiProcessorCount"],
            "memory_bytes": properties["totalGlobalMem"],
            "cost_model_of": self._model.provenance.device,
        }
        return DeviceInfo("cuda", properties["name"].decode(), details)

    @property
    def single_threaded(self) -> bool:
        """False: the host's clock runs by itself."""
        return False

    @property
    def repeats_exactly(self) -> bool:
        """False: no two runs take the same time."""
        return False

    @property
    def log(self) -> None:
        """None: recording takes events."""
        return None

    @property
    def working_kernel_ns(self) -> float:
        """Duration of an addition of 4,096 float32 by CUPTI, the reference of the recorder's calibration; see `measured_models`."""
        return self._model.working_kernel_ns

    @property
    def architecture(self) -> str:
        """For example ``"sm_90"``."""
        return f"sm_{self.properties['major']}{self.properties['minor']}"

    def estimate_ns(self, launch: Launch) -> float:
        """Return about how long a launch runs, by this GPU's cost model or, where none was measured, the H200's."""
        return self._model.estimate_ns(launch)

    def use(self) -> None:
        """Make this device the calling thread's."""
        with cuda_errors("choosing the device"):
            self._device.use()

    def let_finish(self, streams: Sequence[CudaStream]) -> None:
        """Wait for streams whose memory goes, from whichever thread, even one that captures; failures are ignored."""
        with suppress(Exception), relaxed_captures():
            for stream in streams:
                for each in (stream, stream.auxiliary):  # Ctrl-C may have come before the two were joined.
                    with suppress(DeviceError):
                        if each is not None:
                            each.synchronize()

    def stream(self, name: str, *, priority: int = 0) -> CudaStream:
        """Make a stream; CUDA's priorities run the other way, 0 down to the device's highest, which is negative."""
        with cuda_errors(f"making stream {name!r}"):
            return CudaStream(self, name, priority)

    def event(self, *, timing: bool = False) -> CudaEvent:
        """Make an event."""
        with cuda_errors("making an event"):
            return CudaEvent(timing=timing)

    def allocate(self, spec: ArraySpec, place: MemoryPlace) -> CudaBuffer:
        """Allocate memory; its contents are undefined."""
        return self.buffer_on(self.allocate_block(spec.nbytes, place), spec)

    def allocate_block(self, nbytes: int, place: MemoryPlace) -> CudaBlock:
        """Allocate memory on this device, whichever is CuPy's current one, or page-locked memory on the host."""
        with self._device:
            return allocate_block(nbytes, place)

    def buffer_on(self, block: CudaBlock, spec: ArraySpec, stream: CudaStream | None = None) -> CudaBuffer:
        """Use a block for an array; its contents are those that the last user left, whatever the stream."""
        with self._device:
            return buffer_on(block, spec)

    def empty_bytes(self, nbytes: int) -> Any:
        """Allocate scratch memory on the device as a CuPy array of bytes."""
        with cuda_errors(f"allocating {nbytes:,} bytes of workspace"), self._device:
            return libraries().cupy.empty(nbytes, np.uint8)

    def let_go_after(self, buffer: CudaBuffer, first: Launch | HostCall, uses: int) -> None:
        """Do nothing: graphs and packed arguments hold addresses, so memory stays where it is."""

    def memory_of(self, streams: Iterable[CudaStream]) -> dict[str, int]:
        """Return the bytes of device memory that streams and their auxiliary ones hold for themselves, by purpose."""
        held = {each for stream in streams for each in (stream, stream.auxiliary) if each is not None}
        with self._device:  # CuPy's pools count for the current device.
            return {
                "workspaces_bytes": sum(stream.workspace_bytes for stream in held),
                "temporaries_bytes": sum(stream.temporary_bytes for stream in held),
            }

    def free_share(self) -> float:
        """Return the share of the device's memory that is free, idle blocks of CuPy's pool included."""
        with cuda_errors("asking for free memory"), self._device:
            free, total = self._runtime.memGetInfo()
            return float(free + libraries().cupy.get_default_memory_pool().free_bytes()) / float(total)

    def adopt(self, memory: Any, place: MemoryPlace) -> CudaBuffer:
        """Use a CuPy array, or another object with device memory, as a buffer. Blocks until CuPy's current stream has filled it."""
        if isinstance(memory, CudaBuffer):
            return memory
        if place is MemoryPlace.HOST:
            raise DeviceError(f"{a_kind(memory)} is not page-locked memory", hint="make a buffer with device.allocate")
        if not hasattr(memory, "__cuda_array_interface__"):
            raise DeviceError(f"{a_kind(memory)} is not in device memory", hint="pass a CuPy array, or fill the input with load")
        cupy = libraries().cupy
        with cuda_errors("taking over an array"), self._device:
            array = cupy.asarray(memory)
            cupy.cuda.get_current_stream().synchronize()
        if not array.flags.c_contiguous:
            raise DeviceError("an array that is not in one piece cannot be used in place", hint="pass cupy.ascontiguousarray(...)")
        return CudaBuffer(ArraySpec(array.shape, array.dtype), place, array)

    def write(self, buffer: CudaBuffer, values: Array) -> None:
        """Fill a buffer from the host, blocking."""
        if buffer.place is MemoryPlace.HOST:
            np.copyto(buffer.array, values)
        else:
            with cuda_errors("copying to the device"), self._transfers() as stream:
                buffer.array.set(np.asarray(values, order="C"))  # not ascontiguousarray, which makes 0 axes 1
                # CUDA may return from a copy of pageable memory before the device has it.
                stream.synchronize()

    def read(self, buffer: CudaBuffer) -> Array:
        """Return a copy of a buffer's values, blocking."""
        if buffer.place is MemoryPlace.HOST:
            return np.array(buffer.array)
        with cuda_errors("copying from the device"), self._transfers():
            return np.asarray(buffer.array.get())

    def _transfers(self) -> Any:
        """Return a stream of the calling thread's own: CUDA forbids calls that wait for the default stream while any thread captures."""
        if not hasattr(self._of_thread, "transfers"):
            self._of_thread.transfers = libraries().cupy.cuda.Stream(non_blocking=True)
        return self._of_thread.transfers

    def bind(self, launch: Launch, reads: Sequence[CudaBuffer], writes: Sequence[CudaBuffer], stream: CudaStream) -> _Call:
        """Prepare a launch on a stream, arguments packed once."""
        seen = [buffer.seen(view) for buffer, view in zip(reads, launch.views, strict=True)] if launch.views else reads
        written = [buffer.seen(part) for buffer, part in zip(writes, launch.written, strict=True)] if launch.written else writes
        if launch.cuda is None and launch.kind is not LaunchKind.KERNEL:
            return self._bind_copy(launch, seen[0], writes[0], stream)
        if launch.cuda is None:
            raise DeviceError(f"{launch.name} cannot run on CUDA", hint="run it with device='simulated'")
        with cuda_errors(f"preparing {launch.name}"):
            bench = CudaBench(self, stream, f"{launch.name!r} (operation {launch.operation})", (launch.operation, launch.part))
            return launch.cuda(bench, [b.array for b in seen], [b.array for b in written])

    def _bind_copy(self, launch: Launch, source: CudaBuffer, target: CudaBuffer, stream: CudaStream) -> _Call:
        kind = _HOST_TO_DEVICE if launch.kind is LaunchKind.COPY_IN else _DEVICE_TO_HOST
        copy = self._runtime.memcpyAsync
        return partial(copy, target.pointer, source.pointer, source.spec.nbytes, kind, stream.pointer)

    def bind_host(self, call: HostCall, reads: Sequence[CudaBuffer], writes: Sequence[CudaBuffer]) -> _Call:
        """Prepare a host function; its results are copied into its outputs."""

        def run() -> None:
            results = call_host_function(call, [buffer.array for buffer in reads])
            if len(results) != len(writes):
                raise DeviceError(f"{call.name} returned {len(results)} arrays, but writes {len(writes)}", hint="see results=")
            for buffer, result in zip(writes, results, strict=True):
                if result.shape != buffer.spec.shape or not np.can_cast(result.dtype, buffer.spec.dtype, "same_kind"):
                    raise DeviceError(f"{call.name} returned {result.dtype}{list(result.shape)} for {buffer.spec}", hint="see results=")
                np.copyto(buffer.array, result)

        return run

    @property
    def capturing(self) -> bool:
        """Whether the calling thread captures."""
        return self.captures.active

    def begin_capture(self, stream: CudaStream) -> None:
        """Start to capture a stream, for this thread only."""
        self.captures.begun(stream.pointer)  # Before it is: what another thread destroys in between would break it.
        try:
            with cuda_errors(f"capturing stream {stream.name!r}"):
                self._runtime.streamBeginCapture(stream.pointer, self._runtime.streamCaptureModeThreadLocal)
        except BaseException:
            self.captures.ended(stream.pointer)
            raise

    def captured_nodes(self, stream: CudaStream) -> int:
        """Return how many nodes the capture of a stream has by now."""
        cuda = libraries().cuda
        status, _, graph, *_ = checked(cuda.cuStreamGetCaptureInfo(stream.binding))
        if status != cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE:
            raise EngineError(f"the capture of stream {stream.name!r} is broken", hint=_CAPTURE_HINT)
        return node_count(int(graph))

    def end_capture(self, stream: CudaStream, update: CudaGraph | None = None) -> CudaGraph:
        """End the capture, and update a graph with it where CUDA accepts that, else instantiate it."""
        try:
            captured = self.end_capture_raw(stream)
            return CudaGraph(captured, self.captures, self._transfers()) if update is None else self._updated(update, captured)
        except (self._runtime.CUDARuntimeError, DeviceError) as error:
            raise EngineError(f"the capture of stream {stream.name!r} failed: {error}", hint=_CAPTURE_HINT) from error

    def _updated(self, graph: CudaGraph, captured: int) -> CudaGraph:
        """Apply a captured graph to an instantiated one and return it or, where that is refused, a new one."""
        refused = graph.update(captured)
        return CudaGraph(captured, self.captures, self._transfers(), refused) if refused else graph

    def abandon_capture(self, stream: CudaStream) -> None:
        """End a capture and throw it away."""
        try:
            graph = self.end_capture_raw(stream)
        except self._runtime.CUDARuntimeError:
            return  # A capture that is broken already has no graph.
        if graph:
            self._runtime.graphDestroy(graph)

    def end_capture_raw(self, stream: CudaStream) -> int:
        """End a capture and return the address of the graph, which the caller must destroy; 0 where it was broken."""
        try:
            graph: int = self._runtime.streamEndCapture(stream.pointer)
        finally:
            self.captures.ended(stream.pointer)
        return graph

    def gate(self) -> CudaGate:
        """Make a closed gate.

        Raises
        ------
        DeviceError
            Each launch waits for the device: behind a gate it would wait for ever.
        """
        if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
            raise DeviceError(
                "CUDA_LAUNCH_BLOCKING is set, so launches wait, and nothing can be queued", hint="unset it, and start Python anew"
            )
        return self._gates.gate()

    def now_ns(self) -> int:
        """Return the host clock."""
        return time.perf_counter_ns()

    def elapsed_ns(self, start: CudaEvent, end: CudaEvent) -> float:
        """Return the time between two events, in ns."""
        with cuda_errors("reading the time between two events"):
            return float(checked(libraries().cuda.cuEventElapsedTime(start.binding, end.binding))) * 1e6

    def synchronize(self) -> None:
        """Block the host until the device is idle."""
        with cuda_errors("waiting for the device"):
            self._runtime.deviceSynchronize()

    def module(self, source: KernelSource) -> Any:
        """Return the loaded module of a kernel, compiled at first use; kernels that were compiled together share one."""
        if source not in self._modules:
            self.load({source: compile_kernel(source, self.architecture)})
        return self._modules[source]

    def make_ready(self, program: Program, progress: Progress | None = None) -> None:
        """Compile the kernels of a program that are not loaded yet, together, and load them; ``progress`` is told how many are."""
        if self._ready.get(id(program)) is program:
            return  # Several engines prepare the same program.
        self._load_all(program_kernels(program, self.tuned), progress and partial(progress, "compiling kernels"))
        self._ready[id(program)] = program

    def _load_all(self, sources: Iterable[KernelSource], progress: Callable[[int, int], None] | None = None) -> None:
        """Compile the kernels that are not loaded yet, together, and load them."""
        missing = [source for source in sources if source not in self._modules]
        if missing:
            result = compile_batch(missing, self.architecture, progress=progress)
            self.load(result.cubins)
            result.check()

    def stamp_memory(self, program: Program) -> StampMemory:
        """Compile the stamped forms of a program's generated kernels, together, and return memory that they can write to."""
        self._load_all(map(stamped, program_kernels(program, self.tuned)))
        return StampMemory(self)

    @contextmanager
    def stamping(self, memory: StampMemory) -> Iterator[None]:
        """Let generated kernels that the calling thread binds in the block stamp their blocks."""
        self._of_thread.stamps = memory
        try:
            yield
        finally:
            self._of_thread.stamps = None

    @property
    def stamps(self) -> StampMemory | None:
        """Where kernels write that the calling thread binds now; None: they are bound as they are."""
        return getattr(self._of_thread, "stamps", None)

    def load(self, cubins: Mapping[KernelSource, Cubin], log: CompilationLog | None = None) -> None:
        """Load kernels that were compiled, those that were compiled together once; ``log`` notes it, by default `compilations`."""
        for source, cubin in cubins.items():
            # A lock for each: other threads load theirs, or make what `cached` keeps, in the meantime.
            digest = cubin.digest
            with self._loading.setdefault(digest, threading.Lock()):
                if digest not in self._cubins:
                    self._cubins[digest] = self._loaded(cubin, log if log is not None else compilations())
                    self._loading.pop(digest, None)  # Who waits for it, or gets a new one, finds the cubin.
            self._modules[source] = self._cubins[digest]

    def _loaded(self, cubin: Cubin, log: CompilationLog) -> Any:
        loading = log.stage(CompileStage.LOAD, f"{cubin.kernels} kernels" if cubin.kernels > 1 else "1 kernel", len(cubin.image))
        with cuda_errors("loading kernels"), self._device, loading:
            module = libraries().cupy.cuda.function.Module()
            module.load(cubin.image)
            return module

    def cached(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the object of a key, made at first use: library plans that all engines share."""
        with self._cache_lock:
            if key not in self._cache:
                self._cache[key] = make()
            return self._cache[key]

    def watched(self, each: Callable[[Launch], None]) -> AbstractContextManager[None]:
        """Do nothing: a GPU tells nobody when a launch begins."""
        return nullcontext()

    def pair(self, stream: CudaStream, auxiliary: CudaStream) -> None:
        """Let scopes that are opened on ``stream`` use ``auxiliary``."""
        stream.auxiliary = auxiliary

    def scope_events(self, stream: CudaStream) -> tuple[CudaEvent, CudaEvent]:
        """Return the fork and the join event of a stream's auxiliary scope."""
        fork, join = self.cached(("scope", stream.pointer), lambda: (self.event(), self.event()))
        return fork, join
