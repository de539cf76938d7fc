"""What running totals of the host's time cost each operation: the same work with them off and on, in turns, in processor time.

The device is simulated by default. Each figure is the median ratio of neighbouring turns, and the difference of the medians.

    python benchmarks/host_totals.py [DEVICE] > totals.json
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import streamscope as ss

OPERATIONS, TURNS = 1000, 41


@ss.program
def chain(x: Any, y: Any) -> Any:
    """Add many times, in place."""
    for _ in range(OPERATIONS):
        x = ss.ops.add(x, y, out=x)
    return x


def pushes(device: str) -> tuple[Any, Callable[[], None]]:
    """Return the totals of an engine, and a function that pushes to it."""
    engine = ss.Engine("async", device=device)
    x, y = engine.variable(np.ones(64, np.float32)), engine.variable(np.ones(64, np.float32))

    def work() -> None:
        for _ in range(OPERATIONS):
            engine.push(ss.ops.add, reads=(x, y), writes=(x,))
        engine.wait_all()

    return engine.host_totals, work


def runs(device: str, engine: str) -> tuple[Any, Callable[[], None]]:
    """Return the totals of a prepared program, and a function that runs it."""
    prepared = ss.prepare(chain, *np.ones((2, 64), np.float32), engine=engine, device=device, progress=False)

    def work() -> None:
        prepared.run()
        prepared.wait()

    return prepared.host_totals, work


def compared(totals: Any, work: Callable[[], None]) -> dict[str, float]:
    """Return the cost of an operation without and with the totals, in µs."""
    for _ in range(3):
        work()
    times: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(TURNS):
        for on in (False, True) if turn % 2 else (True, False):
            (totals.start if on else totals.pause)()
            gc.collect()
            start_ns = time.process_time_ns()
            work()
            if on:
                _ = totals.rows  # The sums are part of the cost.
            times[on].append((time.process_time_ns() - start_ns) / OPERATIONS / 1e3)
    off, on_us = (statistics.median(times[on]) for on in (False, True))
    ratio = statistics.median(after / before for before, after in zip(times[False], times[True], strict=True))
    return {"off_us": round(off, 3), "on_us": round(on_us, 3), "ratio": round(ratio, 3)}


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "simulated"
    cases = {"push": pushes(device), "run async": runs(device, "async"), "run graph": runs(device, "graph")}
    print(json.dumps({name: compared(*case) for name, case in cases.items()}, indent=1))


if __name__ == "__main__":
    main()
