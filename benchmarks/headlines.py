"""The headline figures of the five systems, measured anew: what docs/headlines.md shows.

    python benchmarks/headlines.py [RESULT.json] [--parts graphs,streams,host,compiled] [--small]

``graphs``: ResNet-50 v2's forward pass in float16, batch 1 to 128, launched one by one and as a CUDA graph. ``streams``: its training step
under one stream and under two, alone and in a graph, with the memory held. ``host``: a loop with work on the host, synchronous and
asynchronous. ``compiled``: kernels, code and memory of what networks use against all kernels built ahead. Earlier parts stay in the result.
``--small`` has small networks; without a GPU by default.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from batched_compilation import kernels_of
from provenance import provenance

import streamscope as ss
from streamscope.devices.protocol import Device
from streamscope.engines.prepared import Prepared
from streamscope.files import written_whole
from streamscope.kernels.compile.batch import compile_batch
from streamscope.kernels.compile.kernel_cache import KernelCache
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.kernels.library.libraries import checked, libraries
from streamscope.kernels.source import KernelSource
from streamscope.ops.elementwise_operator import Elementwise
from streamscope.tracing import ProgramFunction

TURNS, WARMUP = 40, 5
FORWARD, TRAINING = (1, 2, 4, 8, 16, 32, 64, 128), (32, 64, 128, 256)
LOOP, LOOP_BATCH = 6, 32
DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
ARCHITECTURE = "sm_90"
SMALL: Mapping[str, int] = {"size": 33, "depth": 1, "width": 8}

Found = dict[str, Any]


def in_turns(calls: Mapping[str, Callable[[], None]], turns: int) -> dict[str, Found]:
    """Return the median time of each call, with quartiles, in µs; they take turns in random order."""
    random, times = np.random.default_rng(0), {name: list[float]() for name in calls}
    for turn in range(turns + WARMUP):
        for name in map(str, random.permutation(list(calls))):
            start = time.perf_counter_ns()
            calls[name]()
            if turn >= WARMUP:
                times[name].append((time.perf_counter_ns() - start) / 1e3)
    quartiles = {name: statistics.quantiles(each, n=4) for name, each in times.items()}
    return {name: {"median_us": median, "low_us": low, "high_us": high} for name, (low, median, high) in quartiles.items()}


def run_and_wait(prepared: Prepared) -> Callable[[], None]:
    def call() -> None:
        prepared.run()
        prepared.wait()

    return call


def compared(function: Callable[..., Any], inputs: Sequence[Any], ways: Iterable[str], device: Device, turns: int) -> dict[str, Found]:
    """Return times and memory under some engines; with ``, fused`` behind it, of the fused program."""
    prepared = {}
    for way in ways:
        engine, _, fuse = way.partition(", ")
        body = function.function if isinstance(function, ProgramFunction) else function
        prepared[way] = ss.prepare(ProgramFunction(body, fuse=bool(fuse)), *inputs, engine=engine, device=device, progress=False)
    found = in_turns({way: run_and_wait(each) for way, each in prepared.items()}, turns)
    for way, each in found.items():
        each["memory"] = prepared[way].memory
        print(f"    {way:20} {each['median_us']:12,.1f} µs {each['memory'].get('device_bytes', 0) / 2**20:10,.0f} MiB", flush=True)
    return found


def graphs(device: Device, turns: int, small: Mapping[str, int]) -> Found:
    found: Found = {}
    for batch in FORWARD[: 2 if small else None]:
        print(f"  forward, batch {batch}", flush=True)
        function, inputs = ss.workload("resnet50-v2").build(batch=batch, half=1, **small)
        found[str(batch)] = compared(function, inputs, ("sync", "async", "graph", "async, fused", "graph, fused"), device, turns)
    return found


def streams(device: Device, turns: int, small: Mapping[str, int]) -> Found:
    """Two engines at a time, since a large step takes 30 GB."""
    found: Found = {}
    for batch in TRAINING[: 1 if small else None]:
        print(f"  training step, batch {batch}", flush=True)
        function, inputs = ss.workload("resnet50-v2").build(batch=2 if small else batch, half=1, training=1, **small)
        found[str(batch)] = {}
        for pair in (("async", "dual"), ("graph", "graph-dual")):
            found[str(batch)] |= compared(function, inputs, pair, device, max(turns // 2, 3))
    return found


def host(device: Device, turns: int, small: Mapping[str, int]) -> Found:
    """Measure a loop of batches, in which the host turns images upside down and the GPU runs the network; then each of the two alone."""
    function, (images, *weights) = ss.workload("resnet50-v2").build(batch=2 if small else LOOP_BATCH, half=1, **small)
    raw = [np.random.default_rng(seed).integers(0, 256, images.shape, dtype=np.uint8) for seed in range(LOOP)]

    @ss.host_function(duration_us=2000)
    def flipped(values: Any) -> Any:
        return np.ascontiguousarray(values[:, ::-1])

    def scores(values: Any, weights: Sequence[Any]) -> Any:
        return function.function(values.astype("float16") * (1 / 255), *weights)

    def both(*arrays: Any) -> Any:
        return tuple(scores(ss.ops.to_device(flipped(each)), arrays[LOOP:]) for each in arrays[:LOOP])

    def on_gpu(*arrays: Any) -> Any:
        return tuple(scores(each, arrays[LOOP:]) for each in arrays[:LOOP])

    def alone() -> None:
        for each in raw:
            np.ascontiguousarray(each[:, ::-1])

    print("  a loop with work on the host", flush=True)
    arrays = (*raw, *weights)
    return {
        "both": compared(both, arrays, ("sync", "async", "dual", "sync, fused", "async, fused"), device, turns),
        "GPU alone": compared(on_gpu, arrays, ("sync", "async", "async, fused"), device, turns),
        "host alone": in_turns({"host": alone}, turns)["host"],
    }


def used() -> dict[str, list[KernelSource]]:
    """Return the kernels that training steps of three networks need."""
    found: Found = {}
    for name, settings in (("resnet50-v2", {"half": 1}), ("transformer", {"half": 1}), ("lstm", {})):
        function, specs = ss.workload(name).outline(training=1, **settings)
        found[name] = list(dict.fromkeys(program_kernels(function.trace(*specs))))
    return found


def code_of(sources: Sequence[KernelSource], *, load: bool) -> Found:
    """Compile kernels together, and load all of their code; how much of the GPU's memory that takes."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        made = compile_batch(sources, ARCHITECTURE, cache=KernelCache(Path(folder)))
        seconds = time.perf_counter() - start
    images = list({cubin.digest: cubin.image for cubin in made.cubins.values()}.values())
    found: Found = {"kernels": len(made.cubins), "code_bytes": sum(map(len, images)), "compile_s": seconds}
    if load:
        cuda, runtime = libraries().cuda, libraries().cupy.cuda.runtime
        before = runtime.memGetInfo()[0]
        modules = [checked(cuda.cuModuleLoadData(image)) for image in images]
        found["memory_bytes"] = before - runtime.memGetInfo()[0]
        for module in modules:
            checked(cuda.cuModuleUnload(module))
    print(f"    {found}", flush=True)
    return found


