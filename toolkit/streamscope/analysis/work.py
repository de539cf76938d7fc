"""What the device works on: compute, communication, copies; and how much of the latter two compute hides."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from streamscope.analysis.intervals import Intervals, intersection_ns, union
from streamscope.analysis.overlap import span_ns
from streamscope.trace.spans import MEMORY_KINDS, IntArray, SpanKind, SpanTable

COMMUNICATION = re.compile(r"^nccl.*kernel|^(rccl|nvshmem|deep_ep::)", re.IGNORECASE)
"""Names of kernels that communicate between GPUs. Holistic Trace Analysis has the first of these alone."""


class Work(IntEnum):
    """What a span on the device is for."""

    COMPUTE = 0
    """Any kernel that does not communicate."""
    COMMUNICATION = 1
    """A kernel whose name or symbol says that it communicates between GPUs (NCCL, RCCL, NVSHMEM, DeepEP)."""
    MEMORY = 2
    """A copy or a memory set."""


@dataclass(frozen=True)
class WorkSplit:
    """Where the time goes by what the device works on, in ns; see `work_split`.

    Attributes
    ----------
    compute_ns, communication_ns, memory_ns : int
        Time with at least one such span running.
    exposed_communication_ns : int
        Time with communication and no compute.
    exposed_memory_ns : int
        Time with a copy or a set, and neither compute nor communication.
    hidden_communication_ns, hidden_memory_ns : int
        Time with communication and compute; time with a copy or a set and compute.
    idle_ns : int
        Time with none of them.
    """

    compute_ns: int
    communication_ns: int
    memory_ns: int
    exposed_communication_ns: int
    exposed_memory_ns: int
    hidden_communication_ns: int
    hidden_memory_ns: int
    idle_ns: int

    @property
    def total_ns(self) -> int:
        """Sum of compute, exposed communication, exposed memory and idle time, in ns: `span_ns`."""
        return self.compute_ns + self.exposed_communication_ns + self.exposed_memory_ns + self.idle_ns

    @property
    def communication_overlap(self) -> float | None:
        """Share of the communication that compute hides, 0 to 1; None where there is none."""
        return self.hidden_communication_ns / self.communication_ns if self.communication_ns else None


def work_of(spans: SpanTable) -> IntArray:
    """Tell what each span is for: int8 array of `Work`, -1 for spans of the host and replays of graphs.

    A kernel communicates where its name or its symbol begins with ``nccl`` and holds ``Kernel``, as Holistic Trace Analysis has it, or
    begins with ``rccl``, ``nvshmem`` or ``deep_ep::``. Upper and lower case do not matter.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "ncclDevKernel_AllReduce_Sum", "stream 7", 0, 30),
    ...                       ("kernel", "gemm", "stream 7", 30, 60), ("copy", "Memcpy HtoD", "stream 7", 60, 70))
    >>> [ss.analysis.Work(work).name for work in ss.analysis.work_of(spans)]
    ['COMMUNICATION', 'COMPUTE', 'MEMORY']
    """
    found = np.full(len(spans), -1, np.int8)
    found[spans.is_kind(MEMORY_KINDS)] = Work.MEMORY
    kernels = np.flatnonzero(spans.kind == SpanKind.KERNEL)
    talks = np.array([*(bool(COMMUNICATION.match(name)) for name in spans.names), False])
    found[kernels] = np.where(talks[spans.name[kernels]] | talks[spans.symbol[kernels]], Work.COMMUNICATION, Work.COMPUTE)
    return found


def work_split(spans: SpanTable) -> WorkSplit:
    """Split a trace's span into compute, communication that compute does not hide, copies that neither hides, and idle time.

    Formula: compute = |∪compute|; exposed communication = |∪communication - ∪compute|; exposed memory = |∪copies and sets - ∪(compute and
    communication)|; idle = the rest of `span_ns`. Overlap of communication = |∪communication ∩ ∪compute| / |∪communication|. Unit: ns.
    Source: TraceLens (compute + exposed + idle = total) and Holistic Trace Analysis (overlap); there the total is from the first start to
    the last end on the device.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "gemm", "stream 7", 0, 30),
    ...                       ("kernel", "ncclDevKernel_AllReduce_Sum", "stream 20", 20, 60))
    >>> found = ss.analysis.work_split(spans)
    >>> found.compute_ns, found.exposed_communication_ns, found.communication_overlap
    (30, 30, 0.25)
    """
    work = work_of(spans)
    compute, communication, memory = (_union(spans, work == one) for one in Work)
    kernels = _joined(compute, communication)
    every = _joined(kernels, memory)
    return WorkSplit(
        compute_ns=compute.length_ns,
        communication_ns=communication.length_ns,
        memory_ns=memory.length_ns,
        exposed_communication_ns=kernels.length_ns - compute.length_ns,
        exposed_memory_ns=every.length_ns - kernels.length_ns,
        hidden_communication_ns=intersection_ns(communication, compute),
        hidden_memory_ns=intersection_ns(memory, compute),
        idle_ns=span_ns(spans) - every.length_ns,
    )


def _joined(some: Intervals, others: Intervals) -> Intervals:
    """Return the union of two sets."""
    if not len(others.start_ns):
        return some
    return union(np.concatenate([some.start_ns, others.start_ns]), np.concatenate([some.end_ns, others.end_ns]))


def exposed_communication_ns(spans: SpanTable) -> int:
    """Time in which a kernel that communicates between GPUs runs and no other kernel does. Unit: ns."""
    return work_split(spans).exposed_communication_ns


def _union(spans: SpanTable, chosen: npt.NDArray[np.bool_]) -> Intervals:
    return union(spans.start_ns[chosen], spans.end_ns[chosen])
