"""A comparison as static HTML: the verdict first, then the metrics, then a still picture.

This is what a notebook keeps when it is closed, mailed and reopened without us.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streamscope.analysis.metrics import EngineMetrics
from streamscope.analysis.table import ENGINE, SIMULATED_CAPTION, MetricsTable, device_words, metrics_table
from streamscope.analysis.verdict import Verdict
from streamscope.trace import DeviceInfo, TimelineGroup
from streamscope_widgets.show.html import Column, Html, Row, above, block, fill, folded, image, lead, lines, small, table
from streamscope_widgets.still_timeline import timeline_svg

if TYPE_CHECKING:
    from streamscope.comparing.comparison import Comparison

MOST_BYTES = 200_000


def comparison_html(comparison: Comparison) -> Html:
    """Return a comparison as HTML of less than 200 kB."""
    return summary_html(comparison.program, comparison.device, comparison.groups(), comparison.metrics, comparison.verdict)


def summary_html(
    title: str, device: DeviceInfo, groups: Sequence[TimelineGroup], metrics: Mapping[str, EngineMetrics], verdict: Verdict | str
) -> Html:
    """Return a comparison as HTML of less than 200 kB that needs no script, style sheet or network.

    Parameters
    ----------
    title : str
        What was compared, for example the program's name.
    device : DeviceInfo
        If it is simulated, verdict, table and picture say so.
    groups : sequence of TimelineGroup
        For the picture; may be empty.
    metrics : mapping of str to EngineMetrics
    verdict : Verdict or str
        With a `Verdict`, its evidence is there too, folded.
    """
    found = metrics_table(metrics)
    return block(
        above(f"{title} · {device_words(device)}"),
        lead(str(verdict)),
        _metrics(found, device),
        small(note_lines(found)),
        "" if isinstance(verdict, str) else folded("What the verdict rests on", lines(verdict.evidence)),
        _picture(groups, str(verdict)),
    )


def note_lines(found: MetricsTable) -> Html:
    """Return the notes of a table, numbered."""
    return lines(f"[{number}] {note}" for number, note in enumerate(found.notes, 1))


def columns_of(found: MetricsTable) -> list[Column]:
    """Return the columns of a table of engines, with what each means."""
    return [Column(ENGINE, kind="text"), *map(Column, found.headings, found.definitions)]


def rows_of(found: MetricsTable) -> list[Row]:
    """Return a row for each engine; the fastest are bold."""
    return [Row((found.names[engine], *cells), bold=engine in found.best) for engine, cells in found.cells.items()]


def _metrics(found: MetricsTable, device: DeviceInfo) -> Html:
    if not found.cells:
        return Html()
    caption = fill('<p style="margin:0 0 4px 0;font-style:italic">{}</p>', SIMULATED_CAPTION) if device.simulated else Html()
    return Html(caption + table(columns_of(found), rows_of(found)))


def _picture(groups: Sequence[TimelineGroup], verdict: str) -> Html:
    if not groups:
        return Html()
    return image(timeline_svg(groups), f"Timelines of {', '.join(group.trace.info.engine for group in groups)} on one time axis. {verdict}")
