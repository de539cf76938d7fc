"""Traces recorded by other programs: columns of activities become a table of spans, with notes on all that is missing or odd."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat, takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.errors import TraceError, printable
from streamscope.trace.activities import ON_DEVICE, Activities, gpu_names, gpus_of, named_place, wanted_gpus
from streamscope.trace.collectives import PeerCopies
from streamscope.trace.counters import Counters, Markers, Noted
from streamscope.trace.info import DeviceInfo, TraceInfo
from streamscope.trace.instances import CollectiveFacts, PeerFacts, collectives_of
from streamscope.trace.joins import CALL_KINDS, call_rows, distinct, looked_up
from streamscope.trace.launch_sites import LaunchSites, Site
from streamscope.trace.memory import Allocations
from streamscope.trace.origins import Origins
from streamscope.trace.plausibility import possible
from streamscope.trace.spans import DEVICE_KINDS, HOST_KINDS, MOST_FOREIGN_SPANS, MOST_GPU, Basis, SpanKind, SpanTable
from streamscope.trace.symbols import short_name
from streamscope.trace.trace import Trace
from streamscope.trace.tracks import placed
from streamscope.words import counted, listed, time_text

LONGEST_NAME = 10_000
"""Most characters; longer names are cut."""
_MOST_TRACKS = 64
"""How many kernels of one stream, or ranges of one thread that do not nest, may lie side by side."""
_ASIDE = (SpanKind.API, SpanKind.RANGE)
_CALLS, _RANGES, _WORK, _GRAPHS = range(4)
UNCALLED = "without a launch call: launch latency unknown"
MIXED = "work of several processes is on"
"""Notes begin so that name GPUs whose work cannot be told apart by process."""
_BEHIND = ("", " ranges", "", " graphs")
"""Text behind the name of a thread or a stream in that of a lane."""
_LONGEST_PLACE = 200
"""Most characters of the name of a thread or stream; longer ones are cut."""
_LIKE_A_LANE = re.compile(r" (?:· \d+|ranges|graphs)$")
_LANE_OF_KIND = np.full(len(SpanKind), _CALLS)
_LANE_OF_KIND[[SpanKind.RANGE, *DEVICE_KINDS, SpanKind.GRAPH]] = (_RANGES, *[_WORK] * len(DEVICE_KINDS), _GRAPHS)


@dataclass(frozen=True)
class EventWaits:
    """Calls that made a stream wait for an event, one row each."""

    recorded_on: npt.NDArray[np.int64]
    record_ns: npt.NDArray[np.int64]
    waiting: npt.NDArray[np.int64]
    wait_ns: npt.NDArray[np.int64]
    """Numbers of the streams, of the event and of the one that waited; when the host called, to record and to wait."""

    def __len__(self) -> int:
        return len(self.wait_ns)

    def rows(self, stream: IntArray, launch_ns: IntArray, row: IntArray) -> IntArray:
        """Return the rows that waits join, int32, shape (n, 2): the last one that was launched before the record, the first after the wait.

        ``stream``, ``launch_ns``, ``row``: of each kernel, copy and set, in the order of the rows: its stream, its launch, its row.
        """
        order = np.lexsort((launch_ns, stream))
        stream, launch_ns, row = stream[order], launch_ns[order], row[order]
        found = np.full((len(self), 2), -1, np.int64)
        for side, (streams, times, side_of, step) in enumerate(
            ((self.recorded_on, self.record_ns, "left", -1), (self.waiting, self.wait_ns, "right", 0))
        ):
            for one in np.unique(streams).tolist():
                low, high = np.searchsorted(stream, one, side="left"), np.searchsorted(stream, one, side="right")
                which = np.flatnonzero(streams == one)
                at = low + np.searchsorted(launch_ns[low:high], times[which], side=side_of) + step  # type: ignore[call-overload]
                there = (at >= low) & (at < high)
                found[which[there], side] = row[at[there]]
        found = found[(found >= 0).all(axis=1)]
        return np.unique(found, axis=0).astype(np.int32)


def foreign_trace(
    activities: Activities,
    *,
    engine: str,
    program: str,
    device: DeviceInfo,
    recorder: str,
    gpu: int | None = None,
    zero_ns: int | None = None,
    notes: Sequence[str] = (),
    waits: EventWaits | None = None,
    profiler: Sequence[npt.NDArray[np.int64]] = (),
    symbols: bool = True,
    noted: Noted | None = None,
    memory: Callable[[int, list[str]], Allocations] | None = None,
    clock_ns: int | None = None,
    **info: Any,
) -> Trace:
    """Return the trace of activities, of all GPUs or of one.

    Whatever does not fit into a table of spans is left out or moved, and a note counts it. Threads become lanes ``"thread ID"``, their
    ranges ``"thread ID ranges"``, streams ``"stream ID"``; of several GPUs, ``"GPU 1 stream ID"``. Kernels that overlap on one stream go to
    lanes ``"stream ID · 2"`` and so on.

    ``engine``, ``program``, ``device``, ``recorder``, ``**info``: for the `TraceInfo`.
    ``gpu``: which GPU; by default all, and a note says so. ``device`` is then the busiest.
    ``zero_ns``: the trace's zero on the clock of the activities; by default the first call, or the first activity where there are no calls.
    ``notes``: notes of the reader.
    ``waits``: which streams waited for which, where the file says so.
    ``profiler``: start and end of the profiler's own work on the host.
    ``symbols``: whether kernels have the names of functions, from which readable ones are made.
    ``noted``: counters and markers, on the clock of the activities.
    ``memory``: a function that returns the allocations on a clock with a zero, and notes what is missing, as `allocations_of` does.
    ``clock_ns``: what the recorder's clock shows where that of the activities shows 0; None where that is unknown.
    """
    said = list(notes)
    found = possible(activities, said)
    found = _gpus_known(found)
    wanted_gpus(found, gpu)
    gpus = gpus_of(found)
    if gpu is not None:
        found = _of_one_gpu(found, gpu, said)
    elif len(gpus) > 1:
        said.append(f"{len(gpus)} GPUs: {listed([str(one) for one in gpus[:20]])}; metrics are of one each (gpu= reads one alone)")
    which = {"gpu": gpus[0] if gpu is None else gpu} if gpu is not None or len(gpus) == 1 else {}
    device = replace(device, details={**device.details, **which, "gpus": gpus})
    found = _few_enough(_launching(found, said), said)
    if zero_ns is None:
        calls = found.is_kind(HOST_KINDS - {SpanKind.RANGE})
        zero_ns = int(found.start_ns[calls if calls.any() else slice(None)].min())
    if len(profiler):
        said += _profiler_notes(found, *profiler)
    found = _threads_apart(found.rows(_order(found.start_ns, found.end_ns)))
    lane, lanes, lane_gpus = _lanes(found, said)
    name, symbol, names = _named(found, said, symbols=symbols)
    count = len(found)
    columns: dict[str, Any] = {
        "kind": found.kind,
        "name": name,
        "lane": lane,
        "start_ns": found.start_ns - zero_ns,
        "end_ns": found.end_ns - zero_ns,
        "operation": np.full(count, -1),
        "part": np.zeros(count, np.int16),
        "correlation": found.correlation,
        "basis": np.full(count, Basis.MEASURED, np.uint8),
        "blocks": found.blocks,
        "threads": found.threads,
        "bytes": found.bytes,
        "flops": np.zeros(count, np.int64),
        "symbol": symbol,
        "graph_node": found.graph_node,
    }
    table = SpanTable(**columns, names=names, lanes=lanes, gpus=lane_gpus)
    rows = np.flatnonzero((found.fact >= 0) & found.is_kind(ON_DEVICE))
    facts = [(row, found.facts[fact]) for row, fact in zip(rows.tolist(), found.fact[rows].tolist(), strict=True)]
    collectives = collectives_of(table, {row: fact for row, fact in facts if isinstance(fact, CollectiveFacts)}, said)
    copies = [(row, *fact) for row, fact in facts if isinstance(fact, PeerFacts) and 0 <= min(fact) <= max(fact) <= MOST_GPU]
    if len(copies) > PeerCopies.MOST:
        said.append(f"not told apart: {counted(len(copies), 'copy', 'copies')} between GPUs, since a trace keeps {PeerCopies.MOST:,}")
        copies = []
    sites = _launch_sites(found, table, said)
    counters, markers = noted.tables(zero_ns, said) if noted else (Counters(), Markers())
    user_notes = noted.notes(zero_ns, said) if noted else ()
    held = Allocations() if memory is None else memory(zero_ns, said)
    if gpu is not None:
        counters, held = counters.of_gpu(gpu), held.of_gpu(gpu)
    began_ns = None if clock_ns is None else clock_ns + zero_ns
    about = TraceInfo(engine, program, device, recorder, notes=tuple(said), zero_ns=began_ns, **info)
    beside: dict[str, Any] = {"collectives": collectives, "peers": PeerCopies.of(copies), "sites": sites}
    beside |= {"counters": counters, "markers": markers, "memory": held, "user_notes": user_notes}
    return Trace(table, about, _origins(found, waits), **beside)


def _order(start_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return the order of starts, and the longer one first of those that start together, as ranges nest."""
    order = np.argsort(start_ns, kind="stable")
    tied = np.flatnonzero(np.diff(start_ns[order]) == 0)
    tied = np.unique(np.concatenate((tied, tied + 1)))
    some = order[tied]
    order[tied] = some[np.lexsort((-end_ns[some], start_ns[some]))]
    return order


