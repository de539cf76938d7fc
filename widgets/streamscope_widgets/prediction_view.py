"""Predictions: beside the trace that they were made from, on one axis; of all ranks of a job; several beside the runs that verify them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamscope.analysis.summary import summary
from streamscope.predicting.prediction import Prediction, what_if
from streamscope.predicting.verify import Verification, ran_heading
from streamscope.results.views import View
from streamscope.trace import TimelineGroup
from streamscope.words import counted, shortened, time_text
from streamscope_widgets.payload import as_groups, label_of
from streamscope_widgets.ranks_view import longest_us, waiting_svg
from streamscope_widgets.show.html import Column, Html, Row, a_picture, above, block, image, lead, small, table, warned
from streamscope_widgets.still_timeline import timeline_image, timeline_svg
from streamscope_widgets.trace_view import head, trace_report

if TYPE_CHECKING:
    from streamscope.ranks.what_if import JobPrediction

LONGEST_CHANGES, LONGEST_CELL = 200, 80
MOST_RANKS = 64
_HEADS = {
    "waiting, µs": "In collectives, until the last rank began, as recorded.",
    "exposed, µs": "Time with communication and no other kernel, as recorded.",
}


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


def job_prediction_html(prediction: JobPrediction) -> Html:
    """Return the ranks of a job before and after changes as HTML that needs no script, style sheet or network."""
    rows = [Row(tuple(shortened(cell, LONGEST_CELL) for cell in cells)) for cells in prediction.table_rows()[:MOST_RANKS]]
    columns = [Column(head, _HEADS.get(head, ""), "text" if head == "GPU" else "number") for head in prediction.heads]
    more = [small(f"and {counted(len(prediction.works) - MOST_RANKS, 'more rank')}")] if len(prediction.works) > MOST_RANKS else []
    jobs = {"as recorded": prediction.recorded, "predicted": prediction.job}
    most_us = max(map(longest_us, jobs.values()))
    maps = [
        image(waiting_svg(job, most_us, title), f"Heat map, {title}: waiting in collectives, by rank and step")
        for title, job in jobs.items()
        if job.waits.waiting_ns.any()
    ]
    return block(
        above(shortened(prediction.title, 2 * LONGEST_CHANGES)),
        lead(shortened(prediction.verdict, 1000)),
        *maps,
        table(columns, rows),
        *more,
        timeline_image(job_prediction_groups(prediction), prediction.verdict),
        warned(prediction.notes, 5, 300),
    )


def job_prediction_groups(prediction: JobPrediction, ranks: Sequence[int] = ()) -> tuple[TimelineGroup, ...]:
    """Return ranks as recorded and as predicted; by default those whose waiting changes most."""
    groups = []
    for number, recorded, predicted in prediction.shown(ranks):
        groups.append(TimelineGroup(recorded, label=f"rank {number}", comparison=""))
        groups.append(TimelineGroup(predicted, label=f"rank {number}, predicted", comparison=""))
    return as_groups(groups)


JOB_PREDICTION = View(
    of="job-prediction",
    html=job_prediction_html,
    pictures={"timeline": lambda prediction: timeline_svg(job_prediction_groups(prediction))},
    timeline="streamscope_widgets.timeline:job_prediction_timeline",
)
PREDICTION = View(
    of="prediction",
    html=prediction_html,
    pictures={"timeline": lambda prediction: timeline_svg(prediction_groups(prediction))},
    timeline="streamscope_widgets.timeline:prediction_timeline",
    report=lambda prediction, path: trace_report(prediction, prediction_groups(prediction), predicted_words(prediction), path),
)
VERIFICATION = View(of="verification", html=verification_html)
