"""How long single launches take alone: matrix products, convolutions and kernels of ours over dtypes and shapes; what cost models rest on.

Of each launch: the time that one more takes in a chain, in a graph and on a stream that is held until all is queued; what its call costs
the host; its kernels with grid and block; their durations by CUPTI, which comes last, since it makes calls dearer.

    python benchmarks/kernel_times.py [RESULT.json] [SECONDS]
"""

from __future__ import annotations

import itertools
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance

import streamscope as ss
from streamscope import ops
from streamscope.calibrating.launch_times import LaunchTimer
from streamscope.devices.protocol import Call
from streamscope.engines.binding import capturing
from streamscope.files import written_whole
from streamscope.program.launch import Launch, LaunchKind
from streamscope.program.operation import Program
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.recording.calibration import calibrate
from streamscope.tracing import program

Case = tuple[Callable[..., Any], tuple[ArraySpec, ...]]

F16, F32, F64 = "float16", "float32", "float64"
LENGTHS = (4, 16)
"""Launches in a chain: the difference is what one takes."""
LONG_NS = 300_000
"""A launch that takes longer is timed alone."""
SQUARES = (16, 32, 64, 96, 128, 192, 256, 384, 512, 640, 768, 1024, 1280, 1536, 2048, 3072, 4096, 6144, 8192)
SHAPES = (  # rows, inner, columns
    (1, 256, 1024), (1, 1024, 1024), (1, 4096, 4096), (8, 256, 1024), (8, 1024, 4096), (32, 512, 512), (32, 1024, 1024), (64, 512, 2048),
    (128, 512, 512), (128, 512, 2048), (128, 2048, 512), (128, 768, 768), (128, 768, 3072), (256, 1024, 1024), (512, 512, 64),
    (512, 64, 512), (64, 4096, 64), (64, 8192, 64), (16, 16384, 16), (128, 8192, 128), (256, 4096, 256), (512, 512, 128),
    (1024, 1024, 64), (4096, 64, 64), (4096, 4096, 64), (4096, 64, 4096), (8192, 512, 512), (2048, 1024, 4096), (1024, 4096, 1024),
    (10000, 100, 10), (1000, 1000, 1000), (333, 777, 555), (100, 100, 100), (37, 41, 43),
)  # fmt: skip
BATCHES = (  # matrices, rows, inner, columns
    (8, 128, 64, 128), (8, 128, 128, 64), (12, 64, 64, 64), (16, 512, 64, 512), (16, 512, 512, 64), (64, 32, 32, 32), (64, 128, 64, 128),
    (256, 64, 64, 64), (4, 1024, 64, 1024), (4, 1024, 1024, 64), (32, 256, 64, 256), (1024, 16, 16, 16), (96, 197, 64, 197),
)  # fmt: skip
TURNED = (*SQUARES[2:15:2], (128, 512, 512), (512, 128, 512), (8, 256, 1024), (256, 8, 1024), (64, 4096, 64), (2048, 1024, 4096))
LAYERS = (  # height and width, channels in, channels out, filter, stride
    (56, 64, 64, 3, 1), (56, 64, 256, 1, 1), (56, 256, 64, 1, 1), (28, 128, 128, 3, 1), (28, 512, 128, 1, 1), (14, 256, 256, 3, 1),
    (14, 256, 1024, 1, 1), (7, 512, 512, 3, 1), (7, 2048, 512, 1, 1), (32, 8, 64, 3, 1), (32, 64, 64, 3, 1), (32, 64, 16, 1, 1),
    (14, 64, 64, 3, 1), (14, 256, 64, 1, 1), (14, 64, 256, 1, 1), (64, 32, 32, 3, 1), (16, 128, 128, 3, 1), (224, 8, 64, 7, 2),
    (56, 128, 128, 3, 2), (128, 16, 32, 3, 1), (28, 256, 512, 1, 2),
)  # fmt: skip
ELEMENTS = (256, 1024, 4096, 16_384, 65_536, 131_072, 262_144, 1 << 20, 3_000_000, 1 << 22, 1 << 24, 1 << 26)
ROWS = ((8, 64), (64, 64), (64, 1024), (392, 64), (392, 256), (1024, 128), (1024, 1024), (8, 65_536), (65_536, 8), (3136, 64), (4096, 4096))
IMAGES = ((1, 56, 56, 64), (8, 28, 28, 128), (32, 56, 56, 64), (2, 14, 14, 256))
COPIES = (4096, 65_536, 262_144, 1 << 20, 1 << 22, 1 << 24, 1 << 26)


