"""The table of engines, as words: each metric with its definition and its values as text, and the engines side by side.

A definition is the first part of the docstring of the function that computes the metric. So tables, tooltips and charts show the same
words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamscope import display
from streamscope.analysis.launches import api_time_ns, launch_latency_ns, queue_time_ns
from streamscope.analysis.metrics import EngineMetrics, busy_fraction, device_memory_bytes, idle_ns, makespan_ns, recording_cost
from streamscope.analysis.overlap import copy_compute_overlap, gpu_busy_ns, host_device_overlap, kernel_count, overlap_fraction
from streamscope.analysis.statistics import median_interval
from streamscope.analysis.traits import reference_engine
from streamscope.analysis.verdict import Verdict, difference, fastest
from streamscope.docstrings import docstring
from streamscope.errors import printable
from streamscope.trace.info import DeviceInfo
from streamscope.words import aligned, format_mib, format_us


@dataclass(frozen=True)
class Quantity:
    """One metric as tables and charts name it."""

    field: str
    """Its attribute of `EngineMetrics`."""
    label: str
    unit: str
    function: Callable[..., Any]
    """What computes it, and so defines it."""
    error: str = ""
    """The attribute that says how far it may be off, where there is one."""

    @property
    def heading(self) -> str:
        """Label with its unit, for a table's head or an axis."""
        return f"{self.label}, {self.unit}" if self.unit else self.label

    @property
    def definition(self) -> str:
        """Definition, formula, denominator and source, in one paragraph; the unit is the one that is shown."""
        return re.sub(r"Unit: [^.;,]+", f"Unit: {self.unit or 'none'}", definition_of(self.function))

    def show(self, values: EngineMetrics) -> str:
        """Return its value as text, without the unit: ``"33.1 ± 2.9"`` where it may be off; an en dash where there is none."""
        error = getattr(values, self.error) if self.error else None
        shown = self.show_value(getattr(values, self.field))
        return f"{shown} ± {self.show_value(error)}" if error else shown

    def show_value(self, value: float | None) -> str:
        """Return any value of this quantity as text, without the unit."""
        if value is None:
            return "–"
        if self.unit == "µs":
            return format_us(value)
        if self.unit == "%":
            return f"{value * 100:.1f}" if 0 < value < 0.0995 else f"{value * 100:.0f}"
        if self.unit == "MiB":
            return format_mib(value)
        return f"{value:.2f}" if self.unit == "×" else f"{value:,}"


QUANTITIES = (
    Quantity("makespan_us", "makespan", "µs", makespan_ns),
    Quantity("gpu_busy_us", "GPU busy", "µs", gpu_busy_ns, "gpu_busy_error_us"),
    Quantity("busy_fraction", "GPU busy", "%", busy_fraction, "busy_fraction_error"),
    Quantity("idle_us", "idle", "µs", idle_ns),
    Quantity("overlap", "overlap", "%", overlap_fraction, "overlap_error"),
    Quantity("copy_overlap", "copies beside kernels", "%", copy_compute_overlap),
    Quantity("host_overlap", "host beside device", "%", host_device_overlap),
    Quantity("kernel_count", "kernels", "", kernel_count),
    Quantity("launch_latency_us", "launch latency", "µs", launch_latency_ns),
    Quantity("queue_time_us", "queue time", "µs", queue_time_ns),
    Quantity("api_time_us", "API time", "µs", api_time_ns),
    Quantity("device_memory_bytes", "device memory", "MiB", device_memory_bytes),
    Quantity("recording_cost", "recording", "×", recording_cost),
)
"""The metrics that a table of engines shows, in its order."""
FIRST = frozenset({"makespan_us", "busy_fraction", "idle_us", "overlap", "copy_overlap", "host_overlap", "kernel_count"})
"""The metrics that answer most questions, and fit beside each other; the others stand apart where there is little room."""
AGAINST = Quantity("makespan_us", "against", "", difference)
"""The column that compares each engine with the reference."""


def definition_of(function: Callable[..., Any]) -> str:
    """Return what a function's docstring says before its sections, as one paragraph."""
    lines = docstring(function).split("\n")
    rule = next((row for row, line in enumerate(lines) if line and set(line) == {"-"}), len(lines) + 1)
    return " ".join(" ".join(lines[: rule - 1]).replace("`", "").split())


ENGINE = "engine"
"""Heading of the first column."""
INTERVAL = "low to high"


@dataclass(frozen=True)
class MetricsTable:
    """Metrics of engines as text."""

    headings: tuple[str, ...]
    """Label and unit of each column, without the first one, which names the engine."""
    definitions: tuple[str, ...]
    """What each of these columns means."""
    first: tuple[bool, ...]
    """Whether each is among those that a reader wants first."""
    names: Mapping[str, str]
    """Engine to what its row is called: its name with the numbers of its notes, for example ``"graph [1]"``."""
    cells: Mapping[str, tuple[str, ...]]
    """Engine to the values of its row."""
    against: str
    """The heading of the column that compares with the reference engine; empty where there is nothing to compare."""
    best: tuple[str, ...]
    """The fastest engines; empty if none is faster than another."""
    notes: tuple[str, ...]
    """What a reader must know before believing the numbers; each once, however many engines it concerns."""

    def part(self, *, first: bool) -> MetricsTable:
        """Return the table with the columns that a reader wants first alone, or with all others."""
        chosen = [column for column, wanted in enumerate(self.first) if wanted is first]
        headings, definitions, *cells = (
            tuple(values[column] for column in chosen) for values in (self.headings, self.definitions, *self.cells.values())
        )
        found = dict(zip(self.cells, cells, strict=True))
        return replace(self, headings=headings, definitions=definitions, first=(first,) * len(chosen), cells=found)


