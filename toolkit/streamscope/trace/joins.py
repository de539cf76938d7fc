"""Hash joins on integer columns; above all, each kernel and copy with the call that launched it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.trace.spans import MEMORY_KINDS, SpanKind, SpanTable

CALL_KINDS = (SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH)
_DENSE = 8
"""Keys so much larger than their number are still looked up in a table."""


def looked_up(keys: npt.NDArray[Any], values: npt.NDArray[Any], wanted: npt.NDArray[Any], missing: int) -> npt.NDArray[np.int64]:
    """Return the value of each wanted key, as a join does; the first where a key is there twice."""
    if not len(keys):
        return np.full(len(wanted), missing, np.int64)
    least, most = int(keys.min()), int(keys.max())
    if least >= 0 and most <= _DENSE * (len(keys) + len(wanted)) + 1024:
        value_of = np.full(most + 2, missing, np.int64)
        value_of[keys[::-1]] = values[::-1]  # Of several, the last one assigned stays.
        return value_of[np.where((wanted >= 0) & (wanted <= most), wanted, most + 1)]
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    at = np.minimum(np.searchsorted(in_order, wanted), len(keys) - 1)
    return np.where(in_order[at] == wanted, values[order][at], missing).astype(np.int64)


def distinct(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the different values of whole numbers, which grow, and for each row which one it has.

    That is `numpy.unique` with its inverse, in a thirtieth of its time where the numbers are dense.
    """
    least = int(values.min()) if len(values) else 0
    width = int(values.max()) - least + 1 if len(values) else 0
    if width > _DENSE * len(values) + 1024:
        used, code = np.unique(values, return_inverse=True)
        return used, code.reshape(-1)
    at = values - least
    there = np.zeros(width, bool)
    there[at] = True
    return (np.flatnonzero(there) + least).astype(values.dtype), (np.cumsum(there) - 1)[at]


def thread_numbers(*several: tuple[npt.NDArray[Any], npt.NDArray[Any]]) -> list[npt.NDArray[np.int64]]:
    """Return numbers of the threads of several tables, from 0 on, by the columns of their processes and of the threads in these."""
    processes, process = distinct(np.concatenate([one for one, _ in several]))
    _, place = distinct(np.concatenate([one for _, one in several]))
    _, thread = distinct(place * max(1, len(processes)) + process)
    return np.split(thread, np.cumsum([len(one) for one, _ in several])[:-1])


def correlated(spans: SpanTable, rows: IntArray, others: IntArray) -> IntArray:
    """Return for each of some rows the first of others that has its correlation; -1 where none has."""
    others = others[spans.correlation[others] >= 0]
    return looked_up(spans.correlation[others], others, spans.correlation[rows], -1)


def call_rows(spans: SpanTable, device_rows: IntArray) -> IntArray:
    """Return for each row of a kernel or copy the row of its launch call, the first of several; -1 where there is none."""
    return correlated(spans, device_rows, np.flatnonzero(spans.is_kind(CALL_KINDS)))


def blocking_copies(spans: SpanTable, rows: IntArray, calls: IntArray) -> npt.NDArray[np.bool_]:
    """Tell of each row whether it is a copy whose call returned after it had ended, so that the host waited for it."""
    found: npt.NDArray[np.bool_] = spans.is_kind(MEMORY_KINDS)[rows] & (calls >= 0)
    found &= spans.is_kind([SpanKind.LAUNCH])[calls] & (spans.end_ns[calls] >= spans.end_ns[rows])
    copying = np.array([*("emcpy" in name for name in spans.names), False])
    found &= copying[spans.name[calls]]
    return found
