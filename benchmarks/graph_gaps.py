"""Chains of kernels, collectives and copies between GPUs as one graph, and on streams behind a gate: what they take together.

    python benchmarks/graph_gaps.py GPUS FILE [DEVICE]

What a chain of both takes beyond a chain of each is the gaps between them.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

RUNS, REPLAYS = 30, 100


def program(gpus: int, rounds: int, kernels: int, kind: str, nbytes: int, product: int = 0) -> Any:
    """Return a chain: in each round so many kernels on each GPU, and then a collective, or a copy to the next GPU of a single chain."""
    import streamscope as ss

    size = max(gpus, nbytes // 4)

    @ss.program
    def chain(*given: Any) -> Any:
        values = list(given)
        at, there = 0, range(gpus) if kind != "copy" else [0]
        for _ in range(rounds):
            for number in there:
                with ss.gpu(at if kind == "copy" else number):
                    for _ in range(kernels):
                        values[number] = values[number] @ values[number] if product else values[number] + 1.0
            if kind == "copy":
                at = (at + 1) % gpus
                values[0] = ss.ops.to_gpu(values[0], at)
            elif kind:
                values = list(getattr(ss.ops, kind)(values))
        return tuple(values)

    shape, dtype = ((product, product), np.float16) if product else ((size,), np.float32)
    inputs = [np.zeros(shape, dtype) for _ in range(1 if kind == "copy" else gpus)]
    return chain.trace(*inputs), inputs


def of_graph(device: Any, prepared: Any) -> dict[str, float]:
    """Return the median times in µs of a graph: its launch, a run of it, one of many in a row."""
    calls, whole = [], []
    for _ in range(RUNS):
        start = device.now_ns()
        prepared.run()
        calls.append((device.now_ns() - start) / 1e3)
        prepared.wait()
        whole.append((device.now_ns() - start) / 1e3)
    start = device.now_ns()
    for _ in range(REPLAYS):
        prepared.run()
    prepared.wait()
    return {
        "call_us": statistics.median(calls),
        "whole_us": statistics.median(whole),
        "chain_us": (device.now_ns() - start) / REPLAYS / 1e3,
    }


def on_streams(device: Any, prepared: Any) -> dict[str, float]:
    """Return the median time in µs on streams, all of it queued behind a gate."""
    from streamscope.devices.gates import held

    begin, end = device.event(timing=True), device.event(timing=True)
    gated = []
    for _ in range(7):
        with held(device, list(prepared.streams.values())):
            prepared.streams[0].record(begin)
            prepared.run()
            prepared.streams[0].record(end)
        prepared.wait()
        device.synchronize()
        gated.append(device.elapsed_ns(begin, end) / 1e3)
    return {"gated_us": statistics.median(gated)}


def cases(gpus: int) -> list[tuple[int, int, str, int, int]]:
    found = [(rounds, 4, "", 1 << 20, 0) for rounds in (1, 4, 16)]
    for nbytes in (1 << 12, 1 << 20, 1 << 23):
        found += [(rounds, kernels, "all_reduce", nbytes, 0) for rounds, kernels in ((1, 4), (4, 4), (12, 4), (4, 0), (12, 0))]
    found += [(rounds, kernels, "all_to_all", 1 << 20, 0) for rounds, kernels in ((4, 4), (12, 4), (4, 0), (12, 0))]
    found += [(rounds, kernels, "copy", 1 << 20, 0) for rounds, kernels in ((4, 4), (12, 4), (4, 1), (12, 1))]
    found += [(rounds, 2, "", 0, 1024) for rounds in (4, 12)]
    found += [(rounds, 2, "all_reduce", 0, 1024) for rounds in (4, 12)]
    return found


def main() -> None:
    import streamscope as ss
    from streamscope.engines.prepared import prepare_traced

    gpus, file = int(sys.argv[1]), Path(sys.argv[2])
    device = ss.open_device(sys.argv[3] if len(sys.argv) > 3 else "cuda", gpus=gpus)
    rows: list[dict[str, Any]] = []
    begin = time.monotonic()
    for engine, timed in (("graph", of_graph), ("async", on_streams)):
        for rounds, kernels, kind, nbytes, product in cases(gpus):
            row = {"engine": engine, "rounds": rounds, "kernels": kernels, "kind": kind, "nbytes": nbytes, "product": product}
            traced, inputs = program(gpus, rounds, kernels, kind, nbytes, product)
            prepared = prepare_traced(traced, engine, device)
            prepared.load(inputs)
            for _ in range(3):
                prepared.run()
                prepared.wait()
            rows.append(row | timed(device, prepared))
            print(f"{time.monotonic() - begin:.1f}", json.dumps(rows[-1]), flush=True)
            file.write_text(json.dumps({"device": device.info.name, "gpus": gpus, "rows": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
