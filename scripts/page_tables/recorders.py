"""Tables of recorders, stamps and what recording costs."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from page_tables.parts import data, measured_on, most, share, table
from streamscope.devices.reference import KNOWN_TO_NS
from streamscope.recording.events import ALONE_ERROR, BESIDE_ERROR
from streamscope.recording.stamps import STAMPED_ERROR, stamp_excess_ns, stamping_ns
from streamscope.words import format_us

NOISE = 0.03
"""A graph's kernels fit into a run if they take no more than that longer."""


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


TABLES = {
    "recorders": recorders,
    "stretched-graphs": stretched_graphs,
    "record-cost": record_cost,
    "counter-cost": counter_cost,
    "stacks-cost": stacks_cost,
    "code-times": code_times,
    "recorded-memory": recorded_memory,
    "event-costs": event_costs,
    "stamps": stamps,
    "left-out": left_out,
    "holistic": holistic,
    "reading": reading,
}
