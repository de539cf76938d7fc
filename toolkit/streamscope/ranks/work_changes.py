"""Changes of the work of ranks: named, put in the place of another's, with faster links, one at a time, in buckets."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np

from streamscope.analysis.idle import KERNEL_WAIT_BELOW_NS
from streamscope.analysis.intervals import Intervals, union
from streamscope.arrays import BoolArray, FloatArray, IntArray
from streamscope.errors import TraceError
from streamscope.predicting.scenario import chosen
from streamscope.predicting.tasks import Task
from streamscope.ranks.replay import RankTimes, RankWork
from streamscope.ranks.waiting import Coverage
from streamscope.trace.spans import SpanKind, SpanTable
from streamscope.words import binary_size

_BESIDE = 0.05
"""Work with more of its time beside other work of its GPU did not run alone."""
_MOST_LOST = 0.9
"""A kernel beside a collective goes on, however slowly."""

_NOISE_NS = 1_000
"""A collective that began so shortly behind a kernel of its GPU, and later than all that it waited for, had waited for its room."""

_UNLIKE = "rank {} cannot be like rank {}"
_OTHERWISE = "choose a rank with the same part in the job; without(...) and kernel(...).scale(...) change single kernels"


def named(work: RankWork, pattern: str) -> list[bool]:
    """Tell of each task whether a pattern names it: as in `ss.what_if`, or the kind of its collective."""
    kinds = dict(zip(work.trace.collectives.span.tolist(), work.trace.collectives.words("kind"), strict=True))
    of_kind = [bool(task.rows) and kinds.get(task.rows[0]) == pattern for task in work.tasks]
    return of_kind if any(of_kind) else chosen(work.tasks, work.trace, pattern)


def in_place_of(late: RankWork, other: RankWork, numbers: tuple[int, int]) -> RankWork:
    """Return the work of another rank with the collectives of a late one."""
    pairs = _paired(late, other, numbers)
    ours, theirs = np.array(sorted(pairs, key=lambda pair: pair[1]), np.int64).reshape(-1, 2).T
    facts = late.trace.collectives
    at = np.searchsorted(facts.span, ours)
    columns = {name: getattr(facts, name)[at] for name in ("instance", "kind", "op", "nbytes", "ranks", "communicator", "sequence", "peer")}
    return replace(
        other,
        trace=replace(other.trace, collectives=replace(facts, span=theirs, **columns)),
        operation={row: late.operation[own] for own, row in pairs},
        transfer_ns={row: late.transfer_ns[own] for own, row in pairs if own in late.transfer_ns},
        nbytes={row: late.nbytes[own] for own, row in pairs if own in late.nbytes},
        if_latency={row: late.if_latency[own] for own, row in pairs if own in late.if_latency},
    )


def _paired(late: RankWork, other: RankWork, numbers: tuple[int, int]) -> list[tuple[int, int]]:
    """Return rows of collectives of two ranks that stand for each other: parts of one operation, else the same kinds and sizes in order.

    Two ranks that send to each other are stages of a pipeline: their work has another order.
    """
    present = [[task.rows[0] for task in work.tasks if work.operation_of(task) is not None] for work in (late, other)]
    row_of = {other.operation[row]: row for row in present[1]}
    kinds = {*late.trace.collectives.words("kind"), *other.trace.collectives.words("kind")}
    if "send_recv" in kinds:
        raise TraceError(f"{_UNLIKE.format(*numbers)}: the files do not say what they send and what they receive", hint=_OTHERWISE)
    if kinds.isdisjoint({"send", "recv"}) and {late.operation[row] for row in present[0]} == set(row_of):
        return [(row, row_of[late.operation[row]]) for row in present[0]]
    tokens = []
    for work, rows in zip((late, other), present, strict=True):
        facts = work.trace.collectives
        at = np.searchsorted(facts.span, rows)
        words = facts.words("kind")
        tokens.append([(words[one], int(facts.nbytes[one])) for one in at.tolist()])
    if tokens[0] != tokens[1]:
        raise TraceError(f"{_UNLIKE.format(*numbers)}: they do not take part in the same sequence of collectives", hint=_OTHERWISE)
    return list(zip(*present, strict=True))


def without_ranges(work: RankWork, recorded: RankTimes, pattern: str) -> RankWork | None:
    """Return work whose host does not spend the time of ranges of a name; None where there are none."""
    spans = work.trace.spans
    codes = [code for code, name in enumerate(spans.names) if fnmatchcase(name, pattern)]
    rows = np.flatnonzero((spans.kind == SpanKind.RANGE) & np.isin(spans.name, codes))
    if not len(rows):
        return None
    shift_ns = round(work.begin_ns) - work.run_start_ns
    ranges = Coverage(union(spans.start_ns[rows] + shift_ns, spans.end_ns[rows] + shift_ns))
    free_ns, back_ns = (np.rint(np.array(each)[work.kept]).astype(np.int64) for each in (recorded.free_ns, recorded.back_ns))
    gone_ns = ranges.within(free_ns, back_ns).tolist()
    tasks = [replace(task, call_ns=max(0.0, task.call_ns - ns)) if ns else task for task, ns in zip(work.tasks, gone_ns, strict=True)]
    return replace(work, tasks=tuple(tasks))


def without_waits(work: RankWork) -> RankWork:
    """Return work without long waits of the GPU that nothing explains."""
    return replace(work, tasks=tuple(replace(task, gap_ns=0.0) if task.gap_ns >= KERNEL_WAIT_BELOW_NS else task for task in work.tasks))


def faster_links(work: RankWork, scale: float, latency_ns: Mapping[int, float]) -> RankWork:
    """Return work whose transfers beyond their latency, which is nothing where it is not known, take as much shorter."""

    def own_time(task: Task) -> Task:
        alone = work.operation_of(task) is not None and task.rows[0] not in work.transfer_ns
        return replace(task, factor=task.factor / scale) if alone else task

    known_ns = {row: min(latency_ns.get(row, 0.0), ns) for row, ns in work.transfer_ns.items()}
    transfer_ns = {row: known_ns[row] + (ns - known_ns[row]) / scale for row, ns in work.transfer_ns.items()}
    if_latency = {row: scale * work.if_latency.get(row, 1.0) for row in work.operation if row not in latency_ns}
    return replace(work, tasks=tuple(map(own_time, work.tasks)), transfer_ns=transfer_ns, if_latency=if_latency)


def with_latency(work: RankWork, *, longer: bool) -> RankWork:
    """Return work whose transfers of unknown latency are all latency, where that makes them longer, or else where it makes them shorter."""

    def changed(task: Task) -> Task:
        factor = work.if_latency.get(task.rows[0], 1.0) if task.rows else 1.0
        return replace(task, factor=task.factor * factor) if (factor > 1 if longer else factor < 1) else task

    return replace(work, tasks=tuple(map(changed, work.tasks)))


@dataclass(frozen=True)
class _Measured:
    """Work of one rank on the device, in the order of its launches.

    Attributes
    ----------
    rows : int64 array
    time_ns : float array
        Durations; of parts of collectives, transfers.
    alone_ns : float array
        The median of what is alike and ran alone, on any rank; NaN where there is none. Alike are kernels and copies of one name, size and
        grid, and transfers of one kind, size and communicator.
    beside : bool array
        Whether other work of its GPU ran for a part of its time.
    """

    rows: IntArray
    time_ns: FloatArray
    alone_ns: FloatArray
    beside: BoolArray


def _measured(works: Sequence[RankWork]) -> list[_Measured]:
    names: dict[object, int] = {}
    every, keys, times_ns, beside = list[IntArray](), list[IntArray](), list[FloatArray](), list[BoolArray]()
    for work in works:
        spans = work.trace.spans
        rows = np.array([task.rows[0] for task in work.tasks if task.rows], np.int64)
        text = np.array([names.setdefault(name, len(names)) for name in spans.names], np.int64)
        columns = [
            text[spans.name[rows]],
            *(getattr(spans, name)[rows].astype(np.int64) for name in ("blocks", "threads", "bytes", "flops")),
        ]
        columns += [_number_of_collective(work, rows, names)]
        own_ns = (spans.end_ns[rows] - spans.start_ns[rows]).astype(np.float64)
        times_ns.append(np.array([work.transfer_ns.get(row, own) for row, own in zip(rows.tolist(), own_ns.tolist(), strict=True)]))
        every.append(rows)
        keys.append(np.stack(columns))
        beside.append(_share_beside(spans, rows) > _BESIDE)
    key = np.unique(np.concatenate(keys, axis=1), axis=1, return_inverse=True)[1].reshape(-1)
    whole_ns, together = np.concatenate(times_ns), np.concatenate(beside)
    usual_ns = np.full(int(key.max(initial=-1)) + 1, np.nan)
    for one in np.unique(key[together]).tolist():
        own = whole_ns[(key == one) & ~together]
        usual_ns[one] = np.median(own) if len(own) else np.nan
    alone_ns = np.split(usual_ns[key], np.cumsum([len(each) for each in times_ns])[:-1])
    return [_Measured(*columns) for columns in zip(every, times_ns, alone_ns, beside, strict=True)]


def alone(works: Sequence[RankWork]) -> tuple[list[RankWork], int]:
    """Return works that take as long as alone on their GPU, and how many of them keep their time beside others: none alike ran alone."""
    found, unknown = list[RankWork](), 0
    for work, its in zip(works, _measured(works), strict=True):
        ratio = np.where(its.beside, np.minimum(1.0, its.alone_ns / np.maximum(its.time_ns, 1)), 1.0)
        unknown += int(np.isnan(ratio).sum())
        found.append(replace(_shorter(work, np.nan_to_num(ratio, nan=1.0).tolist()), slowed={}))
    return found, unknown


def slowed_by_collectives(works: Sequence[RankWork]) -> list[RankWork]:
    """Return works that know how much their kernels are slowed down by collectives, which occupy multiprocessors.

    A kernel that took longer than alone lost that time evenly while collectives ran beside it.
    """
    found = []
    for work, its in zip(works, _measured(works), strict=True):
        spans, rows = work.trace.spans, its.rows
        parts = np.isin(rows, [*work.operation])
        meanwhile = Coverage(union(spans.start_ns[rows[parts]], spans.end_ns[rows[parts]]))
        beside_ns = meanwhile.within(spans.start_ns[rows], spans.end_ns[rows])
        lost = np.clip((its.time_ns - its.alone_ns) / np.maximum(beside_ns, 1), 0, _MOST_LOST)
        only = np.zeros(len(rows), bool)
        only[~parts] = _share_beside(spans, rows[~parts]) <= _BESIDE
        known = np.flatnonzero(its.beside & only & (beside_ns > 0) & (lost > 0))
        slowed = zip(rows[known].tolist(), lost[known].tolist(), beside_ns[known].tolist(), strict=True)
        found.append(replace(work, slowed={row: (share, ns) for row, share, ns in slowed}))
    return found


def _number_of_collective(work: RankWork, rows: IntArray, names: dict[object, int]) -> IntArray:
    """Return a number for the kind, communicator and size of the collective that each row is a part of; -1 for other work."""
    facts = work.trace.collectives
    told = zip(facts.words("kind"), facts.words("communicator"), facts.nbytes.tolist(), strict=True)
    number = {row: names.setdefault(each, len(names)) for row, each in zip(facts.span.tolist(), told, strict=True)}
    return np.array([number.get(row, -1) for row in rows.tolist()], np.int64)


def _share_beside(spans: SpanTable, rows: IntArray) -> FloatArray:
    """Return the part of each row's time in which another row ran, too."""
    times_ns = np.concatenate([spans.start_ns[rows], spans.end_ns[rows]])
    order = np.argsort(times_ns, kind="stable")
    running = np.cumsum(np.repeat([1, -1], len(rows))[order])
    edges_ns = times_ns[order]
    several = np.flatnonzero((running[:-1] > 1) & (np.diff(edges_ns) > 0))
    covered = Coverage(Intervals(edges_ns[several], edges_ns[several + 1]))
    within: FloatArray = covered.within(spans.start_ns[rows], spans.end_ns[rows]) / np.maximum(1, spans.end_ns[rows] - spans.start_ns[rows])
    return within