def spec(dtype: str, *shape: int) -> ArraySpec:
    return ArraySpec(shape, np.dtype(dtype))


def products(dtype: str) -> Iterator[Case]:
    for rows, inner, columns in (*((n, n, n) for n in SQUARES), *SHAPES):
        yield ops.matmul, (spec(dtype, rows, inner), spec(dtype, inner, columns))
    for count, height, inner, width in BATCHES:
        yield ops.matmul, (spec(dtype, count, height, inner), spec(dtype, count, inner, width))
        yield lambda a, b: ops.matmul(a, b, transpose_b=True), (spec(dtype, count, height, inner), spec(dtype, count, width, inner))
    for turned in TURNED:
        down, inner, across = turned if isinstance(turned, tuple) else (turned,) * 3
        yield lambda a, b: ops.matmul(a, b, transpose_b=True), (spec(dtype, down, inner), spec(dtype, across, inner))
        yield lambda a, b: ops.matmul(a, b, transpose_a=True), (spec(dtype, inner, down), spec(dtype, inner, across))


def convolutions(dtype: str, batches: Sequence[int]) -> Iterator[Case]:
    for batch in batches:
        for size, inputs, outputs, extent, stride in LAYERS:
            geometry = {"stride": stride, "padding": extent // 2}
            x, w = spec(dtype, batch, size, size, inputs), spec(dtype, outputs, extent, extent, inputs)
            after = (size + 2 * (extent // 2) - extent) // stride + 1
            yield lambda x, w, g=geometry: ops.convolution(x, w, **g), (x, w)
            yield lambda x, w, d, g=geometry: ops.convolution_backward(x, w, d, **g), (x, w, spec(dtype, batch, after, after, outputs))


def elementwise() -> Iterator[Case]:
    for size in ELEMENTS:
        for dtype in (F32, F16):
            one = spec(dtype, size)
            yield ops.relu, (one,)
            yield ops.add, (one, one)
            yield ops.tanh, (one,)
        yield ops.sigmoid, (spec(F32, size),)
        yield ops.multiply, (spec(F64, size), spec(F64, size))
        yield (lambda x: ops.astype(x, F16)), (spec(F32, size),)
        yield (lambda x: x * 0.5 + x), (spec(F32, size),)


def rows() -> Iterator[Case]:
    for shape in ROWS:
        for dtype in (F32, F16):
            x, last = spec(dtype, *shape), spec(dtype, shape[1])
            for axis in (None, 0, 1):
                yield lambda x, axis=axis: ops.sum(x, axis=axis), (x,)
            yield ops.softmax, (x,)
            yield ops.layer_norm, (x, last, last)
            yield ops.bias_add, (x, last)
            yield lambda x: ops.copy(x.T), (x,)
            yield lambda x: ops.softmax.gradient(x, x), (x,)
        x = spec(F32, *shape)
        yield lambda x: ops.max(x, axis=1), (x,)
        yield lambda x: ops.mean(x, axis=0), (x,)
        yield lambda x: ops.var(x, axis=0), (x,)
        yield lambda x: ops.argmax(x, axis=1), (x,)
        yield lambda x: ops.cumsum(x, axis=1), (x,)
        yield lambda x, i: ops.take(x, i, axis=0), (x, spec("int32", 1024))
        yield lambda x: ops.concatenate([x, x], axis=1), (x,)
    for image in IMAGES:
        for dtype in (F16, F32):
            x, last = spec(dtype, *image), spec(F32, image[-1])
            yield ops.batch_norm_training, (x, last, last)
            yield lambda x, s, d: ops.batch_norm_backward(x, s, s, s, d), (x, last, x)
            yield lambda x: ops.max_pool(x, 2), (x,)
            yield lambda x: ops.avg_pool(x, 2), (x,)


def copies() -> Iterator[Case]:
    for nbytes in COPIES:
        yield ops.to_device, (spec(F32, nbytes // 4),)
        yield ops.to_host, (spec(F32, nbytes // 4),)


def families() -> dict[str, list[Case]]:
    return {
        "copies": list(copies()),
        "elementwise": list(elementwise()),
        "rows": list(rows()),
        **{f"matmul {dtype}": list(products(dtype)) for dtype in (F16, F32, F64)},
        "convolution float16": list(convolutions(F16, (1, 8, 32))),
        "convolution float32": list(convolutions(F32, (1, 8))),
    }


def traced(cases: Sequence[Case]) -> Program:
    """Trace all cases as one program, so that their kernels compile together."""

    def everything(*inputs: Any) -> tuple[Any, ...]:
        left, results = iter(inputs), list[Any]()
        for function, specs in cases:
            made = function(*(next(left) for _ in specs))
            results += made if isinstance(made, tuple) else [made]
        return tuple(results)

    return program(everything).trace(*(one for _, specs in cases for one in specs))


class Timer(LaunchTimer):
    """Times launches on one stream of a device."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self.source: Any = None
        self.random = None if device.info.simulated else __import__("cupy").random
        self.excess_ns = calibrate(device).queued_excess_ns

    def bound(self, program: Program, launch: Launch) -> Call:
        """Prepare a launch on memory of its own."""
        buffers = {v: self.buffer(program.variables[v]) for v in dict.fromkeys((*launch.reads, *launch.writes))}
        self.source = buffers[launch.reads[0]] if launch.kind is LaunchKind.COPY_IN and self.random is not None else None
        reads, writes = [buffers[v] for v in launch.reads], [buffers[v] for v in launch.writes]
        return self.device.bind(launch, reads, writes, self.stream)

    def buffer(self, variable: Any) -> Any:
        """Allocate a variable, full of random numbers."""
        buffer: Any = self.device.allocate(variable.spec, variable.place)
        kind = variable.spec.dtype.kind
        if self.random is not None and variable.place is MemoryPlace.DEVICE:
            if kind == "f":
                shape = variable.spec.shape
                buffer.array[...] = self.random.standard_normal(shape, dtype=np.float32) / math.sqrt(shape[-1] if shape else 1)
            else:
                buffer.array[...] = self.random.randint(0, 8, variable.spec.shape)
        elif self.random is None:
            self.device.write(buffer, np.zeros(variable.spec.shape, variable.spec.dtype))
        self.device.synchronize()
        return buffer

    def after_write_ns(self, call: Call) -> float:
        """Return what a copy reads whose source the host has just written, in ns (median)."""
        values = itertools.count()

        def write_and_copy() -> None:
            self.source.array[...] = next(values)
            call()

        return self.gated_ns(write_and_copy)

    def graph(self, call: Call, length: int) -> Any:
        """Capture a chain of calls."""
        with capturing(self.device, self.stream) as graphs:
            repeated(call, length)
        return graphs[0]

    def host_ns(self, call: Callable[[], object], count: int = 60) -> float:
        """Return what a call costs the host, in ns, the least of some rounds of so many."""
        found = []
        for _ in range(3):
            start = self.device.now_ns()
            for _ in range(count):
                call()
            found.append((self.device.now_ns() - start) / count)
            self.stream.synchronize()
        return float(min(found))

    def times(self, call: Callable[[], None]) -> dict[str, Any]:
        """Return all that is measured of a call."""
        call()
        self.stream.synchronize()
        alone_ns = self.gated_ns(call) - self.excess_ns
        kernels = [[math.prod(node.grid), math.prod(node.block)] for node in self.graph(call, 1).nodes]
        found: dict[str, Any] = {"alone": alone_ns, "kernels": kernels}
        if self.source is not None:
            found["after_write"] = self.after_write_ns(call) - self.excess_ns
        if alone_ns > LONG_NS:
            return found
        chains = [self.graph(call, length) for length in LENGTHS]
        in_graph = [self.gated_ns(partial(graph.launch, self.stream)) for graph in chains]
        on_stream = [self.gated_ns(partial(repeated, call, length)) for length in LENGTHS]
        steps = LENGTHS[1] - LENGTHS[0]
        found["in_graph"], found["on_stream"] = ((after - before) / steps for before, after in (in_graph, on_stream))
        if alone_ns < 50_000:
            found["host"] = self.host_ns(call)
        return found


def repeated(call: Callable[[], None], count: int) -> None:
    for _ in range(count):
        call()


def described(traced: Program, launch: Launch, family: str) -> dict[str, Any]:
    operands = [view.spec if view is not None else traced.variables[v].spec for v, view in launch.operands]
    return {"family": family, "name": launch.name, "reads": [[one.dtype.name, *one.shape] for one in operands]}


def matched(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], Launch]]:
    """Yield the rows of a result, each with its launch, traced anew."""
    by_family: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_family.setdefault(row["family"], []).append(row)
    for family, cases in families().items():
        launches = traced(random.Random(0).sample(cases, len(cases))).launches()
        yield from ((row, launch) for row, launch in zip(by_family.get(family, ()), launches, strict=False) if "error" not in row)


def swept(device: Any, seconds: float, save: Callable[[list[dict[str, Any]]], None]) -> None:
    """Time all launches; ``save`` is called with what there is before CUPTI is used, and at the end."""
    timer, rows, kept, begin = Timer(device), [], [], time.monotonic()
    chosen = families()
    share = seconds * 0.8 / len(chosen)
    for number, (family, cases) in enumerate(chosen.items()):
        shuffled = random.Random(0).sample(cases, len(cases))
        if device.info.simulated:
            shuffled = [case for case in shuffled if max(one.size for one in case[1]) < 70_000][:8]
        whole = traced(shuffled)
        device.make_ready(whole)
        for launch in whole.launches():
            if time.monotonic() - begin > share * (number + 1):
                print(f"{family}: out of time", flush=True)
                break
            row = described(whole, launch, family)
            try:
                call = timer.bound(whole, launch)
                row |= timer.times(call)
            except Exception as error:  # noqa: BLE001 — a library has no kernel for it: the others are still worth the machine's time
                row["error"] = f"{type(error).__name__}: {error}"[:200]
                print(row["name"], row["reads"], row["error"], flush=True)
            else:
                kept.append((row, whole, launch))
            del call
            rows.append(row)
        print(f"{family}: {sum(row['family'] == family for row in rows)} launches after {time.monotonic() - begin:.0f} s", flush=True)
    save(rows)
    if not device.info.simulated:
        with_cupti(timer, kept, begin + seconds)
        save(rows)


def with_cupti(timer: Timer, kept: Sequence[tuple[dict[str, Any], Program, Launch]], until: float) -> None:
    """Add durations by CUPTI: of each kernel of a launch, the median of some."""
    from streamscope.recording.cupti import kernel_durations_ns

    for done, (row, whole, launch) in enumerate(random.Random(1).sample(kept, len(kept))):
        if time.monotonic() > until:
            print(f"CUPTI: out of time after {done} of {len(kept)}", flush=True)
            return
        call = timer.bound(whole, launch)
        durations = kernel_durations_ns(partial(repeated, call, 8))
        if durations and len(durations) % 8 == 0:
            row["cupti"] = np.median(np.reshape(durations, (8, -1))[2:], axis=0).tolist()
        del call


def main() -> None:
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 100.0
    device: Any = ss.open_device(sys.argv[3] if len(sys.argv) > 3 else "cuda")
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "results" / "kernel_times_h200.json")
    content = {"what": "single launches, times in ns", **provenance(device)}

    def save(rows: list[dict[str, Any]]) -> None:
        text = ",\n".join(json.dumps(row, separators=(",", ":")) for row in map(compact, rows))
        with written_whole(target) as path:
            path.write_text(json.dumps(content, indent=1)[:-2] + ',\n "rows": [\n' + text + "\n]}\n")

    swept(device, seconds, save)


def compact(row: dict[str, Any]) -> dict[str, Any]:
    whole = {key: round(value) if isinstance(value, float) else value for key, value in row.items()}
    return whole | ({"cupti": [round(value) for value in row["cupti"]]} if "cupti" in row else {})


if __name__ == "__main__":
    main()
