"""Work of several GPUs together: collectives of each, the GPU that others wait for, bus bandwidth, imbalance, copies by link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.analysis.gpus import CollectiveTimes, busiest_gpu, collective_times, instances, work_without_waiting_ns
from streamscope.analysis.intervals import union
from streamscope.arrays import FloatArray, IntArray
from streamscope.trace.collectives import bus_factor
from streamscope.trace.spans import DEVICE_KINDS, SpanKind
from streamscope.trace.trace import Trace
from streamscope.words import time_text

_WORTH_SAYING = 0.02
"""A GPU is told as late where each of the others waits for it for this share of the run, on average."""


def collective_wait_ns(trace: Trace, gpu: int | None = None) -> int | None:
    """Time in which the collectives of one GPU waited for other GPUs.

    Formula: sum over its parts of (start of the last part - start of the part), as `collective_times` has it. Unit: ns. Parts that run
    side by side count each. None where no collective has all of its parts in the trace.

    Parameters
    ----------
    trace : Trace
    gpu : int, optional
        By default the busiest.
    """
    return times_of_gpu(trace, gpu)[0]


def collective_transfer_ns(trace: Trace, gpu: int | None = None) -> int | None:
    """Time in which the collectives of one GPU ran with all GPUs taking part.

    Formula: sum over its parts of (duration - waiting), as `collective_times` has it. Unit: ns. Parts that run side by side count each.
    None where no collective has all of its parts in the trace.

    Parameters
    ----------
    trace : Trace
    gpu : int, optional
        By default the busiest.
    """
    return times_of_gpu(trace, gpu)[1]


def waited_for_ns(trace: Trace, gpu: int | None = None) -> int | None:
    """Time in which other GPUs waited in collectives for one GPU, which began last.

    Formula: sum over the parts on other GPUs, of collectives that the GPU began last, of (start of the last part - start of the part), as
    `collective_times` has it. Unit: ns. None where no collective has all of its parts in the trace. The GPU with the most of it is the
    slowest.

    Parameters
    ----------
    trace : Trace
    gpu : int, optional
        By default the busiest.
    """
    return times_of_gpu(trace, gpu)[2]


def times_of_gpu(trace: Trace, gpu: int | None = None, times: CollectiveTimes | None = None) -> tuple[int | None, int | None, int | None]:
    """Return how long the collectives of a GPU waited, and transferred, and how long others waited for it; ``times`` are the trace's."""
    if not len(trace.collectives):
        return None, None, None
    times = collective_times(trace) if times is None else times
    number = busiest_gpu(trace) if gpu is None else gpu
    own, last = times.known & (times.gpu == number), times.known & (trace.spans.gpu[times.last] == number)
    waiting_ns, transfer_ns = (int(column[own].sum()) if own.any() else None for column in (times.waiting_ns, times.transfer_ns))
    return waiting_ns, transfer_ns, int(times.waiting_ns[last].sum()) if times.known.any() else None


@dataclass(frozen=True)
class Awaited:
    """The GPU that the others wait for in collectives.

    Attributes
    ----------
    gpu : int
    begun_last, collectives : int
        How many collectives it began last, of how many.
    shortest_ns, longest_ns : int
        How long the others wait for it: each of them in all of these, the one that waits least and the one that waits most.
    others : int
        How many they are.
    works_longer : bool
        Whether its work is longer by half of the longest wait, at least. Else its work was launched later.
    """

    gpu: int
    begun_last: int
    collectives: int
    shortest_ns: int
    longest_ns: int
    others: int
    works_longer: bool

    @property
    def wait(self) -> str:
        """Who waits, and for how long."""
        low, high = time_text(self.shortest_ns), time_text(self.longest_ns)
        if self.others == 1:
            return f"the other GPU waits {high}"
        return f"the others wait {high} each" if low == high else f"the others wait {low} to {high}"

    @property
    def words(self) -> str:
        """The whole as a clause."""
        return f"{self.wait} for GPU {self.gpu}, which {'has more work' if self.works_longer else 'was launched later'}"


