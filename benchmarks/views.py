"""Views on large arrays: copies of them, kernels that read them, what is joined, and products, against CuPy and PyTorch.

As `bandwidth.py`, with which it shares the bench: all take turns with a device-to-device copy of 256 MiB.

    python benchmarks/views.py [RESULT.json]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import cupy as cp
import torch
from bandwidth import Bench, Call, add_row, write_report

import streamscope as ss

SIDE = 8192
Case = tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Call]]


def cases(dtype: str) -> Iterator[Case]:
    """Yield a name, our function, its inputs, and the peers' calls."""
    numbers = cp.random.default_rng(0)

    def inputs(*shapes: tuple[int, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        arrays = tuple(numbers.random(shape, "float32").astype(dtype) for shape in shapes)
        return arrays, tuple(torch.as_tensor(array, device="cuda") for array in arrays)

    (x, y), (in_torch, other) = inputs((SIDE, SIDE), (SIDE, SIDE))
    peers: dict[str, Call] = {"cupy": partial(cp.ascontiguousarray, x.T), "torch": lambda: in_torch.t().contiguous()}
    yield "a transpose", lambda x: x.T.copy(), (x,), peers
    peers = {"cupy": partial(cp.add, x.T, y), "torch": lambda: in_torch.t() + other}
    yield "added to a transpose", lambda x, y: x.T + y, (x, y), peers
    yield "added to a copied transpose", lambda x, y: x.T.copy() + y, (x, y), peers
    peers = {"cupy": partial(cp.sum, x.T, axis=1), "torch": lambda: in_torch.t().sum(1)}
    yield "sums of a transpose's rows", lambda x: ss.ops.sum(x.T, axis=1), (x,), peers
    for axis in (0, 1):
        peers = {"cupy": partial(cp.concatenate, (x, y), axis), "torch": partial(torch.cat, (in_torch, other), axis)}
        yield f"joined along {axis}", partial(lambda x, y, axis: ss.ops.concatenate([x, y], axis), axis=axis), (x, y), peers
    peers = {"cupy": partial(cp.stack, (x, y), -1), "torch": partial(torch.stack, (in_torch, other), -1)}
    yield "stacked along the last axis", lambda x, y: ss.ops.stack([x, y], -1), (x, y), peers
    (heads,), (heads_in_torch,) = inputs((64, 1024, 16, 64))
    peers = {"cupy": partial(cp.ascontiguousarray, heads.swapaxes(1, 2)), "torch": lambda: heads_in_torch.transpose(1, 2).contiguous()}
    yield "heads", lambda x: x.swapaxes(1, 2).copy(), (heads,), peers
    (q, k), (q_in_torch, k_in_torch) = inputs((1024, 16, 64), (1024, 16, 64))
    peers = {"torch": lambda: q_in_torch.transpose(0, 1) @ k_in_torch.permute(1, 2, 0)}
    yield "products of heads as they lie", lambda q, k: q.swapaxes(0, 1) @ k.swapaxes(0, 1).mT, (q, k), peers


def main() -> None:
    device = ss.open_device("cuda")
    rows: list[dict[str, Any]] = []
    for dtype in ("float32", "float16"):
        bench = Bench(dtype)
        for name, function, arrays, peers in cases(dtype):
            bench.inputs = list(arrays)
            add_row(rows, bench.measure(device, function, len(arrays), peers), function=name, dtype=dtype)
    write_report("views.json", device, "views of large arrays", rows)


if __name__ == "__main__":
    main()
