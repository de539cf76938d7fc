"""A chain of small element-wise kernels: the launch-bound extreme."""

from __future__ import annotations

import numpy as np

from streamscope.ops import add, multiply, relu
from streamscope.program.symbol import Symbol
from streamscope.tracing import program
from streamscope.workloads.workload import Made, Setting, Workload


def _make(random: np.random.Generator, length: int, size: int) -> Made:
    @program
    def elementwise_chain(x: Symbol, scale: Symbol, shift: Symbol) -> Symbol:
        steps = (lambda y: multiply(y, scale), lambda y: add(y, shift), relu)
        for index in range(length):
            x = steps[index % len(steps)](x)
        return x

    # Scales below one, so that a chain of any length stays finite.
    x, scale, shift = (random.uniform(low, high, size).astype(np.float32) for low, high in ((-1, 1), (0.9, 0.99), (-0.1, 0.1)))
    return elementwise_chain, (x, scale, shift)


ELEMENTWISE_CHAIN = Workload(
    "elementwise-chain",
    "a chain of multiply, add and relu, each on the result of the one before",
    {"length": Setting(200, 1, 100_000, "operations"), "size": Setting(256, 1, 1 << 28, "elements of each array")},
    _make,
)
