"""What the metrics mean, in plain words that rest on numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from streamscope.analysis.metrics import EngineMetrics
from streamscope.analysis.statistics import Order, compare_times
from streamscope.errors import TraceError
from streamscope.trace.trace import DeviceInfo

Bottleneck = Literal["GPU-bound", "copy-bound", "host-bound", "launch-bound", "mixed"]

GPU_BOUND_FROM = 0.75
"""Share of the makespan with a kernel running from which a program is GPU-bound."""
BOUND_FROM = 0.5
"""Share of the makespan from which copies alone, host functions alone, or launching and waiting give the bottleneck its name."""
AS_RATIO_FROM = 1.5
"""From this factor on, a difference is told as a factor, below it in per cent."""
WORTH_SAYING = 0.01
"""Shares of the makespan below this are not told."""
REFERENCES = ("async", "dual", "sync", "graph", "graph-dual")
"""The engine whose metrics classify the program is the first of these that was run."""
CHANGES = {
    "sync": "waiting after every operation",
    "dual": "a second stream alone",
    "graph": "a CUDA graph",
    "graph-dual": "a second stream inside a graph",
}


@dataclass(frozen=True)
class Verdict:
    """A judgement and what it rests on.

    Attributes
    ----------
    text : str
        Plain words, one to four sentences.
    bottleneck : {"GPU-bound", "copy-bound", "host-bound", "launch-bound", "mixed"}
    best : tuple of str
        The fastest engine, with those that cannot be told apart from it.
    evidence : tuple of str
        The numbers, a line each.
    """

    text: str
    bottleneck: Bottleneck
    best: tuple[str, ...]
    evidence: tuple[str, ...]

    def __str__(self) -> str:
        return self.text


def verdict(metrics: Mapping[str, EngineMetrics], device: DeviceInfo) -> str:
    """Return the text of `assess`."""
    return assess(metrics, device).text


def assess(metrics: Mapping[str, EngineMetrics], device: DeviceInfo) -> Verdict:
    """Judge a comparison of any number of engines.

    The bottleneck is named after the shares of the reference engine's makespan: *GPU-bound* where a kernel runs for at least 75 % of it;
    else *copy-bound*, *host-bound* or *launch-bound* where copies alone, host functions alone, or the rest (launching and waiting) take at
    least 50 %; else *mixed*.
    Engines whose intervals overlap are not ranked. A simulated device repeats itself: there, those that are the same within 1 % are not.

    Raises
    ------
    TraceError
        There are no metrics.
    """
    if not metrics:
        raise TraceError("there are no engines to judge", hint="run at least one")
    reference = reference_engine(metrics)
    bottleneck = classify(metrics[reference])
    best = fastest(metrics)
    sentences = (
        _bottleneck_sentence(bottleneck, metrics[reference], reference),
        _changes(metrics, reference),
        _fastest_sentence(metrics, best),
    )
    prefix = f"Simulated times ({device.name}), not measured. " if device.simulated else ""
    text = prefix + " ".join(sentence for sentence in sentences if sentence)
    return Verdict(text, bottleneck, best, _evidence(metrics, reference, device))


def reference_engine(metrics: Mapping[str, EngineMetrics]) -> str:
    """Return the engine that the others are compared with: async, or what comes closest to it among those that ran."""
    return next((engine for engine in REFERENCES if engine in metrics), next(iter(metrics)))


def classify(metrics: EngineMetrics) -> Bottleneck:
    """Name the bottleneck of one engine's run, by the shares and thresholds that `assess` states."""
    if metrics.busy_fraction >= GPU_BOUND_FROM:
        return "GPU-bound"
    copies, host, launching = _shares(metrics)
    shares: tuple[tuple[Bottleneck, float], ...] = (("copy-bound", copies), ("host-bound", host), ("launch-bound", launching))
    return next((name for name, share in shares if share >= BOUND_FROM), "mixed")


def fastest(metrics: Mapping[str, EngineMetrics]) -> tuple[str, ...]:
    """Return the engine with the shortest median makespan, first, and those that cannot be told apart from it."""
    ranked = sorted(metrics, key=lambda engine: metrics[engine].makespan_us)
    return tuple(engine for engine in ranked if engine == ranked[0] or order(metrics[engine], metrics[ranked[0]]) is not Order.SLOWER)


def order(metrics: EngineMetrics, base: EngineMetrics) -> Order:
    """Tell whether an engine is faster or slower than a base, or whether that cannot be told."""
    if metrics.simulated:
        # It repeats itself, so the median is the time; a first run that differs from the rest is no noise either.
        return compare_times(*[metrics.makespan_us] * 3, *[base.makespan_us] * 3)
    if min(metrics.repeats, base.repeats) < 2:
        return Order.UNKNOWN
    return compare_times(
        metrics.makespan_us, metrics.makespan_low_us, metrics.makespan_high_us,
        base.makespan_us, base.makespan_low_us, base.makespan_high_us,
    )  # fmt: skip


