"""Probes of operations on several GPUs: streams that are held, marked and timed, and graphs over all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from streamscope.devices.cuda.graph_nodes import graph_nodes
from streamscope.devices.graph_node import NodeKind
from streamscope.kernels.library.libraries import libraries

ITEM_BYTES = 4
LONG, SHORT, _SKIPPED = 24, 4, 4
"""Operations on a stream that are timed, those of the shorter graph, and those at the head that wait for the other GPUs to begin."""
_BIG_BYTES = 1 << 28
_LAUNCHES = 25
ROUNDS = 3

_SPIN = """
extern "C" __global__ void spin(long long ns)
{
    long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - start < ns);
}
"""

Operation = Callable[[], object]
Reading = dict[str, Any]


@dataclass
class Lane:
    """A stream of one GPU."""

    gpu: int
    priority: int = 0
    stream: Any = field(init=False)

    def __post_init__(self) -> None:
        cupy = libraries().cupy
        with cupy.cuda.Device(self.gpu):
            self.stream = cupy.cuda.Stream(non_blocking=True, priority=self.priority)
            self._spin = cupy.RawKernel(_SPIN, "spin")
        self.hold(0)  # Compiled now, and not while other lanes are held.

    def hold(self, ns: float) -> None:
        """Keep the stream busy for so long, while the host puts work behind it.

        It ends by itself: a gate that the host opens would hang if a library waited for the device in between.
        """
        with libraries().cupy.cuda.Device(self.gpu), self.stream:
            self._spin((1,), (1,), (np.int64(ns),))

    def mark(self, *, timing: bool = True) -> Any:
        """Record a new event."""
        cupy = libraries().cupy
        with cupy.cuda.Device(self.gpu):
            event = cupy.cuda.Event(disable_timing=not timing)
        event.record(self.stream)
        return event

    def wait(self, event: Any) -> None:
        """Let the stream wait for an event, of any GPU."""
        self.stream.wait_event(event)

    def array(self, elements: int, dtype: type = np.float32) -> Any:
        """Allocate random numbers on its GPU: zeros would be faster to multiply."""
        cupy = libraries().cupy
        block: Any = np.random.default_rng(self.gpu).random(min(elements, 1 << 20), np.float32).astype(dtype)
        with cupy.cuda.Device(self.gpu):
            return cupy.tile(cupy.asarray(block), -(-elements // block.size))[:elements]


def synchronize(lanes: Iterable[Lane]) -> None:
    """Wait for all lanes."""
    for lane in lanes:
        lane.stream.synchronize()


def elapsed_ns(start: Any, end: Any) -> float:
    """Return the time between two events of one GPU, in ns."""
    return float(libraries().cupy.cuda.get_elapsed_time(start, end)) * 1e6


def long_count(nbytes: int) -> int:
    """Return how many operations of so many bytes a stream gets."""
    return LONG if nbytes < _BIG_BYTES else LONG - _SKIPPED


def queued(lanes: Sequence[Lane], put: Callable[[], None], known_ns: float) -> None:
    """Hold the lanes for longer than the host needs, and put work behind that."""
    for lane in lanes:
        lane.hold(2 * known_ns + 200_000)
    put()


def put_ns(lanes: Sequence[Lane], put: Callable[[], None]) -> float:
    """Return the host's time for putting work on the lanes; this warms it up, too."""
    put()
    synchronize(lanes)
    start = time.perf_counter_ns()
    put()
    took = time.perf_counter_ns() - start
    synchronize(lanes)
    return float(took)


def stream_reading(lanes: Sequence[Lane], operation: Operation, count: int, rounds: int = ROUNDS) -> Reading:
    """Time an operation again and again on its lanes, behind a kernel that hides the host: by GPU, and the host's time of a call."""
    calls: list[float] = []
    marks: list[list[Any]] = []

    def put() -> None:
        calls.clear()
        marks.clear()
        for index in range(_SKIPPED + count):
            if index == _SKIPPED:
                marks.append([lane.mark() for lane in lanes])
            start = time.perf_counter_ns()
            operation()
            calls.append(float(time.perf_counter_ns() - start))
        marks.append([lane.mark() for lane in lanes])

    known_ns = put_ns(lanes, put)
    periods: list[list[float]] = []
    host, held = [], True
    for _ in range(rounds):
        queued(lanes, put, known_ns)
        held = held and not marks[0][0].done
        host += calls[1:]
        synchronize(lanes)
        periods.append([elapsed_ns(first, last) / count for first, last in zip(marks[0], marks[-1], strict=True)])
    return {
        "stream_ns": [median(each) for each in zip(*periods, strict=True)],
        "call_ns": median(host),
        "count": count,
        "held": held,
    }


