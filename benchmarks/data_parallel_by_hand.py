"""A data-parallel step under ``graph-dual``, and written by hand in PyTorch: a graph with the all-reduces on a stream of their own.

    python benchmarks/data_parallel_by_hand.py GPUS FILE

PyTorch runs one process a GPU, as NCCL recommends; ours is one process. Times are of many replays in a row, by the host, in turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

LAYERS, WIDTH, ROWS, RATE = 8, 4096, 1024, 2.0**-10
TURNS, REPLAYS = 5, 200


def by_hand(rank: int, gpus: int, port: int) -> None:
    """Capture the step on one rank and print how long a replay takes, in µs, for each turn."""
    import torch
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=gpus, device_id=torch.device("cuda", rank))
    torch.manual_seed(0)
    weights = [torch.randn(WIDTH, WIDTH, dtype=torch.float16, device="cuda") / WIDTH**0.5 for _ in range(LAYERS)]
    x = torch.randn(ROWS, WIDTH, dtype=torch.float16, device="cuda")
    communication = torch.cuda.Stream()

    def step() -> list[torch.Tensor]:
        main = torch.cuda.current_stream()
        hidden = [x]
        for weight in weights:
            hidden.append(torch.relu(hidden[-1] @ weight))
        flow, gradients = hidden[-1], []
        for layer in reversed(range(LAYERS)):
            flow = torch.ops.aten.threshold_backward(flow, hidden[layer + 1], 0)
            gradients.append(hidden[layer].T @ flow)
            communication.wait_stream(main)
            with torch.cuda.stream(communication):
                dist.all_reduce(gradients[-1], op=dist.ReduceOp.AVG)
            if layer:
                flow = flow @ weights[layer].T
        main.wait_stream(communication)
        return [torch.add(weight, gradient, alpha=-RATE) for weight, gradient in zip(weights, reversed(gradients), strict=True)]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    print(json.dumps(_turns(graph.replay, lambda: (torch.cuda.synchronize(), dist.barrier(), torch.cuda.synchronize()))), flush=True)
    os._exit(0)


def ours(gpus: int) -> None:
    """Print the same of `graph-dual`."""
    import streamscope as ss
    from streamscope.workloads import WORKLOADS

    function, inputs = WORKLOADS["data-parallel"].build(gpus=gpus, layers=LAYERS, width=WIDTH, rows=ROWS)
    prepared = ss.prepare(ss.program(function, fuse=True), *inputs, engine="graph-dual", device="cuda", gpus=gpus, progress=False)
    for _ in range(3):
        prepared.run()
    prepared.wait()
    print(json.dumps(_turns(prepared.run, prepared.wait)), flush=True)


def _turns(replay, wait) -> list[float]:  # type: ignore[no-untyped-def]
    found = []
    for _ in range(TURNS):
        wait()
        begin = time.perf_counter_ns()
        for _ in range(REPLAYS):
            replay()
        wait()
        found.append((time.perf_counter_ns() - begin) / REPLAYS / 1e3)
    return found


def _ran(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _result(process: subprocess.Popen[str]) -> list[float]:
    out, err = process.communicate(timeout=90)
    if process.returncode or not out.strip():
        raise SystemExit(err[-2000:])
    found: list[float] = json.loads(out.strip().splitlines()[-1])
    return found


def main() -> None:
    gpus, file = int(sys.argv[1]), Path(sys.argv[2])
    hand: list[float] = []
    own: list[float] = []
    for turn in range(2):
        ranks = [_ran("--rank", str(rank), str(gpus), str(29_600 + turn)) for rank in range(gpus)]
        hand += [max(each) for each in zip(*map(_result, ranks), strict=True)]
        own += _result(_ran("--ours", str(gpus)))
        hand_us, own_us = statistics.median(hand), statistics.median(own)
        content = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"), "gpus": gpus, "layers": LAYERS, "width": WIDTH, "rows": ROWS,
            "by_hand_us": hand, "graph_dual_us": own,
            "by_hand_median_us": hand_us, "graph_dual_median_us": own_us, "ratio": hand_us / own_us,
        }  # fmt: skip
        file.write_text(json.dumps(content, indent=1), encoding="utf-8")
        print(gpus, f"by hand {hand_us:.0f} µs, graph-dual {own_us:.0f} µs, {hand_us / own_us:.3f} times as fast", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        by_hand(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1] == "--ours":
        ours(int(sys.argv[2]))
    else:
        main()
