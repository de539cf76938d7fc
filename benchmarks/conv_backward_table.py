"""Convolution backward, weight and data gradient one after the other against side by side, launched one by one and as a graph.

Three layers in float16, batches 1 to 256, four engines in turns; medians, and the memory of each. At the end, since CUPTI changes what
comes after it, the time from the first kernel's start to the last one's end in the graphs, by CUPTI: what the GPU alone makes of two
kernels side by side.

    python benchmarks/conv_backward_table.py [RESULT.json] [simulated|cuda]
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from provenance import keep, provenance

import streamscope as ss
from streamscope.devices.cuda import CudaDevice
from streamscope.devices.protocol import Device
from streamscope.recording.cupti import CuptiRecorder
from streamscope.trace.spans import SpanKind
from streamscope.workloads import WORKLOADS

LAYERS = ((64, 56), (256, 14), (512, 7))
BATCHES = (1, 8, 32, 128, 256)
ENGINES = ("async", "dual", "graph", "graph-dual")
ROUNDS = {"simulated": 1, "cuda": 100}
CUPTI_RUNS = 9


def measure(channels: int, size: int, batch: int, device: Device) -> dict[str, Any]:
    function, inputs = WORKLOADS["conv-backward"].build(channels=channels, size=size, batch=batch)
    program = function.trace(*inputs)
    made = {engine: ss.prepare(program, engine=engine, device=device) for engine in ENGINES}
    for prepared in made.values():
        prepared.load(inputs)
        for _ in range(3):
            prepared.run()
            prepared.wait()
    times: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    order = np.random.default_rng(0)
    for _ in range(ROUNDS[device.info.kind]):
        for engine in order.permutation(ENGINES):
            start = device.now_ns()
            made[str(engine)].run()
            made[str(engine)].wait()
            times[str(engine)].append((device.now_ns() - start) / 1e3)
    medians = {engine: float(np.median(values)) for engine, values in times.items()}
    return {
        "layer": f"{channels} to {channels}, {size} x {size}",
        "batch": batch,
        "median_us": medians,
        "quartiles_us": {engine: [float(q) for q in np.quantile(values, (0.25, 0.75))] for engine, values in times.items()},
        "dual_over_async": medians["async"] / medians["dual"],
        "graph_dual_over_graph": medians["graph"] / medians["graph-dual"],
        "device_bytes": {engine: prepared.memory["device_bytes"] for engine, prepared in made.items()},
    }


def by_cupti(channels: int, size: int, batch: int, device: Any) -> dict[str, float]:
    """Return the median extent of the kernels under both engines with graphs, in us."""
    function, inputs = WORKLOADS["conv-backward"].build(channels=channels, size=size, batch=batch)
    program = function.trace(*inputs)
    extents = {}
    for engine in ("graph", "graph-dual"):
        prepared = ss.prepare(program, engine=engine, device=device)
        prepared.load(inputs)
        for _ in range(3):
            prepared.run()
            prepared.wait()
        kernels = [CuptiRecorder(device, 1).record(prepared).spans.of_kind([SpanKind.KERNEL]) for _ in range(CUPTI_RUNS)]
        extents[engine] = float(np.median([(spans.end_ns.max() - spans.start_ns.min()) / 1e3 for spans in kernels]))
    return extents


def main() -> None:
    device: Any = ss.open_device(sys.argv[2] if len(sys.argv) > 2 else "cuda")
    cases = [(channels, size, batch) for channels, size in LAYERS for batch in BATCHES]
    rows = [measure(*case, device) for case in cases]
    if isinstance(device, CudaDevice):
        for row, (channels, size, batch) in zip(rows, cases, strict=True):
            row["kernels_by_cupti_us"] = by_cupti(channels, size, batch, device)
    print("| layer | batch | dual against async | graph-dual against graph | memory of graph-dual against graph |\n|---|---|---|---|---|")
    for row in rows:
        memory = row["device_bytes"]["graph-dual"] / row["device_bytes"]["graph"] - 1
        print(f"| {row['layer']} | {row['batch']} | {row['dual_over_async']:.2f} | {row['graph_dual_over_graph']:.2f} | {memory:+.1%} |")
    content = {
        "what": "conv-backward, float16, 3 x 3: speed-up of two streams over one, and device memory",
        "rounds": ROUNDS[device.info.kind],
        "rows": rows,
        **provenance(device),
    }
    keep("conv_backward_table.json", content)


if __name__ == "__main__":
    main()
