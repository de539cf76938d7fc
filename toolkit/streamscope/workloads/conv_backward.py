"""The backward pass of one convolution: two gradients that do not need each other."""

from __future__ import annotations

import numpy as np

from streamscope.ops.convolutions import convolution_backward
from streamscope.program.symbol import Symbol
from streamscope.tracing import program
from streamscope.workloads.workload import Made, Setting, Workload, half


def _make(random: np.random.Generator, channels: int, size: int, batch: int) -> Made:
    @program
    def conv_backward(x: Symbol, w: Symbol, dy: Symbol) -> tuple[Symbol, Symbol]:
        dx, dw = convolution_backward(x, w, dy, padding=1)
        return dx, dw

    image = (batch, size, size, channels)
    w = half(random, channels, 3, 3, channels, scale=1 / (3 * channels**0.5))
    return conv_backward, (half(random, *image), w, half(random, *image, scale=1 / size))


CONV_BACKWARD = Workload(
    "conv-backward",
    "weight and data gradient of a 3x3 convolution in float16, the weight gradient in an auxiliary-stream scope",
    {
        "channels": Setting(64, 1, 4096, "channels in and out"),
        "size": Setting(56, 1, 1024, "height and width"),
        "batch": Setting(1, 1, 1024, "images"),
    },
    _make,
)
