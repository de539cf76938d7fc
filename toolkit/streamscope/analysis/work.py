"""The device's work: compute, communication, copies; and how much of the latter two compute hides."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from streamscope.analysis.gpus import busiest, of_busiest
from streamscope.analysis.intervals import Intervals, intersection_ns, union
from streamscope.analysis.overlap import span_ns
from streamscope.arrays import IntArray
from streamscope.trace.communication import checked_patterns, communicates, compiled, is_called
from streamscope.trace.spans import MEMORY_KINDS, SpanKind, SpanTable
from streamscope.trace.trace import Trace


class Work(IntEnum):
    """Kind of work of a span on the device."""

    COMPUTE = 0
    """Any kernel that does not communicate."""
    COMMUNICATION = 1
    """A kernel whose name says that it communicates between GPUs: one of `COMMUNICATION`, or of the user's patterns. Of a trace also its
    collectives, and its copies between GPUs."""
    MEMORY = 2
    """Any other copy, or a memory set."""


@dataclass(frozen=True)
class WorkSplit:
    """Time by kind of work, in ns; see `work_split`.

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


def work_of(spans: SpanTable | Trace, communication: Iterable[str] = ()) -> IntArray:
    """Return each span's kind of work: int8 array of `Work`, -1 for spans of the host and replays of graphs.

    A kernel communicates where `COMMUNICATION` has a pattern for its symbol or, where that is not known, for its name. The name is
    compared with its namespaces, and without return type, template arguments and parameters: ``deep_ep::internode::dispatch``. Upper and
    lower case do not matter.

    Parameters
    ----------
    spans : SpanTable or Trace
        Only a trace says which spans are collectives and copies between GPUs, whatever their names are.
    communication : iterable of str
        Patterns of yours, with ``*`` and ``?``, beside those of `COMMUNICATION`: ``["*my_ring*"]``.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "ncclDevKernel_AllReduce_Sum", "stream 7", 0, 30),
    ...                       ("kernel", "gemm", "stream 7", 30, 60), ("copy", "Memcpy HtoD", "stream 7", 60, 70))
    >>> [ss.analysis.Work(work).name for work in ss.analysis.work_of(spans)]
    ['COMMUNICATION', 'COMPUTE', 'MEMORY']
    >>> [ss.analysis.Work(work).name for work in ss.analysis.work_of(spans, communication=["ge*"])]
    ['COMMUNICATION', 'COMMUNICATION', 'MEMORY']
    """
    trace, spans = (spans, spans.spans) if isinstance(spans, Trace) else (None, spans)
    found = np.full(len(spans), -1, np.int8)
    found[spans.is_kind(MEMORY_KINDS)] = Work.MEMORY
    kernels = np.flatnonzero(spans.kind == SpanKind.KERNEL)
    name, symbol = spans.name[kernels], spans.symbol[kernels]
    # A short name has lost its namespaces, so the symbol decides. Patterns of the user's mean either: tables show names.
    known = _tell(spans, np.where(symbol >= 0, symbol, name), communicates)
    found[kernels] = np.where(known | kernels_called(spans, communication), Work.COMMUNICATION, Work.COMPUTE)
    if trace is not None:
        found[trace.collectives.span] = found[trace.peers.span] = Work.COMMUNICATION
    return found