def _shorter(work: RankWork, ratios: Sequence[float]) -> RankWork:
    """Return work whose pieces on the device take shares of their time."""
    transfer_ns, tasks, share = dict(work.transfer_ns), list[Task](), iter(ratios)
    for task in work.tasks:
        ratio = next(share) if task.rows else 1.0
        if task.rows and task.rows[0] in transfer_ns:
            transfer_ns[task.rows[0]] *= ratio
            tasks.append(task)
        else:
            tasks.append(task if ratio == 1 else replace(task, factor=task.factor * ratio))
    return replace(work, tasks=tuple(tasks), transfer_ns=transfer_ns)


def one_at_a_time(work: RankWork) -> RankWork:
    """Return work of which each piece comes after the one that was launched before.

    A collective comes right behind the last work that it waits for: within a CUDA graph no launches tell its place, and all ranks have to
    agree on it. Of delays behind work of the same stream, and of all of 30 µs and more, the part stays in which no other work of the GPU
    ran, as in `ss.what_if`. Other delays, such as for a free multiprocessor, are those between pieces of one stream: the median at most.
    """
    work = _collectives_first(work)
    stream = work.trace.spans.stream_lanes[work.trace.spans.lane].tolist()
    lane = [stream[task.rows[0]] if task.rows else -1 for task in work.tasks]
    behind = [bool(task.rows) and {lane[one] for one in task.after} == {own} for task, own in zip(work.tasks, lane, strict=True)]
    short_ns = [task.gap_ns for task, own in zip(work.tasks, behind, strict=True) if own and task.gap_ns < KERNEL_WAIT_BELOW_NS]
    usual_ns = float(np.median(short_ns)) if short_ns else 0.0
    stays_ns = [
        free_ns if (own or gap_ns >= KERNEL_WAIT_BELOW_NS) and free_ns > _BESIDE * gap_ns else 0.0
        for own, (gap_ns, free_ns) in zip(behind, _free_ns(work), strict=True)
    ]
    tasks, last = list[Task](), -1
    for position, task in enumerate(work.tasks):
        if task.on_host or last < 0:
            tasks.append(task)
        else:
            gap_ns = stays_ns[position] or min(task.gap_ns, usual_ns)
            tasks.append(replace(task, after=tuple(sorted({*task.after, last})), gap_ns=gap_ns))
        last = last if task.on_host else position
    return replace(work, tasks=tuple(tasks))