def awaited(trace: Trace, times: CollectiveTimes | None = None) -> Awaited | None:
    """Return the GPU that the others wait for, and why; None where none is worth saying, or nothing tells why.

    ``times`` are the trace's.
    """
    if len(trace.gpus) < 2 or not len(trace.collectives):
        return None
    times, gpus = collective_times(trace) if times is None else times, np.array(trace.gpus)
    own, last = (np.searchsorted(gpus, gpu[times.known]) for gpu in (times.gpu, trace.spans.gpu[times.last]))
    waited_ns = np.zeros((len(gpus), len(gpus)), np.int64)  # By the GPU that is waited for, and the one that waits.
    np.add.at(waited_ns, (last, own), times.waiting_ns[times.known])
    whole_ns = waited_ns.sum(axis=1)
    place, run_ns = int(whole_ns.argmax()), max(1, int(trace.spans.end_ns.max() - trace.spans.start_ns.min()))
    if whole_ns[place] < _WORTH_SAYING * run_ns * (len(gpus) - 1) or 2 * whole_ns[place] < whole_ns.sum():
        return None
    others_ns = np.delete(waited_ns[place], place)
    work_ns, begin_ns = work_without_waiting_ns(trace, times), _first_ns(trace)
    works_longer = bool(2 * (work_ns[place] - np.median(np.delete(work_ns, place))) >= others_ns.max())
    if not works_longer and begin_ns[place] <= np.median(np.delete(begin_ns, place)):
        return None
    parts = np.unique(times.last[times.known])
    begun = int((trace.spans.gpu[parts] == gpus[place]).sum())
    return Awaited(int(gpus[place]), begun, len(parts), int(others_ns.min()), int(others_ns.max()), len(others_ns), works_longer)


def _first_ns(trace: Trace) -> IntArray:
    """Return when the first work of each GPU begins."""
    work = trace.spans.is_kind(DEVICE_KINDS)
    on_gpu, start_ns = trace.spans.gpu[work], trace.spans.start_ns[work]
    latest_ns = np.iinfo(np.int64).max
    return np.array([start_ns[on_gpu == gpu].min(initial=latest_ns) for gpu in trace.gpus], np.int64)


def bus_bandwidth(trace: Trace) -> float | None:
    """How fast collectives moved data over the links of one GPU, without the time in which they waited.

    Formula: sum of (size * factor) / sum of (last end - start of the last part), over collectives whose parts on all GPUs are in the
    trace and whose kind and size are known. The factor for n ranks is 2(n-1)/n of all-reduce, (n-1)/n of all-gather, reduce-scatter,
    all-to-all, gather and scatter, 1 of broadcast, reduce and send. Unit: GB/s (10^9 bytes). None where there is no such collective.
    Source: NCCL's tests, which time collectives that all GPUs begin together.

    Examples
    --------
    >>> from streamscope.trace import Collectives, DeviceInfo, SpanTable, Trace, TraceInfo
    >>> spans = SpanTable.of(("kernel", "all-reduce", "GPU 0 main", 0, 50_000), ("kernel", "all-reduce", "GPU 1 main", 30_000, 50_000),
    ...                      gpus={"GPU 0 main": 0, "GPU 1 main": 1})
    >>> info = TraceInfo("sync", "step", DeviceInfo("cuda", "2 × NVIDIA H100"))
    >>> trace = Trace(spans, info, collectives=Collectives.from_columns([0, 1], "all_reduce", instance=0, nbytes=6_000_000, ranks=2))
    >>> ss.analysis.bus_bandwidth(trace)  # 6 MB in 20 µs
    300.0
    """
    if not len(trace.collectives):
        return None
    _, bus_bytes, time_ns = bus_times(trace)
    told = bus_bytes > 0
    whole_ns = int(time_ns[told].sum())
    return float(bus_bytes[told].sum()) / whole_ns if whole_ns > 0 else None


def bus_times(trace: Trace) -> tuple[IntArray, FloatArray, IntArray]:
    """Return of each row of the collectives its operation; of each operation the bytes over each link, and from when the last part began.

    0 bytes, where parts, the kind or the size are not known.
    """
    found = trace.collectives
    which, last_ns, known, ranks = instances(trace)
    _, first = np.unique(which, return_index=True)
    nbytes, end_ns = np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
    np.maximum.at(nbytes, which, found.nbytes)
    np.maximum.at(end_ns, which, trace.spans.end_ns[found.span])
    kinds = found.words("kind")
    factor = np.array([bus_factor(kinds[row], count) for row, count in zip(first.tolist(), ranks.tolist(), strict=True)], np.float64)
    return which, np.where(known[first], nbytes * factor, 0.0), end_ns - last_ns


