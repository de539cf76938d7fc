"""What pushing one small element-wise operation costs the host, beside the peers, in one run and in turns.

`Engine.push` of an operation that was pushed before, under ``async`` and ``dual`` and in bulk, without recording; a packed launch of the
same kernel alone, ``torch.add(out=)`` and CuPy's ufunc; and how much of a push is Python, with a device whose calls do nothing.

    python benchmarks/push_overhead.py [RESULT.json]     on a GPU
    python benchmarks/push_overhead.py --python          anywhere: only the share that is Python, printed
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from provenance import keep, provenance

import streamscope as ss
from streamscope.trace.info import DeviceInfo

PUSHES, SIZE, ROUNDS, BULK = 300, 4096, 100, 16
"""A push is a launch and an event; a stream's queue holds about 1,024, and nothing may wait for room."""
ALLOWED_US = 12.0


def nothing(*arguments: Any) -> None:
    pass


class Nothing:
    """A device, and all that it hands out, whose calls do nothing: what is left of a push is Python."""

    info = DeviceInfo("simulated", "a device whose calls do nothing")
    single_threaded = False
    nbytes = 1 << 20

    def __init__(self, spec: Any = None, place: Any = None) -> None:
        self.spec, self.place = spec, place
        self.lock = threading.RLock()
        self.now_ns = time.perf_counter_ns
        self.use = self.record = self.wait = self.write = self.synchronize = self.let_finish = nothing
        self.stream = self.event = lambda *arguments, **options: Nothing()
        self.allocate_block = lambda nbytes, place: Nothing(place=place)
        self.buffer_on = lambda block, spec, stream=None: Nothing(spec, block.place)
        self.bind = lambda *arguments: nothing
        self.estimate_ns = lambda launch: 1000.0


def pushes(engine: ss.Engine) -> Callable[[], None]:
    """Return a function that pushes the same addition again and again."""
    x, y = (engine.variable(values) for values in (np.zeros(SIZE, np.float32), np.ones(SIZE, np.float32)))
    push, add = engine.push, ss.ops.add

    def push_all() -> None:
        for _ in range(PUSHES):
            push(add, reads=(x, y), writes=(x,))

    return push_all


def in_bulk(engine: ss.Engine) -> Callable[[], None]:
    push_all = pushes(engine)

    def push_in_bulk() -> None:
        with engine.bulk(BULK):
            push_all()

    return push_in_bulk


def ours(device: Any) -> dict[str, Callable[[], None]]:
    return {
        "push, async": pushes(ss.Engine("async", device=device)),
        "push, dual": pushes(ss.Engine("dual", device=device)),
        "push in bulk, async": in_bulk(ss.Engine("async", device=device)),
    }


def peers(device: Any) -> dict[str, Callable[[], None]]:
    import cupy
    import torch

    @ss.program
    def chain(x: Any, y: Any) -> Any:
        for _ in range(PUSHES):
            x = ss.ops.add(x, y, out=x)
        return x

    inputs = [np.zeros(SIZE, np.float32), np.ones(SIZE, np.float32)]
    prepared = ss.prepare(chain.trace(*inputs), engine="async", device=device)
    prepared.load(inputs)
    a, b = cupy.zeros(SIZE, np.float32), cupy.ones(SIZE, np.float32)
    ta, tb = torch.as_tensor(a, device="cuda"), torch.as_tensor(b, device="cuda")

    def torch_adds() -> None:
        for _ in range(PUSHES):
            torch.add(ta, tb, out=ta)

    def cupy_adds() -> None:
        for _ in range(PUSHES):
            cupy.add(a, b, out=a)

    return {"packed launch": prepared.run, "torch.add(out=)": torch_adds, "cupy.add(out=)": cupy_adds}


def measured_us(calls: dict[str, Callable[[], None]], synchronize: Callable[[], None]) -> dict[str, dict[str, float]]:
    """Return us an operation of each, taken in turns."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS + 3):
        for name, call in calls.items():
            start = time.perf_counter_ns()
            call()
            elapsed = time.perf_counter_ns() - start
            synchronize()
            if turn >= 3:
                samples[name].append(elapsed / PUSHES / 1e3)
    return {name: {"least": min(values), "median": float(np.median(values))} for name, values in samples.items()}


def main() -> None:
    python_us = measured_us(ours(Nothing()), lambda: None)
    if "--python" in sys.argv:
        print(json.dumps(python_us, indent=1))
        return
    device: Any = ss.open_device("cuda")
    per_operation_us = measured_us({**ours(device), **peers(device)}, device.synchronize)
    content = {
        "what": "host time of one small element-wise operation that was pushed before, in us, without recording; peers in the same run",
        "pushes": PUSHES,
        "elements": SIZE,
        "rounds": ROUNDS,
        "bulk": BULK,
        "per_operation_us": per_operation_us,
        "python_alone_us": python_us,
        "allowed_us": ALLOWED_US,
        "within": per_operation_us["push, async"]["median"] <= ALLOWED_US,
        **provenance(device),
    }
    keep("push_overhead.json", content)
    print(json.dumps({key: content[key] for key in ("per_operation_us", "python_alone_us", "within")}, indent=1))


if __name__ == "__main__":
    main()
