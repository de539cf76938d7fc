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
from streamscope.devices.cuda.captures import CAPTURES, relaxed_captures
from streamscope.devices.cuda.collectives import Collectives
from streamscope.devices.cuda.gate import CudaGate, gate_word
from streamscope.devices.cuda.gpus import BY_ADDRESS, check_gpus, current_gpu, linked, named, with_current
from streamscope.devices.cuda.graph import CudaGraph
from streamscope.devices.cuda.graph_nodes import node_count
from streamscope.devices.cuda.memory import CudaBlock, CudaBuffer, allocate_block, buffer_on
from streamscope.devices.cuda.stamps import StampMemory
from streamscope.devices.cuda.streams import CudaEvent, CudaStream, EventOfHost, StreamOfHost
from streamscope.devices.measured_models import links_of, model_of
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
from streamscope.program.collective import Collective
from streamscope.program.launch import HostCall, Launch, LaunchKind, call_host_function
from streamscope.program.operation import Program
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.progress import Progress
from streamscope.trace.info import DeviceInfo
from streamscope.words import a_kind, listed

_Call = Callable[[], None]

_COPIES = {LaunchKind.COPY_IN: 1, LaunchKind.COPY_OUT: 2, LaunchKind.COPY_PEER: BY_ADDRESS}  # cudaMemcpyKind
_CAPTURE_HINT = "an operation synchronised, allocated memory, or used a stream that was not joined; mark it capturable=False"


