"""A comparison as static HTML and as plain text: the verdict first, then the metrics, then a still picture.

This is what a notebook keeps when it is closed, mailed and reopened without us, so it rests on nothing but attributes that an untrusted
notebook lets through: ``style=``, ``title=``, and the picture in an ``<img>`` with a data URI.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from streamscope.analysis.metrics import EngineMetrics
from streamscope.analysis.table import SIMULATED_CAPTION, MetricsTable, device_words, metrics_table
from streamscope.analysis.verdict import Verdict
from streamscope.errors import printable
from streamscope.trace import DeviceInfo
from streamscope_widgets.static_timeline import Group, data_uri, timeline_svg

MOST_BYTES = 200_000
SANS = "font-family:system-ui,-apple-system,Segoe UI,Roboto,sans-serif"
NUMBER = "text-align:right;padding:3px 10px;white-space:nowrap;font-variant-numeric:tabular-nums"
LINE = "border-bottom:1px solid #888888"


def summary_html(
    title: str, device: DeviceInfo, groups: Sequence[Group], metrics: Mapping[str, EngineMetrics], verdict: Verdict | str
) -> str:
    """Return a comparison as HTML of less than 200 kB that needs no script, style sheet or network.

    Parameters
    ----------
    title : str
        What was compared, for example the program's name.
    device : DeviceInfo
        If it is simulated, verdict, table and picture say so.
    groups : sequence of Group
        For the picture; may be empty.
    metrics : mapping of str to EngineMetrics
    verdict : Verdict or str
        With a `Verdict`, its evidence is there too, folded.
    """
    table = metrics_table(metrics)
    parts = [
        f'<div style="{SANS};font-size:13px;line-height:1.45;max-width:1000px">',
        f'<p style="margin:0 0 2px 0;color:#808080">{escape(title)} · {escape(device_words(device))}</p>',
        f'<p style="margin:0 0 10px 0;font-size:15px">{escape(str(verdict))}</p>',
        _table_html(table, device),
        _notes_html(table),
        _evidence_html(verdict),
        _picture_html(groups, str(verdict)),
        "</div>",
    ]
    return "".join(parts)


def summary_text(title: str, device: DeviceInfo, metrics: Mapping[str, EngineMetrics], verdict: Verdict | str) -> str:
    """Return a comparison as plain text: title, verdict, aligned table, notes."""
    table = metrics_table(metrics)
    rows = [["engine", *table.headings], *([table.names[engine], *cells] for engine, cells in table.cells.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    caption = [SIMULATED_CAPTION] if device.simulated else []
    notes = [f"[{number}] {note}" for number, note in enumerate(table.notes, 1)]
    parts = [f"{title} · {device_words(device)}", str(verdict), "", *(line.rstrip() for line in lines), *caption, *notes]
    return printable("\n".join(parts))


def _table_html(table: MetricsTable, device: DeviceInfo) -> str:
    if not table.cells:
        return ""
    heads = "".join(
        f'<th style="{NUMBER};{LINE};vertical-align:bottom;white-space:normal;font-weight:600" title="{escape(text)}">{escape(label)}</th>'
        for label, text in zip(table.headings, table.definitions, strict=True)
    )
    rows = "".join(_row_html(table, engine) for engine in table.cells)
    simulated = device.simulated
    caption = f'<p style="margin:0 0 4px 0;font-style:italic">{SIMULATED_CAPTION}</p>' if simulated else ""
    first = f'<th style="text-align:left;padding:3px 10px;{LINE};vertical-align:bottom">engine</th>'
    return (
        f'{caption}<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:0 0 6px 0;font-size:12px">'
        f"<thead><tr>{first}{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row_html(table: MetricsTable, engine: str) -> str:
    weight = ";font-weight:700" if engine in table.best else ""
    name = f'<td style="text-align:left;padding:3px 10px;white-space:nowrap{weight}">{escape(table.names[engine])}</td>'
    cells = "".join(f'<td style="{NUMBER}{weight}">{escape(cell)}</td>' for cell in table.cells[engine])
    return f"<tr>{name}{cells}</tr>"


def _notes_html(table: MetricsTable) -> str:
    lines = "<br>".join(f"[{number}] {escape(note)}" for number, note in enumerate(table.notes, 1))
    return f'<p style="margin:0 0 6px 0;font-size:12px">{lines}</p>' if lines else ""


def _evidence_html(verdict: Verdict | str) -> str:
    if isinstance(verdict, str):
        return ""
    lines = "<br>".join(escape(line) for line in verdict.evidence)
    return f'<details style="margin:0 0 10px 0;font-size:12px"><summary>What the verdict rests on</summary>{lines}</details>'


def _picture_html(groups: Sequence[Group], verdict: str) -> str:
    if not groups:
        return ""
    alt = f"Timelines of {', '.join(group.trace.info.engine for group in groups)} on one time axis. {verdict}"
    return f'<img style="max-width:100%;height:auto" alt="{escape(alt)}" src="{data_uri(timeline_svg(groups))}">'
