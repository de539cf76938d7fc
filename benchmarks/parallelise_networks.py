"""Fourteen networks that were never written for us: `torch.cuda.CUDAGraph` against the order that their memory asks for.

python benchmarks/parallelise_networks.py [RESULT.json] [--only googlenet,lstm] [--batch 1,8,32] [--inputs 1000]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import traceback
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from networks import NETWORKS, Network
from provenance import provenance

import streamscope as ss
from streamscope.files import written_whole

REPEATS = 100


def torch_graph(network: Network) -> torch.cuda.CUDAGraph:
    """Return a network as `torch.cuda.graph` captures it, as PyTorch's documentation says; CuPy launches on the same stream."""
    import cupy

    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    pool = cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc), cupy.cuda.ExternalStream(side.cuda_stream):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                network.function(*network.inputs)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=side):
            results = network.function(*network.inputs)
    graph.kept = results, pool  # They live as long as the graph.
    return graph


def in_turns_us(calls: Mapping[str, Callable[[], Any]], repeats: int = REPEATS) -> dict[str, float]:
    """Return the median time of each call until the device is done, in µs; they take turns, in random order."""
    random = np.random.default_rng(0)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 5):
        for name in map(str, random.permutation(list(calls))):
            start = time.perf_counter_ns()
            calls[name]()
            torch.cuda.synchronize()
            if turn >= 5:
                times[name].append((time.perf_counter_ns() - start) / 1e3)
    return {name: statistics.median(each) for name, each in times.items()}


def measure(network: Network) -> dict[str, Any]:
    """Measure one network."""
    return {"us": in_turns_us({"torch.cuda.CUDAGraph": torch_graph(network).replay})}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", nargs="?", type=Path, default=Path(__file__).parent / "results" / "parallelise_networks.json")
    parser.add_argument("--only", default=",".join(make.__name__ for make in NETWORKS.values()), help="functions of networks.py")
    parser.add_argument("--batch", default="1,8,32")
    parser.add_argument("--inputs", type=int, default=1000, help="random inputs to compare bits on")
    options = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    for name, make in NETWORKS.items():
        if make.__name__ not in options.only.split(","):
            continue
        results[name] = {}
        for batch in options.batch.split(","):
            try:
                found = measure(make(int(batch)))
            except Exception as error:  # noqa: BLE001 — a network that fails is a result, too
                traceback.print_exc()
                found = {"error": f"{type(error).__name__}: {error}"}
            results[name][batch] = found
            print(name, batch, json.dumps(found), flush=True)
            torch.cuda.empty_cache()
    content = {
        "what": "captured networks, in their own order and in the order that memory asks for; median of repeats, taking turns, in µs",
        "repeats": REPEATS,
        "results": results,
        **provenance(ss.open_device("cuda"), torch=torch.__version__, torchvision=metadata.version("torchvision")),
    }
    with written_whole(options.result) as path:
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
