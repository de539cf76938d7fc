"""What more streams make of eight branches of eight operations: makespan, waits and planning time, for ``dual`` and ``graph-dual``.

Short kernels (the host is the bottleneck of launches one by one) and kernels of which two fill the chip. Makespans are medians, of runs
that take turns. By default on the simulated device, and the result says so.

    python benchmarks/streams.py [RESULT.json] [simulated|cuda]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from provenance import keep, provenance

import streamscope as ss
from streamscope.devices.protocol import Device
from streamscope.engines.makespan_estimate import makespan_ns, reference_model
from streamscope.engines.prepared import Prepared
from streamscope.program.operation import Program
from streamscope.workloads import WORKLOADS

BRANCHES, LENGTH = 8, 8
SIZES = {"short kernels": 1 << 16, "long kernels": 1 << 20}
STREAMS = (1, 2, 4, 8)
ENGINES = ("dual", "graph-dual")
ROUNDS = {"simulated": 1, "cuda": 200}


def prepared(program: Program, inputs: Sequence[Any], engine: str, streams: int, device: Device) -> tuple[Prepared, float]:
    start = time.perf_counter()
    made = ss.prepare(program, engine=engine, device=device, streams=streams)
    seconds = time.perf_counter() - start
    made.load(inputs)
    for _ in range(3):
        made.run()
        made.wait()
    return made, seconds


def run_ns(made: Prepared) -> int:
    start = made.device.now_ns()
    made.run()
    made.wait()
    return made.device.now_ns() - start


def measure(size: int, device: Device) -> list[dict[str, Any]]:
    function, inputs = WORKLOADS["branches"].build(branches=BRANCHES, length=LENGTH, size=size)
    program = function.trace(*inputs)
    made = {(engine, streams): prepared(program, inputs, engine, streams, device) for engine in ENGINES for streams in STREAMS}
    times: dict[tuple[str, int], list[int]] = {key: [] for key in made}
    for _ in range(ROUNDS[device.info.kind]):
        for key, (one, _) in made.items():
            times[key].append(run_ns(one))
    return [
        {
            "engine": engine,
            "streams_allowed": streams,
            **one.plan.counts,
            "makespan_us": round(float(np.median(times[engine, streams])) / 1e3, 2),
            "speed_up": round(float(np.median(times[engine, 1]) / np.median(times[engine, streams])), 3),
            "predicted_us": round(makespan_ns(one.plan, device.estimate_ns, reference_model()) / 1e3, 2),
            "prepare_ms": round(seconds * 1e3, 1),
        }
        for (engine, streams), (one, seconds) in made.items()
    ]


def main() -> None:
    device = ss.open_device(sys.argv[2] if len(sys.argv) > 2 else "simulated")
    result = {
        "what": f"makespan of {BRANCHES} branches of {LENGTH} element-wise operations each, by engine and number of streams",
        "times": "SIMULATED by a cost model, not measured" if device.info.simulated else "measured",
        **provenance(device),
        "programs": {f"{name}, {size} elements": measure(size, device) for name, size in SIZES.items()},
    }
    keep("streams.json", result)
    for name, rows in result["programs"].items():
        print(f"{name}, {device.info.name} ({result['times']})")
        for row in rows:
            allowed, used = row["streams_allowed"], row["streams"]
            print(
                f"  {row['engine']:<11} up to {allowed}: {used} streams, {row['waits']:>2} waits, {row['makespan_us']:>7.1f} µs, "
                f"{row['speed_up']:.2f}×, predicted {row['predicted_us']:.1f} µs, prepared in {row['prepare_ms']:.0f} ms"
            )


if __name__ == "__main__":
    main()
