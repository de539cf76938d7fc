"""One GPU out of a trace of several."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamscope.arguments import whole_number
from streamscope.arrays import IntArray
from streamscope.errors import TraceError
from streamscope.trace.joins import CALL_KINDS, distinct
from streamscope.trace.spans import SpanTable
from streamscope.words import lane_prefix

if TYPE_CHECKING:
    from streamscope.trace.collectives import PeerCopies
    from streamscope.trace.trace import Trace


def trace_of_gpu(trace: Trace, gpu: int) -> Trace:
    """Return the lanes of one GPU and of the host; `Trace.of_gpu` describes it."""
    gpu = whole_number("gpu", gpu, error=TraceError)
    if gpu not in trace.gpus:
        raise TraceError(f"no lane of this trace is of GPU {gpu}", hint=f"it has {', '.join(f'GPU {one}' for one in trace.gpus)}")
    if trace.gpus == (gpu,):
        return trace
    device = trace.info.device.of_one(gpu)
    info = replace(trace.info, device=replace(device, details={**device.details, "gpus": list(trace.gpus)}))
    spans = with_received(trace.spans, trace.peers, gpu)
    rows = rows_of_gpu(spans, gpu)
    new_row = np.full(len(spans), -1, np.int64)
    new_row[rows] = np.arange(len(rows))
    known = (trace.origins.row_waits < len(new_row)).all(axis=1)
    waits = new_row[trace.origins.row_waits[known]]
    others = {lane for lane, of in zip(trace.spans.lanes, trace.spans.gpus, strict=True) if of not in (-1, gpu)}
    return replace(
        trace,
        spans=on_used_lanes(spans.select(rows), [lane for lane, of in enumerate(spans.gpus) if of in (-1, gpu)]),
        info=info,
        origins=replace(trace.origins, row_waits=waits[(waits >= 0).all(axis=1)]),
        collectives=trace.collectives.at(new_row),
        peers=trace.peers.at(new_row),
        sites=trace.sites.at(new_row),
        counters=trace.counters.of_gpu(gpu),
        memory=trace.memory.of_gpu(gpu),
        user_notes=tuple(note for note in trace.user_notes if note.lane not in others),
    )


def with_received(spans: SpanTable, peers: PeerCopies, gpu: int) -> SpanTable:
    """Return spans with the copies from other GPUs to one on lanes of that: they occupy copy engines of both. ``peers`` are a trace's."""
    theirs = (peers.to_gpu == gpu) & (peers.from_gpu != gpu) & (peers.span < len(spans))
    if not theirs.any():
        return spans
    sources, source = np.unique(peers.from_gpu[theirs], return_inverse=True)
    lane = spans.lane.copy()
    lane[peers.span[theirs]] = len(spans.lanes) + source
    names = (f"{lane_prefix(gpu)}from GPU {other}" for other in sources.tolist())
    return replace(spans, lane=lane, lanes=(*spans.lanes, *names), gpus=(*spans.gpus, *(gpu for _ in sources)))


def on_used_lanes(spans: SpanTable, lanes: list[int]) -> SpanTable:
    """Return spans without the lanes that are not among ``lanes``, on which there must be none of them."""
    number = np.full(len(spans.lanes), -1)
    number[lanes] = np.arange(len(lanes))
    texts, gpus = tuple(spans.lanes[lane] for lane in lanes), tuple(spans.gpus[lane] for lane in lanes)
    return replace(spans, lane=number[spans.lane], lanes=texts, gpus=gpus)


def rows_of_gpu(spans: SpanTable, gpu: int) -> IntArray:
    """Return the rows of one GPU and of the host, without those that have to do with other GPUs alone.

    These are calls that launched work of other GPUs, and threads that launched nothing else, as those of other ranks in a merged file.
    """
    on_gpu = spans.gpu
    others, ours = (on_gpu >= 0) & (on_gpu != gpu), on_gpu == gpu
    used, launch = distinct(spans.correlation)
    by_ours, by_theirs = (np.bincount(launch[rows], minlength=len(used)) > 0 for rows in (ours, others))
    launches = spans.is_kind(CALL_KINDS) & (spans.correlation >= 0)
    elsewhere = launches & (by_theirs & ~by_ours)[launch]
    idle_threads = _lanes_with(spans, elsewhere) & ~_lanes_with(spans, launches & ~elsewhere)
    return np.flatnonzero(~others & ~elsewhere & ~idle_threads[spans.lane])


def _lanes_with(spans: SpanTable, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Tell which lanes have spans that a mask chooses, or are the ranges of a thread that has."""
    found: npt.NDArray[np.bool_] = np.bincount(spans.lane[chosen], minlength=len(spans.lanes)) > 0
    threads = {f"{spans.lanes[lane]} ranges" for lane in np.flatnonzero(found).tolist()}
    found |= np.array([spans.lanes[lane] in threads for lane in spans.stream_lanes.tolist()], bool)
    return found
