"""The registry of metrics: one entry each, from which tables, JSON, expectations and the page of definitions come."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from streamscope.docstrings import docstring
from streamscope.doors import Door
from streamscope.errors import printable
from streamscope.words import format_mib, format_us

if TYPE_CHECKING:
    from streamscope.trace.trace import Trace

ENGINE: Final = "engine"
"""Scope of a metric of one engine: of its trace, and of its repeats without recording."""
TRACE: Final = "trace"
"""Scope of a metric of any one trace."""
HOST: Final = "host"
"""Scope of a metric of all GPUs of a trace together. Others are of one GPU: of each, or of the busiest."""
UNITS: Final = ("µs", "%", "×", "MiB", "GB/s", "")
"""Units that tables show: of times in µs, fractions, ratios, bytes, bandwidths, and numbers."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric: an entry of the door ``streamscope.metrics``.

    A metric is computed by its function, from a trace. Most of ours are fields of `EngineMetrics` and `Summary` instead, which measure
    them together, since they share most of the work; their functions define them.

    Attributes
    ----------
    name : str
        Public name, in JSON and for ``%streamscope_assert``; its ending says the unit where it is a time (``_us``) or a size (``_bytes``).
    label : str
        Heading in tables.
    unit : {"µs", "%", "×", "MiB", "GB/s", ""}
        Unit that tables show: ``"%"`` of a fraction, ``"MiB"`` of bytes.
    function : callable
        Computes it, and defines it: the text before the sections of its docstring is the definition. Of another package:
        ``function(trace) -> float or None``, None where there is nothing to measure. Of a trace of several GPUs, it gets one at a time.
    scope : tuple of str
        ``"engine"``, ``"trace"`` or both: the table of engines, the summary of a trace. With ``"host"``, it is of all GPUs of a trace
        together.
    of_trace : callable, optional
        Function that defines it for a trace, where that is another one.
    error : str
        Attribute with how far it may be off, where there is one.
    first : bool
        Whether it is among the metrics that answer most questions; the others stand apart where there is little room.
    share : bool
        Whether a summary shows its share of the span, too.
    parts : tuple of (key, label, function)
        Parts of its value, each a row of a summary.
    quiet_at : float, optional
        Value at which a summary leaves it out, since it says nothing.

    Examples
    --------
    >>> def longest_us(trace):
    ...     '''Longest kernel. Formula: max(end - start) over kernels. Unit: µs.'''
    ...     return float(trace.spans.duration_ns.max(initial=0)) / 1000
    >>> from streamscope.analysis.metric import Metric
    >>> longest = Metric(name="longest_us", label="longest kernel", unit="µs", function=longest_us)
    >>> longest.heading, longest.show_value(12.34)
    ('longest kernel, µs', '12.3')
    """

    name: str
    label: str
    unit: str
    function: Callable[..., Any]
    scope: tuple[str, ...] = (ENGINE, TRACE)
    of_trace: Callable[..., Any] | None = None
    error: str = ""
    first: bool = False
    share: bool = False
    parts: tuple[tuple[str, str, Callable[..., Any]], ...] = ()
    quiet_at: float | None = None

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"unit {self.unit!r} of metric {self.name!r} is not known: one of {', '.join(map(repr, UNITS))}")
        if not {*self.scope} <= {ENGINE, TRACE, HOST}:
            raise ValueError(f"scope {self.scope!r} of metric {self.name!r} is not known: a tuple of {ENGINE!r}, {TRACE!r} and {HOST!r}")

    @property
    def heading(self) -> str:
        """Label with its unit, for a table's head or an axis."""
        return f"{self.label}, {self.unit}" if self.unit else self.label

    @property
    def definition(self) -> str:
        """Definition, formula, denominator and source, in one paragraph; the unit is the one that is shown."""
        return re.sub(r"Unit: [^.;,]+", f"Unit: {self.unit or 'none'}", definition_of(self.function))

    @property
    def trace_function(self) -> Callable[..., Any]:
        """Function that defines the metric for a trace."""
        return self.of_trace or self.function

    def show_value(self, value: float | None) -> str:
        """Write a value as text, without the unit; an en dash for None."""
        if value is None:
            return "–"
        if self.unit == "µs":
            return format_us(value)
        if self.unit == "%":
            return f"{value * 100:.1f}" if 0 < value < 0.0995 else f"{value * 100:.0f}"
        if self.unit == "MiB":
            return format_mib(value)
        if self.unit == "GB/s":
            return f"{value:,.1f}"
        return f"{value:.2f}" if self.unit == "×" or not float(value).is_integer() else f"{value:,.0f}"


