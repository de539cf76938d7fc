"""The CUDA device."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.devices.cuda.bench import CudaBench
from streamscope.devices.cuda.driver import checked, cuda_errors, libraries
from streamscope.devices.cuda.gate import CudaGate, GateWord
from streamscope.devices.cuda.graph import CudaGraph, GraphDestroyer
from streamscope.devices.cuda.memory import CudaBuffer, allocate
from streamscope.devices.cuda.streams import CudaEvent, CudaStream
from streamscope.devices.measured_models import model_of
from streamscope.errors import DeviceError, EngineError
from streamscope.program.launch import HostCall, Launch, LaunchKind, call_host_function
from streamscope.program.variable import ArraySpec, Place
from streamscope.rtc.nvrtc import compile_cubin
from streamscope.rtc.source import KernelSource
from streamscope.trace.trace import DeviceInfo

Array = npt.NDArray[Any]
Call = Callable[[], None]

_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2  # cudaMemcpyKind


class CudaDevice:
    """One NVIDIA GPU.

    Parameters
    ----------
    index : int
        Which of the machine's GPUs.

    Raises
    ------
    NoDeviceError
        There is no usable GPU, or a library is missing.
    """

    queue_depth = 1024

    def __init__(self, index: int = 0) -> None:
        lib = libraries()
        with cuda_errors(f"opening CUDA device {index}"):
            self._device = lib.cupy.cuda.Device(index)
            self._device.use()
            self.properties = lib.runtime.getDeviceProperties(index)
        self._destroyer = GraphDestroyer()
        self._runtime = lib.runtime
        self._cache: dict[Any, Any] = {}
        self._modules: dict[KernelSource, Any] = {}
        self._gates = GateWord()
        self._model = model_of(self.properties["name"].decode())

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
    def working_kernel_ns(self) -> float:
        """Duration of an addition of 4,096 float32 by CUPTI, the reference of the recorder's calibration; see `measured_models`."""
        return self._model.working_kernel_ns

    @property
    def architecture(self) -> str:
        """For example ``"sm_90"``."""
        return f"sm_{self.properties['major']}{self.properties['minor']}"

    def estimate_ns(self, launch: Launch) -> float:
        """Return about how long a launch runs, by the H200's cost model."""
        return self._model.copy_ns(launch.cost, launch.kind) if launch.kind is not LaunchKind.KERNEL else self._model.kernel_ns(launch.cost)

    def use(self) -> None:
        """Make this device the calling thread's."""
        with cuda_errors("choosing the device"):
            self._device.use()

    def stream(self, name: str, *, priority: int = 0) -> CudaStream:
        """Make a stream; CUDA's priorities run the other way, 0 down to the device's highest, which is negative."""
        with cuda_errors(f"making stream {name!r}"):
            return CudaStream(self, name, priority)

    def event(self, *, timing: bool = False) -> CudaEvent:
        """Make an event."""
        with cuda_errors("making an event"):
            return CudaEvent(timing=timing)

    def allocate(self, spec: ArraySpec, place: Place) -> CudaBuffer:
        """Allocate memory; its contents are undefined."""
        return allocate(spec, place)

    def empty_bytes(self, nbytes: int) -> Any:
        """Allocate scratch memory on the device as a CuPy array of bytes."""
        with cuda_errors(f"allocating {nbytes} bytes of workspace"):
            return libraries().cupy.empty(nbytes, np.uint8)

    def write(self, buffer: CudaBuffer, values: Array) -> None:
        """Fill a buffer from the host, blocking."""
        if buffer.place is Place.HOST:
            np.copyto(buffer.array, values)
        else:
            with cuda_errors("copying to the device"):
                buffer.array.set(np.ascontiguousarray(values))
                self._device.synchronize()

    def read(self, buffer: CudaBuffer) -> Array:
        """Return a copy of a buffer's values, blocking."""
        if buffer.place is Place.HOST:
            return np.array(buffer.array)
        with cuda_errors("copying from the device"):
            return np.asarray(buffer.array.get())

    def bind(self, launch: Launch, reads: Sequence[CudaBuffer], writes: Sequence[CudaBuffer], stream: CudaStream) -> Call:
        """Prepare a launch on a stream, arguments packed once."""
        if launch.cuda is None and launch.kind is not LaunchKind.KERNEL:
            return self._bind_copy(launch, reads[0], writes[0], stream)
        if launch.cuda is None:
            raise DeviceError(f"{launch.name} cannot run on CUDA", hint="run it with --device simulated")
        with cuda_errors(f"preparing {launch.name}"):
            return launch.cuda(CudaBench(self, stream), [b.array for b in reads], [b.array for b in writes])

    def _bind_copy(self, launch: Launch, source: CudaBuffer, target: CudaBuffer, stream: CudaStream) -> Call:
        kind = _HOST_TO_DEVICE if launch.kind is LaunchKind.COPY_IN else _DEVICE_TO_HOST
        copy = self._runtime.memcpyAsync
        return partial(copy, target.pointer, source.pointer, source.spec.nbytes, kind, stream.pointer)

    def bind_host(self, call: HostCall, reads: Sequence[CudaBuffer], writes: Sequence[CudaBuffer]) -> Call:
        """Prepare a host function; its results are copied into what it writes."""

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
        """Whether a capture goes on."""
        return self._destroyer.capturing

    def begin_capture(self, stream: CudaStream) -> None:
        """Start to capture a stream, for this thread only."""
        with cuda_errors(f"capturing stream {stream.name!r}"):
            self._runtime.streamBeginCapture(stream.pointer, self._runtime.streamCaptureModeThreadLocal)
        self._destroyer.capturing = True

    def end_capture(self, stream: CudaStream) -> CudaGraph:
        """End the capture and instantiate the graph."""
        try:
            return CudaGraph(self.end_capture_raw(stream), self._destroyer)
        except (self._runtime.CUDARuntimeError, DeviceError) as error:
            raise EngineError(
                f"the capture of stream {stream.name!r} failed: {error}",
                hint="an operation synchronised, allocated memory, or used a stream that was not joined; mark it capturable=False",
            ) from error

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
            self._destroyer.capturing = False
            self._destroyer.flush()
        return graph

    def gate(self) -> CudaGate:
        """Make a closed gate."""
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
        """Return the loaded module of a kernel, compiled at first use."""
        if source not in self._modules:
            module = libraries().cupy.cuda.function.Module()
            module.load(compile_cubin(source, self.architecture))
            self._modules[source] = module
        return self._modules[source]

    def cached(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what was made for a key, made at first use: library plans that all engines share."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def auxiliary_of(self, stream: CudaStream) -> CudaStream | None:
        """Return the auxiliary stream for scopes opened on a stream; None where the engine has one stream."""
        return stream.auxiliary

    def pair(self, stream: CudaStream, auxiliary: CudaStream) -> None:
        """Let scopes that are opened on ``stream`` use ``auxiliary``."""
        stream.auxiliary = auxiliary

    def scope_events(self, stream: CudaStream) -> tuple[CudaEvent, CudaEvent]:
        """Return the fork and the join event of a stream's auxiliary scope."""
        fork, join = self.cached(("scope", stream.pointer), lambda: (self.event(), self.event()))
        return fork, join
