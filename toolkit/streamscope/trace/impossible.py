"""Times that cannot be: of records without a time, far from all others, before their own start, or over the work behind them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from streamscope.errors import TraceError, printable
from streamscope.trace.activities import FAR_NS, ON_DEVICE, Activities
from streamscope.trace.spans import COLUMN_DTYPES, DEVICE_KINDS
from streamscope.trace.stored import MOST_NS
from streamscope.words import counted, listed, time_text

APART_NS = 3600 * 10**9
"""A record at the clock's zero has no time if all others are an hour away at least; nearer by, the recording may have begun there."""
_RUN_OVER = 3
"""Work of its own stream that lies whole within a kernel, at least, if the kernel's end is wrong: one or two may start early on purpose."""
_FEW_RUN_OVER = 100
"""One kernel in so many may be wrong, or two of fewer. Where more run over others, the file does not tell streams apart."""
_LOOKED_AT = 64
_NAMED = 3


def recorded(found: Activities, said: list[str], unknown_ns: Collection[int] = (0,)) -> Activities:
    """Leave out what a recorder cannot have seen, and note it.

    ``unknown_ns``: what the recorder writes for a time that it does not know.

    Raises
    ------
    TraceError
        Nothing on a device has a time that can be.
    """
    before, noted = int(found.is_kind(ON_DEVICE).sum()), len(said)
    found = _in_order_of_streams(possible(timed(found, said, unknown_ns), said), said)
    if before and not found.is_kind(ON_DEVICE).any():
        raise TraceError(
            f"the times of all its {counted(before, 'device span')} are impossible: {listed(said[noted:])}",
            hint="record again; where this lasts, CUPTI or its driver gives no times",
        )
    return found


def timed(found: Activities, said: list[str], unknown_ns: Collection[int] = (0,)) -> Activities:
    """Leave out records without a time. All of them have the same one, so even where they are many, they say nothing.

    ``unknown_ns``: what the recorder writes for a time that it does not know.
    """
    start, on_device = found.start_ns, found.is_kind(ON_DEVICE)
    timeless = np.zeros(len(found), bool)
    for unknown in unknown_ns:
        there = start == unknown
        if not there.any():
            continue
        timeless |= there & on_device & (found.end_ns == unknown)
        others = start[~there]
        if len(others) and np.abs(np.clip(others, -FAR_NS, FAR_NS) - unknown).min() > APART_NS:
            timeless |= there
    for what, rows in (("device span", timeless & on_device), ("call or range", timeless & ~on_device)):
        if rows.any():
            said.append(f"left out: {counted(int(rows.sum()), what, 'calls and ranges' if 'call' in what else None)} without a time")
    return found.rows(~timeless)


def possible(found: Activities, said: list[str]) -> Activities:
    """Leave out what has no length, or lies far from all else, and note impossible sizes."""
    backwards = found.end_ns < found.start_ns
    if backwards.any():
        said.append(f"left out: {counted(int(backwards.sum()), 'span')} with an end before the start")
    found = found.rows(~backwards)
    if len(found):
        times_ns = np.stack((found.start_ns, found.end_ns))
        far = ((times_ns >= FAR_NS) | (times_ns <= -FAR_NS)).any(axis=0)
        middle = _middle_ns(found.start_ns[~far])
        far |= (np.abs(times_ns - middle) > MOST_NS // 2).any(axis=0)  # wraps around for those alone that are far already
        if far.any():
            said.append(f"left out: {counted(int(far.sum()), 'span')} more than 52 days away from the others")
            found = found.rows(~far)
    for column in ("blocks", "threads", "bytes"):
        values = getattr(found, column)
        wrong = (values < 0) | (values > np.iinfo(COLUMN_DTYPES[column]).max)
        if wrong.any():
            said.append(f"unknown: {column} of {counted(int(wrong.sum()), 'span')}, impossible in the file")
            setattr(found, column, np.where(wrong, 0, values))
    return found


def _middle_ns(start_ns: npt.NDArray[np.int64]) -> int:
    """Return the middle of the times that are to be kept: where they fall apart, of the part with most different ones.

    Records whose time is wrong share it often, so they may be more than the others, and still say less.
    """
    if not len(start_ns) or int(start_ns.max()) - int(start_ns.min()) <= MOST_NS // 2:
        return int(np.median(start_ns)) if len(start_ns) else 0
    different = np.unique(start_ns)
    parts = np.split(different, np.flatnonzero(np.diff(different) > MOST_NS // 2) + 1)
    return int(np.median(max(parts, key=len)))


def _in_order_of_streams(found: Activities, said: list[str]) -> Activities:
    """Leave out kernels, copies and sets that last beyond several later ones of their stream, which runs its work in order.

    Nodes of a graph are left alone: they run side by side, whatever stream the graph is on.
    """
    rows = np.flatnonzero(found.is_kind(DEVICE_KINDS) & (found.graph_node < 0) & (found.correlation >= 0))
    owners = (found.place, found.gpu, found.process)
    order = rows[np.lexsort((found.start_ns[rows], *(owner[rows] for owner in owners)))]
    bounds = np.flatnonzero(np.any([np.diff(owner[order]) != 0 for owner in owners], axis=0)) + 1
    wrong = list[tuple[int, int]]()
    for stream in np.split(order, bounds):
        start, end, launch = found.start_ns[stream], found.end_ns[stream], found.correlation[stream]
        within = np.searchsorted(start, end) - np.arange(len(stream)) - 1
        candidates = np.flatnonzero(within >= _RUN_OVER)
        if len(candidates) > max(2, len(stream) // _FEW_RUN_OVER):
            continue
        for at in candidates.tolist():
            later = slice(at + 1, at + 1 + min(int(within[at]), _LOOKED_AT))
            if np.count_nonzero((end[later] <= end[at]) & (launch[later] != launch[at])) >= _RUN_OVER:
                wrong.append((int(stream[at]), int(within[at])))
    if not wrong:
        return found
    length_ns = found.end_ns - found.start_ns
    named = [
        f"{printable(found.names[found.name[row]])[:100]!r} of {time_text(length_ns[row])} over {counted(count, 'other')}"
        for row, count in wrong[:_NAMED]
    ]
    more = f" and {len(wrong) - _NAMED:,} more" if len(wrong) > _NAMED else ""
    said.append(f"left out: {counted(len(wrong), 'device span')} that would run over later ones of the same stream: {listed(named)}{more}")
    keep = np.ones(len(found), bool)
    keep[[row for row, _ in wrong]] = False
    return found.rows(keep)
