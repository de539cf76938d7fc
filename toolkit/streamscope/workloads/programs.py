"""The ready programs, from an element-wise chain to a residual network."""

from __future__ import annotations

import numpy as np

from streamscope.arrays import Array
from streamscope.ops import add, bias_add, convolution, convolution_backward, multiply, relu, softmax, to_device, to_host
from streamscope.ops.host import host_function
from streamscope.program.symbol import Symbol
from streamscope.tracing import program
from streamscope.workloads.workload import Described, Drawn, Setting, Workload, half, pixels, uniform

_HOST_NS_PER_ELEMENT = 0.7
"""NumPy's time for an element of the host step on one core, in ns, for the simulated device: 0.65 to 1.0 on the host of an H200."""
_CLASSES = 16


def _elementwise_chain(length: int, size: int) -> Described:
    @program
    def elementwise_chain(x: Symbol, scale: Symbol, shift: Symbol) -> Symbol:
        steps = (lambda y: multiply(y, scale), lambda y: add(y, shift), relu)
        for index in range(length):
            x = steps[index % len(steps)](x)
        return x

    # Scales below one, so that a chain of any length stays finite.
    return elementwise_chain, (uniform(-1, 1, size), uniform(0.9, 0.99, size), uniform(-0.1, 0.1, size))


ELEMENTWISE_CHAIN = Workload(
    "elementwise-chain",
    "a chain of multiply, add and relu, each on the result of the one before",
    {"length": Setting(200, 1, 100_000, "operations"), "size": Setting(256, 1, 1 << 28, "elements of each array")},
    _elementwise_chain,
)


def _conv_backward(channels: int, size: int, batch: int) -> Described:
    @program
    def conv_backward(x: Symbol, w: Symbol, dy: Symbol) -> tuple[Symbol, Symbol]:
        dx, dw = convolution_backward(x, w, dy, padding=1)
        return dx, dw

    image = (batch, size, size, channels)
    w = half(channels, 3, 3, channels, scale=1 / (3 * channels**0.5))
    return conv_backward, (half(*image), w, half(*image, scale=1 / size))


CONV_BACKWARD = Workload(
    "conv-backward",
    "weight and data gradient of a 3x3 convolution in float16, the weight gradient in an auxiliary-stream scope",
    {
        "channels": Setting(64, 1, 4096, "channels in and out"),
        "size": Setting(56, 1, 1024, "height and width"),
        "batch": Setting(1, 1, 1024, "images"),
    },
    _conv_backward,
)


def _branches(branches: int, length: int, size: int, copies: int) -> Described:
    @program
    def parallel_branches(x: Symbol, *scales: Symbol) -> Symbol | tuple[Symbol, ...]:
        ends = [to_device(scale) for scale in scales] if copies else list(scales)
        # Step by step over all branches, as a framework would issue them, so that neighbours in the program are independent.
        for step in range(length):
            ends = [multiply(end, x) if step % 2 == 0 else relu(end) for end in ends]
        if copies:
            return tuple(to_host(end) for end in ends)
        total = ends[0]
        for end in ends[1:]:
            total = add(total, end)
        return total

    # Below one, so that branches of any length stay finite.
    return parallel_branches, (uniform(0.8, 1.0, size), *(uniform(-1, 1, size) for _ in range(branches)))


BRANCHES = Workload(
    "branches",
    "independent chains of element-wise operations, added up at the end",
    {
        "branches": Setting(4, 1, 256, "independent chains"),
        "length": Setting(8, 1, 10_000, "operations of each"),
        "size": Setting(65_536, 1, 1 << 28, "elements of each array"),
        "copies": Setting(0, 0, 1, "1: each chain's data come from the host and go back there, instead of into a sum"),
    },
    _branches,
)


def _pipeline(chunks: int, size: int) -> Described:
    @host_function(duration_us=2.0 + size * _HOST_NS_PER_ELEMENT / 1e3)
    def normalise(values: Array) -> Array:
        return values * np.float32(1 / 128) - np.float32(1)

    @program
    def pipeline(weight: Symbol, *raw: Symbol) -> tuple[Symbol, ...]:
        results = []
        for chunk in raw:
            x = to_device(normalise(chunk))
            for _ in range(4):
                x = relu(add(multiply(x, weight), x))
            results.append(to_host(x))
        return tuple(results)

    return pipeline, (uniform(-0.5, 0.5, size), *(pixels(size) for _ in range(chunks)))


PIPELINE = Workload(
    "pipeline",
    "chunks that go through a host function, a copy to the device, twelve kernels and a copy back",
    {"chunks": Setting(4, 1, 1024, "chunks"), "size": Setting(262_144, 1, 1 << 26, "elements of a chunk")},
    _pipeline,
)


def _cnn(size: int, channels: int, blocks: int, batch: int) -> Described:
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

    def weights(outputs: int, inputs: int, extent: int) -> Drawn:
        return half(outputs, extent, extent, inputs, scale=(1 / (extent * extent * inputs)) ** 0.5)

    layers: list[Drawn] = []
    for _ in range(blocks):
        for _ in range(2):
            layers += [weights(channels, channels, 3), half(channels, scale=0.1)]
    image = half(batch, size, size, 8)
    return residual_network, (image, weights(channels, 8, 3), weights(_CLASSES, channels, 1), *layers)


CNN = Workload(
    "cnn",
    "a small residual network in float16: stem, residual blocks, and a class for each pixel",
    {
        "size": Setting(32, 3, 512, "height and width"),
        "channels": Setting(64, 8, 1024, "channels"),
        "blocks": Setting(4, 1, 64, "residual blocks of two convolutions"),
        "batch": Setting(1, 1, 256, "images"),
    },
    _cnn,
)
