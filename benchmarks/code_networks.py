"""Networks and steps of training for `code_times.py`, written as their users write them: this file is the user's, their lines are here.

`STEPS` has makers of functions without arguments, forward and backward; some are models of torchvision, timm and transformers. Each line of
`lines` that launches anything stands in a range of its own, below a `with line():`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda"
Step = Callable[[], object]


def _training(model: nn.Module, *inputs: Tensor, loss: Callable[[Any], Tensor], autocast: bool = False) -> Step:
    model.to(DEVICE).train()
    inputs = tuple(each.to(DEVICE) for each in inputs)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=autocast):
            result = model(*inputs)
        loss(result).backward()
        optimizer.step()

    return step


def _inference(model: nn.Module, *inputs: Tensor) -> Step:
    model.to(DEVICE).eval()
    inputs = tuple(each.to(DEVICE) for each in inputs)

    def step() -> Any:
        with torch.no_grad():
            return model(*inputs)

    return step


def _mean(result: Tensor) -> Tensor:
    return result.float().square().mean()


def _images(count: int = 8, size: int = 96) -> Tensor:
    return torch.randn(count, 3, size, size)


class Perceptron(nn.Module):
    """Residual layers, each normalised."""

    def __init__(self, width: int = 512, depth: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.residual(x, layer)
        return self.norm(x)

    def residual(self, x: Tensor, layer: nn.Module) -> Tensor:
        return x + functional.gelu(layer(x))


class Pixels(nn.Module):
    """Convolutions down and up again, with a short cut."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        self.down = nn.Sequential(nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * channels, channels, 2, stride=2)
        self.last = nn.Conv2d(2 * channels, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        return self.last(self.joined(first, self.up(self.down(first))))

    def joined(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a, b], 1)


