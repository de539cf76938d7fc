"""The metrics of one engine, measured from its trace and its repeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.analysis.collectives import (
    awaited,
    bus_bandwidth,
    busy_imbalance,
    peer_copy_ns,
    times_of_gpu,
)
from streamscope.analysis.gpus import CollectiveTimes, compared_gpu
from streamscope.analysis.idle import IdleSplit, device_idle
from streamscope.analysis.launches import MissingRecords, api_time_ns, launch_latency_ns, missing_records, queue_time_ns
from streamscope.analysis.metric import ENGINE, Metric, added_values
from streamscope.analysis.overlap import (
    busy_error_ns,
    copy_compute_overlap,
    exposed_copy_ns,
    exposed_host_ns,
    gpu_busy_ns,
    host_device_overlap,
    kernel_count,
    kernel_time_ns,
    overlap_error,
    overlap_ns,
)
from streamscope.analysis.statistics import FEWEST_FOR_INTERVAL, MedianInterval, median_interval
from streamscope.analysis.work import work_split
from streamscope.arrays import IntArray
from streamscope.results.result import Result
from streamscope.trace.file_checks import plain
from streamscope.trace.info import TraceInfo
from streamscope.trace.spans import SpanKind
from streamscope.trace.trace import Trace
from streamscope.words import time_text

_WIDE_SPREAD = 0.1
"""An interval wider than this share of its median is flagged."""
_COSTLY_RECORDING = 1.25
"""Recording that makes a run longer than this many times is flagged."""
PROFILED = "a profiler stretched the recorded run, its calls most: time a run without it"


@dataclass(frozen=True, repr=False)
class EngineMetrics(Result):
    """Metrics of one engine on a program. Each number is defined by the function that the registry names for it.

    It is shown as a table.

    Attributes
    ----------
    engine : str
    simulated : bool
        All times are of a simulated device; never show them without saying so.
    makespan_us, makespan_low_us, makespan_high_us : float
        Median of the repeats that ran without recording, and its interval.
    makespan_basis : str
        Kind of the interval; see `MedianInterval`.
    repeats : int
    gpu_busy_us, copy_us, idle_us : float
        Time with a kernel running, with copies and sets alone, and the rest of the makespan.
    busy_fraction : float
        ``gpu_busy_us / makespan_us``.
    overlap_us, overlap : float
        Time with two or more kernels running, and its share of ``gpu_busy_us``.
    host_wait_us, launch_wait_us, kernel_wait_us, other_idle_us : float
        Parts of ``idle_us``: the four causes of idleness.
    host_function_us : float
        Part of ``idle_us`` in which a host function of the program ran and nothing else did.
    kernel_count : int
    kernel_time_us : float
        Sum of all kernels' durations.
    api_time_us : float
    launch_latency_us, queue_time_us : float or None
        Medians over launches; None where there is nothing to take a median of.
    recording_cost : float or None
        Makespan with recording over the makespan without; None where the trace does not say.
    missing_records : int
        Launch calls whose kernel or copy is not in the trace.
    device_memory_bytes : int or None
        Device memory that the engine held; None where it was not measured.
    flags : tuple of str
        Warnings for the reader.
    copy_overlap : float or None
        Share of the copying time in which a kernel runs, too; None where nothing is copied.
    host_overlap : float or None
        Share of the host functions' time in which the device works, too; None where there are none.
    gpu_busy_error_us, overlap_error : float or None
        How far ``gpu_busy_us`` and ``overlap`` may be off; None where CUPTI or stamps checked them (`busy_error_ns`, `overlap_error`).
    net_overlap_us : float or None
        Net gain of overlap (`neighbours`). None where no kernels run side by side, or where the time
        of one alone is not known: it needs the *sync* engine beside it, and a recorder that sees true times beside neighbours.
    added : mapping of str to float or None
        Further metrics by name: those of other packages.
    communication_us, exposed_us, hidden_us : float or None
        Time of communication between GPUs, and that of it beside which no kernel computes, or one does (`work_split`). None where the
        trace is of one GPU and has neither collectives, copies between GPUs nor kernels that communicate by their names.
    collective_wait_us, collective_transfer_us, waited_for_us : float or None
        `collective_wait_ns`, `collective_transfer_ns` and `waited_for_ns`.
    bus_bandwidth, busy_imbalance : float or None
        Of all GPUs together: in GB/s, and a fraction.
    peer_copy_us : float or None
        `peer_copy_ns`.
    gpu : int or None
        Which GPU the metrics of one GPU are of; None where the trace has no two.
    awaited : str
        Which GPU the others wait for in collectives, how long, and why; empty where that is not worth saying.
    """

    view = "metrics"

    engine: str
    simulated: bool
    makespan_us: float
    makespan_low_us: float
    makespan_high_us: float
    makespan_basis: str
    repeats: int
    gpu_busy_us: float
    idle_us: float
    busy_fraction: float
    overlap_us: float
    overlap: float
    copy_us: float
    host_wait_us: float
    kernel_wait_us: float
    other_idle_us: float
    host_function_us: float
    kernel_count: int
    kernel_time_us: float
    api_time_us: float
    launch_latency_us: float | None
    queue_time_us: float | None
    recording_cost: float | None
    missing_records: int
    device_memory_bytes: int | None = None
    flags: tuple[str, ...] = ()
    copy_overlap: float | None = None
    host_overlap: float | None = None
    net_overlap_us: float | None = None
    launch_wait_us: float = 0.0
    gpu_busy_error_us: float | None = None
    overlap_error: float | None = None
    added: Mapping[str, float | None] = field(default_factory=dict)
    communication_us: float | None = None
    exposed_us: float | None = None
    hidden_us: float | None = None
    collective_wait_us: float | None = None
    collective_transfer_us: float | None = None
    waited_for_us: float | None = None
    bus_bandwidth: float | None = None
    busy_imbalance: float | None = None
    peer_copy_us: float | None = None
    gpu: int | None = None
    awaited: str = ""

    def value(self, name: str) -> float | None:
        """Return a metric by its name in the registry, also one that another package adds; None where it has no value."""
        found: float | None = self.added[name] if name in self.added else getattr(self, name, None)
        return found

    def show(self, metric: Metric) -> str:
        """Write a metric's value as text, without the unit: ``"33.1 ± 2.9"`` where it may be off; an en dash where there is none."""
        error = getattr(self, metric.error, None) if metric.error else None
        shown = metric.show_value(self.value(metric.name))
        return f"{shown} ± {metric.show_value(error)}" if error else shown

    @property
    def busy_fraction_error(self) -> float | None:
        """How far ``busy_fraction`` may be off."""
        return None if self.gpu_busy_error_us is None or not self.makespan_us else self.gpu_busy_error_us / self.makespan_us

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics by their names as JSON values."""
        found: dict[str, Any] = plain(asdict(self))
        added: dict[str, Any] = found.pop("added")
        return added | found  # A guest replaces no field of ours.

    def __repr__(self) -> str:
        from streamscope.analysis.table import EngineTable  # Definitions of the metrics are of this module.

        return repr(EngineTable({self.engine: self}))


def measure(trace: Trace, makespans_ns: npt.ArrayLike, *, gpu: int | None = None) -> EngineMetrics:
    """Measure one engine.

    Parameters
    ----------
    trace : Trace
        One recorded run.
    makespans_ns : array of float or int
        Makespans of the repeats that ran without recording, in ns.
    gpu : int, optional
        Of several GPUs, which one the metrics of one GPU are of. By default the one with the most work, without waiting in collectives.

    Raises
    ------
    TraceError
        There are no repeats, or one is not a time.

    Examples
    --------
    >>> from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
    >>> spans = SpanTable.of(("launch", "a", "host", 0, 3_000, 0), ("kernel", "a", "main", 5_000, 25_000, 0))
    >>> trace = Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")))
    >>> metrics = ss.analysis.measure(trace, [40_000, 41_000, 39_000])
    >>> metrics.makespan_us, metrics.gpu_busy_us, metrics.busy_fraction, metrics.launch_latency_us
    (40.0, 20.0, 0.5, 5.0)
    """
    whole, gpu = trace, compared_gpu([trace]) if gpu is None else gpu
    trace = trace if gpu is None else trace.of_gpu(gpu)
    late = awaited(whole)
    spans = trace.spans
    makespan = makespan_ns(makespans_ns)
    busy_ns, overlapped_ns = gpu_busy_ns(spans), overlap_ns(spans)
    copy_ns = min(exposed_copy_ns(spans), max(makespan.median - busy_ns, 0.0))
    unused_ns = idle_ns(makespan.median, busy_ns, copy_ns)
    causes = _split_idle(unused_ns, device_idle(spans))
    missing, latency_ns = missing_records(whole.spans), launch_latency_ns(spans)
    simulated = trace.info.device.simulated
    cost = recording_cost(trace.info.ledger)
    added, failed = added_values(trace, ENGINE, EngineMetrics.__dataclass_fields__)
    return EngineMetrics(
        engine=trace.info.engine,
        simulated=simulated,
        makespan_us=makespan.median / 1000,
        makespan_low_us=makespan.low / 1000,
        makespan_high_us=makespan.high / 1000,
        makespan_basis=makespan.basis,
        repeats=makespan.count,
        gpu_busy_us=busy_ns / 1000,
        idle_us=unused_ns / 1000,
        busy_fraction=busy_fraction(makespan.median, busy_ns),
        overlap_us=overlapped_ns / 1000,
        overlap=overlapped_ns / busy_ns if busy_ns else 0.0,
        copy_us=copy_ns / 1000,
        host_wait_us=causes[0] / 1000,
        launch_wait_us=causes[1] / 1000,
        kernel_wait_us=causes[2] / 1000,
        other_idle_us=causes[3] / 1000,
        host_function_us=min(exposed_host_ns(spans), unused_ns) / 1000,
        kernel_count=kernel_count(spans),
        kernel_time_us=kernel_time_ns(spans) / 1000,
        api_time_us=api_time_ns(spans) / 1000,
        launch_latency_us=_median_us(latency_ns),
        queue_time_us=_median_us(queue_time_ns(spans)),
        recording_cost=cost,
        missing_records=missing.calls,
        device_memory_bytes=device_memory_bytes(trace.info.memory),
        flags=(
            *_repeat_flags(makespan, simulated=simulated),
            *_record_flags(makespan, busy_ns, missing, latency_ns, cost),
            *trace.info.notes,
            *failed,
        ),
        copy_overlap=copy_compute_overlap(spans) if SpanKind.COPY in spans.kind else None,
        host_overlap=host_device_overlap(spans) if SpanKind.HOST in spans.kind else None,
        gpu_busy_error_us=None if (error_ns := busy_error_ns(trace)) is None else error_ns / 1000,
        overlap_error=overlap_error(trace),
        added=added,
        **of_host(whole),
        gpu=gpu,
        awaited="" if late is None else late.words,
        **of_collectives(whole, gpu),
        **_communication(trace, several=len(whole.gpus) > 1),
    )


def of_host(trace: Trace) -> dict[str, Any]:
    """Return the metrics of all GPUs of a trace together."""
    copied_ns = peer_copy_ns(trace)
    peer_copy_us = None if copied_ns is None else copied_ns / 1000
    return {"bus_bandwidth": bus_bandwidth(trace), "busy_imbalance": busy_imbalance(trace), "peer_copy_us": peer_copy_us}


def of_collectives(trace: Trace, gpu: int | None = None, times: CollectiveTimes | None = None) -> dict[str, Any]:
    """Return waiting and transfer of one GPU, by default the busiest, which need the trace of all."""
    found = zip(("collective_wait_us", "collective_transfer_us", "waited_for_us"), times_of_gpu(trace, gpu, times), strict=True)
    return {name: None if time_ns is None else time_ns / 1000 for name, time_ns in found}


def _communication(trace: Trace, *, several: bool) -> dict[str, float]:
    """Return the metrics of communication; none for a trace of one GPU that has none. Of captured code, names of kernels tell."""
    work = work_split(trace)
    if not (several or len(trace.collectives) or len(trace.peers) or work.communication_ns):
        return {}
    found = (work.communication_ns, work.exposed_communication_ns, work.hidden_communication_ns)
    return dict(zip(("communication_us", "exposed_us", "hidden_us"), (time_ns / 1000 for time_ns in found), strict=True))


def makespan_ns(repeats_ns: npt.ArrayLike) -> MedianInterval:
    """From the first call until the host knows that all is done, in runs without recording.

    Formula: median of the repeats. Unit: ns.
    """
    return median_interval(repeats_ns)


def idle_ns(makespan_ns: float, busy_ns: float, copy_ns: float = 0.0) -> float:
    """Time in which neither a kernel nor a copy nor a set runs.

    Formula: makespan (median, without recording) - GPU busy - copies and sets alone, never below 0. Unit: ns.
    """
    return max(makespan_ns - busy_ns - copy_ns, 0.0)


def busy_fraction(makespan_ns: float, busy_ns: float) -> float:
    """Share of the makespan in which the GPU runs a kernel.

    Formula: GPU busy / makespan. Unit: fraction; more than the whole (and flagged) where recording made the
    kernels longer than a run without it.
    Denominator: the makespan without recording (median).
    """
    return busy_ns / makespan_ns if makespan_ns else 0.0


def _split_idle(unused_ns: float, causes: IdleSplit) -> tuple[float, float, float, float]:
    """Idle time by cause: host wait, launch, kernel wait, other.

    Formula: (makespan - GPU busy - copies alone), divided in the proportion that the gaps of the recorded run have (`device_gaps`), because
    a run without recording has no record of its gaps. Unit: ns. Host wait: until the launch call of the next work began. Launch:
    from then on, for the shortest launch latency with an empty queue at most. Kernel wait: the rest of gaps below 30 µs whose next work
    was launched before they began. Other: the rest. Source: Holistic Trace Analysis, which divides no gap.
    """
    if causes.total_ns == 0:
        return 0.0, 0.0, 0.0, unused_ns
    scale = unused_ns / causes.total_ns
    return causes.host_wait_ns * scale, causes.launch_ns * scale, causes.kernel_wait_ns * scale, causes.other_ns * scale


def recording_cost(ledger: Mapping[str, float]) -> float | None:
    """How much longer a run takes while it is recorded.

    Formula: makespan with recording / makespan without. Unit: ratio. Denominator: the median makespan without recording.
    None where the trace's ledger does not hold both.
    """
    unrecorded_ns = ledger.get("unrecorded_ns")
    recorded_ns = ledger.get("recorded_ns")
    return recorded_ns / unrecorded_ns if unrecorded_ns and recorded_ns is not None else None


def device_memory_bytes(memory: Mapping[str, int]) -> int | None:
    """Device memory that the engine holds for the program.

    Formula: variables + workspaces of libraries + what users' operators allocate through CuPy. Unit: bytes. It is also the
    most there was: nothing is given back as long as a program is prepared. Streams that run side by side cannot share workspaces, which
    is the memory that a second stream costs. Left out: CUDA's own memory for graphs, modules, streams and events, which it
    does not tell, and what PyTorch allocates. Where times come from a cost model, variables only: it does not know workspaces.
    """
    return memory.get("device_bytes")


def _median_us(values_ns: IntArray) -> float | None:
    return float(np.median(values_ns)) / 1000 if len(values_ns) else None


def _repeat_flags(makespan: MedianInterval, *, simulated: bool) -> list[str]:
    flags = []
    if makespan.count < FEWEST_FOR_INTERVAL and not simulated:  # the simulated clock has no noise
        flags.append(f"repeats: {makespan.count}, so the interval is their minimum and maximum")
    if (spread := makespan.high - makespan.low) > _WIDE_SPREAD * makespan.median > 0:
        flags.append(f"the makespan varies: its interval is {spread / makespan.median * 100:.0f} % of the median")
    return flags


def _record_flags(makespan: MedianInterval, busy_ns: int, missing: MissingRecords, latency_ns: IntArray, cost: float | None) -> list[str]:
    flags = []
    if busy_ns > makespan.high:
        flags.append(f"GPU busy ({time_text(busy_ns)}) exceeds the makespan without recording ({time_text(makespan.median)})")
    return flags + incomplete_flags(missing) + clock_flags(latency_ns) + cost_flags(cost)


def incomplete_flags(missing: MissingRecords) -> list[str]:
    """Say which halves of launches are missing, and the effect on the numbers."""
    flags = []
    if missing.calls:
        flags.append(f"launch calls without a record on the device: {missing.calls}; GPU busy and overlap are lower bounds")
    if missing.device:
        flags.append(f"kernels or copies without a launch call: {missing.device}; latency and idle causes leave them out")
    return flags


def replay_flags(incomplete: int) -> list[str]:
    """Say how many replays of graphs lack kernels that other replays of the same graph have."""
    told = f"replays of a graph with fewer kernels than its other replays: {incomplete}; GPU busy and overlap are lower bounds"
    return [told] if incomplete else []


def clock_flags(latency_ns: IntArray) -> list[str]:
    """Say how many launches seem to run before they were called."""
    early = int((latency_ns < 0).sum())
    return [f"{early} of {len(latency_ns)} launches seem to run before they were called: the two clocks do not agree"] if early else []


def profiler_flags(info: TraceInfo) -> list[str]:
    """Say that a profiler stretched the run, where it did and nothing tells by how much."""
    return [PROFILED] if info.profiled else []


def cost_flags(cost: float | None) -> list[str]:
    """Say that recording is costly, where it is."""
    costly = cost is not None and cost > _COSTLY_RECORDING
    return [f"recording makes the run {cost:.1f} times as long: latency, API time and idle causes are of that run"] if costly else []
