"""Measure a cost model on the GPU of this machine, for ``streamscope calibrate``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from streamscope.calibrating.cost_probes import MULTIPLY_ADDS, Call, Probes, slope
from streamscope.calibrating.kernel_sweep import START, fitted_rates, kernel_steps
from streamscope.calibrating.launch_times import LaunchTimer
from streamscope.calibrating.product_sweep import product_steps, table
from streamscope.calibrating.program_times import ProgramTimes, program_times
from streamscope.devices.cost_model import CostModel
from streamscope.devices.cuda.device import CudaDevice
from streamscope.devices.cuda.streams import CudaEvent
from streamscope.devices.measured_models import built_in_model
from streamscope.errors import RecordingError
from streamscope.recording.calibration import calibrate
from streamscope.trace.info import library_versions

if TYPE_CHECKING:
    from streamscope.devices.protocol import Device, Stream

_GRAPH_SIZES = (1, 20, 100, 1000)
_RESIDENT_BLOCKS = (1, 2, 4, 6, 8)
SMALL_ELEMENTS = 4096
_CHAIN_LENGTHS = (10, 200)
ADDITION_SIZES = (1 << 26, 1 << 27)
COPY_BYTES = (1 << 12, 1 << 18, 1 << 23)
_TURNS = 8000
_EFFECTIVE_CACHE = 0.6
"""Share of the L2 cache up to which arrays that are read and written again and again stay there, as measured on an H200."""

_Values = dict[str, Any]
_Readings = dict[str, Any]


def measure_cost_model(device: CudaDevice, progress: Callable[[str], None] = lambda what: None) -> CostModel:
    """Measure every number of a cost model; ``progress`` is called with the name of the next measurement."""
    probes = Probes(device)
    readings: _Readings = {}
    for what, section in _SECTIONS.items():
        progress(what)
        readings |= section(device, probes)
    values: _Values = {}
    how: dict[str, str] = {}
    for derived, method in _derived(readings, device.info.name):
        values |= derived
        how |= dict.fromkeys(derived, method)
    details = device.info.details
    values["provenance"] = {
        "device": device.info.name,
        "driver": f"CUDA {details['driver'] // 1000}.{details['driver'] % 1000 // 10}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": library_versions(),
        "how": how,
    }
    model = CostModel.from_dict(values)
    rates = {name: float(f"{rate:.3g}") for name, rate in fitted_rates(model, readings["kernels"]).items()}
    return replace(model, **rates)  # type: ignore[arg-type]


def _chip(device: CudaDevice, probes: Probes) -> _Readings:
    return {"properties": device.properties, "queue_depth": probes.queue_depth()}


def _host_calls(device: CudaDevice, probes: Probes) -> _Readings:
    return {
        "event_query_ns": probes.host_ns(CudaEvent(timing=False).done),
        "event_create_ns": probes.host_ns(partial(CudaEvent, timing=False)),
        "programs": program_times(cast("Device", device)),
    }


def _streams(device: CudaDevice, probes: Probes) -> _Readings:
    add = probes.addition(SMALL_ELEMENTS)

    def chain(length: int) -> None:
        for _ in range(length):
            add()

    each, _ = slope(_CHAIN_LENGTHS, [probes.gated_ns(partial(chain, length)) for length in _CHAIN_LENGTHS])
    calibration = calibrate(cast("Device", device))
    return {
        "chain_each": each,
        "empty_pair": calibration.empty_pair_ns,
        # The readings themselves: what to take off is known only at the end.
        "queued_pair": calibration.queued_excess_ns + calibration.reference_kernel_ns,
        "graph_pair": calibration.graph_excess_ns + calibration.reference_in_graph_ns,
    }


def _graphs(device: CudaDevice, probes: Probes) -> _Readings:
    add = probes.addition(SMALL_ELEMENTS)
    instantiate, extents = [], []
    for nodes in _GRAPH_SIZES:
        graphs = [probes.graph(add, nodes) for _ in range(5)]
        instantiate.append([nodes, _whole(float(np.median([took for _, took in graphs])))])
        extents.append(probes.gated_ns(partial(graphs[-1][0].launch, probes.stream)))
    each, _ = slope(_GRAPH_SIZES, extents)
    return {"graph_instantiate": instantiate, "graph_each": each}


def _throughput(device: CudaDevice, probes: Probes) -> _Readings:
    multiprocessors = int(device.properties["multiProcessorCount"])
    return {
        "chains": [probes.gated_ns(probes.chains(blocks * multiprocessors, _TURNS, second=False)) for blocks in _RESIDENT_BLOCKS],
        "full_chip": probes.gated_ns(probes.chains(8 * multiprocessors, _TURNS, second=True)),
        "matmul": probes.gated_ns(probes.matmul(8192)),
    }


def _memory(device: CudaDevice, probes: Probes) -> _Readings:
    timer = LaunchTimer(cast("Device", device), cast("Stream", probes.stream))
    return {
        "additions": [probes.gated_ns(probes.addition(size)) for size in ADDITION_SIZES],
        "copies_in": [timer.step_ns(probes.copy(nbytes, 1)) for nbytes in COPY_BYTES],
        "copies_out": [timer.step_ns(probes.copy(nbytes, 2)) for nbytes in COPY_BYTES],
    }


def _kernels(device: CudaDevice, probes: Probes) -> _Readings:
    return {"kernels": kernel_steps(cast("Device", device))}


def _products(device: CudaDevice, probes: Probes) -> _Readings:
    return {"products": dict(product_steps(cast("Device", device)))}


def _shortest_kernels(device: CudaDevice, probes: Probes) -> _Readings:
    return {"null": _cupti_ns(probes.null), "working": _cupti_ns(probes.addition(SMALL_ELEMENTS))}


def _cupti_ns(call: Call) -> float:
    from streamscope.recording.cupti import kernel_durations_ns

    def many() -> None:
        for _ in range(100):
            call()

    durations = kernel_durations_ns(many)
    if len(durations) != 100:
        raise RecordingError(f"CUPTI recorded {len(durations)} of 100 kernels", hint="try again with no other profiler running")
    # The mean, since the clock of the GPU ticks every 32 ns.
    return float(np.mean(durations))


# CUPTI comes last: as long as it is in the process, launching a graph takes the host ten times as long.
_SECTIONS: dict[str, Callable[[CudaDevice, Probes], _Readings]] = {
    "the chip": _chip,
    "host calls": _host_calls,
    "streams and events": _streams,
    "graphs": _graphs,
    "throughput": _throughput,
    "memory and bus": _memory,
    "generated kernels": _kernels,
    "matrix products and convolutions": _products,
    "the shortest kernels": _shortest_kernels,
}


def _derived(r: _Readings, card: str) -> Iterator[tuple[_Values, str]]:
    """Yield numbers of the model of a card with how they were found."""
    properties = r["properties"]
    yield (
        {
            "multiprocessors": int(properties["multiProcessorCount"]),
            "threads_per_multiprocessor": int(properties["maxThreadsPerMultiProcessor"]),
            "blocks_per_multiprocessor": int(properties["maxBlocksPerMultiProcessor"]),
            "memory_gb": round(properties["totalGlobalMem"] / 1e9, 1),
        },
        "asked of the driver",
    )
    yield {"queue_depth": r["queue_depth"]}, "measured: launches of an empty kernel that a held stream takes before the host blocks"
    yield {"null_kernel_ns": _whole(r["null"])}, "measured: an empty kernel of one warp by CUPTI, mean of 100"
    yield {"working_kernel_ns": _whole(r["working"])}, f"measured: addition of {SMALL_ELEMENTS} float32 by CUPTI, mean of 100"
    yield from _derived_host(r)
    # They are measured apart from each other: on an H100 the pair came out 61 ns shorter than the gap and the event that it is made of.
    excess = max(r["queued_pair"] - r["working"], _whole(r["empty_pair"]) + _whole(max(0.0, r["chain_each"] - r["working"])))
    yield (
        {
            "event_pair_empty_ns": _whole(r["empty_pair"]),
            "event_pair_gated_excess_ns": _whole(excess),
            "event_pair_graph_excess_ns": _whole(r["graph_pair"] - r["working"]),
        },
        "measured: 100 pairs of events around the addition, less its duration",
    )
    gaps = {"kernel_gap_ns": r["chain_each"], "graph_node_gap_ns": r["graph_each"]}
    for name, each in gaps.items():
        yield {name: _whole(max(0.0, each - r["working"]))}, "measured: chain of additions behind a gate, or in a graph, less the kernels"
    yield from _derived_rates(r, excess)
    yield (
        dict(START),
        f"fitted: to {len(r['kernels'])} generated kernels: element-wise, reductions, rows, transposes, rows taken; in chains in a graph",
    )
    gap_ns = max(0.0, r["graph_each"] - r["working"])
    products = {name: table(steps, gap_ns).to_list() for name, steps in r["products"].items()}
    yield {"product_times": products}, "measured: chains of 4 and of 16 in a graph, random values, by how much one more takes longer"
    of_h200, of_card = CostModel.load(), built_in_model(card)
    names = ("graph_crossing_ns", "graph_dispatch_ns", "graph_root_ns", "graph_leaf_ns", "graph_copy_call_ns", "bus_both_share")
    yield {name: getattr(of_h200, name) for name in names}, f"not measured here: of {of_h200.provenance.device}"
    yield {"collective_share": of_card.collective_share}, f"not measured here: of {of_card.provenance.device}"


def _derived_host(r: _Readings) -> Iterator[tuple[_Values, str]]:
    names = ("event_query_ns", "event_create_ns")
    yield {name: _whole(r[name]) for name in names}, "measured: least of 7 rounds of 900 calls"
    found = cast("ProgramTimes", r["programs"]).host_costs(r["working"])
    turns = "measured: programs run in turns, medians"
    each = f"{turns}; by how much issuing takes longer for each call more"
    alone = "derived: runs of one kernel, and of kernels with a synchronisation after each, less calls, kernels and returns"
    how = {
        **dict.fromkeys(("launch_ns", "matmul_launch_ns", "convolution_launch_ns"), each),
        **dict.fromkeys(("event_record_ns", "stream_wait_ns"), f"{turns}; half of what both take, where two streams wait for each other"),
        "library_launch_ns": "assumed: as a call of cuBLAS",
        "graph_launch_points": turns,
        "synchronize_return_ns": f"{turns}; a wait for what is done",
        "launch_latency_ns": alone,
        "graph_launch_latency_ns": "derived: replay of one node, less call, kernel and return",
    }
    yield from (({name: value}, how[name]) for name, value in found.items())
    yield {"graph_instantiate_points": r["graph_instantiate"]}, "measured: end of capture, instantiation and upload, median of 5"


def _derived_rates(r: _Readings, excess: float) -> Iterator[tuple[_Values, str]]:
    rates = [blocks / (reading - excess) for blocks, reading in zip(_RESIDENT_BLOCKS, r["chains"], strict=True)]
    curve = [[256.0 * blocks, round(rate / rates[-1], 4)] for blocks, rate in zip(_RESIDENT_BLOCKS, rates, strict=True)]
    chains = "measured: a chain of multiply-adds a thread, 1 to 8 blocks of 256 threads on each multiprocessor; upper concave hull"
    yield {"throughput_points": _concave([[0.0, 0.0], *curve])}, chains
    operations = 2 * MULTIPLY_ADDS * _TURNS * 8 * int(r["properties"]["multiProcessorCount"]) * 256
    arithmetic = "measured: two chains of multiply-adds a thread, float32, full chip"
    yield {"plain_tflops": round(operations / (r["full_chip"] - excess) / 1e3, 1)}, arithmetic
    product = "measured: cuBLAS, 8192 x 8192 float16, random values"
    yield {"matrix_tflops": round(2 * 8192**3 / (r["matmul"] - excess) / 1e3, 1)}, product
    per_element, _ = slope(ADDITION_SIZES, r["additions"])
    yield {"memory_gb_s": round(12 / per_element)}, "measured: addition of 67 and 134 million float32, 12 bytes each, slope"
    cache = round(_EFFECTIVE_CACHE * int(r["properties"]["l2CacheSize"]) / 1e6, 1)
    yield {"cache_mb": cache}, f"asked of the driver: {_EFFECTIVE_CACHE:g} of the L2 cache"
    per_byte, _ = slope(COPY_BYTES[1:], r["copies_in"][1:])
    back, _ = slope(COPY_BYTES[1:], r["copies_out"][1:])
    yield (
        {"bus_in_gb_s": round(1 / per_byte, 1), "bus_out_gb_s": round(1 / back, 1)},
        "measured: page-locked copies of 256 KiB and 8 MiB in a graph, slope",
    )
    gap_ns = max(0.0, r["graph_each"] - r["working"])
    for name, ns, each in (("copy_in_latency_ns", r["copies_in"][0], per_byte), ("copy_out_latency_ns", r["copies_out"][0], back)):
        latency_ns = _whole(max(1.0, ns - COPY_BYTES[0] * each - gap_ns))
        yield {name: latency_ns}, "measured: page-locked copies of 4 KiB in a graph, less their bytes and gaps"


def _concave(points: list[list[float]]) -> list[list[float]]:
    """Return the upper hull of points sorted by their first number: measured noise must not make a curve that bends upwards."""
    hull: list[list[float]] = []
    for x, y in points:
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) <= (y - hull[-2][1]) * (hull[-1][0] - hull[-2][0]):
            hull.pop()
        hull.append([x, y])
    return hull


def _whole(value: float) -> float:
    return float(round(value))
