"""Which GPU a metric is of, and how long the collectives of each wait for the others.

A metric of one GPU is never of several together: kernels on two GPUs are no overlap. Of spans of several GPUs, it is that of the busiest
one; ``trace.of_gpu(n)`` gives another.

The busiest GPU has the most work of its own. Waiting for other GPUs is no work, and a copy between two is the sender's here, though it
occupies both. Only a trace knows which of its kernels are collectives, and for how long they wait. In a table of spans without its trace,
that time counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.trace.joins import distinct
from streamscope.trace.one_gpu import rows_of_gpu, with_received
from streamscope.trace.spans import DEVICE_KINDS, SpanKind, SpanTable
from streamscope.trace.trace import Trace

_Measure = TypeVar("_Measure", bound=Callable[..., Any])


def of_one_gpu(measure: _Measure) -> _Measure:
    """Make a function of spans one of a single GPU: of several, it measures the busiest."""

    @wraps(measure)
    def measured(spans: SpanTable, *args: Any, **kwargs: Any) -> Any:
        return measure(of_busiest(spans), *args, **kwargs)

    return cast("_Measure", measured)


def several_gpus(spans: SpanTable) -> bool:
    """Tell whether spans lie on the lanes of two GPUs at least."""
    return len(gpus_of(spans)) > 1


def gpus_of(spans: SpanTable) -> list[int]:
    """Return the numbers of the GPUs that have lanes, in order."""
    return sorted({gpu for gpu in spans.gpus if gpu >= 0})


def of_busiest(found: Trace | SpanTable) -> SpanTable:
    """Return the spans of the host and of the busiest GPU, with all lanes."""
    spans = found.spans if isinstance(found, Trace) else found
    if not several_gpus(spans):
        return spans
    gpu = busiest_gpu(found)
    spans = with_received(spans, found.peers, gpu) if isinstance(found, Trace) else spans
    return spans.select(rows_of_gpu(spans, gpu))


def busiest(trace: Trace) -> Trace:
    """Return the trace of its busiest GPU; one of a single GPU as it is."""
    return trace.of_gpu(busiest_gpu(trace)) if several_gpus(trace.spans) else trace


def busiest_gpu(found: Trace | SpanTable) -> int:
    """Return the GPU with the most work, without waiting; the first of those that have as much, and 0 where there is none."""
    spans = found.spans if isinstance(found, Trace) else found
    gpus = gpus_of(spans)
    if len(gpus) < 2:
        return gpus[0] if gpus else 0
    work_ns = work_without_waiting_ns(found) if isinstance(found, Trace) else _work_ns(found)
    return gpus[int(work_ns.argmax())]


def compared_gpu(traces: Sequence[Trace]) -> int | None:
    """Return the GPU that speaks for a comparison: the same one in all traces. None where no trace has several, or they share none.

    It is the busiest in all of them together: the others wait for it, where they wait.
    """
    shared = sorted(set.intersection(*({*trace.gpus} for trace in traces))) if traces else []
    if not shared or all(len(trace.gpus) < 2 for trace in traces):
        return None
    work_ns = np.zeros(len(shared), np.int64)
    for trace in traces:
        work_ns += work_without_waiting_ns(trace)[np.isin(trace.gpus, shared)]
    return shared[int(work_ns.argmax())]


def work_without_waiting_ns(trace: Trace, times: CollectiveTimes | None = None) -> IntArray:
    """Return the sum of the durations of each GPU's work, without the time in which its collectives wait for other GPUs.

    ``times`` are the trace's.
    """
    times = collective_times(trace) if times is None else times
    waiting_ns = np.array([times.waiting_ns[times.gpu == gpu].sum() for gpu in trace.gpus], np.int64)
    return _work_ns(trace.spans) - waiting_ns


def _work_ns(spans: SpanTable) -> IntArray:
    """Return the sum of the durations of each GPU's work.

    Replays of graphs enclose their kernels, and count where there is no other work only.
    """
    work = spans.is_kind(DEVICE_KINDS)
    work = work if work.any() else spans.kind >= SpanKind.KERNEL
    on_gpu, duration_ns = spans.gpu[work], spans.duration_ns[work]
    return np.array([duration_ns[on_gpu == gpu].sum() for gpu in gpus_of(spans)], np.int64)


@dataclass(frozen=True)
class CollectiveTimes:
    """Result of `collective_times`: equally long columns, one row for each row of ``trace.collectives``.

    Attributes
    ----------
    gpu : int64 array
    waiting_ns, transfer_ns : int64 arrays
        Both together are the duration; 0 where they are not known.
    last : int64 array
        The part of the same operation that began last, as a row of the trace; -1 where it is not known.
    """

    gpu: IntArray
    waiting_ns: IntArray
    transfer_ns: IntArray
    last: IntArray

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Whether the parts of the operation on all of its GPUs are in the trace."""
        return self.last >= 0


