"""Records an eager ResNet-50 step of PyTorch's by its profiler, and measures the replay of its CUDA graph, in one process: GPU, 20 s.

python benchmarks/record_resnet50.py RECORDED/resnet50    # then: python benchmarks/what_if_accuracy.py RESULT.json RECORDED
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCHES = (1, 8, 32)
REPEATS = 60


def median_us(torch: Any, step: Callable[[], object]) -> float:
    """Return the median time of a step, from an idle GPU until all is done, in µs."""
    times = []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e6)
    return sorted(times)[REPEATS // 2]


def graphed(torch: Any, step: Callable[[], object]) -> Any:
    """Return the CUDA graph of a step."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def main(folder: Path) -> None:
    """Measure first and profile last, since CUPTI leaves graph launches dearer behind."""
    import torch
    import torchvision
    from torch.profiler import ProfilerActivity, profile

    folder.mkdir(parents=True, exist_ok=True)
    model = torchvision.models.resnet50(weights=None).eval().cuda().half().to(memory_format=torch.channels_last)

    def step_of(batch: int) -> Callable[[], object]:
        x = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.float16).contiguous(memory_format=torch.channels_last)

        def step() -> object:
            with torch.inference_mode():
                return model(x)

        for _ in range(5):
            step()
        return step

    measured = {}
    for batch in BATCHES:
        step = step_of(batch)
        measured[str(batch)] = {"eager_us": median_us(torch, step), "graph_us": median_us(torch, graphed(torch, step).replay)}
        print(batch, measured[str(batch)], flush=True)
    for batch in BATCHES:
        step = step_of(batch)
        for _ in range(2):  # The first session pays for CUPTI's start.
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
                step()
                torch.cuda.synchronize()
        found.export_chrome_trace(str(folder / f"eager_{batch}.json.gz"))
    result = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "batches": measured}
    (folder / "measured.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
