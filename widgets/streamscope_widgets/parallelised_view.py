"""A parallelised function as static HTML: the verdict, the times, the certificate and, once they are recorded, both orders on one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamscope.analysis.table import device_words
from streamscope_widgets.certificate_view import certificate_html
from streamscope_widgets.show.html import Column, Html, Row, above, block, folded, lead, lines, small, table
from streamscope_widgets.still_timeline import timeline_image

if TYPE_CHECKING:
    from streamscope.parallelising.parallelised import Parallelised

TIMES = (Column(kind="text"), Column("µs a run", "Median of runs in turns."), Column("speed-up", "Against the captured order."))
NOT_RECORDED = "timeline() records both orders and shows them on one axis; report(path) writes them to a file."


def parallelised_html(parallelised: Parallelised) -> Html:
    """Return it as HTML of less than 200 kB that needs no script, style sheet or network."""
    gain, recorded = parallelised.gain, parallelised.recorded
    rows = gain.rows()
    picture = small(NOT_RECORDED) if recorded is None else timeline_image(recorded.groups(), gain.headline)
    return block(
        above(f"{gain.name} · {device_words(gain.device)}"),
        lead(gain.headline),
        table(TIMES, [Row(cells, bold=number == len(rows) - 1) for number, cells in enumerate(rows)]),
        picture,
        small(lines(gain.facts)),
        folded("Certificate", certificate_html(gain.certificate)),
    )
