"""Probes: the small measurements on a GPU and its host that a cost model is made of."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from streamscope.devices.cuda.bench import CudaBench
from streamscope.devices.cuda.device import CudaDevice
from streamscope.devices.cuda.streams import CudaStream
from streamscope.engines.binding import capturing, settled
from streamscope.kernels.elementwise.specialization import bind
from streamscope.kernels.library.libraries import libraries
from streamscope.kernels.source import KernelSource
from streamscope.ops.binary import add
from streamscope.program.variable import ArraySpec
from streamscope.recording.calibration import median_reading_ns

if TYPE_CHECKING:
    from streamscope.devices.protocol import Device, Stream

Call = Callable[[], None]

_NULL = KernelSource("null_kernel", 'extern "C" __global__ void null_kernel() {}\n')

MULTIPLY_ADDS = 2  # of each thread and turn of the kernel below with two chains
_CHAINS = KernelSource(
    "chains",
    """
// Chains of dependent multiply-adds: one a thread hides little latency, two fill the pipelines.
extern "C" __global__ void chains(float* out, int turns, int second)
{
    float x = threadIdx.x * 1e-3f, y = x + 1.0f;
    if (second) for (int i = 0; i < turns; ++i) { x = fmaf(x, 0.999f, 0.1f); y = fmaf(y, 0.998f, 0.2f); }
    else for (int i = 0; i < turns; ++i) x = fmaf(x, 0.999f, 0.1f);
    if (x == 12345.0f) out[0] = y;
}
""",
)


class Probes:
    """Measures single costs on one stream of a device."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.stream: CudaStream = device.stream("probe")
        self.bench = CudaBench(device, self.stream)
        self.null: Call = self.bench.kernel(_NULL, 1, 32, [])
        self._runtime = libraries().runtime

    def host_ns(self, call: Callable[[], object], count: int = 900, rounds: int = 7) -> float:
        """Return the host cost of one call, in ns: the least of some rounds, each short enough not to fill the queue."""
        calls = [call] * count

        def once() -> float:
            start = time.perf_counter_ns()
            for one in calls:
                one()
            elapsed = time.perf_counter_ns() - start
            self.stream.synchronize()
            return elapsed / count

        with settled([cast("Stream", self.stream)]):
            return min(once() for _ in range(rounds))

    def gated_ns(self, body: Callable[[], object], repeats: int = 15) -> float:
        """Return the median reading of a pair of events around the work of a call behind a gate, in ns."""
        device, stream = cast("Device", self.device), cast("Stream", self.stream)
        with settled([stream]):
            body()  # Ungated first: a library that loads a kernel at its first launch waits for the device.
            stream.synchronize()
        return median_reading_ns(device, stream, (device.event(timing=True), device.event(timing=True)), body, repeats)

    def addition(self, elements: int) -> Call:
        """Prepare an addition of float32 arrays."""
        cupy = libraries().cupy
        arrays = [cupy.ones(elements, np.float32) for _ in range(3)]
        spec = ArraySpec((elements,), np.dtype(np.float32))
        return bind(self.bench, add.signature([spec, spec], {}), arrays, {})

    def chains(self, blocks: int, turns: int, *, second: bool) -> Call:
        """Prepare the arithmetic kernel, blocks of 256 threads."""
        out = self.device.empty_bytes(4)
        return self.bench.kernel(_CHAINS, blocks, 256, [out, ctypes.c_int(turns), ctypes.c_int(int(second))])

    def matmul(self, extent: int) -> Call:
        """Prepare a product of square float16 matrices of random values (zeros would run faster)."""
        cupy = libraries().cupy
        a, b = (cupy.random.standard_normal((extent, extent), dtype=np.float32).astype(np.float16) for _ in range(2))
        return self.bench.matmul(a, b, cupy.empty((extent, extent), np.float16))

    def copy(self, nbytes: int, kind: int) -> Call:
        """Prepare a copy of page-locked memory: to the device (kind 1) or from it (kind 2)."""
        host = libraries().cupy.cuda.alloc_pinned_memory(nbytes)
        device = self.device.empty_bytes(nbytes)
        ends = (device.data.ptr, host.ptr) if kind == 1 else (host.ptr, device.data.ptr)
        call = partial(self._runtime.memcpyAsync, *ends, nbytes, kind, self.stream.pointer)
        call.kept = (host, device)  # type: ignore[attr-defined]
        return call

    def graph(self, call: Call, nodes: int) -> tuple[Any, float]:
        """Capture a chain of calls; return the graph and the time that instantiating it took, in ns."""
        with capturing(cast("Device", self.device), cast("Stream", self.stream)) as graphs:
            for _ in range(nodes):
                call()
            start = time.perf_counter_ns()
        return graphs[0], float(time.perf_counter_ns() - start)

    def queue_depth(self) -> int:
        """Return how many launches a held stream takes before the host blocks; a timer opens the gate when it does."""
        gate = self.device.gate()
        gate.hold(self.stream)
        timer = threading.Timer(0.5, gate.open)
        timer.start()
        try:
            for count in range(1, 1 << 16):
                start = time.perf_counter_ns()
                self.null()
                if time.perf_counter_ns() - start > 50_000_000:
                    return count
            return 1 << 16
        finally:
            timer.join()
            self.stream.synchronize()


def slope(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Return slope and intercept of the least-squares line."""
    gradient, intercept = np.polyfit(np.asarray(xs), np.asarray(ys), 1)
    return float(gradient), float(intercept)
