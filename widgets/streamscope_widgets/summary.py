"""A comparison as static HTML and as plain text: the verdict first, then the metrics, then a still picture.

This is what a notebook keeps when it is closed, mailed and reopened without us, so it rests on nothing but attributes that an untrusted
notebook lets through: ``style=``, ``title=``, and the picture in an ``<img>`` with a data URI.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from streamscope.analysis.definitions import AGAINST, QUANTITIES, Quantity
from streamscope.analysis.metrics import EngineMetrics
from streamscope.analysis.verdict import Verdict, difference, fastest, reference_engine
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
    parts = [
        f'<div style="{SANS};font-size:13px;line-height:1.45;max-width:1000px">',
        f'<p style="margin:0 0 2px 0;color:#808080">{escape(title)} · {escape(_device(device))}</p>',
        f'<p style="margin:0 0 10px 0;font-size:15px">{escape(str(verdict))}</p>',
        _table_html(metrics, device),
        _notes_html(metrics),
        _evidence_html(verdict),
        _picture_html(groups, str(verdict)),
        "</div>",
    ]
    return "".join(parts)


def summary_text(title: str, device: DeviceInfo, metrics: Mapping[str, EngineMetrics], verdict: Verdict | str) -> str:
    """Return a comparison as plain text: title, verdict, aligned table, notes."""
    rows = [["engine", *_headings(metrics)], *([_name(metrics, engine), *_cells(metrics, engine)] for engine in metrics)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    caption = ["All times in this table are simulated."] if device.kind == "simulated" else []
    notes = [f"[{number}] {flag}" for number, flag in enumerate(_notes(metrics), 1)]
    return "\n".join([f"{title} · {_device(device)}", str(verdict), "", *(line.rstrip() for line in lines), *caption, *notes])


def _columns(metrics: Mapping[str, EngineMetrics]) -> list[Quantity]:
    """Leave out what no engine has a value for."""
    return [quantity for quantity in QUANTITIES if any(getattr(values, quantity.field) is not None for values in metrics.values())]


def _headings(metrics: Mapping[str, EngineMetrics]) -> list[str]:
    first, *rest = (quantity.heading for quantity in _columns(metrics))
    return [first, "low to high", *([f"against {reference_engine(metrics)}"] if len(metrics) > 1 else []), *rest]


def _definitions(metrics: Mapping[str, EngineMetrics]) -> list[str]:
    first, *rest = (quantity.definition for quantity in _columns(metrics))
    return [first, first, *([AGAINST.definition] if len(metrics) > 1 else []), *rest]


def _cells(metrics: Mapping[str, EngineMetrics], engine: str) -> list[str]:
    values, reference = metrics[engine], reference_engine(metrics)
    first, *rest = (quantity.show(values) for quantity in _columns(metrics))
    against = "–" if engine == reference else difference(values, metrics[reference])
    makespan = QUANTITIES[0]
    interval = f"{makespan.show_value(values.makespan_low_us)} to {makespan.show_value(values.makespan_high_us)}"
    return [first, interval, *([against] if len(metrics) > 1 else []), *rest]


def _notes(metrics: Mapping[str, EngineMetrics]) -> list[str]:
    """Return each flag once, however many engines have it."""
    return list(dict.fromkeys(flag for values in metrics.values() for flag in values.flags))


def _name(metrics: Mapping[str, EngineMetrics], engine: str) -> str:
    """Return an engine's name with the numbers of its notes."""
    notes = _notes(metrics)
    numbers = ", ".join(str(notes.index(flag) + 1) for flag in metrics[engine].flags)
    return f"{engine} [{numbers}]" if numbers else engine


def _device(device: DeviceInfo) -> str:
    return f"{device.name}: all times are simulated" if device.kind == "simulated" else device.name


def _table_html(metrics: Mapping[str, EngineMetrics], device: DeviceInfo) -> str:
    if not metrics:
        return ""
    heads = "".join(
        f'<th style="{NUMBER};{LINE};vertical-align:bottom;white-space:normal;font-weight:600" title="{escape(text)}">{escape(label)}</th>'
        for label, text in zip(_headings(metrics), _definitions(metrics), strict=True)
    )
    best = fastest(metrics)
    rows = "".join(_row_html(metrics, engine, bold=engine in best and len(best) < len(metrics)) for engine in metrics)
    simulated = device.kind == "simulated"
    caption = '<p style="margin:0 0 4px 0;font-style:italic">All times in this table are simulated.</p>' if simulated else ""
    first = f'<th style="text-align:left;padding:3px 10px;{LINE};vertical-align:bottom">engine</th>'
    return (
        f'{caption}<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:0 0 6px 0;font-size:12px">'
        f"<thead><tr>{first}{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row_html(metrics: Mapping[str, EngineMetrics], engine: str, *, bold: bool) -> str:
    weight = ";font-weight:700" if bold else ""
    name = f'<td style="text-align:left;padding:3px 10px;white-space:nowrap{weight}">{escape(_name(metrics, engine))}</td>'
    cells = "".join(f'<td style="{NUMBER}{weight}">{escape(cell)}</td>' for cell in _cells(metrics, engine))
    return f"<tr>{name}{cells}</tr>"


def _notes_html(metrics: Mapping[str, EngineMetrics]) -> str:
    lines = "<br>".join(f"[{number}] {escape(flag)}" for number, flag in enumerate(_notes(metrics), 1))
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