def difference(metrics: EngineMetrics, base: EngineMetrics) -> str:
    """Say how an engine's makespan compares with a base's, in a few words.

    Formula: ratio = longer / shorter makespan; from 1.5 on told as ``"3.4× faster"``, below as ``"12 % slower"`` (ratio - 1, in per cent).
    Told only where the two intervals do not overlap (else ``"within the noise"``) and the medians differ by 1 % or more (else
    ``"same within 1 %"``). Times that come from a cost model have no noise: there the medians alone count.
    """
    told = order(metrics, base)
    if told not in (Order.FASTER, Order.SLOWER):
        return {Order.WITHIN_NOISE: "within the noise", Order.SAME: "same within 1 %"}.get(told, "one repeat cannot tell")
    slow, quick = max(metrics.makespan_us, base.makespan_us), min(metrics.makespan_us, base.makespan_us)
    ratio = slow / quick if quick else float("inf")
    amount = f"{ratio:.1f}×" if ratio >= AS_RATIO_FROM else f"{(ratio - 1) * 100:.0f} %"
    return f"{amount} {told.value}"


def _shares(metrics: EngineMetrics) -> tuple[float, float, float]:
    """Shares of the makespan: copies alone, host functions alone, and the rest of the idle time (launching and waiting)."""
    if not metrics.makespan_us:
        return 0.0, 0.0, 0.0
    copies, host = metrics.copy_us, metrics.host_function_us
    return copies / metrics.makespan_us, host / metrics.makespan_us, (metrics.idle_us - copies - host) / metrics.makespan_us


def _bottleneck_sentence(bottleneck: Bottleneck, metrics: EngineMetrics, engine: str) -> str:
    copies, host, launching = _shares(metrics)
    if not metrics.kernel_count and not copies and not metrics.missing_records:
        return f"No kernels: nothing runs on the GPU under {engine}."
    at_least = "at least " if metrics.missing_records else ""
    busy = f"the GPU is busy {at_least}{_percent(min(metrics.busy_fraction, 1.0))} of the time"
    others = (("copies alone take", copies), ("host functions alone take", host), ("launching and waiting take", launching))
    told = others if bottleneck not in ("GPU-bound", "launch-bound") else ()
    parts = [f"under {engine} {busy}", *(f"{words} {_percent(share)}" for words, share in told if share >= WORTH_SAYING)]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"{bottleneck[0].upper()}{bottleneck[1:]}: {listed}."


def _changes(metrics: Mapping[str, EngineMetrics], reference: str) -> str:
    """One sentence: what each other engine changes against the reference, and graph-dual against graph."""
    clauses = []
    for engine in metrics:
        if engine == reference:
            continue
        base = "graph" if engine == "graph-dual" and "graph" in metrics else reference
        what = CHANGES.get(engine, engine)
        whom = "it" if base == reference else f"the {base}"
        told = difference(metrics[engine], metrics[base])
        ranked = told.endswith((Order.FASTER.value, Order.SLOWER.value))
        clauses.append(f"{what} makes {whom} {told}" if ranked else f"{what} makes {whom} neither faster nor slower ({told})")
    sentence = "; ".join(clauses)
    return f"{sentence[0].upper()}{sentence[1:]}." if sentence else ""


def _fastest_sentence(metrics: Mapping[str, EngineMetrics], best: tuple[str, ...]) -> str:
    if len(metrics) == 1:
        return ""
    if len(best) == 1:
        return f"Fastest: {best[0]}."
    simulated = metrics[best[0]].simulated
    if len(best) == len(metrics):
        return "No engine is the fastest: all are the same within 1 %." if simulated else "No engine is measurably the fastest."
    apart = "are the same within 1 %" if simulated else "cannot be told apart"
    return f"Fastest: {', '.join(best[:-1])} and {best[-1]}, which {apart}."


def _evidence(metrics: Mapping[str, EngineMetrics], reference: str, device: DeviceInfo) -> tuple[str, ...]:
    simulated = device.simulated
    word, unranked = ("simulated", "are the same within 1 %") if simulated else ("measured", "have overlapping intervals")
    lines = [f"Times {word} on {device.name}; the bottleneck is that of {reference}; engines that {unranked} are not ranked."]
    for engine, m in metrics.items():
        interval = f"{m.makespan_low_us:,.1f} to {m.makespan_high_us:,.1f}, {m.makespan_basis}, {m.repeats} repeats"
        busy = f"GPU busy {_percent(m.busy_fraction)}, overlap {_percent(m.overlap)} of GPU busy, {m.kernel_count} kernels"
        lines.append(f"{engine}: {m.makespan_us:,.1f} µs ({interval}), {busy}.")
        lines.extend(f"{engine}: {flag}." for flag in m.flags)
    return tuple(lines)


def _percent(fraction: float) -> str:
    percent = fraction * 100
    return f"{percent:.1f} %" if 0 < percent < 1 else f"{percent:.0f} %"
