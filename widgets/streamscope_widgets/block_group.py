"""Blocks of kernels as a group of the timeline: a lane a multiprocessor, a bar a block, coloured by its operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.analysis.intervals import union
from streamscope.errors import TraceError
from streamscope.trace import Basis, SpanKind, SpanTable, Trace
from streamscope.trace.spans import COLUMN_DTYPES
from streamscope_widgets.gpu_activity import multiprocessors_of
from streamscope_widgets.payload import BlockGroup

PARTS = 1 << 16


def block_group(trace: Trace) -> BlockGroup:
    """Return the blocks of a trace as a group, with how many multiprocessors have one."""
    blocks = trace.blocks
    if not blocks:
        raise TraceError(
            f"the trace of {trace.info.engine!r:.40} does not say which multiprocessor ran which block",
            hint='record it with recorder="stamps" on a GPU: ss.compare(..., recorder="stamps")',
        )
    rows, names = _named(trace)
    used, lane = np.unique(blocks.multiprocessor[rows], return_inverse=True)
    given = {
        "kind": np.full(len(rows), SpanKind.KERNEL),
        "name": names,
        "lane": lane,
        "start_ns": blocks.start_ns[rows],
        "end_ns": blocks.end_ns[rows],
        "operation": blocks.operation[rows],
        "part": blocks.part[rows],
        # Both ends were measured, but blocks of one multiprocessor overlap, as no measured kernels of one stream do.
        "basis": np.full(len(rows), Basis.DERIVED),
    }
    none = dict.fromkeys(("correlation", "symbol", "graph_node"), np.full(len(rows), -1))
    columns: dict[str, Any] = {name: given.get(name, none.get(name, np.zeros(len(rows), np.int64))) for name in COLUMN_DTYPES}
    spans = SpanTable(**columns, names=trace.spans.names, lanes=tuple(f"SM {number}" for number in used))
    return BlockGroup(Trace(spans, trace.info), note=fullness_words(trace), label="multiprocessors", comparison="")


def _named(trace: Trace) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Return the rows of blocks whose kernel is in the trace, and the code of its name."""
    spans, blocks = trace.spans, trace.blocks
    kernels = np.flatnonzero((spans.kind == SpanKind.KERNEL) & (spans.operation >= 0))
    keys, first = np.unique(spans.operation[kernels].astype(np.int64) * PARTS + spans.part[kernels], return_index=True)
    wanted = blocks.operation.astype(np.int64) * PARTS + blocks.part
    rows = np.flatnonzero(np.isin(wanted, keys))
    return rows, spans.name[kernels[first[np.searchsorted(keys, wanted[rows])]]]


def fullness_words(trace: Trace) -> str:
    """Say how many multiprocessors have a block, on average, while any has one."""
    blocks = trace.blocks
    any_ns = union(blocks.start_ns, blocks.end_ns).length_ns
    order = np.argsort(blocks.multiprocessor, kind="stable")
    cuts = np.flatnonzero(np.diff(blocks.multiprocessor[order])) + 1
    each_ns = sum(union(blocks.start_ns[rows], blocks.end_ns[rows]).length_ns for rows in np.split(order, cuts))
    there = multiprocessors_of(trace)
    of = f" of {there}" if there else ""
    return f"while blocks run, {_rounded(each_ns / any_ns)}{of} multiprocessors have one, on average" if any_ns else ""


def _rounded(number: float) -> str:
    return f"{number:.0f}" if number >= 10 else f"{number:.1f}"