def _free_ns(work: RankWork) -> list[tuple[float, float]]:
    """Return the delay of each task, and the part of it in which the GPU did nothing."""
    spans = work.trace.spans
    rows = np.array([task.rows[0] if task.rows else -1 for task in work.tasks], np.int64)
    gap_ns = np.array([task.gap_ns for task in work.tasks], np.float64)
    device = rows[rows >= 0]
    busy = Coverage(union(spans.start_ns[device], spans.end_ns[device]))
    start_ns = spans.start_ns[rows]
    free_ns = np.where(rows >= 0, gap_ns - busy.within(start_ns - gap_ns, start_ns), gap_ns)
    return list(zip(gap_ns.tolist(), free_ns.tolist(), strict=True))


def _collectives_first(work: RankWork) -> RankWork:
    """Return work in which each collective stands as early as its waits allow; other work keeps its order."""
    place = list[float]()
    for position, task in enumerate(work.tasks):
        early = bool(task.after) and work.operation_of(task) is not None
        place.append(max(place[one] for one in task.after) if early else position)
    order = np.argsort(place, kind="stable")
    new = np.empty(len(order), np.int64)
    new[order] = np.arange(len(order))
    tasks = [replace(work.tasks[old], after=tuple(sorted(new[list(work.tasks[old].after)].tolist()))) for old in order.tolist()]
    return replace(work, tasks=tuple(tasks), kept=work.kept[order])


