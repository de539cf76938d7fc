"""Placing launches in time by measurements: ends and durations by events, stamps of their neighbours, marks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from streamscope.engines.plan import Issue, Step, dependencies
from streamscope.program.launch import LaunchKind
from streamscope.recording.launch_kernels import LaunchKernel
from streamscope.trace.spans import Basis

STAGGER_NS = 2_000.0
"""By how much the branches of a graph begin one after the other, though they depend on nothing: as much was measured on an H200."""
_HALVINGS = 20
"""After so many, a factor between 0 and 1 is known to a millionth."""
_SLOWEST = 4.0
"""How many times as long as alone a kernel may take beside others."""


@dataclass(frozen=True)
class Placed:
    """One launch with its times on the host's clock, in ns; ``correlation`` is the index of the host call that issued it.

    ``pieces`` are its kernels, copies and sets, with times since its start.
    """

    step: Issue
    correlation: int
    start_ns: float
    end_ns: float
    basis: Basis
    pieces: tuple[LaunchKernel, ...]


def back_to_back_ns(steps: Sequence[Step], durations_ns: Mapping[int, float]) -> dict[int, float]:
    """Return how long before the end each launch would end if it began when the last one it depends on ended, in ns."""
    ends: dict[int, float] = {}
    for index, earlier in dependencies(steps).items():
        ends[index] = max((ends[other] for other in earlier), default=0.0) + durations_ns[index]
    last = max(ends.values(), default=0.0)
    return {index: last - end for index, end in ends.items()}


def fitted_to_ends(steps: Sequence[Step], durations_ns: Mapping[int, float], ends_ns: Mapping[int, float]) -> dict[int, float]:
    """Return durations of a graph's launches, shortened alike where they do not fit between the ends that were measured.

    A launch cannot have run longer than since the last end of the work it depends on. Durations measured alone carry a common error of
    some tenths of a microsecond, that of the calibration, and along a chain of short kernels such errors add up. So where launches are
    longer than that in the median, the median excess is taken off all.
    """
    excess = [
        durations_ns[index] - (ends_ns[index] - max(ends_ns[other] for other in earlier))
        for index, earlier in dependencies(steps).items()
        if earlier
    ]
    too_long = max(0.0, float(np.median(excess))) if excess else 0.0
    return {index: max(0.0, duration - too_long) for index, duration in durations_ns.items()}


def place_in_graph(steps: Sequence[Step], durations_ns: Mapping[int, float], ends_ns: Mapping[int, float]) -> dict[int, float]:
    """Return the start of each launch of a graph, in ns, by index in ``steps``.

    Ends are uncertain by about half a microsecond, often more than the gap between two kernels, so taken as they are,
    launches that depend on each other would seem to overlap. Two placements respect all dependencies: the earliest that ends nothing
    before its measured end, and the latest that ends nothing after it. Every mean of placements that respect the dependencies respects
    them too, and so does the middle of these two, which is returned.
    """
    before = dependencies(steps)
    after: dict[int, list[int]] = {index: [] for index in before}
    for index, earlier in before.items():
        for other in earlier:
            after[other].append(index)
    pushed: dict[int, float] = {}
    for index in before:
        ready = max((pushed[other] + durations_ns[other] for other in before[index]), default=float("-inf"))
        pushed[index] = max(ends_ns[index] - durations_ns[index], ready)
    pulled: dict[int, float] = {}
    for index in reversed(before):
        end = min((pulled[other] for other in after[index]), default=float("inf"))
        pulled[index] = min(ends_ns[index], end) - durations_ns[index]
    return {index: (pushed[index] + pulled[index]) / 2 for index in before}


def begun_when_free(steps: Sequence[Step], starts_ns: Mapping[int, float], durations_ns: Mapping[int, float]) -> dict[int, float]:
    """Return the starts of a graph's launches, of which kernels beside a collective begin as soon as nothing keeps them waiting.

    A collective's channels hold some multiprocessors. A kernel that would fill the GPU then takes a second round of blocks, so it takes up
    to twice as long as alone, and its end less that time alone is no start. What it depends on keeps it waiting, and kernels of other
    streams. Gaps up to `STAGGER_NS` stay: graphs have them anyway.
    """
    ends = {index: start + durations_ns[index] for index, start in starts_ns.items()}
    found = dict(starts_ns)
    kernels, collectives = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for index in sorted(starts_ns, key=starts_ns.__getitem__):
        launch = cast("Issue", steps[index]).launch
        if launch.kind in (LaunchKind.KERNEL, LaunchKind.COLLECTIVE):
            (kernels if launch.kind is LaunchKind.KERNEL else collectives)[launch.gpu].append(index)
    before = dependencies(steps)
    for gpu, parts in collectives.items():
        last = -np.inf
        for index in kernels[gpu]:
            start = starts_ns[index]
            free = min(start, max([last, *(ends[other] for other in before[index])]))
            last = max(last, ends[index])
            if start - free > STAGGER_NS and any(starts_ns[part] <= free + STAGGER_NS and free < ends[part] for part in parts):
                found[index] = free
    return found


def with_shorter_gaps(steps: Sequence[Step], times_ns: Mapping[int, tuple[float, float]], share: float) -> dict[int, tuple[float, float]]:
    """Return starts and ends of a graph's launches that together take a share of their time, until the same end; more if gaps are short.

    Launches keep their durations, but for parts of a collective that wait. The gaps between each launch and what it depends on are
    shortened by the same factor, those of launches that wait for room on a GPU, too.
    """
    before = {index: [one for one in earlier if one in times_ns] for index, earlier in dependencies(steps).items() if index in times_ns}
    awaited, complete = _meetings(steps, before)
    first_ns, last_ns = min(start for start, _ in times_ns.values()), max(end for _, end in times_ns.values())

    def placed(kept: float) -> dict[int, tuple[float, float]]:
        found: dict[int, tuple[float, float]] = {}
        begins: dict[int, float] = {}
        for index, earlier in before.items():
            ready_ns = max((found[one][1] for one in earlier), default=first_ns)
            gap_ns = times_ns[index][0] - max((times_ns[one][1] for one in earlier), default=first_ns)
            begins[index] = ready_ns + min(gap_ns, kept * gap_ns)
            for part in complete[index]:
                all_begun_ns, before_ns = max(begins[one] for one in awaited[part]), max(times_ns[one][0] for one in awaited[part])
                end_ns = times_ns[part][1] + all_begun_ns - before_ns
                found[part] = (min(begins[part], end_ns), end_ns)
        return found

    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        kept = (low + high) / 2
        took_ns = max(end for _, end in placed(kept).values()) - first_ns
        low, high = (low, kept) if took_ns > share * (last_ns - first_ns) else (kept, high)
    found = placed(low)
    later_ns = last_ns - max(end for _, end in found.values())
    return {index: (start + later_ns, end + later_ns) for index, (start, end) in found.items()}


def _meetings(steps: Sequence[Step], launches: Collection[int]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Return of each launch those that have begun when it ends, and those whose ends are known when it has begun.

    Parts of a collective stand one behind the other: with the last of them, the ends of all are known.
    """
    awaited, complete = ({index: [index] for index in launches} for _ in range(2))
    parts: dict[int, dict[int, int]] = {}
    for index in launches:
        launch = cast("Issue", steps[index]).launch
        if launch.collective is not None:
            parts.setdefault(launch.operation, {})[launch.part] = index
    for own in parts.values():
        for part, index in own.items():
            collective = cast("Issue", steps[index]).launch.collective
            assert collective is not None
            awaited[index], complete[index] = [own[one] for one in collective.awaits(part) if one in own], []
        complete[max(own.values())] = [*own.values()]
    return awaited, complete


