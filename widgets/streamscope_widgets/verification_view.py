"""Verified predictions as static HTML: for each engine what was predicted from the sync trace, what was measured, and the error."""

from __future__ import annotations

from streamscope.predicting.verify import Verification, Verified, error_text, ran_heading
from streamscope.words import format_us
from streamscope_widgets.show.html import Column, Html, Row, above, block, lead, small, table


def verification_html(found: Verification) -> Html:
    """Return it as HTML that needs no script, style sheet or network."""
    worst = found.worst
    columns = (
        Column("engine", "How the operations were issued.", "code"),
        Column("predicted µs", "Makespan that the simulated device has, at the sync trace's prices."),
        Column(ran_heading(found.device), "Median makespan of its runs, each right after another run of the same engine."),
        Column("error", "Predicted over the run, less one."),
    )
    headline = f"Predictions are off by {found.median_error:.1%} in the median, {abs(worst.error):.1%} at most ({worst.engine})"
    return block(
        above(f"{found.program} on {found.device.name}"),
        lead(headline),
        table(columns, [_row(each) for each in found.values()]),
        small("Simulated times, not measured." if found.device.simulated else found.source.what_if(engine="graph").info.notes[0]),
    )


def _row(each: Verified) -> Row:
    return Row([each.engine, format_us(each.prediction.predicted_ns / 1e3), format_us(each.measured_ns / 1e3), error_text(each.error)])
