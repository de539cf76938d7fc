"""A small residual network, forward: convolutions with the small kernels between them."""

from __future__ import annotations

import numpy as np

from streamscope.ops import add, bias_add, relu
from streamscope.ops.convolutions import convolution
from streamscope.ops.softmaxes import softmax
from streamscope.program.symbol import Symbol
from streamscope.tracing import program
from streamscope.workloads.workload import Array, Made, Setting, Workload, half

CLASSES = 16


def _make(random: np.random.Generator, size: int, channels: int, blocks: int, batch: int) -> Made:
    @program
    def residual_network(x: Symbol, stem: Symbol, head: Symbol, *layers: Symbol) -> Symbol:
        x = relu(convolution(x, stem, padding=1))
        for index in range(0, len(layers), 4):
            w1, b1, w2, b2 = layers[index : index + 4]
            y = relu(bias_add(convolution(x, w1, padding=1), b1))
            y = bias_add(convolution(y, w2, padding=1), b2)
            x = relu(add(x, y))
        scores: Symbol = softmax(convolution(x, head))
        return scores

    def weights(outputs: int, inputs: int, extent: int) -> Array:
        return half(random, outputs, extent, extent, inputs, scale=(1 / (extent * extent * inputs)) ** 0.5)

    layers: list[Array] = []
    for _ in range(blocks):
        for _ in range(2):
            layers += [weights(channels, channels, 3), half(random, channels, scale=0.1)]
    image = half(random, batch, size, size, 8)
    return residual_network, (image, weights(channels, 8, 3), weights(CLASSES, channels, 1), *layers)


CNN = Workload(
    "cnn",
    "a small residual network in float16: stem, residual blocks, and a class for each pixel",
    {
        "size": Setting(32, 3, 512, "height and width"),
        "channels": Setting(64, 8, 1024, "channels"),
        "blocks": Setting(4, 1, 64, "residual blocks of two convolutions"),
        "batch": Setting(1, 1, 256, "images"),
    },
    _make,
)