def definition_of(function: Callable[..., Any]) -> str:
    """Return a function's docstring up to its first section, as one paragraph."""
    lines = docstring(function).split("\n")
    rule = next((row for row, line in enumerate(lines) if line and set(line) == {"-"}), len(lines) + 1)
    return " ".join(" ".join(lines[: rule - 1]).replace("`", "").split())


_OWN = (
    "makespan_us", "span_us", "gpu_busy_us", "busy_fraction", "communication_us", "exposed_us", "hidden_us", "mean_exposed_us",
    "mean_hidden_us", "collective_wait_us", "collective_transfer_us", "waited_for_us", "bus_bandwidth", "busy_imbalance", "peer_copy_us",
    "copy_us", "idle_us", "overlap", "average_concurrency", "net_overlap_us", "copy_overlap", "host_overlap", "kernel_count",
    "short_kernels", "late_kernels", "launch_latency_us", "launch_overhead_us", "queue_time_us", "api_time_us", "queue_full_us",
    "device_memory_bytes", "recording_cost",
)  # fmt: skip
METRICS: Door[Metric] = Door(
    "metric",
    {name: f"streamscope.analysis.catalogue:{name.upper()}" for name in _OWN},
    Metric,
)
"""All metrics by name, in the order of tables."""


def metrics_of(scope: str) -> list[Metric]:
    """Return the metrics of one scope, in the order of tables."""
    return [metric for metric in METRICS.values() if scope in metric.scope]


def added_values(trace: Trace, scope: str, measured: Collection[str]) -> tuple[dict[str, float | None], tuple[str, ...]]:
    """Compute the metrics of a scope that are not among those ``measured`` together, and say which failed.

    Returns
    -------
    values : dict of str to float or None
        None where there is nothing to measure, or the metric failed.
    warnings : tuple of str
    """
    values: dict[str, float | None] = {}
    warnings = []
    for name, metric in METRICS.items():
        if scope not in metric.scope or name in measured:
            continue
        try:
            value = metric.trace_function(trace)
            values[name] = None if value is None else _finite(float(value))
        except Exception as error:  # noqa: BLE001 — the code of another package, which must not take ours down
            values[name] = None
            warnings.append(printable(f"metric {name!r} failed: {type(error).__name__}: {error}"))
    return values, tuple(warnings)


def _finite(value: float) -> float:
    if not isfinite(value):
        raise ValueError(f"it is {value}, which JSON cannot hold: return None where there is nothing to measure")
    return value


def definitions() -> Iterator[tuple[str, str, str, str, Mapping[str, str]]]:
    """Yield name, label, unit and scope of each metric, with its definition in each scope: the page of definitions.

    Examples
    --------
    >>> page = {name: definition for name, _, _, _, definition in ss.analysis.definitions()}
    >>> page["idle_us"]["engine"]
    'Time in which neither a kernel nor a copy nor a set runs. Formula: makespan ...'
    """
    for metric in METRICS.values():
        functions = {scope: metric.trace_function if scope == TRACE else metric.function for scope in metric.scope}
        found = {scope: definition_of(function) for scope, function in functions.items()}
        yield metric.name, metric.label, metric.unit, ", ".join(metric.scope), found
