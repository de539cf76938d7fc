"""Running totals of the host's time as a static table."""

from __future__ import annotations

from streamscope.engines.host_totals import HostTotals
from streamscope.results.views import View
from streamscope.words import capitalised, shortened
from streamscope_widgets.show.html import Column, Html, Row, above, block, lead, small, table

MOST_SHOWN = 200
"""Rows that are listed, the largest totals first."""
_LONGEST = 80
COLUMNS = (
    Column("name", "Of the operation, host function or program.", "code"),
    Column("kind", "What the call does.", "text"),
    Column("count", "Calls that returned."),
    Column("host total µs", "Time of the host in all these calls; the GPU's time is not in it."),
    Column("host mean µs", "Total over count."),
    Column("host min µs", "The shortest."),
    Column("host max µs", "The longest."),
)


def totals_html(totals: HostTotals) -> Html:
    """Return them as HTML of less than 200 kB that needs no script, style sheet or network."""
    rows = totals.cells()
    left_out = len(rows) - MOST_SHOWN
    return block(
        above(totals.title),
        lead(capitalised(totals.headline)),
        table(COLUMNS, [Row((shortened(name, _LONGEST), *others)) for name, *others in rows[:MOST_SHOWN]]) if rows else Html(),
        small(f"{left_out:,} more are not listed." if left_out > 0 else ""),
    )


HOST_TOTALS = View(of="host-totals", html=totals_html)