class Graph:
    """Operations captured as one graph over all GPUs: the capture begins on the first lane, and the others join it by an event."""

    def __init__(self, lanes: Sequence[Lane], operation: Operation, length: int) -> None:
        runtime = libraries().runtime
        first, *others = lanes
        self.lane, self.runtime = first, runtime
        runtime.streamBeginCapture(first.stream.ptr, runtime.streamCaptureModeRelaxed)
        try:
            self._capture(others, operation, length)
        except BaseException:
            with suppress(runtime.CUDARuntimeError):  # It says again that the capture is broken.
                runtime.streamEndCapture(first.stream.ptr)
            raise
        self.captured = runtime.streamEndCapture(first.stream.ptr)
        self.executable = runtime.graphInstantiate(self.captured)
        self.launch()
        first.stream.synchronize()

    def _capture(self, others: Sequence[Lane], operation: Operation, length: int) -> None:
        fork = self.lane.mark(timing=False)
        for lane in others:
            lane.wait(fork)
        for _ in range(length):
            operation()
        for lane in others:
            self.lane.wait(lane.mark(timing=False))

    def launch(self) -> None:
        """Launch it on the first lane."""
        self.runtime.graphLaunch(self.executable, self.lane.stream.ptr)

    def destroy(self) -> None:
        """Free it."""
        self.runtime.graphExecDestroy(self.executable)
        self.runtime.graphDestroy(self.captured)

    def extent_ns(self) -> float:
        """Return the median time of a launch by events, which wait behind a kernel as the launch does."""
        found = []
        for _ in range(5):
            self.lane.hold(300_000)
            start = self.lane.mark()
            self.launch()
            end = self.lane.mark()
            self.lane.stream.synchronize()
            found.append(elapsed_ns(start, end))
        return median(found)


def graph_reading(lanes: Sequence[Lane], operation: Operation, nbytes: int) -> Reading:
    """Time an operation inside a graph, by how much each one more takes longer, and one alone; and launches, on idle GPUs."""
    single = Graph(lanes, operation, 1)
    alone_ns = single.extent_ns()
    launches = []
    for _ in range(_LAUNCHES):
        start = time.perf_counter_ns()
        single.launch()
        launches.append(float(time.perf_counter_ns() - start))
        single.lane.stream.synchronize()
    nodes = _nodes(single)
    single.destroy()
    extents = []
    lengths = (SHORT, LONG) if nbytes < _BIG_BYTES else (1, SHORT)
    for length in lengths:
        chain = Graph(lanes, operation, length)
        extents.append(chain.extent_ns())
        chain.destroy()
    return {
        "graph_ns": (extents[1] - extents[0]) / (lengths[1] - lengths[0]),
        "graph_alone_ns": alone_ns,
        "graph_call_ns": median(launches[1:]),
        **nodes,
    }


def _nodes(graph: Graph) -> Reading:
    """Return blocks and threads of the kernels of a graph of one operation. A collective's kernel has a block for each channel."""
    try:
        nodes = graph_nodes(graph.captured)
    except Exception as error:  # noqa: BLE001 — The times are worth having without.
        return {"nodes": repr(error)}
    kernels = [node for node in nodes if node.kind is NodeKind.KERNEL]
    return {
        "blocks": [node.grid[0] for node in kernels],
        "threads": [node.block[0] for node in kernels],
    }


def operation_readings(lanes: Sequence[Lane], operation: Operation, nbytes: int) -> Reading:
    """Time an operation in every way. A way that fails leaves its error, and the others go on."""
    found: Reading = {"nbytes": nbytes}
    for name, reading in (
        ("stream", partial(stream_reading, lanes, operation, long_count(nbytes))),
        ("graph", partial(graph_reading, lanes, operation, nbytes)),
    ):
        try:
            found |= reading()
        except Exception as error:  # noqa: BLE001
            found[f"{name}_error"] = repr(error)
    return found
