"""One GPU out of a trace of several."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from streamscope.arguments import whole_number
from streamscope.errors import TraceError
from streamscope.trace.joins import CALL_KINDS
from streamscope.trace.spans import SpanKind, SpanTable

if TYPE_CHECKING:
    from streamscope.trace.trace import Trace


def trace_of_gpu(trace: Trace, gpu: int) -> Trace:
    """Return the lanes of one GPU and of the host; `Trace.of_gpu` describes it."""
    gpu = whole_number("gpu", gpu, error=TraceError)
    if gpu not in trace.gpus:
        raise TraceError(f"no lane of this trace is of GPU {gpu}", hint=f"it has {', '.join(f'GPU {one}' for one in trace.gpus)}")
    device = replace(trace.info.device, details={**trace.info.device.details, "gpu": gpu, "gpus": list(trace.gpus)})
    info = replace(trace.info, device=device)
    if trace.gpus == (gpu,):
        return trace
    rows = np.flatnonzero(_of_gpu(trace.spans, gpu))
    new_row = np.full(len(trace.spans), -1, np.int64)
    new_row[rows] = np.arange(len(rows))
    known = (trace.origins.row_waits < len(new_row)).all(axis=1)
    waits = new_row[trace.origins.row_waits[known]]
    return replace(
        trace,
        spans=on_used_lanes(trace.spans.select(rows), [lane for lane, of in enumerate(trace.spans.gpus) if of in (-1, gpu)]),
        info=info,
        origins=replace(trace.origins, row_waits=waits[(waits >= 0).all(axis=1)]),
        collectives=trace.collectives.at(new_row),
        peers=trace.peers.at(new_row),
    )


def on_used_lanes(spans: SpanTable, lanes: list[int]) -> SpanTable:
    """Return spans without the lanes that are not among ``lanes``, on which there must be none of them."""
    number = np.full(len(spans.lanes), -1)
    number[lanes] = np.arange(len(lanes))
    texts, gpus = tuple(spans.lanes[lane] for lane in lanes), tuple(spans.gpus[lane] for lane in lanes)
    return replace(spans, lane=number[spans.lane], lanes=texts, gpus=gpus)


def _of_gpu(spans: SpanTable, gpu: int) -> npt.NDArray[np.bool_]:
    """Tell which spans are of a GPU or the host, without calls that launched work of other GPUs alone."""
    on_gpu = spans.gpu
    others, ours = (on_gpu >= 0) & (on_gpu != gpu), on_gpu == gpu
    work = spans.kind >= SpanKind.KERNEL
    theirs = np.setdiff1d(spans.correlation[others & work], np.append(spans.correlation[ours & work], -1))
    elsewhere = spans.is_kind(CALL_KINDS) & np.isin(spans.correlation, theirs)
    found: npt.NDArray[np.bool_] = ~others & ~elsewhere
    return found
