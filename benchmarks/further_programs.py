"""Six programs beside the workloads, for measurements that are to hold for any program: attention, convolution, branches, copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import streamscope as ss
from streamscope.tracing import ProgramFunction
from streamscope.workloads.models import attention

Made = tuple[ProgramFunction, tuple[Any, ...]]


def _half(random: np.random.Generator, *shape: int, scale: float = 1.0) -> Any:
    return (scale * random.standard_normal(shape)).astype(np.float16)


def encoder(length: int = 256, width: int = 512, layers: int = 2) -> Made:
    """Make transformer layers, forwards: attention, and two matrix products with a relu between."""

    @ss.program
    def encoder(x: Any, *weights: Any) -> Any:
        for index in range(0, len(weights), 6):
            wq, wk, wv, wo, up, down = weights[index : index + 6]
            x = x + attention(x, wq, wk, wv, wo, heads=8)
            x = x + ss.ops.relu(x @ up) @ down
        return x

    random = np.random.default_rng(0)
    shapes = [(width, width)] * 4 + [(width, 4 * width), (4 * width, width)]
    weights = [_half(random, *shape, scale=0.3 * shape[0] ** -0.5) for _ in range(layers) for shape in shapes]
    return encoder, (_half(random, 1, length, width), *weights)


def experts(count: int = 8, rows: int = 64, width: int = 512) -> Made:
    """Make eight experts side by side, each two matrix products, added up: a mixture with no routing."""

    @ss.program
    def experts(x: Any, *weights: Any) -> Any:
        hidden = [ss.ops.relu(x @ w) for w in weights[: len(weights) // 2]]
        total, *others = [h @ w for h, w in zip(hidden, weights[len(weights) // 2 :], strict=True)]
        for other in others:
            total = total + other
        return total

    random = np.random.default_rng(0)
    return experts, (_half(random, rows, width), *(_half(random, width, width, scale=width**-0.5) for _ in range(2 * count)))


def inception(size: int = 28, channels: int = 64, cells: int = 3) -> Made:
    """Make cells of three unequal branches, 1x1, 3x3 and twice 3x3 and a pool with a 1x1, whose results are added."""

    @ss.program
    def inception(x: Any, *weights: Any) -> Any:
        for index in range(0, len(weights), 6):
            one, before3, three, before33, first, second = weights[index : index + 6]
            a = ss.ops.convolution(x, one)
            b = ss.ops.convolution(ss.ops.relu(ss.ops.convolution(x, before3)), three, padding=1)
            c = ss.ops.relu(ss.ops.convolution(ss.ops.relu(ss.ops.convolution(x, before33)), first, padding=1))
            x = ss.ops.relu(a + b + ss.ops.convolution(c, second, padding=1))
        return x

    random = np.random.default_rng(0)

    def weight(extent: int) -> Any:
        return _half(random, channels, extent, extent, channels, scale=(extent * extent * channels) ** -0.5)

    return inception, (_half(random, 1, size, size, channels), *(weight(extent) for _ in range(cells) for extent in (1, 1, 3, 1, 3, 3)))


def convolution_training(size: int = 28, channels: int = 128, batch: int = 4) -> Made:
    """Make three convolutions with relu, and the kernels of their gradients: a load to predict, without the gradient of relu."""

    @ss.program
    def convolution_training(x: Any, w1: Any, w2: Any, w3: Any, dy: Any) -> tuple[Any, ...]:
        layers, h = [], x
        for w in (w1, w2, w3):
            layers.append((h, w))
            h = ss.ops.relu(ss.ops.convolution(h, w, padding=1))
        gradients, d = [], dy
        for h, w in reversed(layers):
            d, dw = ss.ops.convolution_backward(h, w, d, padding=1)
            gradients.append(dw)
        return h, *gradients

    random = np.random.default_rng(0)
    image = (batch, size, size, channels)
    weights = [_half(random, channels, 3, 3, channels, scale=(9 * channels) ** -0.5) for _ in range(3)]
    return convolution_training, (_half(random, *image), *weights, _half(random, *image, scale=1 / size))


def streaming(chunks: int = 6, size: int = 1 << 20) -> Made:
    """Make chunks that are copied to the device, go through four kernels, and are copied back."""

    @ss.program
    def streaming(scale: Any, *chunks: Any) -> tuple[Any, ...]:
        results = []
        for chunk in chunks:
            x = ss.ops.to_device(chunk)
            for _ in range(2):
                x = ss.ops.relu(x * scale)
            results.append(ss.ops.to_host(x))
        return tuple(results)

    random = np.random.default_rng(0)
    return streaming, tuple(random.random(size, dtype=np.float32) for _ in range(chunks + 1))


def two_sorts(width: int = 2048, elements: int = 1 << 24, length: int = 4) -> Made:
    """Make matrix products, which compute, and additions over large arrays, which move memory; nothing orders one sort after the other."""

    @ss.program
    def two_sorts(x: Any, w: Any, a: Any, b: Any) -> tuple[Any, Any]:
        for _ in range(length):
            x = x @ w
            a = a + b
        return x, a

    random = np.random.default_rng(0)
    matrices = (_half(random, width, width), _half(random, width, width, scale=width**-0.5))
    return two_sorts, (*matrices, *(random.random(elements, dtype=np.float32) for _ in range(2)))


FURTHER_PROGRAMS: dict[str, Callable[[], Made]] = {
    "encoder": encoder,
    "experts": experts,
    "inception": inception,
    "convolution-training": convolution_training,
    "streaming": streaming,
    "two-sorts": two_sorts,
}
