"""Generated element-wise and reduction kernels on large arrays, against a device-to-device copy, CuPy and PyTorch, in one run.

All get the same inputs, 256 MiB each, and take turns in random order, the copy too: what a slow peer leaves behind (clocks, caches)
and what differs between rented machines falls on all alike. Times are CUDA events around several calls, after one untimed call, so
that the launch of the first on an idle stream is not counted as time on the device. A kernel's share is of the bandwidth of the copy
that took turns with it, with each input and output counted once.

    python benchmarks/bandwidth.py [RESULT.json]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import cupy as cp
import numpy as np
import torch
from provenance import keep, provenance

import streamscope as ss
from streamscope.devices.protocol import Device

MEBIBYTES, COLUMNS, CALLS, ROUNDS = 256, 4096, 8, 9
Call = Callable[[], Any]

ELEMENTWISE = {
    # Ours: CuPy's name, PyTorch's name; None where there is none.
    "relu": (None, "relu"),
    "sigmoid": (None, "sigmoid"),
    "erf": (None, "erf"),
    "exp": ("exp", "exp"),
    "log1p": ("log1p", "log1p"),
    "sqrt": ("sqrt", "sqrt"),
    "tanh": ("tanh", "tanh"),
    "sin": ("sin", "sin"),
    "abs": ("abs", "abs"),
    "negative": ("negative", "neg"),
    "square": ("square", "square"),
    "add": ("add", "add"),
    "multiply": ("multiply", "mul"),
    "divide": ("divide", "div"),
    "maximum": ("maximum", "maximum"),
    "hypot": ("hypot", "hypot"),
    "greater": ("greater", "gt"),
}
BINARY = ("add", "multiply", "divide", "maximum", "hypot", "greater")
WHOLE = ("relu", "abs", "negative", "square", "add", "multiply", "maximum", "greater")
"""Element-wise functions that take whole numbers."""
REDUCTIONS = {"sum": "sum", "mean": "mean", "prod": "prod", "max": "amax", "argmax": "argmax"}
AXES = {"rows": 1, "columns": 0, "all": None}


class Bench:
    """Inputs of one dtype, and what the peers do with them."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.torch_stream = torch.cuda.ExternalStream(self.stream.ptr)
        rows = MEBIBYTES * 2**20 // np.dtype(dtype).itemsize // COLUMNS
        numbers = np.random.default_rng(0)
        values = numbers.integers(-99, 99, (rows, COLUMNS), dtype) if dtype == "int8" else numbers.random((rows, COLUMNS), np.float32) + 0.5
        values = values.astype(dtype)
        self.inputs = [cp.asarray(values), cp.asarray(values)]
        self.tensors = [torch.as_tensor(one, device="cuda") for one in self.inputs]
        source, target = self.inputs
        self.copied_bytes = 2 * source.nbytes
        self.copy = partial(target.data.copy_from_device_async, source.data, source.nbytes, self.stream)

    def time_us(self, call: Call, stream: Any) -> float:
        """Return the device time of one of several calls in a row, after one untimed."""
        start, end = cp.cuda.Event(), cp.cuda.Event()
        with self.stream, torch.cuda.stream(self.torch_stream):
            call()
            start.record(stream)
            for _ in range(CALLS):
                call()
            end.record(stream)
        end.synchronize()
        return float(cp.cuda.get_elapsed_time(start, end)) / CALLS * 1e3

    def cases(self) -> Mapping[str, tuple[Callable[..., Any], int, dict[str, Call]]]:
        """Return our function, its number of inputs, and the peers' calls, by name."""
        listed: dict[str, tuple[Callable[..., Any], int, dict[str, Call]]] = {}
        whole = self.dtype == "int8"
        for name, (in_cupy, in_torch) in ELEMENTWISE.items():
            if whole and name not in WHOLE:
                continue
            count = 2 if name in BINARY else 1
            logic = name == "greater"
            out = cp.empty(self.inputs[0].shape, bool if logic else self.dtype)
            peers: dict[str, Call] = {}
            if in_cupy:
                peers["cupy"] = partial(getattr(cp, in_cupy), *self.inputs[:count], out=out)
            options = {} if in_torch == "relu" else {"out": torch.as_tensor(out, device="cuda")}
            peers["torch"] = partial(getattr(torch, in_torch), *self.tensors[:count], **options)
            listed[name] = (getattr(ss.ops, name), count, peers)
        for name, in_torch in REDUCTIONS.items():
            for where, axis in AXES.items():
                options = {} if axis is None else {"dim": axis}
                peers = {"cupy": partial(getattr(cp, name), self.inputs[0], axis=axis)}
                if not (whole and name == "mean"):  # PyTorch has none
                    peers["torch"] = partial(getattr(torch, in_torch), self.tensors[0], **options)
                listed[f"{name} {where}"] = (partial(getattr(ss.ops, name), axis=axis), 1, peers)
        if whole:
            return listed
        norms: dict[str, Call] = {
            "cupy": partial(cp.linalg.norm, self.inputs[0].reshape(-1)),
            "torch": partial(torch.linalg.vector_norm, self.tensors[0]),
        }
        listed["norm all"] = (ss.ops.norm, 1, norms)
        for name in ("softmax", "log_softmax"):
            listed[name] = (getattr(ss.ops, name), 1, {"torch": partial(getattr(torch, name), self.tensors[0], 1)})
        return listed

    def measure(self, device: Device, function: Callable[..., Any], count: int, peers: dict[str, Call]) -> dict[str, Any]:
        """Time one function, a copy of 256 MiB and the peers in turns."""
        program = ss.program(function).trace(*self.inputs[:count])
        prepared = ss.prepare(program, engine="async", device=device)
        prepared.load(self.inputs[:count])
        calls: dict[str, Call] = {"copy": self.copy, "streamscope": prepared.run, **peers}
        own: Any = prepared.streams[0]
        streams = {"streamscope": own.handle}
        times: dict[str, list[float]] = {who: [] for who in calls}
        order = np.random.default_rng(0)
        for turn in range(ROUNDS + 1):
            for who in map(str, order.permutation(list(calls))):  # who runs before it, a slow peer or a fast one, is chance
                taken = self.time_us(calls[who], streams.get(who, self.stream))
                if turn:  # the first warms up
                    times[who].append(taken)
        medians = {who: float(np.median(values)) for who, values in times.items()}
        moved = sum(program.variables[v].spec.nbytes for v in (*program.inputs, *program.outputs))
        return {
            "bytes": moved,
            "median_us": medians,
            "share_of_copy": moved / medians["streamscope"] / (self.copied_bytes / medians["copy"]),
            "against_best_peer": medians["streamscope"] / min(medians[who] for who in peers),
        }