def buckets(works: Sequence[RankWork], operations: set[int], limit: int) -> tuple[dict[int, int], list[str]]:
    """Return for each collective of a communicator the last one of its bucket, which has at most ``limit`` bytes; and why buckets end."""
    taking_part = [work for work in works if operations & set(work.operation.values())]
    if not taking_part:
        return {}, []
    order = [one for task in taking_part[0].tasks if (one := taking_part[0].operation_of(task)) in operations]
    index = {operation: place for place, operation in enumerate(order)}
    held = np.max([_awaited_before(work, index) for work in taking_part], axis=0).tolist()
    size_of = _sizes(taking_part[0])
    sizes = [size_of[operation] for operation in order]
    begin, total = 0, 0
    first, too_large = list[int](), list[int]()
    reasons = dict[str, None]()
    for place, size in enumerate(sizes):
        total += size
        apart = ""
        if place and not min(size, sizes[place - 1]):
            apart = "their sizes are not known"
        elif place and held[place] >= len(order):
            apart = "ranks launch them in different orders, or do not wait for each other in them"
        elif place and held[place] >= begin:
            apart = "something waits for each before the next one is launched"
        elif place and total > limit:
            too_large.append(total)
        if not place or apart or total > limit:
            begin, total = place, size
        reasons |= {apart: None} if apart else {}
        first.append(begin)
    last = {begin: place for place, begin in enumerate(first)}
    if too_large:
        reasons |= {f"those that follow each other have {binary_size(min(too_large))} or more together": None}
    return {operation: order[last[first[place]]] for operation, place in index.items()}, [*reasons] or ["there is one alone"]


