"""The measurements of collectives and of copies between GPUs: one step a process, one line of JSON a reading."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, TextIO, cast

import numpy as np

from streamscope.devices.cuda.collectives import bound_calls, part_calls
from streamscope.devices.cuda.gpus import BY_ADDRESS
from streamscope.devices.cuda.graph_nodes import graph_nodes
from streamscope.devices.cuda.memory import CudaBuffer
from streamscope.devices.cuda.nccl import Communicators, nccl
from streamscope.devices.graph_node import NodeKind
from streamscope.devices.link_model import COLLECTIVES, NEIGHBOURS
from streamscope.kernels.library.libraries import libraries
from streamscope.program.collective import Collective, CollectiveKind
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.trace.info import library_versions

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

    def call_ns(self) -> float:
        """Return the median time that a launch on idle GPUs takes the host."""
        found = []
        for _ in range(_LAUNCHES):
            start = time.perf_counter_ns()
            self.launch()
            found.append(float(time.perf_counter_ns() - start))
            self.lane.stream.synchronize()
        return median(found[1:])

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
    alone_ns, call_ns, nodes = single.extent_ns(), single.call_ns(), _nodes(single)
    single.destroy()
    lengths = (SHORT, LONG) if nbytes < _BIG_BYTES else (1, SHORT)
    return {
        "graph_ns": chain_reading(lanes, operation, lengths)["ns"],
        "graph_alone_ns": alone_ns,
        "graph_call_ns": call_ns,
        **nodes,
    }


def chain_reading(lanes: Sequence[Lane], operation: Operation, lengths: tuple[int, int] = (SHORT, LONG)) -> Reading:
    """Return by how much one more of an operation in a graph takes longer, and the launch; and that of the shorter graph."""
    extents, calls = [], []
    for length in lengths:
        chain = Graph(lanes, operation, length)
        extents.append(chain.extent_ns())
        calls.append(chain.call_ns())
        chain.destroy()
    (short_ns, long_ns), more = extents, lengths[1] - lengths[0]
    return {"ns": (long_ns - short_ns) / more, "call_ns": (calls[1] - calls[0]) / more, "launch_ns": calls[0]}


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


SIZES = tuple(1 << exponent for exponent in range(10, 31, 2))
"""1 KiB to 1 GiB, in powers of 4."""
BETWEEN = tuple(1 << exponent for exponent in range(11, 30, 2))
"""The powers of 2 between them, which are timed on streams only."""
HELD_OUT = tuple(3 * size for size in SIZES[:-1])
"""Sizes that no table takes, so that it can be checked against them."""
COPY_SIZES = SIZES[1:]
NEIGHBOUR_SIZES = (1 << 20, 1 << 24, 1 << 26, 1 << 28)
GAP_SIZES = (1 << 12, 1 << 20, 1 << 23)
_GAP_ELEMENTS = 1 << 18
"""Of chains in graphs whose gaps are measured."""
PRIORITIES = {"equal": (0, 0), "communication": (-5, 0)}
"""Priorities of the streams of communication and compute, as CUDA counts: the lowest number goes first."""

_CHAIN_NS = 12e6
"""How long a chain of neighbours is to last."""
_MATRIX = 4096
_ELEMENTS = 1 << 26


class Collectives:
    """NCCL over all GPUs, one process and one thread; part k runs on lane k."""

    def __init__(self, lanes: Sequence[Lane], nbytes: int) -> None:
        self.lanes, self.nccl, self.communicators = lanes, nccl(), Communicators([lane.gpu for lane in lanes])
        self.sent, self.received = ([lane.array(nbytes // ITEM_BYTES) for lane in lanes] for _ in range(2))
        synchronize(lanes)

    def operation(self, kind: str, nbytes: int) -> Operation:
        """Return a call that puts a collective of so many bytes, in the sense of nccl-tests, on all lanes in one group."""
        gpus = len(self.lanes)
        # A send is from the first GPU to the second.
        collective = Collective(cast("CollectiveKind", kind), tuple(range(2 if kind == "send" else gpus)), nbytes, "sum")
        count = nbytes // ITEM_BYTES // (gpus if kind == "all_gather" else 1)
        operands = [_first(self.sent[part], count) if collective.reads(part) else None for part in collective.gpus]
        results = [_first(self.received[part], count) if collective.writes(part) else None for part in collective.gpus]
        calls = part_calls(collective, operands, results, [self.lanes[part].stream.ptr for part in collective.gpus])
        return partial(self._grouped, bound_calls(self.communicators, calls))

    def _grouped(self, calls: Sequence[Operation]) -> None:
        self.nccl.groupStart()
        for call in calls:
            call()
        self.nccl.groupEnd()


def _first(array: Any, count: int) -> CudaBuffer:
    """Return so many elements of an array as the memory of an operand, or of a result, which counts by its address alone."""
    return CudaBuffer(ArraySpec((count,), np.dtype(np.float32)), MemoryPlace.DEVICE, array)


def machine(gpus: int) -> Iterator[Reading]:
    """Ask for names and versions."""
    lib = libraries()
    names = [lib.runtime.getDeviceProperties(gpu)["name"].decode() for gpu in range(gpus)]
    found: Reading = {
        "devices": names,
        "cuda": lib.runtime.driverGetVersion(),
        "nccl": nccl().get_version(),
        "versions": library_versions(),
    }
    with suppress(OSError, subprocess.SubprocessError):
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
        found["driver"] = subprocess.run(command, capture_output=True, text=True, timeout=8, check=True).stdout.strip()  # noqa: S603
    yield found


def collective(kind: str, gpus: int) -> Iterator[Reading]:
    """Time a collective of each size, the smallest first."""
    lanes = [Lane(gpu) for gpu in range(gpus)]
    collectives = Collectives(lanes, SIZES[-1])
    for nbytes in SIZES:
        yield operation_readings(lanes, collectives.operation(kind, nbytes), nbytes)


def more_sizes(gpus: int) -> Iterator[Reading]:
    """Time all collectives at sizes between the others, on streams only."""
    lanes = [Lane(gpu) for gpu in range(gpus)]
    collectives = Collectives(lanes, HELD_OUT[-1])
    for kind in COLLECTIVES:
        for nbytes in sorted(BETWEEN + HELD_OUT):
            yield {"kind": kind, "nbytes": nbytes} | stream_reading(lanes, collectives.operation(kind, nbytes), long_count(nbytes))


def _copy(sent: Any, received: Any, nbytes: int, lane: Lane) -> Operation:
    """Return a copy between GPUs by their addresses."""
    return partial(libraries().runtime.memcpyAsync, received.data.ptr, sent.data.ptr, nbytes, BY_ADDRESS, lane.stream.ptr)


def _let_access(lane: Lane, peer: Lane) -> None:
    """Let a GPU reach another one's memory, if it may not do so already."""
    runtime = libraries().runtime
    with libraries().cupy.cuda.Device(lane.gpu), suppress(runtime.CUDARuntimeError):
        runtime.deviceEnablePeerAccess(peer.gpu)


