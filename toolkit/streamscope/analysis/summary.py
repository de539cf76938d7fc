"""The metrics of one trace, wherever it comes from: no repeats are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.analysis.idle import IdleSplit, device_idle, idle_by_stream
from streamscope.analysis.intervals import IntArray, union
from streamscope.analysis.launches import call_times_ns, join_launches, launch_latency_ns, missing_records, queue_time_ns
from streamscope.analysis.metrics import clock_flags, cost_flags, incomplete_flags, recording_cost
from streamscope.analysis.overlap import exposed_copy_ns, gpu_busy_ns, kernel_count, overlap_fraction, overlap_ns, rows_by_lane
from streamscope.analysis.statistics import quantiles
from streamscope.analysis.table import definition_of, device_words, in_markdown
from streamscope.errors import printable
from streamscope.trace.spans import DEVICE_KINDS, Basis, SpanKind, SpanTable
from streamscope.trace.trace import Trace, TraceInfo
from streamscope.words import aligned, capitalised, format_us, percent

ASIDE = frozenset({SpanKind.API, SpanKind.RANGE})
"""Host spans that tell what a program was about, and neither launch nor wait: they may begin long before the first launch."""

STREAM_HEADS = ("stream", "kernels", "busy, µs", "copies and sets, µs", "idle, µs", "host wait, µs", "kernel wait, µs", "other, µs")


@dataclass(frozen=True)
class Spread:
    """A distribution of times in µs: its median, and what 95 % of the values do not exceed (linear interpolation)."""

    median_us: float
    p95_us: float

    @classmethod
    def of(cls, values_ns: IntArray) -> Spread | None:
        """Return the spread of times in ns; None where there are none."""
        return cls(*(value / 1000 for value in quantiles(values_ns, 0.5, 0.95))) if len(values_ns) else None

    def to_dict(self) -> dict[str, float]:
        """Return it as JSON values, in µs."""
        return {"median": self.median_us, "p95": self.p95_us}


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
        return found | {"idle_us": idle_dict(self.idle)}


@dataclass(frozen=True, repr=False)
class Summary:
    """What `summary` found. Its text form and `to_markdown` mark lower bounds with ``≥``.

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
        `device_idle` within the span, so that ``span_us`` is the sum of ``gpu_busy_us``, ``copy_us`` and all idle time.
    overlap : float or None
        `overlap_fraction`; None where no kernel runs.
    launch_latency, queue_time, api_time : Spread or None
        Of `launch_latency_ns`, `queue_time_ns` and `call_times_ns`; None where there are no values.
    streams : tuple of StreamSummary
        In the trace's order.
    at_least : frozenset of str
        Which of the numbers are lower bounds, by the names of these attributes.
    warnings : tuple of str
        What a reader must know before believing the numbers.
    """

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
    streams: tuple[StreamSummary, ...]
    at_least: frozenset[str]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values: times in µs, None where there is nothing to measure.

        Examples
        --------
        >>> from streamscope.trace import DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo
        >>> builder = SpanBuilder(["host", "main"])
        >>> builder.add(SpanKind.KERNEL, "a", "main", 5_000, 25_000)
        >>> trace = Trace(builder.build(), TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200")))
        >>> found = ss.analysis.summary(trace).to_dict()
        >>> found["span_us"], found["overlap"], found["launch_latency_us"]
        (20.0, 0.0, {'median': None, 'p95': None})
        """
        spreads = {"launch_latency_us": self.launch_latency, "queue_time_us": self.queue_time, "api_time_us": self.api_time}
        return {
            "kernel_count": self.kernel_count,
            "span_us": self.span_us,
            "gpu_busy_us": self.gpu_busy_us,
            "idle_us": idle_dict(self.idle),
            "overlap": self.overlap,
            **{name: spread.to_dict() if spread else {"median": None, "p95": None} for name, spread in spreads.items()},
            "streams": [stream.to_dict() for stream in self.streams],
            "warnings": list(self.warnings),
        }

    def to_markdown(self) -> str:
        """Return it as a short page: the numbers with what they mean, the streams, and the warnings.

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
        page = [f"# {in_markdown(self.title)}", "", *_markdown_rows(("metric", "value", "what it is"), self.rows())]
        if self.streams:
            page += ["", *_markdown_rows(STREAM_HEADS, self.stream_rows())]
        page += ["", *(f"- {in_markdown(capitalised(warning))}." for warning in self.warnings)] if self.warnings else []
        return printable("\n".join([*page, ""]))

    def stream_rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the metrics of each stream as text, in the order of `STREAM_HEADS`."""
        for stream in self.streams:
            times = (stream.busy_us, stream.copy_us, *idle_dict(stream.idle).values())
            yield (stream.name, f"{stream.kernel_count:,}", *map(format_us, times))

    _repr_markdown_ = to_markdown

    def __repr__(self) -> str:
        warnings = [f"[{number}] {warning}" for number, warning in enumerate(self.warnings, 1)]
        return printable("\n".join([self.title, *aligned([row[:2] for row in self.rows()]), *warnings]))

    @property
    def title(self) -> str:
        """Program, engine and device; simulated times are called so."""
        return f"{self.info.program} · {self.info.engine} · {device_words(self.info.device)}"

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Return label, value and meaning of each number, as texts; those that there is nothing to measure of are left out."""
        for label, name, value, function in self._values():
            if value is not None:
                meaning = definition_of(function).partition(". ")[0].partition("; the metric")[0].rstrip(".")
                yield label, f"≥ {value}" if name in self.at_least else value, f"{meaning}."

    def _values(self) -> Iterator[tuple[str, str, str | None, Callable[..., Any]]]:
        """Return label, attribute, text and definition of each number; no text where there is nothing to measure."""
        whole, idle = self.span_us or 1.0, self.idle
        yield "kernels", "kernel_count", f"{self.kernel_count:,}", kernel_count
        yield "span", "span_us", f"{format_us(self.span_us)} µs", span_ns
        yield "GPU busy", "gpu_busy_us", f"{format_us(self.gpu_busy_us)} µs ({percent(self.gpu_busy_us / whole)})", gpu_busy_ns
        alone = f"{format_us(self.copy_us)} µs ({percent(self.copy_us / whole)})" if self.copy_us else None
        yield "copies and sets alone", "copy_us", alone, exposed_copy_ns
        yield "idle", "idle", f"{format_us(idle.total_ns / 1000)} µs ({percent(idle.total_ns / 1000 / whole)})", device_idle
        causes = (("host wait", idle.host_wait_ns), ("kernel wait", idle.kernel_wait_ns), ("other", idle.other_ns))
        for words, time_ns in causes:
            yield f"idle: {words}", "idle", f"{format_us(time_ns / 1000)} µs" if time_ns else None, _CAUSES[words]
        yield "overlap", "overlap", None if self.overlap is None else percent(self.overlap), overlap_fraction
        for words, name, spread, function in (
            ("launch latency", "launch_latency", self.launch_latency, launch_latency_ns),
            ("queue time", "queue_time", self.queue_time, queue_time_ns),
            ("API time", "api_time", self.api_time, call_times_ns),
        ):
            text = f"{format_us(spread.median_us)} µs, 95 % below {format_us(spread.p95_us)} µs" if spread else None
            yield words, name, text, function


def summary(trace: Trace) -> Summary:
    """Measure one trace of any origin: a recorded run, a file of another tool, a prediction.

    Parameters
    ----------
    trace : Trace

    Examples
    --------
    >>> from streamscope.trace import DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo
    >>> builder = SpanBuilder(["thread 1", "stream 7"])
    >>> builder.add(SpanKind.LAUNCH, "launch", "thread 1", 0, 3_000, correlation=1)
    >>> builder.add(SpanKind.LAUNCH, "launch", "thread 1", 4_000, 6_000, correlation=2)
    >>> builder.add(SpanKind.KERNEL, "gemm", "stream 7", 5_000, 25_000, correlation=1)
    >>> builder.add(SpanKind.KERNEL, "relu", "stream 7", 26_000, 30_000, correlation=2)
    >>> trace = Trace(builder.build(), TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200"), "kineto"))
    >>> ss.analysis.summary(trace)
    step · kineto · NVIDIA H200
    kernels            2
    span               30.0 µs
    GPU busy           24.0 µs (80 %)
    idle               6.00 µs (20 %)
    idle: host wait    5.00 µs
    idle: kernel wait  1.00 µs
    overlap            0 %
    launch latency     13.5 µs, 95 % below 21.1 µs
    queue time         11.0 µs, 95 % below 19.1 µs
    API time           2.50 µs, 95 % below 2.95 µs
    """
    spans = trace.spans.select(~trace.spans.is_kind(ASIDE))
    busy_ns, launches, missing = gpu_busy_ns(spans), join_launches(spans), missing_records(spans)
    estimated = _estimates(spans)
    return Summary(
        info=trace.info,
        kernel_count=kernel_count(spans),
        span_us=span_ns(spans) / 1000,
        gpu_busy_us=busy_ns / 1000,
        copy_us=exposed_copy_ns(spans) / 1000,
        idle=device_idle(spans, begin_ns=int(spans.start_ns.min(initial=np.iinfo(np.int64).max)) if len(spans) else 0),
        overlap=overlap_ns(spans) / busy_ns if busy_ns else None,
        launch_latency=Spread.of(launches.latency_ns),
        queue_time=Spread.of(launches.queue_time_ns),
        api_time=Spread.of(call_times_ns(spans)),
        streams=_streams(spans),
        at_least=frozenset(
            ({"kernel_count", "gpu_busy_us", "overlap"} if missing.calls else set()) | ({"overlap"} if estimated else set()),
        ),
        warnings=(
            *_model_warnings(trace.info),
            *incomplete_flags(missing),
            *clock_flags(launches.latency_ns),
            *estimated,
            *cost_flags(recording_cost(trace.info.ledger)),
            *trace.info.notes,
        ),
    )


def span_ns(spans: SpanTable) -> int:
    """From the first call of the program to the last end on the host or the device.

    Formula: latest end - earliest start, over launches, event calls, waits, host functions, and all that runs on the device. Other calls
    of CUDA (allocations, module loads) and named ranges do not count: they may begin long before the first launch. Unit: ns. 0 for an
    empty trace. The definition is ours: Holistic Trace Analysis and TraceLens count from the first to the last end on the device, so what
    the host does before and after is no idle time there.

    Examples
    --------
    >>> from streamscope.trace import SpanBuilder, SpanKind
    >>> builder = SpanBuilder(["host", "main"])
    >>> builder.add(SpanKind.LAUNCH, "a", "host", 2, 4, correlation=0)
    >>> builder.add(SpanKind.KERNEL, "a", "main", 5, 25, correlation=0)
    >>> ss.analysis.span_ns(builder.build())
    23
    """
    spans = spans.select(~spans.is_kind(ASIDE))
    return int(spans.end_ns.max() - spans.start_ns.min()) if len(spans) else 0


def host_wait_ns(spans: SpanTable) -> int:
    """Idle time of the device in which what comes next had not reached it when the last work ended (`IdleCause.HOST_WAIT`). Unit: ns."""
    return device_idle(spans).host_wait_ns


def kernel_wait_ns(spans: SpanTable) -> int:
    """Idle time of the device in gaps below 30 µs before what had reached it (`IdleCause.KERNEL_WAIT`). Unit: ns."""
    return device_idle(spans).kernel_wait_ns


def other_idle_ns(spans: SpanTable) -> int:
    """Idle time of the device in longer gaps, before work of an unknown launch, and at the end (`IdleCause.OTHER`). Unit: ns."""
    return device_idle(spans).other_ns


_CAUSES = {"host wait": host_wait_ns, "kernel wait": kernel_wait_ns, "other": other_idle_ns}


def idle_dict(idle: IdleSplit) -> dict[str, float]:
    """Return idle time by cause as JSON values, in µs."""
    parts = {"total": idle.total_ns, "host_wait": idle.host_wait_ns, "kernel_wait": idle.kernel_wait_ns, "other": idle.other_ns}
    return {name: time_ns / 1000 for name, time_ns in parts.items()}


def _streams(spans: SpanTable) -> tuple[StreamSummary, ...]:
    found, idle = [], idle_by_stream(spans)
    for lane, rows in rows_by_lane(spans, np.flatnonzero(spans.is_kind(DEVICE_KINDS))):
        kernel = spans.kind[rows] == SpanKind.KERNEL
        busy_us, copy_us = (
            union(spans.start_ns[chosen], spans.end_ns[chosen]).length_ns / 1000 for chosen in (rows[kernel], rows[~kernel])
        )
        name = spans.lanes[lane]
        found.append(StreamSummary(name, int(kernel.sum()), busy_us, copy_us, idle[name]))
    return tuple(found)


def _estimates(spans: SpanTable) -> list[str]:
    """Say that kernels side by side have estimated times: overlap is then a lower bound, since they were timed one by one."""
    kernels = spans.kind == SpanKind.KERNEL
    estimates = int((kernels & (spans.basis != Basis.MEASURED)).sum())
    if not estimates or len(np.unique(spans.lane[kernels])) < 2:
        return []
    return [f"times of {estimates:,} of {int(kernels.sum()):,} kernels are estimates, not read from a clock; overlap is a lower bound"]


def _model_warnings(info: TraceInfo) -> list[str]:
    if info.recorder == "prediction":
        return ["all times are predicted, not measured"]
    return [f"all times are simulated ({info.device.name}), not measured"] if info.device.simulated else []


def _markdown_rows(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> list[str]:
    rule = ("---", *["---:"] * (len(heads) - 1)) if len(heads) > 3 else ("---", "---:", "---")
    cells = [tuple(map(in_markdown, row)) for row in (heads, *rows)]
    return [" | ".join(["", *row, ""]).strip() for row in (cells[0], rule, *cells[1:])]
