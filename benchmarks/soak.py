"""A million operations, and nothing grows: device memory, host memory, threads, events and open files.

A program of 1,000 operations is run again and again under ``async`` and under ``graph``, and pushed operation by operation to an
engine; no run is recorded. Samples are taken on the way; after the first tenth, which warms up, none may be above the first of them by more
than the tolerance.

    python benchmarks/soak.py [RESULT.json] [simulated|cuda] [OPERATIONS]
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from provenance import keep, provenance

import streamscope as ss
from streamscope.devices.protocol import Device, Event
from streamscope.engines.pushed.engine import Engine

LENGTH, SIZE, SAMPLES = 1000, 256, 20
TOLERANCE = {"device_bytes": 0, "pool_bytes": 0, "host_bytes": 8 << 20, "threads": 0, "events": 0, "files": 0}
"""By how much a sample may be above the first one after warming up."""


@ss.program
def chain(x: Any, y: Any) -> Any:
    """Apply a thousand operations in place, to values that stay what they are."""
    for _ in range(LENGTH // 2):
        x = ss.ops.add(x, y, out=x)
        x = ss.ops.subtract(x, y, out=x)
    return x


class Counted:
    """A device that counts the events it makes."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.events = 0
        make = device.event

        def event(*, timing: bool = False, gpu: int = 0) -> Event:
            self.events += 1
            return make(timing=timing)

        device.event = event  # type: ignore[method-assign]

    def sample(self) -> dict[str, int]:
        """Return what is taken up now."""
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        taken = {
            "host_bytes": pages * os.sysconf("SC_PAGE_SIZE"),
            "threads": threading.active_count(),
            "events": self.events,
            "files": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        }
        if self.device.info.kind == "cuda":
            import cupy

            free, total = cupy.cuda.runtime.memGetInfo()
            taken |= {"device_bytes": total - free, "pool_bytes": cupy.get_default_memory_pool().total_bytes()}
        return taken


def running(device: Device, engine: str) -> Callable[[], int]:
    """Return a function that runs the program once under an engine and returns the number of operations."""
    inputs = [np.arange(SIZE, dtype=np.int32), np.ones(SIZE, np.int32)]
    prepared = ss.prepare(chain.trace(*inputs), engine=engine, device=device)
    prepared.load(inputs)

    def run() -> int:
        prepared.run()
        prepared.wait()
        return LENGTH

    return run


def pushing(device: Device) -> Callable[[], int]:
    """Return a function that pushes a thousand operations, with variables made and deleted on the way."""
    engine = Engine("async", device=device)
    x, y = engine.variable(np.arange(SIZE, dtype=np.int32)), engine.variable(np.ones(SIZE, np.int32))

    def run() -> int:
        fresh = engine.variable(ss.ArraySpec((SIZE,), np.dtype(np.int32)))
        for _ in range(LENGTH // 4):
            engine.push(ss.ops.add, reads=(x, y), writes=(fresh,))
            engine.push(ss.ops.subtract, reads=(fresh, y), writes=(x,))
            engine.push(ss.ops.maximum, reads=(x, y), writes=(fresh,))
            engine.push(ss.ops.minimum, reads=(x, fresh), writes=(fresh,))
        engine.delete(fresh)
        engine.wait_all()
        return LENGTH

    return run


def soak(device: Device, run: Callable[[], int], operations: int) -> dict[str, Any]:
    """Run until so many operations are done; return samples and what grew."""
    counted, done, start = Counted(device), 0, time.perf_counter()
    samples: list[dict[str, int]] = []
    while done < operations:
        done += run()
        if done * SAMPLES // operations > len(samples):
            samples.append({"operations": done} | counted.sample())
    warm = samples[SAMPLES // 10 :]
    grew = {key: max(sample[key] for sample in warm) - warm[0][key] for key in warm[0] if key != "operations"}
    return {
        "operations": done,
        "seconds": time.perf_counter() - start,
        "samples": samples,
        "grew": grew,
        "flat": all(value <= TOLERANCE[key] for key, value in grew.items()),
    }


def main() -> None:
    kind = sys.argv[2] if len(sys.argv) > 2 else "cuda"
    operations = int(sys.argv[3]) if len(sys.argv) > 3 else 1_000_000
    device = ss.open_device(kind)
    results = {}
    makers = {"async": partial(running, device, "async"), "graph": partial(running, device, "graph"), "push": partial(pushing, device)}
    for name, make in makers.items():
        results[name] = soak(device, make(), operations)
        print(
            name, results[name]["operations"], f"{results[name]['seconds']:.1f} s", results[name]["grew"], results[name]["flat"], flush=True
        )
    content = {
        "what": "operations run without recording; by how much each sample is above the first after warming up",
        "results": results,
        "flat": all(result["flat"] for result in results.values()),
        **provenance(device),
    }
    keep("soak.json", content)
    sys.exit(0 if content["flat"] else 1)


if __name__ == "__main__":
    main()
