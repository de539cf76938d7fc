"""Captured code as static HTML: how fast it may become, and its certificate."""

from __future__ import annotations

from streamscope.capturing.captured import CapturedProgram
from streamscope.capturing.certificate import Certificate, OrderedPair
from streamscope.program.foreign import CaptureInfo
from streamscope.results.views import View
from streamscope.words import capitalised, counted
from streamscope_widgets.show.html import (
    Column,
    Html,
    Row,
    above,
    block,
    fill,
    folded,
    joined,
    lead,
    lines,
    page_table,
    small,
    table,
)

NEXT = "ss.compare(captured) shows what its orders bring; ss.audit(captured) what orders kernels without need."


def capture_html(captured: CapturedProgram) -> Html:
    """Return captured code as HTML of less than 200 kB that needs no script, style sheet or network."""
    facts = captured.facts
    said = [f"Captured {facts.captured}.", *_sentences(facts), NEXT]
    return block(
        above(f"{captured.name} · {counted(len(captured.nodes), 'kernel, copy or set', 'kernels, copies and sets')}"),
        lead(capitalised(facts.bound)),
        small(lines(said)),
        folded("Certificate", certificate_html(captured.certificate())),
    )


def capture_lines(facts: CaptureInfo) -> Html:
    """Return the HTML on captured code for a comparison in a notebook."""
    return small(lines([f"Captured {facts.captured}: {facts.bound}.", *_sentences(facts)]))


def capture_section(facts: CaptureInfo) -> Html:
    """Return a report's section on captured code."""
    rows = [("captured", facts.captured), ("to gain", facts.bound), ("certificate", f"{facts.certificate}. {' '.join(facts.evidence)}")]
    rows += [("memory", facts.memory)] if facts.memory else []
    stated = fill('<div class="facts">{}</div>', page_table((Column(), Column()), map(Row, rows)))
    return joined([Html("<h2>The captured code</h2>"), stated])


def _sentences(facts: CaptureInfo) -> list[str]:
    return [*facts.notes, *(f"{each}." for each in (facts.certificate, capitalised(facts.memory)) if each)]


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


CAPTURED = View(of="captured", html=capture_html)
CERTIFICATE = View(of="certificate", html=certificate_html)
