"""Advice in words."""

from __future__ import annotations

from math import isfinite

from streamscope.advising.break_even import (
    CAPTURED,
    PLAIN,
    WORTH,
    BreakEven,
    DeviceCosts,
    chain_ns,
    fewest_kernels,
    graph_pays,
    launch_bound_below_ns,
    replays_to_pay,
    second_stream_pays,
)
from streamscope.analysis.table import device_words
from streamscope.words import time_text, wrapped

BRANCH = 4
"""Kernels in each of the branches that the verdict speaks of."""
WIDTH = 120


def verdict(costs: DeviceCosts) -> str:
    """Answer for the device in general."""
    return f"{'Simulated times, not measured. ' if costs.device.simulated else ''}{device_sentences(costs)}"


def device_sentences(costs: DeviceCosts) -> str:
    """Say from which kernel length on a graph, or a second stream, pays on the device."""
    bound_ns = launch_bound_below_ns(costs)
    name, short_ns = costs.device.name, min(1000.0, max(bound_ns / 2, 100.0))
    fewest = fewest_kernels(costs, short_ns)
    spared_ns = float(chain_ns(costs, PLAIN, 100, short_ns) - chain_ns(costs, CAPTURED, 100, short_ns))
    host = (
        f"On the {name} kernels shorter than {time_text(bound_ns)} wait for the host when they are launched one by one."
        if bound_ns
        else f"On the {name} the host launches faster than the shortest kernels run."
    )
    graph = f"A graph makes a long chain at least {WORTH * 100:g} % faster {range_words(graph_pays(costs))}"
    enough = f", from {fewest} kernel{'s' if fewest > 1 else ''} on where they take {time_text(short_ns)}" if fewest else ""
    replays = replays_to_pay(costs, 100, spared_ns)
    paid = f"; capturing 100 of those costs as much as {_count(replays)} replays save" if isfinite(replays) else ""
    alone, inside = (second_stream_pays(costs, BRANCH, in_graph=in_graph) for in_graph in (False, True))
    streams = (
        f"A second stream, for two branches of {BRANCH} kernels that leave each other room, pays {range_words(alone)} "
        f"launched one by one, and {range_words(inside)} in a graph."
    )
    return f"{host} {graph}{enough}{paid}. {streams}"


def advice_text(costs: DeviceCosts, most: int = WIDTH) -> str:
    """Return advice as plain text, its sentences in lines of at most so many characters."""
    first, last = (wrapped(words, most) for words in (verdict(costs), basis(costs)))
    return "\n".join([device_words(costs.device), *first, "", *last])


def basis(costs: DeviceCosts) -> str:
    """Name the cost model behind the advice, and how to get a better one."""
    origin = costs.model.provenance
    known = f"Predicted with the cost model of the {origin.device}, measured {origin.date[:10]}."
    return (
        known if costs.device.simulated or origin.device == costs.device.name else f"{known} `streamscope calibrate` measures this GPU's."
    )


def range_words(pays: BreakEven) -> str:
    """Say at which kernel lengths something pays."""
    if pays.never:
        return "at no kernel length"
    if pays.low_ns == 0 and not isfinite(pays.high_ns):
        return "at every kernel length"
    if pays.low_ns == 0:
        return f"for kernels of up to {time_text(pays.high_ns)}"
    if not isfinite(pays.high_ns):
        return f"for kernels of {time_text(pays.low_ns)} or more"
    return f"for kernels of {time_text(pays.low_ns)} to {time_text(pays.high_ns)}"


def _count(number: float) -> str:
    return f"{number:.1f}" if number < 10 else f"{number:,.0f}"
