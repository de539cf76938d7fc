"""Advice, choices of engines and audits as static HTML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamscope.advising.advice import Advice
from streamscope.advising.choice import Choice
from streamscope.advising.device_costs import COSTS
from streamscope.advising.sentences import basis, device_sentences, fitted_words, forecast_rows, measured_word, program_words
from streamscope.analysis.table import device_words
from streamscope.auditing.audit import SHOWN, Audit
from streamscope.auditing.findings import Finding, Severity
from streamscope_widgets.advice_charts import captures_chart, regions_chart
from streamscope_widgets.report import still_page
from streamscope_widgets.show.html import Column, Html, Row, above, block, fill, folded, image, lead, table
from streamscope_widgets.show.still_chart import plane_svg

RULED = "border-bottom:1px solid #80808055"
MOST_LINES = 8
"""Source lines that are told of one finding."""
# Readable on white and on black alike.
COLOURS = {Severity.ERROR: "#d64545", Severity.WARNING: "#b7791f", Severity.NOTE: "#808080"}


def advice_html(advice: Advice) -> Html:
    """Return an advice as HTML: the verdict, the picture, and the costs that it rests on."""
    costs, forecast = advice.costs, advice.forecast
    own, general = ("" if forecast is None else program_words(costs, forecast)), device_sentences(costs)
    first, second = (own, general) if own else (general, "")
    word = measured_word(costs)
    rows = [(words, f"{value} µs", margin) for name, words in COSTS.items() for value, margin in [fitted_words(costs.fitted[name])]]
    return block(
        above(device_words(costs.device)),
        lead(first),
        fill('<p style="margin:0 0 10px 0">{}</p>', second),
        image(plane_svg(regions_chart(costs, forecast)), first),
        folded(
            "When a graph has paid for its capture", image(plane_svg(captures_chart(costs, forecast)), "replays until a graph has paid")
        ),
        "" if forecast is None else _texts(("engine", "predicted", word, "against async"), forecast_rows(forecast, word)),
        folded("The costs that this rests on", _texts(("cost", "fitted", "95 % interval"), rows), fill("<p>{}</p>", basis(costs))),
    )


def advice_page(advice: Advice, path: Path) -> Path:
    """Write an advice to one HTML file that needs no network and has no scripts, and return its path."""
    return still_page(path, title=f"What pays · {device_words(advice.costs.device)}", body=advice_html(advice))


def choice_html(choice: Choice) -> Html:
    """Return a choice as HTML: the engine and the reason first, then the candidates."""
    headings, *cells = choice.rows()
    columns = [*(Column(heading, kind="text") for heading in headings[:-1]), Column(headings[-1], kind="prose")]
    rows = [Row(each, bold=each[0] == choice.engine, style=RULED) for each in cells]
    reason = fill("<b>{}</b>{}", choice.engine, choice.reason.removeprefix(choice.engine))
    return block(above(choice.headline), lead(reason), table(columns, rows))


def audit_html(audit: Audit) -> Html:
    """Return an audit as HTML that takes its colours from the page: what was looked at, then the findings, the worst first."""
    more = len(audit.findings) - SHOWN
    return block(
        fill('<p style="margin:0 0 2px 0;font-size:15px">{}</p>', audit.headline),
        fill('<p style="margin:0 0 10px 0;color:#808080">{}</p>', audit.circumstances),
        fill('<ul style="list-style:none;margin:0;padding:0">{}</ul>', [_finding(finding) for finding in audit.findings[:SHOWN]]),
        fill("<p>… and {:,} more in <code>.findings</code></p>", more) if more > 0 else "",
        fill('<p style="margin:0;color:#808080;font-size:12px">{}</p>', audit.not_seen),
    )


def _finding(finding: Finding) -> Html:
    lines = [fill("<div>{}</div>", source) for source in finding.sources[:MOST_LINES]]
    return fill(
        '<li style="margin:0 0 8px 0;padding:0 0 0 10px;border-left:3px solid {colour}">'
        '<div><span style="color:{colour};font-weight:600">{severity}</span> · <b>{kind}</b>: {message}</div>'
        "<div>→ {advice}</div>{lines}</li>",
        colour=COLOURS[finding.severity],
        severity=finding.severity.value,
        kind=finding.kind.value,
        message=finding.message,
        advice=finding.advice,
        lines=fill('<div style="color:#808080;font-size:12px">{}</div>', lines) if lines else "",
    )


def _texts(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Html:
    return table([Column(heading, kind="text") for heading in headings], [Row(cells, style=RULED) for cells in rows])
