"""Gradients of operands that were broadcast, which are sums: biases and scales; against a copy, CuPy and PyTorch.

As in `bandwidth.py`: all get the same inputs and take turns with a copy, and the share is of that copy's bandwidth. CuPy and PyTorch
multiply and add up in two steps where there is a scale.

    python benchmarks/broadcast_gradients.py [RESULT.json]
"""

from __future__ import annotations

import math
from typing import Any

import cupy as cp
import torch
from bandwidth import Bench, Call, add_row, write_report

import streamscope as ss

BIAS = ss.elementwise("y = x + s", gradient={"s": "dy"})
SCALE = ss.elementwise("y = x * s", gradient={"s": "dy * x"})
CASES: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = (
    # What it is, the shape of 4 bytes an element, and that of the operand.
    ("of columns", (16_384, 4096), (4096,)),
    ("of few columns", (1 << 20, 64), (64,)),
    ("of one column", (1 << 26, 1), (1,)),
    ("of odd columns", (16_384, 4097), (4097,)),
    ("of rows", (16_384, 4096), (16_384, 1)),
    ("of short rows", (1 << 20, 64), (1 << 20, 1)),
    ("of channels", (80, 256, 56, 56), (256, 1, 1)),
    ("of all", (1 << 26,), ()),
)


def bias_gradient(dy: Any, s: Any) -> Any:
    return BIAS.gradient(dy, dy, s)


def scale_gradient(dy: Any, x: Any, s: Any) -> Any:
    return SCALE.gradient(dy, x, s)


def summed_axes(shape: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes along which the operand was broadcast."""
    missing = len(shape) - len(target)
    return tuple(axis for axis in range(len(shape)) if axis < missing or target[axis - missing] != shape[axis] or shape[axis] == 1)


def main() -> None:
    device = ss.open_device("cuda")
    rows: list[dict[str, Any]] = []
    for dtype in ("float32", "float16"):
        bench = Bench(dtype)
        whole = [array.reshape(-1) for array in bench.inputs]
        for kind, shape, operand in CASES:
            wanted = (min(shape[0] * (4 // whole[0].itemsize), whole[0].size // math.prod(shape[1:])), *shape[1:])
            kept = (wanted[0], *operand[1:]) if operand[:1] == shape[:1] else operand  # of rows
            axes = summed_axes(wanted, kept)
            dy, x = (array[: math.prod(wanted)].reshape(wanted) for array in whole)
            of_torch = [torch.as_tensor(array, device="cuda") for array in (dy, x)]
            ones = cp.ones(kept, dtype)

            def bias_peers(dy: Any = dy, tensor: Any = of_torch[0], axes: Any = axes) -> dict[str, Call]:
                return {"cupy": lambda: cp.sum(dy, axis=axes), "torch": lambda: torch.sum(tensor, dim=axes)}

            def scale_peers(dy: Any = dy, x: Any = x, tensors: Any = of_torch, axes: Any = axes) -> dict[str, Call]:
                return {"cupy": lambda: cp.sum(dy * x, axis=axes), "torch": lambda: torch.sum(tensors[0] * tensors[1], dim=axes)}

            for name, function, inputs, peers in (
                ("bias", bias_gradient, [dy, ones], bias_peers()),
                ("scale", scale_gradient, [dy, x, ones], scale_peers()),
            ):
                bench.inputs = inputs
                measured = bench.measure(device, function, len(inputs), peers)
                add_row(rows, measured, function=name, kind=kind, dtype=dtype, shape=wanted, operand=kept)
    write_report("broadcast_gradients.json", device, "gradients of operands that were broadcast", rows)


if __name__ == "__main__":
    main()
