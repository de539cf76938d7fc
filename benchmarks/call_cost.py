"""Cost of a call of `ss.parallelise`'s result beside the launch of its graph, and beside PyTorch's replay.

python benchmarks/call_cost.py [RESULT.json] [--networks googlenet,...] [--pieces]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import networks
import numpy as np
import torch
from networks import Network
from parallelise_networks import torch_graph

import streamscope as ss
from streamscope.parallelising.parallelise import _launch_of

TURNS = 200


def in_turns_us(calls: Mapping[str, Callable[[], Any]], turns: int = TURNS) -> dict[str, tuple[float, float]]:
    """Return the median time of each call, in µs: until the device is done, and on the host; they take turns, in random order."""
    random = np.random.default_rng(0)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    stream = torch.cuda.current_stream()
    for turn in range(turns + 5):
        for name in map(str, random.permutation(list(calls))):
            call = calls[name]
            start = time.perf_counter_ns()
            call()
            launched = time.perf_counter_ns()
            stream.synchronize()
            done = time.perf_counter_ns()
            if turn >= 5:
                times[name].append(((done - start) / 1e3, (launched - start) / 1e3))
    return {name: (statistics.median(one for one, _ in each), statistics.median(two for _, two in each)) for name, each in times.items()}


def measured(network: Network) -> dict[str, Any]:
    """Measure a network: PyTorch's replay, the launch of our graph, and the call."""
    replay = torch_graph(network)
    fast = ss.parallelise(network.function, *network.inputs, outputs="static", check=0, progress=False)
    launch, stream = _launch_of(fast._captures[0].prepared), torch.cuda.current_stream().cuda_stream  # noqa: SLF001
    found = in_turns_us({"replay": replay, "launch": lambda: launch(stream), "call": lambda: fast(*network.inputs)})
    return {"us": found, "verdict": fast.verdict, "inputs": len(network.inputs), "nodes": len(fast.captured.nodes)}


def of_arrays(count: int, nbytes: int) -> Network:
    """Return branches over some arrays."""
    inputs = tuple(torch.randn(nbytes // 4, device="cuda") for _ in range(count))
    return Network(lambda *given: [(one * k).tanh() for one in given for k in range(3)], inputs, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", nargs="?", type=Path)
    parser.add_argument("--networks", default="")
    options = parser.parse_args()
    made = {
        f"{count} of {nbytes // 1024} KiB": (lambda count=count, nbytes=nbytes: of_arrays(count, nbytes))
        for count in (1, 4)
        for nbytes in (2**12, 2**18, 2**20)
    }
    made |= {name: (lambda name=name: getattr(networks, name)(1)) for name in options.networks.split(",") if name}
    results = {}
    for name, make in made.items():
        with torch.no_grad():
            results[name] = found = measured(make())
        (replay, host_r), (launch, host_l), (call, host_c) = found["us"].values()
        print(
            f"{name:22} replay {replay:8.1f} {host_r:5.1f}  launch {launch:8.1f} {host_l:5.1f}  call {call:8.1f} {host_c:5.1f}  besides {call - launch:5.1f} {host_c - host_l:5.1f}",
            flush=True,
        )
    if options.result:
        options.result.write_text(json.dumps(results, indent=1, default=str))


if __name__ == "__main__":
    main()
