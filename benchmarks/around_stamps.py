"""What stamps leave out of kernels of 1 to 500 µs, of one block to many, in chains on a stream and in a graph, and alone; on this GPU.

Kernels that spin, and kernels that double an array, in chains of their own kind. Stamps tell when the first block of each began and the
last one ended, CUPTI how long they took. Kernels alone are launched when the device is idle: at once or after 20 ms, and with its cache
full of other data or not.

    python benchmarks/around_stamps.py [RESULT.json]
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from provenance import keep, provenance
from stamp_accuracy import middle_mean

import streamscope as ss
from streamscope.devices.cuda.bench import CudaBench
from streamscope.devices.cuda.stamps import StampMemory
from streamscope.devices.gates import held
from streamscope.engines.binding import capturing
from streamscope.kernels.source import KernelSource
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.recording.cupti import kernel_durations_ns

CHAIN, REPEATS, WARM = 24, 8, 2
ELEMENTS = 1 << 25
CYCLES_PER_US = 1900
KERNEL = KernelSource(
    "work",
    """
extern "C" __global__ void work(float* x, const float* y, long long n, long long spin)
{
    const long long begun = clock64();
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) x[i] = y[i] * 2.0f;
    if (spin > 0) while (clock64() - begun < spin) {}
}
""",
)


def cases() -> dict[str, tuple[int, int, int, int]]:
    """Return blocks, threads, elements and cycles of each kernel."""
    spins = {f"spin {us} µs, {blocks}": (blocks, 256, 0, us * CYCLES_PER_US) for us in (1, 5, 20, 100, 500) for blocks in (1, 132)}
    doubles = {f"double, {blocks}": (blocks, 256, 256 * blocks, 0) for blocks in (1, 2, 4, 16, 66, 132, 264, 528, 1056, 4224, 16896)}
    return {**spins, **doubles, "double, 1 of 32": (1, 32, 32, 0), "double, 1 of 1024": (1, 1024, 1024, 0)}


class Chain:
    """Launches of one kernel, each with slots of its own, on a stream and in a graph."""

    def __init__(self, device: Any, arguments: list[Any], blocks: int, threads: int) -> None:
        self.device, self.stream, self.memory = device, device.stream("chain"), StampMemory(device)
        with device.stamping(self.memory):
            bench = CudaBench(device, self.stream, "a chain", (0, 0))
            self.calls = [bench.kernel(KERNEL, blocks, threads, arguments) for _ in range(CHAIN)]
        self.queue()
        device.synchronize()
        with capturing(device, self.stream) as graphs:
            self.queue()
        self.graph = graphs[0]

    def queue(self) -> None:
        for call in self.calls:
            call()

    def run(self, *, in_graph: bool) -> None:
        with held(self.device, [self.stream]):
            self.graph.launch(self.stream) if in_graph else self.queue()
        self.device.synchronize()

    def extents_ns(self, run: Callable[[], object]) -> Any:
        """Return from when to when each kernel ran by its stamps: rows of runs, of each kernel, of both."""
        found = []
        for _ in range(REPEATS):
            run()
            found.append([(one[:, 0].min(), one[:, 1].max()) for one in self.memory.read()])
        return np.array(found[WARM:])

    def measured(self, *, in_graph: bool) -> dict[str, float]:
        extents = self.extents_ns(lambda: self.run(in_graph=in_graph))
        lengths: list[Any] = []
        beside = self.extents_ns(lambda: lengths.append(kernel_durations_ns(lambda: self.run(in_graph=in_graph))))
        inside_ns, gap_ns = (extents[..., 1] - extents[..., 0]).ravel(), (extents[:, 1:, 0] - extents[:, :-1, 1]).ravel()
        cupti_ns = float(middle_mean(np.array(lengths[WARM:], np.float64).ravel()))
        left_out_ns = cupti_ns - float(middle_mean((beside[..., 1] - beside[..., 0]).ravel().astype(np.float64)))
        return {
            "extent_ns": round(float(middle_mean(inside_ns))),
            "gap_ns": round(float(middle_mean(gap_ns))),
            "left_out_ns": round(left_out_ns),
        }

    def alone(self, before: Callable[[], object]) -> list[int]:
        """Return what stamps leave out of the first launch, run by run."""
        found = []
        for _ in range(REPEATS):
            before()
            (cupti_ns,) = kernel_durations_ns(self.calls[0])
            one = self.memory.read()[0]
            found.append(int(cupti_ns - (one[:, 1].max() - one[:, 0].min())))
        return found[WARM:]


def main() -> None:
    device: Any = ss.open_device("cuda")
    x, y = (device.allocate(ArraySpec((ELEMENTS,), np.dtype(np.float32)), MemoryPlace.DEVICE) for _ in range(2))

    def chain(blocks: int, threads: int, elements: int, cycles: int) -> Chain:
        pointers = [ctypes.c_void_p(x.pointer), ctypes.c_void_p(y.pointer)]
        return Chain(device, [*pointers, ctypes.c_longlong(elements), ctypes.c_longlong(cycles)], blocks, threads)

    made = {name: chain(*case) for name, case in cases().items()}
    rows = {
        name: {where: one.measured(in_graph=where == "graph") for where in ("stream", "graph")} | {"blocks": cases()[name][0]}
        for name, one in made.items()
    }
    whole = chain(4224, 512, ELEMENTS, 0)

    def cold() -> None:
        whole.calls[0]()
        device.synchronize()

    ways: dict[str, Callable[[], object]] = {"at once": lambda: None, "after 20 ms": lambda: time.sleep(0.02), "cold cache": cold}
    alone = {
        name: {way: made[name].alone(before) for way, before in ways.items()} for name in ("double, 1", "double, 132", "spin 20 µs, 132")
    }
    keep("around_stamps.json", {"what": __doc__.splitlines()[0], **provenance(device), "chains": rows, "alone_left_out_ns": alone})


if __name__ == "__main__":
    main()