def metrics_table(metrics: Mapping[str, EngineMetrics]) -> MetricsTable:
    """Write metrics as text; a quantity that no engine has a value for is left out."""
    if not metrics:
        return MetricsTable((), (), (), {}, {}, "", (), ())
    makespan, *others = (quantity for quantity in QUANTITIES if any(getattr(m, quantity.field) is not None for m in metrics.values()))
    against = f"{AGAINST.label} {reference_engine(metrics)}" if len(metrics) > 1 else ""
    # A simulated clock has no noise, so an interval of its times says nothing.
    varied = any(
        not m.simulated or makespan.show_value(m.makespan_low_us) != makespan.show_value(m.makespan_high_us) for m in metrics.values()
    )
    head = [
        (makespan.heading, makespan.definition),
        *([(against, AGAINST.definition)] if against else []),
        *([(INTERVAL, definition_of(median_interval))] if varied else []),
    ]
    notes = tuple(dict.fromkeys(flag for m in metrics.values() for flag in m.flags))
    best = fastest(metrics)
    return MetricsTable(
        headings=(*(heading for heading, _ in head), *(quantity.heading for quantity in others)),
        definitions=(*(meaning for _, meaning in head), *(quantity.definition for quantity in others)),
        first=(*(True for _ in head), *(quantity.field in FIRST for quantity in others)),
        names={engine: _name(m, notes) for engine, m in metrics.items()},
        cells={engine: _cells(metrics, engine, makespan, others, varied=varied) for engine in metrics},
        against=against,
        best=best if len(best) < len(metrics) else (),
        notes=notes,
    )


def metrics_text(title: str, device: DeviceInfo, metrics: Mapping[str, EngineMetrics], verdict: Verdict | str) -> str:
    """Return a comparison as plain text: title, verdict, aligned table, notes."""
    return printable("\n".join([f"{title} · {device_words(device)}", str(verdict), "", *_lines(metrics)]))


class EngineTable(dict[str, EngineMetrics], display.Shown):
    """The metrics of engines by name, shown as a table.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, engines="async,graph", device="simulated", progress=False)
    >>> runs.metrics
    All times are simulated.
    engine  makespan, µs  against async  GPU busy, µs  GPU busy, %  ...
    """

    def __repr__(self) -> str:
        simulated = ["All times are simulated."] if any(each.simulated for each in self.values()) else []
        return printable("\n".join([*simulated, *_lines(self, upright=len(self) == 1)]))


def _lines(metrics: Mapping[str, EngineMetrics], *, upright: bool = False) -> list[str]:
    """Return metrics as lines of text, with a row for each engine or, upright, for each metric."""
    table = metrics_table(metrics)
    rows = [(ENGINE, *table.headings), *((table.names[engine], *cells) for engine, cells in table.cells.items())]
    notes = [f"[{number}] {note}" for number, note in enumerate(table.notes, 1)]
    return [*(aligned([*zip(*rows, strict=True)]) if upright else aligned(rows, numbers=True)), *notes]


def metrics_markdown(title: str, device: DeviceInfo, metrics: Mapping[str, EngineMetrics], verdict: Verdict) -> str:
    """Return a comparison as Markdown: title, verdict, table, notes, and what the verdict rests on."""
    table = metrics_table(metrics)
    lines = markdown_rows((ENGINE, *table.headings), ((table.names[engine], *cells) for engine, cells in table.cells.items()))
    notes = [f"\\[{number}\\] {in_markdown(note)}  " for number, note in enumerate(table.notes, 1)]
    evidence = ["What the verdict rests on:", "", *(f"- {in_markdown(line)}" for line in verdict.evidence)]
    head = [f"# {in_markdown(title)} · {in_markdown(device_words(device))}", "", in_markdown(verdict.text), ""]
    return printable("\n".join([*head, *lines, "", *notes, *([""] if notes else []), *evidence, ""]))


def markdown_rows(headings: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> list[str]:
    """Return a table in Markdown; all columns but the first, and but the last where ``words`` is 2, hold numbers."""
    rule = ["---", *["---:"] * (len(headings) - words), *["---"] * (words - 1)]
    head, *others = ([*map(in_markdown, row)] for row in (headings, *rows))
    return [" | ".join(["", *row, ""]).strip() for row in (head, rule, *others)]


def in_markdown(text: str) -> str:
    """Return text that Markdown shows as it is: no tag, no cell that ends early, no link, no code, on one line."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", " ".join(text.split()))


def device_words(device: DeviceInfo) -> str:
    """Name a device, and say so where its times are simulated."""
    return f"{device.name}: all times are simulated" if device.simulated else device.name


def _name(metrics: EngineMetrics, notes: tuple[str, ...]) -> str:
    numbers = ", ".join(str(notes.index(flag) + 1) for flag in metrics.flags)
    return f"{metrics.engine} [{numbers}]" if numbers else metrics.engine


def _cells(
    metrics: Mapping[str, EngineMetrics], engine: str, makespan: Quantity, others: list[Quantity], *, varied: bool
) -> tuple[str, ...]:
    values, reference = metrics[engine], reference_engine(metrics)
    low, high = makespan.show_value(values.makespan_low_us), makespan.show_value(values.makespan_high_us)
    interval = [f"{low} to {high}"] if varied else []
    against = ["–" if engine == reference else difference(values, metrics[reference])] if len(metrics) > 1 else []
    return (makespan.show(values), *against, *interval, *(quantity.show(values) for quantity in others))
