"""The table of engines as text: each metric of the registry with its definition and values, the engines side by side."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamscope.analysis import metric as registry
from streamscope.analysis.metric import Metric, definition_of, metrics_of
from streamscope.analysis.metrics import EngineMetrics
from streamscope.analysis.statistics import median_interval
from streamscope.analysis.verdict import Verdict, against, difference, fastest, reference_of
from streamscope.errors import printable
from streamscope.results.result import Result
from streamscope.trace.info import DeviceInfo
from streamscope.words import aligned, shortened_inside

AGAINST = Metric(name="makespan_us", label="against", unit="", function=difference, scope=())
"""The column that compares each engine with the reference."""
ENGINE = "engine"
"""Heading of the first column."""
INTERVAL = "low to high"
LONGEST_NAME = 60
"""Letters of a row's name in text."""


@dataclass(frozen=True)
class MetricsTable:
    """Metrics of engines as text."""

    headings: tuple[str, ...]
    """Label and unit of each column, without the first one, which names the engine."""
    definitions: tuple[str, ...]
    """Definition of each of these columns."""
    first: tuple[bool, ...]
    """Whether each is among those that a reader wants first."""
    names: Mapping[str, str]
    """Name of each engine's row: the engine with the numbers of its notes, for example ``"graph [1]"``."""
    cells: Mapping[str, tuple[str, ...]]
    """Engine to the values of its row."""
    against: str
    """The heading of the column that compares with the reference engine; empty where there is nothing to compare."""
    best: tuple[str, ...]
    """The fastest engines; empty if none is faster than another."""
    notes: tuple[str, ...]
    """Warnings for the reader; each once, however many engines it concerns."""
    caption: str = ""
    """Of which of several GPUs the metrics are; empty where there is one."""

    def part(self, *, first: bool) -> MetricsTable:
        """Return the table with the columns that a reader wants first alone, or with all others."""
        chosen = [column for column, wanted in enumerate(self.first) if wanted is first]
        headings, definitions, *cells = (
            tuple(values[column] for column in chosen) for values in (self.headings, self.definitions, *self.cells.values())
        )
        found = dict(zip(self.cells, cells, strict=True))
        return replace(self, headings=headings, definitions=definitions, first=(first,) * len(chosen), cells=found)


def metrics_table(metrics: Mapping[str, EngineMetrics], wrong: Collection[str] = ()) -> MetricsTable:
    """Write metrics as text; a metric that no engine has a value for is left out.

    Engines with ``wrong`` results are none of the best, and the column that compares engines says so.
    """
    if not metrics:
        return MetricsTable((), (), (), {}, {}, "", (), ())
    makespan, *others = (
        metric for metric in metrics_of(registry.ENGINE) if any(m.value(metric.name) is not None for m in metrics.values())
    )
    compared = f"{AGAINST.label} {reference_of(metrics, wrong)}" if len(metrics) > 1 else ""
    # A simulated clock has no noise, so an interval of its times says nothing.
    varied = any(
        not m.simulated or makespan.show_value(m.makespan_low_us) != makespan.show_value(m.makespan_high_us) for m in metrics.values()
    )
    head = [
        (makespan.heading, makespan.definition),
        *([(compared, AGAINST.definition)] if compared else []),
        *([(INTERVAL, definition_of(median_interval))] if varied else []),
    ]
    notes = tuple(dict.fromkeys(flag for m in metrics.values() for flag in m.flags))
    best = fastest({engine: m for engine, m in metrics.items() if engine not in wrong})
    return MetricsTable(
        headings=(*(heading for heading, _ in head), *(metric.heading for metric in others)),
        definitions=(*(meaning for _, meaning in head), *(metric.definition for metric in others)),
        first=(*(True for _ in head), *(metric.first for metric in others)),
        names={engine: _name(m, notes) for engine, m in metrics.items()},
        cells={engine: _cells(metrics, engine, makespan, others, wrong, varied=varied) for engine in metrics},
        against=compared,
        best=best if len(best) < len(metrics) else (),
        notes=notes,
        caption=_caption(metrics),
    )


def metrics_text(title: str, device: DeviceInfo, metrics: Mapping[str, EngineMetrics], verdict: Verdict | str) -> str:
    """Return a comparison as plain text: title, verdict, aligned table, notes."""
    wrong = () if isinstance(verdict, str) else verdict.wrong
    return printable("\n".join([f"{title} · {device_words(device)}", str(verdict), "", *_lines(metrics, wrong)]))


