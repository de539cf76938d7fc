"""Times that cannot be: of records without a time, far from all others, before their own start, or over the work behind them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from streamscope.errors import TraceError, printable
from streamscope.trace.activities import FAR_NS, ON_DEVICE, STREAM_BITS, Activities
from streamscope.trace.file_checks import MOST_NS
from streamscope.trace.joins import distinct, looked_up
from streamscope.trace.spans import COLUMN_DTYPES, DEVICE_KINDS, HOST_KINDS, SpanKind
from streamscope.words import counted, listed, time_text

_APART_NS = 3600 * 10**9
"""A record at the clock's zero has no time if all others are an hour away at least; nearer by, the recording may have begun there."""
_RUN_OVER = 3
"""Later work of its own stream, at least, if the end of a kernel is wrong: one or two may start early on purpose."""
_FAR = 10
"""So many times as long as all the rest of the file, a kernel must go on behind it, to be wrong."""
_CLOCKS_NS = 10**7
"""Clocks of host and device differ by less."""
_NO_STREAM = 2**32 - 1
"""As profilers write a stream that they do not know, beside -1 and 2**64 - 1."""
_NAMED = 3


def recorded(found: Activities, said: list[str], unknown_ns: Collection[int] = (0,), *, streams_known: bool = True) -> Activities:
    """Leave out records that cannot be true, and note it.

    ``unknown_ns``: the recorder's value for an unknown time.
    ``streams_known``: places are those of streams, and not of queues that several streams share.

    Raises
    ------
    TraceError
        Nothing on a device has a time that can be.
    """
    before, noted = int(found.is_kind(ON_DEVICE).sum()), len(said)
    found = _over_when_waited_for(possible(timed(found, said, unknown_ns), said), said)
    if streams_known:
        found = _in_order_of_streams(found, said)
    if before and not found.is_kind(ON_DEVICE).any():
        raise TraceError(
            f"the times of all its {counted(before, 'device span')} are impossible: {listed(said[noted:])}",
            hint="record again; where this lasts, CUPTI or its driver gives no times",
        )
    return found


def timed(found: Activities, said: list[str], unknown_ns: Collection[int] = (0,)) -> Activities:
    """Leave out records without a time. All of them have the same one, so even where they are many, they say nothing.

    ``unknown_ns``: the recorder's value for an unknown time.
    """
    start, on_device = found.start_ns, found.is_kind(ON_DEVICE)
    timeless = np.zeros(len(found), bool)
    for unknown in unknown_ns:
        there = start == unknown
        if not there.any():
            continue
        timeless |= there & on_device & (found.end_ns == unknown)
        others = start[~there]
        if len(others) and np.abs(np.clip(others, -FAR_NS, FAR_NS) - unknown).min() > _APART_NS:
            timeless |= there
    for what, rows in (("device span", timeless & on_device), ("call or range", timeless & ~on_device)):
        if rows.any():
            said.append(f"left out: {counted(int(rows.sum()), what, 'calls and ranges' if 'call' in what else None)} without a time")
    return found.rows(~timeless)


def possible(found: Activities, said: list[str]) -> Activities:
    """Leave out records without a length, or far from all others, and note impossible sizes."""
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


def _over_when_waited_for(found: Activities, said: list[str]) -> Activities:
    """Leave out work that goes on long after its device was waited for, in a file of one process and one GPU: a wait is for no other."""
    on_device, calls = found.is_kind(ON_DEVICE), np.flatnonzero(found.is_kind(HOST_KINDS - {SpanKind.RANGE}))
    whole = [code for code, name in enumerate(found.names) if name.startswith(("cudaDeviceSynchronize", "hipDeviceSynchronize"))]
    waits = calls[np.isin(found.name[calls], whole)]
    if not len(waits) or len(np.unique(found.gpu[on_device])) > 1 or len(np.unique(found.process[calls])) > 1:
        return found
    waits = waits[np.argsort(found.start_ns[waits])]
    over_ns = np.minimum.accumulate(found.end_ns[waits][::-1])[::-1]  # The first end of those that start from each one on.
    _, which = distinct(found.correlation[calls])
    single = calls[(found.correlation[calls] >= 0) & (np.bincount(which)[which] == 1)]
    launched_ns = looked_up(found.correlation[single], found.end_ns[single], found.correlation, FAR_NS)
    next_wait = np.searchsorted(found.start_ns[waits], launched_ns)
    late = on_device & (found.end_ns - np.append(over_ns, FAR_NS)[next_wait] > _CLOCKS_NS)
    if late.any():
        longest = int(np.flatnonzero(late)[np.argmax((found.end_ns - found.start_ns)[late])])
        example = f"{printable(found.names[found.name[longest]])[:100]!r} of {time_text(found.end_ns[longest] - found.start_ns[longest])}"
        said.append(
            f"left out: {counted(int(late.sum()), 'device span')} that would go on after the device was waited for, such as {example}"
        )
    return found.rows(~late)