def compiled(device: Device, turns: int, small: Mapping[str, int]) -> Found:
    names = [name for name in dir(ss.ops) if isinstance(getattr(ss.ops, name), Elementwise)]
    ahead = kernels_of(names[:6] if small else names, DTYPES[:2] if small else DTYPES)
    load, parts = device.info.kind != "simulated", used()
    together = list(dict.fromkeys(each for sources in parts.values() for each in sources))
    print("  kernels of networks, and all that operators on one or two arrays of equal shapes and dtypes can need", flush=True)
    return {
        "used": {name: code_of(sources, load=load) for name, sources in (*parts.items(), ("all three", together))},
        "ahead": code_of(ahead, load=load),
        "operators": len(names),
        "dtypes": list(DTYPES),
        "cores": len(os.sched_getaffinity(0)),
    }


PARTS: dict[str, Callable[[Device, int, Mapping[str, int]], Found]] = {
    "graphs": graphs,
    "streams": streams,
    "host": host,
    "compiled": compiled,
}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path(__file__).parent / "results" / "headlines.json")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--small", action="store_true")
    chosen = parser.parse_args()
    os.environ |= {"CUDA_MODULE_LOADING": "EAGER", "CUDA_CACHE_DISABLE": "1"}  # All of the code is loaded, and NVRTC keeps no cache.
    device = ss.open_device("auto")
    small = SMALL if chosen.small or device.info.kind == "simulated" else {}
    result = json.loads(chosen.out.read_text(encoding="utf-8")) if chosen.out.exists() else {}
    for part in chosen.parts.split(","):
        print(part, flush=True)
        result[part] = PARTS[part](device, chosen.turns, small) | {"made": provenance(device)}
        with written_whole(chosen.out) as path:
            path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
