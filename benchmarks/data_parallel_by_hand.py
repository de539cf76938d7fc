"""A data-parallel step under ``graph-dual``, and written by hand in PyTorch: a graph with the all-reduces on a stream of their own.

    python benchmarks/data_parallel_by_hand.py GPUS FILE

PyTorch runs one process a GPU, as NCCL recommends; ours is one process. All start at once, since that takes longer than the rest. Then
the two sides take turns, each of many replays in a row, timed by the host.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

LAYERS, WIDTH, ROWS, RATE = 8, 4096, 1024, 2.0**-10
TURNS, REPLAYS = 10, 200


def by_hand(rank: int, gpus: int) -> None:
    """Capture the step on one rank, and take turns."""
    import torch
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29600"}
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
    _take_turns(graph.replay, lambda: (torch.cuda.synchronize(), dist.barrier(), torch.cuda.synchronize()))
    os._exit(0)


def ours(gpus: int) -> None:
    """Take turns with `graph-dual`."""
    import streamscope as ss
    from streamscope.workloads import WORKLOADS

    function, inputs = WORKLOADS["data-parallel"].build(gpus=gpus, layers=LAYERS, width=WIDTH, rows=ROWS)
    prepared = ss.prepare(ss.program(function, fuse=True), *inputs, engine="graph-dual", device="cuda", gpus=gpus, progress=False)
    for _ in range(3):
        prepared.run()
    _take_turns(prepared.run, prepared.wait)


def _take_turns(replay: Callable[[], object], wait: Callable[[], object]) -> None:
    """Say that this process is ready; then print how long a replay takes, in µs, for each line that comes in."""
    wait()
    print("ready", flush=True)
    for _ in sys.stdin:
        wait()
        begin = time.perf_counter_ns()
        for _ in range(REPLAYS):
            replay()
        wait()
        print((time.perf_counter_ns() - begin) / REPLAYS / 1e3, flush=True)


def _started(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def _turn(side: list[subprocess.Popen[str]]) -> float:
    """Let all processes of one side run, and return the time of the slowest."""
    pipes: list[Any] = [process.stdin for process in side]
    for pipe in pipes:
        pipe.write("\n")
    return max(float(_line(process)) for process in side)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    if not (line := process.stdout.readline()):
        raise SystemExit("a process ended")
    return line


def main(gpus: int, file: Path) -> None:
    begin = time.monotonic()
    sides = [[_started("--rank", gpus, rank) for rank in range(gpus)], [_started("--ours", gpus)]]
    processes = [*sides[0], *sides[1]]
    try:
        for process in processes:
            _line(process)
        print(f"ready after {time.monotonic() - begin:.0f} s", flush=True)
        hand, own = zip(*([_turn(side) for side in sides] for _ in range(TURNS)), strict=True)
    finally:
        for process in processes:
            process.kill()
    hand_us, own_us = statistics.median(hand), statistics.median(own)
    content = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "gpus": gpus, "layers": LAYERS, "width": WIDTH, "rows": ROWS,
        "by_hand_us": hand, "graph_dual_us": own,
        "by_hand_median_us": hand_us, "graph_dual_median_us": own_us, "ratio": hand_us / own_us,
    }  # fmt: skip
    file.write_text(json.dumps(content, indent=1), encoding="utf-8")
    print(gpus, f"by hand {hand_us:.0f} µs, graph-dual {own_us:.0f} µs, {hand_us / own_us:.3f} times as fast", flush=True)


if __name__ == "__main__":
    word, *values = sys.argv[1:]
    if word == "--rank":
        by_hand(int(values[1]), int(values[0]))
    elif word == "--ours":
        ours(int(values[0]))
    else:
        main(int(word), Path(values[0]))