def _origins(found: Activities, waits: EventWaits | None) -> Origins:
    """Return which rows waited for which. All is known where each wait of a stream is, and no graph hides others.

    A file of several streams without a wait says nothing: the default stream waits without a call, and profilers drop calls of the driver.
    """
    device = np.flatnonzero(found.is_kind(DEVICE_KINDS))
    launch = np.flatnonzero(found.is_kind(CALL_KINDS) & (found.correlation >= 0))
    launched = looked_up(found.correlation[launch], launch, found.correlation[device], -1)
    launch_ns = np.where(launched >= 0, found.start_ns[launched], found.start_ns[device])
    rows = np.zeros((0, 2), np.int32) if waits is None else waits.rows(found.place[device], launch_ns, device)
    used, count = np.unique(found.name[found.is_kind([SpanKind.EVENT])], return_counts=True)
    waited = sum(number for code, number in zip(used.tolist(), count.tolist(), strict=True) if "StreamWaitEvent" in found.names[code])
    hidden = bool(found.is_kind([SpanKind.GRAPH_LAUNCH, SpanKind.GRAPH]).any())
    told = waits is not None and waited == len(waits) > 0
    one_stream = all(len(distinct(column[device])[0]) <= 1 for column in (found.gpu, found.place))
    known = len(launch) > 0 and not hidden and (told or (not waited and one_stream))
    return Origins(row_waits=rows, complete=known)


