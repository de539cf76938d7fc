"""What one of 1,000 small element-wise operations costs the host, without recording, beside the peers, in one run and in turns.

One by one: the ``async`` engine, a C loop over cuLaunchKernel of the same kernel with the same arguments, ``torch.add(out=)`` and CuPy's
ufunc. As a graph: the ``graph`` engine and ``torch.cuda.CUDAGraph``, which captured the same kernels; the host's launch, and the replay.

    python benchmarks/launch_overhead.py [RESULT.json]
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import torch
from provenance import keep, provenance

import streamscope as ss
from streamscope.devices.protocol import Device
from streamscope.engines.prepared import Prepared

LENGTH, SIZE, ROUNDS, CHUNK = 1000, 4096, 100, 500
STREAM_ARGUMENT = 8
"""Where the stream is among the arguments of CuPy's driver call."""


@ss.program
def chain(x: Any, y: Any) -> Any:
    """Add a thousand times, in place."""
    for _ in range(LENGTH):
        x = ss.ops.add(x, y, out=x)
    return x


def warm(device: Device, inputs: list[Any], engine: str) -> Prepared:
    prepared = ss.prepare(chain.trace(*inputs), engine=engine, device=device)
    prepared.load(inputs)
    for _ in range(5):
        prepared.run()
        prepared.wait()
    return prepared


def c_library(folder: Path) -> ctypes.CDLL:
    """Compile the loops in C."""
    target = folder / "launch_overhead.so"
    subprocess.run(["nvcc", "-O2", "-shared", "-Xcompiler", "-fPIC", "-o", target, Path(__file__).with_suffix(".c"), "-lcuda"], check=True)
    library = ctypes.CDLL(str(target))
    library.launch_ns.restype = library.recorded_ns.restype = ctypes.c_double
    return library


def c_launch(call: Any) -> list[Any]:
    """Return a bound kernel as the loops take it: function, blocks, threads, stream, arguments."""
    function, blocks, _, _, threads, _, _, _, stream, packed, _ = call.args
    return [ctypes.c_void_p(function), blocks, threads, ctypes.c_void_p(stream), ctypes.c_void_p(packed)]


def c_loop(folder: Path, call: Any) -> Callable[[int], float]:
    """Return a function that launches a bound kernel so many times from C, and returns ns a launch."""
    library, launch = c_library(folder), c_launch(call)
    return lambda count: library.launch_ns(*launch, count)


def torch_graph(calls: list[Any]) -> torch.cuda.CUDAGraph:
    """Return PyTorch's graph of the same kernels with the same arguments."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pointer = torch.cuda.current_stream().cuda_stream
        for call in calls:
            call.func(*call.args[:STREAM_ARGUMENT], pointer, *call.args[STREAM_ARGUMENT + 1 :])
    return graph


def host_ns(call: Callable[[], Any]) -> float:
    start = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - start


def times(samples: list[float]) -> dict[str, float]:
    return {"least": min(samples), "median": float(np.median(samples)), "p90": float(np.quantile(samples, 0.9))}


def one_by_one(device: Device, prepared: Prepared, folder: Path) -> dict[str, dict[str, float]]:
    """Return host ns an operation of everybody who launches one by one."""
    a, b = cupy.zeros(SIZE, np.float32), cupy.ones(SIZE, np.float32)
    ta, tb = torch.as_tensor(a, device="cuda"), torch.as_tensor(b, device="cuda")
    c = c_loop(folder, prepared.bound[0].call)

    def torch_adds() -> None:
        for _ in range(LENGTH):
            torch.add(ta, tb, out=ta)

    def cupy_adds() -> None:
        for _ in range(LENGTH):
            cupy.add(a, b, out=a)

    measured: dict[str, list[float]] = {"C loop": [], "async": [], "torch.add(out=)": [], "cupy.add(out=)": []}
    for turn in range(ROUNDS + 3):
        # The queue holds about 1,024 launches: the C loop is asked for half as many, so that it never waits for room.
        taken = {"C loop": c(CHUNK)}
        device.synchronize()
        for name, call in (("async", prepared.run), ("torch.add(out=)", torch_adds), ("cupy.add(out=)", cupy_adds)):
            taken[name] = host_ns(call) / LENGTH
            device.synchronize()
        if turn >= 3:
            for name, value in taken.items():
                measured[name].append(value)
    return {name: times(samples) for name, samples in measured.items()}


def graphs(device: Device, prepared: Prepared, graph: torch.cuda.CUDAGraph) -> dict[str, dict[str, dict[str, float]]]:
    """Return us of a launch call, and of a replay until it is done, of both graphs."""
    calls = {"graph": prepared.run, "torch.cuda.CUDAGraph": graph.replay}
    launches: dict[str, list[float]] = {name: [] for name in calls}
    replays: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS + 3):
        for name, call in calls.items():
            start = time.perf_counter_ns()
            call()
            launched = time.perf_counter_ns()
            device.synchronize()
            if turn >= 3:
                launches[name].append((launched - start) / 1e3)
                replays[name].append((time.perf_counter_ns() - start) / 1e3)
    return {name: {"launch_us": times(launches[name]), "replay_us": times(replays[name])} for name in calls}


def main() -> None:
    device = ss.open_device("cuda")
    inputs = [np.zeros(SIZE, np.float32), np.ones(SIZE, np.float32)]
    one, many = warm(device, inputs, "async"), warm(device, inputs, "graph")
    with tempfile.TemporaryDirectory() as folder:
        per_operation = one_by_one(device, one, Path(folder))
    replays = graphs(device, many, torch_graph([bound.call for bound in one.bound]))
    median = {name: value["median"] for name, value in per_operation.items()}
    content = {
        "what": f"{LENGTH} additions of {SIZE} float32 in place, host ns an operation; and graphs of the same kernels, in us",
        "rounds": ROUNDS,
        "per_operation_ns": per_operation,
        "graphs": replays,
        "async_over_c": median["async"] / median["C loop"],
        "async_over_torch": median["async"] / median["torch.add(out=)"],
        "async_over_cupy": median["async"] / median["cupy.add(out=)"],
        "graph_over_torch_graph": replays["graph"]["replay_us"]["median"] / replays["torch.cuda.CUDAGraph"]["replay_us"]["median"],
        **provenance(device, torch=torch.__version__),
    }
    keep("launch_overhead.json", content)
    print(json.dumps({key: value for key, value in content.items() if "_over_" in key} | {"median_ns": median}, indent=1))


if __name__ == "__main__":
    main()
