"""One rank of a job: its trace, cut down to what an analysis of many ranks needs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamscope.arrays import IntArray
from streamscope.trace.counters import Counters, Markers
from streamscope.trace.info import TraceInfo
from streamscope.trace.memory import Allocations
from streamscope.trace.spans import DEVICE_KINDS, SpanKind, SpanTable
from streamscope.trace.trace import Trace

SHORT_RANGE_NS = 20_000
"""Shorter ranges are left out: operators of a framework, of which a step has thousands."""


@dataclass(frozen=True)
class Rank:
    """One rank of a job.

    Attributes
    ----------
    number : int
        Its place in the job, from 0 on.
    path : str
        Name of its file.
    trace : Trace
        Work, calls, and ranges of 20 µs and more; without counters.
    host : str, optional
        Its host, where the file or ``hosts=`` names it.
    recording : str, optional
        The recording that it shares with other ranks, and so its clock, where one process or one host recorded several GPUs.
    """

    number: int
    path: str
    trace: Trace
    host: str | None = None
    recording: str | None = None

    @property
    def clock(self) -> str | None:
        """Name of the clock that its times are on, where that is known."""
        if self.recording is not None:
            return f"recording {self.recording}"
        return f"host {self.host}" if self.host and self.trace.info.zero_ns is not None else None

    @property
    def zero_ns(self) -> int:
        """Zero of its trace on the clock of its recorder, in ns; 0 where that is unknown."""
        return self.trace.info.zero_ns or 0

    @property
    def gpu(self) -> str:
        """Name of its GPU."""
        return self.trace.info.device.name

    @property
    def work(self) -> IntArray:
        """Rows of its kernels, copies and sets."""
        return np.flatnonzero(self.trace.spans.is_kind(DEVICE_KINDS))


def needed(trace: Trace) -> Trace:
    """Return a trace without short ranges and without what no analysis of many ranks asks for."""
    spans = trace.spans
    rows = np.flatnonzero((spans.kind != SpanKind.RANGE) | (spans.duration_ns >= SHORT_RANGE_NS))
    return replace(of_rows(trace, rows), counters=Counters(), markers=Markers(), memory=Allocations())


def of_rows(trace: Trace, rows: IntArray) -> Trace:
    """Return a trace of some of its spans, with what is told of them."""
    new_row = np.full(len(trace.spans), -1, np.int64)
    new_row[rows] = np.arange(len(rows))
    waits = trace.origins.row_waits
    waits = new_row[waits[(waits < len(new_row)).all(axis=1)]]
    return replace(
        trace,
        spans=trace.spans.select(rows),
        origins=replace(trace.origins, row_waits=waits[(waits >= 0).all(axis=1)]),
        collectives=trace.collectives.at(new_row),
        peers=trace.peers.at(new_row),
        sites=trace.sites.at(new_row),
    )


def without_work(info: TraceInfo) -> Trace:
    """Return the trace of a rank that had no work of a GPU."""
    return Trace(SpanTable.of(), info)
