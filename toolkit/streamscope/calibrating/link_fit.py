"""A link model from the readings of `link_costs`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from operator import itemgetter
from statistics import fmean, median
from typing import Any

from streamscope.calibrating.link_steps import BETWEEN, HELD_OUT
from streamscope.devices.cost_model import CostModel, Provenance
from streamscope.devices.link_model import COLLECTIVES, NEIGHBOURS, PRIORITIES, LinkModel
from streamscope.devices.measured_models import host_name, model_of
from streamscope.errors import DeviceError

_SHORT_BYTES = 1 << 16
"""Calls of up to so many bytes are timed."""

_MIDDLING_BYTES = 1 << 20
"""Up to so many bytes, gaps are not lost in the durations."""
_RING = ("all_reduce", "all_gather", "reduce_scatter")

_Points = list[tuple[float, float]]
_Reading = Mapping[str, Any]
_Steps = Mapping[str, list[_Reading]]


def fitted_links(found: Mapping[str, Any]) -> LinkModel:
    """Make a link model of the readings of `link_costs.link_readings`.

    Raises
    ------
    DeviceError
        A step that it needs has no readings.
    """
    steps, gpus = found["steps"], found["gpus"]
    needed = ("machine", *COLLECTIVES, "peer_copies", "host_copies", "neighbours")
    missing = [step for step in needed if not steps.get(step)]
    if missing:
        raise DeviceError(f"no readings of {', '.join(missing)}", hint=str(found["errors"].get(missing[0], "the time was up; try again")))
    machine = steps["machine"][0]
    costs = _costs(found)
    gaps = _gaps(steps, gpus, costs)
    values: dict[str, Any] = {
        "collective_points": {gpus: {kind: _durations(_tabled(steps, kind), costs) for kind in COLLECTIVES}},
        "channel_points": {gpus: {kind: _channels(steps[kind]) for kind in COLLECTIVES}},
        "channel_threads": max(max(each["threads"]) for each in steps["all_reduce"]),
        "hop_ns": _hop_ns(steps, gpus),
        "call_points": _calls(steps, gpus),
        "peer_points": _copies(steps, costs),
        **_graphs(steps, costs),
        **gaps,
        **_neighbours(steps["neighbours"]),
    }
    return LinkModel(**values, provenance=_provenance(machine, found["date"], gpus, _how(gpus, costs, gaps)))


def _tabled(steps: _Steps, kind: str) -> list[_Reading]:
    """Return the readings of a collective at powers of 2, the smallest first; those between are for checks of the table."""
    between = [each for each in steps.get("more_sizes", []) if each["kind"] == kind and each["nbytes"] in BETWEEN]
    return sorted([*steps[kind], *between], key=itemgetter("nbytes"))


def _durations(readings: Iterable[_Reading], costs: CostModel) -> _Points:
    """Return size and duration of operations on a stream, without the gap to the next; a smaller one never takes more time.

    A host that is held up makes a reading long: on 4 GPUs, 64 KiB took 263 µs once, and 128 KiB 11.
    """
    timed = [each for each in readings if "stream_ns" in each]
    pairs = [(float(each["nbytes"]), max(1.0, max(each["stream_ns"]) - costs.kernel_gap_ns)) for each in timed]
    shortest = [*accumulate((ns for _, ns in reversed(pairs)), min)]
    return [(nbytes, _whole(ns)) for (nbytes, _), ns in zip(pairs, reversed(shortest), strict=True)]


def _channels(readings: Iterable[_Reading]) -> _Points:
    return [(float(each["nbytes"]), float(max(each["blocks"]))) for each in readings if each.get("blocks")]


def _hop_ns(steps: _Steps, gpus: int) -> float:
    """Return the time of a step of a ring: an all-reduce of few bytes takes as many more as there are other GPUs."""
    short = _SHORT_BYTES // 16
    times = {kind: [max(each["stream_ns"]) for each in steps[kind] if each["nbytes"] <= short] for kind in _RING}
    reduced, *others = (times[kind] for kind in _RING)
    longer = [both - one for other in others for both, one in zip(reduced, other, strict=True)]
    return _whole(max(1.0, median(longer) / (gpus - 1)))


def _graphs(steps: _Steps, costs: CostModel) -> dict[str, float]:
    """Return the times of a graph over several GPUs beyond those of its nodes, and the host's time for its launch; the rest as built in."""
    short = [each for kind in COLLECTIVES for each in steps[kind] if each["nbytes"] <= _SHORT_BYTES and "graph_ns" in each]
    built_in = LinkModel.load()
    return {
        "graph_call_ns": _whole(median(each["graph_call_ns"] for each in short)),
        "graph_join_ns": _whole(max(1.0, median(each["graph_alone_ns"] - each["graph_ns"] for each in short))),
        "graph_behind_ns": _behind_ns(steps, costs),
        **{name: getattr(built_in, name) for name in _GAPS},
    }


