"""What recording any code costs: `ss.record` beside PyTorch's profiler with CUDA activities, on the same steps, in turns.

Steps: ResNet-50 (fp16, batch 1) as PyTorch runs it, 300 small additions, and a replay of ResNet-50's CUDA graph. In each round, every way
to record runs a few steps; the order of the ways is shuffled. Both have been used before the first round, since CUPTI, once loaded,
leaves launches dearer: PyTorch's profiler does not let it go. ``fresh`` is the step before that.

Also: what events cost the host, by which runs are recorded without CUPTI: one behind each launch. A loop in C is the floor.

    python benchmarks/record_cost.py [RESULT.json]
"""

from __future__ import annotations

import ctypes
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torchvision
from launch_overhead import c_launch, c_library
from provenance import keep, provenance
from torch.profiler import ProfilerActivity, profile

import streamscope as ss
from streamscope.devices.gates import reference_call

ROUNDS, STEPS = 20, 6
LAUNCHES = 200


def steps() -> dict[str, Callable[[], object]]:
    """Return the steps, warm."""
    model = torchvision.models.resnet50().cuda().half().eval().to(memory_format=torch.channels_last)
    image = torch.randn(1, 3, 224, 224, device="cuda").half().to(memory_format=torch.channels_last)
    a, b = torch.ones(2, 1024, device="cuda")

    def resnet() -> None:
        with torch.no_grad():
            model(image)

    def additions() -> None:
        for _ in range(300):
            torch.add(a, b, out=b)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            resnet()
            additions()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        resnet()
    return {"ResNet-50": resnet, "300 additions": additions, "ResNet-50 as a CUDA graph": graph.replay}


def step_us(step: Callable[[], object]) -> list[float]:
    """Return how long each of some steps takes, from its first call until the GPU is done."""
    taken = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        step()
        torch.cuda.synchronize()
        taken.append((time.perf_counter_ns() - begin) / 1e3)
    return taken


def event_costs_us(device: Any) -> dict[str, dict[str, float]]:
    """Return what a launch costs the host, in us, from C and from Streamscope: alone, with an event behind it, and in a pair of events."""
    stream = device.stream("cost")
    launch = reference_call(device, stream)
    events = [(device.event(timing=True), device.event(timing=True)) for _ in range(LAUNCHES)]
    with tempfile.TemporaryDirectory() as folder:
        library, packed = c_library(Path(folder)), c_launch(launch)
    pointers = (ctypes.c_void_p * (2 * LAUNCHES))(*(event.pointer for pair in events for event in pair))

    def plain() -> None:
        for _ in events:
            launch()

    records = [(stream.bound_record(before), stream.bound_record(behind)) for before, behind in events]

    def in_pairs() -> None:
        for before, behind in records:
            before()
            launch()
            behind()

    def followed() -> None:
        for _, behind in records:
            launch()
            behind()

    taken: dict[str, dict[str, list[float]]] = {"C": {}, "Streamscope": {}}
    for _ in range(60):
        for each, (name, work) in enumerate({"launch": plain, "launch and event": followed, "launch in a pair": in_pairs}.items()):
            stream.synchronize()
            begin = time.perf_counter_ns()
            work()
            taken["Streamscope"].setdefault(name, []).append((time.perf_counter_ns() - begin) / 1e3 / LAUNCHES)
            stream.synchronize()
            taken["C"].setdefault(name, []).append(library.recorded_ns(*packed, pointers, each, LAUNCHES) / 1e3)
    return {by: {name: statistics.median(each) for name, each in times.items()} for by, times in taken.items()}


def ways() -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """Return the ways to record a block."""
    return {"plain": nullcontext, "ss.record": ss.record, "torch.profiler": lambda: profile(activities=[ProfilerActivity.CUDA])}


def main() -> None:
    """Measure and write the result."""
    warnings.filterwarnings("ignore", module="torch")
    device: Any = ss.open_device("cuda")
    shuffled = random.Random(0)
    events = event_costs_us(device)
    print("events", events, flush=True)
    measured = steps()
    results: dict[str, Any] = {}
    fresh = {name: statistics.median(step_us(step) + step_us(step)) for name, step in measured.items()}
    for name, step in measured.items():
        taken: dict[str, list[float]] = {way: [] for way in ways()}
        ends: dict[str, list[float]] = {way: [] for way in ways()}
        for index in range(ROUNDS + 1):
            order = list(ways().items())
            shuffled.shuffle(order)
            for way, block in order:
                begin = time.perf_counter_ns()
                with block():
                    inside = time.perf_counter_ns()
                    times = step_us(step)
                    ended = time.perf_counter_ns()
                around_ms = (time.perf_counter_ns() - ended + inside - begin) / 1e6
                if index:  # In the first round, both load CUPTI.
                    taken[way] += times
                    ends[way].append(around_ms)
        results[name] = {
            "fresh_us": fresh[name],
            "step_us": {way: statistics.median(each) for way, each in taken.items()},
            "best_step_us": {way: min(each) for way, each in taken.items()},
            "begin_and_end_ms": {way: statistics.median(each) for way, each in ends.items()},
        }
        us = results[name]["step_us"]
        print(
            name,
            {way: round(each, 1) for way, each in us.items()},
            f"ss.record / torch.profiler {us['ss.record'] / us['torch.profiler']:.3f}",
        )
    content = {
        "what": f"a step in microseconds, median of {ROUNDS} x {STEPS}, recorded and not; what begins and ends a recording, in ms",
        **provenance(device, torch=torch.__version__),
        "events_us": events,
        "steps": results,
    }
    keep("record_cost.json", content)


if __name__ == "__main__":
    main()
