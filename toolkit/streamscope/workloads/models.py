"""Parts of models as one writes them: attention and a block of ResNet-50 v2, forward and backward, and a step of an LSTM."""

from __future__ import annotations

import math
from functools import partial

from streamscope.differentiating.gradients import vjp
from streamscope.ops import batch_norm_training, convolution, relu, sigmoid, softmax, split, tanh
from streamscope.program.symbol import Symbol
from streamscope.tracing import program
from streamscope.workloads.workload import Described, Drawn, Setting, Workload, around, half


def by_head(y: Symbol, heads: int) -> Symbol:
    """Return rows of all heads, (batch, length, width), head by head: (batch, heads, length, depth)."""
    batch, length, width = y.shape
    return y.reshape(batch, length, heads, width // heads).swapaxes(1, 2)


def joined_heads(y: Symbol) -> Symbol:
    """Undo `by_head`."""
    batch, heads, length, depth = y.shape
    return y.swapaxes(1, 2).reshape(batch, length, heads * depth)


def attention(x: Symbol, wq: Symbol, wk: Symbol, wv: Symbol, wo: Symbol, *, heads: int) -> Symbol:
    """Return the self-attention of x, (batch, length, width), with weights (width, width)."""
    q, k, v = (by_head(x @ w, heads) for w in (wq, wk, wv))
    # A product, also in the gradient: a GPU divides more slowly.
    p = softmax(q @ k.mT * (1 / math.sqrt(q.shape[-1])))
    return joined_heads(p @ v) @ wo


def lstm_cell(x: Symbol, h: Symbol, c: Symbol, w: Symbol, u: Symbol, b: Symbol) -> tuple[Symbol, Symbol]:
    """Return the next ``h`` and ``c`` of an LSTM: x is (batch, inputs), h and c are (batch, width), b is (4 * width,)."""
    i, f, g, o = split(x @ w + h @ u + b, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


def residual_block(x: Symbol, w1: Symbol, w2: Symbol, w3: Symbol, *affine: Symbol) -> Symbol:
    """Return a bottleneck block of ResNet-50 v2, normalized by the batch; ``affine`` are weight and bias of three normalizations."""
    h = x
    for number, w in enumerate((w1, w2, w3)):
        y, _, _ = batch_norm_training(h, *affine[2 * number : 2 * number + 2])
        h = convolution(relu(y), w, padding=w.shape[1] // 2)
    return x + h


def _weights(inputs: int, outputs: int) -> Drawn:
    return half(inputs, outputs, scale=inputs**-0.5)


def _attention(length: int, heads: int, depth: int, batch: int) -> Described:
    @program
    def attention_gradients(x: Symbol, wq: Symbol, wk: Symbol, wv: Symbol, wo: Symbol, dy: Symbol) -> tuple[Symbol, ...]:
        _, pullback = vjp(partial(attention, heads=heads), x, wq, wk, wv, wo)
        found: tuple[Symbol, ...] = pullback(dy)
        return found

    width = heads * depth
    rows = half(batch, length, width)
    return attention_gradients, (rows, *[_weights(width, width)] * 4, half(batch, length, width, scale=1 / length))


ATTENTION = Workload(
    "attention",
    "self-attention in float16, forward, and the gradients of its input and weights",
    {
        "length": Setting(128, 1, 16_384, "positions of a sequence"),
        "heads": Setting(8, 1, 128, "heads"),
        "depth": Setting(64, 1, 256, "numbers of a head at a position"),
        "batch": Setting(1, 1, 256, "sequences"),
    },
    _attention,
)


def _resnet_block(size: int, channels: int, batch: int) -> Described:
    @program
    def resnet_block(x: Symbol, w1: Symbol, w2: Symbol, w3: Symbol, *others: Symbol) -> tuple[Symbol, ...]:
        *affine, dy = others
        _, pullback = vjp(residual_block, x, w1, w2, w3, *affine)
        found: tuple[Symbol, ...] = pullback(dy)
        return found

    image, wide = (batch, size, size, 4 * channels), 4 * channels
    weights = [(channels, 1, 1, wide), (channels, 3, 3, channels), (wide, 1, 1, channels)]
    affine = [around(value, count) for count in (wide, channels, channels) for value in (1, 0)]
    scaled = [half(*shape, scale=math.prod(shape[1:]) ** -0.5) for shape in weights]
    return resnet_block, (half(*image), *scaled, *affine, half(*image, scale=1 / size))


RESNET_BLOCK = Workload(
    "resnet-block",
    "a bottleneck block of ResNet-50 v2 in float16, forward with the batch's statistics, and the gradients of all that it has",
    {
        "size": Setting(14, 1, 512, "height and width"),
        "channels": Setting(64, 1, 1024, "channels of the bottleneck; four times as many around it"),
        "batch": Setting(2, 1, 256, "images"),
    },
    _resnet_block,
)