def _sizes(work: RankWork) -> dict[int, int]:
    """Return the bytes of each collective; 0 where unknown."""
    facts = work.trace.collectives
    size_of = {**dict(zip(facts.span.tolist(), facts.nbytes.tolist(), strict=True)), **work.nbytes}
    return {operation: size_of[row] for row, operation in work.operation.items()}


def _awaited_before(work: RankWork, index: Mapping[int, int]) -> IntArray:
    """Return for each of some collectives the newest of them for which something waits that was launched before it; -1 for none.

    Parts that keep their own time, or come in another order than on the first rank, can be in no bucket with those before.
    """
    places = [-1 if (operation := work.operation_of(task)) is None else index.get(operation, -1) for task in work.tasks]
    found, newest, latest = np.full(len(index), len(index)), -1, -1
    for task, place in zip(work.tasks, places, strict=True):
        if place < 0:
            newest = max([newest, *(places[earlier] for earlier in task.after)])
        elif task.rows[0] in work.transfer_ns and place > latest:
            found[place], latest = newest, place
    return found


def _waits_of_buckets(work: RankWork, bucket: Sequence[int | None]) -> dict[int, tuple[list[int], float]]:
    """Return for each bucket of several collectives the kernel that it waits for to have room on the GPU, if any, and its delay."""
    spans = work.trace.spans
    start_ns, end_ns = (
        [float(times[task.rows[-1]]) if task.rows else -math.inf for task in work.tasks] for times in (spans.start_ns, spans.end_ns)
    )
    kernels = [position for position, task in enumerate(work.tasks) if task.rows and work.operation_of(task) is None]
    kernels.sort(key=lambda position: end_ns[position])
    ends_ns = [end_ns[position] for position in kernels]
    parts: dict[int, list[int]] = {}
    for position, last in enumerate(bucket):
        if last is not None:
            parts.setdefault(last, []).append(position)
    found = {}
    for last, own in parts.items():
        if len(own) > 1:
            ready_ns = [max((end_ns[one] for one in work.tasks[each].after if bucket[one] is None), default=-math.inf) for each in own]
            first = own[ready_ns.index(max(ready_ns))]
            begin_ns, gap_ns = start_ns[first], work.tasks[first].gap_ns
            ended = bisect_right(ends_ns, begin_ns) - 1
            late_ns = begin_ns - ends_ns[ended] if gap_ns > _NOISE_NS and ended >= 0 else math.inf
            room = late_ns <= work.gap_ns + _NOISE_NS and kernels[ended] < own[-1]
            found[last] = ([kernels[ended]], max(0.0, late_ns - work.gap_ns)) if room else ([], gap_ns)
    return found


