"""Predictions: one beside the trace that it was made from, both on one axis; and several beside the runs that they were verified by."""

from __future__ import annotations

from streamscope.analysis.summary import summary
from streamscope.predicting.prediction import Prediction, what_if
from streamscope.predicting.verify import Verification, ran_heading
from streamscope.results.views import View
from streamscope.trace import TimelineGroup
from streamscope.words import shortened, time_text
from streamscope_widgets.payload import as_groups, label_of
from streamscope_widgets.show.html import Column, Html, Row, a_picture, above, block, lead, small, table
from streamscope_widgets.still_timeline import timeline_image, timeline_svg
from streamscope_widgets.trace_view import head, trace_report

LONGEST_CHANGES = 200


def prediction_html(prediction: Prediction) -> Html:
    """Return a prediction as HTML of less than 200 kB that needs no script, style sheet or network."""
    finding = predicted_words(prediction)
    return block(
        *head(prediction, summary(prediction), finding),
        timeline_image(prediction_groups(prediction), finding),
        a_picture("prediction"),
    )


def prediction_groups(prediction: Prediction) -> tuple[TimelineGroup, ...]:
    """Return the trace that it was made from, and the prediction, with their makespans; changes stand in the heading."""
    scenario = prediction.scenario
    changes = shortened(", ".join(scenario.changes), LONGEST_CHANGES)
    # Without a ledger, nobody knows how long the run takes without recording: the pictures are compared.
    known = "unrecorded_ns" in scenario.source.info.ledger
    source = TimelineGroup(scenario.source, prediction.before_ns if known else None, label=label_of(scenario.source.info))
    predicted_ns = prediction.predicted_ns if known else None
    compared = "" if scenario.stretched else None
    return as_groups([source, TimelineGroup(prediction, predicted_ns, changes, f"{scenario.engine}, predicted", compared)])


def predicted_words(prediction: Prediction) -> str:
    """Say what is predicted, and against what."""
    scenario = prediction.scenario
    changes = f" with {shortened(', '.join(scenario.changes), LONGEST_CHANGES)}" if scenario.changes else ""
    return f"Predicted, not measured: {time_text(prediction.predicted_ns)} under {scenario.engine}{changes}; {prediction.against}."


def verification_html(found: Verification) -> Html:
    """Return predicted and measured time and the error of each engine, as HTML that needs no script, style sheet or network."""
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
        table(columns, [Row(each.cells()) for each in found.values()]),
        small("Simulated times, not measured." if found.device.simulated else what_if(found.source, engine="graph").info.notes[0]),
    )


PREDICTION = View(
    of="prediction",
    html=prediction_html,
    pictures={"timeline": lambda prediction: timeline_svg(prediction_groups(prediction))},
    timeline="streamscope_widgets.timeline:prediction_timeline",
    report=lambda prediction, path: trace_report(prediction, prediction_groups(prediction), predicted_words(prediction), path),
)
VERIFICATION = View(of="verification", html=verification_html)
