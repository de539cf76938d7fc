"""Tables of simulated and predicted times beside measured ones."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from page_tables.parts import data, measured_on, recording, table
from streamscope.analysis.verdict import fastest
from streamscope.calibrating.link_fit import held_out_errors
from streamscope.comparing.preview import Preview
from streamscope.devices.link_model import COLLECTIVES, LinkModel
from streamscope.devices.measured_models import model_of
from streamscope.engines import engine_names
from streamscope.words import format_us
from streamscope.workloads import ON_ONE_GPU


def simulated_times() -> str:
    """Return how much faster than async engines look on the simulated device and on a GPU."""
    rows = []
    for workload in ON_ONE_GPU:
        name = workload.name
        function, specs = workload.outline()
        simulated = Preview(function.trace(*specs)).comparison(engine_names()).metrics
        real = recording(name).metrics
        cells = []
        for engine in ("graph", "graph-dual"):
            ours, true = (each["async"].makespan_us / each[engine].makespan_us for each in (simulated, real))
            cells.append(f"{ours:.1f}× / {true:.1f}×")
        right = "yes" if set(fastest(real)) <= set(fastest(simulated)) else "no"
        rows.append([f"`{name}`", *cells, right])
    head = ["workload", "`graph` against `async`, simulated / measured", "`graph-dual`", "fastest engine right"]
    return table(head, rows)


def simulated_accuracy() -> str:
    """Return how far simulated makespans are from measured ones, and the times of single launches from theirs."""
    found = data("cost_model_accuracy")
    rows = []
    for engine in found["runs"][0]["errors"]["simulated"]:
        errors = [run["errors"]["simulated"][engine] for run in found["runs"]]
        cells = [f"{100 * one['median']:.0f} % / {100 * one['worst']:.0f} %" for one in errors]
        rows.append([f"`{engine}`" if engine != "all" else "all engines", *cells])
    counts = [f"{len(run['programs'])} programs, {run['date'][:10]} {run['date'][11:16]}" for run in found["runs"]]
    makespans = table(["makespans, median / worst error", *counts], rows)
    launches = [
        [family, str(one["count"]), *(f"{100 * one[what]:.0f} %" for what in ("median", "p90", "worst"))]
        for family, one in found["launches"]["errors"].items()
    ]
    alone = table(["launches alone", "cases", "median error", "90 % within", "worst"], launches)
    return makespans + "\n" + alone + measured_on(found["launches"])


_LINK_SIZES = {1 << 10: "1 KiB", 1 << 16: "64 KiB", 1 << 20: "1 MiB", 1 << 24: "16 MiB", 1 << 30: "1 GiB"}


def link_times() -> str:
    """Return how long collectives and copies between two GPUs take, and their bus bandwidth at the largest size."""
    links = LinkModel.load("h100")
    rows = []
    for kind in COLLECTIVES:
        times = [format_us(links.collective_ns(kind, nbytes, 2) / 1e3) for nbytes in _LINK_SIZES]
        rows.append([kind.replace("_", "-"), *times, f"{links.bus_gb_s(kind, 1 << 30, 2):.0f}"])
    for link, name in (("nvlink", "copy over NVLink"), ("host", "copy without peer access")):
        times = ["", *(format_us(links.peer_copy_ns(nbytes, link) / 1e3) for nbytes in list(_LINK_SIZES)[1:])]
        rows.append([name, *times, f"{(1 << 30) / links.peer_copy_ns(1 << 30, link):.0f}"])
    origin = links.provenance
    measured = f"\n{origin.device}, driver {origin.driver}, NCCL {origin.versions['nccl']}, {origin.date[:10]}.\n"
    return table(["µs", *_LINK_SIZES.values(), "GB/s at 1 GiB"], rows) + measured


def link_accuracy() -> str:
    """Return the errors of the link model, where its table has no entry, and in graphs."""
    found, links = data("link_costs"), LinkModel.load("h100")
    rows = []
    for what, by_kind in (("sizes between", held_out_errors(links, found)), ("in a graph", _graph_errors(links, found))):
        for kind, errors in [*by_kind.items(), ("all", list(chain.from_iterable(by_kind.values())))]:
            sizes = sorted(map(abs, errors))
            rows.append(
                [
                    f"{what}: {kind.replace('_', '-')}",
                    str(len(sizes)),
                    *(f"{100 * one:.1f} %" for one in (statistics.median(sizes), sizes[-1])),
                ]
            )
    return table(["collectives", "cases", "median error", "worst"], rows)


def _graph_errors(links: LinkModel, found: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the relative errors of the link model, by kind, against chains in graphs, of which it has the gap alone."""
    gap_ns = model_of(found["steps"]["machine"][0]["devices"][0]).graph_node_gap_ns + links.graph_behind_ns
    times = {kind: [(each["nbytes"], each["graph_ns"]) for each in found["steps"][kind] if "graph_ns" in each] for kind in COLLECTIVES}
    return {
        kind: [(links.collective_ns(kind, nbytes, found["gpus"]) + gap_ns) / ns - 1 for nbytes, ns in pairs]
        for kind, pairs in times.items()
    }