class CudaDevice:
    """One NVIDIA GPU of this machine, or several.

    ``indices``: which of the machine's GPUs; GPU n of the device is the n-th of them. By default the framework's current one.

    On a machine with one GPU nothing is ever switched. On others, memory is allocated and library calls are made with the right GPU
    current. Our own kernels, copies, events and graphs name their stream, which is enough for CUDA.
    """

    def __init__(self, indices: Sequence[int] | None = None) -> None:
        lib = libraries()
        there = lib.runtime.getDeviceCount()
        self.indices = tuple(indices) if indices is not None else (current_gpu(),)
        check_gpus(self.indices, there)
        self.gpus = len(self.indices)
        self._switches = there > 1
        with cuda_errors(f"opening {named(self.indices)}"):
            self._devices = tuple(map(lib.cupy.cuda.Device, self.indices))
            self._devices[0].use()
            properties: list[dict[str, Any]] = list(map(lib.runtime.getDeviceProperties, self.indices))
            self._links = linked(self.indices)
        self.properties = properties[0]
        _check_alike(self.indices, properties)
        self.lock = threading.RLock()
        tell_children(self)
        self.captures = CAPTURES
        self.collectives = Collectives(self.indices)
        self._runtime = lib.runtime
        self._cache: dict[Any, Any] = {}
        self._cache_lock = threading.RLock()
        self._modules: dict[KernelSource, Any] = {}
        self._images: dict[KernelSource, Cubin] = {}
        self._ready = Alive[int, Program]()
        self._cubins: dict[tuple[str, int], Any] = {}
        # Machine code is unloaded with its last reference: each takes a megabyte of the device. That waits for all that runs there.
        when_gone(self, partial(self.captures.destroy, self._cubins.clear))
        self._loading: dict[tuple[str, int], threading.Lock] = {}
        self._gates = gate_word(self)
        self._of_thread = threading.local()
        name = self.properties["name"].decode()
        self._model, self._link_model = model_of(name), links_of(self.gpus, name)
        self.tuned = tuned_variants(name)

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
        name = properties["name"].decode()
        if self.gpus == 1:
            return DeviceInfo("cuda", name, details)
        host = {
            "gpu_count": self.gpus,
            "cuda_gpus": [*self.indices],
            "links": sorted(set(self._links.values())),
            "collectives": self.collectives.library,
        }
        return DeviceInfo("cuda", f"{self.gpus} × {name}", details | host)

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
        if launch.collective is not None:
            return self._link_model.collective_ns(launch.collective.kind, launch.collective.nbytes, len(launch.collective.gpus))
        if launch.kind is LaunchKind.COPY_PEER:
            return self._link_model.peer_copy_ns(launch.cost.bytes, self.link(launch.gpu, launch.to_gpu))
        return self._model.estimate_ns(launch)

    @property
    def room(self) -> int:
        """All multiprocessors of a GPU."""
        return int(self.properties["multiProcessorCount"])

    def link(self, source: int, target: int) -> str:
        """Return how copies go from one GPU to another: by ``"nvlink"``, by ``"pcie"`` or through the ``"host"``."""
        return self._links[source, target]

    def channels(self, collective: Collective) -> int:
        """Return how many multiprocessors of each GPU NCCL's kernel holds, as measured here or, without that, on hosts with H100."""
        return self._link_model.channels(collective.kind, collective.nbytes, len(collective.gpus))

    def use(self) -> None:
        """Make this device the calling thread's; of several GPUs the first."""
        with cuda_errors("choosing the device"):
            self._devices[0].use()

    def on(self, gpu: int) -> AbstractContextManager[Any]:
        """Make a GPU the calling thread's current one in a block: ``with device.on(1): ...``."""
        return self._devices[gpu] if self._switches else _NOTHING

    def let_finish(self, streams: Sequence[CudaStream]) -> None:
        """Wait for streams whose memory goes, from whichever thread, even one that captures; failures are ignored."""
        with suppress(Exception), relaxed_captures():
            for stream in streams:
                for each in (stream, stream.auxiliary):  # Ctrl-C may have come before the two were joined.
                    with suppress(DeviceError):
                        if each is not None:
                            each.synchronize()

    def stream(self, name: str, *, priority: int = 0, gpu: int = 0) -> CudaStream:
        """Make a stream; CUDA's priorities run the other way, 0 down to the device's highest, which is negative."""
        kind = CudaStream if self.gpus == 1 else StreamOfHost
        with cuda_errors(f"making stream {name!r}"), self.on(gpu):
            return kind(self, name, priority, gpu)

    def event(self, *, timing: bool = False, gpu: int = 0) -> CudaEvent:
        """Make an event, which is recorded on streams of its GPU, and waited for by any."""
        with cuda_errors("making an event"), self.on(gpu):
            return CudaEvent(timing=timing) if self.gpus == 1 else EventOfHost(self.collectives, timing=timing, gpu=gpu)

    def allocate(self, spec: ArraySpec, place: MemoryPlace, *, gpu: int = 0) -> CudaBuffer:
        """Allocate memory; its contents are undefined."""
        return self.buffer_on(self.allocate_block(spec.nbytes, place, gpu=gpu), spec)

    def allocate_block(self, nbytes: int, place: MemoryPlace, *, gpu: int = 0) -> CudaBlock:
        """Allocate memory of a GPU, whichever is CuPy's current one, or page-locked memory on the host."""
        with self.on(gpu):
            return allocate_block(nbytes, place, gpu)

    def buffer_on(self, block: CudaBlock, spec: ArraySpec, stream: CudaStream | None = None) -> CudaBuffer:
        """Use a block for an array; its contents are those that the last user left, whatever the stream."""
        with self.on(block.gpu):
            return buffer_on(block, spec)

    def empty_bytes(self, nbytes: int, gpu: int = 0) -> Any:
        """Allocate scratch memory on a GPU as a CuPy array of bytes."""
        with cuda_errors(f"allocating {nbytes:,} bytes of workspace"), self.on(gpu):
            return libraries().cupy.empty(nbytes, np.uint8)

    def let_go_after(self, buffer: CudaBuffer, first: Launch | HostCall, uses: int) -> None:
        """Do nothing: graphs and packed arguments hold addresses, so memory stays where it is."""

    def memory_of(self, streams: Iterable[CudaStream]) -> dict[str, int]:
        """Return the bytes of device memory that streams and their auxiliary ones hold for themselves, by purpose."""
        held = {each for stream in streams for each in (stream, stream.auxiliary) if each is not None}
        return {
            "workspaces_bytes": sum(stream.workspace_bytes for stream in held),
            "temporaries_bytes": sum(stream.temporary_bytes for stream in held),
        }

    def free_share(self) -> float:
        """Return the share of memory that is free, idle blocks of CuPy's pool included; of several GPUs, where it is smallest."""
        return min(map(self._free_share, range(self.gpus)))

    def _free_share(self, gpu: int) -> float:
        with cuda_errors("asking for free memory"), self.on(gpu):
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
        with cuda_errors("taking over an array"):
            gpu = self._gpu_of(memory.__cuda_array_interface__["data"][0])
            with self.on(gpu):  # CuPy would copy the array to its current GPU.
                array = cupy.asarray(memory)
                cupy.cuda.get_current_stream().synchronize()
        if not array.flags.c_contiguous:
            raise DeviceError("an array that is not in one piece cannot be used in place", hint="pass cupy.ascontiguousarray(...)")
        return CudaBuffer(ArraySpec(array.shape, array.dtype), place, array, gpu)

    def _gpu_of(self, address: int) -> int:
        """Return which of the device's GPUs memory belongs to; an empty array, which has none, counts as the first's."""
        if not self._switches or not address:
            return 0
        index = int(self._runtime.pointerGetAttributes(address).device)
        if index not in self.indices:
            raise DeviceError(f"an array lies on GPU {index}, and this device is {named(self.indices)}", hint="copy it there first")
        return self.indices.index(index)

    def write(self, buffer: CudaBuffer, values: Array) -> None:
        """Fill a buffer from the host, blocking."""
        if buffer.place is MemoryPlace.HOST:
            np.copyto(buffer.array, values)
        else:
            with cuda_errors("copying to the device"), self.on(buffer.gpu), self._transfers(buffer.gpu) as stream:
                buffer.array.set(np.asarray(values, order="C"))  # not ascontiguousarray, which makes 0 axes 1
                # CUDA may return from a copy of pageable memory before the device has it.
                stream.synchronize()

    def read(self, buffer: CudaBuffer) -> Array:
        """Return a copy of a buffer's values, blocking."""
        if buffer.place is MemoryPlace.HOST:
            return np.array(buffer.array)
        with cuda_errors("copying from the device"), self.on(buffer.gpu), self._transfers(buffer.gpu):
            return np.asarray(buffer.array.get())

    def _transfers(self, gpu: int = 0) -> Any:
        """Return a stream of the calling thread's own: CUDA forbids calls that wait for the default stream while any thread captures."""
        if not hasattr(self._of_thread, "transfers"):
            self._of_thread.transfers = [None] * self.gpus
        streams = self._of_thread.transfers
        if streams[gpu] is None:
            with self.on(gpu):
                streams[gpu] = libraries().cupy.cuda.Stream(non_blocking=True)
        return streams[gpu]

    def bind(self, launch: Launch, reads: Sequence[CudaBuffer], writes: Sequence[CudaBuffer], stream: CudaStream) -> _Call:
        """Prepare a launch on a stream, arguments packed once."""
        seen = [buffer.seen(view) for buffer, view in zip(reads, launch.views, strict=True)] if launch.views else reads
        written = [buffer.seen(part) for buffer, part in zip(writes, launch.written, strict=True)] if launch.written else writes
        if launch.cuda is None and launch.kind is not LaunchKind.KERNEL:
            return self._bind_copy(launch, seen[0], writes[0], stream)
        if launch.cuda is None:
            raise DeviceError(f"{launch.name} cannot run on CUDA", hint="run it with device='simulated'")
        with cuda_errors(f"preparing {launch.name}"), self.on(stream.gpu):
            bench = CudaBench(self, stream, f"{launch.name!r} (operation {launch.operation})", (launch.operation, launch.part))
            call = launch.cuda(bench, [b.array for b in seen], [b.array for b in written])
        return self._with_current(stream.gpu, call)

    def _with_current(self, gpu: int, call: _Call) -> _Call:
        """Let a bound call run with its GPU current, where it needs that: the driver launches a kernel on the GPU of its stream."""
        if not self._switches or getattr(call, "func", None) is libraries().driver.launchKernel:
            return call
        return with_current(self.indices[gpu], call)

    def bind_collective(
        self,
        launches: Sequence[Launch],
        reads: Sequence[Sequence[CudaBuffer]],
        writes: Sequence[Sequence[CudaBuffer]],
        streams: Sequence[CudaStream],
    ) -> _Call:
        """Prepare a collective: each call of the result puts all parts on their streams, in one group."""
        operands = [
            [buffer.seen(view) for buffer, (_, view) in zip(buffers, launch.operands, strict=True)]
            for launch, buffers in zip(launches, reads, strict=True)
        ]
        results = [
            [buffer.seen(view) for buffer, (_, view) in zip(buffers, launch.results, strict=True)]
            for launch, buffers in zip(launches, writes, strict=True)
        ]
        with cuda_errors(f"preparing {launches[0].name}"):
            return self.collectives.bind(launches, operands, results, streams)

    def abort_collectives(self) -> None:
        """End all collectives that are under way, whose results are undefined; those that follow get new communicators.

        Graphs that hold collectives cannot be launched any more.
        """
        self.collectives.abort()

    @property
    def collective_aborts(self) -> int:
        """How often collectives were aborted."""
        return self.collectives.aborts

    def _bind_copy(self, launch: Launch, source: CudaBuffer, target: CudaBuffer, stream: CudaStream) -> _Call:
        kind = _COPIES[launch.kind]
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
        self.collectives.begin_capture()
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
            graph = CudaGraph(captured, self.captures, self._transfers()) if update is None else self._updated(update, captured)
        except (self._runtime.CUDARuntimeError, DeviceError) as error:
            raise EngineError(f"the capture of stream {stream.name!r} failed: {error}", hint=_CAPTURE_HINT) from error
        self.collectives.end_capture(graph)
        return graph

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
        """Return the time between two events of one GPU, in ns."""
        if start.gpu != end.gpu:
            raise DeviceError(
                f"there is no time between events of GPU {start.gpu} and GPU {end.gpu}", hint="tie each GPU's events to the host's clock"
            )
        with cuda_errors("reading the time between two events"):
            return float(checked(libraries().cuda.cuEventElapsedTime(start.binding, end.binding))) * 1e6

    def synchronize(self) -> None:
        """Block the host until the device is idle."""
        for gpu in range(self.gpus):
            with cuda_errors("waiting for the device"), self.on(gpu):
                self._runtime.deviceSynchronize()

    def module(self, source: KernelSource, gpu: int = 0) -> Any:
        """Return the loaded module of a kernel, compiled at first use; kernels that were compiled together share one."""
        if source not in self._modules:
            self.load({source: compile_kernel(source, self.architecture)})
        return self._modules[source] if gpu == 0 else self._loaded_once(self._images[source], gpu, compilations())

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
        """Load kernels that were compiled on the first GPU, those that were compiled together once; on others, `module` does.

        ``log`` notes it, by default `compilations`.
        """
        for source, cubin in cubins.items():
            module = self._loaded_once(cubin, 0, log if log is not None else compilations())
            if self.gpus > 1:
                self._images[source] = cubin
            self._modules[source] = module

    def _loaded_once(self, cubin: Cubin, gpu: int, log: CompilationLog) -> Any:
        key = cubin.digest, gpu
        if key not in self._cubins:
            # A lock for each: other threads load theirs, or make what `cached` keeps, in the meantime.
            with self._loading.setdefault(key, threading.Lock()):
                if key not in self._cubins:
                    self._cubins[key] = self._loaded(cubin, gpu, log)
                    self._loading.pop(key, None)  # Who waits for it, or gets a new one, finds the cubin.
        return self._cubins[key]

    def _loaded(self, cubin: Cubin, gpu: int, log: CompilationLog) -> Any:
        loading = log.stage(CompileStage.LOAD, f"{cubin.kernels} kernels" if cubin.kernels > 1 else "1 kernel", len(cubin.image))
        with cuda_errors("loading kernels"), self.on(gpu), loading:
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
        fork, join = self.cached(("scope", stream.pointer), lambda: (self.event(gpu=stream.gpu), self.event(gpu=stream.gpu)))
        return fork, join


_NOTHING = nullcontext()


def _check_alike(indices: Sequence[int], properties: Sequence[Mapping[str, Any]]) -> None:
    """Check that kernels that are compiled once run on all GPUs of a host."""
    if len({(each["major"], each["minor"]) for each in properties}) > 1:
        names = [f"{index} ({each['name'].decode()})" for index, each in zip(indices, properties, strict=True)]
        raise DeviceError(f"GPUs of different architectures are no host: {listed(names)}", hint="choose equal ones: gpus=[...]")
