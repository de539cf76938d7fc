"""The same operations under several engines, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamscope.arrays import FloatArray, IntArray
from streamscope.engine_entry import ENGINES
from streamscope.errors import TraceError
from streamscope.trace.spans import DEVICE_KINDS, SpanTable
from streamscope.trace.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

_KEY_SHIFT = 16


@dataclass(frozen=True)
class OperationTable:
    """One row for each launch of each operation, joined by (operation, part) over engines.

    Attributes
    ----------
    operation, part : int64 arrays
        Sorted.
    name : tuple of str
        Name of the kernel or copy in the first engine that has it.
    engines : tuple of str
    duration_ns : float64 array, rows x engines
        Mean over launches of the time on the device, the kernels of one launch added up; NaN where the engine did not run it.
    """

    operation: IntArray
    part: IntArray
    name: tuple[str, ...]
    engines: tuple[str, ...]
    duration_ns: FloatArray

    @property
    def reference(self) -> str:
        """Engine that durations are compared with: one under which nothing runs beside anything, else the first; empty without engines."""
        return next((name for name in self.engines if name in ENGINES and ENGINES[name].waits), next(iter(self.engines), ""))

    def slowdown(self) -> FloatArray:
        """Duration of each kernel or copy relative to the same one under a reference engine: the cost of its neighbours.

        Formula: duration / duration under the reference. Unit: ratio; 1 is unhindered, 1.4 means that it took 40 % longer while others
        ran beside it.
        Denominator: the duration under the reference engine. NaN where either is missing or the reference took no time.

        Returns
        -------
        float64 array, rows x engines

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["sync", "dual"], device="simulated", progress=False)
        >>> table = ss.analysis.operation_table({engine: run.trace for engine, run in runs.items()})
        >>> table.slowdown()[:2]
        array([[1., 1.],
               [1., 1.]])
        """
        base_ns = self.duration_ns[:, [self.engines.index(self.reference)]]
        return np.divide(self.duration_ns, base_ns, out=np.full_like(self.duration_ns, np.nan), where=base_ns > 0)

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame indexed by (operation, part): the name, and for each engine its duration in µs.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines=["sync", "dual"], device="simulated", progress=False)
        >>> table = ss.analysis.operation_table({engine: run.trace for engine, run in runs.items()})
        >>> list(table.to_pandas().columns)
        ['name', 'sync_us', 'dual_us']
        """
        import pandas as pd

        index = pd.MultiIndex.from_arrays([self.operation, self.part], names=["operation", "part"])
        columns = {f"{engine}_us": self.duration_ns[:, column] / 1000 for column, engine in enumerate(self.engines)}
        return pd.DataFrame({"name": list(self.name), **columns}, index=index)


def operation_table(traces: Mapping[str, Trace]) -> OperationTable:
    """Join the kernels and copies of several traces of one program by (operation, part); spans of no operation are left out.

    Raises
    ------
    TraceError
        Kernels and copies are there, but none is of an operation: foreign traces have none.

    Examples
    --------
    >>> from streamscope.trace import DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo
    >>> builder = SpanBuilder(["host", "main"])
    >>> builder.add(SpanKind.LAUNCH, "a", "host", 0, 3_000, correlation=0)
    >>> builder.add(SpanKind.KERNEL, "a", "main", 5_000, 25_000, operation=0, correlation=0)
    >>> trace = Trace(builder.build(), TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")))
    >>> table = ss.analysis.operation_table({"async": trace})
    >>> table.name, table.duration_ns.tolist()
    (('a',), [[20000.0]])
    """
    tables = {engine: _of_operations(trace.spans) for engine, trace in traces.items()}
    if traces and not any(map(len, tables.values())) and any(trace.spans.is_kind(DEVICE_KINDS).any() for trace in traces.values()):
        raise TraceError(
            "no kernel of these traces belongs to an operation: they are not of programs of Streamscope",
            hint="ss.analysis.summary(trace).kernels has kernels by name, and ss.diff compares two traces by name",
        )
    keys = [_keys(spans) for spans in tables.values()]
    # Not np.unique, which hashes: sorting is quick on what is nearly sorted.
    every = np.sort(np.concatenate([np.zeros(0, np.int64), *keys]), kind="stable")
    rows = every[np.diff(every, prepend=every[:1] - 1) > 0]
    duration_ns = np.full((len(rows), len(tables)), np.nan)
    names = np.full(len(rows), "", object)
    for column, (spans, key) in reversed(list(enumerate(zip(tables.values(), keys, strict=True)))):
        row = np.searchsorted(rows, key)
        count = np.bincount(row[_opens_launch(spans, key)], minlength=len(rows))
        total_ns = np.bincount(row, weights=spans.duration_ns, minlength=len(rows))
        np.divide(total_ns, count, out=duration_ns[:, column], where=count > 0)
        if len(row):
            names[row] = np.array(spans.names, object)[spans.name]
    return OperationTable(rows >> _KEY_SHIFT, rows & ((1 << _KEY_SHIFT) - 1), tuple(names), tuple(tables), duration_ns)


def _of_operations(spans: SpanTable) -> SpanTable:
    device = spans.of_kind(DEVICE_KINDS)
    return device.select(device.operation >= 0)


def _opens_launch(spans: SpanTable, key: IntArray) -> IntArray:
    """Return the first span of each launch, by operation, part and correlation; one of an unknown launch is one by itself."""
    order = np.lexsort((spans.correlation, key))
    correlation = spans.correlation[order]
    same = (np.diff(key[order], prepend=-1) == 0) & (np.diff(correlation, prepend=-1) == 0) & (correlation >= 0)
    found: IntArray = order[~same]
    return found


def _keys(spans: SpanTable) -> IntArray:
    """Operation and part packed into one sortable number."""
    return (spans.operation.astype(np.int64) << _KEY_SHIFT) + spans.part