def _behind_ns(steps: _Steps, costs: CostModel) -> float:
    """Return by how much collectives in a graph follow each other later than kernels do."""
    found = []
    for kind in COLLECTIVES:
        alone = dict(_durations(steps[kind], costs))
        found += [
            each["graph_ns"] - alone[each["nbytes"]] for each in steps[kind] if "graph_ns" in each and each["nbytes"] <= _MIDDLING_BYTES
        ]
    return _whole(max(1.0, median(found) - costs.graph_node_gap_ns))


_GAPS = {
    "graph_gpu_ns": "by how much launching a graph takes longer for each GPU beyond the second",
    "graph_part_ns": "by how much launching a graph takes longer for each part of an all-reduce, median",
    "graph_collective_ns": "chains of additions and all-reduces in turns in a graph, less chains of each, median",
    "graph_copy_ns": "2/9 of what chains of additions with copies there and back in a graph take beyond both, as in recordings by CUPTI",
    "graph_arrival_ns": "7/9 of what chains of additions with copies there and back in a graph take beyond both",
}


def _gaps(steps: _Steps, gpus: int, costs: CostModel) -> dict[str, float]:
    """Return the costs among `_GAPS` that were measured, from chains of two sorts of nodes in turns and a chain of each."""
    kinds: dict[str, list[_Reading]] = {}
    for each in steps.get("graph_gaps", []):
        kinds.setdefault(each["kind"], []).append(each)
    found = {}
    if launches := {each["gpus"]: each["both"]["launch_ns"] for each in kinds.get("kernels", []) if gpus > 2}:
        found["graph_gpu_ns"] = (launches[gpus] - launches[2]) / (gpus - 2)
    if reduced := kinds.get("all_reduce"):
        found["graph_part_ns"] = median(each["alone"]["call_ns"] for each in reduced) / gpus
        later = median(each["both"]["ns"] - each["kernels"]["ns"] - each["alone"]["ns"] for each in reduced)
        found["graph_collective_ns"] = later + _behind_ns(steps, costs)
    if copied := kinds.get("copy"):
        direct = dict(_durations(_one_way(steps["peer_copies"]), costs))
        later = median(each["both"]["ns"] / 2 - each["kernels"]["ns"] - direct[each["nbytes"]] for each in copied) - costs.graph_node_gap_ns
        found |= {"graph_copy_ns": later * 2 / 9, "graph_arrival_ns": later * 7 / 9}
    return {name: _whole(max(1.0, ns)) for name, ns in found.items()}


def _calls(steps: _Steps, gpus: int) -> _Points:
    """Return the host's time of a grouped call, taken as proportional to the GPUs."""
    short = [each["call_ns"] for kind in COLLECTIVES for each in steps[kind] if each["nbytes"] <= _SHORT_BYTES]
    each_ns = float(median(short)) / gpus
    return [(1.0, _whole(each_ns)), (float(gpus), _whole(gpus * each_ns))]


def _one_way(readings: Iterable[_Reading]) -> list[_Reading]:
    return [each for each in readings if each["direction"] == "one"]


def _copies(steps: _Steps, costs: CostModel) -> dict[str, _Points]:
    """Return the copies of each link. Those over PCIe, which a host with NVLink does not make, are priced as the bus to the host."""
    direct, through = (_durations(_one_way(steps[step]), costs) for step in ("peer_copies", "host_copies"))
    start_ns = direct[0][1]
    pcie = [(nbytes, _whole(start_ns + nbytes / costs.bus_out_gb_s)) for nbytes, _ in direct]
    return {"nvlink": direct, "pcie": pcie, "host": through}


