"""PyTorch and CuPy code as many people write it: whether `ss.parallelise` takes it, its order is proven, and all of it is understood.

python benchmarks/common_code.py [RESULT.json] [--part 0/4]

Models of torchvision, layers and optimisers of PyTorch, operators that are seldom captured, and CuPy's functions. With ``--part`` a
process takes each fourth case, so that several can work side by side; times are then noisy, and only ``speedup`` against the captured
order is kept.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import cupy
import torch
from common_cupy import CASES as CUPY
from provenance import provenance
from torch import Tensor, nn, optim
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import rnn
from torch.utils.checkpoint import checkpoint
from torchvision import models

import streamscope as ss
from streamscope.files import written_whole

Case = tuple[Callable[..., Any], tuple[Any, ...]]
DEVICE, CLASSES, INPUTS = "cuda", 10, 5


def inference(
    make: Callable[[], nn.Module], *shape: int, dtype: torch.dtype = torch.float32, last: bool = False, autocast: bool = False
) -> Case:
    """Return a model that is called without gradients."""
    model = make().to(DEVICE, dtype).eval()
    x = torch.randn(shape, device=DEVICE, dtype=dtype)
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)

    def call(x: Tensor) -> Any:
        with torch.no_grad(), torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=autocast):
            return model(x)

    return call, (x,)


def training(
    make: Callable[[], nn.Module],
    *shape: int,
    optimiser: Callable[..., optim.Optimizer] | None = None,
    autocast: torch.dtype | None = None,
) -> Case:
    """Return a step of training."""
    model = make().to(DEVICE).train()
    steps = (optimiser or partial(optim.SGD, lr=1e-3))(model.parameters())

    def step(x: Tensor, labels: Tensor) -> Tensor:
        steps.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=autocast or torch.float16, enabled=autocast is not None):
            loss = functional.cross_entropy(model(x).float(), labels)
        loss.backward()
        steps.step()
        return loss.detach()

    return step, (torch.randn(shape, device=DEVICE), torch.randint(0, CLASSES, shape[:1], device=DEVICE))


def floats(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Case:
    """Return a function of random arrays."""
    return function, tuple(torch.randn(shape, device=DEVICE) for shape in shapes)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, CLASSES))


class Recurrent(nn.Module):
    """Two layers in both directions, and a result of the last step."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers = getattr(nn, kind)(32, 64, 2, batch_first=True, bidirectional=True)
        self.top = nn.Linear(128, CLASSES)

    def forward(self, x: Tensor) -> Any:
        return self.top(self.layers(x)[0][:, -1])


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)


def encoder_with_top() -> nn.Module:
    return nn.Sequential(encoder(), nn.Flatten(), nn.Linear(16 * 64, CLASSES))


def volumes() -> nn.Module:
    return nn.Sequential(nn.Conv3d(3, 8, 3), nn.BatchNorm3d(8), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, CLASSES))


def upwards() -> nn.Module:
    first = (nn.ConvTranspose2d(3, 16, 3), nn.GroupNorm(4, 16), nn.SiLU())
    second = (nn.ConvTranspose2d(16, 8, 3, stride=2), nn.InstanceNorm2d(8), nn.GELU(), nn.AdaptiveMaxPool2d(2))
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(32, CLASSES))


def attention(backend: SDPBackend) -> Case:
    """Return attention with its gradients, by one of PyTorch's backends."""

    def both(*given: Tensor) -> Any:
        with sdpa_kernel(backend):
            result = functional.scaled_dot_product_attention(*given, is_causal=True)
            return result, *torch.autograd.grad(result.sum(), given)

    return both, tuple(torch.randn(2, 4, 64, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))


def cached() -> Case:
    """Return a decoder's attention, whose cache goes on."""
    keys = torch.zeros(2, 4, 32, 16, device=DEVICE)
    values, position = torch.zeros_like(keys), torch.zeros((), dtype=torch.long, device=DEVICE)

    def step(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys.index_copy_(2, position.view(1), key)
        values.index_copy_(2, position.view(1), value)
        position.add_(1).remainder_(32)
        return functional.scaled_dot_product_attention(query, keys, values)

    return floats(step, *[(2, 4, 1, 16)] * 3)


def recomputed() -> Case:
    layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)).to(DEVICE)

    def gradients(x: Tensor) -> Any:
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return torch.autograd.grad(x.sum(), [*layers.parameters()])

    return gradients, (torch.randn(8, 64, device=DEVICE, requires_grad=True),)