def _launch_sites(found: Activities, table: SpanTable, said: list[str]) -> LaunchSites:
    """Return where the work on the device was launched: the site of its call, where that is known."""
    if not (found.fact[found.is_kind(CALL_KINDS)] >= 0).any():
        return LaunchSites()
    device = np.flatnonzero(found.is_kind(DEVICE_KINDS))
    call = call_rows(table, device)
    fact = np.where(call >= 0, found.fact[call], -1)
    device, fact = device[fact >= 0], fact[fact >= 0]
    if len(device) > LaunchSites.MOST:
        said.append(f"without its line: {counted(len(device) - LaunchSites.MOST, 'device span')}, since a trace keeps {LaunchSites.MOST:,}")
        device, fact = device[: LaunchSites.MOST], fact[: LaunchSites.MOST]
    used, site = distinct(fact)
    return LaunchSites(device, site, tuple(one for one in map(found.facts.__getitem__, used.tolist()) if isinstance(one, Site)))


def _profiler_notes(found: Activities, start_ns: IntArray, end_ns: IntArray) -> list[str]:
    """Return the note on a profiler's own time within the run; its time before or after delayed nothing in it."""
    run = ~found.is_kind(_ASIDE)
    first_ns, last_ns = found.start_ns[run].min(), found.end_ns[run].max()
    inside_ns = np.clip(end_ns, first_ns, last_ns) - np.clip(start_ns, first_ns, last_ns)
    took_ns = float(np.maximum(inside_ns, 0).sum(dtype=np.float64))
    return [f"the profiler itself took {time_text(took_ns)} of host time within the span"] if took_ns else []