def _neighbours(readings: Iterable[_Reading]) -> dict[str, Any]:
    """Return the speeds of all-reduces and kernels beside each other by priority."""
    rows = [(each["kind"], each["priority"], each["neighbour"], float(each["nbytes"]), each) for each in readings]

    def speeds(side: str, priority: str, neighbour: str) -> _Points:
        chosen = [(nbytes, each) for *key, nbytes, each in rows if key == ["all_reduce", priority, neighbour]]
        return [(nbytes, round(share, 3)) for nbytes, each in chosen if (share := speed_beside(each, side)) is not None]

    def table(side: str) -> dict[str, dict[str, _Points]]:
        return {priority: {neighbour: speeds(side, priority, neighbour) for neighbour in NEIGHBOURS} for priority in PRIORITIES}

    return {"kernel_speed": table("compute"), "collective_speed": table("communication")}


def speed_beside(reading: _Reading, side: str) -> float | None:
    """Return the speed of one side beside the other as a share of its speed alone, mean of the GPUs; None where it was not measured."""
    pairs = list(zip(reading["alone_ns"][side], reading["beside_ns"][side], strict=True))
    return None if any(beside is None for _, beside in pairs) else fmean(alone / beside for alone, beside in pairs)


def _provenance(machine: _Reading, date: str, gpus: int, how: dict[str, str]) -> Provenance:
    cuda, nccl = machine["cuda"], machine["nccl"]
    versions = machine["versions"] | {"nccl": f"{nccl // 10000}.{nccl % 10000 // 100}.{nccl % 100}"}
    driver = f"{machine.get('driver', 'unknown')}, CUDA {cuda // 1000}.{cuda % 1000 // 10}"
    return Provenance(host_name(gpus, machine["devices"][0]), driver, date, versions, how)


def _elsewhere(name: str) -> str:
    """Return where the built-in model has a number from that was not measured here."""
    how = LinkModel.load().provenance
    return how.how[name] if "not measured here" in how.how[name] else f"not measured here: of {how.device}, {how.date[:10]}"


def _how(gpus: int, costs: CostModel, measured: Mapping[str, float]) -> dict[str, str]:
    stream = (
        "measured: 20 or 24 on a stream behind a kernel that hides the host, by events, median of 3 rounds, the slowest GPU; "
        f"less the {costs.kernel_gap_ns:g} ns between kernels of {costs.provenance.device}"
    )
    beside = "measured: chains of both on two streams, median of those that had a neighbour all the time"
    return {
        "collective_points": f"{stream}; float32, {gpus} GPUs, one process and one thread",
        "channel_points": "measured: blocks of the kernel that a graph of one collective has",
        "channel_threads": "measured: the largest block of such a kernel of an all-reduce",
        "hop_ns": "measured: by how much all-reduces of up to 4 KiB take longer than all-gathers and reduce-scatters, median",
        "peer_points": f"{stream}; nvlink: with peer access; host: without it; pcie: not measured, the bus of {costs.provenance.device}",
        "call_points": f"measured: groups of up to 64 KiB over {gpus} GPUs, median; assumed as proportional to the GPUs",
        "graph_call_ns": "measured: graphs of one collective of up to 64 KiB, median",
        "graph_join_ns": "measured: by how much such a graph takes longer than each further collective in it, by events on the first GPU",
        "graph_behind_ns": "measured: by how much longer chains of collectives take in a graph than on a stream, less the gaps of kernels",
        **{name: f"measured: {how}" if name in measured else _elsewhere(name) for name, how in _GAPS.items()},
        "kernel_speed": f"{beside}; a 4096 x 4096 float16 product, an addition of 67 million float32",
        "collective_speed": beside,
    }


def _whole(value: float) -> float:
    return float(round(value))


def held_out_errors(model: LinkModel, found: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the relative errors of a model, by kind of collective, at the measured sizes that its table does not have."""
    gap_ns = _costs(found).kernel_gap_ns
    errors: dict[str, list[float]] = {kind: [] for kind in COLLECTIVES}
    for each in found["steps"].get("more_sizes", []):
        if each["nbytes"] in HELD_OUT:
            expected_ns = model.collective_ns(each["kind"], each["nbytes"], found["gpus"]) + gap_ns
            errors[each["kind"]].append(expected_ns / max(each["stream_ns"]) - 1)
    return errors


def _costs(found: Mapping[str, Any]) -> CostModel:
    return model_of(found["steps"]["machine"][0]["devices"][0])
