"""ResNet-50 v2, a transformer and an LSTM, ours against timm's and PyTorch's: results from the same weights, and times.

python benchmarks/networks_against_pytorch.py [--check] [--times [--kernels]] [--only lstm] [--batch 1,32] [--of training] [--out FILE.json]

``--check`` compares outputs, gradients and the weights after ten training steps. The reference is PyTorch in float64: ours must not be
farther from it than twice as far as PyTorch is in the same dtype. It runs without a GPU, too: small, in float64 and float32, on the
simulated device. ``--times`` lets our engines, each with and without fusion, take turns with PyTorch's ways to run the network, in
float16: forward passes and training steps. By default both are done. Earlier measurements stay in the result. ``--ways compile`` measures
ways with that in their names alone: in a first run, it fills the compiler's cache. ``--kernels`` adds the graphs' time by
PyTorch's profiler: kernels by kind, and the gaps between them. CUPTI leaves launches of graphs slower, so this comes after all times.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from provenance import provenance
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

import streamscope as ss
from streamscope.analysis.intervals import union
from streamscope.arrays import Array
from streamscope.files import written_whole
from streamscope.tracing import ProgramFunction
from streamscope.workloads.recurrent import lstm, train_lstm
from streamscope.workloads.resnet import IMAGE_CHANNELS, from_timm, is_trained, resnet50_v2, train_resnet50_v2
from streamscope.workloads.training import LOSS_SCALE, AdamW, Sgd
from streamscope.workloads.transformer import Transformer, train_transformer

HAS_GPU = torch.cuda.is_available()
WHERE = "cuda" if HAS_GPU else "cpu"
ENGINES = ("async", "dual", "graph", "graph-dual")
TIMED = "float16" if HAS_GPU else "float32"  # which PyTorch's half on a CPU is too slow to try
STEPS, REPEATS, WARMUP, PROFILED = 10, 100, 5, 9
SLACK, ROUNDING = 2.0, {"float64": 1e-7, "float32": 1e-5, "float16": 2e-3}
"""Ours may be SLACK times as far from float64 as PyTorch, and a rounding of the dtype."""
SGD, ADAMW = Sgd(), AdamW()
KINDS = {
    "attention in one": r"flash|fmha|sdpa",  # First: their templates name cutlass, too.
    "products": r"gemm|gemv|nvjet|cutlass|xmma|splitK",
    "softmax": r"softmax",
    "norms": r"layer_?norm|batch_?norm",
    "copies and sets": r"copy|memcpy|memset|transform_0213|CatArray",
    "rows of tables": r"take_|gather_kernel|indexSelect|embedding_",
}
"""Kinds of kernels by their names, ours and PyTorch's; all others are element-wise."""

Tensor = Any
Maker = Callable[[], Callable[[], Any]]
"""Makes ready a way to run a network, and returns what runs it once."""
Weights = dict[str, Array]


@dataclass(frozen=True)
class Network:
    """A network of PyTorch's, and ours of the same weights."""

    model: torch.nn.Module
    """In float32."""
    inputs: tuple[Tensor, ...]
    """Floating ones in float32."""
    loss: Callable[[Tensor], Tensor]
    """Of the model's result."""
    weights: Callable[[Mapping[str, Tensor]], Weights]
    """Ours for a state of the model."""
    trained: Callable[[str], bool]
    forward: Callable[[str], tuple[Callable[..., Any], list[Array]]]
    """For a dtype, a function of its inputs and of weights by name, and these inputs."""
    step: Callable[[str], tuple[Callable[..., Any], list[Array]]]
    """Likewise, of weights and of an optimizer's state, each by name, and of the number of steps."""
    states: int
    """Variables of the optimizer for a weight: 1 of SGD, 2 of AdamW."""
    stays: Callable[[str], bool] = lambda name: False
    """Whether weights stay float32 in half: those of batch normalizations."""

    def optimizer(self, model: torch.nn.Module, **options: Any) -> torch.optim.Optimizer:
        """Return PyTorch's, set as ours."""
        if self.states == 1:
            return torch.optim.SGD(model.parameters(), SGD.rate, momentum=SGD.momentum, weight_decay=SGD.decay)
        given = {"lr": ADAMW.rate, "betas": (ADAMW.first, ADAMW.second), "eps": ADAMW.eps, "weight_decay": ADAMW.decay}
        return torch.optim.AdamW(model.parameters(), **given, **options)


