"""ResNet-50 v2, whole: forward, and a training step. Weights have the names of timm's ``resnetv2_50``, channels last."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from streamscope.arrays import Array
from streamscope.differentiating.gradients import value_and_grad
from streamscope.ops import batch_norm, batch_norm_training, convolution, max_pool, mean, relu
from streamscope.program.symbol import Symbol
from streamscope.tracing import program
from streamscope.workloads.training import LOSS_SCALE, Sgd, cross_entropy, move_towards
from streamscope.workloads.workload import Described, Drawn, Setting, Workload, counting, normal, uniform, whole_numbers, zeros

BLOCKS = (3, 4, 6, 3)
IMAGE_CHANNELS = 8
"""Three colours and channels of zeros: cuDNN's kernels of half take eight at a time."""
CLASSES = 1000
RUNNING_SHARE = 0.1
"""Share of a batch in running statistics; PyTorch calls it momentum."""

Normalise = Callable[[Symbol, str], Symbol]


def resnet50_v2(images: Symbol, weights: Mapping[str, Symbol], normalise: Normalise | None = None) -> Symbol:
    """Return the scores (N, classes) of images (N, H, W, channels), computed in the images' dtype.

    Parameters
    ----------
    images : variable
        As many channels as ``stem.conv.weight`` has.
    weights : mapping of str to variable
        By timm's names; see `from_timm`. Which blocks there are, follows from them.
    normalise : callable, optional
        ``normalise(x, name)``: the batch normalization of that name; by default with the running statistics.
    """
    normalise = normalise or (lambda x, name: batch_norm(x, *(weights[f"{name}.{part}"] for part in _NORM)))

    def convolved(x: Symbol, name: str, stride: int = 1) -> Symbol:
        w = weights[f"{name}.weight"].astype(x.dtype, copy=False)
        return convolution(x, w, stride=stride, padding=w.shape[1] // 2)

    def activated(x: Symbol, name: str) -> Symbol:
        return relu(normalise(x, name))

    x = max_pool(convolved(images, "stem.conv", 2), 3, stride=2, padding=1)
    for stage, block in _blocks(weights):
        name = f"stages.{stage}.blocks.{block}"
        stride = 2 if stage and not block else 1
        h = activated(x, f"{name}.norm1")
        shortcut = convolved(h, f"{name}.downsample.conv", stride) if not block else x
        h = activated(convolved(h, f"{name}.conv1"), f"{name}.norm2")
        h = activated(convolved(h, f"{name}.conv2", stride), f"{name}.norm3")
        x = convolved(h, f"{name}.conv3") + shortcut
    pooled = mean(activated(x, "norm"), axis=(1, 2))
    head = weights["head.fc.weight"].reshape(-1, pooled.shape[1]).astype(pooled.dtype, copy=False)
    return pooled @ head.T + weights["head.fc.bias"].astype(pooled.dtype, copy=False)


_NORM = ("weight", "bias", "running_mean", "running_var")


def _blocks(weights: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield stage and number of each block that has weights."""
    for stage in range(len(BLOCKS)):
        block = 0
        while f"stages.{stage}.blocks.{block}.conv1.weight" in weights:
            yield stage, block
            block += 1


def is_trained(name: str) -> bool:
    """Tell whether a weight has a gradient; running statistics have none."""
    return ".running_" not in name


def train_resnet50_v2(
    images: Symbol,
    labels: Symbol,
    classes: Symbol,
    weights: Mapping[str, Symbol],
    velocities: Mapping[str, Symbol],
    optimizer: Sgd = Sgd(),  # noqa: B008 — frozen
) -> Symbol:
    """Do a training step: update weights, running statistics and velocities in place, and return the loss.

    Images in half are computed in half, with gradients of a scaled loss; weights stay in their own dtype.

    Parameters
    ----------
    images : variable
        Shape (N, H, W, channels).
    labels, classes : variable
        Of whole numbers: the class of each image, and the numbers from 0 to classes - 1.
    weights, velocities : mapping of str to variable
        By timm's names; velocities of all that `is_trained`.
    optimizer : Sgd
    """
    scale = LOSS_SCALE if images.dtype == "float16" else 1.0

    def loss(trained: Mapping[str, Symbol]) -> tuple[Symbol, tuple[Symbol, dict[str, tuple[Symbol, Symbol, int]]]]:
        statistics: dict[str, tuple[Symbol, Symbol, int]] = {}

        def normalise(x: Symbol, name: str) -> Symbol:
            y, average, variance = batch_norm_training(x, trained[f"{name}.weight"], trained[f"{name}.bias"])
            statistics[name] = average, variance, x.size // x.shape[-1]
            return y

        value = cross_entropy(resnet50_v2(images, trained, normalise), labels, classes)
        return value * scale if scale != 1 else value, (value, statistics)

    trained = {name: w for name, w in weights.items() if is_trained(name)}
    value: Symbol
    (_, (value, statistics)), gradients = value_and_grad(loss, has_aux=True)(trained)
    for name, (average, variance, count) in statistics.items():
        move_towards(weights[f"{name}.running_mean"], average, RUNNING_SHARE)
        # A running variance is the unbiased one, as PyTorch's.
        move_towards(weights[f"{name}.running_var"], variance, RUNNING_SHARE, count / (count - 1))
    optimizer.update(weights, gradients, velocities, 1 / scale)
    return value


def from_timm(state: Mapping[str, Any], image_channels: int = IMAGE_CHANNELS) -> dict[str, Array]:
    """Return the weights of a timm ``resnetv2_50`` for `resnet50_v2`: ``from_timm(model.state_dict())``.

    Filters become channels last. Those of the stem get channels of zeros, since images have `image_channels`, the further ones of zeros.
    """
    found: dict[str, Array] = {}
    for name, value in state.items():
        array = np.array(value.cpu() if hasattr(value, "cpu") else value)  # a copy: training would write to the model
        if array.ndim == 4:
            array = np.ascontiguousarray(array.transpose(0, 2, 3, 1))
        if name == "stem.conv.weight":
            array = np.pad(array, ((0, 0), (0, 0), (0, 0), (0, image_channels - array.shape[3])))
        if not name.endswith("num_batches_tracked"):
            found[name] = array
    return found


def _weights(most_blocks: int, width: int, dtype: str) -> dict[str, Drawn]:
    """Describe random weights by timm's names: filters in a dtype, all else in float32."""
    found: dict[str, Drawn] = {}

    def filters(name: str, outputs: int, extent: int, inputs: int) -> None:
        shape = (outputs, extent, extent, inputs)
        found[f"{name}.weight"] = normal(*shape, scale=math.prod(shape[1:]) ** -0.5, dtype=dtype)

    def norm(name: str, channels: int) -> None:
        for part, low, high in zip(_NORM, (0.8, -0.1, -0.1, 0.8), (1.2, 0.1, 0.1, 1.2), strict=True):
            found[f"{name}.{part}"] = uniform(low, high, channels)

    filters("stem.conv", width, 7, IMAGE_CHANNELS)
    inputs = width
    for stage, count in enumerate(BLOCKS):
        narrow = width << stage
        for block in range(min(count, most_blocks)):
            name = f"stages.{stage}.blocks.{block}"
            if not block:
                filters(f"{name}.downsample.conv", 4 * narrow, 1, inputs)
            norm(f"{name}.norm1", inputs)
            filters(f"{name}.conv1", narrow, 1, inputs)
            norm(f"{name}.norm2", narrow)
            filters(f"{name}.conv2", narrow, 3, narrow)
            norm(f"{name}.norm3", narrow)
            filters(f"{name}.conv3", 4 * narrow, 1, narrow)
            inputs = 4 * narrow
    norm("norm", inputs)
    filters("head.fc", CLASSES, 1, inputs)
    found["head.fc.bias"] = uniform(-0.1, 0.1, CLASSES)
    return found


def _resnet50_v2(batch: int, size: int, training: int, half: int, depth: int, width: int) -> Described:
    dtype = "float16" if half else "float32"
    weights = _weights(depth, width, "float32" if training else dtype)
    trained = [name for name in weights if is_trained(name)]
    images = normal(batch, size, size, IMAGE_CHANNELS, dtype=dtype)

    @program
    def forward(x: Symbol, *arrays: Symbol) -> Symbol:
        return resnet50_v2(x, dict(zip(weights, arrays, strict=True)))

    @program
    def training_step(x: Symbol, labels: Symbol, classes: Symbol, *arrays: Symbol) -> tuple[Symbol, ...]:
        by_name = dict(zip(weights, arrays, strict=False))
        loss = train_resnet50_v2(x, labels, classes, by_name, dict(zip(trained, arrays[len(weights) :], strict=True)))
        return loss, *by_name.values()

    if not training:
        return forward, (images, *weights.values())
    velocities = [zeros(*weights[name].spec.shape) for name in trained]
    return training_step, (images, whole_numbers(CLASSES, batch), counting(CLASSES), *weights.values(), *velocities)


RESNET50_V2 = Workload(
    "resnet50-v2",
    "ResNet-50 v2: forward, or a training step with the batch's statistics, cross-entropy and SGD with momentum",
    {
        "batch": Setting(1, 1, 1024, "images"),
        # Smaller images end as one pixel, which has no variance.
        "size": Setting(224, 33, 1024, "height and width"),
        "training": Setting(0, 0, 1, "1: a training step"),
        "half": Setting(1, 0, 1, "1: float16, in training with weights in float32; 0: float32"),
        "depth": Setting(max(BLOCKS), 1, max(BLOCKS), f"blocks of a stage at most; {max(BLOCKS)}: all, {' + '.join(map(str, BLOCKS))}"),
        "width": Setting(64, 8, 128, "channels of the stem"),
    },
    _resnet50_v2,
)
