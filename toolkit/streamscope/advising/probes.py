"""Small programs whose times show what launches, graphs and second streams cost, and these times on a device."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamscope.advising.simulation import Durations, without_data
from streamscope.devices.points import Points
from streamscope.devices.protocol import Device
from streamscope.engines import PLANNERS
from streamscope.engines.plan import Plan
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.measuring.case import run_ns
from streamscope.ops import add
from streamscope.ops.softmaxes import softmax
from streamscope.program.launch import Launch
from streamscope.program.operation import Program
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import empty
from streamscope.recording.recorders import recorder_of
from streamscope.trace.spans import DEVICE_KINDS, SpanTable
from streamscope.tracing import ProgramFunction, program

Inputs = tuple[npt.NDArray[np.float32], ...]

SIZES = (1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
"""Elements of the kernels of chains."""
COUNTS = (1, 2, 5, 10, 30, 100)
LONG_COUNTS = (2, 8, 24)
"""Lengths of chains, of the shortest kernels and of longer ones."""
FORKS = tuple((blocks, length, columns) for columns in (256, 32_768) for blocks in (1, 4) for length in (1, 4))
CAPTURED = (1, 20, 100, 300, 1000)
"""Nodes of the graphs whose capture is timed."""
ROWS = 2
"""Rows of a branch's arrays: a softmax has one block for each, so that two of them have room side by side on any GPU."""
ROUNDS, CAPTURES = 30, 3
PROBES = len(SIZES) + len(FORKS)
"""How many kinds of programs `samples` runs, and names."""


def chain(length: int, size: int) -> tuple[ProgramFunction, Inputs]:
    """Return additions of ``size`` float32 values, each on the result of the one before, and their inputs."""

    @program
    def chain(x: Symbol, step: Symbol) -> Symbol:
        total = empty(size)
        add(x, step, out=total)
        for _ in range(length - 1):
            add(total, step, out=total)
        return total

    return chain, (np.zeros(size, np.float32), np.full(size, 1e-3, np.float32))


def forked(blocks: int, length: int, columns: int) -> tuple[ProgramFunction, Inputs]:
    """Return blocks of two independent branches that meet in an addition, and their input.

    A branch has ``length`` softmax kernels on a few long rows: they run as long as one wishes and leave most of a GPU free.
    """

    @program
    def forked(x: Symbol) -> Symbol:
        for _ in range(blocks):
            left, right = x, x
            for _ in range(length):
                left, right = softmax(left), softmax(right)
            x = add(left, right)
        return x

    return forked, (np.ones((ROWS, columns), np.float32),)


@dataclass(frozen=True)
class Sample:
    """What one program took under one engine."""

    plan: Plan
    """Without data."""
    durations_ns: Durations
    """How long each of its launches runs alone."""
    issue_ns: float
    """From the start of a run until the host has issued all (median)."""
    makespan_ns: float
    """From the start of a run until the host knows that all is done (median)."""

    def duration_ns(self, launch: Launch) -> float:
        """Return how long a launch runs alone, in ns."""
        return self.durations_ns[launch.operation, launch.part]


def samples(device: Device, said: Callable[[str], None] = lambda what: None) -> list[Sample]:
    """Run chains of kernels of many lengths and counts under async and graph, and branches under dual and graph-dual."""
    taken: list[Sample] = []
    for size in SIZES:
        said(f"chains of kernels of {size:,} elements")
        shortest = size == SIZES[0]
        length_ns = _kernel_ns(device, *chain(20 if shortest else 4, size))
        for count in COUNTS if shortest else LONG_COUNTS:
            taken += _sampled(device, *chain(count, size), ("async", "graph"), length_ns)
    for blocks, length, columns in FORKS:
        said(f"{blocks} times two branches of {length} kernels of {columns:,} columns")
        made = forked(blocks, length, columns)
        taken += _sampled(device, *made, ("dual", "graph-dual"), _kernel_ns(device, *made))
    return taken


def capture_points(device: Device) -> Points:
    """Return what capturing and instantiating a graph costs the host: pairs (nodes, ns), medians."""
    return tuple(
        (float(count), statistics.median(_capture_ns(device, count) for _ in range(_repeats(device, CAPTURES)))) for count in CAPTURED
    )


def launch_durations_ns(spans: SpanTable) -> dict[tuple[int, int], float]:
    """Return how long each launch was on the device, in ns, by operation and part: from its first kernel to its last, the median."""
    device = spans.of_kind(DEVICE_KINDS)
    device = device.select(device.operation >= 0)
    keys, launch = np.unique(np.stack([device.operation, device.part, device.correlation], axis=1), axis=0, return_inverse=True)
    start_ns, end_ns = np.full(len(keys), np.iinfo(np.int64).max), np.full(len(keys), np.iinfo(np.int64).min)
    np.minimum.at(start_ns, launch.reshape(-1), device.start_ns)
    np.maximum.at(end_ns, launch.reshape(-1), device.end_ns)
    found: dict[tuple[int, int], list[int]] = {}
    for (operation, part, _), duration in zip(keys.tolist(), (end_ns - start_ns).tolist(), strict=True):
        found.setdefault((operation, part), []).append(duration)
    return {key: float(statistics.median(values)) for key, values in found.items()}


def _kernel_ns(device: Device, function: ProgramFunction, inputs: Inputs) -> Mapping[str, float]:
    """Return the median duration of a program's kernels alone, in ns, by name: those of one name are alike in a probe."""
    prepared = _prepared(function.trace(*inputs), "async", device, inputs)
    durations = launch_durations_ns(recorder_of(device).record(_warm(prepared)).spans)
    names: dict[str, list[float]] = {}
    for launch in prepared.program.launches():
        names.setdefault(launch.name, []).append(durations[launch.operation, launch.part])
    return {name: statistics.median(values) for name, values in names.items()}


def _sampled(
    device: Device, function: ProgramFunction, inputs: Inputs, engines: Sequence[str], kernel_ns: Mapping[str, float]
) -> Iterator[Sample]:
    traced = function.trace(*inputs)
    durations = {(launch.operation, launch.part): kernel_ns[launch.name] for launch in traced.launches()}
    plans = [PLANNERS[engine](traced, device.estimate_ns, streams=2) for engine in engines]
    if device.info.exact:  # Its times do not depend on the numbers.
        prepared = [_warm(Prepared(without_data(plan), device)) for plan in plans]
    else:
        prepared = [_warm(_prepared(traced, engine, device, inputs)) for engine in engines]
    times = np.array([[run_ns(one) for one in prepared] for _ in range(_repeats(device, ROUNDS))], np.float64)
    for plan, (issue_ns, makespan_ns) in zip(plans, np.median(times, axis=0), strict=True):
        yield Sample(without_data(plan), durations, float(issue_ns), float(makespan_ns))


def _prepared(traced: Program, engine: str, device: Device, inputs: Inputs) -> Prepared:
    prepared = prepare_traced(traced, engine, device)
    prepared.load(inputs)
    return prepared


def _warm(prepared: Prepared) -> Prepared:
    """Run what is prepared until its graphs are captured and have been replayed."""
    for _ in range(3):
        prepared.run()
    prepared.wait()
    return prepared


def _capture_ns(device: Device, count: int) -> float:
    function, inputs = chain(count, SIZES[0])
    prepared = _prepared(function.trace(*inputs), "graph", device, inputs)
    prepared.run()
    prepared.wait()
    start = device.now_ns()
    prepared.capture()
    return float(device.now_ns() - start)


def _repeats(device: Device, count: int) -> int:
    return 1 if device.info.exact else count
