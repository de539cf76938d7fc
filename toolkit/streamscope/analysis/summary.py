"""The metrics of one trace, wherever it comes from: no repeats are needed."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from streamscope.analysis.collectives import LinkCopies, link_copies
from streamscope.analysis.gpus import busiest_gpu, collective_times
from streamscope.analysis.idle import IdleSplit, device_idle, idle_by_stream
from streamscope.analysis.intervals import union
from streamscope.analysis.launches import (
    call_times_ns,
    incomplete_replays,
    join_launches,
    late_kernels,
    launch_overhead_ns,
    missing_records,
    queue_full_ns,
    short_kernels,
    shortest_launch_ns,
)
from streamscope.analysis.metric import HOST, METRICS, TRACE, Metric, added_values, definition_of, metrics_of
from streamscope.analysis.metrics import (
    clock_flags,
    cost_flags,
    incomplete_flags,
    of_collectives,
    of_host,
    profiler_flags,
    recording_cost,
    replay_flags,
)
from streamscope.analysis.neighbours import net_overlap_ns
from streamscope.analysis.overlap import (
    average_concurrency,
    busy_error_ns,
    exposed_copy_ns,
    gpu_busy_ns,
    kernel_count,
    overlap_error,
    overlap_ns,
    rows_by_stream,
    run_of,
    span_ns,
)
from streamscope.analysis.statistics import quantiles
from streamscope.analysis.table import device_words, in_markdown, markdown_rows
from streamscope.analysis.work import WorkSplit, kernels_called, work_split
from streamscope.arrays import IntArray
from streamscope.errors import printable
from streamscope.results.result import Result
from streamscope.trace.communication import checked_patterns
from streamscope.trace.counters import NOTE_HEADS, Note, Series, note_rows
from streamscope.trace.foreign import UNCALLED
from streamscope.trace.info import TraceInfo
from streamscope.trace.spans import DEVICE_KINDS, Basis, SpanKind, SpanTable
from streamscope.trace.symbols import readable_name, short_name, told_apart
from streamscope.trace.trace import Trace
from streamscope.words import aligned, capitalised, counted, format_mib, format_us, lane_prefix, percent, shortened_inside, time_text

STREAM_HEADS = (
    "stream", "kernels", "busy, µs", "copies and sets, µs", "idle, µs", "host wait, µs", "launch, µs", "kernel wait, µs", "other, µs",
)  # fmt: skip
GPU_HEADS = (
    "GPU", "kernels", "busy, µs", "communication alone, µs", "hidden, µs", "waits, µs", "waited for, µs", "idle, µs", "overlap, %",
)  # fmt: skip
LINK_HEADS = ("copies between GPUs", "count", "MiB", "time, µs", "GB/s")
COUNTER_HEADS = ("counter", "values", "least", "largest", "last")
KERNEL_HEADS = ("kernel", "count", "total, µs", "mean, µs")
_MOST_KERNELS = 10
"""So many kernels are in `Summary.kernels`: those that take most time."""
_LONGEST_NAME = 60


@dataclass(frozen=True)
class Spread:
    """A distribution of times in µs: median and 95th percentile (linear interpolation)."""

    median_us: float
    p95_us: float

    @classmethod
    def of(cls, values_ns: IntArray) -> Spread | None:
        """Return the spread of times in ns; None where there are none."""
        return cls(*(value / 1000 for value in quantiles(values_ns, 0.5, 0.95))) if len(values_ns) else None

    def to_dict(self) -> dict[str, float]:
        """Return it as JSON values, in µs."""
        return {"median": self.median_us, "p95": self.p95_us}


_NO_SPREAD = Spread(math.nan, math.nan)
"""Of no values."""


@dataclass(frozen=True)
class KernelTotal:
    """All kernels of one name and symbol.

    Attributes
    ----------
    name : str
        Name in the timeline, told apart from others of that name.
    symbol : str
        The kernel's own name; empty where it is unknown.
    count : int
    total_us, mean_us : float
        Sum and mean of their durations.
    """

    name: str
    symbol: str
    count: int
    total_us: float
    mean_us: float

    def cells(self) -> tuple[str, ...]:
        """Return it as text, in the order of `KERNEL_HEADS`."""
        return self.name, f"{self.count:,}", format_us(self.total_us), format_us(self.mean_us)


@dataclass(frozen=True)
class StreamSummary:
    """The metrics of one stream.

    Attributes
    ----------
    name : str
        Its lane.
    kernel_count : int
    busy_us : float
        Time with a kernel running.
    copy_us : float
        Time with a copy or a memory set running.
    idle : IdleSplit
        Gaps between its first start and its last end, by cause (`idle_by_stream`).
    """

    name: str
    kernel_count: int
    busy_us: float
    copy_us: float
    idle: IdleSplit

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values, in µs."""
        found = {"name": self.name, "kernel_count": self.kernel_count, "busy_us": self.busy_us, "copy_us": self.copy_us}
        return found | {"idle_us": _idle_dict(self.idle)}


