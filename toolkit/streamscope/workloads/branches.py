"""Parallel branches that meet at the end: work for a second stream."""

from __future__ import annotations

import numpy as np

from streamscope.ops import add, multiply, relu
from streamscope.program.symbol import Symbol
from streamscope.tracing import program
from streamscope.workloads.workload import Made, Setting, Workload


def _make(random: np.random.Generator, branches: int, length: int, size: int) -> Made:
    @program
    def parallel_branches(x: Symbol, *scales: Symbol) -> Symbol:
        ends = list(scales)
        # Step by step over all branches, as a framework would issue them, so that neighbours in the program are independent.
        for step in range(length):
            ends = [multiply(end, x) if step % 2 == 0 else relu(end) for end in ends]
        total = ends[0]
        for end in ends[1:]:
            total = add(total, end)
        return total

    # Below one, so that branches of any length stay finite.
    x = random.uniform(0.8, 1.0, size).astype(np.float32)
    return parallel_branches, (x, *(random.uniform(-1, 1, size).astype(np.float32) for _ in range(branches)))


BRANCHES = Workload(
    "branches",
    "independent chains of element-wise operations, added up at the end",
    {
        "branches": Setting(4, 1, 256, "independent chains"),
        "length": Setting(8, 1, 10_000, "operations of each"),
        "size": Setting(65_536, 1, 1 << 28, "elements of each array"),
    },
    _make,
)
