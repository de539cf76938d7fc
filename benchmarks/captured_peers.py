"""Code that was never written for us, captured, under every engine, beside its own ways to run.

ResNet-50 and a CuPy function are chains; an LSTM of cuDNN and four branches fork streams themselves; a training step has state.

python benchmarks/captured_peers.py [RESULT.json]
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any

import cupy
import torch
import torchvision
from provenance import keep, provenance

import streamscope as ss

REPEATS = 100


def median_us(call: Callable[[], Any], repeats: int = REPEATS) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter_ns() - start) / 1e3)
    return statistics.median(times)


def fifty_calls(x: Any) -> tuple[Any, Any]:
    total = cupy.zeros_like(x)
    for _ in range(12):
        y = cupy.tanh(x) * 0.5
        total += y * y
        x = x + total.mean()
    return x, total


def resnet50() -> tuple[Callable[[Any], Any], Any]:
    model = torchvision.models.resnet50(weights=None).cuda().half().eval().to(memory_format=torch.channels_last)
    image = torch.randn(1, 3, 224, 224, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)

    def resnet50_fp16(x: Any) -> Any:
        with torch.no_grad():
            return model(x)

    return resnet50_fp16, image


def lstm() -> tuple[Callable[[Any], Any], Any]:
    model = torch.nn.LSTM(512, 512, num_layers=2).cuda().half().eval()

    def two_layer_lstm(x: Any) -> Any:
        with torch.no_grad():
            return model(x)[0]

    return two_layer_lstm, torch.randn(50, 8, 512, device="cuda", dtype=torch.float16)


def branches() -> tuple[Callable[[Any], Any], Any]:
    sides = [torch.cuda.Stream() for _ in range(4)]

    def four_branches(x: Any) -> Any:
        main, results = torch.cuda.current_stream(), []
        for side in sides:
            side.wait_stream(main)
            with torch.cuda.stream(side):
                y = x
                for _ in range(10):
                    y = torch.tanh(y)
                results.append(y)
        for side in sides:
            main.wait_stream(side)
        return torch.stack(results).sum(0)

    return four_branches, torch.randn(65_536, device="cuda")


def training_step() -> tuple[Callable[[Any], Any], Any]:
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Dropout(0.2), torch.nn.GELU(), torch.nn.Linear(512, 16)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    target = torch.randn(64, 16, device="cuda")

    def adam_step(x: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return adam_step, torch.randn(64, 256, device="cuda")


def torch_graph_us(function: Callable[[Any], Any], argument: Any) -> float:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            function(argument)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function(argument)
    for _ in range(5):
        graph.replay()
    torch.cuda.synchronize()
    return median_us(graph.replay)


def measure(function: Callable[..., Any], argument: Any) -> dict[str, Any]:
    captured = ss.capture(function, argument)
    comparison = ss.compare(captured, repeats=REPEATS, progress=False)
    print(comparison, flush=True)
    return {
        "nodes": len(captured.nodes),
        "plain_call_us": captured.plain_call_us(),
        "engines_us": {engine: run.metrics.makespan_us for engine, run in comparison.items()},
        "max_abs_error": {engine: run.max_abs_error for engine, run in comparison.items()},
        "kernels_recorded": {engine: run.metrics.kernel_count for engine, run in comparison.items()},
        "verdict": comparison.verdict,
    }


def main() -> None:
    results = {"cupy: 50 calls": measure(fifty_calls, cupy.linspace(-1, 1, 10_000, dtype=cupy.float32))}
    cases = {
        "torchvision ResNet-50, fp16, batch 1": resnet50,
        "PyTorch: LSTM of two layers, 50 steps, batch 8, fp16": lstm,
        "PyTorch: four branches of ten kernels on streams of their own": branches,
        "PyTorch: a training step with dropout and Adam": training_step,
    }
    for name, make in cases.items():
        function, argument = make()
        results[name] = measure(function, argument) | {"torch_cuda_graph_us": torch_graph_us(function, argument)}
    device = ss.open_device("cuda")
    content = {
        "what": "captured code under every engine, beside a plain call and torch.cuda.CUDAGraph; median of repeats, in us",
        "repeats": REPEATS,
        "results": results,
        **provenance(device, torch=torch.__version__, torchvision=metadata.version("torchvision")),
    }
    keep("captured_peers.json", content)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