@dataclass(frozen=True, repr=False)
class Summary(Result):
    """Result of `summary`. Its text form and `to_markdown` mark lower bounds with ``≥``, and upper bounds with ``≤``.

    Attributes
    ----------
    info : TraceInfo
        Where the trace comes from.
    kernel_count : int
    span_us : float
        `span_ns`.
    gpu_busy_us : float
        `gpu_busy_ns`.
    copy_us : float
        `exposed_copy_ns`.
    idle : IdleSplit
        `device_idle` from the start of the first call, so that ``span_us`` is the sum of ``gpu_busy_us``, ``copy_us`` and all idle time.
    overlap : float or None
        `overlap_fraction`; None where no kernel runs.
    launch_latency, queue_time, api_time, launch_overhead : Spread or None
        Of `launch_latency_ns`, `queue_time_ns`, `call_times_ns` and `launch_overhead_ns`; None where there are no values.
    work : WorkSplit
        `work_split`: compute, communication, copies.
    average_concurrency : float or None
        `average_concurrency`; None where no kernel runs.
    net_overlap_us : float or None
        Net gain of overlap (`neighbours`); None where no kernels overlap, or a time alone is unknown.
    short_kernels, late_kernels : int
        How many `short_kernels` and `late_kernels` there are.
    queue_full_us : float
        `queue_full_ns` of all streams.
    streams : tuple of StreamSummary
        In the trace's order.
    at_least : frozenset of str
        Which of the numbers are lower bounds, by the names of these attributes: records were lost, or times are estimates.
    at_most : frozenset of str
        Which are upper bounds: idle time, where records were lost.
    warnings : tuple of str
        Warnings for the reader.
    kernels : tuple of KernelTotal
        The 10 kernels, by name and symbol, that take most time in all, the most first.
    different_kernels : int
        How many there are by name and symbol.
    gpu_busy_error_us, overlap_error : float or None
        `busy_error_ns` and `overlap_error`; None where the recorder says nothing.
    added : mapping of str to float or None
        Further metrics by name: those of other packages.
    gpu : int or None
        Which GPU the metrics are of: the one with most work, where the trace has several.
    gpus : tuple of Summary
        Of a trace of several GPUs, the summary of each.
    collective_wait_us, collective_transfer_us, waited_for_us : float or None
        `collective_wait_ns`, `collective_transfer_ns` and `waited_for_ns` of the GPU.
    bus_bandwidth, busy_imbalance, peer_copy_us, mean_exposed_us, mean_hidden_us : float or None
        Of all GPUs together: `bus_bandwidth` in GB/s, `busy_imbalance`, `peer_copy_ns`, `mean_exposed_ns`, `mean_hidden_ns`.
    links : tuple of LinkCopies
        Copies between GPUs by link.
    counters : tuple of mappings
        Name, count, least, largest and last value of each counter of the trace, as `Counters.summary` has them.
    markers : int
        How many markers the trace has.
    user_notes : tuple of Note
        Your notes on the trace.
    """

    view = "summary"

    info: TraceInfo
    kernel_count: int
    span_us: float
    gpu_busy_us: float
    copy_us: float
    idle: IdleSplit
    overlap: float | None
    launch_latency: Spread | None
    queue_time: Spread | None
    api_time: Spread | None
    launch_overhead: Spread | None
    work: WorkSplit
    average_concurrency: float | None
    net_overlap_us: float | None
    short_kernels: int
    late_kernels: int
    queue_full_us: float
    streams: tuple[StreamSummary, ...]
    at_least: frozenset[str]
    at_most: frozenset[str]
    warnings: tuple[str, ...]
    kernels: tuple[KernelTotal, ...]
    different_kernels: int
    gpu_busy_error_us: float | None = None
    overlap_error: float | None = None
    added: Mapping[str, float | None] = field(default_factory=dict)
    gpu: int | None = None
    gpus: tuple[Summary, ...] = ()
    collective_wait_us: float | None = None
    collective_transfer_us: float | None = None
    waited_for_us: float | None = None
    bus_bandwidth: float | None = None
    busy_imbalance: float | None = None
    peer_copy_us: float | None = None
    mean_exposed_us: float | None = None
    mean_hidden_us: float | None = None
    links: tuple[LinkCopies, ...] = ()
    counters: tuple[Mapping[str, Any], ...] = ()
    markers: int = 0
    user_notes: tuple[Note, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values: times in µs, None where there is nothing to measure.

        ``at_least`` names the metrics that are lower bounds. ``gpu_busy_error_us`` and ``overlap_error`` are there where
        the recorder says how far its durations may be off. ``gpus`` has the metrics of each GPU; those at the top are of the busiest, with
        its number in ``gpu``, and of all GPUs together.

        Examples
        --------
        >>> from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
        >>> spans = SpanTable.of(("kernel", "a", "main", 5_000, 25_000))
        >>> trace = Trace(spans, TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200")))
        >>> found = ss.analysis.summary(trace).to_dict()
        >>> found["span_us"], found["overlap"], found["launch_latency_us"]
        (20.0, 0.0, {'median': None, 'p95': None})
        """
        metrics = metrics_of(TRACE)
        return {
            **self.metric_values(metrics),
            "at_least": sorted(self.at_least),
            "warnings": list(self.warnings),
            "gpus": [each.metric_values(metric for metric in metrics if HOST not in metric.scope) for each in self.each_gpu],
            "links": [link.to_dict() for link in self.links],
            "counters": [dict(each) for each in self.counters],
            "markers": self.markers,
            "user_notes": [note.to_dict() for note in self.user_notes],
        }

    @property
    def each_gpu(self) -> tuple[Summary, ...]:
        """Summary of each GPU of the trace, also where it has one; empty where nothing ran on any."""
        return self.gpus or ((self,) if self.gpu is not None else ())

    def metric_values(self, metrics: Iterable[Metric]) -> dict[str, Any]:
        """Return metrics of one GPU as JSON values, with those of its streams."""
        return {
            "gpu": self.gpu,
            **{metric.name: _json(self.value(metric.name)) for metric in metrics},
            "streams": [stream.to_dict() for stream in self.streams],
            **({"gpu_busy_error_us": self.gpu_busy_error_us} if self.gpu_busy_error_us is not None else {}),
            **({"overlap_error": self.overlap_error} if self.overlap_error is not None else {}),
        }

    def value(self, name: str) -> _Value:
        """Return a metric by its name in the registry, also one that another package adds; None where there is nothing to measure."""
        if name in self.added:
            return self.added[name]
        if name in _OF_WORK:
            return float(getattr(self.work, _OF_WORK[name])) / 1000
        found: _Value = getattr(self, _ATTRIBUTES.get(name, name), None)
        return _NO_SPREAD if found is None and name in _SPREADS else found

    def _markdown(self) -> str:
        """Return a short page: the numbers with their meanings, the streams, and the warnings.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["graph"], device="simulated", progress=False)
        >>> print(ss.analysis.summary(runs["graph"].trace).to_markdown())
        # parallel_branches · graph · simulated NVIDIA H200: all times are simulated
        <BLANKLINE>
        | metric | value | what it is |
        ...
        """
        page = [f"# {in_markdown(self.title)}", "", *markdown_rows(("metric", "value", "what it is"), self.rows(), words=2)]
        page += ["", *markdown_rows(GPU_HEADS, self.gpu_rows())] if self.gpus else []
        page += ["", *markdown_rows(LINK_HEADS, self.link_rows())] if self.links else []
        page += ["", *markdown_rows(COUNTER_HEADS, self.counter_rows())] if self.counters else []
        page += ["", *markdown_rows(STREAM_HEADS, self.stream_rows())] if self.streams else []
        page += ["", *markdown_rows(KERNEL_HEADS, (kernel.cells() for kernel in self.kernels))] if self.kernels else []
        page += ["", capitalised(self.more_kernels)] if self.more_kernels else []
        page += ["", *(f"- {in_markdown(capitalised(warning))}." for warning in self.warnings)] if self.warnings else []
        page += ["", *markdown_rows(NOTE_HEADS, note_rows(self.user_notes), words=len(NOTE_HEADS))] if self.user_notes else []
        return printable("\n".join([*page, ""]))

    def stream_rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the metrics of each stream as text, in the order of `STREAM_HEADS`; the title says which GPU they are of."""
        prefix = lane_prefix(self.gpu, several=bool(self.gpus))
        for stream in self.streams:
            times = (stream.busy_us, stream.copy_us, *_idle_dict(stream.idle).values())
            yield (
                stream.name.removeprefix(prefix),
                f"{stream.kernel_count:,}",
                *map(format_us, times),
            )

    def gpu_rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the metrics of each of several GPUs as text, in the order of `GPU_HEADS`."""
        for one in self.gpus:
            cells = [METRICS[name].show_value(_plain(one.value(name))) for name in _OF_GPUS]
            yield (str(one.gpu), *cells)

    def counter_rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the counters as text, in the order of `COUNTER_HEADS`."""
        for each in self.counters:
            series = Series(each["name"], each.get("unit", ""), each.get("process", ""), each.get("gpu", -1))
            yield (
                shortened_inside(series.label, _LONGEST_NAME),
                f"{each['count']:,}",
                *(f"{each[key]:.6g}" for key in ("min", "max", "last")),
            )

    def link_rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the copies between GPUs of each link as text, in the order of `LINK_HEADS`."""
        for link in self.links:
            speed = "–" if link.bandwidth is None else f"{link.bandwidth:.1f}"
            yield f"GPU {link.from_gpu} → {link.to_gpu}", f"{link.count:,}", format_mib(link.nbytes), format_us(link.time_us), speed

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def __repr__(self) -> str:
        warnings = [f"[{number}] {warning}" for number, warning in enumerate(self.warnings, 1)]
        cells = [(shortened_inside(name, _LONGEST_NAME), *numbers) for name, *numbers in (kernel.cells() for kernel in self.kernels)]
        kernels = ["", *aligned([KERNEL_HEADS, *cells], numbers=True), *filter(None, [self.more_kernels])] if cells else []
        gpus = ["", *aligned([GPU_HEADS, *self.gpu_rows()], numbers=True)] if self.gpus else []
        links = ["", *aligned([LINK_HEADS, *self.link_rows()], numbers=True)] if self.links else []
        counters = ["", *aligned([COUNTER_HEADS, *self.counter_rows()], numbers=True)] if self.counters else []
        notes = ["", *aligned([NOTE_HEADS, *note_rows(self.user_notes)])] if self.user_notes else []
        metrics = aligned([row[:2] for row in self.rows()])
        return printable("\n".join([self.title, *metrics, *gpus, *links, *counters, *kernels, *warnings, *notes]))

    @property
    def more_kernels(self) -> str:
        """How many kernels, by name and symbol, are not in `kernels`, as a line below these; empty where all are."""
        more = self.different_kernels - len(self.kernels)
        return f"and {counted(more, 'more kernel')} by name" if more else ""

    @property
    def title(self) -> str:
        """Program, engine and device; simulated times are called so. Of several GPUs, it says which one is meant."""
        which = f" · GPU {self.gpu} of {len(self.gpus)}, which has most work" if self.gpus else ""
        return f"{self.info.program} · {self.info.engine} · {device_words(self.info.device)}{which}"

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield label, value and meaning of each metric, as texts; one that says nothing is left out."""
        for metric in metrics_of(TRACE):
            value = self.value(metric.name)
            if value in (None, _NO_SPREAD, metric.quiet_at):
                continue
            yield self._row(metric.name, metric.label, self._text(metric, value), metric.trace_function)
            if isinstance(value, IdleSplit):
                parts = _idle_dict(value)
                for key, label, function in metric.parts:
                    if parts[key]:
                        yield self._row(f"{metric.name}.{key}", label, time_text(parts[key] * 1000), function)

    def _row(self, name: str, label: str, text: str, function: Callable[..., Any]) -> tuple[str, str, str]:
        meaning = definition_of(function).partition(". ")[0].partition("; the metric")[0].rstrip(".")
        name = "overlap" if name == "average_concurrency" else name  # One is a lower bound where the other is.
        bound = "≥ " if name in self.at_least else "≤ " if name in self.at_most else ""
        return label, f"{bound}{text}", f"{capitalised(re.sub('^(Return|Count) the ', '', meaning))}."

    def _text(self, metric: Metric, value: _Value) -> str:
        """Write a value with its unit."""
        error = getattr(self, metric.error, None) if metric.error else None
        if isinstance(value, Spread):
            return f"{time_text(value.median_us * 1000)}, 95 % below {time_text(value.p95_us * 1000)}"
        if isinstance(value, IdleSplit):
            return self._share(value.total_ns / 1000)
        assert value is not None
        if metric.share:
            return self._share(value, error)
        if metric.unit == "µs":
            return time_text(value * 1000)
        return percent(value, error) if metric.unit == "%" else f"{metric.show_value(value)} {metric.unit}".rstrip(" ×")

    def _share(self, value_us: float, error_us: float | None = None) -> str:
        """Return a time with its share of the span, and how far both may be off."""
        span_us = self.span_us or 1.0
        off = f" ± {time_text(error_us * 1000)}" if error_us else ""
        return f"{time_text(value_us * 1000)}{off} ({percent(value_us / span_us, error_us and error_us / span_us)})"


def summary(trace: Trace, alone: Trace | None = None, *, communication: Iterable[str] = ()) -> Summary:
    """Measure one trace of any origin: a recorded run, a file of another tool, a prediction.

    Of a trace of several GPUs, each is measured by itself. The result has the numbers of the busiest, and in ``gpus`` those of each.

    Parameters
    ----------
    trace : Trace
    alone : Trace, optional
        Of the same program without overlap (the *sync* engine's): how long kernels take alone, for the net gain of overlap.
    communication : iterable of str
        Patterns of yours for kernels that communicate between GPUs, as `work_of` takes them.

    Examples
    --------
    >>> from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
    >>> spans = SpanTable.of(("launch", "launch", "thread 1", 0, 3_000, 1),
    ...                       ("launch", "launch", "thread 1", 4_000, 6_000, 2),
    ...                       ("kernel", "gemm", "stream 7", 5_000, 25_000, 1),
    ...                       ("kernel", "relu", "stream 7", 26_000, 30_000, 2))
    >>> trace = Trace(spans, TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200"), "kineto", stretched=True))
    >>> ss.analysis.summary(trace)
    step · kineto · NVIDIA H200
    span                         30.0 µs
    GPU busy                     24.0 µs (80 %)
    idle                         6.00 µs (20 %)
    idle: launch                 5.00 µs
    idle: kernel wait            1.00 µs
    overlap                      0 %
    kernels                      2
    launch latency               13.5 µs, 95 % below 21.1 µs
    launch latency, empty queue  5.00 µs, 95 % below 5.00 µs
    queue time                   11.0 µs, 95 % below 19.1 µs
    API time                     2.50 µs, 95 % below 2.95 µs
    <BLANKLINE>
    kernel  count  total, µs  mean, µs
    ------  -----  ---------  --------
    gemm        1       20.0      20.0
    relu        1       4.00      4.00
    [1] a profiler stretched the recorded run, its calls most: time a run without it
    """
    found = _metrics(trace, alone, checked_patterns(communication))
    if not len(trace.counters) and not len(trace.markers) and not trace.user_notes:
        return found
    return replace(found, counters=tuple(trace.counters.summary()), markers=len(trace.markers), user_notes=trace.user_notes)


def _metrics(trace: Trace, alone: Trace | None, patterns: list[str]) -> Summary:
    """Return the metrics of a trace."""
    host, times = of_host(trace), collective_times(trace)
    each = tuple(replace(_of_gpu(trace.of_gpu(gpu), alone, patterns), **host, **of_collectives(trace, gpu, times)) for gpu in trace.gpus)
    if not each:
        return _of_gpu(trace, alone, patterns)
    if len(each) == 1:
        return replace(each[0], links=link_copies(trace)) if len(trace.peers) else each[0]
    top = each[trace.gpus.index(busiest_gpu(trace))]
    exposed_ns, hidden_ns = (
        sum(times) / len(each)
        for times in zip(*((one.work.exposed_communication_ns, one.work.hidden_communication_ns) for one in each), strict=True)
    )
    means = {"mean_exposed_us": exposed_ns / 1000, "mean_hidden_us": hidden_ns / 1000}
    return replace(top, info=trace.info, **means, gpus=each, links=link_copies(trace), warnings=tuple(_all_warnings(top, each)))


def _all_warnings(top: Summary, each: Iterable[Summary]) -> Iterator[str]:
    """Yield the warnings of several GPUs: those of all of them first, then those of some, with their numbers."""
    common = [warning for warning in top.warnings if all(warning in one.warnings for one in each)]
    yield from common
    for one in each:
        yield from (f"GPU {one.gpu}: {warning}" for warning in one.warnings if warning not in common)


def _of_gpu(trace: Trace, alone: Trace | None, patterns: Sequence[str]) -> Summary:
    """Measure a trace of one GPU, by itself."""
    spans = run_of(trace.spans)
    work, launches, missing = work_split(trace, patterns), join_launches(spans), missing_records(spans)
    busy_ns, copy_ns = work.compute_ns + work.exposed_communication_ns, work.exposed_memory_ns
    if len(trace.peers):  # They are communication, and not kernels.
        busy_ns, copy_ns = gpu_busy_ns(spans), exposed_copy_ns(spans)
    estimated, net_ns, replays = _estimates(trace.info, spans), net_overlap_ns(trace, alone), incomplete_replays(spans)
    overhead_ns = launch_overhead_ns(spans)
    launch_ns = shortest_launch_ns(overhead_ns) or None  # By default it is the same, found once more. A 0 would leave gaps whole.
    lost = bool(missing.calls or replays or trace.info.ledger.get("lost_records"))
    error_ns = busy_error_ns(trace)
    kernels, different = _kernels(spans)
    added, failed = added_values(trace, TRACE, _MEASURED)
    return Summary(
        info=trace.info,
        kernel_count=kernel_count(spans),
        span_us=span_ns(spans) / 1000,
        gpu_busy_us=busy_ns / 1000,
        copy_us=copy_ns / 1000,
        idle=device_idle(spans, launch_ns=launch_ns, begin_ns=int(spans.start_ns[0]) if len(spans) else 0),
        overlap=overlap_ns(spans) / busy_ns if busy_ns else None,
        launch_latency=Spread.of(launches.latency_ns),
        queue_time=Spread.of(launches.queue_time_ns),
        api_time=Spread.of(call_times_ns(spans)),
        launch_overhead=Spread.of(overhead_ns),
        work=work,
        average_concurrency=average_concurrency(spans),
        net_overlap_us=None if net_ns is None else net_ns / 1000,
        short_kernels=len(short_kernels(spans)),
        late_kernels=len(late_kernels(spans)),
        queue_full_us=sum(queue_full_ns(spans).values()) / 1000,
        streams=_streams(spans, launch_ns),
        gpu_busy_error_us=None if error_ns is None else error_ns / 1000,
        overlap_error=overlap_error(trace),
        at_least=frozenset(("kernel_count", "gpu_busy_us", "overlap") if lost else ("overlap",) if estimated else ()),
        at_most=frozenset(("idle_us",) if lost else ()),
        warnings=(
            *_model_warnings(trace.info),
            *profiler_flags(trace.info),
            *incomplete_flags(missing),
            *replay_flags(replays),
            *clock_flags(launches.latency_ns),
            *estimated,
            *cost_flags(recording_cost(trace.info.ledger)),
            *_names_nothing(spans, patterns),
            *(note for note in trace.info.notes if not (missing.device and UNCALLED in note)),  # The flag says it already.
            *failed,
        ),
        kernels=kernels,
        different_kernels=different,
        added=added,
        gpu=next(iter(trace.gpus), None),
    )


def _plain(value: _Value) -> float | None:
    """Return a value as one number."""
    return value.total_ns / 1000 if isinstance(value, IdleSplit) else None if isinstance(value, Spread) else value


_Value: TypeAlias = "float | Spread | IdleSplit | None"
"""Value of a metric of a trace."""
_ATTRIBUTES = {
    "idle_us": "idle", "launch_latency_us": "launch_latency", "queue_time_us": "queue_time", "api_time_us": "api_time",
    "launch_overhead_us": "launch_overhead",
}  # fmt: skip
_SPREADS = frozenset(_ATTRIBUTES) - {"idle_us"}
_OF_WORK = {"communication_us": "communication_ns", "exposed_us": "exposed_communication_ns", "hidden_us": "hidden_communication_ns"}
_OF_GPUS = (
    "kernel_count",
    "gpu_busy_us",
    "exposed_us",
    "hidden_us",
    "collective_wait_us",
    "waited_for_us",
    "idle_us",
    "overlap",
)
"""Metrics that are shown side by side of several GPUs, under `GPU_HEADS`."""
_MEASURED = frozenset({*Summary.__dataclass_fields__, *_ATTRIBUTES, *_OF_WORK})
"""Names of the metrics that a summary measures together."""


def _json(value: _Value) -> Any:
    if value is _NO_SPREAD:
        return {"median": None, "p95": None}
    return _idle_dict(value) if isinstance(value, IdleSplit) else value.to_dict() if isinstance(value, Spread) else value


def _idle_dict(idle: IdleSplit) -> dict[str, float]:
    """Return idle time by cause as JSON values, in µs."""
    return {
        "total": idle.total_ns / 1000,
        "host_wait": idle.host_wait_ns / 1000,
        "launch": idle.launch_ns / 1000,
        "kernel_wait": idle.kernel_wait_ns / 1000,
        "other": idle.other_ns / 1000,
    }


def _kernels(spans: SpanTable) -> tuple[tuple[KernelTotal, ...], int]:
    """Return the kernels that take most time, by name and symbol, and how many there are."""
    rows = np.flatnonzero(spans.kind == SpanKind.KERNEL)
    keys = spans.name[rows].astype(np.int64) * (len(spans.names) + 1) + spans.symbol[rows] + 1
    every, which, count = np.unique(keys, return_inverse=True, return_counts=True)
    total_us = np.bincount(which, spans.duration_ns[rows], len(every)) / 1000
    first = np.argsort(-total_us, kind="stable")[:_MOST_KERNELS]
    codes = [divmod(int(key), len(spans.names) + 1) for key in every[first]]
    called = Counter((every // (len(spans.names) + 1)).tolist())
    found = []
    for at, (name, code) in zip(first, codes, strict=True):
        symbol, label = spans.names[code - 1] if code else "", spans.names[name]
        if symbol and short_name(symbol) == label:
            label = readable_name(symbol)
        elif symbol and called[name] > 1:
            label = f"{label}: {readable_name(symbol)}"
        found.append(KernelTotal(label, symbol, int(count[at]), float(total_us[at]), float(total_us[at] / count[at])))
    alike: dict[str, list[str]] = defaultdict(list)
    for one in found:
        alike[one.name].append(one.symbol)
    names = {label: iter(told_apart(label, symbols)) for label, symbols in alike.items() if len(symbols) > 1}
    return tuple(replace(one, name=next(names[one.name])) if one.name in names else one for one in found), len(every)


def _streams(spans: SpanTable, launch_ns: int | None) -> tuple[StreamSummary, ...]:
    found, idle = [], idle_by_stream(spans, launch_ns=launch_ns)
    for lane, rows in rows_by_stream(spans, np.flatnonzero(spans.is_kind(DEVICE_KINDS))):
        kernel = spans.kind[rows] == SpanKind.KERNEL
        busy_us, copy_us = (
            union(spans.start_ns[chosen], spans.end_ns[chosen]).length_ns / 1000 for chosen in (rows[kernel], rows[~kernel])
        )
        name = spans.lanes[lane]
        found.append(StreamSummary(name, int(kernel.sum()), busy_us, copy_us, idle[name]))
    return tuple(found)


def _estimates(info: TraceInfo, spans: SpanTable) -> list[str]:
    """Say that kernels side by side have estimated times, where nothing checked them and nobody says how far they may be off.

    Overlap is then a lower bound, since they were timed one by one.
    """
    if info.calibration.get("by_cupti") or "overlap_error" in info.calibration:
        return []
    kernels = spans.kind == SpanKind.KERNEL
    estimates = int((kernels & (spans.basis != Basis.MEASURED)).sum())
    if not estimates or len(np.unique(spans.lane[kernels])) < 2:
        return []
    return [f"times of {estimates:,} of {int(kernels.sum()):,} kernels are estimates, not read from a clock; overlap is a lower bound"]


def _names_nothing(spans: SpanTable, patterns: Iterable[str]) -> list[str]:
    """Say which names of kernels that communicate mean none in the trace."""
    return [
        f"no kernel is called {pattern!r}: this name adds nothing to communication"
        for pattern in patterns
        if not kernels_called(spans, pattern).any()
    ]


def _model_warnings(info: TraceInfo) -> list[str]:
    if info.recorder == "prediction":
        return ["all times are predicted, not measured"]
    return [f"all times are simulated ({info.device.name}), not measured"] if info.device.simulated else []
