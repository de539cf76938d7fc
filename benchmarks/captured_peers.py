"""Code that was never written for us: ResNet-50 in PyTorch and a CuPy function, captured, under every engine, beside their own ways to run.

python benchmarks/captured_peers.py [RESULT.json]
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import cupy
import torch
import torchvision
from provenance import provenance

import streamscope as ss
from streamscope.files import written_whole

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


def torch_graph_us(function: Callable[[Any], Any], image: Any) -> float:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            function(image)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function(image)
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
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "results" / "captured_peers.json")
    results = {"cupy: 50 calls": measure(fifty_calls, cupy.linspace(-1, 1, 10_000, dtype=cupy.float32))}
    function, image = resnet50()
    results["torchvision ResNet-50, fp16, batch 1"] = measure(function, image) | {"torch_cuda_graph_us": torch_graph_us(function, image)}
    device = ss.open_device("cuda")
    content = {
        "what": "captured code under every engine, beside a plain call and torch.cuda.CUDAGraph; median of repeats, in us",
        "repeats": REPEATS,
        "results": results,
        **provenance(device, torch=torch.__version__, torchvision=metadata.version("torchvision")),
    }
    with written_whole(target) as path:
        path.write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