def array_of(tensor: Tensor, dtype: str) -> Array:
    """Return a tensor in NumPy; whole numbers as int32."""
    found: Array = tensor.detach().cpu().numpy()
    return found.astype(dtype if found.dtype.kind == "f" else np.int32)


def plain(state: Mapping[str, Tensor]) -> Weights:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state.items()}


def resnet(batch: int, size: int, **sizes: Any) -> Network:
    """Return timm's resnetv2_50."""
    model = timm.create_model("resnetv2_50", **sizes).to(WHERE, memory_format=torch.channels_last)
    images = torch.randn(batch, 3, size, size, device=WHERE).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device=WHERE)
    numbers = [array_of(labels, ""), np.arange(1000, dtype=np.int32)]

    def ours(dtype: str) -> Array:
        channels_last = array_of(images, dtype).transpose(0, 2, 3, 1)
        return np.pad(channels_last, ((0, 0), (0, 0), (0, 0), (0, IMAGE_CHANNELS - 3)))

    def step(x: Any, labels: Any, classes: Any, weights: Any, velocities: Any, count: Any) -> Any:
        return train_resnet50_v2(x, labels, classes, weights, velocities[0], SGD)

    loss = partial(torch.nn.functional.cross_entropy, target=labels)
    return Network(
        model,
        (images,),
        lambda scores: loss(scores.to(torch.promote_types(scores.dtype, torch.float32))),
        from_timm,
        is_trained,
        lambda dtype: (resnet50_v2, [ours(dtype)]),
        lambda dtype: (step, [ours(dtype), *numbers]),
        1,
        stays=lambda name: "norm" in name,
    )


