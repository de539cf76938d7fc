"""Probing: small programs, run through our own engines on a device, and their times."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamscope.advising.probe_programs import Inputs, chain, forked
from streamscope.advising.task import run_ns
from streamscope.devices.piecewise import Points
from streamscope.devices.protocol import Device
from streamscope.engines.plan import Plan
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.program.launch import Launch
from streamscope.program.operation import Program
from streamscope.recording.device_log import recorder_of
from streamscope.trace.spans import DEVICE_KINDS, SpanTable
from streamscope.tracing import ProgramFunction

SMALLEST = 4096
"""Elements of the shortest kernel."""
LARGEST = 1 << 22
COUNTS = (1, 2, 5, 10, 30, 100)
LONG_COUNTS = (2, 8, 24)
"""Lengths of chains, of the shortest kernels and of longer ones."""
FORKS = tuple((blocks, length, columns) for columns in (256, 32_768) for blocks in (1, 4) for length in (1, 4))
CAPTURED = (1, 20, 100, 300, 1000)
"""Nodes of the graphs whose capture is timed."""
ROUNDS = 30

Durations = Mapping[tuple[int, int], float]
"""How long each launch runs alone, in ns, by operation and part."""


@dataclass(frozen=True)
class Sample:
    """What one program took under one engine.

    Attributes
    ----------
    plan : Plan
    durations_ns : mapping of (operation, part) to float
        How long each of its launches runs alone.
    issue_ns : float
        From the start of a run until the host has issued all (median).
    makespan_ns : float
        From the start of a run until the host knows that all is done (median).
    """

    plan: Plan
    durations_ns: Durations
    issue_ns: float
    makespan_ns: float

    def estimate(self, launch: Launch) -> float:
        """Return how long a launch runs alone, in ns."""
        return self.durations_ns[launch.operation, launch.part]


def probe_count() -> int:
    """Return how often `samples` says what it measures next."""
    return len(list(_sizes())) + len(FORKS)


def samples(device: Device, said: Callable[[str], None] = lambda what: None) -> list[Sample]:
    """Run chains of kernels of many lengths and counts under async and graph, and branches under dual and graph-dual."""
    taken: list[Sample] = []
    for size in _sizes():
        said(f"chains of kernels of {size:,} elements")
        counts = COUNTS if size == SMALLEST else LONG_COUNTS
        length_ns = _kernel_ns(device, *chain(20 if size == SMALLEST else 4, size))
        for count in counts:
            taken += _sampled(device, *chain(count, size), ("async", "graph"), length_ns)
    for blocks, length, columns in FORKS:
        said(f"{blocks} times two branches of {length} kernels of {columns:,} columns")
        program, inputs = forked(blocks, length, columns)
        taken += _sampled(device, program, inputs, ("dual", "graph-dual"), _kernel_ns(device, program, inputs))
    return taken


def capture_points(device: Device) -> Points:
    """Return what capturing and instantiating a graph costs the host: pairs (nodes, ns), medians."""
    return tuple((float(count), statistics.median(_capture_ns(device, count) for _ in range(_repeats(device, 3)))) for count in CAPTURED)


def launch_durations_ns(spans: SpanTable) -> dict[tuple[int, int], float]:
    """Return the median duration of each launch on the device, in ns, by operation and part."""
    device = spans.of_kind(DEVICE_KINDS)
    found: dict[tuple[int, int], list[int]] = {}
    for operation, part, duration in zip(device.operation.tolist(), device.part.tolist(), device.duration_ns.tolist(), strict=True):
        if operation >= 0:
            found.setdefault((operation, part), []).append(duration)
    return {key: float(statistics.median(values)) for key, values in found.items()}


def _sizes() -> Iterator[int]:
    size = SMALLEST
    while size <= LARGEST:
        yield size
        size *= 16 if size == SMALLEST else 4


def _kernel_ns(device: Device, program: ProgramFunction, inputs: Inputs) -> Mapping[str, float]:
    """Return the median duration of a program's kernels alone, in ns, by name: those of one name are alike in a probe."""
    prepared = _warm(program.trace(*inputs), "async", device, inputs)
    durations = launch_durations_ns(recorder_of(device).record(prepared).spans)
    names: dict[str, list[float]] = {}
    for launch in prepared.program.launches():
        names.setdefault(launch.name, []).append(durations[launch.operation, launch.part])
    return {name: statistics.median(values) for name, values in names.items()}


def _sampled(
    device: Device, program: ProgramFunction, inputs: Inputs, engines: Sequence[str], kernel_ns: Mapping[str, float]
) -> Iterator[Sample]:
    traced = program.trace(*inputs)
    prepared = [_warm(traced, engine, device, inputs) for engine in engines]
    durations = {(launch.operation, launch.part): kernel_ns[launch.name] for launch in traced.launches()}
    times = np.array([[run_ns(one) for one in prepared] for _ in range(_repeats(device, ROUNDS))], np.float64)
    for one, (issue_ns, makespan_ns) in zip(prepared, np.median(times, axis=0), strict=True):
        yield Sample(one.plan, durations, float(issue_ns), float(makespan_ns))


def _warm(program: Program, engine: str, device: Device, inputs: Inputs) -> Prepared:
    prepared = prepare_traced(program, engine, device)
    prepared.load(inputs)
    for _ in range(3):
        prepared.run()
    prepared.wait()
    return prepared


def _capture_ns(device: Device, count: int) -> float:
    program, inputs = chain(count, SMALLEST)
    prepared = prepare_traced(program.trace(*inputs), "graph", device)
    prepared.load(inputs)
    prepared.run()
    prepared.wait()
    start = device.now_ns()
    prepared.capture()
    return float(device.now_ns() - start)


def _repeats(device: Device, count: int) -> int:
    return 1 if device.info.exact else count
