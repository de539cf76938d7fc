"""Tables of whole networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from page_tables.parts import data, measured_on, table
from streamscope.words import format_us


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


TABLES = {
    "networks": networks,
    "network-training": network_training,
    "network-kernels": network_kernels,
}