def add_row(rows: list[dict[str, Any]], measured: dict[str, Any], **what: Any) -> None:
    """Add what was measured to the rows, after what it was measured of, and print it."""
    rows.append(what | measured)
    times = ", ".join(f"{who} {time:.0f}" for who, time in measured["median_us"].items())
    shares = f"{measured['share_of_copy']:.2f} of copy; {measured['against_best_peer']:.2f} of the best peer"
    print(f"{' '.join(map(str, what.values())):40} {shares} ({times} us)", flush=True)


def write_report(name: str, device: Device, what: str, rows: list[dict[str, Any]], **more: Any) -> None:
    """Write what was measured to a file, and print the sums of it."""
    sums = {
        **more,
        "geometric_mean_against_best_peer": float(np.exp(np.mean([np.log(row["against_best_peer"]) for row in rows]))),
        "least_share_of_copy": min(row["share_of_copy"] for row in rows),
    }
    what = f"{what}; share of the bandwidth of a copy, and time over that of the faster peer"
    report = {"what": what, **sums, "rows": rows, **provenance(device, torch=torch.__version__)}
    keep(name, report)
    print(sums)


def main() -> None:
    device = ss.open_device("cuda")
    rows: list[dict[str, Any]] = []
    copies: dict[str, float] = {}
    for dtype in ("float32", "float16", "int8"):
        bench = Bench(dtype)
        first = len(rows)
        for name, (function, count, peers) in bench.cases().items():
            try:
                add_row(rows, bench.measure(device, function, count, peers), function=name, dtype=dtype)
            except (RuntimeError, TypeError) as error:
                print(f"{name} {dtype} left out: {error}", file=sys.stderr)
        copies[dtype] = bench.copied_bytes / float(np.median([row["median_us"]["copy"] for row in rows[first:]])) / 1e3
    write_report("bandwidth.json", device, f"arrays of {MEBIBYTES} MiB", rows, copy_gigabytes_per_s=copies)


if __name__ == "__main__":
    main()
