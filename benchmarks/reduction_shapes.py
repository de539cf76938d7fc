"""Reductions of shapes that loads fit badly: short rows, batch norms, odd numbers of columns; against a copy, CuPy and PyTorch.

As in `bandwidth.py`: all get the same inputs and take turns with a copy, and the share is of that copy's bandwidth.

    python benchmarks/reduction_shapes.py [RESULT.json]
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import cupy as cp
import torch
from bandwidth import Bench, Call, add_row, write_report

import streamscope as ss

SHAPES: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = (
    # Shape of 4 bytes an element, and the axes that are reduced.
    ("batch norm", (1024, 512, 11, 11), (0, 2, 3)),
    ("batch norm", (1024, 320, 14, 14), (0, 2, 3)),
    ("batch norm", (320, 256, 28, 28), (0, 2, 3)),
    ("batch norm", (80, 256, 56, 56), (0, 2, 3)),
    ("few results", (2, 2, 4096, 4096), (0, 2, 3)),
    ("short rows", (20_000_000, 3), (1,)),
    ("short rows", (1_300_000, 49), (1,)),
    ("short rows", (1 << 20, 64), (1,)),
    ("short rows", (200_003, 333), (1,)),
    ("odd columns", (16_384, 4097), (0,)),
    ("odd columns", (1 << 20, 65), (0,)),
    ("even columns", (16_384, 4098), (0,)),
    ("middle axis", (65_536, 16, 64), (1,)),
    ("middle axis", (290_000, 7, 33), (1,)),
)


def peers_of(bench: Bench, name: str, axes: tuple[int, ...]) -> dict[str, Call]:
    """Return what CuPy and PyTorch do instead."""
    axis: Any = axes if len(axes) > 1 else axes[0]
    in_cupy, in_torch = getattr(cp, name), getattr(torch, name)
    return {"cupy": partial(in_cupy, bench.inputs[0], axis=axis), "torch": partial(in_torch, bench.tensors[0], dim=axis)}


def main() -> None:
    device = ss.open_device("cuda")
    rows: list[dict[str, Any]] = []
    for dtype in ("float32", "float16"):
        bench = Bench(dtype)
        whole = bench.inputs[0].reshape(-1)
        for kind, shape, axes in SHAPES:
            outer = shape[0] * (4 // whole.itemsize)
            wanted = (min(outer, whole.size // math.prod(shape[1:])), *shape[1:])
            bench.inputs = [whole[: math.prod(wanted)].reshape(wanted)]
            bench.tensors = [torch.as_tensor(bench.inputs[0], device="cuda")]
            for name in ("sum", "argmax") if len(axes) == 1 else ("sum",):
                function = partial(getattr(ss.ops, name), axis=axes if len(axes) > 1 else axes[0])
                measured = bench.measure(device, function, 1, peers_of(bench, name, axes))
                add_row(rows, measured, kind=kind, function=name, dtype=dtype, shape=wanted, axes=axes)
    write_report("reduction_shapes.json", device, "reductions of shapes that loads fit badly", rows)


if __name__ == "__main__":
    main()