def peer_copies(gpus: int, *, access: bool) -> Iterator[Reading]:
    """Time copies from the first GPU to the second, with peer access or without it."""
    lanes = [Lane(gpu) for gpu in range(min(gpus, 2))]
    first, second = lanes
    sent, received = (lane.array(COPY_SIZES[-1] // ITEM_BYTES) for lane in lanes)
    synchronize(lanes)
    if access:
        _let_access(first, second)
        _let_access(second, first)
    for nbytes in COPY_SIZES:
        copy = _copy(sent, received, nbytes, first)
        # Through the host, a copy of 1 GiB takes a tenth of a second.
        slow = not access and nbytes > 1 << 26
        count, rounds = (SHORT, 1) if slow else (long_count(nbytes), ROUNDS)
        one = stream_reading([first], copy, count, rounds) if slow else operation_readings([first], copy, nbytes)
        yield one | {"nbytes": nbytes, "direction": "one"}


_Chain = list[list[tuple[float, float]]]
"""Start and end of each operation of a stream, by GPU."""


class Neighbours:
    """A collective on one stream of each GPU and kernels on another, each timed alone and beside the other."""

    def __init__(self, communication: Sequence[Lane], compute: Sequence[Lane], kernels: dict[str, list[Operation]]) -> None:
        self.communication, self.compute, self.kernels = communication, compute, kernels

    def reading(self, operation: Operation, neighbour: str) -> Reading:
        """Return times of both, alone and beside each other; the medians of those operations that had a neighbour all the time."""

        def computing() -> None:
            for kernel in self.kernels[neighbour]:
                kernel()

        singles = [(self.communication, operation, 12), (self.compute, computing, 12)]
        alone_ns = [_median_durations(self._chains([single])[0]) for single in singles]
        counts = [min(max(int(_CHAIN_NS / max(each)), 6), 200) for each in alone_ns]
        chains = self._chains([(self.communication, operation, counts[0]), (self.compute, computing, counts[1])])
        beside_ns = [
            [_within(spans, others) for spans, others in zip(chain, other, strict=True)] for chain, other in (chains, chains[::-1])
        ]
        names = ("communication", "compute")
        return {
            "alone_ns": dict(zip(names, alone_ns, strict=True)),
            "beside_ns": dict(zip(names, beside_ns, strict=True)),
            "counts": counts,
        }

    def _chains(self, chains: Sequence[tuple[Sequence[Lane], Operation, int]]) -> list[_Chain]:
        """Run chains side by side, all behind one kernel; return start and end of each operation, by chain and GPU."""
        marks: list[list[list[Any]]] = []

        def put() -> None:
            marks.clear()
            for lanes, operation, count in chains:
                rows = [[lane.mark() for lane in lanes]]
                for _ in range(count):
                    operation()
                    rows.append([lane.mark() for lane in lanes])
                marks.append(rows)

        held = [lane for lanes, _, _ in chains for lane in lanes]
        known_ns = put_ns(held, put)
        bases = [lane.mark() for lane in chains[0][0]]
        queued(held, put, known_ns)
        synchronize(held)
        found = []
        for rows in marks:
            times = [[elapsed_ns(base, row[gpu]) for row in rows] for gpu, base in enumerate(bases)]
            found.append([list(pairwise(each)) for each in times])
        return found


def _median_durations(chain: _Chain) -> list[float]:
    """Return the median duration on each GPU, the first operation left out."""
    return [median(end - start for start, end in spans[1:]) for spans in chain]


def _within(spans: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]) -> float | None:
    """Return the median duration of those operations that ran while the others did, all the time; None where there are none."""
    low, high = others[0][0], others[-1][1]
    inside = [end - start for start, end in spans[1:] if start >= low and end <= high]
    return median(inside) if inside else None


def _matmul(lane: Lane) -> Operation:
    cupy = libraries().cupy
    with cupy.cuda.Device(lane.gpu):
        a, b = (lane.array(_MATRIX * _MATRIX, np.float16).reshape(_MATRIX, _MATRIX) for _ in range(2))
        a -= np.float16(0.5)
        out = cupy.empty_like(a)

    def call() -> None:
        with cupy.cuda.Device(lane.gpu), lane.stream:
            cupy.matmul(a, b, out=out)

    return call


def _addition(lane: Lane, elements: int = _ELEMENTS) -> Operation:
    cupy = libraries().cupy
    a, b, out = (lane.array(elements) for _ in range(3))

    def call() -> None:
        with cupy.cuda.Device(lane.gpu), lane.stream:
            cupy.add(a, b, out=out)

    return call


def neighbours(gpus: int) -> Iterator[Reading]:
    """Time all-reduces beside kernels, with streams of several priorities."""
    cupy = libraries().cupy
    lanes = [Lane(gpu) for gpu in range(gpus)]
    collectives = Collectives(lanes, NEIGHBOUR_SIZES[-1])
    for name, (first, second) in PRIORITIES.items():
        communication, compute = [Lane(gpu, first) for gpu in range(gpus)], [Lane(gpu, second) for gpu in range(gpus)]
        collectives.lanes = communication
        kernels = {"matmul": [_matmul(lane) for lane in compute], "elementwise": [_addition(lane) for lane in compute]}
        for gpu in range(gpus):
            cupy.cuda.Device(gpu).synchronize()
        pair = Neighbours(communication, compute, kernels)
        for nbytes in NEIGHBOUR_SIZES:
            for neighbour in NEIGHBOURS:
                what = {"kind": "all_reduce", "nbytes": nbytes, "neighbour": neighbour, "priority": name}
                yield what | pair.reading(collectives.operation("all_reduce", nbytes), neighbour)


def _in_turn(*operations: Operation) -> Operation:
    def call() -> None:
        for operation in operations:
            operation()

    return call


def graph_gaps(gpus: int) -> Iterator[Reading]:
    """Time chains in graphs: of an addition on each GPU, of all-reduces, of both in turns; and of additions with copies there and back."""
    lanes = [Lane(gpu) for gpu in range(gpus)]
    collectives, additions = Collectives(lanes, GAP_SIZES[-1]), [_addition(lane, _GAP_ELEMENTS) for lane in lanes]
    _in_turn(*additions)()
    synchronize(lanes)
    for count in sorted({2, gpus}):
        kernels = chain_reading(lanes[:count], _in_turn(*additions[:count]))
        yield {"kind": "kernels", "gpus": count, "both": kernels}
    for nbytes in GAP_SIZES:
        reducing = collectives.operation("all_reduce", nbytes)
        both = chain_reading(lanes, _in_turn(*additions, reducing))
        yield {"kind": "all_reduce", "nbytes": nbytes, "kernels": kernels, "alone": chain_reading(lanes, reducing), "both": both}
    pair = lanes[:2]
    _let_access(*pair)
    _let_access(*pair[::-1])
    buffers = [lane.array(GAP_SIZES[-1] // ITEM_BYTES) for lane in pair]
    synchronize(pair)

    def there_and_back(nbytes: int) -> None:
        for (lane, other), (sent, received), addition in zip((pair, pair[::-1]), (buffers, buffers[::-1]), additions, strict=False):
            addition()
            _copy(sent, received, nbytes, lane)()
            other.wait(lane.mark(timing=False))

    for nbytes in GAP_SIZES:
        yield {"kind": "copy", "nbytes": nbytes, "kernels": kernels, "both": chain_reading(pair, partial(there_and_back, nbytes))}


STEPS: dict[str, Callable[[int], Iterator[Reading]]] = {
    "machine": machine,
    "all_reduce": partial(collective, "all_reduce"),
    "peer_copies": partial(peer_copies, access=True),
    "neighbours": neighbours,
    "all_gather": partial(collective, "all_gather"),
    "host_copies": partial(peer_copies, access=False),
    "reduce_scatter": partial(collective, "reduce_scatter"),
    "broadcast": partial(collective, "broadcast"),
    "all_to_all": partial(collective, "all_to_all"),
    "send": partial(collective, "send"),
    "graph_gaps": graph_gaps,
    "more_sizes": more_sizes,
}
"""The steps, by name; those that matter most come first, should time run out."""


def write_step(name: str, gpus: int, file: TextIO) -> None:
    """Run a step, and write each of its readings as soon as there is one."""
    for reading in STEPS[name](gpus):
        file.write(json.dumps(reading) + "\n")
        file.flush()


if __name__ == "__main__":
    step, count, target = sys.argv[1:]
    with Path(target).open("a", encoding="utf-8") as lines:
        write_step(step, int(count), lines)
    # Communicators are left as they are: destroying them in the wrong order can hang.
    os._exit(0)
