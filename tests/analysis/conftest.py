"""Random small traces (`st.from_type(SpanTable)`), and an independent reference: one count for each nanosecond."""

import numpy as np
import pytest
from hypothesis import strategies as st

from streamscope.trace import Basis, DeviceInfo, SpanBuilder, SpanKind, SpanTable, Trace, TraceInfo

END_NS = 64
LANES = ("host", "main", "aux", "copy")


@st.composite
def span_tables(draw, max_spans=8):
    """Spans of up to 64 ns on a host lane and three streams: zero-length, overlapping and unjoined ones among them.

    Those of one stream overlap, so their times cannot have been measured.
    """
    builder = SpanBuilder(LANES)
    for correlation in range(draw(st.integers(0, max_spans))):
        start, length = draw(st.integers(0, 30)), draw(st.integers(0, 6))
        if draw(st.booleans()):
            kind = draw(st.sampled_from([SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH]))
            builder.add(kind, "call", "host", start, start + length, correlation=correlation)
        for _ in range(draw(st.integers(0, 3))):
            begin, duration = draw(st.integers(0, 50)), draw(st.integers(0, 12))
            kind = draw(st.sampled_from([SpanKind.KERNEL, SpanKind.KERNEL, SpanKind.COPY, SpanKind.SET]))
            lane = draw(st.sampled_from(LANES[1:]))
            builder.add(kind, "work", lane, begin, begin + duration, correlation=correlation, basis=Basis.DERIVED)
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, 50))
        builder.add(SpanKind.HOST, "function", "host", start, start + draw(st.integers(0, 12)))
    return builder.build()


st.register_type_strategy(SpanTable, span_tables())


@pytest.fixture(scope="session")
def ticks():
    """Count how many spans of these kinds run in each nanosecond from 0 to 63."""

    def count(spans, *kinds, lane=None):
        running = np.zeros(END_NS, int)
        for row in range(len(spans)):
            if spans.kind[row] in kinds and (lane is None or spans.lanes[spans.lane[row]] == lane):
                running[spans.start_ns[row] : spans.end_ns[row]] += 1
        return running

    return count


@pytest.fixture
def make_trace():
    """Make a trace from rows of (kind, lane, start_ns, end_ns, correlation)."""

    def make(*rows, engine="async", device="cuda", basis=Basis.MEASURED, ledger=None, notes=()):
        builder = SpanBuilder(LANES)
        for kind, lane, start_ns, end_ns, correlation in rows:
            builder.add(kind, kind.name.lower(), lane, start_ns, end_ns, operation=correlation, correlation=correlation, basis=basis)
        info = TraceInfo(engine, "program", DeviceInfo(device, "card"), ledger=ledger or {}, notes=notes)
        return Trace(builder.build(), info)

    return make