def busy_imbalance(trace: Trace) -> float | None:
    """How much longer one GPU runs kernels than the GPUs do on average: the one that does so longest.

    Formula: max(GPU busy) / mean(GPU busy) - 1, over the GPUs of the trace. Unit: fraction. Denominator: the mean. 0 where all are
    equally busy. Kernels of collectives count with the time in which they wait. None for a trace of one GPU.

    Examples
    --------
    >>> from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
    >>> spans = SpanTable.of(("kernel", "a", "GPU 0 main", 0, 30), ("kernel", "a", "GPU 1 main", 0, 50),
    ...                      gpus={"GPU 0 main": 0, "GPU 1 main": 1})
    >>> ss.analysis.busy_imbalance(Trace(spans, TraceInfo("sync", "step", DeviceInfo("cuda", "2 × NVIDIA H100"))))
    0.25
    """
    spans = trace.spans
    if len(trace.gpus) < 2:
        return None
    kernels = np.flatnonzero(spans.kind == SpanKind.KERNEL)
    start_ns, end_ns, on_gpu = spans.start_ns[kernels], spans.end_ns[kernels], spans.gpu[kernels]
    busy_ns = [union(start_ns[on_gpu == gpu], end_ns[on_gpu == gpu]).length_ns for gpu in trace.gpus]
    mean_ns = sum(busy_ns) / len(busy_ns)
    return max(busy_ns) / mean_ns - 1 if mean_ns else None


@dataclass(frozen=True)
class LinkCopies:
    """Copies from one GPU to another one.

    Attributes
    ----------
    from_gpu, to_gpu : int
    count : int
    nbytes : int
        Bytes of all of them.
    time_us : float
        Time with at least one of them running.
    """

    from_gpu: int
    to_gpu: int
    count: int
    nbytes: int
    time_us: float

    @property
    def bandwidth(self) -> float | None:
        """Bytes by that time, in GB/s; None where either is 0."""
        return self.nbytes / self.time_us / 1000 if self.nbytes and self.time_us else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"from": self.from_gpu, "to": self.to_gpu, "count": self.count, "bytes": self.nbytes, "time_us": self.time_us}


def link_copies(trace: Trace) -> tuple[LinkCopies, ...]:
    """Count the copies between GPUs by link, with their bytes and the time with at least one of them running.

    Formula: length of the union of all copies from one GPU to another one. Unit: µs. A copy on two lanes counts once for each.

    Examples
    --------
    >>> import numpy as np
    >>> from streamscope.trace import DeviceInfo, PeerCopies, SpanTable, Trace, TraceInfo
    >>> spans = SpanTable.of(("copy", "x", "GPU 0 peer copy", 0, 2_000), gpus={"GPU 0 peer copy": 0})
    >>> peers = PeerCopies(np.array([0]), np.array([0]), np.array([1]))
    >>> ss.analysis.link_copies(Trace(spans, TraceInfo("sync", "step", DeviceInfo("cuda", "2 × NVIDIA H100")), peers=peers))
    (LinkCopies(from_gpu=0, to_gpu=1, count=1, nbytes=0, time_us=2.0),)
    """
    found, spans = trace.peers, trace.spans
    links = sorted(set(zip(found.from_gpu.tolist(), found.to_gpu.tolist(), strict=True)))
    copies = []
    for source, target in links:
        rows = found.span[(found.from_gpu == source) & (found.to_gpu == target)]
        time_ns = union(spans.start_ns[rows], spans.end_ns[rows]).length_ns
        copies.append(LinkCopies(source, target, len(rows), int(spans.bytes[rows].sum()), time_ns / 1000))
    return tuple(copies)


def peer_copy_ns(trace: Trace) -> int | None:
    """Time with at least one copy between GPUs running, on any link.

    Formula: length of the union of all copies from GPU to GPU. Unit: ns. `link_copies` has it link by link, with bytes. None where there
    is none.
    """
    rows = trace.peers.span
    return union(trace.spans.start_ns[rows], trace.spans.end_ns[rows]).length_ns if len(rows) else None