class EngineTable(dict[str, EngineMetrics], Result):
    """The metrics of engines by name, shown as a table.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, engines="async,graph", device="simulated", progress=False)
    >>> runs.metrics
    All times are simulated.
    engine  makespan, µs  against async  GPU busy, µs  GPU busy, %  ...
    """

    view = "metrics"
    wrong: tuple[str, ...] = ()
    """Engines whose results are wrong."""

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics of each engine as JSON values."""
        return {engine: metrics.to_dict() for engine, metrics in self.items()}

    def __repr__(self) -> str:
        simulated = ["All times are simulated."] if any(each.simulated for each in self.values()) else []
        return printable("\n".join([*simulated, *_lines(self, self.wrong, upright=len(self) == 1)]))


def _lines(metrics: Mapping[str, EngineMetrics], wrong: Collection[str], *, upright: bool = False) -> list[str]:
    """Return metrics as lines of text, with a row for each engine or, upright, for each metric."""
    table = metrics_table(metrics, wrong)
    rows = [(ENGINE, *table.headings), *((table.names[engine], *cells) for engine, cells in table.cells.items())]
    notes = [f"[{number}] {note}" for number, note in enumerate(table.notes, 1)]
    head = [table.caption] if table.caption else []
    return [*head, *(aligned([*zip(*rows, strict=True)]) if upright else aligned(rows, numbers=True)), *notes]


def metrics_markdown(title: str, device: DeviceInfo, metrics: Mapping[str, EngineMetrics], verdict: Verdict) -> str:
    """Return a comparison as Markdown: title, verdict, table, notes, and the verdict's evidence."""
    table = metrics_table(metrics, verdict.wrong)
    lines = markdown_rows((ENGINE, *table.headings), ((table.names[engine], *cells) for engine, cells in table.cells.items()))
    notes = [f"\\[{number}\\] {in_markdown(note)}  " for number, note in enumerate(table.notes, 1)]
    evidence = ["What the verdict rests on:", "", *(f"- {in_markdown(line)}" for line in verdict.evidence)]
    caption = [in_markdown(table.caption), ""] if table.caption else []
    head = [f"# {in_markdown(title)} · {in_markdown(device_words(device))}", "", in_markdown(verdict.text), "", *caption]
    return printable("\n".join([*head, *lines, "", *notes, *([""] if notes else []), *evidence, ""]))


def page_markdown(title: str, answer: str, headings: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str]) -> str:
    """Return a short page as Markdown: the answer, the table if it has rows, the notes."""
    cells = list(rows)
    table = markdown_rows(headings, cells) if cells else []
    listed = [f"- {in_markdown(note)}" for note in notes]
    return printable("\n".join([f"# {in_markdown(title)}", "", in_markdown(answer), "", *table, "", *listed, ""]))


def page_text(title: str, answer: str, headings: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str]) -> str:
    """Return the same as plain text; long names of rows are cut inside."""
    cells = [(shortened_inside(name, LONGEST_NAME), *others) for name, *others in rows]
    table = ["", *aligned([headings, *cells], numbers=True)] if cells else []
    return printable("\n".join([title, answer, *table, *notes]))


def markdown_rows(headings: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1) -> list[str]:
    """Return a table in Markdown; all columns but the first, and but the last where ``words`` is 2, hold numbers."""
    rule = ["---", *["---:"] * (len(headings) - words), *["---"] * (words - 1)]
    head, *others = ([*map(in_markdown, row)] for row in (headings, *rows))
    return [" | ".join(["", *row, ""]).strip() for row in (head, rule, *others)]


def in_markdown(text: str) -> str:
    """Return text that Markdown shows as it is: no tag, no cell that ends early, no link, no code, on one line."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", " ".join(text.split()))


def device_words(device: DeviceInfo) -> str:
    """Name a device. Say so where its times are simulated, and which GPU it is of several in a file."""
    words = f"{device.name}: all times are simulated" if device.simulated else device.name
    if device.gpu is None or len(device.gpus) < 2:
        return words
    which = f"GPU {device.gpu}"  # It is the name, too, where the file has no better one.
    return f"{which if words == which else f'{words} · {which}'} of {len(device.gpus)}"


def _caption(metrics: Mapping[str, EngineMetrics]) -> str:
    gpus = {m.gpu for m in metrics.values()} - {None}
    if len(gpus) != 1:
        return ", ".join(f"{engine}: of GPU {m.gpu}" for engine, m in metrics.items() if m.gpu is not None)
    return f"Metrics of one GPU are of GPU {gpus.pop()}: no other one has more work."


def _name(metrics: EngineMetrics, notes: tuple[str, ...]) -> str:
    numbers = ", ".join(str(notes.index(flag) + 1) for flag in metrics.flags)
    return f"{metrics.engine} [{numbers}]" if numbers else metrics.engine


def _cells(
    metrics: Mapping[str, EngineMetrics], engine: str, makespan: Metric, others: list[Metric], wrong: Collection[str], *, varied: bool
) -> tuple[str, ...]:
    values, reference = metrics[engine], reference_of(metrics, wrong)
    low, high = makespan.show_value(values.makespan_low_us), makespan.show_value(values.makespan_high_us)
    interval = [f"{low} to {high}"] if varied else []
    compared = [against(metrics, engine, reference, wrong) or "–"] if len(metrics) > 1 else []
    return (values.show(makespan), *compared, *interval, *map(values.show, others))
