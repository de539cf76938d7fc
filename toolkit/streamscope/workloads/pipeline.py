"""A pipeline in chunks: a host step, a copy in, compute, a copy out; what asynchronous issue is for."""

from __future__ import annotations

import numpy as np

from streamscope.ops import add, multiply, relu
from streamscope.ops.host import host_function, to_device, to_host
from streamscope.program.symbol import Symbol
from streamscope.tracing import program
from streamscope.workloads.workload import Array, Made, Setting, Workload

HOST_NS_PER_ELEMENT = 0.3
"""What NumPy takes for the host step on one core, for the simulated device."""


def _make(random: np.random.Generator, chunks: int, size: int) -> Made:
    @host_function(duration_us=2.0 + size * HOST_NS_PER_ELEMENT / 1e3)
    def normalise(values: Array) -> Array:
        return values * np.float32(1 / 128) - np.float32(1)

    @program
    def pipeline(weight: Symbol, *raw: Symbol) -> tuple[Symbol, ...]:
        results = []
        for chunk in raw:
            x = to_device(normalise(chunk))
            for _ in range(4):
                x = relu(add(multiply(x, weight), x))
            results.append(to_host(x))
        return tuple(results)

    weight = random.uniform(-0.5, 0.5, size).astype(np.float32)
    return pipeline, (weight, *(random.integers(0, 256, size).astype(np.float32) for _ in range(chunks)))


PIPELINE = Workload(
    "pipeline",
    "chunks that go through a host function, a copy to the device, twelve kernels and a copy back",
    {"chunks": Setting(4, 1, 1024, "chunks"), "size": Setting(262_144, 1, 1 << 26, "elements of a chunk")},
    _make,
)
