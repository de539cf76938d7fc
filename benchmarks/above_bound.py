"""What holds an order above its bound: launches of nodes that depend on each other, or neighbours on the same multiprocessors.

Beside the graph of a captured network run two graphs with the same edges: of empty kernels, and of kernels of one block that wait for as
long as each node takes alone. The first tells what the launches take, the second what the order would take if neighbours cost nothing.

python benchmarks/above_bound.py [RESULT.json] [--only nasnet_like,mixture_of_experts]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cupy
import networks
import torch
from networks import Network
from provenance import provenance

import streamscope as ss
from streamscope.kernels.library.libraries import checked, libraries

REPEATS = 60
EMPTY_US = 1.0
"""How long an empty kernel takes alone, as durations of nodes are measured, about."""
WAITING = """
__device__ unsigned long long now() { unsigned long long t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); return t; }
extern "C" __global__ void waiting(unsigned int ns) { const unsigned long long begin = now(); while (now() - begin < ns) {} }
"""


def high_resolution(batch: int) -> Network:
    """Return HRNet-W18-small-v2 of timm, 224² images: parallel branches at four scales."""
    import timm

    model = timm.create_model("hrnet_w18_small_v2").cuda().half().eval().to(memory_format=torch.channels_last)
    images = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.half).to(memory_format=torch.channels_last)
    return Network(model, (images,))


class WaitingGraph:
    """A graph with some edges, of kernels that wait for so many µs."""

    def __init__(self, edges: Sequence[Sequence[int]], waits_us: Sequence[float]) -> None:
        cuda = libraries().cuda
        graph, nodes, self._kept = checked(cuda.cuGraphCreate(0)), list[Any](), list[Any]()
        kernel = cupy.RawKernel(WAITING, "waiting").kernel
        for after, us in zip(edges, waits_us, strict=True):
            value = ctypes.c_uint(max(0, int(1e3 * us)))
            pointers = (ctypes.c_void_p * 1)(ctypes.addressof(value))
            node = cuda.CUDA_KERNEL_NODE_PARAMS()
            node.func, node.kernelParams = cuda.CUfunction(kernel.ptr), ctypes.addressof(pointers)
            node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimX = node.blockDimY = node.blockDimZ = 1
            before = [nodes[one] for one in after]
            nodes.append(checked(cuda.cuGraphAddKernelNode(graph, before or None, len(before), node)))
            self._kept.append((value, pointers))
        self._executable = libraries().runtime.graphInstantiate(int(graph))

    def launch(self, stream: int) -> None:
        libraries().runtime.graphLaunch(self._executable, stream)


def device_us(launch: Callable[[int], None], put_back: Callable[[], object] = int) -> float:
    """Return the median time of a replay on the device, in µs."""
    stream, times = cupy.cuda.Stream(non_blocking=True), []
    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    for _ in range(REPEATS):
        put_back()
        start.record(stream)
        launch(stream.ptr)
        end.record(stream)
        end.synchronize()
        times.append(1e3 * cupy.cuda.get_elapsed_time(start, end))
    return float(statistics.median(times[5:]))


def measured(network: Network) -> dict[str, Any]:
    """Measure a network in its fastest order, and the time of its launches."""
    with torch.no_grad():
        fast = ss.parallelise(network.function, *network.inputs, outputs="static", check=0, progress=False)
    capture, nodes = fast._captures[0], fast.graph.nodes  # noqa: SLF001
    edges, bound = [node.after for node in nodes], fast.captured.bound()
    alone_us = [fast.captured.durations_us[node.operation] if node.operation >= 0 else 0.0 for node in nodes]
    depths: list[int] = []
    for after in edges:
        depths.append(1 + max((depths[one] for one in after), default=0))
    empty, waiting = WaitingGraph(edges, [0.0] * len(nodes)), WaitingGraph(edges, [us - EMPTY_US for us in alone_us])
    return {
        "nodes": len(nodes),
        "nodes on the longest path": max(depths),
        "captured_us": bound.capture_us,
        "bound_us": bound.least_us,
        "filled_us": bound.filled_us,
        "empty_us": device_us(empty.launch),
        "waiting_us": device_us(waiting.launch),
        "us": device_us(capture.call.graph.launch_on, capture.prepared.put_back),
        "order": fast.gain.order,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", nargs="?", type=Path, default=Path(__file__).parent / "results" / "above_bound.json")
    parser.add_argument("--only", default="nasnet_like,high_resolution,mixture_of_experts,cupy_scales,googlenet")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name in options.only.split(","):
        make = high_resolution if name == "high_resolution" else getattr(networks, name)
        results[name] = found = measured(make(1))
        print(
            name,
            {key: round(value, 1) if isinstance(value, float) else value for key, value in found.items() if key != "order"},
            flush=True,
        )
        content = {"results": results} | provenance(ss.open_device("cuda"), torch=torch.__version__)
        options.result.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
