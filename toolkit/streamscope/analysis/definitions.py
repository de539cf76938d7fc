"""Every metric with its label, its unit, its definition, and how its value is written.

A definition is the first part of the docstring of the function that computes the metric, so tables, tooltips and charts show the
same words.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamscope.analysis.launches import api_time_ns, launch_latency_ns, queue_time_ns
from streamscope.analysis.metrics import EngineMetrics, busy_fraction, device_memory_bytes, idle_ns, recording_cost
from streamscope.analysis.overlap import gpu_busy_ns, kernel_count, overlap_fraction
from streamscope.analysis.statistics import median_interval
from streamscope.analysis.verdict import difference
from streamscope.words import format_mib, format_us


@dataclass(frozen=True)
class Quantity:
    """One metric as tables and charts name it.

    Attributes
    ----------
    field : str
        Its attribute of `EngineMetrics`.
    label : str
    unit : {"µs", "%", "×", "MiB", ""}
    function : callable
        What computes it, and so defines it.
    """

    field: str
    label: str
    unit: str
    function: Callable[..., Any]

    @property
    def heading(self) -> str:
        """Label with its unit, for a table's head or an axis."""
        return f"{self.label}, {self.unit}" if self.unit else self.label

    @property
    def definition(self) -> str:
        """Definition, formula, denominator and source, in one paragraph; the unit is the one that is shown."""
        return re.sub(r"Unit: [^.;,]+", f"Unit: {self.unit or 'none'}", definition_of(self.function))

    def show(self, values: EngineMetrics) -> str:
        """Return its value as text, without the unit; an en dash where there is none."""
        return self.show_value(getattr(values, self.field))

    def show_value(self, value: float | None) -> str:
        """Return any value of this quantity as text, without the unit."""
        if value is None:
            return "–"
        if self.unit == "µs":
            return format_us(value)
        if self.unit == "%":
            return f"{value * 100:.1f}" if 0 < value < 0.0995 else f"{value * 100:.0f}"
        if self.unit == "MiB":
            return format_mib(value)
        return f"{value:.2f}" if self.unit == "×" else f"{value:,}"


QUANTITIES = (
    Quantity("makespan_us", "makespan", "µs", median_interval),
    Quantity("gpu_busy_us", "GPU busy", "µs", gpu_busy_ns),
    Quantity("busy_fraction", "GPU busy", "%", busy_fraction),
    Quantity("idle_us", "idle", "µs", idle_ns),
    Quantity("overlap", "overlap", "%", overlap_fraction),
    Quantity("kernel_count", "kernels", "", kernel_count),
    Quantity("launch_latency_us", "launch latency", "µs", launch_latency_ns),
    Quantity("queue_time_us", "queue time", "µs", queue_time_ns),
    Quantity("api_time_us", "API time", "µs", api_time_ns),
    Quantity("device_memory_bytes", "device memory", "MiB", device_memory_bytes),
    Quantity("recording_cost", "recording", "×", recording_cost),
)
"""The metrics that a table of engines shows, in its order."""
AGAINST = Quantity("makespan_us", "against", "", difference)
"""The column that compares each engine with the reference."""


def definition_of(function: Callable[..., Any]) -> str:
    """Return what a function's docstring says before its sections, as one paragraph."""
    text = inspect.getdoc(function) or ""
    lines = text.split("\n")
    rule = next((row for row, line in enumerate(lines) if line and set(line) == {"-"}), len(lines) + 1)
    return " ".join(" ".join(lines[: rule - 1]).replace("`", "").split())