def clipped() -> Case:
    model = perceptron().to(DEVICE)
    steps = optim.SGD(model.parameters(), lr=0.01)

    def step(x: Tensor) -> Any:
        steps.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps.step()
        return loss.detach(), norm

    return floats(step, (8, 256))


def sparse_rows() -> Case:
    """Return a step that changes the rows of a table that its input names."""
    table = nn.Embedding(1000, 64, device=DEVICE)
    steps = optim.SGD(table.parameters(), lr=0.1)

    def step(ids: Tensor) -> Tensor:
        steps.zero_grad()
        loss = table(ids).square().mean()
        loss.backward()
        steps.step()
        return loss.detach()

    return step, (torch.randint(0, 1000, (32,), device=DEVICE),)


def averaged() -> Case:
    model, average = perceptron().to(DEVICE), perceptron().to(DEVICE)

    def both(x: Tensor) -> Any:
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.1)
            return model(x), average(x)

    return floats(both, (8, 256))


def per_sample() -> Case:
    weight = torch.randn(16, 4, device=DEVICE)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return ((x @ weight - y) ** 2).sum()

    return floats(torch.func.vmap(torch.func.grad(loss)), (8, 16), (8, 4))


def compiled_training() -> Case:
    model = perceptron().to(DEVICE)
    steps, compiled = optim.Adam(model.parameters(), capturable=True), torch.compile(model)

    def step(x: Tensor, labels: Tensor) -> Tensor:
        steps.zero_grad()
        loss = functional.cross_entropy(compiled(x), labels)
        loss.backward()
        steps.step()
        return loss.detach()

    return step, (torch.randn(32, 256, device=DEVICE), torch.randint(0, CLASSES, (32,), device=DEVICE))


def decomposed(x: Tensor) -> Any:
    eye = 64 * torch.eye(64, device=DEVICE)
    return torch.linalg.cholesky(x @ x.mT + eye), torch.linalg.inv(x + eye)


def in_eights(x: Tensor, y: Tensor) -> Tensor:
    scale, eight = torch.ones((), device=DEVICE), torch.float8_e4m3fn
    product: Tensor = torch._scaled_mm(x.to(eight), y.to(eight).t(), scale, scale, out_dtype=torch.bfloat16)  # noqa: SLF001 — its name
    return product


def lengths() -> Case:
    """Return a recurrent network on sequences of other lengths, which PyTorch wants in host memory."""
    layers = nn.LSTM(32, 64, batch_first=True).to(DEVICE)

    def padded(x: Tensor, lengths: Tensor) -> Any:
        out, hidden = layers(rnn.pack_padded_sequence(x, lengths, batch_first=True))
        return rnn.pad_packed_sequence(out, batch_first=True), hidden

    return padded, (torch.randn(4, 12, 32, device=DEVICE), torch.tensor([12, 9, 5, 2]))


def scheduled() -> Case:
    """Return a step with a scheduler in it, which writes into a rate on the GPU."""
    model = perceptron().to(DEVICE)
    steps = optim.Adam(model.parameters(), lr=torch.tensor(1e-2, device=DEVICE), capturable=True)
    rates = optim.lr_scheduler.ExponentialLR(steps, 0.9)

    def step(x: Tensor) -> Tensor:
        steps.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        steps.step()
        rates.step()
        return loss.detach()

    return floats(step, (32, 256))


def penalised() -> Case:
    """Return the gradient of a gradient, of a model with hooks and tied weights."""
    inner, outer = nn.Linear(64, 64, device=DEVICE), nn.Linear(64, 64, device=DEVICE)
    outer.weight = inner.weight
    inner.weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    outer.register_forward_hook(lambda *call: call[-1] * 2)

    def gradients(x: Tensor) -> Any:
        (gradient,) = torch.autograd.grad(outer(inner(x).tanh()).sum(), x, create_graph=True)
        return torch.autograd.grad((gradient.norm(dim=1) - 1).square().mean(), [*inner.parameters()])

    return gradients, (torch.randn(8, 64, device=DEVICE, requires_grad=True),)


