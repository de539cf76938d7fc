"""What a call of `ss.parallelise`'s result takes besides the launch of its graph, beside the replay of PyTorch's graph.

python benchmarks/call_cost.py [RESULT.json] [--networks googlenet,resnet50]
python benchmarks/call_cost.py --compared     without a GPU: only how long it takes to compare numbers, printed

First a chain, in which nothing is to gain, and branches over one and four arrays of several sizes, and over one array beside numbers; then
networks of networks.py. With static results and the arrays of a user. The kernel that copies them is timed alone, too.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, repeat
from pathlib import Path
from typing import Any

import networks
import numpy as np
import torch
from networks import Network
from parallelise_networks import torch_graph
from provenance import provenance

import streamscope as ss
from streamscope.kernels.library.libraries import libraries
from streamscope.parallelising.calls import Calls
from streamscope.parallelising.device_arrays import is_array
from streamscope.parallelising.quick_call import COPYING_THREADS, Arranger, Copying
from streamscope.parallelising.trees import taken_apart
from streamscope.words import counted

TURNS = 200
SIZES = [(count, nbytes) for count in (1, 4) for nbytes in (2**12, 2**18, 2**20)]
NUMBERS = (1, 10, 100)
"""Leaves of the arguments that are no arrays."""


def in_turns_us(**calls: Iterator[Callable[[], Any]]) -> dict[str, tuple[float, float]]:
    """Return the median time of calls of each name, in µs: until the device is done, and on the host; names take turns, in random order."""
    random = np.random.default_rng(0)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    stream = torch.cuda.current_stream()
    for turn in range(TURNS + 5):
        for name in map(str, random.permutation(list(calls))):
            call = next(calls[name])
            start = time.perf_counter_ns()
            call()
            launched = time.perf_counter_ns()
            stream.synchronize()
            done = time.perf_counter_ns()
            if turn >= 5:
                times[name].append(((done - start) / 1e3, (launched - start) / 1e3))
    return {name: tuple(map(statistics.median, zip(*each, strict=True))) for name, each in times.items()}


def copy_us(copying: Copying) -> float:
    """Return the time on the device of the kernel that copies a call's arrays: from graphs of 1 and of 11 of it."""
    copy = copying._copies[-1]  # noqa: SLF001 — set last
    blocks = next(node.grid[0] for node in copy.graph.nodes if "copied_arguments" in node.name)
    launch = partial(libraries().driver.launchKernel, copying._kernel.ptr, blocks, 1, 1, COPYING_THREADS, 1, 1, 0)  # noqa: SLF001
    times = []
    for count in (1, 11):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(count):
                launch(torch.cuda.current_stream().cuda_stream, copy.arguments.address, 0)
        times.append(statistics.median(elapsed_us(graph.replay) for _ in range(TURNS)))
    return (times[1] - times[0]) / 10


def elapsed_us(call: Callable[[], Any]) -> float:
    """Return the time of a call on the device, in µs."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(1e3 * start.elapsed_time(end))


def measured(network: Network) -> dict[str, Any]:
    """Measure PyTorch's replay, the launch of our graph, and calls: with two sets of arrays in turns, one, the capture's own, and five."""
    replay = torch_graph(network)
    fast = ss.parallelise(network.function, *network.inputs, outputs="static", check=0, progress=False)
    call = fast._captures[0].call  # noqa: SLF001
    memories = iter([slot.memory for slot in call.slots])
    held = [next(memories) if isinstance(one, torch.Tensor) else one for one in network.inputs]
    copies = ([one.clone() if isinstance(one, torch.Tensor) else one for one in network.inputs] for _ in range(4))
    calls = [partial(fast, *network.inputs), *(partial(fast, *each) for each in copies)]
    launch = repeat(partial(call.graph.launch_on, torch.cuda.current_stream().cuda_stream))
    us = in_turns_us(replay=repeat(replay), launch=launch, call=cycle(calls[:2]), held=repeat(partial(fast, *held)))
    us |= in_turns_us(again=repeat(calls[0])) | in_turns_us(bare=launch, anew=cycle(calls))
    assert call._copying is not None  # noqa: SLF001
    told = {"copy_us": copy_us(call._copying), "verdict": fast.verdict, "engine": fast.gain.engine}  # noqa: SLF001
    return {"us": us, "arrays": len(call.slots), "nodes": len(fast.captured.nodes)} | told


def branches(count: int, nbytes: int) -> Network:
    """Return three branches over each of some arrays."""
    inputs = tuple(torch.randn(nbytes // 4, device="cuda") for _ in range(count))
    return Network(lambda *given: [(one * k).tanh() for one in given for k in range(3)], inputs, 0)


def beside_numbers(count: int) -> Network:
    """Return three branches over an array, which a call gives a dictionary of numbers besides."""
    inputs = torch.randn(2**10, device="cuda"), {f"number {k}": k / 8 for k in range(count)}
    return Network(lambda x, numbers: [(x * (k + sum(numbers.values()))).tanh() for k in range(3)], inputs, 0)


def compared_us(count: int) -> dict[str, float]:
    """Return how long the host compares an array and a dictionary of numbers, in µs: the same one again, or another one that is equal."""
    inputs, again = ((torch.zeros(4), {f"number {k}": k / 8 for k in range(count)}) for _ in range(2))
    calls = Calls(lambda x, numbers: x)
    _, tree = taken_apart(calls.arguments(inputs, {}), is_array)
    arranged = Arranger(tree, 1, calls)

    def us(given: Sequence[Any]) -> float:
        assert arranged(given, {}) is not None
        return round(min(timeit.repeat(partial(arranged, given, {}), number=1000, repeat=9)) * 1e3, 3)

    return {"same": us(inputs), "equal": us(again)}


def chain() -> Network:
    """Return operators, each of which needs the one before it."""

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = (x + 1).tanh()
        return x

    return Network(function, (torch.randn(2**16, device="cuda"),), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", nargs="?", type=Path, default=Path(__file__).parent / "results" / "call_cost.json")
    parser.add_argument("--networks", default="", help="functions of networks.py")
    parser.add_argument("--compared", action="store_true")
    options = parser.parse_args()
    compared = {counted(count, "number"): compared_us(count) for count in (0, *NUMBERS)}
    if options.compared:
        print(json.dumps(compared))
        return
    made: dict[str, Callable[[], Network]] = {"a chain": chain}
    made |= {f"{count} of {nbytes // 1024} KiB": partial(branches, count, nbytes) for count, nbytes in SIZES}
    made |= {f"1 of 4 KiB beside {counted(count, 'number')}": partial(beside_numbers, count) for count in NUMBERS}
    made |= {name: partial(getattr(networks, name), 1) for name in options.networks.split(",") if name}
    results = {}
    for name, make in made.items():
        with torch.no_grad():
            results[name] = found = measured(make())
        gc.collect()
        us = found["us"]
        besides = [us["call"][each] - us[than][each] for than in ("launch", "replay") for each in range(2)]
        print(f"{name:30}", *(f"{which} {done:8.1f} {host:5.1f}  " for which, (done, host) in us.items()), *map("{:6.1f}".format, besides))
        content = {"results": results, "compared_us": compared} | provenance(ss.open_device("cuda"), torch=torch.__version__)
        options.result.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
