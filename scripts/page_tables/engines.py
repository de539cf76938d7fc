"""Tables of engines, kernels and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from page_tables.parts import data, least, measured_on, most, recording, table, words_table
from streamscope.analysis.metric import METRICS
from streamscope.analysis.verdict import difference, fastest
from streamscope.words import format_us
from streamscope.workloads import ON_ONE_GPU


def metrics() -> str:
    """Return all metrics of the registry: name, heading, scope and the function that defines each."""
    rows = []
    for name, metric in METRICS.items():
        functions = dict.fromkeys(f"`{each.__name__}`" for each in (metric.function, metric.trace_function))
        rows.append((f"`{name}`", metric.heading, ", ".join(metric.scope), ", ".join(functions)))
    return words_table(("name", "metric", "scope", "function"), rows)


def engines() -> str:
    """Return the makespans of each workload."""
    rows = []
    recordings = {each.name: recording(each.name) for each in ON_ONE_GPU}
    for name, runs in recordings.items():
        metrics = runs.metrics
        winners = fastest(metrics)
        times = [f"**{format_us(m.makespan_us)}**" if engine in winners else format_us(m.makespan_us) for engine, m in metrics.items()]
        rows.append([f"`{name}`", *times, difference(metrics[winners[0]], metrics["async"])])
    return table(["workload", *next(iter(recordings.values())).metrics, "best against async"], rows)


def host_costs() -> str:
    """Return what an operation costs the host, prepared and pushed, beside the peers."""
    prepared, pushed = data("launch_overhead"), data("push_overhead")
    names = {"C loop": "a C loop over `cuLaunchKernel`", "async": "**`async`, prepared**"}
    rows = [[names.get(name, f"`{name}`"), f"{one['median'] / 1000:.1f}"] for name, one in prepared["per_operation_ns"].items()]
    names = {"push, async": "**a push, `async`**", "push, dual": "**a push, `dual`**", "push in bulk, async": "**pushes in bulk, `async`**"}
    rows += [[names[name], f"{one['median']:.1f}"] for name, one in pushed["per_operation_us"].items() if name in names]
    replay = (
        f"\nA replay of `graph` takes {prepared['graph_over_torch_graph']:.2f}× as long as `torch.cuda.CUDAGraph` with the same kernels.\n"
    )
    return table(["issued by", "µs an operation"], rows) + replay + measured_on(prepared)


def kernels() -> str:
    """Return the bandwidth of generated kernels."""

    def row(name: str, rows: Sequence[Any]) -> list[str]:
        against = [one["against_best_peer"] for one in rows]
        mean = float(np.exp(np.mean(np.log(against))))
        return [name, str(len(rows)), least(one["share_of_copy"] for one in rows), f"{mean:.2f}×", f"{most(against)}×"]

    large, shapes, gradients = data("bandwidth"), data("reduction_shapes")["rows"], data("broadcast_gradients")["rows"]
    floats = [one for one in large["rows"] if one["dtype"] != "int8"]
    rows = [
        row("arrays of 256 MiB, float32 and float16", floats),
        row("arrays of 256 MiB, int8", [one for one in large["rows"] if one["dtype"] == "int8"]),
        *(
            row(f"reductions: {kind}", [one for one in shapes if one["kind"] == kind])
            for kind in dict.fromkeys(one["kind"] for one in shapes)
        ),
        row("gradients of what was broadcast", [one for one in gradients if one["kind"] != "of odd columns"]),
        row("the same, odd numbers of columns", [one for one in gradients if one["kind"] == "of odd columns"]),
    ]
    return table(["kernels", "cases", "share", "time, mean", "time, at most"], rows) + measured_on(large)


def compilation() -> str:
    """Return how much faster kernels compile together than one by one."""
    rows = []
    for cores in (16, 2):
        found = data(f"batched_compilation_{cores}_cores")
        assert found["cores"] == cores
        names = {"arithmetic": "128 kernels of arithmetic", "all": "128 kernels of every element-wise operator"}
        rows += [[name, str(cores), f"{found['sets'][key]['faster']:.1f}×"] for key, name in names.items()]
        for name, one in found["programs"].items() if cores == 16 else ():
            alone_s, together_s = one["one_by_one"]["median_s"], one["together"]["16 workers"]["median_s"]
            what = f"a {name} program of {one['kernels']} kernels: {alone_s:.2f} → {together_s:.2f} s"
            rows.append([what, str(cores), f"{alone_s / together_s:.1f}×"])
    disk_ms = max(one["from_disk_ms_a_kernel"] for one in data("batched_compilation_16_cores")["sets"].values())
    told = f"\nKernels that were compiled before come from disk, in {disk_ms:.2f} ms each once NVRTC is loaded.\n"
    return table(["together, not one by one", "cores", "faster"], rows) + told


def convolution() -> str:
    """Return what a second stream does for both gradients of a convolution."""
    found = data("conv_backward_table")
    keys = {"inside a graph": "graph_dual_over_graph", "launched one by one": "dual_over_async"}
    rows = [[name, *(bound(row[key] for row in found["rows"]) + "×" for bound in (least, most))] for name, key in keys.items()]
    return table(["second stream", "least", "most"], rows) + measured_on(found)


TABLES = {
    "engines": engines,
    "host-costs": host_costs,
    "kernels": kernels,
    "compilation": compilation,
    "convolution": convolution,
    "metrics": metrics,
}