def translator() -> nn.Module:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.top = nn.Transformer(32, 4, 1, 1, 64, 0.1, batch_first=True), nn.Linear(32 * 8, CLASSES)

        def forward(self, x: Tensor) -> Any:
            return self.top(
                self.layers(x, x, tgt_is_causal=True, tgt_mask=self.layers.generate_square_subsequent_mask(8, DEVICE)).flatten(1)
            )

    return Both()


TORCHVISION = (
    "resnet18 mobilenet_v3_small shufflenet_v2_x0_5 squeezenet1_1 mnasnet0_5 regnet_y_400mf convnext_tiny swin_t vit_b_32 alexnet vgg11_bn"
)
OPTIMISERS: dict[str, Callable[..., optim.Optimizer]] = {
    "Adam": partial(optim.Adam, capturable=True),
    "Adam, not capturable": optim.Adam,
    "Adam, one by one": partial(optim.Adam, capturable=True, foreach=False),
    "AdamW, fused": partial(optim.AdamW, capturable=True, fused=True),
    "SGD with momentum": partial(optim.SGD, lr=0.01, momentum=0.9, nesterov=True),
    "SGD, fused": partial(optim.SGD, lr=0.01, fused=True),
    "SGD, much too fast": partial(optim.SGD, lr=10.0),
    "RMSprop": partial(optim.RMSprop, capturable=True),
    "Adagrad": optim.Adagrad,
    "NAdam": partial(optim.NAdam, capturable=True),
    "Adamax": partial(optim.Adamax, capturable=True),
}
HALF = torch.float16
CASES: dict[str, Callable[[], Case]] = {
    **{f"{name}, fp32": partial(inference, getattr(models, name), 2, 3, 224, 224) for name in TORCHVISION.split()},
    "resnet18, fp16, channels last": partial(inference, models.resnet18, 2, 3, 224, 224, dtype=HALF, last=True),
    "swin_v2_t, fp32": partial(inference, models.swin_v2_t, 1, 3, 224, 224),
    "deeplabv3, fp16, channels last": partial(
        inference, partial(models.segmentation.deeplabv3_mobilenet_v3_large, weights_backbone=None), 1, 3, 128, 128, dtype=HALF, last=True
    ),
    "r3d_18": partial(inference, models.video.r3d_18, 1, 3, 8, 64, 64),
    **{f"perceptron, {name}": partial(training, perceptron, 32, 256, optimiser=one) for name, one in OPTIMISERS.items()},
    "resnet18, trained": partial(training, partial(models.resnet18, num_classes=CLASSES), 4, 3, 64, 64),
    "resnet18, trained, autocast": partial(
        training,
        partial(models.resnet18, num_classes=CLASSES),
        *(4, 3, 64, 64),
        autocast=torch.bfloat16,
        optimiser=OPTIMISERS["AdamW, fused"],
    ),
    "mobilenet_v3_small, trained, autocast": partial(
        training, partial(models.mobilenet_v3_small, num_classes=CLASSES), 4, 3, 64, 64, autocast=HALF
    ),
    "vision transformer, trained": partial(
        training, partial(models.VisionTransformer, 32, 8, 2, 4, 64, 128, num_classes=CLASSES), 4, 3, 32, 32
    ),
    "convolutions of volumes, trained": partial(training, volumes, 2, 3, 8, 16, 16),
    "transposed convolutions and norms, trained": partial(training, upwards, 2, 3, 16, 16),
    "dropout, trained": partial(
        training, lambda: nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.3), nn.ReLU(), nn.Linear(64, CLASSES)), 8, 64
    ),
    **{f"{kind}, trained": partial(training, partial(Recurrent, kind), 4, 12, 32) for kind in ("LSTM", "GRU", "RNN")},
    **{f"{kind}, fp16": partial(inference, partial(Recurrent, kind), 4, 12, 32, dtype=HALF) for kind in ("LSTM", "GRU", "RNN")},
    "encoder": partial(inference, encoder, 2, 16, 64),
    "encoder, fp16": partial(inference, encoder, 2, 16, 64, dtype=HALF),
    "encoder, trained": partial(training, encoder_with_top, 2, 16, 64),
    "encoder, trained, autocast": partial(training, encoder_with_top, 2, 16, 64, autocast=torch.bfloat16),
    **{
        f"attention by {name}": partial(attention, getattr(SDPBackend, name))
        for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
    },
    "cache of keys and values": cached,
    "activations computed again": recomputed,
    "clipped gradients": clipped,
    "rows of a table": sparse_rows,
    "moving average of weights": averaged,
    "gradients of each sample": per_sample,
    "torch.compile, trained": compiled_training,
    "top k, sort, gather": partial(floats, lambda x: (torch.topk(x, 5, 1), torch.sort(x, 1)[0], x.gather(1, x.argsort(1))), (64, 128)),
    "Fourier transforms": partial(floats, lambda x: (torch.fft.rfft(x), torch.fft.fft2(x.view(8, 32, 32))), (8, 1024)),
    "Cholesky and inverse": partial(floats, decomposed, (4, 64, 64)),
    "einsum": partial(floats, lambda a, b: (torch.einsum("bij,bjk->bik", a, b), torch.einsum("bij->j", a)), *[(8, 64, 64)] * 2),
    "unfold, cumsum, logsumexp": partial(floats, lambda x: (functional.unfold(x, 3), x.cumsum(-1), x.logsumexp(-1)), (2, 3, 32, 32)),
    "grid_sample, interpolate": partial(
        floats,
        lambda x, g: (functional.grid_sample(x, g.tanh(), align_corners=False), functional.interpolate(x, scale_factor=2, mode="bicubic")),
        *((2, 3, 32, 32), (2, 16, 16, 2)),
    ),
    "products of float8": partial(floats, in_eights, *[(64, 64)] * 2),
    "complex numbers": partial(floats, lambda x: (x * torch.polar(torch.ones_like(x), x)).abs(), (256, 256)),
    "random numbers": partial(floats, lambda x: (x + torch.randn_like(x), functional.gumbel_softmax(x)), (64, 64)),
    "sequences of other lengths": lengths,
    "a scheduler in the step": scheduled,
    "gradient of a gradient, hooks, tied weights": penalised,
    "encoder and decoder, trained": partial(training, translator, 4, 8, 32),
    "random numbers under vmap": partial(floats, torch.func.vmap(lambda x: functional.dropout(x, 0.5), randomness="different"), (8, 64)),
    "weight and spectral norm": partial(
        inference,
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(64, 64)), nn.utils.parametrizations.spectral_norm(nn.Linear(64, 64))
        ),
        *(8, 64),
    ),
    **CUPY,
}