def kernels_called(spans: SpanTable, patterns: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Tell of each kernel whether one of the patterns means its name or its symbol."""
    kernels, wanted = spans.kind == SpanKind.KERNEL, checked_patterns(patterns)
    if not wanted:
        return np.zeros(np.count_nonzero(kernels), bool)
    meant = compiled(wanted)
    by_name, by_symbol = (_tell(spans, codes[kernels], lambda name: is_called(name, meant)) for codes in (spans.name, spans.symbol))
    return by_name | by_symbol


def _tell(spans: SpanTable, codes: IntArray, told: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    """Map a property of names to their codes; False for -1, which is none."""
    of_name = np.zeros(len(spans.names) + 1, bool)  # The last is that of -1.
    of_name[codes] = True
    of_name[-1] = False
    used = np.flatnonzero(of_name)
    of_name[used] = [told(spans.names[code]) for code in used.tolist()]
    found: npt.NDArray[np.bool_] = of_name[codes]
    return found


def work_split(spans: SpanTable | Trace, communication: Iterable[str] = ()) -> WorkSplit:
    """Split a trace's span into compute, communication that compute does not hide, copies that neither hides, and idle time.

    Formula: compute = |∪compute|; exposed communication = |∪communication - ∪compute|; exposed memory = |∪copies and sets - ∪(compute and
    communication)|; idle = the rest of `span_ns`. Overlap of communication = |∪communication ∩ ∪compute| / |∪communication|. Unit: ns.
    Source: TraceLens (compute + exposed + idle = total) and Holistic Trace Analysis (overlap); there the total is from the first start to
    the last end on the device.

    Parameters
    ----------
    spans : SpanTable
    communication : iterable of str
        Patterns of yours for kernels that communicate, as `work_of` takes them.

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "gemm", "stream 7", 0, 30),
    ...                       ("kernel", "ncclDevKernel_AllReduce_Sum", "stream 20", 20, 60))
    >>> found = ss.analysis.work_split(spans)
    >>> found.compute_ns, found.exposed_communication_ns, found.communication_overlap
    (30, 30, 0.25)
    """
    spans = busiest(spans) if isinstance(spans, Trace) else of_busiest(spans)
    work = work_of(spans, communication)
    spans = spans.spans if isinstance(spans, Trace) else spans
    compute, communicating, memory = (_union(spans, work == one) for one in Work)
    kernels = _joined(compute, communicating)
    every = _joined(kernels, memory)
    return WorkSplit(
        compute_ns=compute.length_ns,
        communication_ns=communicating.length_ns,
        memory_ns=memory.length_ns,
        exposed_communication_ns=kernels.length_ns - compute.length_ns,
        exposed_memory_ns=every.length_ns - kernels.length_ns,
        hidden_communication_ns=intersection_ns(communicating, compute),
        hidden_memory_ns=intersection_ns(memory, compute),
        idle_ns=span_ns(spans) - every.length_ns,
    )


def _joined(some: Intervals, others: Intervals) -> Intervals:
    """Return the union of two sets."""
    if not len(others.start_ns):
        return some
    return union(np.concatenate([some.start_ns, others.start_ns]), np.concatenate([some.end_ns, others.end_ns]))


def exposed_communication_ns(spans: SpanTable | Trace) -> int:
    """Time of communication on a GPU in which no kernel computes there.

    Formula: |∪communication - ∪compute|, where communication is collectives and copies between GPUs, and compute all other kernels
    (`work_of`). Unit: ns. Source: TraceLens (exposed communication).

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "gemm", "stream 7", 0, 30),
    ...                       ("kernel", "ncclDevKernel_AllReduce_Sum", "stream 20", 20, 60))
    >>> ss.analysis.exposed_communication_ns(spans)
    30
    """
    return work_split(spans).exposed_communication_ns


def hidden_communication_ns(spans: SpanTable | Trace) -> int:
    """Time of communication on a GPU in which a kernel computes there, too.

    Formula: |∪communication ∩ ∪compute|, as in `exposed_communication_ns`: both add up to the time of communication. Unit: ns.
    Source: Holistic Trace Analysis (communication-computation overlap).

    Examples
    --------
    >>> from streamscope.trace import SpanTable
    >>> spans = SpanTable.of(("kernel", "gemm", "stream 7", 0, 30),
    ...                       ("kernel", "ncclDevKernel_AllReduce_Sum", "stream 20", 20, 60))
    >>> ss.analysis.hidden_communication_ns(spans)
    10
    """
    return work_split(spans).hidden_communication_ns


def mean_exposed_ns(trace: Trace) -> float | None:
    """Time of communication in which no kernel computes on the same GPU, on average over the GPUs.

    Formula: sum over the GPUs of the time of each / how many GPUs the trace has; `exposed_communication_ns` is that of each. Unit: ns.
    None for a trace of one GPU.
    """
    return _mean(trace, exposed_communication_ns)


def mean_hidden_ns(trace: Trace) -> float | None:
    """Time of communication in which a kernel computes on the same GPU, too, on average over the GPUs.

    Formula: sum over the GPUs of the time of each / how many GPUs the trace has; `hidden_communication_ns` is that of each. Unit: ns.
    None for a trace of one GPU.
    """
    return _mean(trace, hidden_communication_ns)


def _mean(trace: Trace, of_one: Callable[[Trace], int]) -> float | None:
    return sum(of_one(trace.of_gpu(gpu)) for gpu in trace.gpus) / len(trace.gpus) if len(trace.gpus) > 1 else None


def _union(spans: SpanTable, chosen: npt.NDArray[np.bool_]) -> Intervals:
    return union(spans.start_ns[chosen], spans.end_ns[chosen])