class Translator(torch.nn.Module):
    """An encoder and a decoder with their embeddings."""

    def __init__(self, width: int, heads: int, layers: int, length: int, words: int) -> None:
        super().__init__()
        self.source, self.target = torch.nn.Embedding(words, width), torch.nn.Embedding(words, width)
        self.positions, self.head = torch.nn.Embedding(length, width), torch.nn.Linear(width, words)
        self.transformer = torch.nn.Transformer(width, heads, layers, layers, 4 * width, dropout=0.0, batch_first=True)

    def forward(self, source: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        x, y = self.source(source) + self.positions.weight, self.target(target) + self.positions.weight
        return self.head(self.transformer(x, y, tgt_mask=mask.to(x.dtype), tgt_is_causal=True))


def transformer(batch: int, layers: int, width: int, heads: int, length: int, words: int) -> Network:
    """Return PyTorch's transformer between embeddings and a linear layer."""
    model = Translator(width, heads, layers, length, words).to(WHERE)
    source, target, labels = (torch.randint(0, words, (batch, length), device=WHERE) for _ in range(3))
    mask = torch.nn.Transformer.generate_square_subsequent_mask(length, device=WHERE)
    numbers = np.arange(max(words, length), dtype=np.int32)
    tokens = [array_of(each, "") for each in (source, target, labels)]

    def loss(scores: Tensor) -> Tensor:
        wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
        return torch.nn.functional.cross_entropy(wide.reshape(-1, words), labels.reshape(-1))

    def forward(dtype: str, source: Any, target: Any, positions: Any, weights: Any) -> Any:
        return Transformer(weights, heads, dtype=dtype)(source, target, positions)

    def step(dtype: str, source: Any, target: Any, labels: Any, numbers: Any, weights: Any, states: Any, count: Any) -> Any:
        network, moments = Transformer(weights, heads, dtype=dtype), {name: (states[0][name], states[1][name]) for name in weights}
        return train_transformer(network, source, target, labels, numbers, moments, count, ADAMW)

    return Network(
        model,
        (source, target, mask),
        loss,
        plain,
        lambda name: True,
        lambda dtype: (partial(forward, dtype), [*tokens[:2], numbers]),
        lambda dtype: (partial(step, dtype), [*tokens, numbers]),
        2,
    )


class Forecaster(torch.nn.Module):
    """An LSTM, and a linear layer on its last result."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.lstm, self.linear = torch.nn.LSTM(width, width, num_layers=layers), torch.nn.Linear(width, width)

    def forward(self, xs: Tensor) -> Tensor:
        return self.linear(self.lstm(xs)[0][-1])


def recurrent(batch: int, steps: int, width: int, layers: int) -> Network:
    """Return PyTorch's LSTM, which is cuDNN's on a GPU."""
    model = Forecaster(width, layers).to(WHERE)
    xs, target = torch.randn(steps, batch, width, device=WHERE), torch.randn(batch, width, device=WHERE)
    state = np.zeros((layers, batch, width))

    def given(dtype: str) -> list[Array]:
        return [array_of(xs, dtype), state.astype(dtype), state.astype(dtype)]

    def forward(xs: Any, h: Any, c: Any, weights: Any) -> Any:
        outputs, *_ = lstm(xs, h, c, {name.removeprefix("lstm."): w for name, w in weights.items()})
        return outputs[-1] @ weights["linear.weight"].T + weights["linear.bias"]

    def step(xs: Any, h: Any, c: Any, target: Any, weights: Any, states: Any, count: Any) -> Any:
        moments = {name: (states[0][name], states[1][name]) for name in weights}
        return train_lstm(xs, h, c, target, weights, moments, count, ADAMW)

    return Network(
        model,
        (xs,),
        lambda found: ((found.to(torch.promote_types(found.dtype, torch.float32)) - target.to(found.device)) ** 2).mean(),
        plain,
        lambda name: True,
        lambda dtype: (forward, given(dtype)),
        lambda dtype: (step, [*given(dtype), array_of(target, wide(dtype))]),
        2,
    )


def wide(dtype: str) -> str:
    """Return the dtype of weights that are trained in a dtype."""
    return "float32" if dtype == "float16" else dtype


# PyTorch


def converted(network: Network, dtype: str) -> tuple[torch.nn.Module, tuple[Tensor, ...]]:
    """Return a copy of the model, and the inputs, in a dtype."""
    model, to = copy.deepcopy(network.model).to(getattr(torch, dtype)), getattr(torch, dtype)
    for module in model.modules():
        if dtype == "float16" and isinstance(module, torch.nn.BatchNorm2d):
            module.float()
    return model, tuple(each.to(to) if each.is_floating_point() else each for each in network.inputs)


def torch_step(network: Network, dtype: str, model: Any, inputs: Sequence[Tensor], optimizer: Any) -> Callable[[], Tensor]:
    """Return a training step; in half under autocast, with the gradients of a scaled loss."""
    parameters, half = list(model.parameters()), dtype == "float16"

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(WHERE, torch.float16, enabled=half):
            found = model(*inputs)
        loss = network.loss(found)
        (loss * LOSS_SCALE if half else loss).backward()
        if half:
            torch._foreach_mul_([each.grad for each in parameters], 1 / LOSS_SCALE)
        optimizer.step()
        return loss

    return step


@dataclass(frozen=True)
class Found:
    """Results of one implementation: the network's output, gradients by weight, losses of the steps, weights after them."""

    output: Array
    gradients: Weights
    losses: list[float]
    after: Weights


def by_torch(network: Network, dtype: str) -> Found:
    model, inputs = converted(network, dtype)
    with torch.no_grad():
        output = model.eval()(*inputs).double().cpu().numpy()
    model, inputs = converted(network, wide(dtype))
    step = torch_step(network, dtype, model.train(), inputs, network.optimizer(model))
    losses = [step().item()]
    gradients = network.weights({name: each.grad for name, each in model.named_parameters()})
    losses += [step().item() for _ in range(STEPS - 1)]
    return Found(output, gradients, losses, network.weights(model.state_dict()))


# Ours


def forward_of(network: Network, dtype: str) -> tuple[Callable[..., Any], list[Array]]:
    """Return the function of our network, and its inputs."""
    function, inputs = network.forward(dtype)
    weights = network.weights(network.model.state_dict())

    def forward(*arrays: Any) -> Any:
        return function(*arrays[: len(inputs)], dict(zip(weights, arrays[len(inputs) :], strict=True)))

    own = [w.astype(wide(dtype) if network.stays(name) else dtype) for name, w in weights.items()]
    return forward, [*inputs, *own]


def step_of(network: Network, dtype: str) -> tuple[Callable[..., Any], list[Array]]:
    """Return the function of our training step, and its inputs. It returns the loss, the weights, and the optimizer's variables."""
    function, inputs = network.step(dtype)
    weights = {name: w.astype(wide(dtype)) for name, w in network.weights(network.model.state_dict()).items()}
    trained = [name for name in weights if network.trained(name)]

    def step(*arrays: Any) -> Any:
        given, count, rest = arrays[: len(inputs)], arrays[len(inputs)], list(arrays[len(inputs) + 1 :])
        own = {name: rest.pop(0) for name in weights}
        states = [{name: rest.pop(0) for name in trained} for _ in range(network.states)]
        loss = function(*given, own, states, count)
        return loss, *own.values(), *states[0].values()

    zeros = [np.zeros_like(weights[name]) for _ in range(network.states) for name in trained]
    return step, [*inputs, np.zeros(1, wide(dtype)), *weights.values(), *zeros]


def by_us(network: Network, dtype: str, engine: str = "graph-dual") -> Found:
    """Run our network, under the engine that a missing wait would show in first."""
    device = "cuda" if HAS_GPU else "simulated"
    function, inputs = forward_of(network, dtype)
    prepared = ss.prepare(function, *inputs, engine=engine, device=device, progress=False)
    prepared.run()
    (output,) = prepared.outputs()
    function, inputs = step_of(network, dtype)
    prepared = ss.prepare(function, *inputs, engine=engine, device=device, progress=False)
    before = network.weights(network.model.state_dict())
    trained, losses, gradients = [name for name in before if network.trained(name)], [], dict[str, Array]()
    for number in range(STEPS):
        prepared.run()
        loss, *arrays = prepared.outputs()
        losses.append(float(loss))
        if number == 0:
            moments = zip(trained, arrays[len(before) :], strict=True)
            gradients = {name: m - SGD.decay * before[name] if network.states == 1 else m / (1 - ADAMW.first) for name, m in moments}
    return Found(output, gradients, losses, dict(zip(before, arrays, strict=False)))


# Results


COMPARED: dict[str, Callable[[Found], Weights]] = {
    "output": lambda found: {"": found.output},
    "gradients": lambda found: found.gradients,
    "losses": lambda found: {"": np.array(found.losses)},
    "way of ten steps": lambda found: found.after,
}


def distance(found: Weights, right: Weights, start: Weights | None = None) -> float:
    """Return the norm of the difference as a share of what is right, or of its way from the start."""
    names = [name for name in right if name in found]
    one, other = (np.concatenate([np.ravel(each[name]).astype(np.float64) for name in names]) for each in (found, right))
    begin = 0 if start is None else np.concatenate([np.ravel(start[name]).astype(np.float64) for name in names])
    return float(np.linalg.norm(one - other) / np.linalg.norm(other - begin))


def checked(network: Network, dtypes: Sequence[str]) -> dict[str, Any]:
    """Compare both implementations with PyTorch in float64."""
    exact, start = by_torch(network, "float64"), network.weights(network.model.state_dict())
    result: dict[str, Any] = {}
    for dtype in dtypes:
        peers = {"ours": by_us(network, dtype), "PyTorch": by_torch(network, dtype)}
        starts = {"way of ten steps": start}
        parts = {
            part: {name: distance(of(each), of(exact), starts.get(part)) for name, each in peers.items()} for part, of in COMPARED.items()
        }
        for part, found in parts.items():
            found["within"] = found["ours"] <= SLACK * found["PyTorch"] + ROUNDING[dtype]
            print(
                f"  {dtype} {part}: ours {found['ours']:.2e}, PyTorch {found['PyTorch']:.2e}{'' if found['within'] else '  <-- too far'}",
                flush=True,
            )
        result[dtype] = parts | {"losses by step": {name: each.losses for name, each in [("float64", exact), *peers.items()]}}
    return result


def in_turns_us(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, dict[str, float]]:
    """Return median, and lower and upper quartile, of each call's time until the device is done, in µs; they take turns in random order."""
    random, times = np.random.default_rng(0), {name: list[float]() for name in calls}
    for turn in range(repeats + WARMUP):
        for name in map(str, random.permutation(list(calls))):
            start = time.perf_counter_ns()
            calls[name]()
            if HAS_GPU:
                torch.cuda.synchronize()
            if turn >= WARMUP:
                times[name].append((time.perf_counter_ns() - start) / 1e3)
    found = {}
    for name, each in times.items():
        low, median, high = statistics.quantiles(each, n=4)
        found[name] = {"median_us": median, "low_us": low, "high_us": high}
    return found


def kind_of(kernel: str) -> str:
    return next((kind for kind, names in KINDS.items() if re.search(names, kernel, re.IGNORECASE)), "element-wise")


def kernels_by_kind(call: Callable[[], Any]) -> dict[str, Any]:
    """Return the kernels of a graph by kind, in the replay of the median makespan; the first is left out, since it takes longer."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(1 + PROFILED):
            call()
            torch.cuda.synchronize()
    events = [event for event in profiler.profiler.kineto_results.events() if event.device_type().name == "CUDA"]
    spans = sorted((event.start_ns(), event.start_ns() + event.duration_ns(), event.name()) for event in events)
    each, rest = divmod(len(spans), 1 + PROFILED)
    assert rest == 0, "the replays differ"
    replays = [spans[each * run : each * (run + 1)] for run in range(1, 1 + PROFILED)]
    replay = sorted(replays, key=makespan_ns)[PROFILED // 2]
    kinds: dict[str, dict[str, Any]] = {}
    for start, end, name in replay:
        kind = kinds.setdefault(kind_of(name), {"kernels": 0, "us": 0.0, "by_name": {}})
        kind["kernels"] += 1
        kind["us"] += (end - start) / 1e3
        own = kind["by_name"].setdefault(name[:100], [0, 0.0])
        own[:] = own[0] + 1, round(own[1] + (end - start) / 1e3, 3)
    start_ns, end_ns = (np.array([span[side] for span in replay], np.int64) for side in (0, 1))
    return {"makespan_us": makespan_ns(replay) / 1e3, "busy_us": union(start_ns, end_ns).length_ns / 1e3, "kinds": kinds}


def makespan_ns(spans: Sequence[tuple[int, int, str]]) -> int:
    return max(end for _, end, _ in spans) - spans[0][0]


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return what replays a call, as PyTorch's documentation captures it."""
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        kept = call()

    def replay(kept: Any = (kept, call)) -> None:  # The model and its inputs, too: the graph holds their addresses alone.
        graph.replay()

    return replay


def torch_calls(network: Network, *, training: bool) -> Iterator[tuple[str, Maker]]:
    """Yield PyTorch's ways to run the network."""

    def call(*, compiled: bool = False, capturable: bool = False) -> Callable[[], Any]:
        model, inputs = converted(network, "float32" if training else TIMED)
        run = torch.compile(model, mode="reduce-overhead") if compiled else model
        if training:
            model.train()
            options = {"capturable": True} if capturable and network.states == 2 else {}
            return torch_step(network, TIMED, run, inputs, network.optimizer(model, **options))
        model.eval()

        def forward() -> Any:
            with torch.no_grad():
                return run(*inputs)

        return forward

    def compiled() -> Callable[[], Any]:
        made = call(compiled=True)
        for _ in range(3):
            made()
        return made

    def attending(backend: SDPBackend) -> Callable[[], Any]:
        with sdpa_kernel(backend):
            return captured(call(capturable=True))

    yield "PyTorch eager", call
    if HAS_GPU:
        yield "torch.cuda.CUDAGraph", lambda: captured(call(capturable=True))
        yield "torch.compile reduce-overhead", compiled
        if not training and any(isinstance(module, torch.nn.MultiheadAttention) for module in network.model.modules()):
            yield "torch.cuda.CUDAGraph, efficient attention", partial(attending, SDPBackend.EFFICIENT_ATTENTION)
            yield "torch.cuda.CUDAGraph, attention in parts", partial(attending, SDPBackend.MATH)


def our_calls(network: Network, *, training: bool) -> Iterator[tuple[str, Maker]]:
    function, inputs = (step_of if training else forward_of)(network, TIMED)

    def made(engine: str, *, fuse: bool) -> Callable[[], Any]:
        program, device = ProgramFunction(function, fuse=fuse), "cuda" if HAS_GPU else "simulated"
        prepared = ss.prepare(program, *inputs, engine=engine, device=device, progress=False)

        def call() -> None:
            prepared.run()
            prepared.wait()

        return call

    for fuse in (False, True):
        for engine in ENGINES:
            yield f"{engine}{', fused' if fuse else ''}", partial(made, engine, fuse=fuse)


def timed(network: Network, repeats: int, ways: str, *, training: bool, kernels: bool) -> dict[str, Any]:
    """Measure the ways to run a network that have a word in their names, in turns; a way that fails is an error with its text.

    With ``kernels``, also the time of the graphs by kind of kernel.
    """
    calls, errors = dict[str, Callable[[], Any]](), dict[str, str]()
    for name, make in (*our_calls(network, training=training), *torch_calls(network, training=training)):
        if ways not in name:
            continue
        try:
            call = make()
            call()
            calls[name] = call
        except Exception as error:  # noqa: BLE001 — the others are measured
            errors[name] = f"{type(error).__name__}: {error}"
            print(f"  {name}: {errors[name]}", flush=True)
    times = in_turns_us(calls, repeats)
    for name, each in sorted(times.items(), key=lambda item: item[1]["median_us"]):
        print(f"  {name:40} {each['median_us']:10.1f} µs", flush=True)
    found: dict[str, Any] = {"times": times, "errors": errors}
    if kernels:
        found["kernels"] = {name: kernels_by_kind(call) for name, call in calls.items() if "graph" in name.lower()}
        for name, one in found["kernels"].items():
            parts = ", ".join(f"{part['kernels']} {kind} {part['us']:.1f}" for kind, part in one["kinds"].items())
            print(f"  {name}: {one['makespan_us']:.1f} µs, {one['busy_us']:.1f} busy: {parts}", flush=True)
    return found


SMALL: dict[str, Callable[[int], Network]] = {
    "resnet50-v2": lambda batch: resnet(batch, 64),
    "transformer": lambda batch: transformer(batch, 2, 16, 2, 6, 20),
    "lstm": lambda batch: recurrent(batch, 5, 8, 2),
}
LARGE: dict[str, Callable[[int], Network]] = {
    "resnet50-v2": lambda batch: resnet(batch, 224),
    "transformer": lambda batch: transformer(batch, 6, 512, 8, 64, 1000),
    "lstm": lambda batch: recurrent(batch, 50, 512, 2),
}


def main() -> None:
    """Check and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--of", default="forward,training", help="of --times: forward passes, training steps, or both")
    parser.add_argument("--ways", default="", help="of --times: only ways with this in their names")
    parser.add_argument("--kernels", action="store_true", help="of --times: kernels of the graphs by kind")
    parser.add_argument("--only", default=",".join(LARGE))
    parser.add_argument("--batch", default="1,32", help="of --times; --check has 8, or 2 without a GPU")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--small", action="store_true", help="small networks; without a GPU by default")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "networks_against_pytorch.json")
    chosen = parser.parse_args()
    networks, both = (SMALL if chosen.small or not HAS_GPU else LARGE), chosen.check == chosen.times
    result = json.loads(chosen.out.read_text(encoding="utf-8")) if chosen.out.exists() else {}
    versions = {name: metadata.version(name) for name in ("torch", "timm")}
    made = provenance(ss.open_device("cuda" if HAS_GPU else "simulated"), **versions)

    def keep(part: str, name: str, found: dict[str, Any]) -> None:
        result.setdefault(part, {})[name] = found | {"made": made}
        with written_whole(chosen.out) as path:
            path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

    for name in chosen.only.split(","):
        if chosen.check or both:
            print(f"{name}, against PyTorch in float64:", flush=True)
            torch.manual_seed(0)
            dtypes = ["float32", "float16"] if HAS_GPU else ["float64", "float32"]
            keep("accuracy", name, checked(networks[name](8 if HAS_GPU else 2), dtypes))
        for batch in map(int, chosen.batch.split(",")) if chosen.times or both else ():
            for training in (each == "training" for each in chosen.of.split(",")):
                said = f"{name}, batch {batch}{', training step' if training else ''}"
                print(f"{said}, {TIMED}, in turns:", flush=True)
                torch.manual_seed(0)
                keep("times", said, timed(networks[name](batch), chosen.repeats, chosen.ways, training=training, kernels=chosen.kernels))
                if HAS_GPU:
                    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