def tried(make: Callable[[], Case]) -> dict[str, Any]:
    """Return what becomes of a case."""
    torch.manual_seed(0)
    cupy.random.seed(0)
    start = time.perf_counter()
    function, inputs = make()
    try:
        fast = ss.parallelise(function, *inputs, check=INPUTS, progress=False)
    except ss.StreamscopeError as error:
        return {"refused": str(error)}
    certificate = fast.captured.certificate()
    proof = fast.gain.proof
    return {
        "nodes": len(fast.captured.nodes),
        "longest_path": certificate.longest_path,
        "not_understood": len(certificate.unknown),
        "speedup": None if fast.gain.speedup is None else fast.gain.speedup.median,
        "proven": None if proof is None else proof.holds,
        "verdict": fast.verdict,
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", nargs="?", type=Path, default=Path(__file__).parent / "results" / "common_code.json")
    parser.add_argument("--part", default="0/1", help="which of how many parts, as 0/4")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {}
    for name in list(CASES)[part::parts]:
        try:
            results[name] = tried(CASES[name])
        except Exception as error:  # noqa: BLE001 — what fails is a result, too
            traceback.print_exc()
            results[name] = {"failed": f"{type(error).__name__}: {error}"}
        print(name, json.dumps(results[name])[:300], flush=True)
        content = {
            "what": "code as many people write it, parallelised; speed-ups against the captured order, of processes side by side",
            "inputs": INPUTS,
            "results": results,
            **provenance(ss.open_device("cuda"), torch=torch.__version__, torchvision=metadata.version("torchvision")),
        }
        with written_whole(options.result) as temporary:
            temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
