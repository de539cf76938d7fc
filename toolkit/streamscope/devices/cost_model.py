"""The cost model of a device: how long calls, kernels, copies and graph replays take, as data with its provenance."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from streamscope.devices.graph_node import Branching
from streamscope.devices.piecewise_linear import Points, checked_points, interpolate, slopes
from streamscope.devices.product_times import ProductTimes, as_launched, checked_tables, table_of
from streamscope.errors import DeviceError
from streamscope.program.launch import Cost, Launch, LaunchKind

_BUILT_IN = Path(__file__).parent
LARGEST_BLOCK = 1024
"""CUDA's limit on the threads of a block."""
_REFERENCE_BYTES = 48
"""Bytes that a thread of the shortest working kernel moves: four float32 of each operand and of the result of an addition."""
_MEMORY_LATENCY_NS = 700.0
"""By how much later the first bytes of a kernel come from memory than from the cache: on an H200, median of ten element-wise kernels of
1 to 16 MiB (`benchmarks/results/cold_operands.json`)."""
_MOST_KNOWN = 10_000
"""Different launches whose prices a model remembers."""


@dataclass(frozen=True)
class Residency:
    """A kernel's share of the chip, averaged over its run."""

    multiprocessors: float
    """Multiprocessors with a block of the kernel on them."""
    threads: float
    """Resident threads, summed over those multiprocessors."""
    whole: bool = False
    """Its blocks take multiprocessors whole, for all their time: other kernels get those that are left, or wait."""
    half: bool = False
    """A multiprocessor holds two of its blocks and no third: none of them fits beside a block that takes it whole."""

    @property
    def load(self) -> float:
        """Resident threads on each multiprocessor that is held; 0 where none is."""
        return self.threads / self.multiprocessors if self.multiprocessors else 0.0


@dataclass(frozen=True)
class KernelCost:
    """One kernel or copy of a launch, which may have several."""

    alone_ns: float
    """How long it takes alone."""
    cost: Cost
    """Time on the device."""
    held: Residency | None = None
    """Share of the chip; by the cost, where unknown."""


class Prices(Protocol):
    """Costs of launches: by a cost model, or measured."""

    def call_ns(self, launch: Launch) -> float:
        """Return the host's time for launching it, in ns."""

    def tail_ns(self, launch: Launch) -> float:
        """Return how much of that is left when the launch is on the stream, in ns: a library's call goes on after it."""

    def pieces(self, launch: Launch) -> Sequence[KernelCost]:
        """Return its kernels, or its copy, in order; at least one."""


@dataclass(frozen=True)
class Provenance:
    """Where the numbers of a cost model come from."""

    device: str
    driver: str
    date: str
    """The device that was measured, its driver, and when (ISO 8601)."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the libraries that took part."""
    how: Mapping[str, str] = field(default_factory=dict)
    """Provenance of each number, by its key: how it was measured, its source if derived, or assumed."""