def meeting(times: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return starts and ends of kernels one after the other, those that would overlap parted in the middle."""
    found = list(times)
    for later in range(1, len(found)):
        (start, end), (next_start, next_end) = found[later - 1], found[later]
        if end > next_start:
            found[later - 1], found[later] = (start, (end + next_start) / 2), ((end + next_start) / 2, next_end)
    return found


def apart(placed: Sequence[Placed]) -> list[Placed]:
    """Return launches of which no two of one stream overlap: a stamped one keeps its times before others, two alike part in the middle."""
    found = sorted(placed, key=lambda one: (one.step.lane, one.start_ns))
    for later in range(1, len(found)):
        one, other = found[later - 1], found[later]
        if one.step.lane != other.step.lane or one.end_ns <= other.start_ns:
            continue
        measured = one.basis is Basis.MEASURED, other.basis is Basis.MEASURED
        meet = (one.end_ns + other.start_ns) / 2 if measured[0] == measured[1] else one.end_ns if measured[0] else other.start_ns
        meet = max(meet, one.start_ns)
        found[later - 1], found[later] = replace(one, end_ns=meet), replace(other, start_ns=meet, end_ns=max(meet, other.end_ns))
    return found


def between(
    before: Mapping[int, Sequence[int]],
    known: Mapping[int, tuple[float, float]],
    begins: Mapping[int, float],
    ends: Mapping[int, float],
    alone: Mapping[int, float],
    gap: float,
    *,
    forks: Collection[int] = (),
    copies: Collection[int] = (),
    filling: Sequence[tuple[float, float]] = (),
) -> dict[int, tuple[float, float]]:
    """Return starts and ends of a graph's launches that have no stamps, between those that have.

    A kernel begins when all that it depends on has ended, and a gap later. A GPU hands out the blocks of one kernel before those of the
    next, so a kernel also waits until the last block has begun of those that began before it was ready. So does a mark: while blocks are
    handed out, a mark behind a kernel does not tell its end, and the kernel takes as long as alone; a mark ahead of a kernel that depends
    on none does not tell its start, and the kernel begins with them. A copy shares its way with few others, so it takes as long as alone.
    Nothing is shorter than alone, unless the stamped launches leave no more room.

    ``before`` has for each launch, in order, those that come right before it; ``known`` are starts and ends by stamps; ``begins`` and
    ``ends`` are by marks, of the others that depend on none, and of all others. ``forks`` come first on a branch, or after another branch.
    Branches begin up to `STAGGER_NS` late. So the first kernel of a branch that seems to take longer than alone, by no more than that,
    began late. So did one that seems to take `_SLOWEST` times as long. ``filling`` has of each stamped kernel when its first and its last
    block began.
    """
    times = dict(known)
    latest: dict[int, float] = {}
    crowded = [(first, last) for first, last in filling if last - first > STAGGER_NS]
    for index, (start, _) in known.items():
        # A stamped successor bounds the end of what it waited for.
        latest.update({other: min(start, latest.get(other, start)) for other in before[index]})
    for index, earlier in before.items():
        if index not in known and index in ends:
            late = ends[index] - alone[index]
            ended = [times[other][1] + gap for other in earlier if other in times]
            ready, end = max(ended) if ended else begins.get(index, late), ends[index]
            if index not in copies:
                waits = [last if ended else first for first, last in crowded if first <= ready < last]
                ready = max([ready, *waits]) if ended else min([ready, *waits])
                if any(first <= ready + alone[index] < last for first, last in crowded):
                    end = ready + alone[index]  # The mark waited for room.
            slowed = STAGGER_NS < late - ready <= (_SLOWEST - 1) * alone[index]
            # Copies and first kernels of a branch may begin late; other kernels begin when they can, and are slower.
            start = max(ready, late) if index in copies or (index in forks and not slowed) else ready
            end = min(max(end, start + alone[index]), latest.get(index, np.inf))
            times[index] = (min(start, end), end)
    return {index: time for index, time in times.items() if index not in known}
