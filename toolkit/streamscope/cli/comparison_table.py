"""A comparison in a terminal: the verdict, a bar for each engine, and the metrics with a column for each engine, which fits 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from streamscope.analysis.metrics import EngineMetrics
from streamscope.analysis.table import MetricsTable, device_words, metrics_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from streamscope.comparing.comparison import Comparison

LONGEST_BAR = 60
COPIES = "copies alone"
STRETCHES = (("█", "blue", "kernels run"), ("▓", "magenta", COPIES), ("░", "dim", "idle"))
BEST, MUTED = "bold green", "dim"


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print a comparison: what was compared, the verdict, bars, metrics, notes."""
    from rich.text import Text

    simulated = comparison.device.simulated
    table = metrics_table(comparison.metrics)
    console.print(Text.assemble((comparison.program, "bold"), " · ", (device_words(comparison.device), "yellow" if simulated else "")))
    console.print()
    console.print(Text(comparison.verdict))
    console.print()
    console.print(_bars(comparison.metrics, table, min(LONGEST_BAR, console.width - 40)))
    console.print(_legend(comparison.metrics, table, "simulated times" if simulated else "measured times"))
    console.print()
    console.print(_metrics(table))
    for number, note in enumerate(table.notes, 1):
        console.print(Text(f"[{number}] {note}", style=MUTED))
    console.print()


def _bars(metrics: Mapping[str, EngineMetrics], table: MetricsTable, width: int) -> Table:
    """Draw each engine's makespan as a bar, to one scale."""
    from rich.table import Table

    longest_us = max(m.makespan_us for m in metrics.values())
    grid = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "left", "right", "left"):
        grid.add_column(no_wrap=True, justify=justify)
    for engine, m in metrics.items():
        row = dict(zip(table.headings, table.cells[engine], strict=True))
        bar = _bar(m, width * m.makespan_us / longest_us if longest_us else 0)
        grid.add_row(engine, bar, f"{table.cells[engine][0]} µs", row.get(table.against, "").strip("–"), style=_style(table, engine))
    return grid


def _bar(metrics: EngineMetrics, length: float) -> Text:
    from rich.text import Text

    bar, end = Text(), 0
    for (sign, style, _), share in zip(STRETCHES, _shares(metrics), strict=True):
        # Ends are rounded, not lengths, so that the bar as a whole is right to half a character.
        start, end = end, round(length * share)
        bar.append(sign * max(0, end - start), style)
    return bar if end else Text("▏", STRETCHES[0][1])


def _shares(metrics: EngineMetrics) -> Iterator[float]:
    """Yield where each stretch ends, as a share of the makespan."""
    busy = min(metrics.busy_fraction, 1.0)
    yield busy
    yield busy + (metrics.copy_us / metrics.makespan_us if metrics.makespan_us else 0.0)
    yield 1.0


def _legend(metrics: Mapping[str, EngineMetrics], table: MetricsTable, times: str) -> Text:
    from rich.text import Text

    copies = any(m.copy_us for m in metrics.values())
    shown = [(sign, style, words) for sign, style, words in STRETCHES if copies or words != COPIES]
    return Text.assemble(
        *(part for sign, style, words in shown for part in ((sign, style), (f" {words}   ", MUTED))),
        (", ".join(filter(None, (times, table.against))), MUTED),
    )


def _metrics(table: MetricsTable) -> Table:
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    grid.add_column(no_wrap=True)
    for engine in table.cells:
        grid.add_column(table.names[engine], justify="right", style=_style(table, engine), header_style=_style(table, engine) or "bold")
    for row, heading in enumerate(table.headings):
        if heading != table.against:  # It stands beside the bars.
            grid.add_row(heading, *(cells[row] for cells in table.cells.values()))
    return grid


def _style(table: MetricsTable, engine: str) -> str:
    return BEST if engine in table.best else ""
