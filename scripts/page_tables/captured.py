"""Tables of captured code."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

import streamscope as ss
from page_tables.parts import ROOT, data, days, measured_on, table
from streamscope.words import format_us


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
    return table(["step", "GPUs", "captured, µs", "`ss.parallelise`, µs", "by hand, µs", "gain", "of by hand", "replays"], rows) + days(
        day for one in steps for day in one["days"]
    )


def power_limit() -> str:
    """Return times, clocks and power of a step that keeps its GPUs at the limit of their power, after pauses and in a loop."""
    rows, steps = [], [one for one in data("collective_orders") if one["case"] == "tp-4096"]
    for step in steps:
        for replays in ("after pauses", "in a loop"):
            each = [step[replays][which] for which in ("captured", "ours", "by hand")]
            said = [", ".join(f"{one[unit]:,.0f}" for one in each) for unit in ("MHz", "W")]
            rows.append([f"{replays}, {step['gpus']} {step['device'].split()[1]}", *(f"{one['us'] / 1e3:.1f}" for one in each), *said])
    return table(["replays", "captured, ms", "`ss.parallelise`, ms", "by hand, ms", "clocks of each, MHz", "power, W"], rows) + days(
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


TABLES = {
    "captured": captured,
    "true-order": true_order,
    "common-code": common_code,
    "compiled-order": compiled_order,
    "call-cost": call_cost,
    "collective-orders": collective_orders,
    "power-limit": power_limit,
    "above-bound": above_bound,
    "decoder": decoder,
}
