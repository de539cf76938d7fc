"""Gradients of random programs: against differences, against PyTorch's autograd, and on the GPU, as far as these are there.

    python benchmarks/random_gradients.py [RESULT.json] [PROGRAMS] [ON THE GPU] [PROCESSES]

Each program has seven steps over all operators with a gradient, in float64, with broadcasting, views, fan-out and writes in place. Its
gradients are those of three results, for random gradients of them. ``ON THE GPU`` says how many programs run there, too.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from provenance import keep, provenance
from tests.drawn_gradients import INDICES, Drawn, drawn_gradients, error_of

import streamscope as ss
from streamscope.arrays import Array
from streamscope.program.operation import Program
from streamscope.program.reference import run_reference

WITHIN = 1e-9
"""How far gradients may be from PyTorch's, as a share of the largest: rounding of some dozen operations, in float64."""
HAS_TORCH = importlib.util.find_spec("torch") is not None
COUNTED = ("wrong slope", "unlike PyTorch's", "unlike on the GPU")


class Torch:
    """PyTorch's functions under the names and with the arguments of our operators."""

    def __init__(self, torch: Any, weights: Any) -> None:
        self.torch, self.nn, self.weights = torch, torch.nn.functional, weights
        self.indices = torch.as_tensor(INDICES.astype(np.int64))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.torch, _NAMES.get(name, name))

    def split(self, x: Any, sections: int, axis: int = 0) -> Any:
        return self.torch.tensor_split(x, sections, axis)

    def transpose(self, x: Any) -> Any:
        return x.permute(tuple(reversed(range(x.ndim))))

    def flip(self, x: Any, axis: int) -> Any:
        return self.torch.flip(x, (axis,))

    def bias_add(self, x: Any, bias: Any) -> Any:
        return x + bias

    def add_n(self, *terms: Any) -> Any:
        return sum(terms)

    def ldexp(self, a: Any, b: Any) -> Any:
        return a * 2.0**b

    def cbrt(self, x: Any) -> Any:
        return x.sign() * x.abs() ** (1 / 3)

    def rcbrt(self, x: Any) -> Any:
        return 1 / self.cbrt(x)

    def gamma(self, x: Any) -> Any:
        return x.lgamma().exp()

    def softsign(self, x: Any) -> Any:
        return self.nn.softsign(x)

    def mish(self, x: Any) -> Any:
        return self.nn.mish(x)

    def log_sigmoid(self, x: Any) -> Any:
        return self.nn.logsigmoid(x)

    def smooth_l1(self, a: Any, s: Any) -> Any:
        return self.torch.where(a.abs() * s * s < 1, (s * a) ** 2 / 2, a.abs() - 1 / (2 * s * s))

    def sum(self, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return self.torch.sum(x, axis, keepdim=keepdims)

    def nansum(self, x: Any, axis: Any = None) -> Any:
        return self.torch.nansum(x, axis)

    def mean(self, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return self.torch.mean(x, axis, keepdim=keepdims)

    def var(self, x: Any, axis: Any = None, *, ddof: int = 0, keepdims: bool = False) -> Any:
        return self.torch.var(x, axis, correction=ddof, keepdim=keepdims)

    def prod(self, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return self.torch.prod(x) if axis is None else self.torch.prod(x, axis, keepdim=keepdims)

    def nanprod(self, x: Any, axis: Any = None) -> Any:
        return self.prod(self.torch.where(x.isnan(), 1, x), axis)

    def max(self, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return self.torch.amax(x, () if axis is None else axis, keepdim=keepdims)

    def min(self, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return self.torch.amin(x, () if axis is None else axis, keepdim=keepdims)

    def norm(self, x: Any, order: float = 2, axis: Any = None) -> Any:
        return self.torch.linalg.vector_norm(x, order, axis)

    def softmax(self, x: Any, axis: int = -1) -> Any:
        return self.torch.softmax(x, axis)

    def log_softmax(self, x: Any, axis: int = -1) -> Any:
        return self.torch.log_softmax(x, axis)

    def cumsum(self, x: Any, axis: int | None = None, *, reverse: bool = False) -> Any:
        if axis is None:
            return self.cumsum(x.reshape(-1), 0, reverse=reverse)
        return self.flip(self.cumsum(self.flip(x, axis), axis), axis) if reverse else self.torch.cumsum(x, axis)

    def take(self, x: Any, indices: Any, axis: int | None = None) -> Any:
        return x.reshape(-1)[indices] if axis is None else self.torch.index_select(x, axis, indices % x.shape[axis])

    def embedding(self, x: Any, indices: Any) -> Any:
        return x[indices]

    def layer_norm(self, x: Any, weight: Any = None, bias: Any = None) -> Any:
        return self.nn.layer_norm(x, x.shape[-1:], weight, bias)

    def batch_norm(self, x: Any, weight: Any, bias: Any, mean: Any, variance: Any) -> Any:
        return (x - mean) / (variance + 1e-5).sqrt() * weight + bias

    def batch_norm_training(self, x: Any, weight: Any, bias: Any) -> tuple[Any]:
        axes = tuple(range(x.ndim - 1))
        return (self.batch_norm(x, weight, bias, x.mean(axes), self.var(x, axes)),)

    def max_pool(self, x: Any, window: int, *, stride: int | None = None, padding: int = 0) -> Any:
        return self.nn.max_pool2d(x.permute(0, 3, 1, 2), window, stride, padding).permute(0, 2, 3, 1)

    def avg_pool(self, x: Any, window: int, *, stride: int | None = None, padding: int = 0) -> Any:
        return self.nn.avg_pool2d(x.permute(0, 3, 1, 2), window, stride, padding).permute(0, 2, 3, 1)

    def convolution(self, x: Any, w: Any, *, stride: int = 1, padding: int = 0) -> Any:
        return self.nn.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), stride=stride, padding=padding).permute(0, 2, 3, 1)


_NAMES = {
    "rint": "round",
    "degrees": "rad2deg",
    "radians": "deg2rad",
    "gammaln": "lgamma",
    "mod": "remainder",
    "power": "pow",
    "concatenate": "cat",
    "copy": "clone",
    "expand_dims": "unsqueeze",
}


def torch_gradients(drawn: Drawn) -> list[Array]:
    """Return the gradients of the inputs by PyTorch's autograd, zeros where it has none."""
    import torch

    inputs = [torch.tensor(each, requires_grad=True) for each in drawn.inputs]
    results = drawn.apply(Torch(torch, inputs[0]), inputs[1:])
    upstream = [torch.as_tensor(each) for each in drawn.upstream]
    pairs = [(result, dy) for result, dy in zip(results, upstream, strict=True) if result.requires_grad]
    found = (
        torch.autograd.grad([y for y, _ in pairs], inputs, [dy for _, dy in pairs], allow_unused=True) if pairs else [None] * len(inputs)
    )
    return [np.zeros_like(x) if each is None else each.numpy() for each, x in zip(found, drawn.inputs, strict=True)]


def distance(some: Sequence[Array], others: Sequence[Array]) -> float:
    """Return the largest difference, as a share of the largest number; infinity where only one side is finite."""
    one, other = (np.concatenate([each.ravel() for each in arrays]) for arrays in (some, others))
    finite = np.isfinite(other)
    if not np.array_equal(np.isfinite(one), finite):
        return math.inf
    return float(np.max(np.abs(one - other)[finite], initial=0) / max(1.0, np.max(np.abs(other[finite]), initial=0)))


@cache
def gpu() -> Any:
    """Return the GPU of this process."""
    return ss.open_device("cuda")


def on_the_gpu(program: Program, inputs: Sequence[Array]) -> list[Array]:
    """Return what a program computes on the GPU."""
    prepared = ss.prepare(program, device=gpu())
    prepared.load(inputs)
    prepared.run()
    prepared.wait()
    return list(prepared.outputs())


def tried(seed: int, of_gpu: int) -> Counter[str]:
    """Check one program's gradients, return counts, and print faults."""
    drawn, found = drawn_gradients(seed), Counter[str]()
    inputs = [INDICES, *drawn.inputs, *drawn.upstream]
    program = ss.program(drawn.gradients).trace(*inputs)
    results = run_reference(program, inputs)
    gradients = results[len(drawn.upstream) :]
    found.update(f"operator {operation.name}" for operation in program.operations if not operation.label)
    error = error_of(drawn, gradients, seed)
    found["no slope" if error is None else "right slope" if error <= 1 else "wrong slope"] += 1
    if HAS_TORCH:
        theirs = torch_gradients(drawn)
        finite = all(np.isfinite(each).all() for each in theirs)  # Not so where a constant meets an infinite slope.
        found["PyTorch's" if distance(gradients, theirs) <= WITHIN else "unlike PyTorch's" if finite else "no slope by PyTorch"] += 1
    if seed < of_gpu and any("convolution" in operation.name for operation in program.operations):
        found["not on the GPU: cuDNN has no convolutions of float64"] += 1
    elif seed < of_gpu:
        found["the same on the GPU" if distance(on_the_gpu(program, inputs), results) <= WITHIN else "unlike on the GPU"] += 1
    for what in COUNTED:
        if found[what]:
            print(f"program {seed}: {what}", flush=True)
    return found


def main() -> None:
    """Try the programs, and keep the counts."""
    programs, of_gpu, processes = map(int, [*sys.argv[2:], *("3000", "0", "2")[len(sys.argv[2:]) :]])
    device, begin = ss.open_device("cuda" if of_gpu else "simulated"), time.monotonic()
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        found = sum(pool.map(partial(tried, of_gpu=of_gpu), range(programs), chunksize=10), Counter[str]())
    operators = {name.removeprefix("operator "): count for name, count in sorted(found.items()) if name.startswith("operator ")}
    content = provenance(device, **({"torch": metadata.version("torch")} if HAS_TORCH else {})) | {
        "programs": programs,
        "found": {name: count for name, count in sorted(found.items()) if not name.startswith("operator ")},
        "operators": operators,
        "seconds": round(time.monotonic() - begin, 1),
    }
    print({name: value for name, value in content.items() if name in ("found", "seconds")})
    keep("random_gradients.json", content)


if __name__ == "__main__":
    main()
