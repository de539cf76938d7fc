"""Compiling generated kernels together against one by one, cold, and taking them from disk, on this machine's processor; no GPU is used.

Two sets of 128 kernels: ``arithmetic`` (sums, products, comparisons, roundings, in float32, float64 and whole numbers), which cost NVRTC
little besides its start, and ``all``, every other generated kernel of every element-wise operator in half, float32 and float64. Then all
that a BERT-like and a ResNet-like training step need. One by one and together take turns, each in an empty cache folder, which both
write to; the least and the median of the rounds. ``processes`` compiles the same groups in new processes instead of threads.

NVRTC keeps a cache of its own where there is a driver (a second compilation of a source took a third of the time), so it is told not to,
and every source of every turn differs from all before by a constant that nothing uses.

    python benchmarks/batched_compilation.py [RESULT.json]
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from provenance import keep

import streamscope as ss
from streamscope.compiling.compare_compilation import never_compiled
from streamscope.kernels.compile.batch import compile_batch, group_count, grouped, unit_code, worker_count
from streamscope.kernels.compile.compilation_log import CompilationLog
from streamscope.kernels.compile.kernel_cache import KernelCache
from streamscope.kernels.compile.nvrtc import compile_unit, nvrtc_version
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.kernels.source import KernelSource
from streamscope.ops.elementwise_operator import Elementwise
from streamscope.tracing import ProgramFunction

ARCHITECTURE, KERNELS, ROUNDS = "sm_90", 128, 7
Sources = Sequence[KernelSource]

# fmt: off
ARITHMETIC = (
    "abs", "add", "bitwise_and", "bitwise_or", "bitwise_xor", "ceil", "equal", "floor", "greater", "greater_equal", "less", "less_equal",
    "logical_and", "logical_not", "logical_or", "maximum", "minimum", "multiply", "negative", "not_equal", "relu", "rint", "sign",
    "square", "subtract", "trunc",
)
# fmt: on


def kernels_of(names: Sequence[str], dtypes: Sequence[str]) -> list[KernelSource]:
    """Return the kernels of operators on two arrays of 1024 × 1024 elements, as many of them as operators take, in those dtypes."""
    found: dict[KernelSource, None] = {}
    for dtype in dtypes:
        x = np.ones((1024, 1024), dtype)
        for name in names:
            operator = getattr(ss.ops, name)
            for operands in ((x,), (x, x)):
                try:
                    traced = ss.program(lambda *arrays, operator=operator: operator(*arrays)).trace(*operands)
                except ss.StreamscopeError:
                    continue  # another number of operands, or not for this dtype
                found.update(dict.fromkeys(program_kernels(traced)))
    return list(found)


def spread(sources: Sources, count: int) -> list[KernelSource]:
    """Return so many of the kernels, at equal distances."""
    return [sources[index * len(sources) // count] for index in range(count)]


def bert_like() -> tuple[ProgramFunction, tuple[Any, ...]]:
    """Return the forward pass of an encoder layer, and the gradients of what is not a matrix product."""

    def normalised(x: Any, gain: Any, bias: Any) -> Any:
        centred = x - ss.ops.mean(x, axis=-1, keepdims=True)
        return centred * ss.ops.rsqrt(ss.ops.mean(ss.ops.square(centred), axis=-1, keepdims=True) + 1e-5) * gain + bias

    @ss.program
    def encoder_layer(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, w1: Any, b1: Any, w2: Any, b2: Any, gain: Any, bias: Any) -> Any:
        scores = ss.ops.softmax((x @ wq) @ wk * 0.125)
        y = normalised(x + (scores @ wv) @ wo, gain, bias)
        h = ss.ops.bias_add(y @ w1, b1)
        gelu = h * 0.5 * (1.0 + ss.ops.erf(h * 0.70710678))
        z = normalised(y + ss.ops.bias_add(gelu @ w2, b2), gain, bias)
        dz = z * 0.01
        return (
            z,
            ss.ops.softmax.gradient(scores, scores),
            ss.ops.sum(dz, axis=0),
            ss.ops.sum(dz * z, axis=0),
            dz * (1.0 - ss.ops.square(ss.ops.tanh(z))),
        )

    x, square, gain = (np.ones(shape, np.float16) for shape in ((128, 768), (768, 768), (768,)))
    wide, tall, wide_bias = (np.ones(shape, np.float16) for shape in ((768, 3072), (3072, 768), (3072,)))
    return encoder_layer, (x, square, square, square, square, wide, wide_bias, tall, gain, gain, gain)


def resnet_like() -> tuple[ProgramFunction, tuple[Any, ...]]:
    """Return a residual block with batch normalisation, pooling and a loss, forward and backward around the convolutions."""

    @ss.program
    def residual_block(x: Any, w1: Any, w2: Any, gain: Any, bias: Any) -> Any:
        def normalised(y: Any) -> Any:
            centred = y - ss.ops.mean(y, axis=(0, 1, 2), keepdims=True)
            return centred * ss.ops.rsqrt(ss.ops.mean(ss.ops.square(centred), axis=(0, 1, 2), keepdims=True) + 1e-5) * gain + bias

        y = ss.ops.relu(normalised(ss.ops.convolution(x, w1, padding=1)))
        z = ss.ops.relu(normalised(ss.ops.convolution(y, w2, padding=1)) + x)
        pooled = ss.ops.mean(z, axis=(1, 2))
        loss = ss.ops.log_softmax(pooled)
        dloss = ss.ops.log_softmax.gradient(loss, pooled)
        dz = ss.ops.multiply(z, ss.ops.greater(z, 0.0))
        dx, dw = ss.ops.convolution_backward(y, w2, dz, padding=1)
        return loss, dloss, dx, dw, ss.ops.sum(dz, axis=(0, 1, 2)), ss.ops.sum(dz * y, axis=(0, 1, 2)), w1 - 0.01 * dw, ss.ops.norm(dw)

    x, w, channel = (np.ones(shape, np.float16) for shape in ((8, 56, 56, 64), (64, 3, 3, 64), (64,)))
    return residual_block, (x, w, w, channel, channel)


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def one_by_one(sources: Sources, cache: KernelCache) -> None:
    for source in sources:
        compile_batch([source], ARCHITECTURE, workers=1, cache=cache).check()


def together(sources: Sources, cache: KernelCache, workers: int | None = None) -> CompilationLog:
    result = compile_batch(sources, ARCHITECTURE, workers=workers, cache=cache)
    result.check()
    return result.log


def unit(code: str) -> int:
    image, log = compile_unit(code, "group", ARCHITECTURE)
    if image is None:
        raise SystemExit(log)
    return len(image)


def in_processes(sources: Sources, workers: int) -> float:
    """Return the time that the groups of a batch take in new processes, their start included."""
    codes = [unit_code(group) for group in grouped(list(sources), group_count(len(sources), workers))]

    def run() -> None:
        with ProcessPoolExecutor(min(workers, len(codes)), multiprocessing.get_context("spawn")) as pool:
            list(pool.map(unit, codes))

    return seconds(run)


def summary(times: Sequence[float]) -> dict[str, Any]:
    return {"least_s": min(times), "median_s": float(np.median(times)), "rounds_s": list(times)}


def measured(sources: Sources, *, alternatives: bool) -> dict[str, Any]:
    """Return the times of one set of kernels, in turns."""
    workers = worker_count()
    counts = sorted({1, 2, 4, 8, workers}) if alternatives else [workers]
    alone: list[float] = []
    batched: dict[int, list[float]] = {count: [] for count in counts if count <= workers}
    processes: list[float] = []
    disk: list[float] = []
    memory: list[float] = []
    log = CompilationLog()
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            cache, unseen = KernelCache(Path(folder)), never_compiled(sources)
            alone.append(seconds(partial(one_by_one, unseen, cache)))
        for count, times in batched.items():
            with tempfile.TemporaryDirectory() as folder:
                cache, unseen = KernelCache(Path(folder)), never_compiled(sources)
                start = time.perf_counter()
                log = together(unseen, cache, count)
                times.append(time.perf_counter() - start)
                again = partial(together, unseen, KernelCache(Path(folder)))
                disk.append(seconds(again))
                memory.append(seconds(again))
        if alternatives:
            processes.append(in_processes(never_compiled(sources), workers))
    best = summary(batched[workers])
    return {
        "kernels": len(sources),
        "source_bytes": sum(len(source.code) for source in sources),
        "code_bytes": log.code_bytes,
        "one_by_one": summary(alone),
        "together": {f"{count} workers": summary(times) for count, times in batched.items()},
        "stages_s": {stage: ns / 1e9 for stage, ns in log.stage_ns.items()},
        "faster": summary(alone)["median_s"] / best["median_s"],
        "processes": summary(processes) if processes else None,
        "from_disk_ms_a_kernel": 1e3 * float(np.median(disk)) / len(sources),
        "from_memory_ms_a_kernel": 1e3 * float(np.median(memory)) / len(sources),
    }


def main() -> None:
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    unit('extern "C" __global__ void first() {}')  # loads NVRTC
    sets = {
        "arithmetic": spread(kernels_of(ARITHMETIC, ("float32", "float64", "int16", "int32", "int64", "uint8")), KERNELS),
        "all": spread(
            kernels_of([name for name in dir(ss.ops) if isinstance(getattr(ss.ops, name), Elementwise)], ("float16", "float32", "float64")),
            KERNELS,
        ),
    }
    programs = {"BERT-like": bert_like(), "ResNet-like": resnet_like()}
    content: dict[str, Any] = {
        "what": "compiling generated kernels by NVRTC, one by one and together, and taking them from the cache",
        "architecture": ARCHITECTURE,
        "rounds": ROUNDS,
        "sets": {name: measured(sources, alternatives=True) for name, sources in sets.items()},
        "programs": {
            name: measured(program_kernels(program.trace(*arrays)), alternatives=False) for name, (program, arrays) in programs.items()
        },
        "processor": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "nvrtc": nvrtc_version(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    keep("batched_compilation.json", content)
    print(json.dumps({**content["sets"], **content["programs"]}, indent=1))


if __name__ == "__main__":
    main()
