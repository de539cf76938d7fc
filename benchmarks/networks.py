"""Fifteen networks as functions of tensors, with random weights and inputs: what `parallelise_networks.py` captures.

Each is written as its users write it: PyTorch modules, torchvision's models, a CuPy function. Nothing in them knows of streams or graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision import models

HALF = torch.float16


@dataclass(frozen=True)
class Network:
    """A function, and inputs for it.

    Attributes
    ----------
    function : callable
        ``function(*inputs)``; its results are tensors or CuPy arrays.
    inputs : tuple
        On the device.
    below : int
        Whole numbers among the inputs are below this.
    """

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    below: int = 1

    def draw(self, seed: int) -> None:
        """Fill the inputs with other random numbers, where they lie."""
        torch.manual_seed(seed)
        for each in self.inputs:
            values = torch.as_tensor(each)  # A CuPy array's own memory.
            values.normal_() if values.is_floating_point() else values.random_(0, self.below)


def _inference(name: str, model: nn.Module, *inputs: Tensor, below: int = 1) -> Network:
    model.eval()

    def call(*given: Tensor) -> Any:
        with torch.no_grad():
            return model(*given)

    call.__name__ = name
    return Network(call, inputs, below)


def _on_images(name: str, make: Callable[[], nn.Module], size: int, batch: int) -> Network:
    with torch.device("cuda"):
        model = make().half().to(memory_format=torch.channels_last)
        images = torch.randn(batch, 3, size, size, dtype=HALF).to(memory_format=torch.channels_last)
    return _inference(name, model, images)


class Separable(nn.Sequential):
    """A separable convolution: each channel alone, then all channels of each pixel."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__(
            nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False),
            nn.Conv2d(channels, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )


class Cell(nn.Module):
    """A wide cell as NASNet has them: pairs of separable convolutions of what the two cells before it made, added and joined."""

    def __init__(self, before: int, last: int, channels: int, pairs: int) -> None:
        super().__init__()
        self.enter = nn.ModuleList(
            nn.Sequential(nn.Conv2d(each, channels, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()) for each in (before, last)
        )
        self.left = nn.ModuleList(Separable(channels, 3) for _ in range(pairs))
        self.right = nn.ModuleList(Separable(channels, 5) for _ in range(pairs))

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        a, b = self.enter[0](before), self.enter[1](last)
        return torch.cat([left(a) + right(b) for left, right in zip(self.left, self.right, strict=True)], 1)


class NasNetLike(nn.Module):
    """Six wide cells."""

    def __init__(self, channels: int = 32, cells: int = 6, pairs: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
        self.shrink = nn.Sequential(nn.Conv2d(channels, channels, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU())
        widths = [channels, channels] + [channels * pairs] * cells
        self.cells = nn.ModuleList(Cell(widths[at], widths[at + 1], channels, pairs) for at in range(cells))
        self.head = nn.Linear(channels * pairs, 1000)

    def forward(self, image: Tensor) -> Tensor:
        before = last = self.shrink(self.stem(image))
        for cell in self.cells:
            before, last = last, cell(before, last)
        return self.head(last.mean((2, 3)))


def nasnet_like(batch: int) -> Network:
    """Six cells of separable convolutions."""
    return _on_images("nasnet_like", NasNetLike, 112, batch)


def large_nasnet(batch: int) -> Network:
    """72 such cells, which are about 5,000 nodes: for how long it takes to capture, order and check so many."""
    return _on_images("large_nasnet", lambda: NasNetLike(cells=72), 112, batch)


class Experts(nn.Module):
    """A mixture of experts, each of which sees all rows."""

    def __init__(self, width: int = 512, inner: int = 1024, experts: int = 8) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.gate(x).softmax(-1)
        total = weight[:, :1] * self.experts[0](x)
        for number, expert in enumerate(self.experts[1:], 1):
            total = total + weight[:, number : number + 1] * expert(x)
        return total


def mixture_of_experts(batch: int) -> Network:
    """Eight experts, 64 rows for each of the batch."""
    with torch.device("cuda"):
        return _inference("mixture_of_experts", Experts().half(), torch.randn(64 * batch, 512, dtype=HALF))


def inception_v3(batch: int) -> Network:
    """Inception v3 of torchvision."""
    return _on_images("inception_v3", lambda: models.inception_v3(weights=None, init_weights=False), 299, batch)


def googlenet(batch: int) -> Network:
    """GoogLeNet of torchvision."""
    return _on_images("googlenet", lambda: models.googlenet(weights=None, init_weights=False), 224, batch)


class Recommender(nn.Module):
    """Numbers and 26 categories of each row, which meet in pairs: as DLRM has it."""

    ROWS = 100_000

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.numbers = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        self.categories = nn.ModuleList(nn.Embedding(self.ROWS, width) for _ in range(26))
        self.top = nn.Sequential(nn.Linear(width + 27 * 27, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        dense = self.numbers(numbers)
        every = torch.stack([dense, *(table(one) for table, one in zip(self.categories, categories, strict=True))], 1)
        return self.top(torch.cat([dense, (every @ every.mT).flatten(1)], 1)).sigmoid()


def recommender(batch: int) -> Network:
    """26 embeddings, 256 rows for each of the batch, fp32."""
    rows = 256 * batch
    with torch.device("cuda"):
        numbers, categories = torch.randn(rows, 13), torch.randint(0, Recommender.ROWS, (26, rows))
        return _inference("recommender", Recommender(), numbers, categories, below=Recommender.ROWS)


def resnet18_training(batch: int) -> Network:
    """ResNet-18, one step of its training with SGD and momentum, 64² images, 8 for each of the batch; all in fp16."""
    return _resnet18_training("training_step", batch, HALF)


def resnet18_autocast(batch: int) -> Network:
    """Return the same step as most people train: weights in fp32, under autocast."""
    return _resnet18_training("autocast_training_step", batch, torch.float32)


def _resnet18_training(name: str, batch: int, dtype: torch.dtype) -> Network:
    with torch.device("cuda"):
        model = models.resnet18(weights=None, num_classes=10).to(dtype, memory_format=torch.channels_last).train()
        images = torch.randn(8 * batch, 3, 64, 64, dtype=dtype).to(memory_format=torch.channels_last)
        labels = torch.randint(0, 10, (8 * batch,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def training_step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=HALF, enabled=dtype is not HALF):
            loss = functional.cross_entropy(model(images).float(), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    training_step.__name__ = name
    return Network(training_step, (images, labels), below=10)


def resnet50(batch: int) -> Network:
    """ResNet-50 of torchvision."""
    return _on_images("resnet50", lambda: models.resnet50(weights=None), 224, batch)


def densenet121(batch: int) -> Network:
    """DenseNet-121 of torchvision."""
    return _on_images("densenet121", lambda: models.densenet121(weights=None), 224, batch)


def efficientnet_b0(batch: int) -> Network:
    """EfficientNet-B0 of torchvision."""
    return _on_images("efficientnet_b0", lambda: models.efficientnet_b0(weights=None), 224, batch)


def vision_transformer(batch: int) -> Network:
    """ViT-B/16 of torchvision."""
    return _on_images("vision_transformer", lambda: models.vit_b_16(weights=None), 224, batch)


class Block(nn.Module):
    """A transformer block: attention, then two layers, each beside what goes past it."""

    def __init__(self, width: int = 512, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_layers = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.joined = nn.Linear(width, width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.before_attention(x)
        q, k, v = (each(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (self.query, self.key, self.value))
        x = x + self.joined(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.layers(self.before_layers(x))


def transformer(batch: int) -> Network:
    """Six transformer blocks, 128 tokens of 512."""
    with torch.device("cuda"):
        return _inference("transformer", nn.Sequential(*(Block() for _ in range(6))).half(), torch.randn(batch, 128, 512, dtype=HALF))


class Recurrent(nn.Module):
    """An LSTM that returns its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(512, 512, num_layers=2)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.lstm(x)[0]
        return output


def lstm(batch: int) -> Network:
    """LSTM of cuDNN, two layers of 512, 50 steps; cuDNN forks streams itself."""
    with torch.device("cuda"):
        return _inference("lstm", Recurrent().half(), torch.randn(50, batch, 512, dtype=HALF))


def _twice(inside: int, outside: int) -> nn.Sequential:
    pairs = ((inside, outside), (outside, outside))
    layers = [[nn.Conv2d(one, other, 3, padding=1, bias=False), nn.BatchNorm2d(other), nn.ReLU()] for one, other in pairs]
    return nn.Sequential(*layers[0], *layers[1])


class UNet(nn.Module):
    """Down four levels and up again, each level beside what goes past it."""

    def __init__(self, widths: Sequence[int] = (32, 64, 128, 256)) -> None:
        super().__init__()
        self.down = nn.ModuleList(_twice(inside, outside) for inside, outside in zip((3, *widths), widths, strict=False))
        self.bottom = _twice(widths[-1], 2 * widths[-1])
        self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, stride=2) for width in reversed(widths))
        self.up = nn.ModuleList(_twice(2 * width, width) for width in reversed(widths))
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        past = []
        for level in self.down:
            past.append(level(x))
            x = functional.max_pool2d(past[-1], 2)
        x = self.bottom(x)
        for widen, level, kept in zip(self.widen, self.up, reversed(past), strict=True):
            x = level(torch.cat([widen(x), kept], 1))
        return self.head(x)


def unet(batch: int) -> Network:
    """U-Net of four levels, 128² images."""
    return _on_images("unet", UNet, 128, batch)


def cupy_scales(batch: int) -> Network:
    """Features of signals at twelve scales, in CuPy: 64 signals of 1,024 for each of the batch."""
    import cupy

    def features(x: Any) -> Any:
        found = cupy.empty((12, 3, len(x)), x.dtype)
        for scale, (mean, most, total) in enumerate(found):
            change = x - cupy.roll(x, 1 << min(scale, 9), axis=1) * (1 / (1 + scale))
            energy = cupy.exp(-change * change)
            energy.mean(axis=1, out=mean)
            cupy.tanh(change).max(axis=1, out=most)
            (energy * x).sum(axis=1, out=total)
        return found

    return Network(features, (cupy.random.standard_normal((64 * batch, 1024), dtype=cupy.float32),))


NETWORKS: dict[str, Callable[[int], Network]] = {
    "NASNet-like, 6 cells, 112²": nasnet_like,
    "mixture of 8 experts, 64 × 512": mixture_of_experts,
    "Inception v3, 299²": inception_v3,
    "GoogLeNet, 224²": googlenet,
    "recommender, 26 embeddings, fp32, 256 rows": recommender,
    "ResNet-18 training step, 64², 8 images": resnet18_training,
    "ResNet-18 training step under autocast, 64², 8 images": resnet18_autocast,
    "ResNet-50, 224²": resnet50,
    "DenseNet-121, 224²": densenet121,
    "EfficientNet-B0, 224²": efficientnet_b0,
    "six transformer blocks, 128 × 512": transformer,
    "two-layer LSTM (cuDNN), 50 steps": lstm,
    "ViT-B/16, 224²": vision_transformer,
    "U-Net, 128²": unet,
    "features at 12 scales (CuPy), 64 × 1,024, fp32": cupy_scales,
}
"""What tables call each; a batch of 8 has eight times the images or rows."""