def link_neighbours() -> str:
    """Return how fast kernels and all-reduces are beside each other."""
    links = LinkModel.load("h100")
    names = {"matmul": "a 4096 × 4096 product", "elementwise": "an addition of 67 million"}
    priorities = {"equal": "equal", "communication": "communication first"}
    rows = []
    for neighbour, name in names.items():
        for priority, how in priorities.items():
            curves = links.kernel_speed[priority][neighbour], links.collective_speed[priority][neighbour]
            cells = [f"{100 * kernel:.0f} / {100 * one:.0f} %" for (_, kernel), (_, one) in zip(*curves, strict=True)]
            rows.append([f"{name}, {how}", *cells])
    sizes = [f"{nbytes / (1 << 20):.0f} MiB" for nbytes, _ in links.kernel_speed["equal"]["matmul"]]
    return table(["kernel / all-reduce", *sizes], rows)


def predictions() -> str:
    """Return how far predictions from the sync trace are off, host by host, and ResNet-50 under a CUDA graph."""
    found = data("what_if_accuracy")
    hosts = found["hosts"]
    engines = [engine for engine in hosts[0]["rows"][0]["engines"] if engine != "sync"]

    def row(engine: str) -> list[str]:
        def told(some: Iterable[Any], key: str = "error") -> str:
            errors = [abs(each["engines"][engine][key]) for host in some for each in host["rows"]]
            return f"{statistics.median(errors):.1%}, {max(errors):.1%}"

        return [f"`{engine}`", *(told([host]) for host in hosts), told(hosts), told(hosts, "error_after_others")]

    heads = [f"host of {host['date'][11:16]}: {len(host['rows'])} programs" for host in hosts]
    first = table(["error: median, worst", *heads, "all hosts", "after another engine's run"], map(row, engines))
    halves = ", ".join(f"{name} {half['error']['median']:.1%}" for name, half in found["summary"].items())
    steps = [
        [host["date"][11:16], batch, *(f"{r[key]:,.0f} µs" for key in ("eager_us", "predicted_us", "graph_us")), f"{r['error']:+.1%}"]
        for host in hosts
        for batch, r in host.get("resnet50", {"batches": {}})["batches"].items()
    ]
    second = table(["ResNet-50 on the host of", "batch", "eager", "graph predicted", "graph measured", "error"], steps)
    return f"{first}\nMedians of all hosts: {halves}.\n\n{second}{measured_on(found)}"


TABLES = {
    "simulated-times": simulated_times,
    "simulated-accuracy": simulated_accuracy,
    "link-times": link_times,
    "link-accuracy": link_accuracy,
    "link-neighbours": link_neighbours,
    "predictions": predictions,
}