def _gpus_known(found: Activities) -> Activities:
    """Return work whose GPU is unknown, or has a number that is none, as that of the first or the last that there may be."""
    work = found.is_kind(ON_DEVICE)
    gpu = np.where(work, np.clip(found.gpu, 0, MOST_GPU), -1)
    return found if np.array_equal(gpu, found.gpu) else replace(found, gpu=gpu)


def _of_one_gpu(found: Activities, gpu: int, said: list[str]) -> Activities:
    """Leave out the work of other GPUs, the calls that launched it, and processes that worked on other GPUs alone."""
    on_device = found.is_kind(ON_DEVICE)
    others = on_device & (found.gpu != gpu)
    if not others.any():
        return found
    which = ", ".join(f"GPU {number}" for number in np.unique(found.gpu[others])[:10])
    ours, theirs = found.correlation[on_device & ~others], found.correlation[others]
    theirs = np.setdiff1d(theirs, np.append(ours, -1))
    launches = np.isin(found.correlation, theirs) & found.is_kind(HOST_KINDS - {SpanKind.RANGE})
    it = "it" if others.sum() == 1 else "them"
    calls = f", and {counted(int(launches.sum()), 'call')} that launched {it}" if launches.any() else ""
    elsewhere = ~on_device & ~launches & np.isin(found.process, _elsewhere(found.process[on_device & ~others], found.process[others]))
    if elsewhere.any():
        calls += f", and {counted(int(elsewhere.sum()), 'call or range', 'calls and ranges')} of processes on other GPUs"
    said.append(f"only GPU {gpu}; left out: {counted(int(others.sum()), 'device span')} of {which}{calls} (gpu= chooses another)")
    return found.rows(~others & ~launches & ~elsewhere)


def _elsewhere(ours: IntArray, theirs: IntArray) -> IntArray:
    """Return the processes that worked on other GPUs alone; none where it is not known which one worked on ours."""
    return np.setdiff1d(theirs, np.append(ours, -1)) if len(ours) and ours.min() >= 0 else theirs[:0]


def _launching(found: Activities, said: list[str]) -> Activities:
    """Join calls with their launched work: one call has a correlation; calls without one that launch nothing have none."""
    on_device = found.is_kind(DEVICE_KINDS)
    host = found.is_kind(HOST_KINDS - {SpanKind.RANGE})
    kind, correlation = found.kind.copy(), np.where(found.is_kind([SpanKind.RANGE]), -1, found.correlation)
    launched, _ = distinct(correlation[found.is_kind(ON_DEVICE) & (correlation != -1)])
    launches = host & np.isin(correlation, launched)
    kind[launches & (kind != SpanKind.GRAPH_LAUNCH)] = SpanKind.LAUNCH
    rows = np.flatnonzero(np.isin(kind, CALL_KINDS) & (correlation != -1))
    rows = rows[np.lexsort((found.start_ns[rows] - found.end_ns[rows], correlation[rows]))]
    inner = rows[1:][correlation[rows[1:]] == correlation[rows[:-1]]]  # the driver's call inside of the runtime's
    launchers = correlation[rows]
    kind[inner] = SpanKind.API
    correlation[inner] = -1
    correlation[host & ~np.isin(kind, CALL_KINDS)] = -1
    empty = int((np.isin(kind, CALL_KINDS) & ~np.isin(correlation, launched)).sum())
    if empty:
        said.append(f"{counted(empty, 'launch call')} without a kernel, copy or set")
    unjoined = int((on_device & ~np.isin(correlation, launchers)).sum())
    if unjoined:
        all_of_them = counted(int(on_device.sum()), "device span")
        said.append(f"{unjoined:,} of {all_of_them} {UNCALLED}")
    if len(correlation) and (correlation.min() < -1 or correlation.max() > np.iinfo(np.int32).max):
        known = correlation != -1
        correlation[known] = np.unique(correlation[known], return_inverse=True)[1]
    return replace(found, kind=kind, correlation=correlation)