def merged(work: RankWork, last_of: Mapping[int, int], latency_ns: Mapping[int, float]) -> RankWork:
    """Return work in which the last collective of each bucket stands for all of it.

    It comes after all that one of them came after, and then waits as the first of those did whose data were ready last: for the kernel
    that left no room on the GPU, or for as long. It takes as long as all together without the latencies of the others. Where these are
    not known, it takes as long as all together, and as the longest of them if all is latency.
    """
    size_of = _sizes(work)
    last_row = {operation: row for row, operation in work.operation.items()}
    longest_ns = dict[int, float]()
    transfer_ns, nbytes, operation_of = dict(work.transfer_ns), dict(work.nbytes), dict(work.operation)
    tasks, kept = list[Task](), list[int]()
    number: list[int | None] = []
    awaited, place_of = dict[int, set[int]](), dict[int, int]()
    operations = [work.operation_of(task) for task in work.tasks]
    bucket = [None if operation is None else last_of.get(operation) for operation in operations]
    behind = _waits_of_buckets(work, bucket)
    for position, (task, operation, last) in enumerate(zip(work.tasks, operations, bucket, strict=True)):
        others = [one for one in task.after if last is None or bucket[one] != last]
        after = {place_of[its] if (its := bucket[one]) is not None else number[one] for one in others}
        known = {one for one in after if one is not None}
        if operation is not None and last is not None and operation != last:
            awaited.setdefault(last, set()).update(known)
            row, into = task.rows[0], last_row[last]
            longest_ns[into] = max(longest_ns.get(into, 0.0), transfer_ns[row] * work.if_latency.get(row, 1.0))
            transfer_ns[into] += max(0.0, transfer_ns.pop(row) - latency_ns.get(row, 0.0))
            nbytes[into] = nbytes.get(into, size_of[last]) + size_of[operation]
            del operation_of[row]
            number.append(None)
            continue
        if last is not None:
            known |= awaited.get(last, set())
            place_of[last] = len(tasks)
        room, gap_ns = ([], task.gap_ns) if last is None else behind.get(last, ([], task.gap_ns))
        known |= {place for one in room if (place := number[one]) is not None}
        number.append(len(tasks))
        tasks.append(replace(task, after=tuple(sorted(known)), gap_ns=gap_ns))
        kept.append(int(work.kept[position]))
    if_latency = {row: one for row, one in work.if_latency.items() if row in operation_of}
    for row, ns in longest_ns.items():
        if row not in latency_ns and transfer_ns[row]:
            if_latency[row] = max(ns, work.transfer_ns[row] * work.if_latency.get(row, 1.0)) / transfer_ns[row]
    return replace(
        work, tasks=tuple(tasks), kept=np.array(kept, np.int64), operation=operation_of, transfer_ns=transfer_ns, nbytes=nbytes,
        if_latency=if_latency,
    )  # fmt: skip