def _in_order_of_streams(found: Activities, said: list[str]) -> Activities:
    """Leave out kernels, copies and sets that go on for long when all else is over, where later ones of their stream ran meanwhile.

    A stream runs its work in order. But a file may have one number for many streams, so that one runs over others does not say enough.
    """
    far = _far_behind(found)
    if not far.any():
        return found
    later = _later_on_its_stream(found, far)
    if later[far].max() < _RUN_OVER:
        return found
    wrong = np.flatnonzero(far & (later >= 0))  # Where lengths are wrong, that of the last one is, too.
    wrong = wrong[np.lexsort((found.start_ns[wrong], -later[wrong]))]
    length_ns = found.end_ns - found.start_ns
    named = [
        f"{printable(found.names[found.name[row]])[:100]!r} of {time_text(length_ns[row])} over {counted(int(later[row]), 'other')}"
        for row in wrong[:_NAMED].tolist()
    ]
    more = f" and {len(wrong) - _NAMED:,} more" if len(wrong) > _NAMED else ""
    said.append(f"left out: {counted(len(wrong), 'device span')} that would run over later ones of the same stream: {listed(named)}{more}")
    keep = np.ones(len(found), bool)
    keep[wrong] = False
    return found.rows(keep)


def _far_behind(found: Activities) -> npt.NDArray[np.bool_]:
    """Tell which work on a device ends far behind all else: behind each start, and behind each end on the host, which would wait for it."""
    on_device = found.is_kind(DEVICE_KINDS)
    if not on_device.any():
        return on_device
    over_ns = int(max(found.start_ns.max(), found.end_ns[~on_device].max(initial=found.start_ns.max())))
    return on_device & (found.end_ns - over_ns > _FAR * max(over_ns - int(found.start_ns.min()), 1))


def _later_on_its_stream(found: Activities, far: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return for each row how much of its stream starts later and is not ``far``; -1 where work of a stream need not run in order.

    Nodes of a graph run side by side, whatever stream the graph is on: they share one correlation, as does work of merged ranks.
    """
    rows = np.flatnonzero(found.is_kind(DEVICE_KINDS) & (found.graph_node < 0) & (found.correlation >= 0) & _stream_known(found))
    _, launch = distinct(found.correlation[rows])
    rows = rows[np.bincount(launch)[launch] == 1]
    owners = [distinct(column[rows])[1] for column in (found.place, found.gpu, found.process)]
    order = np.lexsort((-found.start_ns[rows], *owners))  # The last one first.
    new = np.any([np.diff(owner[order], prepend=-1) != 0 for owner in owners], axis=0)
    counts = np.cumsum(~far[rows[order]])
    before = counts - ~far[rows[order]]
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    later = np.full(len(found), -1)
    later[rows[order]] = before - before[first]
    return later


def _stream_known(found: Activities) -> npt.NDArray[np.bool_]:
    """Tell of work on a device whether the file names its stream."""
    unknown = [-1, *(number for number, text in found.places.items() if text in ("?", str(2**64 - 1)))]
    known: npt.NDArray[np.bool_] = ~np.isin(found.place, unknown) & (found.place % (1 << STREAM_BITS) != _NO_STREAM)
    return known