@dataclass(frozen=True)
class CostModel:
    """The costs of one device and its host, each a quantity that can be measured from outside.

    Attributes
    ----------
    multiprocessors, threads_per_multiprocessor, blocks_per_multiprocessor : int
        Size of the chip, and what can be resident on one multiprocessor.
    throughput_points : pairs (resident threads, fraction)
        Fraction of its full throughput that one multiprocessor reaches with so many resident threads.
        Piecewise linear and concave, from (0, 0) to 1.
    memory_gb_s, plain_tflops, matrix_tflops : float
        Rates of the whole chip at full load: memory, arithmetic, and arithmetic on the matrix units.
    cache_gb_s, cache_mb : float
        Rate of what is read and written again and again, and up to how much of it that is.
    thread_gb_s : float
        What one thread moves, which waits for its loads: its bytes under way over the latency of memory.
    stage_ns, stage_block_ns : float
        What a stage of a kernel takes, such as the threads of a block waiting for each other (see `Cost`); and by how much a
        multiprocessor is held up by each further block that does.
    product_times : mapping of str to ProductTimes
        Tables of matrix products and convolutions, by `table_of`. Without one, flops count.
    memory_gb : float
        Device memory.
    bus_in_gb_s, bus_out_gb_s, copy_in_latency_ns, copy_out_latency_ns : float
        Bus to and from the device, and what a copy takes beside its bytes.
    null_kernel_ns, working_kernel_ns : float
        An empty kernel of one block, and the shortest kernel that reads and writes memory.
    kernel_gap_ns : float
        From the end of what is before it on the stream to the start of a kernel that is waiting.
    launch_latency_ns, graph_launch_latency_ns : float
        From the end of the call to the earliest start of what it put on an idle stream; the same for the first node of a graph.
    graph_node_gap_ns : float
        From the end of a node's last dependency to its start.
    event_pair_empty_ns, event_pair_gated_excess_ns, event_pair_graph_excess_ns : float
        What a pair of timed events reads with nothing between; what it reads beyond a kernel's duration on a gated stream;
        the same inside a graph.
    launch_ns, matmul_launch_ns, convolution_launch_ns, library_launch_ns : float
        Host: a launch with packed arguments; a call of cuBLAS; of cuDNN; a launch whose work is another function.
    event_record_ns, event_create_ns, event_query_ns, stream_wait_ns : float
        Host: the calls on events.
    synchronize_return_ns : float
        From the end of what is waited for until the host goes on.
    graph_launch_points, graph_instantiate_points : pairs (nodes, ns)
        Host: launching and instantiating a graph of so many nodes. Piecewise linear, the last slope goes on.
    queue_depth : int
        Items that a stream holds before the host blocks.
    graph_crossing_ns : float
        In a graph, from the end of a node to the start of one that comes after other roots too, beside the gap; see `Branching`.
    graph_dispatch_ns : float
        In a graph, from the start of a kernel to that of the next one, if both could start at one time.
    graph_root_ns, graph_leaf_ns : float
        Host: what each further node without predecessors, and each without successors, adds to a graph's launch.
    graph_copy_call_ns : float
        Host: what each copy in a graph adds to its launch.
    bus_both_share : float
        Speed of a copy while another one goes in the other direction, as a share of its speed alone.
    collective_share : float
        Speed of a collective beside matrix products, as a share of that alone, once all its channels have multiprocessors. The link model's
        ``collective_speed`` has the wait for these, too.
    provenance : Provenance

    Raises
    ------
    DeviceError
        A number is missing, of the wrong type or impossible.
    """

    multiprocessors: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    throughput_points: Points
    memory_gb_s: float
    plain_tflops: float
    matrix_tflops: float
    cache_gb_s: float
    cache_mb: float
    thread_gb_s: float
    stage_ns: float
    stage_block_ns: float
    product_times: Mapping[str, ProductTimes]
    memory_gb: float
    bus_in_gb_s: float
    bus_out_gb_s: float
    copy_in_latency_ns: float
    copy_out_latency_ns: float
    null_kernel_ns: float
    working_kernel_ns: float
    kernel_gap_ns: float
    launch_latency_ns: float
    graph_launch_latency_ns: float
    graph_node_gap_ns: float
    event_pair_empty_ns: float
    event_pair_gated_excess_ns: float
    event_pair_graph_excess_ns: float
    launch_ns: float
    matmul_launch_ns: float
    convolution_launch_ns: float
    library_launch_ns: float
    event_record_ns: float
    event_create_ns: float
    event_query_ns: float
    stream_wait_ns: float
    synchronize_return_ns: float
    graph_launch_points: Points
    graph_instantiate_points: Points
    queue_depth: int
    graph_crossing_ns: float
    graph_dispatch_ns: float
    graph_root_ns: float
    graph_leaf_ns: float
    graph_copy_call_ns: float
    bus_both_share: float
    collective_share: float
    provenance: Provenance

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name.endswith("_points"):
                object.__setattr__(self, item.name, checked_points(f"cost model: {item.name}", value))
            elif item.name == "product_times":
                object.__setattr__(self, item.name, checked_tables(value))
            elif item.name != "provenance":
                _check_number(item.name, value, whole=item.type == "int")
        _check_throughput(self.throughput_points, self.threads_per_multiprocessor)
        for name, value in (("event_pair_gated_excess_ns", self.drain_ns), ("event_pair_graph_excess_ns", self.graph_event_ns)):
            if value < 0:
                raise DeviceError(
                    f"cost model: {name} = {getattr(self, name)} is {-value:g} ns less than the gaps and events that it is made of",
                    hint="check kernel_gap_ns, graph_node_gap_ns and event_pair_empty_ns, which were measured apart from it",
                )

    @classmethod
    def load(cls, source: str | Path = "h200") -> CostModel:
        """Read a cost model: a built-in one by name, or any by the path of its JSON file.

        Raises
        ------
        DeviceError
            There is no such model, or its file is not a cost model.
        """
        path = Path(source)
        if path.suffix != ".json" and path.name == str(source):
            return _built_in(path.name)
        return _read(path, source)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CostModel:
        """Make a cost model from the values of `to_dict`.

        Raises
        ------
        DeviceError
            A key is missing or unknown, or a value impossible.
        """
        if not isinstance(values, Mapping):
            raise DeviceError(f"a cost model is a mapping of names to numbers, not {type(values).__name__}")
        _check_keys("cost model", values, cls)
        origin = values["provenance"]
        if not isinstance(origin, Mapping):
            raise DeviceError(f"cost model: provenance is {origin!r}, expected a mapping")
        _check_keys("cost model's provenance", origin, Provenance)
        return cls(**{**values, "provenance": Provenance(**origin)})

    def to_dict(self) -> dict[str, Any]:
        """Return the model as JSON values."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        points = {key: [list(point) for point in value] for key, value in values.items() if key.endswith("_points")}
        products = {name: times.to_list() for name, times in self.product_times.items()}
        return values | points | {"product_times": products, "provenance": asdict(self.provenance)}

    @property
    def drain_ns(self) -> float:
        """From the end of a kernel until an event behind it can be recorded: a gated pair reads gap + kernel + drain + event."""
        return self.event_pair_gated_excess_ns - self.event_pair_empty_ns - self.kernel_gap_ns

    @property
    def graph_event_ns(self) -> float:
        """Duration of an event-record node: a pair in a graph reads gap + kernel + gap + event."""
        return self.event_pair_graph_excess_ns - 2 * self.graph_node_gap_ns

    def throughput(self, load: float) -> float:
        """Return the fraction of its full throughput that a multiprocessor reaches with ``load`` resident threads."""
        return 1.0 if load >= self.throughput_points[-1][0] else interpolate(self.throughput_points, load)

    def efficiency(self, load: float) -> float:
        """Return the throughput that each resident thread gets; it falls as ``load`` grows."""
        first_threads, first_fraction = self.throughput_points[1]
        return first_fraction / first_threads if load <= first_threads else self.throughput(load) / load

    def kernel_ns(self, cost: Cost) -> float:
        """Return how long a kernel takes alone, in ns, as it was measured or by a model.

        A product takes its table's time, but no less than its bytes. Any other kernel takes a start, its stages, and its bytes; its
        flops at the arithmetic rate, where that is longer; and no less than the shortest kernel. Rates are those that its blocks can reach
        (roofline model, Williams, Waterman and Patterson 2009, with a load-dependent roof; bytes under way by Little's law).
        """
        if cost.alone_ns is not None:
            return cost.alone_ns
        if not (cost.bytes or cost.flops):
            return self.null_kernel_ns
        table = self._table(cost)
        if table is not None and cost.product is not None:
            return max(table.of(cost.product), self._start_ns(cost) + cost.bytes / self._rate_gb_s(cost))
        return max(self.working_kernel_ns, self._start_ns(cost) + self._moving_ns(cost), self._computing_ns(cost))

    def copy_ns(self, cost: Cost, kind: LaunchKind) -> float:
        """Return how long a copy between host and device takes alone, in ns.

        Raises
        ------
        DeviceError
            ``kind`` is not a copy.
        """
        if kind is LaunchKind.KERNEL:
            raise DeviceError("a kernel was priced as a copy", hint="use kernel_ns for kernels")
        if cost.alone_ns is not None:
            return cost.alone_ns
        if kind is LaunchKind.COPY_IN:
            return self.copy_in_latency_ns + cost.bytes / self.bus_in_gb_s
        return self.copy_out_latency_ns + cost.bytes / self.bus_out_gb_s

    def estimate_ns(self, launch: Launch) -> float:
        """Return how long a launch takes alone, in ns, all its kernels or its copy, without gaps between."""
        return sum(piece.alone_ns for piece in self.pieces(launch))

    def call_ns(self, launch: Launch) -> float:
        """Return the host's time for launching it, in ns; see `Prices`."""
        if not launch.library:
            return self.launch_ns * len(launch.cost.kernels)
        if launch.cost.product is None:
            return self.library_launch_ns
        return self.matmul_launch_ns if launch.cost.product.kind == "matmul" else self.convolution_launch_ns

    def tail_ns(self, launch: Launch) -> float:
        """Return 0: the host time of libraries after their launch is not known; see `Prices`."""
        return 0.0

    def pieces(self, launch: Launch) -> tuple[KernelCost, ...]:
        """Return a launch's kernels, or its copy; see `Prices`."""
        key = launch.cost, launch.kind
        found = self._known.get(key)
        if found is None:
            if launch.kind is LaunchKind.KERNEL:
                found = tuple(KernelCost(self.kernel_ns(cost), cost) for cost in launch.cost.kernels)
            else:
                found = (KernelCost(self.copy_ns(launch.cost, launch.kind), launch.cost),)
            self._remember(self._known, key, found)
        return found

    @cached_property
    def _known(self) -> dict[tuple[Cost, LaunchKind], tuple[KernelCost, ...]]:
        """Costs of launches: programs have few different ones, and planners ask for each many times."""
        return {}

    @cached_property
    def _held(self) -> dict[Cost, Residency]:
        return {}

    @staticmethod
    def _remember(known: dict[Any, Any], key: Any, found: Any) -> None:
        if len(known) >= _MOST_KNOWN:
            known.clear()
        known[key] = found

    def residency(self, cost: Cost, busy: float | None = None) -> Residency:
        """Return a kernel's occupancy; one that mostly starts and waits holds the chip for the rest of its time only.

        One of which a multiprocessor holds a block or two keeps them for all its time.
        """
        if busy is None and cost in self._held:
            return self._held[cost]
        launched, asked = as_launched(cost), busy
        held, whole, half = self._resident_blocks(launched), launched.per_multiprocessor == 1, launched.per_multiprocessor == 2
        if busy is None and (whole or half):
            busy = 1.0
        elif busy is None:
            alone_ns = self.kernel_ns(cost)
            if cost.alone_ns is not None:
                working_ns = alone_ns - self.working_kernel_ns
            elif cost.bytes or cost.flops:
                working_ns = max(alone_ns - self._start_ns(cost), self._computing_ns(cost))
            else:
                working_ns = 0.0
            busy = min(max(working_ns / alone_ns, 0.0), 1.0) if alone_ns else 0.0
        found = Residency(held.multiprocessors * busy, held.threads * busy, whole, half)
        if asked is None:
            self._remember(self._held, cost, found)
        return found

    def graph_launch_ns(self, nodes: int, copies: int = 0, branching: Branching | None = None) -> float:
        """Return the host's time for launching a graph of so many nodes, ``copies`` of them copies to or from the host, in ns."""
        return interpolate(self.graph_launch_points, nodes) + copies * self.graph_copy_call_ns + self.graph_branching_ns(branching)

    def graph_branching_ns(self, branching: Branching | None) -> float:
        """Return how much of that a graph's branches take, after its first root is on the device."""
        if branching is None:
            return 0.0
        return (len(branching.roots) - 1) * self.graph_root_ns + (branching.leaves - 1) * self.graph_leaf_ns

    def graph_instantiate_ns(self, nodes: int) -> float:
        """Return the host's time for instantiating a graph of so many nodes, in ns."""
        return interpolate(self.graph_instantiate_points, nodes)

    def _resident_blocks(self, cost: Cost) -> Residency:
        threads = min(max(cost.threads, 1), LARGEST_BLOCK)
        each = max(1, min(self.threads_per_multiprocessor // threads, cost.per_multiprocessor or self.blocks_per_multiprocessor))
        blocks = min(max(cost.blocks, 1), each * self.multiprocessors)
        return Residency(min(blocks, self.multiprocessors), blocks * threads)

    def _table(self, cost: Cost) -> ProductTimes | None:
        return None if cost.product is None else self.product_times.get(table_of(cost.product))

    def _start_ns(self, cost: Cost) -> float:
        """Return a kernel's time beside its bytes: start, end and stages."""
        return max(self.working_kernel_ns - _REFERENCE_BYTES / self.thread_gb_s, 0.0) + cost.stages * self.stage_ns

    def _moving_ns(self, cost: Cost) -> float:
        """Return how long the bytes of a kernel take: at the rate of memory or cache, and of the threads that wait for them."""
        held, touched = self._resident_blocks(cost), max(cost.bytes, cost.touched_bytes)
        threads_ns = touched / (held.threads * self.thread_gb_s)
        waiting_ns = (cost.blocks / self.multiprocessors - 1) * cost.stages * self.stage_block_ns
        # Near where they are equal, both limits show.
        return max(math.hypot(self._transfer_ns(cost), threads_ns), waiting_ns)

    def _transfer_ns(self, cost: Cost) -> float:
        """Return how long the bytes take at the rate of the cache, and of memory where the cache has them no more."""
        touched, largest = max(cost.bytes, cost.touched_bytes), self.cache_mb * 1e6
        missing = [(nbytes, read) for nbytes, since, read in cost.reuse if since > largest]
        cold = touched if touched > largest else min(touched, sum(nbytes for nbytes, _ in missing))
        # Large kernels were measured with the latency in their rate, and nobody waits for results.
        latency_ns = _MEMORY_LATENCY_NS if any(read for _, read in missing) and touched <= largest else 0.0
        return (touched - cold) / self.cache_gb_s + cold / self.memory_gb_s + latency_ns

    def _rate_gb_s(self, cost: Cost) -> float:
        """Return the bandwidth of memory or, for data that stays there, of the cache."""
        return self.cache_gb_s if max(cost.bytes, cost.touched_bytes) <= self.cache_mb * 1e6 else self.memory_gb_s

    def _computing_ns(self, cost: Cost) -> float:
        held = self._resident_blocks(cost)
        share = held.multiprocessors / self.multiprocessors * self.throughput(held.load)
        on_matrix_units = cost.product is not None and cost.product.dtype == "float16"
        return cost.flops / (1e3 * (self.matrix_tflops if on_matrix_units else self.plain_tflops)) / share


def _read(path: Path, source: str | Path) -> CostModel:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        known = ", ".join(sorted(file.stem for file in _BUILT_IN.glob("*.json")))
        raise DeviceError(f"no cost model {str(source)!r}: {error.strerror}", hint=f"give a path, or one of: {known}") from error
    except ValueError as error:
        raise DeviceError(f"cost model {str(path)!r} is not JSON: {error}", hint="write it with `streamscope calibrate`") from error
    return CostModel.from_dict(values)


@cache
def _built_in(name: str) -> CostModel:
    """Return a built-in model, read once: its tables are long, and every simulated device asks for it."""
    return _read(_BUILT_IN / f"{name}.json", name)


def _check_keys(what: str, values: Mapping[str, Any], kind: type[CostModel | Provenance]) -> None:
    expected = {item.name for item in fields(kind)}
    for problem, keys in (("lacks", expected - set(values)), ("has unknown", set(values) - expected)):
        if keys:
            hint = "measure it anew with `streamscope calibrate`: a file of another version has other numbers"
            raise DeviceError(f"{what} {problem} {', '.join(sorted(keys))}", hint=hint)


def _check_number(name: str, value: object, *, whole: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise DeviceError(f"cost model: {name} is {value!r}, expected a{' whole' if whole else ''} number")
    if not math.isfinite(value) or value <= 0:
        raise DeviceError(f"cost model: {name} is {value!r}, expected a number above 0")


def _check_throughput(points: Points, full_load: int) -> None:
    if points[0] != (0.0, 0.0) or points[-1] != (float(full_load), 1.0):
        raise DeviceError(
            f"cost model: throughput_points go from {points[0]} to {points[-1]}, expected from (0, 0) to ({full_load}, 1)",
            hint="the last point is a multiprocessor with all its threads resident",
        )
    steepness = slopes(points)
    rounding = 1e-9 * steepness[0]
    if steepness[-1] < 0 or any(later > earlier + rounding for earlier, later in pairwise(steepness)):
        raise DeviceError("cost model: throughput_points must rise ever more slowly", hint="more threads never make each of them faster")
