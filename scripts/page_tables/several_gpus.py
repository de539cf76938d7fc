"""Tables of programs over several GPUs and of their recordings."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from page_tables.parts import data, table


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
    told = [one["exposed"] for one in every if "by" in one["exposed"] and _hides(one["exposed"])]
    gated = [one["exposed"] for host in found["hosts"] if host.get("gated") for one in _graph_duals(host)]
    gated = [one for one in gated if one["by"] == "CUPTI"]

    rows = [
        ["a recording against another of the same", _repeats(told), "", _repeats(gated)],
        ["CUPTI without a gate", _middles(told, "cupti"), "", ""],
    ]
    rows += [
        [kind, _middles(told, kind), _within([_beyond(one, kind) for one in told if kind in one]), _middles(gated, kind)]
        for kind in ("predicted", "simulated")
    ]
    cards = "; ".join(f"{host['card']}, {host['date'][:16].replace('T', ' ')}" for host in found["hosts"])
    head = ["exposed share, within 0.05", "of the median recording", "of all recordings", "of `graph-dual` by CUPTI behind a gate"]
    shares = ", ".join(f"{host['collective_share']:.2f} on {host['card']}" for host in found["hosts"] if host.get("collective_share"))
    beside = f"Collectives beside products, as a share of their speed alone: {shares}."
    return f"{times}\n{table(head, rows)}\n{_overlaps(every)}\n{beside}\n\n{cards} (UTC).\n"


def _overlaps(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return how far overlap is off, of runs that have some."""
    told = [one["overlap"] for one in runs if "overlap" in one]
    some = [one for one in told if any(_middle(one["measured"]).values())]
    rows = [["a recording against another of the same", _repeats(some)]]
    rows += [[kind, _middles(some, kind)] for kind in ("predicted", "simulated")]
    none = [one for one in told if one not in some]
    off = sum(_farthest(one["measured"], _middle(one["predicted"])) > 0.05 for one in none)
    said = f"Of {len(none)} runs without overlap, {len(none) - off} are predicted with at most 0.05."
    return f"{table(['overlap', 'within 0.05 of the median recording'], rows)}\n{said}\n"


def _repeats(told: Iterable[Mapping[str, Any]]) -> str:
    """Return how far recordings of one run are from each other."""
    return _within([_farthest([one], other) for each in told for one, other in combinations(each["measured"], 2)])


def _middles(told: Iterable[Mapping[str, Any]], kind: str) -> str:
    """Return how far the medians of a kind are from the median recordings."""
    return _within([_farthest(each["measured"], _middle(each[kind])) for each in told if each.get(kind)])


def _graph_duals(host: Mapping[str, Any]) -> list[Any]:
    return [case["engines"]["graph-dual"] for case in host["cases"]]


def _hides(told: Mapping[str, Any]) -> bool:
    """Tell whether a recording shows hidden communication."""
    return any(share < 1 for one in told["measured"] for share in one.values())


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
    return f"{sum(each <= 0.05 for each in far)} of {len(far)}; off by {statistics.median(far):.3f} in the median, {max(far):.2f} at most"


def recorded_hosts() -> str:
    """Return how far recordings of two GPUs are from CUPTI's and from PyTorch's profiler's."""
    found = data("recorded_hosts")

    def apart_by_graph(measured: Mapping[str, Any]) -> list[list[Any]]:
        return [[one for one in measured["engines"] if ("graph" in one["engine"]) is graph] for graph in (False, True)]

    streams, graphs = apart_by_graph(found)

    def named(one: Mapping[str, Any]) -> list[str]:
        return [one["workload"], f"`{one['engine']}`"]

    def shares(off: Mapping[str, float], unit: str = "%") -> str:
        return " and ".join(f"{100 * each:+.1f}" for each in off.values()) + f" {unit}" * bool(off)

    def close(what: str, offs: Iterable[float], limit: float, unit: str = "%") -> str:
        each = [abs(off) for off in offs]
        within = sum(one <= limit for one in each)
        return f"{what}: {within} of {len(each)} within {100 * limit:.0f} {unit}, the worst {100 * max(each):.2f} off."

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
    other = data("recorded_hosts_h200")
    streams, graphs = apart_by_graph(other)
    of_h200 = [
        close("Without a graph, busy", [off for one in streams for off in one["off"].values()], 0.03),
        close("Graphs, busy", all_off(graphs, "busy"), 0.03),
        close("Exposed share", all_off([one for one in graphs if one["engine"] == "graph-dual"], "exposed"), 0.05, "points"),
    ]
    record = found["record"]["without collectives"]["off"]
    text = ", ".join(f"GPU {gpu} {off:+.2%}" for gpu, off in record.items())
    where = f"{found['card']}, {found['date'][:10]}; the loaded host: {loaded['card']}, {loaded['date'][:10]}.\n"
    tables = f"{first}\n{second}\n{third}"
    on_h200 = f"The programs of the first two tables on {other['card']}, {other['date'][:10]}. {' '.join(of_h200)}"
    return f"{tables}\n{' '.join(said)}\n\n{on_h200}\n\n`ss.record` of a step of PyTorch against its profiler, busy time: {text}.\n{where}"


TABLES = {
    "several-gpus": several_gpus,
    "recorded-hosts": recorded_hosts,
}
