"""Parallelised code as static HTML: the gain, its certificate, both orders, the graph that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamscope.analysis.table import device_words
from streamscope.errors import StreamscopeError
from streamscope.results.views import View
from streamscope.words import counted
from streamscope_widgets.capture_view import certificate_html
from streamscope_widgets.comparison_view import comparison_report
from streamscope_widgets.graph_picture import graph_html
from streamscope_widgets.show.html import Column, Html, Row, above, block, folded, joined, lead, lines, small, table
from streamscope_widgets.still_timeline import timeline_image, timeline_svg

if TYPE_CHECKING:
    from streamscope.engines.graphs import GraphView
    from streamscope.parallelising.parallelised import Parallelised

TIMES = (Column(kind="text"), Column("µs a run", "Median of runs in turns."), Column("speed-up", "Against the captured order."))
NOT_RECORDED = "Both orders could not be recorded to show them here: {}"
MORE = "timeline() on it gives one to zoom and search, and report(path) a file with all of it."
MOST_BYTES = 200_000
"""Of what a notebook keeps; ``graph`` on the result shows the picture of a larger graph."""


def parallelised_html(parallelised: Parallelised) -> Html:
    """Return it as HTML of less than 200 kB that needs no script, style sheet or network."""
    gain, rows = parallelised.gain, parallelised.gain.rows()
    first = [
        above(f"{gain.name} · {device_words(gain.device)}"),
        lead(gain.headline),
        table(TIMES, [Row(cells, bold=number == len(rows) - 1) for number, cells in enumerate(rows)]),
        _both_orders(parallelised),
        small(lines(gain.facts)),
    ]
    last = folded("Certificate", certificate_html(gain.certificate))
    return block(*first, _graph(parallelised.graph, MOST_BYTES - len(block(*first, last))), last)


def _graph(view: GraphView, most_bytes: int) -> Html:
    """Return the graph that a call launches, as a picture that unfolds, or how to see it where there is too little room."""
    picture = folded("The graph that runs", graph_html(view))
    if len(picture) > most_bytes:
        return small(f"graph on it is a picture of the graph that runs, of {counted(len(view.nodes), 'node')}.")
    return picture


def _both_orders(parallelised: Parallelised) -> Html:
    """Return both orders on one axis, recorded when they are first shown; to show a result raises nothing."""
    try:
        groups = parallelised.comparison.groups()
    except (StreamscopeError, RuntimeError) as error:
        return small(NOT_RECORDED.format(error))
    return joined([timeline_image(groups, parallelised.gain.headline), small(f"This is a picture. {MORE}")])


PARALLELISED = View(
    of="parallelised",
    html=parallelised_html,
    pictures={"timeline": lambda parallelised: timeline_svg(parallelised.comparison.groups())},
    timeline=lambda parallelised: parallelised.comparison.timeline(),
    report=lambda parallelised, path: comparison_report(parallelised.comparison, path),
)