class Attention(nn.Module):
    """A block of a transformer, by hand."""

    def __init__(self, width: int = 256, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.out(self.mixed(*self.split(self.norm(x))))
        return x + self.wide(x)

    def split(self, x: Tensor) -> list[Tensor]:
        parts = self.qkv(x).chunk(3, -1)
        return [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]

    def mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
        return (weights @ v).transpose(1, 2).flatten(2)


class Recurrent(nn.Module):
    """Steps of a cell, one after the other."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(width, width)
        self.read = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        state = (torch.zeros_like(x[0]), torch.zeros_like(x[0]))
        for each in x:
            state = self.cell(each, state)
        return self.read(state[0])


class Square(torch.autograd.Function):
    """A function with a backward pass of the user's."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return 2 * context.saved_tensors[0] * gradient


class Squares(nn.Module):
    """A user's autograd function between layers."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.before, self.behind = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.behind(Square.apply(self.before(x)))


class Checkpointed(nn.Module):
    """Layers whose forward pass runs again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Attention() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def _functions() -> Step:
    """Return a step of a regression without modules, with a descent of its own."""
    x, y = torch.randn(4096, 256, device=DEVICE), torch.randn(4096, 1, device=DEVICE)
    weights = [torch.randn(shape, device=DEVICE, requires_grad=True) for shape in ((256, 256), (256, 1))]

    def predicted() -> Tensor:
        return torch.tanh(x @ weights[0]) @ weights[1]

    def descend() -> None:
        with torch.no_grad():
            for each in weights:
                each.sub_(1e-3 * each.grad)
                each.grad = None

    def step() -> None:
        (predicted() - y).square().mean().backward()
        descend()

    return step


def _adversaries() -> Step:
    """Return a step of two networks with an optimizer each."""
    maker, critic = Perceptron(256).to(DEVICE), Perceptron(256).to(DEVICE)
    makers, critics = (torch.optim.SGD(each.parameters(), lr=1e-3) for each in (maker, critic))
    noise, real = torch.randn(2, 512, 256, device=DEVICE)

    def criticise() -> None:
        critics.zero_grad()
        (critic(maker(noise).detach()).mean() - critic(real).mean()).backward()
        critics.step()

    def improve() -> None:
        makers.zero_grad()
        (-critic(maker(noise)).mean()).backward()
        makers.step()

    def step() -> None:
        criticise()
        improve()

    return step


def _of_torchvision(name: str, *, train: bool, **settings: Any) -> Step:
    from torchvision import models

    model, images = getattr(models, name)(**settings), _images()
    return _training(model, images, loss=_mean) if train else _inference(model, images)


def _of_timm(name: str) -> Step:
    import timm

    return _training(timm.create_model(name, pretrained=False), _images(4, 224), loss=_mean)


def _of_transformers(kind: str, **settings: Any) -> Step:
    import transformers

    config = getattr(transformers, f"{kind}Config")(vocab_size=1000, **settings)
    model = getattr(transformers, f"{kind}Model")(config)
    return _training(model, torch.randint(0, 1000, (4, 64)), loss=lambda result: _mean(result.last_hidden_state))


STEPS: dict[str, Callable[[], Step]] = {
    "perceptron": lambda: _training(Perceptron(), torch.randn(256, 512), loss=_mean),
    "perceptron, autocast": lambda: _training(Perceptron(), torch.randn(256, 512), loss=_mean, autocast=True),
    "pixels": lambda: _training(Pixels(), _images(), loss=_mean),
    "attention": lambda: _training(Attention(), torch.randn(8, 128, 256), loss=_mean),
    "attention, inference": lambda: _inference(Attention(), torch.randn(8, 128, 256)),
    "recurrent": lambda: _training(Recurrent(), torch.randn(20, 64, 128), loss=_mean),
    "autograd function": lambda: _training(Squares(), torch.randn(256, 512), loss=_mean),
    "checkpointed": lambda: _training(Checkpointed(), torch.randn(8, 128, 256), loss=_mean),
    "functions": _functions,
    "adversaries": _adversaries,
    "ResNet-18": lambda: _of_torchvision("resnet18", train=True),
    "ResNet-50, inference": lambda: _of_torchvision("resnet50", train=False),
    "MobileNet v3": lambda: _of_torchvision("mobilenet_v3_small", train=True),
    "DenseNet-121": lambda: _of_torchvision("densenet121", train=True),
    "ViT-B/16, inference": lambda: _of_torchvision("vit_b_16", train=False, image_size=96),
    "EfficientNet-B0 (timm)": lambda: _of_timm("efficientnet_b0"),
    "ConvNeXt (timm)": lambda: _of_timm("convnext_atto"),
    "BERT": lambda: _of_transformers("Bert", hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256),
    "GPT-2": lambda: _of_transformers("GPT2", n_embd=128, n_layer=2, n_head=4),
    "Llama": lambda: _of_transformers(
        "Llama", hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=256
    ),
}


def lines(line: Callable[[], AbstractContextManager[object]]) -> dict[str, Step]:
    """Return five networks of which each line that launches anything stands in a range ``line()``, which begins on the line above."""
    wide, narrow = torch.randn(256, 512, device=DEVICE), torch.randn(64, 128, device=DEVICE)
    images, words = _images(8, 64).to(DEVICE), torch.randn(8, 64, 256, device=DEVICE)
    layers = [nn.Linear(512, 512, device=DEVICE) for _ in range(3)]
    convolution, normalised = nn.Conv2d(3, 16, 3, padding=1, device=DEVICE), nn.BatchNorm2d(16, device=DEVICE)
    block, cell = Attention().to(DEVICE), nn.LSTMCell(128, 128, device=DEVICE)
    weights = torch.randn(512, 512, device=DEVICE, requires_grad=True)

    def activated(x: Tensor) -> Tensor:
        with line():
            return functional.gelu(x)

    def residual(x: Tensor, layer: nn.Module) -> Tensor:
        with line():
            y = layer(x)
        y = activated(y)
        with line():
            return x + y

    def perceptron() -> None:
        x = wide
        for layer in layers:
            x = residual(x, layer)
        with line():
            x.mean()

    def halves(x: Tensor) -> Any:
        for part in x.chunk(2, 1):
            with line():
                half = part * 2
            yield half
            with line():
                half.sum()

    def pixels() -> None:
        with line():
            x = convolution(images)
        with line():
            x = functional.relu(normalised(x))
        for half in halves(x):
            with line():
                functional.max_pool2d(half, 2)

    def attention() -> None:
        with line():
            x = block.norm(words)
        with line():
            qkv = block.qkv(x)
        q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in qkv.chunk(3, -1))
        with line():
            y = functional.scaled_dot_product_attention(q, k, v)
        with line():
            y = block.out(y.transpose(1, 2).flatten(2))
        with line():
            words + y

    def recurrent() -> None:
        with line():
            state = torch.zeros_like(narrow), torch.zeros_like(narrow)
        for _ in range(10):
            with line():
                state = cell(narrow, state)
        try:
            with line():
                fails(state[0])
        except ValueError:
            with line():
                state[0].exp()

    def fails(x: Tensor) -> None:
        with line():
            x.log()
        raise ValueError

    def training() -> None:
        with line():
            loss = torch.tanh(wide @ weights).square().mean()
        loss.backward()
        with torch.no_grad(), line():
            weights.sub_(1e-3 * weights.grad)
        weights.grad = None

    def without_gradients(step: Step) -> Step:
        found: Step = torch.no_grad()(step)
        return found

    forward = {"perceptron": perceptron, "pixels": pixels, "attention": attention, "recurrent": recurrent}
    return {name: without_gradients(step) for name, step in forward.items()} | {"training": training}
