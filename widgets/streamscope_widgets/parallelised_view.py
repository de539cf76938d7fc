"""A parallelised function as static HTML: the verdict, the times, both orders on one axis, and the certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamscope.analysis.table import device_words
from streamscope.errors import StreamscopeError
from streamscope_widgets.certificate_view import certificate_html
from streamscope_widgets.show.html import Column, Html, Row, above, block, folded, joined, lead, lines, small, table
from streamscope_widgets.still_timeline import timeline_image

if TYPE_CHECKING:
    from streamscope.parallelising.parallelised import Parallelised

TIMES = (Column(kind="text"), Column("µs a run", "Median of runs in turns."), Column("speed-up", "Against the captured order."))
NOT_RECORDED = "Both orders could not be recorded to show them here: {}"
MORE = "timeline() on it gives one to zoom and search, graph the graph that runs, and report(path) a file with all of it."


def parallelised_html(parallelised: Parallelised) -> Html:
    """Return it as HTML of less than 200 kB that needs no script, style sheet or network."""
    gain, rows = parallelised.gain, parallelised.gain.rows()
    return block(
        above(f"{gain.name} · {device_words(gain.device)}"),
        lead(gain.headline),
        table(TIMES, [Row(cells, bold=number == len(rows) - 1) for number, cells in enumerate(rows)]),
        _both_orders(parallelised),
        small(lines(gain.facts)),
        folded("Certificate", certificate_html(gain.certificate)),
    )


def _both_orders(parallelised: Parallelised) -> Html:
    """Return both orders on one axis, recorded when they are first shown; to show a result raises nothing."""
    try:
        groups = parallelised.comparison.groups()
    except (StreamscopeError, RuntimeError) as error:
        return small(NOT_RECORDED.format(error))
    return joined([timeline_image(groups, parallelised.gain.headline), small(f"This is a picture. {MORE}")])
