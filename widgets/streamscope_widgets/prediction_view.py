"""A prediction beside the trace that it was made from: the answer, the numbers of the predicted run, both on one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamscope.analysis.summary import summary
from streamscope.trace import TimelineGroup
from streamscope.words import shortened, time_text
from streamscope_widgets.payload import as_groups, label_of
from streamscope_widgets.show.html import Html, a_picture, block
from streamscope_widgets.still_timeline import timeline_image
from streamscope_widgets.timeline import TimelineWidget, trace_timeline
from streamscope_widgets.trace_view import head

if TYPE_CHECKING:
    from streamscope.predicting.prediction import Prediction

LONGEST_CHANGES = 200


def prediction_html(prediction: Prediction) -> Html:
    """Return a prediction as HTML of less than 200 kB that needs no script, style sheet or network."""
    finding = predicted_words(prediction)
    return block(
        *head(prediction, summary(prediction), finding),
        timeline_image(prediction_groups(prediction), finding),
        a_picture("prediction"),
    )


def prediction_timeline(prediction: Prediction, by: str) -> TimelineWidget:
    """Return the trace and what was predicted from it, live on one axis."""
    if by != "stream":
        return trace_timeline(prediction, by)
    return TimelineWidget(prediction_groups(prediction), predicted_words(prediction))


def prediction_groups(prediction: Prediction) -> tuple[TimelineGroup, ...]:
    """Return the trace that it was made from, and the prediction, with their makespans; changes stand in the heading."""
    supposed = prediction.supposition
    changes = shortened(", ".join(supposed.changes), LONGEST_CHANGES)
    # Without a ledger, nobody knows how long the run takes without recording: the pictures are compared.
    known = "unrecorded_ns" in supposed.source.info.ledger
    source = TimelineGroup(supposed.source, prediction.before_ns if known else None, label=label_of(supposed.source.info))
    predicted_ns = prediction.predicted_ns if known else None
    compared = "" if supposed.stretched else None
    return as_groups([source, TimelineGroup(prediction, predicted_ns, changes, f"{supposed.engine}, predicted", compared)])


def predicted_words(prediction: Prediction) -> str:
    """Say what is predicted, and against what."""
    supposed = prediction.supposition
    changes = f" with {shortened(', '.join(supposed.changes), LONGEST_CHANGES)}" if supposed.changes else ""
    return f"Predicted, not measured: {time_text(prediction.predicted_ns)} under {supposed.engine}{changes}; {prediction.against}."
