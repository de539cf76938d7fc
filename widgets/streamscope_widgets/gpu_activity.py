"""What each GPU of a trace does over time, and which of it is communication: the lanes "at once"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.analysis import Activity, Work, activity, work_of
from streamscope.analysis.intervals import sums_over_time
from streamscope.analysis.overlap import busy_on_lanes
from streamscope.arrays import IntArray
from streamscope.trace import SpanTable, Trace
from streamscope.trace.one_gpu import rows_of_gpu, with_received
from streamscope.trace.spans import DEVICE_KINDS, MEMORY_KINDS, SpanKind


@dataclass(frozen=True)
class GpuActivity(Activity):
    """`Activity` of one GPU.

    ``collectives`` counts the lanes with kernels, and ``peers`` those with copies, that communicate with other GPUs.
    """

    collectives: IntArray
    peers: IntArray


def activities_of(trace: Trace, spans: SpanTable) -> tuple[GpuActivity, ...]:
    """Return the activity of each GPU while the first spans of a trace run; none where no kernel and no copy is among them.

    The one of a trace of a single GPU counts no collectives: it is one rank's, and looks as it did before there were several GPUs.
    """
    count = multiprocessors_of(trace)
    if not spans.is_kind(DEVICE_KINDS).any():
        return ()
    if len(trace.gpus) < 2:
        found = activity(spans, count)
        none = np.zeros_like(found.kernels)
        return (GpuActivity(**_columns(found), collectives=none, peers=none),)
    communicates = work_of(trace)[: len(spans)] == Work.COMMUNICATION
    each: list[GpuActivity] = []
    for gpu in trace.gpus:
        own = with_received(spans, trace.peers, gpu)
        rows = rows_of_gpu(own, gpu)
        each.append(_told_apart(activity(own.select(rows), count), own.select(rows[communicates[rows]])))
    return tuple(each)


def multiprocessors_of(trace: Trace) -> int | None:
    """Return how many multiprocessors the trace's device has, if it says so."""
    count = trace.info.device.details.get("multiprocessors")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None


def _told_apart(found: Activity, communication: SpanTable) -> GpuActivity:
    """Count the communication of a GPU among its kernels and copies."""
    marks = (found.start_ns, found.end_ns, 0)
    lanes = [busy_on_lanes(communication, kinds) for kinds in ([SpanKind.KERNEL], MEMORY_KINDS)]
    time_ns, (_, collectives, peers) = sums_over_time(marks, *((each.start_ns, each.end_ns, 1) for each in lanes))
    row = np.searchsorted(found.start_ns, time_ns[:-1], side="right") - 1
    cut = {name: values[row] for name, values in _columns(found).items()}
    return GpuActivity(**cut | {"start_ns": time_ns[:-1], "end_ns": time_ns[1:]}, collectives=collectives[:-1], peers=peers[:-1])


def _columns(found: Activity) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__dataclass_fields__}