def collective_times(trace: Trace) -> CollectiveTimes:
    """Divide each part of a collective into waiting for other GPUs and transfer.

    Formula: waiting = start of the last part - start of the part, no longer than the part; transfer = duration - waiting. Unit: ns.
    Known of an operation whose parts on all GPUs are in the trace: as many as it has ranks or, where that number is unknown, two.

    Parameters
    ----------
    trace : Trace

    Examples
    --------
    >>> from streamscope.trace import Collectives, DeviceInfo, SpanTable, Trace, TraceInfo
    >>> spans = SpanTable.of(("kernel", "all-reduce", "GPU 0 main", 0, 50), ("kernel", "all-reduce", "GPU 1 main", 30, 50),
    ...                      gpus={"GPU 0 main": 0, "GPU 1 main": 1})
    >>> info = TraceInfo("sync", "step", DeviceInfo("cuda", "2 × NVIDIA H100"))
    >>> trace = Trace(spans, info, collectives=Collectives.from_columns([0, 1], "all_reduce", instance=0, ranks=2))
    >>> found = ss.analysis.collective_times(trace)
    >>> found.waiting_ns.tolist(), found.transfer_ns.tolist()
    ([30, 0], [20, 20])
    """
    spans, rows = trace.spans, trace.collectives.span
    gpu, start_ns, duration_ns = spans.gpu[rows], spans.start_ns[rows], spans.duration_ns[rows]
    which, last_ns, known, _ = instances(trace)
    waiting_ns = np.where(known, np.clip(last_ns[which] - start_ns, 0, duration_ns), 0)
    began_last, last = start_ns == last_ns[which], np.full(len(last_ns), -1)
    last[which[began_last]] = rows[began_last]
    return CollectiveTimes(gpu, waiting_ns, np.where(known, duration_ns - waiting_ns, 0), np.where(known, last[which], -1))


def instances(trace: Trace) -> tuple[IntArray, IntArray, npt.NDArray[np.bool_], IntArray]:
    """Return of each row of the collectives its operation, when the last part of each began, whether all are there, and their ranks."""
    found, spans = trace.collectives, trace.spans
    _, which = distinct(found.instance)
    gpus, gpu = distinct(spans.gpu[found.span])
    count = int(which.max(initial=-1)) + 1
    parts, part = distinct(which * len(gpus) + gpu)
    first_ns = np.full(len(parts), np.iinfo(np.int64).max)
    np.minimum.at(first_ns, part, spans.start_ns[found.span])
    last_ns = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(last_ns, parts // max(1, len(gpus)), first_ns)
    ranks = np.zeros(count, np.int64)
    np.maximum.at(ranks, which, found.ranks)
    there = np.bincount(parts // max(1, len(gpus)), minlength=count)
    whole = (there >= 2) & ((ranks == 0) | (there == ranks))
    return which, last_ns, whole[which] & (found.instance >= 0), np.where(ranks > 0, ranks, there)
