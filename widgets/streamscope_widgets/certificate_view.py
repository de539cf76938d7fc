"""A certificate as static HTML: what it rests on, and folded the edges of the true order, each with the memory that asks for it."""

from __future__ import annotations

from streamscope.capturing.certificate import Certificate, OrderedPair
from streamscope.words import counted
from streamscope_widgets.show.html import Column, Html, Row, above, block, folded, lead, lines, small, table

MOST_SHOWN = 100
"""Edges that are listed, and nodes that are not understood; the rest is counted."""
EDGES = (
    Column("earlier", "The node that comes first, with its operator and line.", "prose"),
    Column("later", "The node that waits for it.", "prose"),
    Column("because", "Memory that both touch, one of them writing, and what says so.", "prose"),
)
WRAPPED = "overflow-wrap:anywhere"
"""Names of kernels have no spaces, and three of them beside each other are wider than a notebook."""
UNKNOWN = (Column("node", kind="prose"), Column("why it is not understood", "It is ordered against all others.", "prose"))


def certificate_html(certificate: Certificate) -> Html:
    """Return it as HTML of less than 200 kB that needs no script, style sheet or network."""
    edges = [(earlier, later) for later, direct in enumerate(certificate.order) for earlier in direct]
    unknown = list(certificate.unknown.items())
    return block(
        above(f"Certificate of {certificate.name}"),
        lead(certificate.headline),
        small(lines(certificate.sentences)),
        folded(
            counted(len(edges), "edge"),
            table(EDGES, [_edge(certificate, certificate.pair(*edge)) for edge in edges[:MOST_SHOWN]]),
            _rest(len(edges)),
        )
        if edges
        else Html(),
        folded(
            f"{counted(len(unknown), 'node')} not understood",
            table(UNKNOWN, [Row((certificate.named(number), why), style=WRAPPED) for number, why in unknown[:MOST_SHOWN]]),
            _rest(len(unknown)),
        )
        if unknown
        else Html(),
    )


def _edge(certificate: Certificate, pair: OrderedPair) -> Row:
    reasons = [f"node {number} is not understood" for number in (pair.earlier, pair.later) if number in certificate.unknown]
    because = str(pair.shared[0]) if pair.shared else reasons[0]
    more = f", and {len(pair.shared) - 1:,} more" if len(pair.shared) > 1 else ""
    return Row((certificate.named(pair.earlier), certificate.named(pair.later), because + more), style=WRAPPED)


def _rest(count: int) -> Html:
    return small(f"{count - MOST_SHOWN:,} more are not listed." if count > MOST_SHOWN else "")