def _few_enough(found: Activities, said: list[str]) -> Activities:
    """Leave out ranges, the shortest first, and then calls that launch nothing, where there are more spans than a trace may hold."""
    for kinds, what in (([SpanKind.RANGE], "range"), (HOST_KINDS - set(CALL_KINDS), "call")):
        extra = len(found) - MOST_FOREIGN_SPANS
        rows = np.flatnonzero(found.is_kind(kinds))
        if extra <= 0 or not len(rows):
            continue
        dropped = rows[np.argsort(found.end_ns[rows] - found.start_ns[rows], kind="stable")[:extra]]
        shortest = f"{counted(len(dropped), what)}, the shortest of {len(rows):,}"
        said.append(f"left out: {shortest}, since a trace may have {MOST_FOREIGN_SPANS:,} spans")
        found = found.rows(np.delete(np.arange(len(found)), dropped))
    return found


def _threads_apart(found: Activities) -> Activities:
    """Give threads of several processes that have one number a place each, which says whose it is."""
    rows = np.flatnonzero(found.is_kind(HOST_KINDS) & (found.process >= 0))
    processes, process = distinct(found.process[rows])
    places, place = distinct(found.place[rows])
    pairs, pair = distinct(place * max(1, len(processes)) + process)
    if len(pairs) == len(places):
        return found
    texts, numbers = dict(found.places), places[pairs // len(processes)]
    shared = np.bincount(pairs // len(processes), minlength=len(places)) > 1
    free = min([-2, *texts]) - 1
    for at in np.flatnonzero(shared[pairs // len(processes)])[::-1].tolist():  # Lanes are in the order of the numbers.
        owner, thread = int(processes[pairs[at] % len(processes)]), int(numbers[at])
        texts[free] = f"{texts.get(thread, thread)} (process {found.processes.get(owner, owner)})"
        numbers[at], free = free, free - 1
    where = found.place.copy()
    where[rows] = numbers[pair]
    return replace(found, place=where, places=texts)


def _lanes(found: Activities, said: list[str]) -> tuple[IntArray, tuple[str, ...], tuple[int, ...]]:
    """Return each row's lane, and names and GPUs of all lanes: each thread with its ranges, then the streams, GPU by GPU."""
    family = _LANE_OF_KIND[found.kind]
    places, place = distinct(found.place)
    gpus, gpu = distinct(np.where(family >= _WORK, found.gpu, -1))
    groups, group = distinct((gpu * len(places) + place) * len(_BEHIND) + family)
    group = group.astype(np.int16 if len(groups) < 2**15 else np.int64)  # 16 bits are sorted in linear time
    order = np.argsort(group, kind="stable")
    track = np.zeros(len(found), np.int64)
    spilled = {_RANGES: 0, _WORK: 0, _GRAPHS: 0}
    for rows in np.split(order, np.searchsorted(group[order], np.arange(1, len(groups)))):
        kind = int(family[rows[0]])
        if kind != _CALLS:
            track[rows] = _tracks(found.start_ns[rows], found.end_ns[rows], kind)
            spilled[kind] += int(np.count_nonzero(track[rows]))
    for kind, what, owner in ((_RANGES, "range", "thread"), (_WORK, "device span", "stream")):
        if spilled[kind]:
            said.append(f"on further lanes (· 2): {counted(spilled[kind], what)} that overlapped another of the same {owner}")
    lanes, lane = distinct(group.astype(np.int64) * _MOST_TRACKS + track)
    texts, owners = list[str](), list[int]()
    on_gpu = gpu_names(found)
    names = {owner: _Names("thread" if owner < 0 else "stream", found.places) for owner in gpus.tolist()}
    for which, number in zip((lanes // _MOST_TRACKS).tolist(), (lanes % _MOST_TRACKS).tolist(), strict=True):
        at, kind = divmod(int(groups[which]), len(_BEHIND))
        of_gpu = int(gpus[at // len(places)])
        text = on_gpu.get(of_gpu, "") + names[of_gpu][int(places[at % len(places)])] + _BEHIND[kind]
        texts.append(f"{text} · {number + 1}" if number else text)
        owners.append(of_gpu)
    return lane, tuple(texts), tuple(owners)


class _Names:
    """Names of threads, or of streams: cut where they are long, and no two alike.

    Those that end as names of further lanes do stand in brackets: stream ``"7 · 2"`` is not the second lane of stream ``"7"``.
    """

    def __init__(self, what: str, texts: Mapping[int, str]) -> None:
        self._what, self._texts = what, texts
        self._names = dict[int, str]()
        self._taken = dict[str, int]()
        """Names, and with how many numbers each is there."""

    def __getitem__(self, place: int) -> str:
        if place not in self._names:
            short = printable(self._texts.get(place, str(place)))[:_LONGEST_PLACE]
            name = short = named_place(self._what, f"({short})" if _LIKE_A_LANE.search(short) else short)
            number = self._taken.get(short, 0)
            while name in self._taken:
                number += 1
                name = f"{short} ({number + 1})"
            self._taken[short] = number
            self._taken.setdefault(name, 0)
            self._names[place] = name
        return self._names[place]


def _tracks(start_ns: IntArray, end_ns: IntArray, kind: int) -> IntArray:
    """Return for spans, ordered by start and the longer ones first, the first track on which ranges nest and work runs side by side."""
    if (start_ns[1:] >= np.maximum.accumulate(end_ns)[:-1]).all():
        return np.zeros(len(start_ns), np.int64)
    levels = placed(start_ns.tolist(), end_ns.tolist(), repeat(kind != _RANGES))
    track = np.fromiter(takewhile(_MOST_TRACKS.__gt__, levels), np.int64)
    if len(track) < len(start_ns):
        told = "of its ranges on one thread overlap without nesting", "kernels, copies and sets of it run at one time on one stream"
        raise TraceError(f"more than {_MOST_TRACKS} {told[kind != _RANGES]}")
    return track


def _named(found: Activities, said: list[str], *, symbols: bool) -> tuple[IntArray, IntArray, tuple[str, ...]]:
    """Return each row's name and symbol as indices, and the texts, cut where they are too long."""
    used, code = distinct(found.name)
    texts = [found.names[index] for index in used.tolist()]
    cut = sum(len(text) > LONGEST_NAME for text in texts)
    if cut:
        said.append(f"cut: {counted(cut, 'name')} of more than {LONGEST_NAME:,} characters")
    index: dict[str, int] = {}
    full = np.array([index.setdefault(_shown(text), len(index)) for text in texts], np.int64)
    kernels = found.is_kind([SpanKind.KERNEL] if symbols else [])
    shown = list(index)
    short = full.copy()
    for each in np.unique(code[kernels]).tolist():
        short[each] = index.setdefault(short_name(shown[full[each]]), len(index))
    name = np.where(kernels, short[code], full[code])
    return name, np.where(kernels, full[code], -1), tuple(index)


def _shown(text: str) -> str:
    text = printable(text)
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}…"
