"""The tables of measured figures in docs/, made from the committed data: between `<!-- measured: NAME -->` and `<!-- end -->`.

    python scripts/measured_tables.py     writes them anew

`tests/project/test_numbers.py` says which tables are old.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np

import streamscope as ss
from streamscope.analysis.metric import METRICS
from streamscope.analysis.verdict import difference, fastest
from streamscope.calibrating.link_fit import held_out_errors
from streamscope.comparing.preview import Preview
from streamscope.devices.link_model import COLLECTIVES, LinkModel
from streamscope.devices.measured_models import model_of
from streamscope.devices.reference import KNOWN_TO_NS
from streamscope.engines import engine_names
from streamscope.recording.events import ALONE_ERROR, BESIDE_ERROR
from streamscope.recording.stamps import STAMPED_ERROR, stamp_excess_ns, stamping_ns
from streamscope.words import format_us
from streamscope.workloads import ON_ONE_GPU

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("accuracy.md", "headlines.md", "metrics.md", "networks.md", "performance.md", "record.md", "your-code.md")
NOISE = 0.03
"""A graph's kernels fit into a run if they take no more than that longer."""
PLACE = re.compile(r"(<!-- measured: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def data(name: str) -> Any:
    """Return a result that was committed."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def recording(name: str) -> ss.Comparison:
    """Return a workload's recording."""
    return ss.load_comparison(ROOT / "notebooks" / "recorded" / name)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown: the first column to the left, the others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def measured_on(result: Any) -> str:
    """Return where and when a result was measured."""
    return f"\n{result['device']}, CUDA {result['details']['driver'] / 1000:.1f}, {result['date'][:10]}.\n"


def least(values: Iterable[float]) -> str:
    """Return the least of some numbers, rounded so that it stays a bound."""
    return f"{math.floor(100 * min(values)) / 100:.2f}"


def most(values: Iterable[float]) -> str:
    """Return the greatest of some numbers, rounded so that it stays a bound."""
    return f"{math.ceil(100 * max(values)) / 100:.2f}"


def metrics() -> str:
    """Return all metrics of the registry: name, heading, scope and the function that defines each."""
    rows = []
    for name, metric in METRICS.items():
        functions = dict.fromkeys(f"`{each.__name__}`" for each in (metric.function, metric.trace_function))
        rows.append((f"`{name}`", metric.heading, ", ".join(metric.scope), ", ".join(functions)))
    return words_table(("name", "metric", "scope", "function"), rows)


def words_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of words in Markdown."""
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *rows))


def recorders() -> str:
    """Return how far each recorder is from a reference, one by one and in graphs, and how often it keeps within the targets, by GPU.

    PyTorch's profiler is the reference, where its run of a graph is not much longer than one that nobody records; elsewhere, stamps are.
    CUPTI, on the same run, is another one for stamps.
    """
    return "\n".join(_recorders(data(name)) for name in ("recorder_accuracy", "recorder_accuracy_h200"))


def _recorders(found: dict[str, Any]) -> str:
    allowed = found["allowed"]
    rows = []
    for key, name, reference in (
        ("auto", "auto", "profiler"),
        ("auto", "auto", "stamps"),
        ("unchecked", "auto, without CUPTI", "profiler"),
        ("events", "events", "profiler"),
        ("stamps", "stamps", "profiler"),
        ("same_run", "stamps", "CUPTI, same run"),
        ("cupti", "cupti", "profiler"),
    ):
        for where, chosen in (("one by one", ("sync", "async", "dual")), ("in a graph", ("graph", "graph-dual"))):
            runs = [each[engine][key] for each in found["programs"].values() for engine in chosen if key in each.get(engine, {})]
            if reference == "stamps":
                runs = [one["against_stamps"] for one in runs if "against_stamps" in one]
            elif where == "in a graph" and reference == "profiler":
                runs = [one for one in runs if one["stretched"] <= found["stretched"]]
            if not runs:
                continue
            busy = [abs(one["busy_error_share"]) for one in runs]
            overlap = [abs(one["overlap_error"]) for one in runs]
            rows.append(
                [
                    f"`{name}`" if "," not in name else "`auto`, without CUPTI",
                    where,
                    reference,
                    f"{np.median([one['duration_error_us'] for one in runs]):.2f} µs",
                    f"{100 * np.median(busy):.1f} % · {share(one <= allowed['busy_share'] for one in busy)}",
                    f"{100 * np.median(overlap):.1f} · {share(one <= allowed['overlap'] for one in overlap)}",
                ]
            )
    head = ["recorder", "launches", "against", "duration", "busy time", "overlap, points"]
    unchecked = [one["unchecked"] for each in found["programs"].values() for one in each.values()]
    held = [_said(one) >= abs(1 - 1 / (1 + _off(one, "busy_error_share"))) for one in unchecked]
    over = [max(one["overlap_may_be_off"], allowed["overlap"]) >= abs(_off(one, "overlap_error")) for one in unchecked]
    widest = max(map(_said, unchecked))
    limits = (
        f"\nEach cell: how far off in the median · how many runs keep within the target: {100 * allowed['busy_share']:.0f} % for busy "
        f"time, {100 * allowed['overlap']:.0f} points for overlap. Graphs whose kernels take the profiler "
        f"{100 * (found['stretched'] - 1):.0f} % longer than a run that nobody records are compared with a recording by stamps instead.\n"
        f"Without CUPTI, the ± of busy time holds the reference in {share(held)} runs, and is at most {100 * widest:.0f} %; "
        f"that of overlap in {share(over)}.\n"
    )
    return table(head, rows) + limits + measured_on(found)


def _said(one: dict[str, Any]) -> float:
    """Return the ± of busy time as a share of it, by today's constants; each recording has those of its day."""
    beside = one["recorder"] == "events" and one["busy_error_us"] / one["busy_us"] > BESIDE_ERROR
    share = STAMPED_ERROR if one["recorder"] == "stamps" else BESIDE_ERROR if beside else ALONE_ERROR
    lengths_us = one["recorded_us"]
    return float(KNOWN_TO_NS / 1e3 * len(lengths_us) / sum(lengths_us)) + share


def _off(one: dict[str, Any], name: str) -> float:
    """Return how far a recording is from its reference: stamps, where the profiler has changed the graph."""
    return float(one.get("against_stamps", one)[name])


def stretched_graphs() -> str:
    """Return how long the kernels of a graph take by each recorder, against the run that nobody records."""
    found = data("recorder_accuracy")
    runs = [each[engine] for each in found["programs"].values() for engine in ("graph", "graph-dual") if engine in each]
    rows = []
    for recorder in ("auto", "events", "stamps", "cupti", "PyTorch's profiler"):
        ratios = [
            each[recorder]["extent_us"] / each[recorder]["unrecorded_us"]
            if recorder in each
            else float(np.median(each["events"]["profiler_extent_us"])) / each["events"]["unrecorded_us"]
            for each in runs
        ]
        name = f"`{recorder}`" if recorder in runs[0] else recorder
        rows.append([name, f"{np.median(ratios):.2f}×", f"{max(ratios):.2f}×", share(ratio <= 1 + NOISE for ratio in ratios)])
    one = found["programs"]["branches"]["graph-dual"]["stamps"]
    profiler_us, overlap = (float(np.median(one[f"profiler_{what}"])) for what in ("busy_us", "overlap"))
    told = (
        f"\nA run of `branches` under `graph-dual` takes {format_us(one['unrecorded_us'])} µs when nobody records it. "
        f"The profiler shows {format_us(profiler_us)} µs of busy time, {100 * overlap:.0f} % of it with overlap. "
        f"Stamps show {format_us(one['busy_us'])} µs, {100 * one['overlap']:.0f} % of it with overlap.\n"
    )
    return table(["recorder", "median", "most", "fits into the run"], rows) + told + measured_on(found)


def share(kept: Iterable[bool]) -> str:
    """Return how many of some are true: ``3 of 4``."""
    listed = list(kept)
    return f"{sum(map(bool, listed))} of {len(listed)}"


def record_cost() -> str:
    """Return what a step takes while it is recorded, beside PyTorch's profiler."""
    found = data("record_cost")
    ways = {"not recorded": None, "`ss.record`": "ss.record", "`torch.profiler`, CUDA activities": "torch.profiler"}
    rows = []
    for name, one in found["steps"].items():
        times = [one["fresh_us"] if way is None else one["step_us"][way] for way in ways.values()]
        rows.append([name, *map(format_us, times)])
    return table(["a step, µs", *ways], rows) + measured_on(found)


def stacks_cost() -> str:
    """Return what a step takes while it is recorded with lines, and of how many kernels the line is right."""
    found = data("code_times")
    rows = [
        [
            name,
            *(format_us(one["step_us"][way]) for way in ("plain", "ss.record", "stacks")),
            f"{one['dearer']:.0%}",
            " to ".join(f"{each:.0%}" for each in one["spread"]),
        ]
        for name, one in found["cost"].items()
    ]
    right, kernels = found["right_lines"]
    apart = max(one["step_us"]["stacks"] / one["step_us"]["ss.record"] - 1 for one in found["cost"].values())
    pairs = (
        "\n*Dearer* is the median over 40 pairs of recordings in turns, with its quartiles. Times are medians of all steps, "
        f"whose ratio is {apart:.0%} at most.\n"
    )
    said = f"{pairs}\nOf {kernels} kernels of five networks whose lines stand in ranges, {right} have the right line.\n"
    return (
        table(["a step, µs", "not recorded", "`ss.record`", "with `stacks=True`", "dearer", "quartiles"], rows) + said + measured_on(found)
    )


def code_times() -> str:
    """Return how far times by line and module are from PyTorch's events."""
    found = data("code_times")
    off = {by: sorted(one[by]["tree"]["off"] for one in found["times"].values()) for by in ("line", "module")}
    rows = [
        [f"by {by}", f"{statistics.median(each):.2%}", f"{each[-1]:.1%}", f"{sum(one <= 0.01 for one in each)} of {len(each)}"]
        for by, each in off.items()
    ]
    return table(["time in another row", "median", "worst", "within 1 %"], rows) + measured_on(found["times_on"])


def networks() -> str:
    """Return how long forward passes of whole networks take, by engine and in PyTorch's ways."""
    return network_times("forward pass in float16, µs", training=False)


def network_training() -> str:
    """Return the same of training steps."""
    return network_times("training step, float16, µs", training=True)


def network_times(head: str, *, training: bool) -> str:
    """Return a table of ways by network, each measured on a card of its own."""
    every = data("networks_against_pytorch")["times"]
    cases = {name.removesuffix(", training step"): one for name, one in every.items() if name.endswith(", training step") == training}
    made = [one["made"] for one in cases.values()]
    rows = []
    for way in next(iter(cases.values()))["times"]:
        name = f"`{way}`" if way[0].islower() else way
        rows.append([name, *(format_us(one["times"][way]["median_us"]) for one in cases.values())])
    heads = [f"{name}, {one['device'].split()[1]}" for name, one in zip(cases, made, strict=True)]
    cards = " and ".join(sorted({one["device"] for one in made}))
    return table([head, *heads], rows) + measured_on(made[0] | {"device": cards})


def network_kernels() -> str:
    """Return the time of the transformer's graphs by kind of kernel, with the number of kernels, and the time between them."""
    found = data("networks_against_pytorch")["times"]["transformer, batch 1"]
    ways = {way: one for way, one in found["kernels"].items() if "dual" not in way}  # Kernels side by side have no sum.
    kinds = dict.fromkeys(kind for one in ways.values() for kind in one["kinds"])

    def cell(parts: Sequence[Mapping[str, Any]]) -> str:
        return f"{sum(part['us'] for part in parts):.0f} ({sum(part['kernels'] for part in parts)})" if parts else ""

    rows = [[kind, *(cell([one["kinds"][kind]] if kind in one["kinds"] else []) for one in ways.values())] for kind in kinds]
    rows += [
        ["all kernels", *(cell([*one["kinds"].values()]) for one in ways.values())],
        ["no kernel runs", *(f"{one['makespan_us'] - one['busy_us']:.0f}" for one in ways.values())],
        ["makespan, profiled", *(f"{one['makespan_us']:.0f}" for one in ways.values())],
        ["a replay, not profiled", *(f"{found['times'][way]['median_us']:.0f}" for way in ways)],
    ]
    return table(["µs (kernels)", *(f"`{way}`" for way in ways)], rows) + measured_on(found["made"])


def recorded_memory() -> str:
    """Return in how many functions recorded memory is what the allocators say."""
    found = data("memory_against_allocators")
    every = found["functions"].values()
    asked = [sum(one[level][key] for one in every) for level in ("allocated", "reserved") for key in ("equal", "operations")]
    return (
        f"After an operation, in {len(every)} functions: allocated bytes are equal {asked[0]} times of {asked[1]}, reserved ones "
        f"{asked[2]} times of {asked[3]}. The peak is equal in {found['equal']} functions.\n{measured_on(found)}"
    )


def counter_cost() -> str:
    """Return the cost of a call of a counter or a marker, in µs."""
    found = data("counter_cost")
    rows = [
        [f"`{name}`", *(f"{found[of][name] / 1000:.2f}" for of in ("nothing_records_ns", "recorded_ns"))] for name in found["recorded_ns"]
    ]
    return table(["a call, µs", "nothing records", "recorded"], rows) + f"\nTwo cores of {found['processor']}, {found['date'][:10]}.\n"


def event_costs() -> str:
    """Return what events around a launch cost the host, from C and from Streamscope."""
    found = data("record_cost")
    by = found["events_us"]
    names = {"launch": "not recorded", "launch and event": "an event behind it", "launch in a pair": "an event on either side"}
    rows = [[name, *(f"{by[side][key]:.2f}" for side in ("C", "Streamscope"))] for key, name in names.items()]
    more = [f"{by[side]['launch and event'] - by[side]['launch']:.2f}" for side in ("C", "Streamscope")]
    pair = [f"{by[side]['launch in a pair'] - by[side]['launch']:.2f}" for side in ("C", "Streamscope")]
    told = (
        f"\nSo one event costs {more[0]} µs from C and {more[1]} µs from Streamscope, and a pair {pair[0]} and {pair[1]} µs. "
        "Streamscope records a launch with one event.\n"
    )
    return table(["a launch", "C, µs", "Streamscope, µs"], rows) + told + measured_on(found)


def left_out() -> str:
    """Return what stamps leave out of kernels of one kind, by how long they run and by their blocks; and of a kernel that runs alone."""
    found = data("around_stamps")
    rows = [[name, *(f"{one[where]['left_out_ns'] / 1e3:.2f}" for where in ("stream", "graph"))] for name, one in found["chains"].items()]
    alone: dict[str, list[float]] = {}
    for ways in found["alone_left_out_ns"].values():
        for way, each in ways.items():
            alone.setdefault(way, []).append(float(np.median(each)))
    said = "; ".join(f"{way} {min(each) / 1e3:.2f} to {max(each) / 1e3:.2f}" for way, each in alone.items())
    shown = table(["stamps leave out, µs: kernel, blocks", "on a stream", "in a graph"], rows)
    return f"{shown}\nOf kernels alone: {said}.\n{measured_on(found)}"


def stamps() -> str:
    """Return how far stamps are from CUPTI on the same runs, and what they cost, by engine; and overlap in graphs with two streams."""
    found = data("stamp_accuracy")
    by_engine: dict[str, list[Any]] = {}
    for program in found["programs"].values():
        for engine, one in program.items():
            by_engine.setdefault(engine, []).append(one)
    columns = ("start_error_us", "end_error_us", "duration_difference_us")
    rows = [
        [
            f"`{engine}`",
            f"{sum(one['kernels'] for one in parts):,}",
            *(f"{np.median([abs(one[column]) for one in parts]):.2f} µs" for column in columns),
            f"{100 * np.median([one['makespan_longer'] for one in parts]):.1f} %",
        ]
        for engine, parts in by_engine.items()
    ]
    head = ["engine", "kernels", "starts differ by", "ends", "durations", "makespan is longer by"]
    overlaps = [
        [name, f"{100 * program['graph-dual']['overlap_stamps']:.0f} %", f"{100 * program['graph-dual']['overlap_cupti']:.0f} %"]
        for name, program in found["programs"].items()
        if program["graph-dual"]["overlap_cupti"]
    ]
    second = table(["overlap under `graph-dual`", "stamps", "CUPTI"], overlaps)
    return f"{table(head, rows)}\n{around_stamps(found)}\n{second}{measured_on(found)}"


def around_stamps(found: Any) -> str:
    """Return what stamps leave out and cost, by program and engine, and how far the formulas are from each."""
    tables, worst = [], dict[tuple[str, bool], float]()
    for what, title in (("left_out_ns", "stamps leave out, µs"), ("stamping_ns", "stamps cost, µs")):
        rows = []
        for name, program in found["programs"].items():
            off_ns = {engine: abs(one[what] - formula_ns(what, engine, one["blocks"])) for engine, one in program.items()}
            for engine, off in off_ns.items():
                beside = "dual" in engine and program[engine]["blocks"] >= found["filling_blocks"]
                worst[what, beside] = max(worst.get((what, beside), 0.0), off)
            times = [f"{one[what] / 1e3:.2f}" for one in program.values()]
            rows.append([name, *times, most([max(off_ns.values()) / 1e3])])
        tables.append(table([title, *(f"`{engine}`" for engine in next(iter(found["programs"].values()))), "formula off by"], rows))
    apart, filling = (
        " and ".join(f"{most([worst[what, beside] / 1e3])} µs" for what in ("left_out_ns", "stamping_ns")) for beside in (False, True)
    )
    told = (
        f"At worst, the formulas are off by {apart} where kernels do not fill the GPU beside each other. "
        f"They are off by {filling} where they may: kernels of {found['filling_blocks']:,} blocks or more, on two streams.\n"
    )
    return "\n".join([*tables, told])


def formula_ns(what: str, engine: str, blocks: int) -> float:
    """Return what the recorder takes stamps to leave out, or to cost."""
    return stamp_excess_ns(blocks, in_graph="graph" in engine) if what == "left_out_ns" else stamping_ns(blocks)


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


def captured() -> str:
    """Return the times of captured code beside those of its own ways to run."""
    found = data("captured_peers")
    rows = []
    for name, one in found["results"].items():
        peer = one.get("torch_cuda_graph_us")
        times = [one["plain_call_us"], *(one["engines_us"][engine] for engine in ("async", "graph"))]
        rows.append([name, *(format_us(each) for each in times), "–" if peer is None else format_us(peer)])
        assert not any(one["max_abs_error"].values())
    return table(["code", "plain call", "`async`", "`graph`", "`torch.cuda.CUDAGraph`"], rows) + measured_on(found)


def true_order() -> str:
    """Return how much faster captured networks are in the order that memory asks for, and how equal their results were."""
    found = data("parallelise_networks")
    rows = []
    proofs = []
    for name, batches in found["results"].items():
        one = batches["1"]
        if "us" not in one:
            rows.append([name, *["–"] * 4, *["–"] * 3])
            continue
        larger = [f"{batches[batch]['speedup']:.2f}×" if "us" in batches.get(batch, {}) else "–" for batch in ("8", "32")]
        times = [format_us(one["us"][name]) for name in ("torch.cuda.CUDAGraph", "graph-dual")]
        best = "nothing to gain" if one["bound"]["nothing_to_gain"] else f"{one['bound']['speedup']:.2f}×"
        rows.append([name, f"{one['nodes']} / {one['longest_path']}", *times, best, f"**{one['speedup']:.2f}×**", *larger])
        proofs += [batches["proof"]] if "holds" in batches.get("proof", {}) else []
    head = [
        "network",
        "nodes / longest path",
        "`torch.cuda.CUDAGraph`, µs",
        "true order, µs",
        "at most",
        "faster, batch 1",
        "batch 8",
        "batch 32",
    ]
    assert all(proof["holds"] for proof in proofs)
    equal = sum(proof["bit_equal"] for proof in proofs)
    inputs = sum(proof["inputs"] for proof in proofs)
    others = "" if equal == len(proofs) else ", the others as equal as the capture is to itself"
    said = f"\nResults on {inputs:,} random inputs, beside neighbours: {equal} of {len(proofs)} captures were equal in each bit{others}.\n"
    return table(head, rows) + said + preparing(found) + simulated_captures(found["results"]) + measured_on(found)


def preparing(found: Any) -> str:
    """Return how long it takes to capture networks, to find and measure orders, and to check them."""
    parts = ("capture and inference", "scheduling", "checking")
    every = [one["1"] for one in found["results"].values()] + ([found["large"]] if "seconds" in found.get("large", {}) else [])
    seconds = {one["nodes"]: sum(one["seconds"][part] for part in parts) for one in every}
    told = [f"{seconds[nodes]:.1f} s for {nodes:,} nodes" for nodes in sorted(seconds)[-3:]]
    return f"\nTo capture, order and check takes {', '.join(told[:-1])} and {told[-1]}.\n"


def simulated_captures(results: Mapping[str, Any]) -> str:
    """Return how far the recordings of captured networks are from the runs, on the simulated device."""
    off: dict[str, list[float]] = {"graph": [], "graph-dual": []}
    for batches in results.values():
        path = ROOT / "notebooks" / "recorded" / "captured" / f"{batches['function']}.captured.json"
        if not path.exists():
            continue
        runs = ss.compare(ss.load_captured(path), engines=list(off), device="simulated", repeats=1, progress=False)
        for engine, errors in off.items():
            errors.append(abs(runs[engine].metrics.makespan_us / batches["1"]["us"][engine] - 1))
    told = [f"{100 * statistics.median(errors):.0f} % in the median and {100 * max(errors):.0f} % at most" for errors in off.values()]
    said = f"the captured order by {told[0]}, the true order by {told[1]}"
    return f"\nTheir recordings on the simulated device are off: {said}. That is against `graph` and `graph-dual` of the file of results.\n"


def compiled_order() -> str:
    """Return the same on the kernels of `torch.compile`, and of calls from end to end."""
    found = data("parallelise_networks")
    rows = []
    for name, batches in found["results"].items():
        one = batches.get("compiled", {})
        if "us" not in one:
            continue
        times = [format_us(one["us"][name]) for name in ("torch.cuda.CUDAGraph", "graph-dual")]
        called = [format_us(one["called_us"][name]) for name in ("reduce-overhead", "parallelise")]
        rows.append([name, *times, f"**{one['speedup']:.2f}×**", *called, f"**{one['called_speedup']:.2f}×**"])
    head = [
        "network",
        "`torch.cuda.CUDAGraph`, µs",
        "true order, µs",
        "faster",
        '`mode="reduce-overhead"`, called',
        "`ss.parallelise`, called",
        "faster",
    ]
    return table(head, rows) + measured_on(found)


def call_cost() -> str:
    """Return what a call takes besides the launch of its graph, for branches and for networks, on each card."""
    return "\n".join(_call_cost(data(name)) for name in ("call_cost", "call_cost_h200"))


def _call_cost(found: Any) -> str:
    rows = []
    for name, one in found["results"].items():
        us, title = one["us"], name.replace("_", " ") + (", as captured" if one["engine"] == "graph" else "")
        times = [format_us(us[which][0]) for which in ("replay", "launch", "call")]
        besides = [f"**{us['call'][which] - us['launch'][which]:.1f}**" for which in (0, 1)]
        host = ", ".join(f"{us[which][1]:.0f}" for which in ("replay", "launch", "call"))
        copy = f"{one['copy_us']:.1f}" if "copy_us" in one else ""
        held, anew = (f"{us[call][0] - us[than][0]:.1f}" if call in us else "" for call, than in (("held", "launch"), ("anew", "bare")))
        rows.append([title, str(one["arrays"]), *times, besides[0], copy, besides[1], held, anew, host])
    head = [
        "network or branches",
        "arrays",
        "PyTorch's replay, µs",
        "ours, launched",
        "called",
        "besides the launch",
        "of it the copy",
        "of the host",
        "nothing copied",
        "new addresses",
        "host: replay, launch, call",
    ]
    measured = [column for column in zip(head, *rows, strict=True) if any(column[1:])]
    head, *rows = map(list, zip(*measured, strict=True))
    return table(head, rows) + measured_on(found)


_STEPS = {"resnet18": "training step of ResNet-18, batch 32", "fsdp2": "training step with FSDP2"}


def collective_orders() -> str:
    """Return steps with collectives on several GPUs: as captured, in our order and by hand."""
    rows, steps = [], data("collective_orders")
    for one in steps:
        kind, _, size = one["case"].partition("-")
        width, _, layers = size.partition("x")
        kinds = {"dp": "data-parallel, {layers} layers of {width:,}", "tp": "tensor-parallel, two micro-batches of {width:,} tokens"}
        step = _STEPS.get(kind) or kinds[kind].format(width=int(width), layers=layers)
        gpus = f"{one['gpus']} {one['device'].split()[1]}"
        times = [format_us(one[which]) for which in ("captured", "ours", "by hand")]
        assert one["bit_equal"]
        rows.append(
            [step, gpus, *times, f"{one['captured'] / one['ours']:.2f}×", f"{one['by hand'] / one['ours']:.2f}", f"{one['replays']:,}"]
        )
    return table(["step", "GPUs", "captured, µs", "`ss.parallelise`, µs", "by hand, µs", "gain", "of by hand", "replays"], rows) + _days(
        day for one in steps for day in one["days"]
    )


def _days(days: Iterable[str]) -> str:
    """Return when something was measured."""
    return f"\nMeasured on {', '.join(sorted(set(days)))}.\n"


def power_limit() -> str:
    """Return times, clocks and power of a step that keeps its GPUs at the limit of their power, after pauses and in a loop."""
    rows, steps = [], [one for one in data("collective_orders") if one["case"] == "tp-4096"]
    for step in steps:
        for replays in ("after pauses", "in a loop"):
            each = [step[replays][which] for which in ("captured", "ours", "by hand")]
            said = [", ".join(f"{one[unit]:,.0f}" for one in each) for unit in ("MHz", "W")]
            rows.append([f"{replays}, {step['gpus']} {step['device'].split()[1]}", *(f"{one['us'] / 1e3:.1f}" for one in each), *said])
    return table(["replays", "captured, ms", "`ss.parallelise`, ms", "by hand, ms", "clocks of each, MHz", "power, W"], rows) + _days(
        day for one in steps for day in one["days"]
    )


def above_bound() -> str:
    """Return what holds orders above their bound."""
    found = data("above_bound")
    rows = []
    for name, one in found["results"].items():
        launches, beside = one["waiting_us"] - one["bound_us"], one["us"] - one["waiting_us"]
        nodes = f"{one['nodes']} / {one['nodes on the longest path']}"
        times = [format_us(one[which]) for which in ("captured_us", "bound_us", "empty_us", "waiting_us", "us")]
        rows.append([name.replace("_", " "), nodes, *times, f"{launches:.0f} + {beside:.0f}"])
    head = ["network", "nodes / longest path", "captured, µs", "bound", "nodes empty", "nodes waiting", "measured", "launches + neighbours"]
    return table(head, rows) + measured_on(found)


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


def holistic() -> str:
    """Return how many numbers of Holistic Trace Analysis are ours by its definitions, file by file."""
    found = data("peers_hta")
    rows = []
    for name, one in found["files"].items():
        wrong = one["differs"]
        why = "" if not wrong else ", and all without rows of `cuda_sync`" if not one["differs without cuda_sync"] else ", unexplained"
        rows.append([f"`{name.partition('.')[0]}`", f"{one['compared']}", f"{one['compared'] - len(wrong)}{why}"])
    return table(["file", "numbers", "equal"], rows) + f"\nHTA {found['versions']['HolisticTraceAnalysis']}, {found['date'][:10]}.\n"


def reading() -> str:
    """Return how long a trace takes to read and measure, beside Holistic Trace Analysis, and what files of traces take."""
    found, files = data("peers_hta"), data("trace_files")
    rows = [
        [side, f"{found['speed']['kernels']:,}", f"{one['load_s']:.2f} s", f"{one['metrics_s']:.2f} s", f"{one['peak_mib']:,.0f} MiB"]
        for side, one in (
            ("Holistic Trace Analysis", found["speed"]["hta"]),
            ("`ss.read`", found["speed"]["ours"]),
            ("`ss.read`", found["many"]),
        )
    ]
    rows[-1][1] = f"{found['many']['kernels']:,}"
    first = table(["Kineto JSON", "kernels", "read", "all metrics", "memory"], rows)
    kept = [
        [
            name,
            f"{one['write_s']:.2f} s",
            f"{one['read_s']:.2f} s" if "read_s" in one else "–",
            f"{one['mib']:.1f} MiB",
            f"{one['packed_mib']:.1f} MiB",
        ]
        for name, one in files["formats"].items()
    ]
    second = table([f"{files['spans']:,} spans as", "write", "read", "size", "with gzip"], kept)
    parquet, cores = files["parquet"], found["machine"]["cores"]
    both = f"{parquet['spans']:,} spans as Parquet: written in {parquet['write_s']:.2f} s, read in {parquet['read_s']:.2f} s."
    return f"{first}\n{second}\n{both}\n{cores} cores, {found['date'][:10]}.\n"


def several_gpus() -> str:
    """Return the errors of predicted and simulated times over several GPUs, and those of the exposed share."""
    found = data("several_gpus")
    cases = [case for host in found["hosts"] for case in host["cases"]]
    kinds = ("predicted_us", "predicted_of_trace_alone_us", "simulated_at_pace_us", "simulated_us")
    groups = [
        (f"`{engine}`, {hosts}", [case["engines"][engine] for case in cases if _card(case) == hosts])
        for hosts in sorted(set(map(_card, cases)))
        for engine in cases[0]["engines"]
    ]
    every = [one for _, runs in groups for one in runs]
    new = {
        f"`{engine}`, programs that came last": [case["engines"][engine] for case in cases if case.get("held out")]
        for engine in ("graph", "graph-dual")
    }

    def errors(runs: list[Any]) -> list[str]:
        each = [[abs(one[kind] / one["measured_us"] - 1) for one in runs if kind in one] for kind in kinds]
        return [f"{statistics.median(one):.1%}, {max(one):.1%}" if one else "" for one in each]

    heads = ("predicted", "of the trace alone", "simulated at the host's pace", "simulated")
    times = table(
        ["error: median, worst", "runs", *heads],
        [[name, str(len(runs)), *errors(runs)] for name, runs in [*groups, *new.items(), ("all", every)] if runs],
    )
    told = [one["exposed"] for one in every if "by" in one["exposed"]]
    gated = [one["exposed"] for host in found["hosts"] if host.get("gated") for one in _graph_duals(host)]
    gated = [one for one in gated if one["by"] == "CUPTI"]

    def repeats(some: list[Any]) -> str:
        return _within([_farthest([one], other) for each in some for one, other in combinations(each["measured"], 2)])

    def middles(some: list[Any], kind: str) -> str:
        return _within([_farthest(one["measured"], _middle(one[kind])) for one in some if one.get(kind)])

    rows = [
        ["a recording against another of the same", repeats(told), "", repeats(gated)],
        ["CUPTI without a gate", middles(told, "cupti"), "", ""],
    ]
    rows += [
        [kind, middles(told, kind), _within([_beyond(one, kind) for one in told if kind in one]), middles(gated, kind)]
        for kind in ("predicted", "simulated")
    ]
    cards = "; ".join(f"{host['card']}, {host['date'][:16].replace('T', ' ')}" for host in found["hosts"])
    head = ["exposed share, within 0.05", "of the median recording", "of all recordings", "of `graph-dual` by CUPTI behind a gate"]
    shares = ", ".join(f"{host['collective_share']:.2f} on {host['card']}" for host in found["hosts"] if host.get("collective_share"))
    beside = f"Collectives beside products, as a share of their speed alone: {shares}."
    return f"{times}\n{table(head, rows)}\n{beside}\n\n{cards} (UTC).\n"


def _graph_duals(host: Mapping[str, Any]) -> list[Any]:
    return [case["engines"]["graph-dual"] for case in host["cases"]]


def _card(case: Mapping[str, Any]) -> str:
    """Return the GPUs of a case: ``"2 H200"``."""
    return re.sub(r"(\d+) . NVIDIA (\w+).*", r"\1 \2", case["device"])


_Shares = Mapping[str, float]


def _middle(recordings: Sequence[_Shares]) -> dict[str, float]:
    return {gpu: statistics.median(one[gpu] for one in recordings) for gpu in recordings[0]}


def _farthest(recordings: Sequence[_Shares], shares: _Shares) -> float:
    """Return how far shares are from the median recording, on the worst GPU."""
    return max(abs(shares[gpu] - each) for gpu, each in _middle(recordings).items())


def _beyond(told: Mapping[str, Any], kind: str) -> float:
    """Return how far shares are beyond all recordings of a run, on the worst GPU."""
    shares = _middle(told[kind])
    every = {gpu: [one[gpu] for one in (*told["measured"], *told["cupti"])] for gpu in shares}
    return max(float(max(0.0, min(each) - shares[gpu], shares[gpu] - max(each))) for gpu, each in every.items())


def _within(far: Sequence[float]) -> str:
    return f"{sum(each <= 0.05 for each in far)} of {len(far)}, {max(far):.2f} at most"


def recorded_hosts() -> str:
    """Return how far recordings of two GPUs are from CUPTI's and from PyTorch's profiler's."""
    found = data("recorded_hosts")
    streams, graphs = ([one for one in found["engines"] if ("graph" in one["engine"]) is graph] for graph in (False, True))

    def named(one: Mapping[str, Any]) -> list[str]:
        return [one["workload"], f"`{one['engine']}`"]

    def shares(off: Mapping[str, float], unit: str = "%") -> str:
        return " and ".join(f"{100 * each:+.1f}" for each in off.values()) + f" {unit}" * bool(off)

    def close(what: str, offs: Iterable[float], limit: float, unit: str = "%") -> str:
        each = [abs(off) for off in offs]
        within = sum(one <= limit for one in each)
        return f"{what}: {within} of {len(each)} within {100 * limit:.0f} {unit}, the worst {100 * max(each):.1f} off."

    def all_off(some: Iterable[Mapping[str, Any]], what: str, off: str = "off") -> list[float]:
        return [each for one in some for each in one[off][what].values()]

    rows = [[*named(one), shares(one["off"]), f"{one['apart_us']['1']:+.1f} µs"] for one in streams]
    first = table(["program", "engine", "busy on GPUs 0 and 1", "GPU 1's clock against CUPTI's"], rows)
    rows = [[*named(one), shares(one["off"]["busy"]), shares(one["off"]["exposed"], "points")] for one in graphs]
    second = table(["program", "engine", "busy on GPUs 0 and 1", "exposed share"], rows)
    dual = [one for one in graphs if one["engine"] == "graph-dual"]
    further = data("recorded_hosts_further")
    fresh, loaded = further["engines"], further["loaded"]
    rows = [[one["workload"], shares(one["off"]["busy"]), shares(one["off"]["exposed"], "points")] for one in fresh]
    third = table(["further programs, `graph-dual`", "busy on GPUs 0 and 1", "exposed share"], rows)
    apart = max(abs(one["apart_us"]["1 worst"]) for one in streams)
    said = [
        close("Without a graph, busy", [off for one in streams for off in one["off"].values()], 0.03),
        close("Graphs, busy", all_off(graphs, "busy"), 0.03),
        close("Exposed share of `graph-dual`", all_off(dual, "exposed"), 0.05, "points"),
        close("The profiler without a gate", all_off(dual, "exposed", "ungated_off"), 0.05, "points"),
        close("By events alone, busy", all_off(graphs, "busy", "events_off"), 0.03),
        close("Exposed share", all_off(dual, "exposed", "events_off"), 0.05, "points"),
        close("The third table, busy", all_off(fresh, "busy"), 0.03),
        close("Exposed share", all_off(fresh, "exposed"), 0.05, "points"),
        close("By events alone, busy", all_off(fresh, "busy", "events_off"), 0.03),
        close("Exposed share", all_off(fresh, "exposed", "events_off"), 0.05, "points"),
        close("The same on a loaded host", all_off(loaded["engines"], "exposed", "events_off"), 0.05, "points"),
        f"In no run are the clocks of the GPUs more than {apart:.1f} µs from CUPTI's.",
    ]
    record = found["record"]["without collectives"]["off"]
    text = ", ".join(f"GPU {gpu} {off:+.2%}" for gpu, off in record.items())
    where = f"{found['card']}, {found['date'][:10]}; the loaded host: {loaded['card']}, {loaded['date'][:10]}.\n"
    tables = f"{first}\n{second}\n{third}"
    return f"{tables}\n{' '.join(said)}\n\n`ss.record` of a step of PyTorch against its profiler, busy time: {text}.\n{where}"


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


def common_code() -> str:
    """Return what becomes of code as many people write it."""
    found = data("common_code")
    results = found["results"]
    faster = [one["speedup"] for one in results.values() if one.get("speedup")]
    refused = [f"*{name}*" for name, one in results.items() if "refused" in one]
    of_cupy = [name.replace("CuPy: ", "") for name in refused if "CuPy: " in name]
    others = [name for name in refused if "CuPy: " not in name]
    proven = [one["proven"] for one in results.values() if one.get("speedup")]
    assert all(proven)
    assert not any("failed" in one for one in results.values())
    return (
        f"Of {len(results)} functions, {len(faster)} run faster than captured: {statistics.median(faster):.2f}× in the median and "
        f"{max(faster):.2f}× at most. {len(results) - len(faster) - len(refused)} gain nothing, and run as captured. "
        f"{len(refused)} are refused, with the line and the reason: {'; '.join(others)}; and of CuPy's functions {'; '.join(of_cupy)}.\n"
        f"{measured_on(found)}"
    )


def faster(slow: Mapping[str, Any], fast: Mapping[str, Any]) -> float:
    """Return by which share the second is faster: 0.17 is 17 %."""
    return float(slow["median_us"] / fast["median_us"] - 1)


def headlines() -> str:
    """Return the five systems' figures beside ours."""
    found = data("headlines")
    graphs, streams, host, compiled = (found[part] for part in ("graphs", "streams", "host", "compiled"))
    at = {batch: f"{faster(one['async'], one['graph']):.0%}" for batch, one in batches(graphs)}
    dual = {batch: f"{faster(one['async'], one['dual']):.0%}" for batch, one in batches(streams)}
    more = [faster_memory(one["graph"], one["graph-dual"]) for _, one in batches(streams)]
    loop = faster(host["both"]["sync"], host["both"]["async"])
    used, ahead = compiled["used"]["all three"], compiled["ahead"]
    gains = {cores: _batched_gains(cores) for cores in _CORES}
    batched = [f"{min(each):.1f} to {max(each):.1f}× less on {cores} cores" for cores, each in gains.items()]
    rows = [
        [
            "[CUDA graphs](#cuda-graphs)",
            "ResNet-50 v2, fp16, V100: 17 % faster at batch 1, 0.3 % at 128",
            f"{at['1']} at 1, {at['128']} at 128",
        ],
        [
            "[a second stream](#a-second-stream)",
            "ResNet-50 training, 8 V100s: 2 to 3 % faster at batch 32, 1 % at 128, nothing at 256; memory +1.4 to 2.6 %",
            f"{dual['32']} at 32, {dual['128']} at 128, {dual['256']} at 256; memory {more[-1]} to {more[0]}",
        ],
        ["[work on the host](#work-on-the-host)", "the host goes on while the GPU works; no figure", f"a loop is {loop:.0%} faster"],
        [
            "[kernels made at run time](#kernels-made-at-run-time)",
            "69,169 → 51,511 kernels, 292 MB less code, 96 MB less GPU memory",
            (
                f"three networks use {used['kernels']} kernels, {used['code_bytes'] / 1e6:.1f} MB; "
                f"built ahead {ahead['kernels']}, {ahead['code_bytes'] / 1e6:.1f} MB"
            ),
        ],
        [
            "[batched compilation](#batched-compilation)",
            "BERT in 177 s, not 222 s; compile time 3.8 to 8× less",
            "; ".join(batched),
        ],
    ]
    return table(["system", "its figure", "ours"], rows)


def headline_graphs() -> str:
    """Return what a CUDA graph gains in the forward pass of ResNet-50 v2."""
    found = data("headlines")["graphs"]
    ways = ("async", "graph", "async, fused", "graph, fused")
    rows = []
    for batch, one in batches(found):
        gains = (f"{faster(one[f'async{fused}'], one[f'graph{fused}']):.0%}" for fused in ("", ", fused"))
        rows.append([batch, *(format_us(one[way]["median_us"]) for way in ways), *gains])
    head = ["batch", *(f"`{way}`, µs" for way in ways), "a graph is faster by", "fused, by"]
    return table(head, rows) + measured_on(found["made"])


def headline_streams() -> str:
    """Return what a second stream gains in training steps of ResNet-50 v2, and the memory it takes."""
    found = data("headlines")["streams"]
    rows = []
    for batch, one in batches(found):
        memory = faster_memory(one["graph"], one["graph-dual"])
        gains = (f"{faster(one[slow], one[fast]):.1%}" for slow, fast in (("async", "dual"), ("graph", "graph-dual")))
        rows.append([batch, *(f"{one[way]['median_us'] / 1e3:.2f}" for way in ("async", "dual", "graph", "graph-dual")), *gains, memory])
    head = ["batch", "`async`, ms", "`dual`, ms", "`graph`, ms", "`graph-dual`, ms", "alone, faster by", "in a graph, by", "more memory"]
    return table(head, rows) + measured_on(found["made"])


def faster_memory(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return how much more memory the second takes, in words."""
    return f"+{other['memory']['device_bytes'] / one['memory']['device_bytes'] - 1:.1%}"


def headline_host() -> str:
    """Return how long a loop with work on the host takes."""
    found = data("headlines")["host"]
    times = [
        ["the host's work alone", found["host alone"]],
        ["the GPU's work alone, `async`", found["GPU alone"]["async"]],
        *([f"both, `{way}`", found["both"][way]] for way in ("sync", "async", "dual")),
    ]
    return table(["a loop of six batches", "ms"], ([name, f"{one['median_us'] / 1e3:.1f}"] for name, one in times)) + measured_on(
        found["made"]
    )


def headline_kernels() -> str:
    """Return kernels and code of what networks use, and of all kernels built ahead."""
    found = data("headlines")["compiled"]
    every = {**{f"training step of `{name}`": one for name, one in found["used"].items()}, "all, built ahead": found["ahead"]}
    every["the three networks together"] = every.pop("training step of `all three`")
    rows = [
        [name, str(one["kernels"]), f"{one['code_bytes'] / 1e6:.2f}", f"{one['memory_bytes'] / 2**20:.0f}", f"{one['compile_s']:.2f}"]
        for name, one in sorted(every.items(), key=lambda item: item[1]["kernels"])
    ]
    return table(["kernels of", "count", "code, MB", "GPU memory, MiB", f"to compile, s ({found['cores']} cores)"], rows) + measured_on(
        found["made"]
    )


def headline_batched() -> str:
    """Return how long kernels take to compile, one by one and together."""
    rows, made = [], []
    for cores in _CORES:
        found = data(f"batched_compilation_{cores}_cores")
        for (name, one), ratio in zip(_compiled(cores).items(), _batched_gains(cores), strict=True):
            alone = one["one_by_one"]["median_s"]
            rows.append([f"{name}, {cores} cores", str(one["kernels"]), f"{alone:.2f}", f"{alone / ratio:.2f}", f"{ratio:.1f}×"])
        made.append(f"{cores} cores, {found['processor']}, NVRTC {found['nvrtc']}, {found['date'][:10]}.")
    return table(["set", "kernels", "one by one, s", "together, s", "faster"], rows) + f"\n{' '.join(made)}\n"


_CORES = (2, 16)


def _compiled(cores: int) -> dict[str, Any]:
    """Return how the sets of kernels compiled on so many cores, by name."""
    found = data(f"batched_compilation_{cores}_cores")
    return {**found["sets"], **found["programs"]}


def _batched_gains(cores: int) -> list[float]:
    """Return how many times as fast each set compiles together, with all workers."""
    return [one["one_by_one"]["median_s"] / [*one["together"].values()][-1]["median_s"] for one in _compiled(cores).values()]


def decoder() -> str:
    """Return how fast a decoder of transformers makes tokens."""
    found = data("decoder")
    rows = [
        [
            name if name == "eager" else f"`{name}`",
            f"{one['ms_a_token']:.2f}",
            f"{1e3 / one['ms_a_token']:,.0f}",
            f"{one['equal']} of {found['tokens']}",
        ]
        for name, one in found["ways"].items()
    ]
    return table(["way", "ms a token", "tokens a second", "tokens equal to eager"], rows) + measured_on(found)


def planted_jobs() -> str:
    """Return how often clocks, bounds and causes of planted jobs are right, by set of seeds and by sort of straggler."""
    found = data("rank_truth")
    sets = [found["sets"][name] for name in ("design", "held out", "new")]

    def of(right: str, all_of: str) -> list[str]:
        return [f"{one[right]:,} of {one[all_of]:,}" for one in sets]

    rows = [
        ["offsets inside the certain bounds", *of("within their error", "estimates")],
        ["estimates: median of each job's worst, worst of all", *(_median_and_most(one["off_us, median and most"]) for one in sets)],
        [
            "bounds compared with brute force over all pairs; wider by 5 ns",
            *(f"{one['bounds compared with brute force']}; {one['wider by more than 5 ns']} jobs" for one in sets),
        ],
        ["planted rank and cause named first", *of("named first", "planted")],
        ["the same, of stragglers that cost 1 %", *of("of these, named first", "planted, and costs 1 %")],
        ["nothing planted, and nothing named", *of("none named", "not planted")],
    ]
    first, *held = ([f"{one['jobs']:,} {what}" for one, what in zip(sets, ("jobs", "held out", "more"), strict=True)], *sets[1:])
    sorts = []
    for sort, words in (
        ("kernel", "a kernel takes longer"),
        ("more", "more kernels"),
        ("host", "the host is late"),
        ("link", "a slow link"),
    ):
        counts = [
            np.sum([one["right and of, by sort"][f"{sort}, {when}"] for one in held], axis=0) for when in ("always", "all", "some", "once")
        ]
        sorts.append([words, *(f"{right} of {of}" for right, of in counts)])
    missed = sum(one["planted"] - one["named first"] for one in held)
    costly = sum(one["planted, and costs 1 %"] - one["of these, named first"] for one in held)
    unmatched = sum(one["and not named, since collectives are not matched"] for one in held)
    return (
        table([f"on {found['date'][:10]}, by a model", *first], rows)
        + "\nBy the sort of straggler, in both held-out sets: named of planted.\n\n"
        + table(["it happens", "in each step, at one place", "at all places", "in every third step", "once"], sorts)
        + f"\nOf the {missed} that are missed, {missed - costly} cost less than 1 % of the time. Of the other {costly}, "
        f"{unmatched} are in jobs where some collectives were not matched: files without numbers lack their first ones, and "
        "steps are so even that several shifts fit.\n"
    )


def _median_and_most(numbers: Sequence[float]) -> str:
    return f"{numbers[0]:.1f} µs, {numbers[1]:.1f} µs"


def recorded_ranks() -> str:
    """Return how often clocks and causes of recorded jobs are right, by host and recorder."""
    rows, told = [], list[bool]()
    for host in data("recorded_jobs")["hosts"]:
        for recorder, by in (("kineto", "PyTorch's profiler"), ("ours", "`ss.record`")):
            jobs = [one for job in host["jobs"].values() if "offsets_us" in (one := job.get(recorder, {}))]
            if not jobs:
                continue
            told += [one["host_known_within_10_us"] for one in jobs if "host_known_within_10_us" in one]
            pairs = [pair for one in jobs for pair in zip(one["offsets_us"], one["errors_us"], strict=True)]
            known = [(abs(offset), error) for offset, error in pairs if offset is not None]
            off = [offset for offset, _ in known]
            planted, others = ([one["right"] for one in jobs if bool(one["planted"]) is late] for late in (True, False))
            batch = " to ".join(f"{size:,}" for size in sorted({np.min(host["rows"]), np.max(host["rows"])}))
            rows.append([
                f"{host['gpus']} × {host['device'].split()[1]}, {batch} rows, {by}",
                str(len(jobs)),
                f"{sum(offset <= error for offset, error in known)} of {len(known)}",
                _median_and_most((statistics.median(off), max(off))),
                f"{sum(each <= 10 for each in off)} of {len(off)}",
                f"{sum(planted)} of {len(planted)}",
                f"{sum(others)} of {len(others)}",
            ])  # fmt: skip
    head = [
        "GPUs, batch, recorder",
        "jobs",
        "offsets inside the bounds",
        "off: median, worst",
        "within 10 µs",
        "planted, and named",
        "no plant, none `persistent`",
    ]
    named = f"\nWith `hosts=`, all offsets are within 10 µs in {sum(told)} of the {len(told)} jobs that were asked so.\n"
    return table(head, rows) + named + _days(host["date"][:10] for host in data("recorded_jobs")["hosts"])


JOB_KINDS = (
    ("`DistributedDataParallel`, repaired", ("ddp",)),
    ("tensor-parallel, repaired", ("tp",)),
    ("tensor-parallel in a CUDA graph, repaired", ("tp-graph",)),
    ("data-parallel in a CUDA graph, repaired", ("dp-graph",)),
    ("data-parallel in a CUDA graph, without overlap", ("dp-graph-serial",)),
    ("pipeline-parallel, without the kernels that make a stage late", ("pp",)),
    ("data-parallel by hand, without overlap", ("dp-serial",)),
    ("the same, beside a program that has no second stream", ("dp-plain",)),
)
"""Jobs that were predicted, by the job that was run so."""


def predicted_ranks() -> str:
    """Return how far predictions of jobs are from runs that took turns with them, recorded and not, beside the noise of these runs."""
    rows = [row for row in _predicted("turns") if "noise" in row]
    every = [run for _, runs in JOB_KINDS for run in runs]
    lines = []
    for name, runs in (*JOB_KINDS, ("all", every)):
        own = [row for row in rows if row["run"] in runs]
        free = [row for row in own if "unrecorded" in row]
        off = [_worst([abs(row[what] - 1) for row in some]) for what, some in (("off", own), ("noise", own), ("unrecorded", free))]
        lines.append([name, str(len(own)), *off[:2], _bar(own), _held(own, "off"), off[2], _held(free, "unrecorded")])
    head = [
        "a job, and its change",
        "predictions",
        "off: median, worst",
        "noise",
        "error bar, median",
        "in it",
        "without a recorder",
        "in the bar",
    ]
    like = [row for row in rows if row["run"] != "dp-plain"]
    earlier = [abs(row["off"] - 1) for row in _predicted("made_with") if row["run"] != "dp-plain"]
    blocks = [row for row in _predicted("blocks") if row["run"] != "dp-plain"]
    return (
        table(head, lines)
        + f"\nBut for the program that has no second stream: {_told_off(like, 'off')}. Their speed-ups, beside runs without a recorder: "
        + f"{_told_off(like, 'unrecorded')}.\n\nThe rules were made with {len(earlier)} others that took turns, off by {_worst(earlier)}. "
        + f"Of jobs that were recorded one after the other, on any core, by the rules of then: {_told_off(blocks, 'off')}.\n"
        + _days(host["date"][:10] for host in data("recorded_jobs")["hosts"])
    )


def what_if_ranks() -> str:
    """Return how far predictions of simulated jobs are from runs with the same plan, and from the changed programs."""
    found = data("what_if_ranks")
    runs = {"the run with the same plan": "run_us", "the changed program, planned anew": "planned_anew_us"}
    rows = [[name, _worst([abs(row["predicted_us"] / row[run] - 1) for row in found["rows"]])] for name, run in runs.items()]
    return table([f"on {found['date'][:10]}, by a model: {found['cases']} predictions beside", "off: median, worst"], rows)


def _predicted(kind: str) -> list[Any]:
    """Return predictions of all hosts: of ``turns``, step by step in one recording, or of ``blocks``.

    ``off`` is the prediction over the run, and ``unrecorded`` the predicted share of the job's time over the share without a recorder.
    ``noise`` is the run's share in even steps over that in odd ones, half as far from 1, since a whole recording has twice as many.
    """
    found = []
    for host in data("recorded_jobs")["hosts"]:
        for row in (row for row in host.get(kind, []) if "predicted_us" in row):
            run, job = np.atleast_1d(row["run_us"]), np.atleast_1d(row["recorded_us"])
            more = {"off": row["predicted_us"] / run[0]}
            if len(run) > 1:
                even, odd = (run / job)[1:]
                more["noise"] = 1 + (even / odd - 1) / 2
            free = [host["jobs"].get(f"{row[name]}-{row['rows']}", {}).get("step_us", {}).get("measured") for name in ("run", "job")]
            if all(free):
                more["unrecorded"] = row["predicted_us"] / job[0] * free[1][0] / free[0][0]
            found.append(row | more)
    return found


def _told_off(rows: Sequence[Any], what: str) -> str:
    own = [row for row in rows if what in row]
    off = [abs(row[what] - 1) for row in own]
    far = sum(each > 0.15 for each in off)
    return f"{len(own)}, off by {_worst(off)} (median, worst), {far} by more than 15 %; in the error bar, {_bar(own)}: {_held(own, what)}"


def _held(rows: Sequence[Any], what: str) -> str:
    return f"{sum(row['range'][0] <= 1 / row[what] - 1 <= row['range'][1] for row in rows)} of {len(rows)}"


def _bar(rows: Sequence[Any]) -> str:
    low, high = (100 * statistics.median(row["range"][end] for row in rows) for end in (0, 1))
    return f"{low:+.0f} to {high:+.0f} %"


def _worst(errors: Sequence[float]) -> str:
    return f"{100 * statistics.median(errors):.1f} %, {100 * max(errors):.1f} %"


def batches(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the cases of a headline that are batches."""
    return [(batch, one) for batch, one in found.items() if batch.isdigit()]


TABLES: dict[str, Callable[[], str]] = {
    "recorders": recorders,
    "stretched-graphs": stretched_graphs,
    "record-cost": record_cost,
    "counter-cost": counter_cost,
    "stacks-cost": stacks_cost,
    "code-times": code_times,
    "recorded-memory": recorded_memory,
    "networks": networks,
    "network-training": network_training,
    "network-kernels": network_kernels,
    "event-costs": event_costs,
    "stamps": stamps,
    "left-out": left_out,
    "simulated-times": simulated_times,
    "simulated-accuracy": simulated_accuracy,
    "link-times": link_times,
    "link-accuracy": link_accuracy,
    "link-neighbours": link_neighbours,
    "engines": engines,
    "host-costs": host_costs,
    "captured": captured,
    "true-order": true_order,
    "common-code": common_code,
    "compiled-order": compiled_order,
    "call-cost": call_cost,
    "collective-orders": collective_orders,
    "power-limit": power_limit,
    "above-bound": above_bound,
    "kernels": kernels,
    "compilation": compilation,
    "convolution": convolution,
    "holistic": holistic,
    "metrics": metrics,
    "reading": reading,
    "predictions": predictions,
    "several-gpus": several_gpus,
    "recorded-hosts": recorded_hosts,
    "headlines": headlines,
    "headline-graphs": headline_graphs,
    "headline-streams": headline_streams,
    "headline-host": headline_host,
    "headline-kernels": headline_kernels,
    "headline-batched": headline_batched,
    "decoder": decoder,
    "planted-jobs": planted_jobs,
    "predicted-ranks": predicted_ranks,
    "recorded-ranks": recorded_ranks,
    "what-if-ranks": what_if_ranks,
}


def page_with_tables(text: str) -> str:
    """Return a page with its tables made anew."""
    return PLACE.sub(lambda place: f"{place[1]}{TABLES[place[2]]()}{place[3]}", text)


def main() -> None:
    """Write all tables anew."""
    for name in PAGES:
        path = ROOT / "docs" / name
        path.write_text(page_with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
