"""A bench for the simulated device: kernels of a stated duration, and a model with round numbers for schedules worked out by hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamscope.devices.cost_model import CostModel
from streamscope.devices.protocol import Call
from streamscope.devices.simulated import Delays, SimulatedDevice
from streamscope.program.launch import Cost, HostCall, Launch, LaunchKind
from streamscope.program.variable import ArraySpec, MemoryPlace

H200 = CostModel.load("h200")
MEASURED = CostModel.load(Path(__file__).with_name("measured.json"))

# Full load is reached at 1,024 threads a multiprocessor; a kernel of 132 blocks of 1,024 threads takes the whole chip.
ROUND = replace(
    H200,
    throughput_points=((0, 0), (1024, 1), (2048, 1)),
    bus_in_gb_s=1.0,
    bus_out_gb_s=2.0,
    bus_both_share=0.5,
    graph_crossing_ns=30.0,
    graph_dispatch_ns=3.0,
    graph_root_ns=11.0,
    graph_leaf_ns=5.0,
    graph_copy_call_ns=20.0,
    copy_in_latency_ns=100,
    copy_out_latency_ns=100,
    null_kernel_ns=1,
    working_kernel_ns=1,
    kernel_gap_ns=10,
    launch_latency_ns=50,
    graph_launch_latency_ns=25,
    graph_node_gap_ns=2,
    event_pair_empty_ns=20,
    event_pair_gated_excess_ns=35,  # 10 gap + 5 drain + 20 event
    event_pair_graph_excess_ns=10,  # 2 gap + 2 gap + 6 event
    launch_ns=100,
    library_launch_ns=1000,
    event_record_ns=30,
    event_create_ns=1,
    event_query_ns=3,
    stream_wait_ns=7,
    synchronize_return_ns=40,
    graph_launch_points=((1, 60), (1000, 60)),
    graph_instantiate_points=((1, 500), (1000, 500)),
)


class Bench:
    """One device with short ways to make what goes on it."""

    def __init__(self, model: CostModel, delays: Delays | None = None) -> None:
        self.device = SimulatedDevice(model, delays=delays)
        self.device.log.enabled = True
        self.model = model
        self._launches = 0

    def cost(self, ns: float, *, blocks: int = 132, threads: int = 1024) -> Cost:
        """Return the cost of a kernel that takes ``ns`` alone."""
        probe = Cost(bytes=0, flops=10**15, blocks=blocks, threads=threads)
        return replace(probe, flops=round(probe.flops * ns / self.model.kernel_ns(probe)))

    def buffer(self, values: Any = 0.0, *, dtype: str = "float64", place: MemoryPlace = MemoryPlace.DEVICE) -> Any:
        array = np.asarray(values, dtype=dtype)
        buffer = self.device.allocate(ArraySpec(array.shape, array.dtype), place)
        self.device.write(buffer, array)
        return buffer

    def launch(self, *, kind: LaunchKind = LaunchKind.KERNEL, cost: Cost, name: str = "", **fields: Any) -> Launch:
        self._launches += 1
        values = {"reads": (), "writes": (), "reference": lambda _: [], "part": 0} | fields
        return Launch(operation=self._launches - 1, name=name or f"launch {self._launches - 1}", kind=kind, cost=cost, **values)

    def kernel(self, stream: Any, ns: float, *, blocks: int = 132, threads: int = 1024, name: str = "") -> Call:
        """Bind a kernel that only takes time."""
        return self.device.bind(self.launch(cost=self.cost(ns, blocks=blocks, threads=threads), name=name), [], [], stream)

    def copy(self, stream: Any, kind: LaunchKind, nbytes: int) -> Call:
        """Bind a copy that only takes time."""
        return self.device.bind(self.launch(kind=kind, cost=Cost(bytes=nbytes)), [], [], stream)

    def compute(self, stream: Any, function: Callable[..., Any], reads: Sequence[Any], writes: Sequence[Any], **fields: Any) -> Call:
        """Bind a kernel of 200 ns (or ``ns``) that computes ``function(*reads)`` into the one buffer that it writes."""
        cost = self.cost(fields.pop("ns", 200.0), blocks=1, threads=32)
        ids = {"reads": tuple(range(len(reads))), "writes": tuple(range(len(writes)))}
        launch = self.launch(cost=cost, **({"reference": lambda arrays: [function(*arrays)]} | ids | fields))
        return self.device.bind(launch, reads, writes, stream)

    def host(self, function: Callable[..., Any], reads: Sequence[Any], writes: Sequence[Any], duration_ns: float = 1000.0) -> Call:
        call = HostCall(0, "host step", tuple(range(len(reads))), tuple(range(len(writes))), function, duration_ns)
        return self.device.bind_host(call, reads, writes)

    def value(self, buffer: Any) -> float:
        return self.device.read(buffer).item()

    def spans(self) -> list[tuple[float, float]]:
        """Return start and end of everything logged, in the order of the launches' ids."""
        ordered = sorted(self.device.log, key=lambda record: (record.replay, record.operation))
        return [(record.start_ns, record.end_ns) for record in ordered]


@pytest.fixture
def bench() -> Bench:
    """Return a bench with round numbers."""
    return Bench(ROUND)


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    """Return what makes a bench of any model: ``make_bench(delays, base="round" | "h200" | "measured", **changes of the model)``."""

    def make(delays: Delays | None = None, *, base: str = "round", **changes: Any) -> Bench:
        return Bench(replace({"round": ROUND, "h200": H200, "measured": MEASURED}[base], **changes), delays)

    return make
