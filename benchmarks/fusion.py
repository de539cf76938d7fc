"""What fusion saves beside what CUDA graphs save: the same programs under ``async`` and ``graph``, unfused and fused, in one run.

Small arrays show launch overhead, large ones memory traffic. The four take turns; a run is timed from its first call until the device is
done; least and median of the rounds. Results are compared bit by bit.

    python benchmarks/fusion.py [RESULT.json]
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from provenance import keep, provenance

import streamscope as ss
from streamscope.devices.protocol import Device

LENGTH, COLUMNS, SMALL, LARGE, ROUNDS, WARM = 200, 1024, 4, 16384, 100, 5
Arrays = Sequence[np.ndarray[Any, Any]]
ENGINES = {"async": ("async", False), "graph": ("graph", False), "fused async": ("async", True), "fused graph": ("graph", True)}


def chain(x: Any, y: Any) -> Any:
    """Return 200 operations, products and sums by turns, so that contraction between them would show in the bits."""
    for index in range(LENGTH):
        x = x * 0.99 if index % 2 else x + y
    return x


def block(x: Any, bias: Any, scale: Any) -> Any:
    """Return what stands between the matrix products of a network: bias, relu, scale, softmax, and a residual with its own activation."""
    h = ss.ops.relu(ss.ops.bias_add(x, bias)) * scale
    p = ss.ops.softmax(h * 0.125)
    return ss.ops.mish(p * h + x) * 0.5


def word(fuse: bool) -> str:  # noqa: FBT001 — names it
    return "fused" if fuse else "unfused"


def measured(function: Callable[..., Any], arrays: Arrays, device: Device) -> dict[str, Any]:
    """Return the times of one program, in turns."""
    programs = {fuse: ss.program(function, fuse=fuse).trace(*arrays) for fuse in (False, True)}
    prepared = {name: ss.prepare(programs[fuse], engine=engine, device=device) for name, (engine, fuse) in ENGINES.items()}
    for each in prepared.values():
        each.load(arrays)
        for _ in range(WARM):
            each.run()
            each.wait()
    times: dict[str, list[int]] = {name: [] for name in prepared}
    for _ in range(ROUNDS):
        for name, each in prepared.items():
            start = time.perf_counter_ns()
            each.run()
            each.wait()
            times[name].append(time.perf_counter_ns() - start)
    (expected,) = prepared["async"].outputs()
    medians = {name: float(np.median(values)) for name, values in times.items()}
    return {
        "shape": list(arrays[0].shape),
        "operations": {word(fuse): len(program.operations) for fuse, program in programs.items()},
        "bytes": {word(fuse): sum(launch.cost.bytes for launch in program.launches()) for fuse, program in programs.items()},
        "run": {name: {"least_ns": min(values), "median_ns": medians[name]} for name, values in times.items()},
        "over_async": {name: medians["async"] / median for name, median in medians.items()},
        "equal": all(each.outputs()[0].tobytes() == expected.tobytes() for each in prepared.values()),
    }


def main() -> None:
    device = ss.open_device("cuda")
    generator = np.random.default_rng(0)
    programs: dict[str, Any] = {}
    for rows in (SMALL, LARGE):
        x, y = (generator.standard_normal((rows, COLUMNS), np.float32) for _ in range(2))
        bias, scale = (generator.standard_normal(COLUMNS, np.float32) for _ in range(2))
        programs[f"chain, {rows} rows"] = measured(chain, (x, y), device)
        programs[f"block, {rows} rows"] = measured(block, (x, bias, scale), device)
    content = {
        "what": "time of a run, launched one by one and as a CUDA graph, without and with fused element-wise operations",
        "rounds": ROUNDS,
        "programs": programs,
        **provenance(device),
    }
    keep("fusion.json", content)
    shown = {name: {key: each[key] for key in ("operations", "over_async", "equal")} for name, each in programs.items()}
    print(json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
